/* Models: names, shapes, order, limits. */
#include "graph/model.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(model, .timeout = 10);

static const int64_t two_hidden[] = {6, 5};
static const struct ct_model_spec spec = {
    .input = 4, .hidden = two_hidden, .hidden_count = 2, .classes = 3, .dtype = CT_F32};

Test(model, names_and_shapes_are_those_of_torch_linear)
{
    static const struct {
        const char *name;
        struct ct_shape shape;
        double fan_in;
    } rows[] = {
        {"layers.0.weight", {2, {6, 4}}, 4}, {"layers.0.bias", {1, {6}}, 4},
        {"layers.1.weight", {2, {5, 6}}, 6}, {"layers.1.bias", {1, {5}}, 6},
        {"layers.2.weight", {2, {3, 5}}, 5}, {"layers.2.bias", {1, {3}}, 5},
    };
    struct ct_model model;
    struct ct_error err = {0};

    cr_assert_eq(ct_model_build(&model, &spec, 8, &err), 0, "%s", err.text);
    cr_assert_eq((size_t)model.param_count, CT_COUNT(rows));
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const struct ct_value *value = &model.program.values[model.params[i].value];
        const struct ct_value *grad = &model.program.values[model.params[i].grad];
        cr_assert_str_eq(value->name, rows[i].name);
        cr_assert(ct_shape_equal(value->shape, rows[i].shape));
        cr_assert(ct_shape_equal(grad->shape, rows[i].shape));
        cr_assert_eq(grad->kind, CT_VALUE_GRAD);
        cr_assert_eq(model.params[i].init.kind, CT_INIT_UNIFORM);
        cr_assert_eq(model.params[i].init.amount, 1 / sqrt(rows[i].fan_in));
    }
    ct_model_deinit(&model);
}

Test(model, forward_ops_come_first)
{
    struct ct_model model;

    cr_assert_eq(ct_model_build(&model, &spec, 8, NULL), 0);
    for (int i = 0; i < model.program.op_count; i++)
        cr_assert_eq(model.program.ops[i].stage,
                     i < model.forward_count ? CT_STAGE_FORWARD : CT_STAGE_BACKWARD);
    cr_assert_eq(model.forward_count, 3 + 2 + 2, "linears, activations, loss and count");
    ct_model_deinit(&model);
}

Test(model, backward_writes_the_last_layer_first)
{
    struct ct_model model;
    int expected;

    cr_assert_eq(ct_model_build(&model, &spec, 8, NULL), 0);
    expected = model.param_count - 2;
    for (int i = model.forward_count; i < model.program.op_count; i++)
        if (model.program.ops[i].kind == CT_OP_LINEAR_DW) {
            cr_assert_eq(model.program.ops[i].out[0], model.params[expected].grad);
            expected -= 2;
        }
    cr_assert_eq(expected, -2);
    ct_model_deinit(&model);
}

Test(model, keys_depend_on_seed_and_name)
{
    cr_assert_eq(ct_model_key(1, "layers.0.weight"), ct_model_key(1, "layers.0.weight"));
    cr_assert_neq(ct_model_key(1, "layers.0.weight"), ct_model_key(2, "layers.0.weight"));
    cr_assert_neq(ct_model_key(1, "layers.0.weight"), ct_model_key(1, "layers.0.bias"));
}

Test(model, names_of_activations_and_losses_are_found)
{
    cr_assert_eq(ct_activation_find("relu"), CT_ACT_RELU);
    cr_assert_eq(ct_activation_find("gelu"), CT_ACT_GELU);
    cr_assert_eq(ct_activation_find("gelu_tanh"), CT_ACT_GELU_TANH);
    cr_assert_eq(ct_activation_find("tanh"), CT_ACT_TANH);
    cr_assert_eq(ct_activation_find("swish"), -1);
    cr_assert_eq(ct_loss_find("cross_entropy"), CT_LOSS_CROSS_ENTROPY);
    cr_assert_eq(ct_loss_find("mse"), CT_LOSS_MSE);
    cr_assert_eq(ct_loss_find("l1"), -1);
}

Test(model, what_cannot_be_built_is_refused_with_the_key)
{
    static const int64_t zero_width[] = {6, 0};
    struct ct_model_spec rows[] = {spec, spec, spec, spec, spec};
    static const char *const says[] = {"model.input is 0", "model.classes is -1",
                                       "model.hidden has 65 layers", "model.hidden[1] is 0",
                                       "a model of BF16"};

    rows[0].input = 0;
    rows[1].classes = -1;
    rows[2].hidden_count = 65;
    rows[3].hidden = zero_width;
    rows[4].dtype = CT_BF16;
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_model model;
        struct ct_error err = {0};
        cr_assert_neq(ct_model_build(&model, &rows[i], 8, &err), 0);
        cr_assert(strncmp(err.text, says[i], strlen(says[i])) == 0, "'%s'", err.text);
        ct_model_deinit(&model);
    }
}
