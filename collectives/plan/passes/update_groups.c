/* See passes.h: which parameters are updated alike.
 *
 *     flat     [ h.1.bias | h.1.weight | h.0.bias | h.0.weight | embedding ]
 *     decays        no          yes          no          yes          yes
 *     runs     [ 0        ] [ 1        ] [ 2      ] [ 3                    ]
 *
 * A run is what one call of the optimizer takes. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

#include <fnmatch.h>

static bool matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, 0) == 0;
}

static bool any_matches(const char *const *patterns, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (matches(patterns[i], name))
            return true;
    return false;
}

bool ct_plan_freezes(const void *optim_groups, const char *name)
{
    const struct ct_optim_groups *groups = optim_groups;

    return any_matches(groups->frozen, groups->frozen_count, name);
}

/* That the pattern of `key` matches a parameter: a name that is misspelt would change nothing. */
static int check_pattern(const struct ct_plan *plan, const char *key, const char *pattern,
                         struct ct_error *err)
{
    for (int i = 0; i < plan->param_count; i++)
        if (matches(pattern, plan->tensors[i].name))
            return 0;
    return ct_error_set(
        err, CT_ECONFIG,
        "%s: no parameter is called \"%s\"; there are %d, the first is %s, the last "
        "%s",
        key, pattern, plan->param_count, plan->tensors[0].name,
        plan->tensors[plan->param_count - 1].name);
}

static int check_patterns(const struct ct_plan *plan, struct ct_error *err)
{
    const struct ct_optim_groups *groups = &plan->options.optim.groups;
    int code = 0;

    for (int i = 0; i < groups->undecayed_count && code == 0; i++)
        code = check_pattern(plan, "optim.no_decay", groups->undecayed[i], err);
    for (int i = 0; i < groups->rule_count && code == 0; i++)
        code = check_pattern(plan, "optim.lr_factors", groups->rules[i].pattern, err);
    for (int i = 0; i < groups->frozen_count && code == 0; i++)
        code = check_pattern(plan, "optim.freeze", groups->frozen[i], err);
    return code;
}

static bool decays(const struct ct_plan *plan, const struct ct_plan_tensor *tensor)
{
    const struct ct_optim_groups *groups = &plan->options.optim.groups;

    return plan->options.optim.weight_decay != 0 &&
           !(groups->vectors_undecayed && tensor->shape.dims < 2) &&
           !any_matches(groups->undecayed, groups->undecayed_count, tensor->name);
}

static double lr_factor(const struct ct_plan *plan, const struct ct_plan_tensor *tensor)
{
    const struct ct_optim_groups *groups = &plan->options.optim.groups;

    for (int i = 0; i < groups->rule_count; i++)
        if (matches(groups->rules[i].pattern, tensor->name))
            return groups->rules[i].factor;
    return 1;
}

/* The next tensor of the flat range: in the run behind it, or one of its own. */
static void add_to_runs(struct ct_plan *plan, const struct ct_plan_tensor *tensor)
{
    struct ct_plan_run *run = plan->run_count > 0 ? &plan->runs[plan->run_count - 1] : NULL;
    struct ct_plan_run next = {.offset_bytes = tensor->offset_bytes,
                               .lr_factor = lr_factor(plan, tensor),
                               .decays = decays(plan, tensor)};

    if (run != NULL && run->lr_factor == next.lr_factor && run->decays == next.decays)
        return;
    if (run != NULL)
        run->bytes = next.offset_bytes - run->offset_bytes;
    plan->runs[plan->run_count++] = next;
}

int ct_plan_make_runs(struct ct_plan *plan, struct ct_error *err)
{
    int code = check_patterns(plan, err);

    if (code != 0)
        return code;
    plan->runs = ct_arena_array(&plan->memory, (size_t)plan->param_count, sizeof *plan->runs);
    if (plan->runs == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a table of runs");
    for (int i = 0; i < plan->order_count; i++)
        add_to_runs(plan, &plan->tensors[plan->order[i]]);
    CT_ASSERT(plan->run_count > 0);
    struct ct_plan_run *last = &plan->runs[plan->run_count - 1];
    last->bytes = plan->flat_bytes - last->offset_bytes;
    plan->options.optim.groups = (struct ct_optim_groups){.rules = NULL}; /* not ours to keep */
    return 0;
}
