/* config.json of Hugging Face's GPT-2: the sizes that its weights (weights.h) have. */
#ifndef CT_TRAIN_HUB_H
#define CT_TRAIN_HUB_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_hub_gpt2 {
    int64_t vocabulary, context, width, layers, heads;
    int64_t inner; /* of the perceptron; 0: 4 * width */
    double eps;    /* of the norms */
    double dropout;
    bool untied; /* the head has weights of its own */
};

/* Read `path`. CT_ENOINPUT; CT_EDATA where a size is missing or the model computes something else
 * than GPT-2 (another model_type, another activation, scaled or reordered attention). */
int ct_hub_read(const char *path, struct ct_hub_gpt2 *ret, struct ct_error *err);

/* Write `path`. CT_EIO, CT_ECANTCREAT. */
int ct_hub_write(const char *path, const struct ct_hub_gpt2 *gpt2, struct ct_error *err);

#endif
