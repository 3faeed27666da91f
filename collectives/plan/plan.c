/* See plan.h: the options' checks and the order of the passes. */
#include "collectives/plan/passes.h"

#include "base/assert.h"
#include "base/hash.h"

#include <math.h>
#include <string.h>

#define PLAN_LIMIT_BYTES ((size_t)1 << 28)

enum { MAX_PREFETCH = 64 };

static int check_optim(const struct ct_optim_spec *optim, struct ct_error *err)
{
    if (!isfinite(optim->momentum) || optim->momentum < 0 || optim->momentum >= 1)
        return ct_error_set(err, CT_ECONFIG, "optim.momentum is %g, must be in [0, 1)",
                            optim->momentum);
    if (!isfinite(optim->weight_decay) || optim->weight_decay < 0)
        return ct_error_set(err, CT_ECONFIG, "optim.weight_decay is %g, must be >= 0",
                            optim->weight_decay);
    if (!isfinite(optim->clip) || optim->clip < 0)
        return ct_error_set(err, CT_ECONFIG, "optim.clip is %g, must be >= 0 (0 does not clip)",
                            optim->clip);
    if (!isfinite(optim->ema) || optim->ema < 0 || optim->ema >= 1)
        return ct_error_set(err, CT_ECONFIG, "optim.ema is %g, must be in [0, 1)", optim->ema);
    if (optim->nesterov && optim->momentum == 0)
        return ct_error_set(err, CT_ECONFIG, "optim.nesterov needs optim.momentum above 0");
    if (optim->type == CT_OPTIM_SGD)
        return 0;
    if (!(optim->beta1 >= 0 && optim->beta1 < 1) || !(optim->beta2 >= 0 && optim->beta2 < 1))
        return ct_error_set(err, CT_ECONFIG, "optim.betas are %g and %g, must be in [0, 1)",
                            optim->beta1, optim->beta2);
    if (optim->type == CT_OPTIM_ADAMW && (!isfinite(optim->eps) || optim->eps <= 0))
        return ct_error_set(err, CT_ECONFIG, "optim.eps is %g, must be > 0", optim->eps);
    return 0;
}

static int check_layout(const struct ct_plan_options *options, struct ct_error *err)
{
    if (options->world < 1)
        return ct_error_set(err, CT_ECONFIG, "a world of %d ranks is not possible", options->world);
    if (options->rank < 0 || options->rank >= options->world)
        return ct_error_set(err, CT_ECONFIG, "rank %d is not one of %d", options->rank,
                            options->world);
    if (options->prefetch < 0 || options->prefetch > MAX_PREFETCH)
        return ct_error_set(err, CT_ECONFIG, "parallel.prefetch is %d, must be from 0 to %d",
                            options->prefetch, MAX_PREFETCH);
    return 0;
}

static int check_options(const struct ct_plan_options *options, struct ct_error *err)
{
    int code = check_layout(options, err);

    if (code != 0)
        return code;
    if (options->accumulation < 1 || options->accumulation > CT_PLAN_MAX_ACCUMULATION)
        return ct_error_set(err, CT_ECONFIG,
                            "%d micro-batches a step, must be from 1 to %d: raise batch.micro",
                            options->accumulation, CT_PLAN_MAX_ACCUMULATION);
    if (options->bucket_bytes < 1 || options->first_bucket_bytes < 1)
        return ct_error_set(err, CT_ECONFIG, "parallel.bucket and first_bucket must be > 0");
    return check_optim(&options->optim, err);
}

/* What ranks must agree on. Of a list before it is sharded: what it computes. */
static uint64_t meaning_hash(const struct ct_plan *plan)
{
    uint64_t parts[] = {
        ct_program_hash(&plan->init.program), ct_program_hash(&plan->step.program),
        ct_program_hash(&plan->eval.program), (uint64_t)plan->options.world,
        (uint64_t)plan->options.reduce,
    };

    return ct_hash64(parts, sizeof parts, 0);
}

/* Of the finished list: what the ranks say to each other, in order. */
static uint64_t talk_hash(const struct ct_program *program, uint64_t hash)
{
    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        if (!ct_op_is_comm(op->kind))
            continue;
        uint64_t said[] = {(uint64_t)op->kind, (uint64_t)op->axis, (uint64_t)op->dtype,
                           program->values[op->in[0]].bytes, program->values[op->out[0]].bytes};
        hash = ct_hash64(said, sizeof said, hash);
    }
    return hash;
}

static int finish_list(struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err)
{
    int code = ct_plan_place(plan, list, err);

    if (code == 0)
        code = ct_plan_queue(plan, list, err);
    if (code == 0)
        code = ct_plan_verify(plan, list, err);
    plan->arena_bytes = CT_MAX(plan->arena_bytes, list->peak_bytes);
    plan->host_bytes = CT_MAX(plan->host_bytes, list->host_bytes);
    return code;
}

