/* See builder.h. */
#include "graph/builder.h"

#include "base/assert.h"
#include "base/number/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 120 };

static const int activations[] = {
    [CT_ACT_RELU] = CT_OP_RELU,
    [CT_ACT_GELU] = CT_OP_GELU,
    [CT_ACT_GELU_TANH] = CT_OP_GELU_TANH,
    [CT_ACT_TANH] = CT_OP_TANH,
};
_Static_assert(CT_COUNT(activations) == CT_ACT_COUNT, "an op for every activation");

bool ct_build_ok(const struct ct_builder *b)
{
    return b->program->error.code == 0;
}

static const struct ct_value *value_of(const struct ct_builder *b, int value)
{
    CT_ASSERT(value >= 0 && value < b->program->value_count);
    return &b->program->values[value];
}

/* ---- input and parameters ------------------------------------------------------------------- */

static int add_input(struct ct_builder *b, enum ct_dtype dtype, struct ct_shape shape)
{
    CT_ASSERT(b->model->x == CT_NONE && shape.dims >= 1 && shape.dim[0] == b->rows);
    b->model->x = ct_program_value(b->program, CT_VALUE_INPUT, dtype, shape, "x");
    return b->model->x;
}

int ct_build_features(struct ct_builder *b, struct ct_shape shape)
{
    return add_input(b, b->dtype, shape);
}

int ct_build_tokens(struct ct_builder *b, int64_t sequence)
{
    return add_input(b, CT_I32, ct_shape2(b->rows, sequence));
}

/* Room for one more parameter. */
static bool reserve(struct ct_builder *b)
{
    struct ct_model *model = b->model;
    int room = CT_MAX(2 * model->param_room, 32);

    if (model->param_count < model->param_room)
        return true;
    struct ct_model_param *params =
        ct_arena_array(&b->program->arena, (size_t)room, sizeof *params);
    if (params == NULL) {
        ct_error_set(&b->program->error, CT_ENOMEM, "no memory for %d parameters", room);
        return false;
    }
    if (model->param_count > 0)
        memcpy(params, model->params, (size_t)model->param_count * sizeof *params);
    model->params = params;
    model->param_room = room;
    return true;
}

int ct_build_param(struct ct_builder *b, const char *name, struct ct_shape shape,
                   struct ct_init init)
{
    char grad_name[MAX_NAME + 8];
    const struct ct_model_spec *spec = b->spec;
    struct ct_model_param param = {.init = init, .grad = CT_NONE};

    if (!ct_build_ok(b) || !reserve(b))
        return CT_NONE;
    (void)snprintf(grad_name, sizeof grad_name, "%s.grad", name);
    param.value = ct_program_value(b->program, CT_VALUE_PARAM, b->dtype, shape, name);
    if (spec->frozen == NULL || !spec->frozen(spec->frozen_names, name))
        param.grad = ct_program_value(b->program, CT_VALUE_GRAD, b->dtype, shape, grad_name);
    b->model->params[b->model->param_count++] = param;
    return param.value;
}

/* The parameter "<name>.<part>". */
static int add_part(struct ct_builder *b, const char *name, const char *part, struct ct_shape shape,
                    struct ct_init init)
{
    char full[MAX_NAME];

    (void)snprintf(full, sizeof full, "%s.%s", name, part);
    return ct_build_param(b, full, shape, init);
}

/* ---- layers --------------------------------------------------------------------------------- */

int ct_build_op(struct ct_builder *b, int kind, int in0, int in1, int in2)
{
    struct ct_program_op op = ct_program_op(kind);

    op.in[0] = in0;
    op.in[1] = in1;
    op.in[2] = in2;
    return ct_program_emit(b->program, op);
}

/* The weight comes into being before the bias. */
static int add_linear(struct ct_builder *b, const char *name, int x, int64_t out,
                      struct ct_init weight, bool biased, struct ct_init bias)
{
    if (!ct_build_ok(b))
        return CT_NONE;
    int64_t in = ct_shape_columns(value_of(b, x)->shape);
    int w = add_part(b, name, "weight", ct_shape2(out, in), weight);
    int add = biased ? add_part(b, name, "bias", ct_shape1(out), bias) : CT_NONE;

    return ct_build_op(b, CT_OP_LINEAR, x, w, add);
}

int ct_build_linear(struct ct_builder *b, const char *name, int x, int64_t out)
{
    if (!ct_build_ok(b))
        return CT_NONE;
    struct ct_init init = {CT_INIT_UNIFORM,
                           1 / sqrt((double)ct_shape_columns(value_of(b, x)->shape))};
    return add_linear(b, name, x, out, init, true, init);
}

int ct_build_linear_init(struct ct_builder *b, const char *name, int x, int64_t out,
                         struct ct_init weight, bool biased)
{
    return add_linear(b, name, x, out, weight, biased, (struct ct_init){CT_INIT_CONSTANT, 0});
}

int ct_build_act(struct ct_builder *b, enum ct_activation activation, int x)
{
    return ct_build_op(b, activations[activation], x, CT_NONE, CT_NONE);
}

int ct_build_add(struct ct_builder *b, int x, int y)
{
    return ct_build_op(b, CT_OP_ADD, x, y, CT_NONE);
}

