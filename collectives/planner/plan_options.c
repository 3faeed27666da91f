/* See plan_options.h. */
#include "collectives/planner/plan_options.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* Words of config.def and of plan.h that carry the same meaning have the same order. */
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
SAME(CT_CONFIG_OPTIMIZER_SGD, CT_OPTIM_SGD);
SAME(CT_CONFIG_OPTIMIZER_ADAMW, CT_OPTIM_ADAMW);
SAME(CT_CONFIG_OPTIMIZER_LION, CT_OPTIM_LION);
SAME(CT_CONFIG_RECOMPUTE_GELU, CT_PLAN_RECOMPUTE_GELU);
SAME(CT_CONFIG_RECOMPUTE_ATTENTION, CT_PLAN_RECOMPUTE_ATTENTION);
SAME(CT_CONFIG_RECOMPUTE_BLOCK, CT_PLAN_RECOMPUTE_BLOCK);
SAME(CT_CONFIG_ORDER_GPIPE, CT_PLAN_GPIPE);
SAME(CT_CONFIG_ORDER_1F1B, CT_PLAN_1F1B);
SAME(CT_CONFIG_ORDER_INTERLEAVED, CT_PLAN_INTERLEAVED);
SAME(CT_CONFIG_ORDER_EAGER, CT_PLAN_EAGER);
SAME(CT_CONFIG_REDUCE_FAST, CT_PLAN_FAST);
SAME(CT_CONFIG_REDUCE_REPRODUCIBLE, CT_PLAN_REPRODUCIBLE);
SAME(CT_CONFIG_REDUCE_INVARIANT, CT_PLAN_INVARIANT);
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

static int set_optim(const struct ct_config *cfg, struct ct_optim_spec *ret,
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

int ct_planner_replicas(const struct ct_config *cfg)
{
    return cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP ? (int)cfg->parallel.replicate : 0;
}

int ct_planner_servers(const struct ct_config *cfg)
{
    return cfg->parallel.strategy == CT_CONFIG_STRATEGY_PS ? (int)cfg->parallel.servers : 0;
}

int ct_planner_served(const struct ct_config *cfg, int world, struct ct_error *err)
{
    int servers = ct_planner_servers(cfg);

    if (world > servers)
        return world - servers;
    return ct_error_set(err, CT_ECONFIG,
                        "parallel.servers is %d, and this job has %d worker%s: nobody is left to "
                        "train; start more than %d, as with --nproc_per_node=%d",
                        servers, world, world > 1 ? "s" : "", servers, servers + 2);
}

enum ct_plan_shard ct_planner_shard(const struct ct_config *cfg)
{
    static const enum ct_plan_shard of_fsdp[] = {
        [CT_CONFIG_SHARD_FULL] = CT_PLAN_SHARD_FULL,
        [CT_CONFIG_SHARD_GRAD] = CT_PLAN_SHARD_GRAD,
        [CT_CONFIG_SHARD_NONE] = CT_PLAN_SHARD_NONE,
    };

    if (cfg->parallel.strategy == CT_CONFIG_STRATEGY_FSDP)
        return of_fsdp[cfg->parallel.shard];
    return cfg->parallel.strategy == CT_CONFIG_STRATEGY_ZERO1 ? CT_PLAN_SHARD_OPTIM
                                                              : CT_PLAN_SHARD_NONE;
}

static const enum ct_dtype precisions[] = {
    [CT_CONFIG_PRECISION_F32] = CT_F32,
    [CT_CONFIG_PRECISION_BF16] = CT_BF16,
    [CT_CONFIG_PRECISION_F16] = CT_F16,
};

int ct_planner_options(const struct ct_config *cfg, struct ct_plan_options *ret,
                       struct ct_lr_rule **ret_rules, struct ct_error *err)
{
    *ret = (struct ct_plan_options){
        .rooted = cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP,
        .served = ct_planner_servers(cfg) > 0,
        .shard = ct_planner_shard(cfg),
        .replicas = (int)cfg->parallel.replicate,
        .tensor = (int)cfg->parallel.tensor,
        .sequence = cfg->parallel.sequence,
        .stages = (int)cfg->parallel.pipeline,
        .chunks = (int)cfg->parallel.chunks,
        .order = (enum ct_plan_order)cfg->parallel.schedule,
        .prefetch = (int)cfg->parallel.prefetch,
        .bucket_bytes = (size_t)cfg->parallel.bucket_bytes,
        .first_bucket_bytes = (size_t)cfg->parallel.first_bucket_bytes,
        .overlap = cfg->parallel.overlap,
        .reduce = (enum ct_plan_reduce)cfg->parallel.reduce,
        .compute = precisions[cfg->train.precision],
        .stochastic = cfg->train.rounding == CT_CONFIG_ROUNDING_STOCHASTIC,
        .reduce_dtype =
            cfg->parallel.reduce_dtype == CT_CONFIG_REDUCE_DTYPE_BF16 ? CT_BF16 : CT_F32,
        .recompute = (enum ct_plan_recompute)cfg->memory.recompute,
        .recompute_blocks = (int)cfg->memory.blocks,
        .offload = cfg->memory.offload != CT_CONFIG_OFFLOAD_NONE,
        .fuses = cfg->train.device == CT_CONFIG_DEVICE_CUDA,
    };
    if (ret->rooted)
        ret->replicas = 1; /* of shards, which dp has none of */
    return set_optim(cfg, &ret->optim, ret_rules, err);
}

int64_t ct_planner_eval_rows(int64_t labels_per_row)
{
    enum { ROWS_MAX = 512, LABELS_MAX = 4096 };

    return CT_MAX(CT_MIN(LABELS_MAX / labels_per_row, (int64_t)ROWS_MAX), 1);
}
