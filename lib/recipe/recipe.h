/* From a configuration to the specification of its model.
 *
 *     struct ct_config --ct_recipe_model--> struct ct_model_spec --> lib/graph builds it
 *
 * ctrun checks first, before any worker starts (ct_recipe_check); each worker checks again with its
 * data. */
#ifndef CT_RECIPE_RECIPE_H
#define CT_RECIPE_RECIPE_H

#include "base/arena.h"
#include "config/config.h"

#include <stdint.h>

struct ct_model_spec; /* graph/model.h */

/* The sizes of a model that follow from the data; zeroes before the data are read. */
struct ct_recipe_data {
    int64_t width;   /* features of a sample */
    int64_t classes; /* labels, or tokens, that there are */
};

/* Return the number of ids in a sample; 0 for models of features. */
int64_t ct_recipe_context(const struct ct_config *cfg);

/* Return the vocabulary of the configuration; 0: that of the data. */
int64_t ct_recipe_vocabulary(const struct ct_config *cfg);

/* Return the number of features of a sample in the configuration; 0: that of the data. */
int64_t ct_recipe_width(const struct ct_config *cfg);

/* Return the number of classes of the labels, for a model of features. */
int64_t ct_recipe_classes(const struct ct_config *cfg);

/* Return the model's specification, which points into the configuration or `arena`. 0, CT_ENOMEM,
 * or CT_ECONFIG with a sentence that names the place in the file. */
int ct_recipe_model(struct ct_model_spec *ret_spec, const struct ct_config *cfg,
                    const struct ct_recipe_data *data, struct ct_arena *arena,
                    struct ct_error *err);

/* Check that the configuration's model can be built, as far as possible without data. 0 also when
 * no file was given. */
int ct_recipe_check(const struct ct_config *cfg, struct ct_error *err);

#endif
