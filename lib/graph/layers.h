/* Models as a sequential list of layers: `layers:` of a configuration.
 *
 *     [{conv2d: {out: 16, kernel: 3, pad: 1}}, relu, {maxpool: 2}, flatten, {linear: 10}]
 *
 * The input is features or an image. Convolutions and pools take images, `linear` takes features,
 * `flatten` converts an image to features; the last layer gives the logits. A residual layer adds
 * its body's output to the input, or to its shortcut's output:
 *
 *     x --- body[0] --- ... --- body[n-1] --- + --- act
 *        `------------- shortcut -------------'
 *
 * Parameters are named by the layer's position: "layers.0.weight", "layers.3.body.1.bias",
 * "layers.3.shortcut.0.weight", with torch.nn's shapes and initial values. */
#ifndef CT_GRAPH_LAYERS_H
#define CT_GRAPH_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

/* In a list; residual layers in residual layers. */
enum { CT_LAYERS_MAX = 256, CT_LAYERS_DEPTH = 4 };

enum ct_layer_kind {
#define LAYER(name, text, other, main, options) CT_LAYER_##name,
#include "graph/layer.def"
    CT_LAYER_KIND_COUNT
};

/* The options of a layer. */
enum ct_layer_option {
    CT_LAYER_OUT,      /* conv2d: channels; linear: features */
    CT_LAYER_KERNEL,   /* rows and columns of a window */
    CT_LAYER_STRIDE,   /* 0: 1 for conv2d, kernel for pools */
    CT_LAYER_PAD,      /* below kernel */
    CT_LAYER_ACT,      /* what follows: enum ct_activation, or CT_LAYER_NO_ACT */
    CT_LAYER_BIAS,     /* true when not said */
    CT_LAYER_RATE,     /* of dropout */
    CT_LAYER_EPS,      /* of batch_norm; 0: 1e-5 */
    CT_LAYER_MOMENTUM, /* likewise; 0: 0.1 */
    CT_LAYER_SYNC,     /* batch_norm: over the whole global batch */
    CT_LAYER_BODY,     /* of a residual layer */
    CT_LAYER_SHORTCUT, /* likewise; the input itself when not said */
    CT_LAYER_OPTION_COUNT
};

enum { CT_LAYER_NO_ACT = -1 };

struct ct_layer_spec;

struct ct_layer_list {
    const struct ct_layer_spec *at;
    int count;
};

struct ct_layer_spec {
    enum ct_layer_kind kind;
    int64_t out, kernel, stride, pad;
    int act;
    bool unbiased;
    double rate, eps, momentum;
    bool sync;
    struct ct_layer_list body, shortcut;
    const char *place; /* where it was said, for messages: "a.yaml:7:5"; or NULL */
};

struct ct_layers_spec {
    int64_t channels, height, width; /* of the image; height 0: `channels` features */
    const struct ct_layer_spec *layers;
    int count;
    int loss; /* enum ct_loss */
};

struct ct_layer_info {
    const char *name;
    const char *other; /* another name that is understood; or "" */
    int main;          /* enum ct_layer_option, or CT_LAYER_OPTION_COUNT */
    uint32_t options;  /* bit 1 << CT_LAYER_x for each that it takes */
};

const struct ct_layer_info *ct_layer_info(enum ct_layer_kind kind);

/* Return the layer of that name or alias, -1 if none. */
int ct_layer_find(const char *name);

/* Return the name closest to `name`, or NULL when none is near. */
const char *ct_layer_nearest(const char *name);

/* Parse "out", "kernel", ...; -1 for another name. */
int ct_layer_option_find(const char *name);
const char *ct_layer_option_name(enum ct_layer_option option);

#endif
