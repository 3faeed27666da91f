/* Checks of a configuration for given workers, before any of them starts. */
#ifndef CT_PLANNER_CHECK_H
#define CT_PLANNER_CHECK_H

#include "base/error.h"
#include "config/config.h"

/* Check `cfg` for `nodes` nodes of `per_node` workers each. 0, also where nodes may join and leave
 * or differ in their workers, with neither tensor parallelism nor parameter servers: then the
 * workers report it. CT_ECONFIG with the numbers: workers, heads, widths, layers or samples that do
 * not divide, servers that leave no worker; CT_EUNSUPPORTED for state that servers cannot hold.
 * CT_EDATA, CT_ENOINPUT: initial weights (model.init_from) that are another model's or missing,
 * unless a checkpoint takes precedence; with several nodes a file that is missing here may be on
 * another. */
int ct_planner_check(const struct ct_config *cfg, int nodes, int per_node, struct ct_error *err);

#endif
