/* Building models layer by layer: a program's own, and all of ours.
 *
 *     static int build(struct ct_builder *b, void *context, struct ct_error *err)
 *     {
 *         int x = ct_build_features(b, ct_shape2(b->rows, 64));
 *         int h = ct_build_act(b, CT_ACT_RELU, ct_build_linear(b, "in", x, 32));
 *         h = ct_build_add(b, h, ct_build_act(b, CT_ACT_RELU, ct_build_linear(b, "more", h, 32)));
 *         ct_build_loss(b, CT_LOSS_CROSS_ENTROPY, ct_build_linear(b, "out", h, 10));
 *         return 0;
 *     }
 *     struct ct_model_spec spec = {.type = CT_MODEL_CUSTOM, .build = build, .dtype = CT_F32};
 *
 * A value is a number in b->program; any op of tensor/op.def may be emitted beside these calls
 * (ct_program_emit). The first error sticks: later calls do nothing and return CT_NONE, and
 * ct_model_build reports it. A plan builds the model several times, for other numbers of rows and
 * with b->evaluation: the same calls must make the same parameters each time.
 *
 * Parameters are created in the order of the calls; their gradients are finished in the reverse
 * order, so a model that is built from its input to its loss reduces its gradients early. */
#ifndef CT_GRAPH_BUILDER_H
#define CT_GRAPH_BUILDER_H

#include "graph/model.h"

struct ct_builder {
    struct ct_model *model;
    struct ct_program *program; /* the model's */
    enum ct_dtype dtype;
    int64_t rows; /* samples of the micro-batch */
    bool evaluation;
    const struct ct_model_spec *spec;
};

/* Add the input: features of b->dtype, or token numbers i32 [rows, sequence]. dim[0] is b->rows.
 * Call it once. */
int ct_build_features(struct ct_builder *b, struct ct_shape shape);
int ct_build_tokens(struct ct_builder *b, int64_t sequence);

/* Add a parameter, trained unless the specification freezes it. */
int ct_build_param(struct ct_builder *b, const char *name, struct ct_shape shape,
                   struct ct_init init);

/* Add an op of up to three inputs without attributes; returns its first result. */
int ct_build_op(struct ct_builder *b, int kind, int in0, int in1, int in2);

/* Add y = x W^T + b with torch.nn.Linear's names and initial values: "<name>.weight",
 * "<name>.bias". */
int ct_build_linear(struct ct_builder *b, const char *name, int x, int64_t out);

/* The same with given initial values, and no bias unless `biased` (it begins as 0). */
int ct_build_linear_init(struct ct_builder *b, const char *name, int x, int64_t out,
                         struct ct_init weight, bool biased);

int ct_build_act(struct ct_builder *b, enum ct_activation activation, int x);
int ct_build_add(struct ct_builder *b, int x, int y);

/* Add a norm: "<name>.weight" beginning as 1 and, for a layer norm that is `biased`, "<name>.bias"
 * as 0. */
int ct_build_norm(struct ct_builder *b, const char *name, int x, enum ct_norm norm, double eps,
                  bool biased);

/* Add dropout; returns `x` with rate 0 or in an evaluation. The masks are keyed by `name`. */
int ct_build_dropout(struct ct_builder *b, const char *name, int x, double rate);

/* Add causal self-attention over sequences of `sequence` rows: qkv [.., 3 width] -> [.., width]. */
int ct_build_attention(struct ct_builder *b, int qkv, int64_t sequence, int64_t heads);

/* Decoding: the places of the tokens at hand, made at the first call; and attention to them and to
 * those before, whose keys and values the state "<name>.cache" [context, 2 width] keeps. */
int ct_build_places(struct ct_builder *b, int64_t count);
int ct_build_attention_cached(struct ct_builder *b, const char *name, int qkv, int64_t heads,
                              int64_t context);

/* Add an image [rows, channels, height, width] as the input; the result is [rows, height, width,
 * channels], as all images between layers are. */
int ct_build_image(struct ct_builder *b, int64_t channels, int64_t height, int64_t width);

/* Where a window of kernel x kernel pixels stands: every `stride` pixels, `pad` < kernel pixels
 * over the edge. */
struct ct_window {
    int64_t kernel, stride, pad;
};

/* Add a torch.nn.Conv2d: "<name>.weight" [out, channels, kernel, kernel], "<name>.bias". */
int ct_build_conv(struct ct_builder *b, const char *name, int image, int64_t out,
                  struct ct_window window);
int ct_build_conv_unbiased(struct ct_builder *b, const char *name, int image, int64_t out,
                           struct ct_window window);
int ct_build_maxpool(struct ct_builder *b, int image, struct ct_window window);
int ct_build_avgpool(struct ct_builder *b, int image, struct ct_window window);

/* torch.nn.BatchNorm, over the channels of an image or over features: "<name>.weight",
 * "<name>.bias" and the buffers "<name>.running_mean", "<name>.running_var". In training x is
 * normalised by the statistics of the micro-batch, or, synchronised, of the whole global batch; in
 * an evaluation by the running ones. Rows whose label is < 0 count for neither. For models with a
 * label a sample. */
struct ct_batch_norm {
    double eps;      /* 0: 1e-5 */
    double momentum; /* share of the newest step in the running statistics; 0: 0.1 */
    bool sync;
};
int ct_build_batch_norm(struct ct_builder *b, const char *name, int x, struct ct_batch_norm norm);

/* Flatten the image to features in torch's order: channel, height, width. */
int ct_build_flatten(struct ct_builder *b, int image);

/* Return the labels, i32 [count]; created at the first call, the same value afterwards. */
int ct_build_labels(struct ct_builder *b, int64_t count);

/* End the model: labels, the loss over the rows of logits [labels, classes], and the count. */
void ct_build_loss(struct ct_builder *b, enum ct_loss loss, int logits);

/* Return whether no call has failed so far. */
bool ct_build_ok(const struct ct_builder *b);

/* ---- the models of model.h ------------------------------------------------------------------ */

int ct_build_mlp(struct ct_builder *b, const struct ct_model_spec *spec, struct ct_error *err);
int ct_build_gpt(struct ct_builder *b, const struct ct_gpt_spec *spec, struct ct_error *err);
int ct_build_layers(struct ct_builder *b, const struct ct_layers_spec *spec, struct ct_error *err);

#endif
