/* See layers.h. Each layer is checked against the shape that it gets before it is built. */
#include "graph/layers.h"

#include "base/assert.h"
#include "base/str.h"
#include "graph/builder.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define O(option) ((uint32_t)1 << CT_LAYER_##option)
static const struct ct_layer_info layers[] = {
#define LAYER(id, name, other, main, options) \
    [CT_LAYER_##id] = {name, other, CT_LAYER_##main, options},
#include "graph/layer.def"
};
#undef O

static const char *const options[] = {
    [CT_LAYER_OUT] = "out",   [CT_LAYER_KERNEL] = "kernel", [CT_LAYER_STRIDE] = "stride",
    [CT_LAYER_PAD] = "pad",   [CT_LAYER_ACT] = "act",       [CT_LAYER_BIAS] = "bias",
    [CT_LAYER_RATE] = "rate", [CT_LAYER_EPS] = "eps",       [CT_LAYER_MOMENTUM] = "momentum",
    [CT_LAYER_SYNC] = "sync", [CT_LAYER_BODY] = "body",     [CT_LAYER_SHORTCUT] = "shortcut",
};
_Static_assert(CT_COUNT(options) == CT_LAYER_OPTION_COUNT, "a name for every option");

const struct ct_layer_info *ct_layer_info(enum ct_layer_kind kind)
{
    CT_ASSERT((unsigned)kind < CT_LAYER_KIND_COUNT);
    return &layers[kind];
}

int ct_layer_find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(layers); i++)
        if (strcmp(layers[i].name, name) == 0 ||
            (layers[i].other[0] != '\0' && strcmp(layers[i].other, name) == 0))
            return (int)i;
    return -1;
}

static const char *name_at(const void *context, size_t index)
{
    (void)context;
    return layers[index].name;
}

const char *ct_layer_nearest(const char *name)
{
    return ct_nearest(name, CT_COUNT(layers), name_at, NULL);
}

int ct_layer_option_find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(options); i++)
        if (strcmp(options[i], name) == 0)
            return (int)i;
    return -1;
}

const char *ct_layer_option_name(enum ct_layer_option option)
{
    CT_ASSERT((unsigned)option < CT_LAYER_OPTION_COUNT);
    return options[option];
}

/* ---- what does not fit ---------------------------------------------------------------------- */

/* A layer on its way into the program. */
struct adding {
    struct ct_builder *b;
    const struct ct_layer_spec *layer;
    char path[160]; /* "model.layers[3].body[1]" */
    char name[96];  /* "layers.3.body.1" */
    struct ct_error *err;
};

static struct ct_shape shape_of(const struct ct_builder *b, int value)
{
    return b->program->values[value].shape;
}

/* "an image of 28 x 28 pixels with 1 channel", "784 features" */
static const char *print_shape(struct ct_shape shape, char text[96])
{
    if (shape.dims == 4)
        (void)snprintf(text, 96, "an image of %lld x %lld pixels with %lld channel%s",
                       (long long)shape.dim[1], (long long)shape.dim[2], (long long)shape.dim[3],
                       shape.dim[3] == 1 ? "" : "s");
    else
        (void)snprintf(text, 96, "%lld features", (long long)ct_shape_columns(shape));
    return text;
}

__attribute__((format(printf, 2, 3))) static int refuse(const struct adding *a, const char *format,
                                                        ...)
{
    const char *place = a->layer->place;
    char why[320];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return ct_error_set(a->err, CT_ECONFIG, "%s%s%s (%s)%s", place != NULL ? place : "",
                        place != NULL ? ": " : "", a->path, layers[a->layer->kind].name, why);
}

/* It wants something else than what it gets. */
static int refuse_shape(const struct adding *a, int x, const char *wants)
{
    char gets[96];

    return refuse(a, " %s, but gets %s", wants, print_shape(shape_of(a->b, x), gets));
}

static struct ct_window window_of(const struct ct_layer_spec *layer)
{
    int64_t stride = layer->kind == CT_LAYER_CONV2D ? 1 : layer->kernel;

    return (struct ct_window){layer->kernel, layer->stride == 0 ? stride : layer->stride,
                              layer->pad};
}

