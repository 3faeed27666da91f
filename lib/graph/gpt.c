/* See gpt.h. */
#include "graph/gpt.h"

#include "base/assert.h"
#include "graph/builder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int64_t layers, heads, width;
} presets[] = {
    {"gpt2-124M", 12, 12, 768},
    {"gpt2-355M", 24, 16, 1024},
    {"gpt2-774M", 36, 20, 1280},
    {"gpt2-1558M", 48, 25, 1600},
};

bool ct_gpt_preset(const char *name, struct ct_gpt_spec *spec)
{
    for (size_t i = 0; i < CT_COUNT(presets); i++) {
        if (strcmp(presets[i].name, name) != 0)
            continue;
        spec->vocabulary = 50257;
        spec->context = 1024;
        spec->layers = presets[i].layers;
        spec->heads = presets[i].heads;
        spec->width = presets[i].width;
        return true;
    }
    return false;
}

static int find(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

int ct_positions_find(const char *name)
{
    static const char *const names[CT_POSITIONS_COUNT] = {"learned", "rotary"};

    return find(names, CT_POSITIONS_COUNT, name);
}

int ct_norm_find(const char *name)
{
    static const char *const names[CT_NORM_COUNT] = {"layernorm", "rmsnorm"};

    return find(names, CT_NORM_COUNT, name);
}

int ct_mlp_find(const char *name)
{
    static const char *const names[CT_MLP_COUNT] = {"gelu", "swiglu"};

    return find(names, CT_MLP_COUNT, name);
}

/* ---- limits --------------------------------------------------------------------------------- */

static int check_sizes(const struct ct_gpt_spec *spec, int64_t rows, struct ct_error *err)
{
    const struct {
        const char *key;
        int64_t value, least, most;
    } limits[] = {
        {"model.vocabulary", spec->vocabulary, 1, CT_MODEL_MAX_WIDTH},
        {"model.context", spec->context, 1, CT_MODEL_MAX_WIDTH},
        {"model.sequence", spec->sequence, 1, spec->context},
        {"model.layers", spec->layers, 1, 1024},
        {"model.heads", spec->heads, 1, 1024},
        {"model.width", spec->width, 1, 1 << 20},
        {"model.inner", spec->inner, 1, CT_MODEL_MAX_WIDTH},
        {"tokens of a micro-batch", rows * spec->sequence, 1, CT_GPT_MAX_TOKENS},
    };

    for (size_t i = 0; i < CT_COUNT(limits); i++)
        if (limits[i].value < limits[i].least || limits[i].value > limits[i].most)
            return ct_error_set(err, CT_ECONFIG, "%s is %lld, must be from %lld to %lld",
                                limits[i].key, (long long)limits[i].value,
                                (long long)limits[i].least, (long long)limits[i].most);
    return 0;
}

static int check(const struct ct_gpt_spec *spec, int64_t rows, struct ct_error *err)
{
    int code = check_sizes(spec, rows, err);
    int64_t size = code == 0 ? spec->width / spec->heads : 1;

    if (code != 0)
        return code;
    if (spec->width % spec->heads != 0 || size > CT_HEAD_MAX_SIZE)
        return ct_error_set(err, CT_ECONFIG,
                            "model.width %lld cannot be cut into %lld heads of equal size, at most "
                            "%d columns each",
                            (long long)spec->width, (long long)spec->heads, CT_HEAD_MAX_SIZE);
    if (spec->positions == CT_POSITIONS_ROTARY && size % 2 != 0)
        return ct_error_set(err, CT_ECONFIG,
                            "rotary positions turn pairs, heads of %lld columns have none",
                            (long long)size);
    if (!(spec->dropout >= 0 && spec->dropout < 1))
        return ct_error_set(err, CT_ECONFIG, "model.dropout is %g, must be at least 0 and below 1",
                            spec->dropout);
    return 0;
}

/* ---- the model ------------------------------------------------------------------------------ */

struct gpt {
    struct ct_builder *b;
    struct ct_gpt_spec spec; /* complete */
    struct ct_init weight, residual;
    int ids, wte;
};

/* "h.<layer>.<part>" */
static const char *part_name(int64_t layer, const char *part, char name[64])
{
    (void)snprintf(name, 64, "h.%lld.%s", (long long)layer, part);
    return name;
}

static int norm(struct gpt *g, const char *name, int h)
{
    return ct_build_norm(g->b, name, h, g->spec.norm, g->spec.eps, !g->spec.unbiased);
}

static int linear(struct gpt *g, int64_t layer, const char *part, int x, int64_t out)
{
    char name[64];

    return ct_build_linear_init(g->b, part_name(layer, part, name), x, out, g->weight,
                                !g->spec.unbiased);
}

/* h + dropout(x W^T + b), with W drawn for a sum of 2 * layers such terms. */
static int into_residual(struct gpt *g, int64_t layer, const char *part, int h, int x)
{
    char name[64];
    int y = ct_build_linear_init(g->b, part_name(layer, part, name), x, g->spec.width, g->residual,
                                 !g->spec.unbiased);

    return ct_build_add(g->b, h, ct_build_dropout(g->b, name, y, g->spec.dropout));
}

static int rotary(struct gpt *g, int qkv)
{
    struct ct_program_op op = ct_program_op(CT_OP_ROPE);

    op.in[0] = qkv;
    if (g->b->spec->decoding)
        op.in[1] = ct_build_places(g->b, g->spec.sequence);
    op.attr.heads = (uint64_t)g->spec.heads;
    op.attr.sequence = (uint64_t)g->spec.sequence;
    op.attr.base = g->spec.rotary_base;
    return ct_program_emit(g->b->program, op);
}

static int attention(struct gpt *g, int64_t layer, int h)
{
    char name[64];
    int x = norm(g, part_name(layer, "ln_1", name), h);
    int qkv = linear(g, layer, "attn.c_attn", x, 3 * g->spec.width);

    if (g->spec.positions == CT_POSITIONS_ROTARY)
        qkv = rotary(g, qkv);
    int y = g->b->spec->decoding ? ct_build_attention_cached(g->b, part_name(layer, "attn", name),
                                                             qkv, g->spec.heads, g->spec.context)
                                 : ct_build_attention(g->b, qkv, g->spec.sequence, g->spec.heads);
    return into_residual(g, layer, "attn.c_proj", h, y);
}

static int mlp(struct gpt *g, int64_t layer, int h)
{
    char name[64];
    int x = norm(g, part_name(layer, "ln_2", name), h), y;
    int up = linear(g, layer, "mlp.c_fc", x, g->spec.inner);

    if (g->spec.mlp == CT_MLP_SWIGLU)
        y = ct_build_op(g->b, CT_OP_SWIGLU, linear(g, layer, "mlp.c_gate", x, g->spec.inner), up,
                        CT_NONE);
    else
        y = ct_build_act(g->b, CT_ACT_GELU_TANH, up);
    return into_residual(g, layer, "mlp.c_proj", h, y);
}

/* The rows of wpe for tokens that do not begin a sequence. */
static int places(struct gpt *g, int wpe)
{
    return ct_build_op(g->b, CT_OP_EMBEDDING, ct_build_places(g->b, g->spec.sequence), wpe,
                       CT_NONE);
}

static int embedding(struct gpt *g)
{
    struct ct_program_op op = ct_program_op(CT_OP_EMBEDDING);
    const struct ct_gpt_spec *spec = &g->spec;

    int wpe =
        spec->positions == CT_POSITIONS_LEARNED
            ? ct_build_param(g->b, "wpe.weight", ct_shape2(spec->context, spec->width), g->weight)
            : CT_NONE;
    op.in[0] = g->ids;
    op.in[1] = g->wte;
    op.attr.sequence = (uint64_t)spec->sequence;
    if (g->b->spec->decoding && wpe != CT_NONE)
        return ct_build_add(g->b, ct_program_emit(g->b->program, op), places(g, wpe));
    op.in[2] = wpe;
    return ct_build_dropout(g->b, "embedding", ct_program_emit(g->b->program, op), spec->dropout);
}

static struct ct_gpt_spec complete(const struct ct_gpt_spec *spec)
{
    struct ct_gpt_spec full = *spec;

    full.sequence = spec->sequence == 0 ? spec->context : spec->sequence;
    full.inner = spec->inner == 0 ? 4 * spec->width : spec->inner;
    full.eps = spec->eps == 0 ? 1e-5 : spec->eps;
    full.rotary_base = spec->rotary_base == 0 ? 10000 : spec->rotary_base;
    return full;
}

int ct_build_gpt(struct ct_builder *b, const struct ct_gpt_spec *spec, struct ct_error *err)
{
    struct gpt g = {.b = b, .spec = complete(spec), .weight = {CT_INIT_NORMAL, 0.02}};
    int code = check(&g.spec, b->rows, err);

    if (code != 0)
        return code;
    g.residual = (struct ct_init){CT_INIT_NORMAL, 0.02 / sqrt(2 * (double)spec->layers)};
    g.ids = ct_build_tokens(b, g.spec.sequence);
    g.wte = ct_build_param(b, "wte.weight", ct_shape2(spec->vocabulary, spec->width), g.weight);
    int h = embedding(&g);

    for (int64_t layer = 0; layer < spec->layers; layer++)
        h = mlp(&g, layer, attention(&g, layer, h));
    h = norm(&g, "ln_f", h);
    if (spec->untied)
        h = ct_build_linear_init(b, "lm_head", h, spec->vocabulary, g.weight, false);
    else
        h = ct_build_op(b, CT_OP_LINEAR, h, g.wte, CT_NONE);
    ct_build_loss(b, CT_LOSS_CROSS_ENTROPY, h);
    return 0;
}
