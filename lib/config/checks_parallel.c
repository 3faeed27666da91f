/* Rules about how workers share the work (checks.h). */
#include "config/checks.h"

#include "base/assert.h"
#include "base/str.h"

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
    bool sharded = cfg->parallel.strategy == CT_CONFIG_STRATEGY_FSDP &&
                   cfg->parallel.shard != CT_CONFIG_SHARD_NONE && cfg->parallel.replicate == 1 &&
                   cfg->parallel.tensor == 1;

    (void)ct_buf_puts(why, "compares what several workers hold, and with fsdp no two hold the "
                           "same; set parallel.replicate above 1, or leave it out");
    return *(const int64_t *)member > 0 && sharded;
}

static bool average_apart(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is not for zero1, where a worker holds all parameters but a part of "
                           "their average; set parallel.strategy to fsdp or ddp");
    return *(const bool *)member && cfg->parallel.strategy == CT_CONFIG_STRATEGY_ZERO1;
}

static bool order_of_no_stages(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is about stages; set parallel.pipeline above 1, or leave it out");
    return *(const enum ct_config_order *)member != CT_CONFIG_ORDER_1F1B &&
           cfg->parallel.pipeline == 1;
}

static bool chunks_not_interleaved(const struct ct_config *cfg, const void *member,
                                   struct ct_buf *why)
{
    (void)ct_buf_printf(why,
                        "is %" PRId64 ", for stages with several runs of layers; set "
                        "parallel.schedule to interleaved, or leave it out",
                        *(const int64_t *)member);
    return *(const int64_t *)member > 1 && cfg->parallel.schedule != CT_CONFIG_ORDER_INTERLEAVED;
}

static bool nothing_to_interleave(const struct ct_config *cfg, const void *member,
                                  struct ct_buf *why)
{
    (void)ct_buf_puts(why, "interleaved takes stages with several runs of layers; set "
                           "parallel.chunks to 2 or more, or leave it out");
    return *(const enum ct_config_order *)member == CT_CONFIG_ORDER_INTERLEAVED &&
           cfg->parallel.chunks == 1;
}

/* However many nodes there are, their workers must make whole copies of the model. */
static bool slices_come_and_go(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    int64_t workers = 1, copy = cfg->parallel.tensor * cfg->parallel.pipeline;

    if (copy == 1 || cfg->launch.nnodes.min == cfg->launch.nnodes.max ||
        ct_parse_i64(cfg->launch.nproc_per_node, &workers) != 0 || workers % copy == 0)
        return false;
    (void)member;
    (void)ct_buf_printf(why,
                        "is %" PRId64 ", but parallel.tensor x parallel.pipeline is %" PRId64
                        " and launch.nnodes %" PRId64 ":%" PRId64
                        "; give each node a multiple of %" PRId64
                        " workers, or launch.nnodes one number",
                        workers, copy, cfg->launch.nnodes.min, cfg->launch.nnodes.max, copy);
    return true;
}

static bool tokens_of_no_slices(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "cuts what lies between layers that are cut; set parallel.tensor above "
                           "1, or leave it out");
    return *(const bool *)member && cfg->parallel.tensor == 1;
}

enum { DP_REPLICAS_MAX = 64 };

static bool dp_of_many(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    int64_t workers = 1;

    (void)member;
    (void)ct_buf_puts(why,
                      "starts several workers, but with parallel.strategy dp one holds all "
                      "replicas, as threads; leave it 1 and set parallel.replicate, or use ddp");
    return cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP &&
           (cfg->launch.nnodes.max > 1 ||
            (ct_parse_i64(cfg->launch.nproc_per_node, &workers) == 0 && workers > 1));
}

static bool dp_of_too_many(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_printf(why, "is %" PRId64 "; dp has at most %d replicas", *(const int64_t *)member,
                        DP_REPLICAS_MAX);
    return cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP &&
           *(const int64_t *)member > DP_REPLICAS_MAX;
}

static bool dp_of_cuts(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_printf(why,
                        "is %" PRId64 ", for that many workers, and with parallel.strategy dp "
                        "there is one; use ddp, or leave it out",
                        *(const int64_t *)member);
    return cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP && *(const int64_t *)member > 1;
}

static bool dp_of_offload(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is not for parallel.strategy dp; use ddp, or leave it out");
    return cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP &&
           *(const enum ct_config_offload *)member != CT_CONFIG_OFFLOAD_NONE;
}

/* Replicas of dp are threads, servers and workers of ps work in the host's memory. */
static bool strategy_of_cpus(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    bool dp = cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP;

    (void)ct_buf_printf(why,
                        "cuda is not for parallel.strategy %s, which computes on the CPU; use ddp "
                        "with one worker per GPU, or set train.device to cpu",
                        dp ? "dp" : "ps");
    return (dp || cfg->parallel.strategy == CT_CONFIG_STRATEGY_PS) &&
           *(const enum ct_config_device *)member == CT_CONFIG_DEVICE_CUDA;
}

#define AT(member) offsetof(struct ct_config, member)

static const struct ct_config_rule rules[] = {
    {AT(parallel.shard), AT(parallel.strategy), true, shard_without_fsdp},
    {AT(parallel.replicate), AT(parallel.strategy), true, copies_of_nothing},
    {AT(launch.nproc_per_node), AT(parallel.strategy), true, dp_of_many},
    {AT(parallel.replicate), AT(parallel.strategy), true, dp_of_too_many},
    {AT(parallel.tensor), AT(parallel.strategy), true, dp_of_cuts},
    {AT(parallel.pipeline), AT(parallel.strategy), true, dp_of_cuts},
    {AT(memory.offload), AT(parallel.strategy), true, dp_of_offload},
    {AT(train.device), AT(parallel.strategy), true, strategy_of_cpus},
    {AT(eval.ema), AT(parallel.strategy), true, average_apart},
    {AT(check.replicas), AT(parallel.strategy), true, replicas_of_parts},
    {AT(launch.nproc_per_node), AT(launch.nnodes), true, slices_come_and_go},
    {AT(parallel.sequence), AT(parallel.tensor), true, tokens_of_no_slices},
    {AT(parallel.schedule), AT(parallel.pipeline), true, order_of_no_stages},
    {AT(parallel.schedule), AT(parallel.chunks), true, nothing_to_interleave},
    {AT(parallel.chunks), AT(parallel.schedule), true, chunks_not_interleaved},
};

const struct ct_config_rules ct_config_parallel_rules = {rules, CT_COUNT(rules)};
