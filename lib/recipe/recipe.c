/* See recipe.h. */
#include "recipe/recipe.h"

#include "graph/model.h"
#include "recipe/layer_list.h"

/* Words of config.def and of the libraries that carry the same meaning have the same order. */
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
SAME(CT_CONFIG_LOSS_CROSS_ENTROPY, CT_LOSS_CROSS_ENTROPY);
SAME(CT_CONFIG_LOSS_MSE, CT_LOSS_MSE);
SAME(CT_CONFIG_POSITIONS_LEARNED, CT_POSITIONS_LEARNED);
SAME(CT_CONFIG_POSITIONS_ROTARY, CT_POSITIONS_ROTARY);
SAME(CT_CONFIG_NORM_LAYERNORM, CT_NORM_LAYER);
SAME(CT_CONFIG_NORM_RMSNORM, CT_NORM_RMS);
SAME(CT_CONFIG_MLP_GELU, CT_MLP_GELU);
SAME(CT_CONFIG_MLP_SWIGLU, CT_MLP_SWIGLU);

static const enum ct_activation activations[] = {
    [CT_CONFIG_ACTIVATION_RELU] = CT_ACT_RELU,
    [CT_CONFIG_ACTIVATION_GELU] = CT_ACT_GELU,
    [CT_CONFIG_ACTIVATION_TANH] = CT_ACT_TANH,
};

/* Of the tables that a specification points to. */
enum { RECIPE_BYTES = 16 << 20 };

static int64_t given(int64_t value, int64_t otherwise)
{
    return value != 0 ? value : otherwise;
}

/* The sizes that the file gives, then those of the preset. */
static struct ct_gpt_spec gpt_of(const struct ct_config *cfg)
{
    struct ct_gpt_spec preset = {0};

    (void)ct_gpt_preset(ct_config_word(cfg, &cfg->model.preset), &preset);
    return (struct ct_gpt_spec){
        .vocabulary = given(cfg->model.vocabulary, preset.vocabulary),
        .context = given(cfg->model.context, preset.context),
        .layers = given(cfg->model.layers.count, preset.layers),
        .heads = given(cfg->model.heads, preset.heads),
        .width = given(cfg->model.width, preset.width),
        .inner = cfg->model.inner,
        .positions = (enum ct_positions)cfg->model.positions,
        .norm = (enum ct_norm)cfg->model.norm,
        .mlp = (enum ct_mlp)cfg->model.mlp,
        .untied = !cfg->model.tie,
        .unbiased = !cfg->model.bias,
        .dropout = cfg->model.dropout,
    };
}

int64_t ct_recipe_context(const struct ct_config *cfg)
{
    return cfg->model.type == CT_CONFIG_MODEL_GPT ? gpt_of(cfg).context : 0;
}

int64_t ct_recipe_vocabulary(const struct ct_config *cfg)
{
    return cfg->model.type == CT_CONFIG_MODEL_GPT ? gpt_of(cfg).vocabulary : 0;
}

int64_t ct_recipe_width(const struct ct_config *cfg)
{
    const struct ct_config_ints *input = &cfg->model.input;
    int64_t width = 1;

    for (int64_t i = 0; i < input->count; i++)
        width *= input->at[i];
    return cfg->model.type == CT_CONFIG_MODEL_GPT ? 0 : width;
}

/* The features that the last linear layer gives. */
static int64_t last_out(const struct ct_layers_spec *spec)
{
    for (int i = spec->count - 1; i >= 0; i--)
        if (spec->layers[i].kind == CT_LAYER_LINEAR)
            return spec->layers[i].out;
    return 0;
}

int64_t ct_recipe_classes(const struct ct_config *cfg)
{
    struct ct_model_spec spec;
    struct ct_arena arena;
    int64_t classes = cfg->model.classes;

    if (classes != 0 || cfg->model.type != CT_CONFIG_MODEL_LAYERS)
        return classes;
    ct_arena_init(&arena, RECIPE_BYTES);
    if (ct_recipe_model(&spec, cfg, NULL, &arena, NULL) == 0)
        classes = last_out(&spec.layers);
    ct_arena_deinit(&arena);
    return classes;
}

int ct_recipe_model(struct ct_model_spec *ret_spec, const struct ct_config *cfg,
                    const struct ct_recipe_data *data, struct ct_arena *arena, struct ct_error *err)
{
    static const struct ct_recipe_data unknown = {0};
    const struct ct_recipe_data *seen = data != NULL ? data : &unknown;
    struct ct_model_spec spec = {
        .dtype = CT_F32,
        .input = given(seen->width, ct_recipe_width(cfg)),
        .hidden = cfg->model.hidden.at,
        .hidden_count = (int)cfg->model.hidden.count,
        .classes = cfg->model.classes,
        .activation = activations[cfg->model.activation],
        .loss = (enum ct_loss)cfg->model.loss,
    };
    int code = 0;

    switch (cfg->model.type) {
    case CT_CONFIG_MODEL_GPT:
        spec.type = CT_MODEL_GPT;
        spec.gpt = gpt_of(cfg);
        spec.gpt.vocabulary = given(spec.gpt.vocabulary, seen->classes);
        break;
    case CT_CONFIG_MODEL_LAYERS:
        spec.type = CT_MODEL_LAYERS;
        code = ct_recipe_layers(&spec.layers, cfg, arena, err);
        break;
    default:
        break;
    }
    if (code == 0)
        *ret_spec = spec;
    return code;
}

/* The classes that are said must be those that the model tells apart. */
static int check_classes(const struct ct_config *cfg, const struct ct_model *model,
                         struct ct_error *err)
{
    int64_t gives = ct_shape_columns(model->program.values[model->logits].shape);
    const struct ct_config_origin *origin = ct_config_origin(cfg, &cfg->model.classes);
    char place[320];

    if (cfg->model.type != CT_CONFIG_MODEL_LAYERS || cfg->model.classes == 0 ||
        cfg->model.classes == gives)
        return 0;
    return ct_error_set(err, CT_ECONFIG,
                        "%s: model.classes is %lld, but the last layer gives %lld numbers a sample",
                        ct_config_origin_text(origin, place, sizeof place),
                        (long long)cfg->model.classes, (long long)gives);
}

int ct_recipe_check(const struct ct_config *cfg, struct ct_error *err)
{
    static const struct ct_recipe_data any = {1, 2};
    struct ct_recipe_data data = {given(ct_recipe_width(cfg), any.width), any.classes};
    struct ct_model_spec spec;
    struct ct_model model = {0};
    struct ct_arena arena;

    if (cfg->command.file == NULL)
        return 0;
    ct_arena_init(&arena, RECIPE_BYTES);
    int code = ct_recipe_model(&spec, cfg, &data, &arena, err);
    if (code == 0)
        code = ct_model_build(&model, &spec, 1, err);
    if (code == 0)
        code = check_classes(cfg, &model, err);
    ct_model_deinit(&model);
    ct_arena_deinit(&arena);
    return code;
}
