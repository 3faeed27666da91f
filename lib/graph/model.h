/* Models: from a specification to the program of one micro-batch.
 *
 *     struct ct_model_spec --ct_model_build--> forward ops, loss, count, backward ops
 *
 * `type` says which part of the specification counts: the MLP here, GPT-2 and its relatives
 * (gpt.h), or ops that the caller emits (builder.h). The program is the logical one: a single rank,
 * a single micro-batch; collectives/plan turns it into a step.
 *
 * The MLP
 *
 *     x [rows, input] -> linear -> act -> linear -> act -> ... -> linear -> logits -> loss
 *                        layers.0         layers.1               layers.L
 *
 * With L hidden layers it has L + 1 linear layers, named "layers.<i>.weight" [out, in] and
 * "layers.<i>.bias" [out] (torch.nn.Linear's shapes and initial distribution). The activation
 * follows every layer but the last.
 *
 * Initial values and the masks of dropout are drawn by philox keyed by the seed and a name, one
 * counter an element: the same numbers on every rank and in every layout. */
#ifndef CT_GRAPH_MODEL_H
#define CT_GRAPH_MODEL_H

#include "base/error.h"
#include "base/number/dtype.h"
#include "graph/gpt.h"
#include "graph/layers.h"
#include "graph/program.h"

#include <stdint.h>

enum { CT_MODEL_MAX_HIDDEN = 64, CT_MODEL_MAX_WIDTH = 1 << 24 };

enum ct_activation { CT_ACT_RELU, CT_ACT_GELU, CT_ACT_GELU_TANH, CT_ACT_TANH, CT_ACT_COUNT };
enum ct_loss { CT_LOSS_CROSS_ENTROPY, CT_LOSS_MSE, CT_LOSS_COUNT };
enum ct_model_type { CT_MODEL_MLP, CT_MODEL_GPT, CT_MODEL_LAYERS, CT_MODEL_CUSTOM };

struct ct_builder;

struct ct_model_spec {
    enum ct_model_type type;
    enum ct_dtype dtype; /* CT_F32; CT_F64 for checks */
    bool evaluation;     /* forward only: no dropout, no backward ops */
    bool decoding;       /* gpt: forward only, some tokens of one sequence at a time; see places */

    /* mlp */
    int64_t input;         /* features of a row */
    const int64_t *hidden; /* widths of the hidden layers; not owned */
    int hidden_count;      /* 0 makes a linear classifier */
    int64_t classes;
    enum ct_activation activation;
    enum ct_loss loss; /* mse compares with the one-hot label: mean over classes, torch's default */

    struct ct_gpt_spec gpt;
    struct ct_layers_spec layers;

    /* Return whether the parameter `name` is frozen and gets no gradient. NULL: none is. */
    bool (*frozen)(const void *names, const char *name);
    const void *frozen_names;

    /* custom: emits the forward pass, from ct_build_features or ct_build_tokens to ct_build_loss.
     * 0, or a code with the sentence. */
    int (*build)(struct ct_builder *builder, void *context, struct ct_error *err);
    void *context;
};

/* How a parameter begins. */
enum ct_init_kind { CT_INIT_UNIFORM, CT_INIT_NORMAL, CT_INIT_CONSTANT };

struct ct_init {
    enum ct_init_kind kind;
    double amount; /* uniform: in [-amount, amount); normal: standard deviation; else the value */
};

/* A tensor of the model: its value in the program and that of its gradient. */
struct ct_model_param {
    int value;
    int grad; /* CT_NONE for one that is frozen */
    struct ct_init init;
};

/* State that the trainer updates: a batch norm's running mean or variance. */
struct ct_model_buffer {
    int value;
    double first; /* all its elements begin as this */
};

/* The statistics of a micro-batch's rows, for a batch norm in training. */
struct ct_model_stat {
    int run;         /* output f64 [3, columns], batch_run's; may be added up */
    int mean, var;   /* numbers of buffers that running_update brings up to date with the sum */
    double momentum; /* for running_update */
};

/* The program with the values that the outside writes and reads. */
struct ct_model {
    struct ct_program program;     /* forward ops, then backward ops */
    struct ct_model_param *params; /* in the order of the layers; owned by program.arena */
    int param_count, param_room;
    struct ct_model_buffer *buffers;
    int buffer_count, buffer_room;
    struct ct_model_stat *stats; /* none in an evaluation, which reads the buffers */
    int stat_count, stat_room;
    int forward_count; /* ops[0 .. forward_count) are forward */
    int x;             /* input [rows, ...] */
    int labels;        /* input i32 [rows, or rows * labels a row]; -1 counts for nothing */
    int inv_valid;     /* input f64 [1]: 1 / labels that count in the global batch */
    int draw;          /* input f64 [2]: `at` of dropout and of rounding by chance (op.def); CT_NONE
                          where nothing is drawn */
    int places;        /* decoding: input i32 [tokens], where they stand in the sequence: one behind
                          the other. Keys and values of those before are values of kind state. Ends
                          with the logits: no labels, no loss */
    int logits;        /* [labels, classes] */
    int loss;          /* output f64 [1]: sum over the labels that count */
    int correct;       /* output f64 [1]: rows of logits whose largest is the label's */
};

/* Parse "relu", "gelu", "gelu_tanh", "tanh"; "cross_entropy", "mse". -1 for another name. */
int ct_activation_find(const char *name);
int ct_loss_find(const char *name);

/* Return the philox key of the numbers drawn for `name`: a parameter's initial values, a dropout's
 * masks. */
uint64_t ct_model_key(uint64_t seed, const char *name);

/* Build the model for `rows` samples. 0, or CT_ECONFIG with the sentence, or CT_ENOMEM. The model
 * is the caller's: ct_model_deinit, also after a failure. */
int ct_model_build(struct ct_model *model, const struct ct_model_spec *spec, int64_t rows,
                   struct ct_error *err);

/* Build in two steps, to edit the forward pass before it is differentiated: the ops of the forward
 * pass, then, unless it is for an evaluation, those of the backward pass after them. A caller that
 * adds or removes forward ops updates forward_count. */
int ct_model_build_forward(struct ct_model *model, const struct ct_model_spec *spec, int64_t rows,
                           struct ct_error *err);
int ct_model_build_backward(struct ct_model *model, struct ct_error *err);

void ct_model_deinit(struct ct_model *model);

#endif
