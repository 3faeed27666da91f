/* Lists of layers: names, shapes, and what does not fit. */
#include "base/assert.h"
#include "graph/layers.h"
#include "graph/model.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(layers, .timeout = 20);

static const struct ct_layer_spec cnn[] = {
    {.kind = CT_LAYER_CONV2D, .out = 16, .kernel = 3, .pad = 1, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2},
    {.kind = CT_LAYER_CONV2D, .out = 32, .kernel = 3, .pad = 1, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 128, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_LINEAR, .out = 10, .act = CT_LAYER_NO_ACT},
};

static struct ct_model_spec of(const struct ct_layer_spec *layers, int count)
{
    return (struct ct_model_spec){
        .type = CT_MODEL_LAYERS,
        .dtype = CT_F32,
        .layers = {.channels = 1, .height = 28, .width = 28, .layers = layers, .count = count}};
}

Test(layers, names_and_shapes_are_those_of_torch)
{
    static const struct {
        const char *name;
        struct ct_shape shape;
    } rows[] = {
        {"layers.0.weight", {4, {16, 3, 3, 1}}},  {"layers.0.bias", {1, {16}}},
        {"layers.2.weight", {4, {32, 16, 3, 3}}}, {"layers.2.bias", {1, {32}}},
        {"layers.5.weight", {2, {128, 1568}}},    {"layers.5.bias", {1, {128}}},
        {"layers.6.weight", {2, {10, 128}}},      {"layers.6.bias", {1, {10}}},
    };
    struct ct_model_spec spec = of(cnn, CT_COUNT(cnn));
    struct ct_model model;
    struct ct_error err = {0};

    cr_assert_eq(ct_model_build(&model, &spec, 5, &err), 0, "%s", err.text);
    cr_assert_eq((size_t)model.param_count, CT_COUNT(rows));
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const struct ct_value *value = &model.program.values[model.params[i].value];

        cr_assert_str_eq(value->name, rows[i].name);
        cr_assert_eq(ct_shape_elements(value->shape), ct_shape_elements(rows[i].shape));
        cr_assert_eq(value->shape.dims, rows[i].shape.dims);
        cr_assert_eq(value->shape.dim[0], rows[i].shape.dim[0]);
    }
    cr_assert(ct_shape_equal(model.program.values[model.logits].shape, ct_shape2(5, 10)));
    ct_model_deinit(&model);
}

Test(layers, what_does_not_fit_is_refused_with_the_layer_and_both_shapes)
{
    static const struct {
        struct ct_layer_spec layers[2];
        const char *expected;
    } rows[] = {
        {{{.kind = CT_LAYER_LINEAR, .out = 10}},
         "model.layers[0] (linear) needs features (a flatten before it), but gets an image of 28 x "
         "28 pixels with 1 channel"},
        {{{.kind = CT_LAYER_FLATTEN}, {.kind = CT_LAYER_CONV2D, .out = 3, .kernel = 3}},
         "model.layers[1] (conv2d) needs an image, but gets 784 features"},
        {{{.kind = CT_LAYER_MAXPOOL, .kernel = 10}, {.kind = CT_LAYER_AVGPOOL, .kernel = 3}},
         "model.layers[1] (avgpool) needs room for windows of 3 x 3 pixels, but gets an image of 2 "
         "x 2 pixels with 1 channel"},
        {{{.kind = CT_LAYER_MAXPOOL, .kernel = 2, .pad = 2}},
         "model.layers[0] (maxpool): kernel 2, stride 2 and pad 2 are not possible: kernel and "
         "stride are from 1 to 1024, pad below kernel"},
        {{{.kind = CT_LAYER_CONV2D, .kernel = 3}},
         "model.layers[0] (conv2d): out is 0, must be from 1 to 16777216"},
        {{{.kind = CT_LAYER_DROPOUT, .rate = 1}},
         "model.layers[0] (dropout) is 1, must be at least 0 and below 1"},
        {{{.kind = CT_LAYER_MAXPOOL, .kernel = 2}, {.kind = CT_LAYER_MAXPOOL, .kernel = 2}},
         "model.layers[1] (maxpool) is the last and must give logits, but gets an image of 7 x 7 "
         "pixels with 1 channel"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_model_spec spec = of(rows[i].layers, 2);
        struct ct_model model;
        struct ct_error err = {0};

        cr_assert_eq(ct_model_build(&model, &spec, 5, &err), CT_ECONFIG);
        cr_assert_str_eq(err.text, rows[i].expected);
        ct_model_deinit(&model);
    }
}

Test(layers, names_are_found)
{
    for (int kind = 0; kind < CT_LAYER_KIND_COUNT; kind++)
        cr_assert_eq(ct_layer_find(ct_layer_info((enum ct_layer_kind)kind)->name), kind);
    cr_assert_eq(ct_layer_find("conv"), CT_LAYER_CONV2D);
    cr_assert_eq(ct_layer_find("conv3d"), -1);
    cr_assert_eq(ct_layer_find(""), -1);
    cr_assert_str_eq(ct_layer_nearest("conv3d"), "conv2d");
    for (int option = 0; option < CT_LAYER_OPTION_COUNT; option++)
        cr_assert_eq(ct_layer_option_find(ct_layer_option_name((enum ct_layer_option)option)),
                     option);
    cr_assert_eq(ct_layer_option_find("size"), -1);
}
