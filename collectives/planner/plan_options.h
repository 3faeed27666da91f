/* From a configuration to the options of a plan: the same for the workers that run it and for
 * `ctrun plan`, which prints it. */
#ifndef CT_COLL_PLANNER_PLAN_OPTIONS_H
#define CT_COLL_PLANNER_PLAN_OPTIONS_H

#include "collectives/plan/plan.h"
#include "config/config.h"

/* Fill `ret` from `cfg`; world, rank and the numbers of rows and micro-batches stay 0, for the
 * caller. The optimizer's groups borrow from `cfg` and from `*ret_rules`, which the caller frees
 * once the plan is built. 0 or CT_ENOMEM. */
int ct_planner_options(const struct ct_config *cfg, struct ct_plan_options *ret,
                       struct ct_lr_rule **ret_rules, struct ct_error *err);

/* Return the replicas that one worker has as threads (strategy dp); 0 with any other strategy. */
int ct_planner_replicas(const struct ct_config *cfg);

/* Return the workers that are parameter servers (strategy ps), 0 with any other strategy; and how
 * many of `world` workers train, or CT_ECONFIG when none does. */
int ct_planner_servers(const struct ct_config *cfg);
int ct_planner_served(const struct ct_config *cfg, int world, struct ct_error *err);

/* Return what the configuration shards. */
enum ct_plan_shard ct_planner_shard(const struct ct_config *cfg);

/* Return the most rows of one evaluation call, with so many labels a row: enough to keep the
 * kernels busy, few enough to bound memory. At least 1. */
int64_t ct_planner_eval_rows(int64_t labels_per_row);

#endif
