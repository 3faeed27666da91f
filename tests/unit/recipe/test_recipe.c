/* From a configuration to a model: layers as they are written, and what is refused where. */
#include "base/assert.h"
#include "base/fs.h"
#include "graph/model.h"
#include "recipe/recipe.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(recipe, .timeout = 20);

/* A configuration whose model is `model`, on line 1; NULL for one that does not load. */
static struct ct_config *load(const char *model)
{
    struct ct_config *cfg = calloc(1, sizeof *cfg);
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    char yaml[2048];

    cr_assert(cfg != NULL && errs != NULL);
    (void)snprintf(yaml, sizeof yaml, "model: {%s}\ndata: {train: {format: %s, path: d}}\n", model,
                   strstr(model, "type: gpt") != NULL ? "text" : "csv");
    const struct ct_config_input in = {
        .yaml_path = "a.yaml", .yaml_text = yaml, .yaml_size = strlen(yaml)};
    cr_assert_eq(ct_config_load(cfg, &in, errs), 0, "%s\n%s", yaml, errs->at[0].text);
    free(errs);
    return cfg;
}

static void unload(struct ct_config *cfg)
{
    ct_config_deinit(cfg);
    free(cfg);
}

static void expect_refusal(const char *model, const char *expected)
{
    struct ct_config *cfg = load(model);
    struct ct_error err = {0};

    cr_assert_eq(ct_recipe_check(cfg, &err), CT_ECONFIG, "%s: %s", model, err.text);
    cr_expect_str_eq(err.text, expected, "%s:\n%s", model, err.text);
    unload(cfg);
}

#define LAYERS(list) "type: layers, input: [1, 8, 8], layers: [" list "]"

