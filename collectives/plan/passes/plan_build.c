/* See plan.h: the options' checks and the order of the passes. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "collectives/plan/passes/stage_split.h"

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
    if (options->stochastic && options->compute != CT_BF16)
        return ct_error_set(err, CT_ECONFIG,
                            "train.rounding stochastic is for train.precision bf16 alone");
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

static uint64_t bytes_of(const struct ct_program *program, int value)
{
    return value == CT_NONE ? 0 : program->values[value].bytes;
}

/* Of the finished list: what the ranks say to each other, in order. */
static uint64_t talk_hash(const struct ct_program *program, uint64_t hash)
{
    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        if (!ct_op_is_comm(op->kind))
            continue;
        uint64_t said[3 + CT_OP_MAX_IN + CT_OP_MAX_OUT] = {(uint64_t)op->kind, (uint64_t)op->axis,
                                                           (uint64_t)op->dtype};
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            said[3 + k] = op->kind == CT_OP_SCATTER ? 0 : bytes_of(program, op->in[k]);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            said[3 + CT_OP_MAX_IN + k] = bytes_of(program, op->out[k]);
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

/* The model for training and the one for evaluations; of a pipeline, what its parts are. */
struct models {
    struct ct_model train, eval;
    struct ct_stage_split train_cut, eval_cut;
    bool split;
};

static int run_passes(struct ct_plan *plan, const struct models *models, struct ct_error *err)
{
    const struct ct_model *model = &models->train;
    const struct ct_stage_split *split = models->split ? &models->train_cut : NULL;
    const struct ct_stage_split *eval_cut = models->split ? &models->eval_cut : NULL;
    struct ct_plan_list *lists[] = {&plan->init, &plan->step, &plan->eval};
    int code = ct_plan_layout(plan, model, split, err);

    if (code == 0)
        code = ct_plan_make_runs(plan, err);
    if (code == 0)
        code = ct_plan_make_init(plan, model, err);
    if (code == 0)
        code = ct_plan_make_step(plan, model, split, err);
    if (code == 0)
        code = ct_plan_fuse_loss(&plan->step, err);
    if (code == 0 && plan->options.fuses)
        code = ct_plan_fuse_gelu(&plan->step, err);
    if (code == 0 && plan->options.fuses)
        code = ct_plan_fuse_norm(&plan->step, err);
    if (code == 0)
        code = ct_plan_make_eval(plan, &models->eval, eval_cut, err);
    if (code == 0)
        code = ct_plan_reduce_tensor(plan, err);
    if (code == 0)
        plan->hash = meaning_hash(plan);
    for (size_t i = 0; i < CT_COUNT(lists) && code == 0; i++)
        code = ct_plan_shard(plan, lists[i], err);
    if (code == 0)
        code = ct_plan_data_parallel(plan, err);
    if (code == 0)
        code = ct_plan_param_server(plan, err);
    if (code == 0)
        code = ct_plan_reduce(plan, err);
    if (code == 0 && ct_dtype_is_narrow(plan->options.reduce_dtype))
        code = ct_plan_narrow_sums(plan, err);
    if (code == 0)
        code = ct_plan_overlap(plan, &plan->step, err);
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
    if (options->rooted &&
        (options->shard != CT_PLAN_SHARD_NONE || plan->mesh.tensor > 1 || plan->mesh.stages > 1))
        return ct_error_set(err, CT_ECONFIG,
                            "parallel.strategy dp shares nothing out: replicas hold whole models");
    if (options->served &&
        (options->shard != CT_PLAN_SHARD_NONE || plan->mesh.tensor > 1 || plan->mesh.stages > 1))
        return ct_error_set(err, CT_ECONFIG,
                            "parallel.strategy ps shares nothing out among workers: each computes "
                            "the whole model");
    options->overlap = options->overlap && !options->rooted;
    plan->place = ct_mesh_place(&plan->mesh, options->rank);
    plan->shards = plan->mesh.shards;
    return 0;
}

/* Whether a batch norm is synchronised. */
static bool wants_totals(const struct ct_model *model)
{
    for (int i = 0; i < model->program.op_count; i++)
        if (model->program.ops[i].kind == CT_OP_BATCH_TOTAL)
            return true;
    return false;
}

/* Choose the parts of a pipeline, before anything depends on where they meet. */
static int choose_parts(struct ct_plan *plan, struct models *models, struct ct_error *err)
{
    const struct ct_pipe pipe = {plan->options.order, plan->mesh.stages, plan->options.chunks,
                                 plan->options.accumulation, plan->options.overlap};
    int code = ct_pipe_check(&pipe, err);

    if (code == 0 && pipe.order != CT_PLAN_GPIPE && pipe.micros > 1 && wants_totals(&models->train))
        code = ct_error_set(err, CT_ECONFIG,
                            "a batch norm with sync wants all %d micro-batches of a step at once: "
                            "set parallel.schedule to gpipe, or raise batch.micro",
                            pipe.micros);
    models->split = true;
    return code == 0 ? ct_stage_split_choose(&models->train_cut, &models->train,
                                             pipe.stages * pipe.chunks, &plan->memory, err)
                     : code;
}

/* Leave the models the ops of this rank's stage. */
static int keep_stage(struct ct_plan *plan, struct models *models, struct ct_error *err)
{
    int stage = plan->place.stage, stages = plan->mesh.stages;
    int code = ct_stage_split_assign(&models->train_cut, &models->train, &plan->memory, err);

    if (code == 0)
        code = ct_stage_split_like(&models->eval_cut, &models->eval, &models->train_cut,
                                   &plan->memory, err);
    if (code == 0)
        code = ct_stage_split_assign(&models->eval_cut, &models->eval, &plan->memory, err);
    if (code != 0)
        return code;
    ct_stage_split_keep(&models->train_cut, &models->train, stage, stages);
    ct_stage_split_keep(&models->eval_cut, &models->eval, stage, stages);
    return 0;
}

static int build_models(struct ct_plan *plan, const struct ct_model_spec *spec,
                        struct models *models, struct ct_error *err)
{
    const struct ct_plan_options *options = &plan->options;
    struct ct_model_spec train_spec = *spec, eval_spec;

    if (options->optim.groups.frozen_count > 0) {
        train_spec.frozen = ct_plan_freezes;
        train_spec.frozen_names = &options->optim.groups;
    }
    eval_spec = train_spec;
    eval_spec.evaluation = true;
    int code = ct_model_build_forward(&models->train, &train_spec, options->micro_rows, err);
    if (code == 0)
        code = ct_model_build_forward(&models->eval, &eval_spec, options->eval_rows, err);
    if (code == 0)
        code = ct_plan_tensor_parallel(plan, &models->train, false, err);
    if (code == 0)
        code = ct_plan_tensor_parallel(plan, &models->eval, true, err);
    if (code == 0)
        code = ct_model_build_backward(&models->train, err);
    if (code == 0 && ct_dtype_is_narrow(options->compute))
        code = ct_plan_precision(&models->train, options, err);
    if (code == 0 && ct_dtype_is_narrow(options->compute))
        code = ct_plan_precision(&models->eval, options, err);
    if (code == 0 && plan->mesh.stages > 1)
        code = choose_parts(plan, models, err);
    if (code == 0 && options->recompute != CT_PLAN_RECOMPUTE_NONE)
        code = ct_plan_recompute(&models->train, models->split ? &models->train_cut : NULL, options,
                                 err);
    if (code == 0 && models->split)
        code = keep_stage(plan, models, err);
    if (code == 0 && options->offload)
        code = ct_plan_offload(&models->train, models->split ? &models->train_cut : NULL,
                               &plan->memory, err);
    return code;
}

int ct_plan_build(struct ct_plan *plan, const struct ct_model_spec *spec,
                  const struct ct_plan_options *options, uint64_t seed, struct ct_error *err)
{
    struct models models = {.split = false};

    *plan = (struct ct_plan){.options = *options, .seed = seed};
    ct_arena_init(&plan->memory, PLAN_LIMIT_BYTES);
    ct_program_init(&plan->init.program);
    ct_program_init(&plan->step.program);
    ct_program_init(&plan->eval.program);
    if (plan->options.eval_rows == 0)
        plan->options.eval_rows = options->micro_rows;
    if (plan->options.chunks == 0)
        plan->options.chunks = 1;

    int code = check_options(&plan->options, err);
    if (code == 0)
        code = set_mesh(plan, err);
    if (code == 0)
        code = build_models(plan, spec, &models, err);
    if (code == 0)
        code = run_passes(plan, &models, err);
    ct_model_deinit(&models.train);
    ct_model_deinit(&models.eval);
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
