/* See optim.h. */
#include "optim.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)CT_CONFIG_PATTERN_SIZE == (int)CT_PLAN_PATTERN_SIZE, "every pattern fits");

/* optim.no_decay: "auto" alone is for a gpt what "1d" is for all. */
static void set_undecayed(const struct ct_config *cfg, struct ct_optim_groups *groups)
{
    const struct ct_config_strs *given = &cfg->optim.no_decay;
    int64_t first = 0;

    if (given->count > 0 && strcmp(given->at[0], "auto") == 0) {
        groups->vectors_undecayed = cfg->model.type == CT_CONFIG_MODEL_GPT;
        return;
    }
    if (given->count > 0 && strcmp(given->at[0], "1d") == 0) {
        groups->vectors_undecayed = true;
        first = 1;
    }
    groups->undecayed = given->at + first;
    groups->undecayed_count = (int)(given->count - first);
}

static int set_rules(const struct ct_config *cfg, struct ct_optim_groups *groups,
                     struct ct_lr_rule **ret_rules, struct ct_error *err)
{
    const struct ct_config_strs *given = &cfg->optim.lr_factors;
    struct ct_lr_rule *rules = calloc((size_t)given->count + 1, sizeof *rules);

    if (rules == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for optim.lr_factors");
    for (int64_t i = 0; i < given->count; i++) {
        int code = ct_config_factor(given->at[i], rules[i].pattern, &rules[i].factor);
        CT_ASSERT(code == 0); /* a rule of the configuration has seen to it */
    }
    groups->rules = *ret_rules = rules;
    groups->rule_count = (int)given->count;
    return 0;
}

int ct_optim_of(const struct ct_config *cfg, struct ct_optim_spec *ret,
                struct ct_lr_rule **ret_rules, struct ct_error *err)
{
    *ret = (struct ct_optim_spec){.type = (enum ct_optim)cfg->optim.type,
                                  .momentum = cfg->optim.momentum,
                                  .nesterov = cfg->optim.nesterov,
                                  .beta1 = cfg->optim.betas.at[0],
                                  .beta2 = cfg->optim.betas.at[1],
                                  .eps = cfg->optim.eps,
                                  .weight_decay = cfg->optim.weight_decay,
                                  .clip = cfg->optim.clip,
                                  .ema = cfg->optim.ema};
    ret->groups.frozen = cfg->optim.freeze.at;
    ret->groups.frozen_count = (int)cfg->optim.freeze.count;
    set_undecayed(cfg, &ret->groups);
    return set_rules(cfg, &ret->groups, ret_rules, err);
}
