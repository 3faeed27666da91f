/* Models as a list of layers, one behind the other: `layers:` of a configuration.
 *
 *     {conv: {out: 16, kernel: 3, pad: 1, act: relu}}, {maxpool: 2}, flatten, {linear: {out: 10}}
 *
 * The input is features or an image; a conv or pool needs an image, a linear features. Parameters
 * are named by the layer's number: "layers.0.weight", "layers.3.bias", with torch.nn's shapes and
 * first values. The last layer gives the logits. */
#ifndef CT_GRAPH_LAYERS_H
#define CT_GRAPH_LAYERS_H

#include <stdint.h>

enum { CT_LAYERS_MAX = 256 };

enum ct_layer_kind {
    CT_LAYER_CONV,
    CT_LAYER_MAXPOOL,
    CT_LAYER_AVGPOOL,
    CT_LAYER_FLATTEN,
    CT_LAYER_LINEAR,
    CT_LAYER_DROPOUT,
    CT_LAYER_KIND_COUNT
};

enum { CT_LAYER_NO_ACT = -1 };

struct ct_layer_spec {
    enum ct_layer_kind kind;
    int64_t out;                 /* conv: channels; linear: features */
    int64_t kernel, stride, pad; /* conv (stride 0: 1), pools (stride 0: kernel) */
    int act;                     /* conv, linear: enum ct_activation or CT_LAYER_NO_ACT */
    double rate;                 /* dropout */
};

struct ct_layers_spec {
    int64_t channels, height, width; /* of the image; height 0: `channels` features */
    const struct ct_layer_spec *layers;
    int count;
    int loss; /* enum ct_loss */
};

/* "conv", "maxpool", "avgpool", "flatten", "linear", "dropout"; -1 for another name. */
int ct_layer_find(const char *name);
const char *ct_layer_name(enum ct_layer_kind kind);

#endif
