/* Models: from a short specification to the program of one micro-batch.
 *
 *     x [rows, input] -> linear -> act -> linear -> act -> ... -> linear -> logits -> loss
 *                        layers.0         layers.1               layers.L
 *
 * An MLP with L hidden layers has L + 1 linear layers, named "layers.<i>.weight" [out, in] and
 * "layers.<i>.bias" [out] (torch.nn.Linear's shapes and initial distribution). The activation
 * follows every layer but the last. The program is the logical one: a single rank, a single
 * micro-batch; collectives/plan turns it into a step.
 *
 * Initial values: weight and bias uniform in +-1/sqrt(in) (kaiming_uniform with a = sqrt 5), drawn
 * by philox keyed by the seed and the parameter's name, one counter an element: the same numbers on
 * every rank and in every layout. */
#ifndef CT_GRAPH_MODEL_H
#define CT_GRAPH_MODEL_H

#include "base/dtype.h"
#include "base/error.h"
#include "graph/program.h"

#include <stdint.h>

enum { CT_MODEL_MAX_HIDDEN = 64, CT_MODEL_MAX_WIDTH = 1 << 24 };

enum ct_activation { CT_ACT_RELU, CT_ACT_GELU, CT_ACT_GELU_TANH, CT_ACT_TANH, CT_ACT_COUNT };
enum ct_loss { CT_LOSS_CROSS_ENTROPY, CT_LOSS_MSE, CT_LOSS_COUNT };

struct ct_model_spec {
    int64_t input;         /* features of a row */
    const int64_t *hidden; /* widths of the hidden layers; not owned */
    int hidden_count;      /* 0 makes a linear classifier */
    int64_t classes;
    enum ct_activation activation;
    enum ct_loss loss; /* mse compares with the one-hot label: mean over classes, torch's default */
    enum ct_dtype dtype; /* CT_F32; CT_F64 for checks */
};

/* A learned tensor of the model: its value in the program and that of its gradient. Initial values
 * are uniform in [-init_bound, init_bound). */
struct ct_model_param {
    int value;
    int grad;
    double init_bound;
};

/* The program with the values that the outside writes and reads. */
struct ct_model {
    struct ct_program program;     /* forward ops, then backward ops */
    struct ct_model_param *params; /* in the order of the layers; owned by program.arena */
    int param_count;
    int forward_count; /* ops[0 .. forward_count) are forward */
    int x;             /* input [rows, input] */
    int labels;        /* input i32 [rows]; -1 leaves the row out of loss and count */
    int inv_valid;     /* input f64 [1]: 1 / rows that count in the global batch */
    int logits;        /* [rows, classes] */
    int loss;          /* output f64 [1]: sum over the rows that count */
    int correct;       /* output f64 [1]: rows whose largest logit is the label's */
};

/* "relu", "gelu", "gelu_tanh", "tanh"; "cross_entropy", "mse". -1 for another name. */
int ct_activation_find(const char *name);
int ct_loss_find(const char *name);

/* The philox key of the initial values of the parameter called `name`. */
uint64_t ct_model_init_key(uint64_t seed, const char *name);

/* Build the model for `rows` rows, forward and backward. 0, or CT_ECONFIG with the sentence, or
 * CT_ENOMEM. The model is the caller's: ct_model_deinit, also after a failure. */
int ct_model_build(struct ct_model *model, const struct ct_model_spec *spec, int64_t rows,
                   struct ct_error *err);
void ct_model_deinit(struct ct_model *model);

#endif
