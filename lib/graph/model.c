/* See model.h: the MLP. */
#include "graph/model.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int op;
} activations[] = {
    [CT_ACT_RELU] = {"relu", CT_OP_RELU},
    [CT_ACT_GELU] = {"gelu", CT_OP_GELU},
    [CT_ACT_GELU_TANH] = {"gelu_tanh", CT_OP_GELU_TANH},
    [CT_ACT_TANH] = {"tanh", CT_OP_TANH},
};
_Static_assert(CT_COUNT(activations) == CT_ACT_COUNT, "a row for every activation");

static const char *const losses[] = {
    [CT_LOSS_CROSS_ENTROPY] = "cross_entropy",
    [CT_LOSS_MSE] = "mse",
};
_Static_assert(CT_COUNT(losses) == CT_LOSS_COUNT, "a name for every loss");

int ct_activation_find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(activations); i++)
        if (strcmp(activations[i].name, name) == 0)
            return (int)i;
    return -1;
}

int ct_loss_find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(losses); i++)
        if (strcmp(losses[i], name) == 0)
            return (int)i;
    return -1;
}

uint64_t ct_model_init_key(uint64_t seed, const char *name)
{
    return ct_mix64(seed) ^ ct_hash_str(name);
}

static int check_width(const char *what, int64_t width, struct ct_error *err)
{
    if (width >= 1 && width <= CT_MODEL_MAX_WIDTH)
        return 0;
    return ct_error_set(err, CT_ECONFIG, "%s is %lld, must be from 1 to %d", what, (long long)width,
                        CT_MODEL_MAX_WIDTH);
}

static int check_spec(const struct ct_model_spec *spec, int64_t rows, struct ct_error *err)
{
    char what[48];
    int code = check_width("model.input", spec->input, err);

    if (code == 0)
        code = check_width("model.classes", spec->classes, err);
    if (code == 0)
        code = check_width("the micro-batch", rows, err);
    if (code == 0 && (spec->hidden_count < 0 || spec->hidden_count > CT_MODEL_MAX_HIDDEN))
        code = ct_error_set(err, CT_ECONFIG, "model.hidden has %d layers, at most %d are possible",
                            spec->hidden_count, CT_MODEL_MAX_HIDDEN);
    for (int i = 0; i < spec->hidden_count && code == 0; i++) {
        snprintf(what, sizeof what, "model.hidden[%d]", i);
        code = check_width(what, spec->hidden[i], err);
    }
    if (code == 0 && spec->dtype != CT_F32 && spec->dtype != CT_F64)
        code = ct_error_set(err, CT_EUNSUPPORTED, "a model of %s is not possible, F32 and F64 are",
                            ct_dtype_name(spec->dtype));
    return code;
}

/* A parameter and its gradient. */
static int add_param(struct ct_model *model, enum ct_dtype dtype, struct ct_shape shape,
                     const char *name, double bound)
{
    struct ct_program *program = &model->program;
    char grad_name[80];
    struct ct_model_param param = {.init_bound = bound};

    snprintf(grad_name, sizeof grad_name, "%s.grad", name);
    param.value = ct_program_value(program, CT_VALUE_PARAM, dtype, shape, name);
    param.grad = ct_program_value(program, CT_VALUE_GRAD, dtype, shape, grad_name);
    model->params[model->param_count++] = param;
    return param.value;
}

/* y = x W^T + b with W [out, in], as torch.nn.Linear. */
static int add_linear(struct ct_model *model, int layer, int x, int64_t out)
{
    struct ct_program *program = &model->program;
    struct ct_program_op op = ct_program_op(CT_OP_LINEAR);
    char name[64];

    if (program->error.code != 0)
        return CT_NONE;
    enum ct_dtype dtype = program->values[x].dtype;
    int64_t in = ct_shape_columns(program->values[x].shape);
    double bound = 1 / sqrt((double)in);
    op.in[0] = x;
    snprintf(name, sizeof name, "layers.%d.weight", layer);
    op.in[1] = add_param(model, dtype, ct_shape2(out, in), name, bound);
    snprintf(name, sizeof name, "layers.%d.bias", layer);
    op.in[2] = add_param(model, dtype, ct_shape1(out), name, bound);
    return ct_program_emit(program, op);
}

