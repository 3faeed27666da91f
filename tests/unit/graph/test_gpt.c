/* GPT models: names, shapes, counts, limits. */
#include "base/assert.h"
#include "graph/gpt.h"
#include "graph/model.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(gpt, .timeout = 20);

static struct ct_model_spec small(void)
{
    return (struct ct_model_spec){
        .type = CT_MODEL_GPT,
        .dtype = CT_F32,
        .gpt = {.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 12}};
}

static const struct ct_model_param *find(const struct ct_model *model, const char *name)
{
    for (int i = 0; i < model->param_count; i++)
        if (strcmp(model->program.values[model->params[i].value].name, name) == 0)
            return &model->params[i];
    return NULL;
}

static int64_t parameters(const struct ct_model *model)
{
    int64_t count = 0;

    for (int i = 0; i < model->param_count; i++)
        count += ct_shape_elements(model->program.values[model->params[i].value].shape);
    return count;
}

Test(gpt, presets_have_exactly_the_parameters_of_gpt2)
{
    static const struct {
        const char *name;
        int64_t parameters;
    } rows[] = {{"gpt2-124M", 124439808},
                {"gpt2-355M", 354823168},
                {"gpt2-774M", 774030080},
                {"gpt2-1558M", 1557611200}};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_model_spec spec = small();
        struct ct_model model;

        cr_assert(ct_gpt_preset(rows[i].name, &spec.gpt));
        cr_assert_eq(ct_model_build(&model, &spec, 1, NULL), 0);
        cr_assert_eq(parameters(&model), rows[i].parameters, "%s: %lld", rows[i].name,
                     (long long)parameters(&model));
        ct_model_deinit(&model);
    }
    cr_assert_not(ct_gpt_preset("gpt2-125M", &(struct ct_gpt_spec){0}));
}

Test(gpt, names_shapes_and_first_values_are_those_of_gpt2)
{
    const double residual = 0.02 / sqrt(4);
    const struct {
        const char *name;
        struct ct_shape shape;
        struct ct_init init;
    } rows[] = {
        {"wte.weight", {2, {11, 12}}, {CT_INIT_NORMAL, 0.02}},
        {"wpe.weight", {2, {8, 12}}, {CT_INIT_NORMAL, 0.02}},
        {"h.0.ln_1.weight", {1, {12}}, {CT_INIT_CONSTANT, 1}},
        {"h.0.ln_1.bias", {1, {12}}, {CT_INIT_CONSTANT, 0}},
        {"h.0.attn.c_attn.weight", {2, {36, 12}}, {CT_INIT_NORMAL, 0.02}},
        {"h.0.attn.c_attn.bias", {1, {36}}, {CT_INIT_CONSTANT, 0}},
        {"h.0.attn.c_proj.weight", {2, {12, 12}}, {CT_INIT_NORMAL, residual}},
        {"h.0.attn.c_proj.bias", {1, {12}}, {CT_INIT_CONSTANT, 0}},
        {"h.1.ln_2.weight", {1, {12}}, {CT_INIT_CONSTANT, 1}},
        {"h.1.mlp.c_fc.weight", {2, {48, 12}}, {CT_INIT_NORMAL, 0.02}},
        {"h.1.mlp.c_proj.weight", {2, {12, 48}}, {CT_INIT_NORMAL, residual}},
        {"ln_f.bias", {1, {12}}, {CT_INIT_CONSTANT, 0}},
    };
    struct ct_model_spec spec = small();
    struct ct_model model;

    cr_assert_eq(ct_model_build(&model, &spec, 3, NULL), 0);
    cr_assert_eq(model.param_count, 2 + 2 * 12 + 2);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const struct ct_model_param *param = find(&model, rows[i].name);

        cr_assert_not_null(param, "%s", rows[i].name);
        cr_assert(ct_shape_equal(model.program.values[param->value].shape, rows[i].shape));
        cr_assert_eq(param->init.kind, rows[i].init.kind);
        cr_assert_eq(param->init.amount, rows[i].init.amount);
    }
    cr_assert_null(find(&model, "lm_head.weight"), "the head is tied to wte");
    ct_model_deinit(&model);
}

Test(gpt, options_change_the_parameters)
{
    struct ct_model_spec spec = small();
    struct ct_model model;

    spec.gpt.positions = CT_POSITIONS_ROTARY;
    spec.gpt.norm = CT_NORM_RMS;
    spec.gpt.mlp = CT_MLP_SWIGLU;
    spec.gpt.untied = spec.gpt.unbiased = true;
    spec.gpt.inner = 20;
    cr_assert_eq(ct_model_build(&model, &spec, 3, NULL), 0);
    cr_assert_eq(model.param_count, 1 + 2 * 7 + 2, "no wpe, no biases, a gate, a head");
    cr_assert_not_null(find(&model, "lm_head.weight"));
    cr_assert_not_null(find(&model, "h.1.mlp.c_gate.weight"));
    ct_model_deinit(&model);
}

Test(gpt, a_sequence_may_be_shorter_than_the_context)
{
    struct ct_model_spec spec = small();
    struct ct_model model;

    spec.gpt.sequence = 5;
    cr_assert_eq(ct_model_build(&model, &spec, 3, NULL), 0);
    cr_assert(ct_shape_equal(model.program.values[model.x].shape, ct_shape2(3, 5)));
    cr_assert(ct_shape_equal(model.program.values[model.labels].shape, ct_shape1(15)));
    cr_assert(ct_shape_equal(model.program.values[model.logits].shape, ct_shape2(15, 11)));
    ct_model_deinit(&model);
}

Test(gpt, an_evaluation_has_neither_dropout_nor_backward_ops)
{
    struct ct_model_spec spec = small();
    struct ct_model model;
    int dropouts = 0;

    spec.gpt.dropout = 0.1;
    cr_assert_eq(ct_model_build(&model, &spec, 3, NULL), 0);
    for (int i = 0; i < model.forward_count; i++)
        dropouts += model.program.ops[i].kind == CT_OP_DROPOUT;
    cr_assert_eq(dropouts, 1 + 2 * 2);
    cr_assert_neq(model.draw, CT_NONE);
    ct_model_deinit(&model);
    spec.evaluation = true;
    cr_assert_eq(ct_model_build(&model, &spec, 3, NULL), 0);
    cr_assert_eq(model.forward_count, model.program.op_count);
    for (int i = 0; i < model.forward_count; i++)
        cr_assert_neq(model.program.ops[i].kind, CT_OP_DROPOUT);
    cr_assert_eq(model.draw, CT_NONE);
    ct_model_deinit(&model);
}

Test(gpt, what_cannot_be_built_is_refused_with_the_key)
{
    static const char *const says[] = {
        "model.width 12 cannot be cut into 5 heads", "model.sequence is 9, must be from 1 to 8",
        "model.dropout is 1", "rotary positions turn pairs", "model.vocabulary is 0"};
    struct ct_model_spec rows[] = {small(), small(), small(), small(), small()};

    rows[0].gpt.heads = 5;
    rows[1].gpt.sequence = 9;
    rows[2].gpt.dropout = 1;
    rows[3].gpt.positions = CT_POSITIONS_ROTARY;
    rows[3].gpt.heads = 4;
    rows[4].gpt.vocabulary = 0;
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_model model;
        struct ct_error err = {0};

        cr_assert_eq(ct_model_build(&model, &rows[i], 3, &err), CT_ECONFIG);
        cr_assert(strncmp(err.text, says[i], strlen(says[i])) == 0, "'%s'", err.text);
        ct_model_deinit(&model);
    }
}