static int check_windows(const struct adding *a, int x)
{
    struct ct_window w = window_of(a->layer);
    struct ct_shape shape = shape_of(a->b, x);
    char wants[96];

    if (shape.dims != 4)
        return refuse_shape(a, x, "needs an image");
    if (w.kernel < 1 || w.kernel > 1024 || w.stride < 1 || w.stride > 1024 || w.pad < 0 ||
        w.pad >= w.kernel)
        return refuse(a,
                      ": kernel %lld, stride %lld and pad %lld are not possible: kernel and stride "
                      "are from 1 to 1024, pad below kernel",
                      (long long)w.kernel, (long long)w.stride, (long long)w.pad);
    if (shape.dim[1] + 2 * w.pad >= w.kernel && shape.dim[2] + 2 * w.pad >= w.kernel)
        return 0;
    (void)snprintf(wants, sizeof wants, "needs room for windows of %lld x %lld pixels",
                   (long long)w.kernel, (long long)w.kernel);
    return refuse_shape(a, x, wants);
}

static int check_layer(const struct adding *a, int x)
{
    const struct ct_layer_spec *layer = a->layer;
    uint32_t takes = layers[layer->kind].options;
    bool image = shape_of(a->b, x).dims == 4;

    if ((takes & (uint32_t)1 << CT_LAYER_OUT) != 0 &&
        (layer->out < 1 || layer->out > CT_MODEL_MAX_WIDTH))
        return refuse(a, ": out is %lld, must be from 1 to %d", (long long)layer->out,
                      CT_MODEL_MAX_WIDTH);
    if ((takes & (uint32_t)1 << CT_LAYER_KERNEL) != 0)
        return check_windows(a, x);
    if (layer->kind == CT_LAYER_FLATTEN && !image)
        return refuse_shape(a, x, "needs an image");
    if (layer->kind == CT_LAYER_LINEAR && image)
        return refuse_shape(a, x, "needs features (a flatten before it)");
    if (layer->kind == CT_LAYER_DROPOUT && !(layer->rate >= 0 && layer->rate < 1))
        return refuse(a, " is %g, must be at least 0 and below 1", layer->rate);
    if (layer->kind == CT_LAYER_BATCH_NORM && !(layer->eps >= 0 && layer->eps < 1))
        return refuse(a, ": eps is %g, must be above 0 and below 1", layer->eps);
    if (layer->kind == CT_LAYER_BATCH_NORM && !(layer->momentum >= 0 && layer->momentum <= 1))
        return refuse(a, ": momentum is %g, must be above 0 and at most 1", layer->momentum);
    return 0;
}

/* ---- building ------------------------------------------------------------------------------- */

static int add_list(const struct adding *outer, struct ct_layer_list list, const char *part,
                    int depth, int *x);

/* x becomes body(x) + shortcut(x). */
static int add_residual(const struct adding *a, int depth, int *x)
{
    char body[96], shortcut[96];
    int z = *x, y = z;

    if (a->layer->body.count == 0)
        return refuse(a, " has no body: what is added to its input?");
    if (depth == CT_LAYERS_DEPTH)
        return refuse(a, " is the %dth in one another, at most %d are possible", depth + 1,
                      CT_LAYERS_DEPTH);
    int code = add_list(a, a->layer->body, "body", depth + 1, &y);
    if (code == 0)
        code = add_list(a, a->layer->shortcut, "shortcut", depth + 1, &z);
    if (code != 0 || !ct_build_ok(a->b))
        return code;
    if (!ct_shape_equal(shape_of(a->b, y), shape_of(a->b, z)))
        return refuse(a, ": its body gives %s, but its %s %s; give it a shortcut that fits",
                      print_shape(shape_of(a->b, y), body),
                      a->layer->shortcut.count > 0 ? "shortcut gives" : "input is",
                      print_shape(shape_of(a->b, z), shortcut));
    *x = ct_build_add(a->b, z, y);
    return 0;
}

static int add_linear(const struct adding *a, int x)
{
    struct ct_init init = {CT_INIT_UNIFORM, 1 / sqrt((double)ct_shape_columns(shape_of(a->b, x)))};

    if (a->layer->unbiased)
        return ct_build_linear_init(a->b, a->name, x, a->layer->out, init, false);
    return ct_build_linear(a->b, a->name, x, a->layer->out);
}

