/* model.layers as lib/graph takes it. Inside of lib/recipe only. */
#ifndef CT_RECIPE_LAYER_LIST_H
#define CT_RECIPE_LAYER_LIST_H

#include "graph/model.h"
#include "recipe/recipe.h"

/* Return the layers of cfg->model.layers, in `arena`. 0; CT_ECONFIG for an unknown layer, with its
 * place. */
int ct_recipe_layers(struct ct_layers_spec *ret_spec, const struct ct_config *cfg,
                     struct ct_arena *arena, struct ct_error *err);

#endif
