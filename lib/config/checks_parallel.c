/* Rules about how workers share the work (checks.h). */
#include "config/checks.h"

#include "base/assert.h"

#include <inttypes.h>

static bool shard_without_fsdp(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is for fsdp; set parallel.strategy to fsdp, or leave it out");
    return *(const enum ct_config_shard *)member != CT_CONFIG_SHARD_FULL &&
           cfg->parallel.strategy != CT_CONFIG_STRATEGY_FSDP;
}

static bool copies_of_nothing(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_printf(why,
                        "is %" PRId64 ", but with ddp every worker holds a copy; set "
                        "parallel.strategy to zero1 or fsdp, or leave it out",
                        *(const int64_t *)member);
    return *(const int64_t *)member > 1 && cfg->parallel.strategy == CT_CONFIG_STRATEGY_DDP;
}

static bool replicas_of_parts(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    bool sharded = cfg->parallel.strategy == CT_CONFIG_STRATEGY_ZERO1 ||
                   (cfg->parallel.strategy == CT_CONFIG_STRATEGY_FSDP &&
                    cfg->parallel.shard != CT_CONFIG_SHARD_NONE);

    (void)ct_buf_puts(why, "compares whole states, and with zero1 and fsdp no worker has one; use "
                           "ddp, or leave it out");
    return *(const int64_t *)member > 0 && sharded;
}

static bool average_apart(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is not for zero1, where a worker holds all parameters but a part of "
                           "their average; set parallel.strategy to fsdp or ddp");
    return *(const bool *)member && cfg->parallel.strategy == CT_CONFIG_STRATEGY_ZERO1;
}

static bool stages_not_possible(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)cfg;
    (void)ct_buf_printf(why, "is %" PRId64 "; only 1 is possible", *(const int64_t *)member);
    return *(const int64_t *)member > 1;
}

/* What a worker holds of a layer is lost with it, and others cannot stand in. */
static bool slices_come_and_go(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_printf(why,
                        "is %" PRId64 ", for a fixed number of workers, but launch.nnodes is "
                        "%" PRId64 ":%" PRId64 "; give one number",
                        *(const int64_t *)member, cfg->launch.nnodes.min, cfg->launch.nnodes.max);
    return *(const int64_t *)member > 1 && cfg->launch.nnodes.min != cfg->launch.nnodes.max;
}

static bool tokens_of_no_slices(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "cuts what lies between layers that are cut; set parallel.tensor above "
                           "1, or leave it out");
    return *(const bool *)member && cfg->parallel.tensor == 1;
}

static bool replicas_of_slices(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "compares whole states, and with parallel.tensor no worker has one; "
                           "leave one of them out");
    return *(const int64_t *)member > 0 && cfg->parallel.tensor > 1;
}

#define AT(member) offsetof(struct ct_config, member)

static const struct ct_config_rule rules[] = {
    {AT(parallel.shard), AT(parallel.strategy), true, shard_without_fsdp},
    {AT(parallel.replicate), AT(parallel.strategy), true, copies_of_nothing},
    {AT(eval.ema), AT(parallel.strategy), true, average_apart},
    {AT(check.replicas), AT(parallel.strategy), true, replicas_of_parts},
    {AT(check.replicas), AT(parallel.tensor), true, replicas_of_slices},
    {AT(parallel.tensor), AT(launch.nnodes), true, slices_come_and_go},
    {AT(parallel.sequence), AT(parallel.tensor), true, tokens_of_no_slices},
    {AT(parallel.pipeline), AT(parallel.pipeline), true, stages_not_possible},
};

const struct ct_config_rules ct_config_parallel_rules = {rules, CT_COUNT(rules)};