/* The layer, its activation apart. */
static int add_layer(const struct adding *a, int depth, int *x)
{
    const struct ct_layer_spec *layer = a->layer;
    struct ct_builder *b = a->b;

    switch (layer->kind) {
    case CT_LAYER_CONV2D:
        *x = layer->unbiased ? ct_build_conv_unbiased(b, a->name, *x, layer->out, window_of(layer))
                             : ct_build_conv(b, a->name, *x, layer->out, window_of(layer));
        return 0;
    case CT_LAYER_MAXPOOL:
        *x = ct_build_maxpool(b, *x, window_of(layer));
        return 0;
    case CT_LAYER_AVGPOOL:
        *x = ct_build_avgpool(b, *x, window_of(layer));
        return 0;
    case CT_LAYER_FLATTEN:
        *x = ct_build_flatten(b, *x);
        return 0;
    case CT_LAYER_LINEAR:
        *x = add_linear(a, *x);
        return 0;
    case CT_LAYER_DROPOUT:
        *x = ct_build_dropout(b, a->name, *x, layer->rate);
        return 0;
    case CT_LAYER_BATCH_NORM:
        *x = ct_build_batch_norm(b, a->name, *x,
                                 (struct ct_batch_norm){layer->eps, layer->momentum, layer->sync});
        return 0;
    case CT_LAYER_RELU:
        *x = ct_build_act(b, CT_ACT_RELU, *x);
        return 0;
    case CT_LAYER_GELU:
        *x = ct_build_act(b, CT_ACT_GELU, *x);
        return 0;
    case CT_LAYER_GELU_TANH:
        *x = ct_build_act(b, CT_ACT_GELU_TANH, *x);
        return 0;
    case CT_LAYER_TANH:
        *x = ct_build_act(b, CT_ACT_TANH, *x);
        return 0;
    default:
        return add_residual(a, depth, x);
    }
}

/* The layers of `list`, which is `part` of the layer `outer`. */
static int add_list(const struct adding *outer, struct ct_layer_list list, const char *part,
                    int depth, int *x)
{
    int code = 0;

    for (int i = 0; i < list.count && code == 0 && ct_build_ok(outer->b); i++) {
        struct adding a = {.b = outer->b, .layer = &list.at[i], .err = outer->err};
        bool acts = (layers[a.layer->kind].options & (uint32_t)1 << CT_LAYER_ACT) != 0;

        (void)snprintf(a.path, sizeof a.path, "%.120s.%s[%d]", outer->path, part, i);
        (void)snprintf(a.name, sizeof a.name, "%.60s%s%s.%d", outer->name,
                       outer->name[0] != '\0' ? "." : "", part, i);
        code = check_layer(&a, *x);
        if (code == 0)
            code = add_layer(&a, depth, x);
        if (code == 0 && ct_build_ok(a.b) && acts && a.layer->act != CT_LAYER_NO_ACT)
            *x = ct_build_act(a.b, (enum ct_activation)a.layer->act, *x);
        if (code == 0 && ct_build_ok(a.b) && depth == 0 && i == list.count - 1 &&
            shape_of(a.b, *x).dims == 4)
            code = refuse_shape(&a, *x, "is the last and must give logits");
    }
    return code;
}

static int check_input(const struct ct_layers_spec *spec, struct ct_error *err)
{
    bool image = spec->height != 0;

    if (spec->channels < 1 || spec->channels > CT_MODEL_MAX_WIDTH || spec->height < 0 ||
        spec->height > 1 << 16 || spec->width < (image ? 1 : 0) || spec->width > 1 << 16)
        return ct_error_set(err, CT_ECONFIG, "model.input [%lld, %lld, %lld] is no image",
                            (long long)spec->channels, (long long)spec->height,
                            (long long)spec->width);
    if (spec->count < 1 || spec->count > CT_LAYERS_MAX)
        return ct_error_set(err, CT_ECONFIG, "model.layers has %d layers, 1 to %d are possible",
                            spec->count, CT_LAYERS_MAX);
    return 0;
}

int ct_build_layers(struct ct_builder *b, const struct ct_layers_spec *spec, struct ct_error *err)
{
    struct adding model = {.b = b, .path = "model", .err = err};
    int code = check_input(spec, err), x;

    if (code != 0)
        return code;
    if (spec->height != 0)
        x = ct_build_image(b, spec->channels, spec->height, spec->width);
    else
        x = ct_build_features(b, ct_shape2(b->rows, spec->channels));
    code = add_list(&model, (struct ct_layer_list){spec->layers, spec->count}, "layers", 0, &x);
    if (code == 0)
        ct_build_loss(b, (enum ct_loss)spec->loss, x);
    return code;
}
