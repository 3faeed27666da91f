/* From a configuration to the specification of its model.
 *
 *     struct ct_config --ct_recipe_model--> struct ct_model_spec --> lib/graph builds it
 *
 * ctrun asks first, before any worker starts (ct_recipe_check); each worker asks again, when it has
 * seen its data. */
#ifndef CT_RECIPE_RECIPE_H
#define CT_RECIPE_RECIPE_H

#include "base/arena.h"
#include "config/config.h"

#include <stdint.h>

struct ct_model_spec; /* graph/model.h */

/* What the data tell of a model; zeroes where nobody has looked at them yet. */
struct ct_recipe_data {
    int64_t width;   /* features of a sample */
    int64_t classes; /* labels, or tokens, that there are */
};

/* Ids in a sample; 0 for models of features. */
int64_t ct_recipe_context(const struct ct_config *cfg);

/* The vocabulary that the configuration gives; 0: what the data have. */
int64_t ct_recipe_vocabulary(const struct ct_config *cfg);

/* Features of a sample as the configuration wants them; 0: as many as the data have. */
int64_t ct_recipe_width(const struct ct_config *cfg);

/* Classes of the labels, for a model of features. */
int64_t ct_recipe_classes(const struct ct_config *cfg);

/* The model. What it points to is the configuration's or lies in `arena`. 0, CT_ENOMEM, or
 * CT_ECONFIG with a sentence that names the place in the file. */
int ct_recipe_model(struct ct_model_spec *ret_spec, const struct ct_config *cfg,
                    const struct ct_recipe_data *data, struct ct_arena *arena,
                    struct ct_error *err);

/* Whether the configuration's model can be built at all, as far as that shows without data. 0 when
 * no file was given. */
int ct_recipe_check(const struct ct_config *cfg, struct ct_error *err);

#endif
