/* Whether layers can be shared out as the configuration says, asked before any worker starts. */
#ifndef CT_PLANNER_CHECK_H
#define CT_PLANNER_CHECK_H

#include "base/error.h"
#include "config/config.h"

/* On `nodes` nodes of `per_node` workers. 0, also where each worker computes all layers and holds
 * all parameters; or CT_ECONFIG with the numbers: workers, heads, widths or samples that do not
 * divide, servers that leave no worker; CT_EUNSUPPORTED for what servers cannot keep. */
int ct_planner_check(const struct ct_config *cfg, int nodes, int per_node, struct ct_error *err);

#endif
