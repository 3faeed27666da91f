/* See model.h: building any model, and the MLP. */
#include "graph/model.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/number/rng.h"
#include "graph/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const activations[] = {
    [CT_ACT_RELU] = "relu",
    [CT_ACT_GELU] = "gelu",
    [CT_ACT_GELU_TANH] = "gelu_tanh",
    [CT_ACT_TANH] = "tanh",
};
_Static_assert(CT_COUNT(activations) == CT_ACT_COUNT, "a name for every activation");

static const char *const losses[] = {
    [CT_LOSS_CROSS_ENTROPY] = "cross_entropy",
    [CT_LOSS_MSE] = "mse",
};
_Static_assert(CT_COUNT(losses) == CT_LOSS_COUNT, "a name for every loss");

static int find(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

int ct_activation_find(const char *name)
{
    return find(activations, CT_COUNT(activations), name);
}

int ct_loss_find(const char *name)
{
    return find(losses, CT_COUNT(losses), name);
}

uint64_t ct_model_key(uint64_t seed, const char *name)
{
    return ct_mix64(seed) ^ ct_hash_str(name);
}

/* ---- the MLP -------------------------------------------------------------------------------- */

static int check_width(const char *what, int64_t width, struct ct_error *err)
{
    if (width >= 1 && width <= CT_MODEL_MAX_WIDTH)
        return 0;
    return ct_error_set(err, CT_ECONFIG, "%s is %lld, must be from 1 to %d", what, (long long)width,
                        CT_MODEL_MAX_WIDTH);
}

static int check_mlp(const struct ct_model_spec *spec, struct ct_error *err)
{
    char what[48];
    int code = check_width("model.input", spec->input, err);

    if (code == 0)
        code = check_width("model.classes", spec->classes, err);
    if (code == 0 && (spec->hidden_count < 0 || spec->hidden_count > CT_MODEL_MAX_HIDDEN))
        code = ct_error_set(err, CT_ECONFIG, "model.hidden has %d layers, at most %d are possible",
                            spec->hidden_count, CT_MODEL_MAX_HIDDEN);
    for (int i = 0; i < spec->hidden_count && code == 0; i++) {
        (void)snprintf(what, sizeof what, "model.hidden[%d]", i);
        code = check_width(what, spec->hidden[i], err);
    }
    return code;
}

int ct_build_mlp(struct ct_builder *b, const struct ct_model_spec *spec, struct ct_error *err)
{
    char name[32];
    int code = check_mlp(spec, err);

    if (code != 0)
        return code;
    int h = ct_build_features(b, ct_shape2(b->rows, spec->input));

    for (int i = 0; i < spec->hidden_count; i++) {
        (void)snprintf(name, sizeof name, "layers.%d", i);
        h = ct_build_act(b, spec->activation, ct_build_linear(b, name, h, spec->hidden[i]));
    }
    (void)snprintf(name, sizeof name, "layers.%d", spec->hidden_count);
    ct_build_loss(b, spec->loss, ct_build_linear(b, name, h, spec->classes));
    return 0;
}

/* ---- any model ------------------------------------------------------------------------------ */

static int check_spec(const struct ct_model_spec *spec, int64_t rows, struct ct_error *err)
{
    if (spec->dtype != CT_F32 && spec->dtype != CT_F64)
        return ct_error_set(err, CT_EUNSUPPORTED, "a model of %s is not possible, F32 and F64 are",
                            ct_dtype_name(spec->dtype));
    if (spec->decoding && (spec->type != CT_MODEL_GPT || rows != 1))
        return ct_error_set(err, CT_EUNSUPPORTED, "only a gpt is decoded, one sequence at a time");
    return check_width("the micro-batch", rows, err);
}

static int add_forward(struct ct_builder *b, const struct ct_model_spec *spec, struct ct_error *err)
{
    switch (spec->type) {
    case CT_MODEL_GPT:
        return ct_build_gpt(b, &spec->gpt, err);
    case CT_MODEL_LAYERS:
        return ct_build_layers(b, &spec->layers, err);
    case CT_MODEL_CUSTOM:
        return spec->build == NULL ? ct_error_set(err, CT_EUSAGE, "the model has no build function")
                                   : spec->build(b, spec->context, err);
    default:
        return ct_build_mlp(b, spec, err);
    }
}

/* The failure of the program so far as the caller's. */
static int copy_error(const struct ct_model *model, struct ct_error *err)
{
    const struct ct_error *error = &model->program.error;

    return error->code == 0 ? 0 : ct_error_set(err, error->code, "model: %s", error->text);
}

int ct_model_build_backward(struct ct_model *model, struct ct_error *err)
{
    struct ct_program *program = &model->program;
    size_t count = (size_t)model->param_count;
    struct ct_grad_pair *pairs = ct_arena_array(&program->arena, CT_MAX(count, 1), sizeof *pairs);

    if (pairs == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for %zu gradients", count);
    int learned = 0;
    for (size_t i = 0; i < count; i++)
        if (model->params[i].grad != CT_NONE)
            pairs[learned++] = (struct ct_grad_pair){model->params[i].value, model->params[i].grad};
    program->stage = CT_STAGE_BACKWARD;
    ct_program_backward(program, model->loss, model->inv_valid, pairs, learned);
    return copy_error(model, err);
}

int ct_model_build_forward(struct ct_model *model, const struct ct_model_spec *spec, int64_t rows,
                           struct ct_error *err)
{
    struct ct_program *program = &model->program;
    struct ct_builder b = {.model = model,
                           .program = program,
                           .dtype = spec->dtype,
                           .rows = rows,
                           .evaluation = spec->evaluation || spec->decoding,
                           .spec = spec};

    *model = (struct ct_model){
        .x = CT_NONE, .labels = CT_NONE, .draw = CT_NONE, .logits = CT_NONE, .places = CT_NONE};
    ct_program_init(program);
    int code = check_spec(spec, rows, err);
    if (code != 0)
        return code;
    program->stage = CT_STAGE_FORWARD;
    model->inv_valid = ct_program_value(program, CT_VALUE_INPUT, CT_F64, ct_shape1(1), "inv_valid");
    model->loss = ct_program_value(program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "loss");
    model->correct = ct_program_value(program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "correct");
    code = add_forward(&b, spec, err);
    if (code != 0)
        return code;
    if (program->error.code == 0 && (model->x == CT_NONE || model->logits == CT_NONE))
        return ct_error_set(err, CT_EUSAGE, "the model has no %s",
                            model->x == CT_NONE ? "input" : "loss");
    model->forward_count = program->op_count;
    return copy_error(model, err);
}

int ct_model_build(struct ct_model *model, const struct ct_model_spec *spec, int64_t rows,
                   struct ct_error *err)
{
    int code = ct_model_build_forward(model, spec, rows, err);
    bool forward = spec->evaluation || spec->decoding;

    return code == 0 && !forward ? ct_model_build_backward(model, err) : code;
}

void ct_model_deinit(struct ct_model *model)
{
    if (model == NULL)
        return;
    ct_program_deinit(&model->program);
    *model = (struct ct_model){0};
}
