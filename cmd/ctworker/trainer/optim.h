/* The optimizer that a configuration describes. */
#ifndef CT_WORKER_OPTIM_H
#define CT_WORKER_OPTIM_H

#include "collectives/plan/plan.h"
#include "config/config.h"

/* Fill `ret`; its groups borrow from `cfg` and from `*ret_rules`, which the caller frees once the
 * plan is built. CT_ENOMEM. */
int ct_optim_of(const struct ct_config *cfg, struct ct_optim_spec *ret,
                struct ct_lr_rule **ret_rules, struct ct_error *err);

#endif