static int add_logits(struct ct_model *model, const struct ct_model_spec *spec)
{
    int h = model->x;

    for (int i = 0; i < spec->hidden_count; i++) {
        struct ct_program_op act = ct_program_op(activations[spec->activation].op);
        act.in[0] = add_linear(model, i, h, spec->hidden[i]);
        h = ct_program_emit(&model->program, act);
    }
    return add_linear(model, spec->hidden_count, h, spec->classes);
}

static void add_loss(struct ct_model *model, const struct ct_model_spec *spec, int64_t rows)
{
    struct ct_program *program = &model->program;
    struct ct_program_op loss =
        ct_program_op(spec->loss == CT_LOSS_MSE ? CT_OP_MSE : CT_OP_CROSS_ENTROPY);
    struct ct_program_op correct = ct_program_op(CT_OP_CORRECT);

    loss.in[0] = model->logits;
    loss.in[1] = model->labels;
    loss.out[0] = model->loss;
    if (spec->loss == CT_LOSS_MSE) {
        struct ct_program_op target = ct_program_op(CT_OP_ONE_HOT);
        target.in[0] = model->labels;
        target.out[0] = ct_program_value(program, CT_VALUE_TEMP, spec->dtype,
                                         ct_shape2(rows, spec->classes), "target");
        loss.in[1] = ct_program_emit(program, target);
        loss.in[2] = model->labels;
    }
    ct_program_emit(program, loss);
    correct.in[0] = model->logits;
    correct.in[1] = model->labels;
    correct.out[0] = model->correct;
    ct_program_emit(program, correct);
}

static void add_backward(struct ct_model *model)
{
    struct ct_grad_pair pairs[2 * (CT_MODEL_MAX_HIDDEN + 1)];

    for (int i = 0; i < model->param_count; i++)
        pairs[i] = (struct ct_grad_pair){model->params[i].value, model->params[i].grad};
    model->program.stage = CT_STAGE_BACKWARD;
    ct_program_backward(&model->program, model->loss, model->inv_valid, pairs, model->param_count);
}

int ct_model_build(struct ct_model *model, const struct ct_model_spec *spec, int64_t rows,
                   struct ct_error *err)
{
    struct ct_program *program = &model->program;
    size_t params = 2 * ((size_t)CT_MAX(spec->hidden_count, 0) + 1);

    *model = (struct ct_model){0};
    ct_program_init(program);
    int code = check_spec(spec, rows, err);
    if (code != 0)
        return code;
    model->params = ct_arena_array(&program->arena, params, sizeof *model->params);
    if (model->params == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for %zu parameters", params);

    program->stage = CT_STAGE_FORWARD;
    model->x =
        ct_program_value(program, CT_VALUE_INPUT, spec->dtype, ct_shape2(rows, spec->input), "x");
    model->labels = ct_program_value(program, CT_VALUE_INPUT, CT_I32, ct_shape1(rows), "labels");
    model->inv_valid = ct_program_value(program, CT_VALUE_INPUT, CT_F64, ct_shape1(1), "inv_valid");
    model->loss = ct_program_value(program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "loss");
    model->correct = ct_program_value(program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "correct");
    model->logits = add_logits(model, spec);
    add_loss(model, spec, rows);
    model->forward_count = program->op_count;
    add_backward(model);
    if (program->error.code != 0)
        return ct_error_set(err, program->error.code, "model: %s", program->error.text);
    return 0;
}

void ct_model_deinit(struct ct_model *model)
{
    if (model == NULL)
        return;
    ct_program_deinit(&model->program);
    *model = (struct ct_model){0};
}