Test(recipe, what_is_no_layer_is_told_with_its_place)
{
    static const struct {
        const char *model, *expected;
    } rows[] = {
        {LAYERS("conv3d: {out: 4}"),
         "a.yaml:1:50: model.layers: unknown layer \"conv3d\"; did you mean conv2d?"},
        {LAYERS("flatten, lstm"),
         "a.yaml:1:59: model.layers: unknown layer \"lstm\"; there are conv2d, maxpool, avgpool, "
         "flatten, linear, dropout, batch_norm, relu, gelu, gelu_tanh, tanh, residual"},
        {LAYERS("conv2d: {out: 4, kernal: 3}"),
         "a.yaml:1:75: model.layers: conv2d has no option \"kernal\"; it has out, kernel, stride, "
         "pad, act, bias"},
        {LAYERS("flatten: {out: 3}"),
         "a.yaml:1:65: model.layers: flatten has no option \"out\" and takes none"},
        {LAYERS("flatten: 3"), "a.yaml:1:59: model.layers: flatten takes no value"},
        {LAYERS("conv2d: {out: x}"),
         "a.yaml:1:64: model.layers: conv2d: out wants a whole number, not \"x\""},
        {LAYERS("dropout: [1]"),
         "a.yaml:1:59: model.layers: dropout: rate wants a number, not \"a list\""},
        {LAYERS("linear: {out: 3, act: selu}"),
         "a.yaml:1:72: model.layers: linear: act has no choice \"selu\" (choices: relu, gelu, "
         "gelu_tanh, tanh, none)"},
        {LAYERS("linear: {out: 3, bias: maybe}"),
         "a.yaml:1:73: model.layers: linear: bias wants true or false"},
        {LAYERS("[flatten]"),
         "a.yaml:1:50: model.layers: a layer is its name (flatten), or its name and what it is "
         "told (maxpool: 2, conv2d: {out: 16, kernel: 3})"},
        {LAYERS("residual: 3"), "a.yaml:1:60: model.layers: a list of layers is wanted here"},
        {LAYERS("residual: [residual: [residual: [residual: [residual: [relu]]]]]"),
         "a.yaml:1:104: model.layers: lists lie in one another more than 4 times"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        expect_refusal(rows[i].model, rows[i].expected);
}

Test(recipe, shapes_that_clash_are_told_with_both_and_the_place)
{
    static const struct {
        const char *model, *expected;
    } rows[] = {
        {LAYERS("flatten, conv2d: {out: 4, kernel: 3}"),
         "a.yaml:1:59: model.layers[1] (conv2d) needs an image, but gets 64 features"},
        {LAYERS("maxpool: 4, conv2d: {out: 4, kernel: 3}"),
         "a.yaml:1:62: model.layers[1] (conv2d) needs room for windows of 3 x 3 pixels, but gets "
         "an image of 2 x 2 pixels with 1 channel"},
        {LAYERS("conv2d: {out: 4, kernel: 1}, linear: 2"),
         "a.yaml:1:79: model.layers[1] (linear) needs features (a flatten before it), but gets an "
         "image of 8 x 8 pixels with 4 channels"},
        {LAYERS("residual: [conv2d: {out: 4, kernel: 3, pad: 1}], flatten, linear: 2"),
         "a.yaml:1:50: model.layers[0] (residual): its body gives an image of 8 x 8 pixels with 4 "
         "channels, but its input is an image of 8 x 8 pixels with 1 channel; give it a shortcut "
         "that fits"},
        {LAYERS("residual: {body: [relu], shortcut: [maxpool: 2]}, flatten, linear: 2"),
         "a.yaml:1:50: model.layers[0] (residual): its body gives an image of 8 x 8 pixels with 1 "
         "channel, but its shortcut gives an image of 4 x 4 pixels with 1 channel; give it a "
         "shortcut that fits"},
        {LAYERS("residual: {shortcut: [relu]}, flatten, linear: 2"),
         "a.yaml:1:50: model.layers[0] (residual) has no body: what is added to its input?"},
        {LAYERS("residual: [maxpool: {kernel: 9}], flatten, linear: 2"),
         "a.yaml:1:61: model.layers[0].body[0] (maxpool) needs room for windows of 9 x 9 pixels, "
         "but gets an image of 8 x 8 pixels with 1 channel"},
        {LAYERS("relu"), "a.yaml:1:50: model.layers[0] (relu) is the last and must give logits, "
                         "but gets an image of 8 x 8 pixels with 1 channel"},
        {LAYERS("flatten, linear: 3") ", classes: 4",
         "a.yaml:1:80: model.classes is 4, but the last layer gives 3 numbers a sample"},
        {"type: gpt, layers: 1, heads: 3, width: 9, context: 4, positions: rotary",
         "rotary positions turn pairs, heads of 3 columns have none"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        expect_refusal(rows[i].model, rows[i].expected);
}

/* "name[shape] " for each parameter. */
static void describe(const struct ct_model *model, char *text, size_t room)
{
    size_t used = 0;
    char shape[96];

    text[0] = '\0';
    for (int i = 0; i < model->param_count; i++) {
        const struct ct_value *value = &model->program.values[model->params[i].value];
        used += (size_t)snprintf(text + used, room - used, "%s%s ", value->name,
                                 ct_shape_print(value->shape, shape, sizeof shape));
    }
}

static void expect_params(const char *model, int64_t classes, const char *params)
{
    struct ct_config *cfg = load(model);
    struct ct_model_spec spec;
    struct ct_model built;
    struct ct_arena arena;
    struct ct_error err = {0};
    char text[1024];

    ct_arena_init(&arena, 1 << 20);
    cr_assert_eq(ct_recipe_model(&spec, cfg, NULL, &arena, &err), 0, "%s", err.text);
    cr_assert_eq(ct_model_build(&built, &spec, 2, &err), 0, "%s", err.text);
    describe(&built, text, sizeof text);
    cr_assert_str_eq(text, params, "%s:\n%s", model, text);
    cr_assert_eq(ct_recipe_classes(cfg), classes);
    ct_model_deinit(&built);
    ct_arena_deinit(&arena);
    unload(cfg);
}

Test(recipe, layers_become_a_model_with_the_names_of_their_places)
{
    expect_params(LAYERS("conv2d: {out: 4, kernel: 3, pad: 1, act: relu}, maxpool: 2, flatten, "
                         "dropout: 0.1, linear: {out: 5, act: tanh, bias: no}, linear: 3"),
                  3,
                  "layers.0.weight[4, 1, 3, 3] layers.0.bias[4] layers.4.weight[5, 64] "
                  "layers.5.weight[3, 5] layers.5.bias[3] ");
    expect_params(LAYERS("residual: {body: [conv2d: {out: 4, kernel: 3, pad: 1, stride: 2, bias: "
                         "false}, relu, residual: [gelu]], shortcut: [conv2d: {out: 4, kernel: 1, "
                         "stride: 2}], act: relu}, flatten, linear: 2"),
                  2,
                  "layers.0.body.0.weight[4, 1, 3, 3] layers.0.shortcut.0.weight[4, 1, 1, 1] "
                  "layers.0.shortcut.0.bias[4] layers.2.weight[2, 64] layers.2.bias[2] ");
    expect_params("type: layers, input: 6, layers: [linear: 4, gelu_tanh, linear: 2]", 2,
                  "layers.0.weight[4, 6] layers.0.bias[4] layers.2.weight[2, 4] layers.2.bias[2] ");
}

Test(recipe, a_file_is_checked_before_its_data_are_seen)
{
    static const char *const good[] = {"classes: 3", "classes: 3, input: 7, hidden: [4, 4]",
                                       "type: gpt, layers: 1, heads: 2, width: 8, context: 4",
                                       "type: gpt, preset: gpt2-1558M",
                                       LAYERS("flatten, linear: 3") ", classes: 3"};
    struct ct_error err = {0};

    for (size_t i = 0; i < CT_COUNT(good); i++) {
        struct ct_config *cfg = load(good[i]);
        cr_assert_eq(ct_recipe_check(cfg, &err), 0, "%s: %s", good[i], err.text);
        unload(cfg);
    }
}

/* ---- the configurations that are shipped ----------------------------------------------------- */

/* A shipped configuration as it is, without a word on the command line. */
static struct ct_config *load_file(const char *path)
{
    struct ct_config *cfg = calloc(1, sizeof *cfg);
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    char *argv[] = {(char *)(uintptr_t)path};
    const struct ct_config_input in = {.argc = 1, .argv = argv, .command_needed = true};

    cr_assert(cfg != NULL && errs != NULL);
    cr_assert_eq(ct_config_load(cfg, &in, errs), 0, "%s", errs->at[0].text);
    cr_assert_eq(errs->note_count, 0, "%s", errs->notes[0].text);
    free(errs);
    return cfg;
}

Test(recipe, every_shipped_configuration_loads_its_model_can_be_built_and_the_readme_has_it)
{
    glob_t files;
    struct ct_buf readme;
    struct ct_error err = {0};
    char name[80];

    ct_buf_init(&readme, 0);
    cr_assert_eq(ct_fs_read("configs/README.md", 1 << 20, &readme, NULL), 0);
    cr_assert_eq(glob("configs/*.yaml", 0, NULL, &files), 0);
    cr_assert_geq(files.gl_pathc, 9);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct ct_config *cfg = load_file(files.gl_pathv[i]);

        cr_assert_eq(ct_recipe_check(cfg, &err), 0, "%s: %s", files.gl_pathv[i], err.text);
        (void)snprintf(name, sizeof name, "| `%.60s` |", files.gl_pathv[i] + strlen("configs/"));
        cr_assert_not_null(strstr(ct_buf_str(&readme), name), "no row %s", name);
        unload(cfg);
    }
    globfree(&files);
    ct_buf_deinit(&readme);
}

Test(recipe, the_configurations_of_gpt2_are_its_smallest_size)
{
    static const struct {
        const char *path;
        int64_t parameters;
    } rows[] = {{"configs/gpt2_124m.yaml", 124439808},
                {"configs/gpt2_124m_fsdp.yaml", 124439808 + 47 * 768}};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_config *cfg = load_file(rows[i].path);
        struct ct_model_spec spec;
        struct ct_model model;
        int64_t count = 0;

        cr_assert_eq(ct_recipe_model(&spec, cfg, NULL, NULL, NULL), 0);
        cr_assert_eq(ct_model_build(&model, &spec, 1, NULL), 0);
        for (int k = 0; k < model.param_count; k++)
            count += ct_shape_elements(model.program.values[model.params[k].value].shape);
        cr_assert_eq(count, rows[i].parameters, "%lld", (long long)count);
        ct_model_deinit(&model);
        unload(cfg);
    }
}