int ct_build_norm(struct ct_builder *b, const char *name, int x, enum ct_norm norm, double eps,
                  bool biased)
{
    struct ct_program_op op = ct_program_op(norm == CT_NORM_RMS ? CT_OP_RMSNORM : CT_OP_LAYERNORM);

    if (!ct_build_ok(b))
        return CT_NONE;
    struct ct_shape shape = ct_shape1(ct_shape_columns(value_of(b, x)->shape));
    op.in[0] = x;
    op.in[1] = add_part(b, name, "weight", shape, (struct ct_init){CT_INIT_CONSTANT, 1});
    if (biased && norm == CT_NORM_LAYER)
        op.in[2] = add_part(b, name, "bias", shape, (struct ct_init){CT_INIT_CONSTANT, 0});
    op.attr.eps = eps;
    return ct_program_emit(b->program, op);
}

int ct_build_dropout(struct ct_builder *b, const char *name, int x, double rate)
{
    struct ct_program_op op = ct_program_op(CT_OP_DROPOUT);

    if (!ct_build_ok(b) || rate == 0 || b->evaluation)
        return x;
    if (b->model->draw == CT_NONE)
        b->model->draw = ct_program_value(b->program, CT_VALUE_INPUT, CT_F64, ct_shape1(2), "draw");
    op.in[0] = x;
    op.in[1] = b->model->draw;
    op.attr.rate = rate;
    op.attr.key = ct_hash_str(name);
    op.attr.unit = (uint64_t)(ct_shape_elements(value_of(b, x)->shape) / b->rows);
    return ct_program_emit(b->program, op);
}

int ct_build_attention(struct ct_builder *b, int qkv, int64_t sequence, int64_t heads)
{
    struct ct_program_op op = ct_program_op(CT_OP_ATTENTION);

    if (!ct_build_ok(b))
        return CT_NONE;
    int64_t rows = ct_shape_rows(value_of(b, qkv)->shape);
    int64_t width = ct_shape_columns(value_of(b, qkv)->shape) / 3;
    op.in[0] = qkv;
    op.out[0] =
        ct_program_value(b->program, CT_VALUE_TEMP, b->dtype, ct_shape2(rows, width), "attention");
    op.out[1] =
        ct_program_value(b->program, CT_VALUE_TEMP, b->dtype, ct_shape2(rows, heads), "lse");
    op.attr.sequence = (uint64_t)sequence;
    op.attr.heads = (uint64_t)heads;
    return ct_program_emit(b->program, op);
}

int ct_build_places(struct ct_builder *b, int64_t count)
{
    if (ct_build_ok(b) && b->model->places == CT_NONE)
        b->model->places =
            ct_program_value(b->program, CT_VALUE_INPUT, CT_I32, ct_shape1(count), "places");
    return b->model->places;
}

int ct_build_attention_cached(struct ct_builder *b, const char *name, int qkv, int64_t heads,
                              int64_t context)
{
    struct ct_program_op op = ct_program_op(CT_OP_ATTENTION_CACHED);
    char full[MAX_NAME];

    if (!ct_build_ok(b))
        return CT_NONE;
    int64_t rows = ct_shape_rows(value_of(b, qkv)->shape);
    int64_t width = ct_shape_columns(value_of(b, qkv)->shape) / 3;
    (void)snprintf(full, sizeof full, "%s.cache", name);
    op.in[0] = qkv;
    op.in[1] = ct_build_places(b, rows);
    op.out[0] =
        ct_program_value(b->program, CT_VALUE_TEMP, b->dtype, ct_shape2(rows, width), "attention");
    op.out[1] =
        ct_program_value(b->program, CT_VALUE_STATE, b->dtype, ct_shape2(context, 2 * width), full);
    op.attr.heads = (uint64_t)heads;
    return ct_program_emit(b->program, op);
}

/* ---- the end -------------------------------------------------------------------------------- */

int ct_build_labels(struct ct_builder *b, int64_t count)
{
    struct ct_model *model = b->model;

    if (ct_build_ok(b) && model->labels == CT_NONE)
        model->labels =
            ct_program_value(b->program, CT_VALUE_INPUT, CT_I32, ct_shape1(count), "labels");
    if (ct_build_ok(b) && ct_shape_elements(value_of(b, model->labels)->shape) != count)
        ct_error_set(&b->program->error, CT_ECONFIG,
                     "batch norm is for models with one label a sample, this one has %lld for "
                     "%lld samples",
                     (long long)CT_MAX(count, ct_shape_elements(value_of(b, model->labels)->shape)),
                     (long long)b->rows);
    return model->labels;
}

void ct_build_loss(struct ct_builder *b, enum ct_loss loss, int logits)
{
    struct ct_model *model = b->model;
    struct ct_program_op op = ct_program_op(loss == CT_LOSS_MSE ? CT_OP_MSE : CT_OP_CROSS_ENTROPY);
    struct ct_program_op correct = ct_program_op(CT_OP_CORRECT);

    if (!ct_build_ok(b))
        return;
    struct ct_shape shape = value_of(b, logits)->shape;
    model->logits = logits;
    if (b->spec->decoding)
        return;
    (void)ct_build_labels(b, ct_shape_rows(shape));
    if (!ct_build_ok(b))
        return;
    op.in[0] = correct.in[0] = logits;
    op.in[1] = correct.in[1] = model->labels;
    op.out[0] = model->loss;
    correct.out[0] = model->correct;
    if (loss == CT_LOSS_MSE) {
        struct ct_program_op target = ct_program_op(CT_OP_ONE_HOT);
        target.in[0] = model->labels;
        target.out[0] = ct_program_value(b->program, CT_VALUE_TEMP, b->dtype, shape, "target");
        op.in[1] = ct_program_emit(b->program, target);
        op.in[2] = model->labels;
    }
    ct_program_emit(b->program, op);
    ct_program_emit(b->program, correct);
}
