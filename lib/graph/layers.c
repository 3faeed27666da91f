/* See layers.h. */
#include "graph/layers.h"

#include "base/assert.h"
#include "graph/builder.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [CT_LAYER_CONV] = "conv",       [CT_LAYER_MAXPOOL] = "maxpool", [CT_LAYER_AVGPOOL] = "avgpool",
    [CT_LAYER_FLATTEN] = "flatten", [CT_LAYER_LINEAR] = "linear",   [CT_LAYER_DROPOUT] = "dropout",
};
_Static_assert(CT_COUNT(names) == CT_LAYER_KIND_COUNT, "a name for every layer");

int ct_layer_find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

const char *ct_layer_name(enum ct_layer_kind kind)
{
    CT_ASSERT((unsigned)kind < CT_LAYER_KIND_COUNT);
    return names[kind];
}

/* What is wrong with layer `index`, and what it gets. */
static int refuse(const struct ct_builder *b, const struct ct_layers_spec *spec, int index, int x,
                  const char *why, struct ct_error *err)
{
    struct ct_shape shape = b->program->values[x].shape;
    char input[96];

    if (shape.dims == 4)
        (void)snprintf(input, sizeof input, "an image of %lld x %lld pixels with %lld channels",
                       (long long)shape.dim[1], (long long)shape.dim[2], (long long)shape.dim[3]);
    else
        (void)snprintf(input, sizeof input, "%lld features", (long long)ct_shape_columns(shape));
    return ct_error_set(err, CT_ECONFIG, "model.layers[%d] (%s) %s, but gets %s", index,
                        names[spec->layers[index].kind], why, input);
}

static struct ct_window window_of(const struct ct_layer_spec *layer)
{
    int64_t stride = layer->kind == CT_LAYER_CONV ? 1 : layer->kernel;

    return (struct ct_window){layer->kernel, layer->stride == 0 ? stride : layer->stride,
                              layer->pad};
}

static int check_windows(const struct ct_builder *b, const struct ct_layers_spec *spec, int index,
                         int x, struct ct_error *err)
{
    const struct ct_layer_spec *layer = &spec->layers[index];
    struct ct_window w = window_of(layer);
    struct ct_shape shape = b->program->values[x].shape;
    char why[96];

    if (shape.dims != 4)
        return refuse(b, spec, index, x, "needs an image", err);
    if (w.kernel < 1 || w.kernel > 1024 || w.stride < 1 || w.stride > 1024 || w.pad < 0 ||
        w.pad >= w.kernel)
        return ct_error_set(err, CT_ECONFIG,
                            "model.layers[%d] (%s): kernel %lld, stride %lld and pad %lld are not "
                            "possible: kernel and stride are from 1 to 1024, pad below kernel",
                            index, names[layer->kind], (long long)w.kernel, (long long)w.stride,
                            (long long)w.pad);
    if (shape.dim[1] + 2 * w.pad >= w.kernel && shape.dim[2] + 2 * w.pad >= w.kernel)
        return 0;
    (void)snprintf(why, sizeof why, "needs room for windows of %lld x %lld pixels",
                   (long long)w.kernel, (long long)w.kernel);
    return refuse(b, spec, index, x, why, err);
}

static int check_layer(const struct ct_builder *b, const struct ct_layers_spec *spec, int index,
                       int x, struct ct_error *err)
{
    const struct ct_layer_spec *layer = &spec->layers[index];
    bool image = b->program->values[x].shape.dims == 4;
    bool sized = layer->kind == CT_LAYER_CONV || layer->kind == CT_LAYER_LINEAR;

    if (sized && (layer->out < 1 || layer->out > CT_MODEL_MAX_WIDTH))
        return ct_error_set(err, CT_ECONFIG,
                            "model.layers[%d] (%s): out is %lld, must be from 1 to %d", index,
                            names[layer->kind], (long long)layer->out, CT_MODEL_MAX_WIDTH);
    switch (layer->kind) {
    case CT_LAYER_FLATTEN:
        return image ? 0 : refuse(b, spec, index, x, "needs an image", err);
    case CT_LAYER_LINEAR:
        return image ? refuse(b, spec, index, x, "needs features (a flatten before it)", err) : 0;
    case CT_LAYER_DROPOUT:
        if (layer->rate >= 0 && layer->rate < 1)
            return 0;
        return ct_error_set(err, CT_ECONFIG,
                            "model.layers[%d] (dropout) is %g, must be at least 0 and below 1",
                            index, layer->rate);
    default:
        return check_windows(b, spec, index, x, err);
    }
}

static int add_layer(struct ct_builder *b, const struct ct_layer_spec *layer, int index, int x)
{
    char name[32];

    (void)snprintf(name, sizeof name, "layers.%d", index);
    switch (layer->kind) {
    case CT_LAYER_CONV:
        x = ct_build_conv(b, name, x, layer->out, window_of(layer));
        break;
    case CT_LAYER_MAXPOOL:
        return ct_build_maxpool(b, x, window_of(layer));
    case CT_LAYER_AVGPOOL:
        return ct_build_avgpool(b, x, window_of(layer));
    case CT_LAYER_FLATTEN:
        return ct_build_flatten(b, x);
    case CT_LAYER_DROPOUT:
        return ct_build_dropout(b, name, x, layer->rate);
    default:
        x = ct_build_linear(b, name, x, layer->out);
        break;
    }
    return layer->act == CT_LAYER_NO_ACT ? x : ct_build_act(b, (enum ct_activation)layer->act, x);
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
    int code = check_input(spec, err), x;

    if (code != 0)
        return code;
    if (spec->height != 0)
        x = ct_build_image(b, spec->channels, spec->height, spec->width);
    else
        x = ct_build_features(b, ct_shape2(b->rows, spec->channels));
    for (int i = 0; i < spec->count && ct_build_ok(b); i++) {
        code = check_layer(b, spec, i, x, err);
        if (code != 0)
            return code;
        x = add_layer(b, &spec->layers[i], i, x);
    }
    if (ct_build_ok(b) && b->program->values[x].shape.dims == 4)
        return refuse(b, spec, spec->count - 1, x, "is the last and must give logits", err);
    ct_build_loss(b, (enum ct_loss)spec->loss, x);
    return 0;
}
