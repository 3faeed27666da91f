/* Checks of a configuration for given workers, before any of them starts. */
#ifndef CT_PLANNER_CHECK_H
#define CT_PLANNER_CHECK_H

#include "base/error.h"
#include "config/config.h"

/* On `nodes` nodes of `per_node` workers each. 0, also where nodes may come and go, or have other
 * numbers of workers, and neither layers are cut nor servers keep parameters: then the workers say
 * it. CT_ECONFIG with the numbers: workers, heads, widths, layers or samples that do not divide,
 * servers that leave no worker; CT_EUNSUPPORTED for what servers cannot keep. CT_EDATA,
 * CT_ENOINPUT: weights to begin with (model.init_from) that are another model's or not there,
 * unless a checkpoint goes before them; with several nodes a file that is not here may be on
 * another. */
int ct_planner_check(const struct ct_config *cfg, int nodes, int per_node, struct ct_error *err);

#endif