static int run_passes(struct ct_plan *plan, const struct ct_model *model,
                      const struct ct_model *eval_model, struct ct_error *err)
{
    struct ct_plan_list *lists[] = {&plan->init, &plan->step, &plan->eval};
    int code = ct_plan_layout(plan, model, err);

    if (code == 0)
        code = ct_plan_make_runs(plan, err);
    if (code == 0)
        code = ct_plan_make_init(plan, model, err);
    if (code == 0)
        code = ct_plan_make_step(plan, model, err);
    if (code == 0)
        code = ct_plan_make_eval(plan, eval_model, err);
    if (code == 0)
        code = ct_plan_join_slices(plan, err);
    if (code == 0)
        plan->hash = meaning_hash(plan);
    for (size_t i = 0; i < CT_COUNT(lists) && code == 0; i++)
        code = ct_plan_shard(plan, lists[i], err);
    if (code == 0)
        code = ct_plan_reduce(plan, err);
    for (size_t i = 0; i < CT_COUNT(lists) && code == 0; i++) {
        code = finish_list(plan, lists[i], err);
        plan->hash = talk_hash(&lists[i]->program, plan->hash);
    }
    return code;
}

/* Where one rank would hold a whole copy, nothing is sharded. */
static int set_mesh(struct ct_plan *plan, struct ct_error *err)
{
    struct ct_plan_options *options = &plan->options;
    const struct ct_mesh wanted = {
        .stages = options->stages, .replicas = options->replicas, .tensor = options->tensor};
    int code = ct_mesh_init(&plan->mesh, options->world, &wanted, err);

    if (code != 0)
        return code;
    if (options->shard == CT_PLAN_SHARD_NONE || plan->mesh.shards == 1) {
        plan->mesh.replicas *= plan->mesh.shards;
        plan->mesh.shards = 1;
        options->shard = CT_PLAN_SHARD_NONE;
        options->replicas = 1;
    }
    if (plan->mesh.stages > 1)
        return ct_error_set(err, CT_EUNSUPPORTED, "%d stages are not possible, 1 is",
                            plan->mesh.stages);
    plan->place = ct_mesh_place(&plan->mesh, options->rank);
    plan->shards = plan->mesh.shards;
    return 0;
}

int ct_plan_build(struct ct_plan *plan, const struct ct_model_spec *spec,
                  const struct ct_plan_options *options, uint64_t seed, struct ct_error *err)
{
    struct ct_model model = {0}, eval_model = {0};
    struct ct_model_spec step_spec = *spec, eval_spec;

    if (options->optim.groups.frozen_count > 0) {
        step_spec.frozen = ct_plan_freezes;
        step_spec.frozen_names = &options->optim.groups;
    }
    eval_spec = step_spec;
    eval_spec.evaluation = true;
    *plan = (struct ct_plan){.options = *options, .seed = seed};
    ct_arena_init(&plan->memory, PLAN_LIMIT_BYTES);
    ct_program_init(&plan->init.program);
    ct_program_init(&plan->step.program);
    ct_program_init(&plan->eval.program);
    if (plan->options.eval_rows == 0)
        plan->options.eval_rows = options->micro_rows;

    int code = check_options(&plan->options, err);
    if (code == 0)
        code = set_mesh(plan, err);
    if (code == 0)
        code = ct_model_build_forward(&model, &step_spec, options->micro_rows, err);
    if (code == 0)
        code = ct_model_build_forward(&eval_model, &eval_spec, plan->options.eval_rows, err);
    if (code == 0)
        code = ct_plan_slice(plan, &model, false, err);
    if (code == 0)
        code = ct_plan_slice(plan, &eval_model, true, err);
    if (code == 0)
        code = ct_model_build_backward(&model, err);
    if (code == 0 && ct_dtype_is_narrow(options->compute))
        code = ct_plan_precision(&model, &plan->options, err);
    if (code == 0 && ct_dtype_is_narrow(options->compute))
        code = ct_plan_precision(&eval_model, &plan->options, err);
    if (code == 0 && options->recompute != CT_PLAN_RECOMPUTE_NONE)
        code = ct_plan_recompute(&model, &plan->options, err);
    if (code == 0 && options->offload)
        code = ct_plan_offload(&model, err);
    if (code == 0)
        code = run_passes(plan, &model, &eval_model, err);
    ct_model_deinit(&model);
    ct_model_deinit(&eval_model);
    return code;
}

void ct_plan_deinit(struct ct_plan *plan)
{
    if (plan == NULL)
        return;
    ct_program_deinit(&plan->init.program);
    ct_program_deinit(&plan->step.program);
    ct_program_deinit(&plan->eval.program);
    ct_arena_deinit(&plan->memory);
    *plan = (struct ct_plan){0};
}
