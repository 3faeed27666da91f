/* See model.h. */
#include "model.h"

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
        .layers = given(cfg->model.layers, preset.layers),
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

int64_t ct_model_context(const struct ct_config *cfg)
{
    return cfg->model.type == CT_CONFIG_MODEL_GPT ? gpt_of(cfg).context : 0;
}

int64_t ct_model_vocabulary(const struct ct_config *cfg)
{
    return cfg->model.type == CT_CONFIG_MODEL_GPT ? gpt_of(cfg).vocabulary : 0;
}

struct ct_model_spec ct_model_of(const struct ct_config *cfg, const struct ct_dataset *train)
{
    struct ct_model_spec spec = {
        .dtype = CT_F32,
        .input = (int64_t)train->width,
        .hidden = cfg->model.hidden.at,
        .hidden_count = (int)cfg->model.hidden.count,
        .classes = cfg->model.classes,
        .activation = activations[cfg->model.activation],
        .loss = (enum ct_loss)cfg->model.loss,
    };

    if (cfg->model.type != CT_CONFIG_MODEL_GPT)
        return spec;
    spec.type = CT_MODEL_GPT;
    spec.gpt = gpt_of(cfg);
    spec.gpt.vocabulary = given(spec.gpt.vocabulary, train->classes);
    return spec;
}
