/* Rules about parameter servers (checks.h): what goes with them, and what is for them alone. */
#include "config/checks.h"

#include "base/assert.h"

#include <inttypes.h>

static bool is_served(const struct ct_config *cfg)
{
    return cfg->parallel.strategy == CT_CONFIG_STRATEGY_PS;
}

static bool staleness_of_no_server(const struct ct_config *cfg, const void *member,
                                   struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is about parameter servers; set parallel.strategy to ps, or leave it "
                           "out");
    return *(const int64_t *)member > 0 && !is_served(cfg);
}

static bool servers_of_nobody(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is about parameter servers; set parallel.strategy to ps, or leave it "
                           "out");
    return *(const int64_t *)member > 1 && !is_served(cfg);
}

static bool cuts_that_are_served(const struct ct_config *cfg, const void *member,
                                 struct ct_buf *why)
{
    (void)ct_buf_printf(why,
                        "is %" PRId64 ", but with parallel.strategy ps each worker computes the "
                        "whole model; use ddp or fsdp, or leave it out",
                        *(const int64_t *)member);
    return *(const int64_t *)member > 1 && is_served(cfg);
}

static bool replicas_of_servers(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "compares whole states, and with parallel.strategy ps they lie with the "
                           "servers; use ddp, or leave it out");
    return *(const int64_t *)member > 0 && is_served(cfg);
}

static bool average_of_servers(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is not for parallel.strategy ps, where the average lies with the "
                           "servers; use ddp or fsdp, or leave it out");
    return *(const bool *)member && is_served(cfg);
}

static bool frozen_on_servers(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is not for parallel.strategy ps, whose servers have what is learned; "
                           "use ddp or fsdp, or leave it out");
    return ((const struct ct_config_strs *)member)->count > 0 && is_served(cfg);
}

static bool f16_on_servers(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is f16, whose loss is scaled by what all gradients say together, and "
                           "with parallel.strategy ps nobody sees them all; use bf16 or f32");
    return *(const enum ct_config_precision *)member == CT_CONFIG_PRECISION_F16 && is_served(cfg);
}

static bool narrow_on_servers(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is not for parallel.strategy ps, whose servers add up in f32; leave it "
                           "out");
    return *(const enum ct_config_reduce_dtype *)member != CT_CONFIG_REDUCE_DTYPE_F32 &&
           is_served(cfg);
}

/* Servers are the last ranks; where ranks come and go they would be others. */
static bool servers_come_and_go(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_printf(why,
                        "is ps, for a fixed number of workers, but launch.nnodes is %" PRId64
                        ":%" PRId64 "; give one number",
                        cfg->launch.nnodes.min, cfg->launch.nnodes.max);
    return is_served(cfg) && cfg->launch.nnodes.min != cfg->launch.nnodes.max;
}

#define AT(member) offsetof(struct ct_config, member)

static const struct ct_config_rule rules[] = {
    {AT(parallel.staleness), AT(parallel.strategy), true, staleness_of_no_server},
    {AT(parallel.servers), AT(parallel.strategy), true, servers_of_nobody},
    {AT(parallel.strategy), AT(launch.nnodes), true, servers_come_and_go},
    {AT(parallel.tensor), AT(parallel.strategy), true, cuts_that_are_served},
    {AT(parallel.pipeline), AT(parallel.strategy), true, cuts_that_are_served},
    {AT(parallel.replicate), AT(parallel.strategy), true, cuts_that_are_served},
    {AT(check.replicas), AT(parallel.strategy), true, replicas_of_servers},
    {AT(eval.ema), AT(parallel.strategy), true, average_of_servers},
    {AT(optim.freeze), AT(parallel.strategy), true, frozen_on_servers},
    {AT(train.precision), AT(parallel.strategy), true, f16_on_servers},
    {AT(parallel.reduce_dtype), AT(parallel.strategy), true, narrow_on_servers},
};

const struct ct_config_rules ct_config_served_rules = {rules, CT_COUNT(rules)};
