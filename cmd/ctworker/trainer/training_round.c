/* See training_round.h. */
#include "training_round.h"

#include "base/assert.h"
#include "collectives/planner/plan_options.h"
#include "dp.h"
#include "recipe/recipe.h"
#include "recover_state.h"
#include "resume.h"
#include "worker/agree.h"
#include "worker/parts.h"
#include "worker/ps.h"

#include <stdlib.h>

/* Of the tables that a model's specification points to. */
enum { RECIPE_BYTES = 16 << 20 };

/* Words of config.def and of the libraries that carry the same meaning have the same order. */
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
SAME(CT_CONFIG_SCHEDULE_CONSTANT, CT_SCHEDULE_CONSTANT);
SAME(CT_CONFIG_SCHEDULE_LINEAR, CT_SCHEDULE_LINEAR);
SAME(CT_CONFIG_SCHEDULE_COSINE, CT_SCHEDULE_COSINE);
SAME(CT_CONFIG_SCHEDULE_WSD, CT_SCHEDULE_WSD);
SAME(CT_CONFIG_SCHEDULE_STEP, CT_SCHEDULE_STEP);
SAME(CT_CONFIG_SCHEDULE_ONECYCLE, CT_SCHEDULE_ONECYCLE);
SAME(CT_CONFIG_SCHEDULE_PLATEAU, CT_SCHEDULE_PLATEAU);

/* ---- entering -------------------------------------------------------------------------------- */

static void set_schedule(struct ct_worker *worker)
{
    const struct ct_config *cfg = worker->cfg;
    uint64_t every = (uint64_t)cfg->schedule.every.count;

    if (cfg->schedule.every.unit == CT_CONFIG_EPOCHS)
        every *= ct_sampler_batches(&worker->sampler);
    worker->schedule = (struct ct_schedule){.type = (enum ct_schedule_type)cfg->schedule.type,
                                            .lr = cfg->optim.lr,
                                            .min_ratio = cfg->schedule.min_ratio,
                                            .start_ratio = cfg->schedule.start_ratio,
                                            .factor = cfg->schedule.factor,
                                            .warmup = (uint64_t)cfg->schedule.warmup,
                                            .steps = worker->steps,
                                            .decay = (uint64_t)cfg->schedule.decay,
                                            .every = every};
}

/* Ranks that see different samples: how many there are, and which of them this one is. */
static void data_place(const struct ct_worker *worker, uint32_t *ret_count, uint32_t *ret_index)
{
    int rank = ct_ps_serves(worker) ? 0 : worker->me->rank;

    *ret_count = (uint32_t)ct_mesh_size(&worker->mesh, CT_AXIS_DATA);
    *ret_index = (uint32_t)ct_mesh_index(&worker->mesh, CT_AXIS_DATA, rank);
}

static int set_batches(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    int threads = ct_planner_replicas(cfg);
    const struct ct_mesh wanted = {.stages = (int)cfg->parallel.pipeline,
                                   .replicas = threads > 0 ? 1 : (int)cfg->parallel.replicate,
                                   .tensor = (int)cfg->parallel.tensor};
    uint32_t count, index;
    int code = ct_mesh_init(&worker->mesh, worker->me->world, &wanted, err);

    if (code != 0)
        return code;
    data_place(worker, &count, &index);
    code = ct_batch_plan(&worker->batch, (uint32_t)cfg->batch.global, (uint32_t)cfg->batch.micro,
                         threads > 0 ? (uint32_t)threads : count, err);
    if (code == 0)
        code = ct_dp_check(worker, err);
    if (code != 0)
        return code;
    worker->sampler = (struct ct_sampler){.rows = worker->train.rows,
                                          .seed = (uint64_t)cfg->seed,
                                          .global_batch = worker->batch.global,
                                          .shuffle = true};
    worker->share =
        (struct ct_share){index, count, worker->batch.accumulation * (uint32_t)CT_MAX(threads, 1),
                          worker->batch.micro};
    worker->save_every = cfg->checkpoint.every;
    worker->steps = cfg->train.steps > 0
                        ? (uint64_t)cfg->train.steps
                        : (uint64_t)cfg->train.epochs * ct_sampler_batches(&worker->sampler);
    set_schedule(worker);
    return 0;
}

static int set_evaluation(struct ct_worker *worker, struct ct_error *err)
{
    uint32_t count, index;
    size_t rows = worker->eval.rows;

    if (rows == 0)
        return 0;
    data_place(worker, &count, &index);
    size_t most = (size_t)ct_planner_eval_rows((int64_t)worker->eval.labels_per_row);
    uint32_t each = (uint32_t)CT_MIN((rows + count - 1) / count, most);
    worker->eval_sampler =
        (struct ct_sampler){.rows = rows, .global_batch = (uint64_t)each * count};
    worker->eval_share = (struct ct_share){index, count, 1, each};
    worker->eval_buffer = (struct ct_batch_buffer){
        .x = calloc((size_t)each * worker->eval.width, sizeof(float)),
        .labels = calloc((size_t)each * worker->eval.labels_per_row, sizeof(int32_t))};
    if (worker->eval_buffer.x == NULL || worker->eval_buffer.labels == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for an evaluation of %u rows", each);
    return 0;
}

static int build_plan(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    const struct ct_recipe_data data = {(int64_t)worker->train.width, worker->train.classes};
    struct ct_model_spec model;
    struct ct_arena arena; /* what the specification points to */
    struct ct_lr_rule *rules = NULL;
    struct ct_plan_options options;
    int code = ct_planner_options(cfg, &options, &rules, err);

    options.world = CT_MAX(ct_planner_replicas(cfg), worker->me->world);
    options.rank = worker->me->rank;
    options.micro_rows = worker->batch.micro;
    options.accumulation = (int)worker->batch.accumulation;
    options.eval_rows = worker->eval_share.micro;
    options.fuses = worker->device->table->fuses;
    if (ct_ps_serves(worker)) { /* of it, tensors and optimizer count */
        options.served = false;
        options.world = 1;
        options.rank = 0;
    }
    ct_arena_init(&arena, RECIPE_BYTES);
    if (code == 0)
        code = ct_recipe_model(&model, cfg, &data, &arena, err);
    if (code == 0)
        code = ct_plan_build(&worker->plan, &model, &options, (uint64_t)cfg->seed, err);
    if (code == 0 && options.rooted && options.world > 1)
        code = ct_replicas_new(&worker->replicas, &model, &options, (uint64_t)cfg->seed,
                               ct_dp_threads(cfg), err);
    ct_arena_deinit(&arena);
    free(rules);
    return code;
}

/* The tree over micro-batches is that of other worlds only where a rank's own part of it is whole.
 */
static void warn_other_bits(const struct ct_worker *worker)
{
    uint32_t count = worker->batch.accumulation;

    if (worker->cfg->parallel.reduce == CT_CONFIG_REDUCE_INVARIANT && worker->me->rank == 0 &&
        (count & (count - 1)) != 0)
        ct_log_event(
            worker->log, CT_LOG_WARN, "invariant",
            "each of %d ranks adds up %u micro-batches a step, no power of two: the bits are "
            "not those of other numbers of ranks; choose another batch.micro or world",
            ct_mesh_size(&worker->mesh, CT_AXIS_DATA), count);
}

/* On a device with a memory of its own there are two: `parallel.backend` is the one's that it is
 * for, and the other finds its own. */
static int join_groups(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    const struct ct_accel *device = ct_device_accel(worker->device);
    bool for_device = cfg->parallel.backend == CT_CONFIG_BACKEND_NCCL ||
                      cfg->parallel.backend == CT_CONFIG_BACKEND_STAGED;
    const char *backend = ct_config_word(cfg, &cfg->parallel.backend);
    struct ct_group_options options = {.backend = for_device ? NULL : backend,
                                       .timeout_ms = (uint64_t)cfg->parallel.timeout_ms,
                                       .encrypt = cfg->parallel.encrypt};

    int code = ct_ps_used(worker) ? ct_ps_members(worker, &options, err) : 0;
    if (code != 0 || (worker->me->world == 1 && options.ranks == NULL) || options.nranks == 1)
        return code;
    code = ct_group_new(worker->job, &options, &worker->group, err);
    if (code != 0 || device == NULL || ct_ps_used(worker))
        return code;
    options.name = "device";
    options.device = device;
    options.backend = for_device ? backend : NULL;
    code = ct_group_new(worker->job, &options, &worker->device_group, err);
    if (code == 0 && worker->me->rank == 0)
        ct_log_event(worker->log, CT_LOG_INFO, "device", "%d ranks talk by %s, the first on %s",
                     worker->me->world, ct_group_backend(worker->device_group), device->name);
    return code;
}

static void free_groups(struct ct_worker *worker)
{
    ct_group_free(worker->device_group);
    ct_group_free(worker->group);
    worker->device_group = worker->group = NULL;
}

static int make_executor(struct ct_worker *worker, struct ct_error *err)
{
    bool in_file = worker->cfg->memory.offload == CT_CONFIG_OFFLOAD_FILE;
    struct ct_replicas *replicas = worker->replicas;
    const struct ct_exec_options options = {
        .device = worker->device,
        .offload_dir = in_file ? worker->cfg->memory.offload_dir : NULL,
        .group = replicas != NULL ? ct_replicas_group(replicas) : worker->group,
        .device_group = worker->device_group,
        .check_ops = worker->cfg->check.ops,
        .job = replicas != NULL ? NULL : worker->job,
        .trace = worker->cfg->log.trace > 0,
        .push = ct_ps_push,
        .push_context = worker,
        .timeout_ms = (uint64_t)worker->cfg->parallel.timeout_ms};
    int code = worker->reused
                   ? ct_exec_regroup(worker->exec, worker->group, worker->device_group, err)
                   : ct_exec_new(&worker->exec, &worker->plan, &options, err);

    if (code == CT_EMISMATCH)
        worker->scope = CT_SCOPE_JOB;
    return code;
}

/* The files of checkpoints, and the run's folder. */
static int open_outputs(struct ct_worker *worker, struct ct_error *err)
{
    int code = 0;

    if (worker->snapshot.tensors == NULL)
        code = ct_snapshot_describe(&worker->snapshot, &worker->plan, err);
    return code == 0 ? ct_run_dir_open(worker, err) : code;
}

/* Nobody holds a state: begin from a checkpoint, or from the start. */
static int begin_without_state(struct ct_worker *worker, struct ct_error *err)
{
    ct_snapshot_deinit(&worker->carry);
    worker->lineage = worker->step = worker->position = worker->skipped = 0;
    worker->has_last = worker->repeat_post_step = false;
    ct_plateau_init(&worker->plateau);
    worker->best = (struct ct_best){.metric = (uint64_t)worker->cfg->checkpoint.best};
    ct_scaler_init(&worker->scaler, worker->cfg->train.loss_scale);
    int code = worker->reused ? ct_exec_reset(worker->exec, err) : 0;
    if (code == 0)
        code = ct_resume(worker, err);
    worker->post_step_done = worker->repeat_post_step ? worker->step - 1 : worker->step;
    if (code == 0)
        ct_parts_report_source(worker);
    return code;
}

static int acquire_state(struct ct_worker *worker, struct ct_error *err)
{
    bool found = false;
    int code = ct_ps_used(worker) ? ct_ps_find(worker, &found, err)
                                  : ct_state_recovery(worker, &found, err);

    if (code == 0 && !found)
        code = begin_without_state(worker, err);
    if (code == 0 && ct_ps_used(worker))
        code = ct_ps_begin(worker, found, err);
    if (code != 0)
        return code;
    ct_snapshot_deinit(&worker->carry);
    worker->lineage = ct_ps_used(worker) ? 0 : worker->me->generation;
    (void)ct_job_healed(worker->job);
    ct_publish_enter(worker, found);
    return ct_report_open(worker, err);
}

int ct_round_enter(struct ct_worker *worker, struct ct_error *err)
{
    worker->scope = CT_SCOPE_NODE;
    int code = ct_ps_assign_role(worker, err);

    if (code == 0)
        code = set_batches(worker, err);

    if (code == 0)
        code = set_evaluation(worker, err);
    if (code == 0 && !worker->reused)
        code = build_plan(worker, err);
    if (code != 0)
        return code;
    warn_other_bits(worker);
    worker->scope = CT_SCOPE_RANK;
    code = join_groups(worker, err);
    if (ct_ps_serves(worker))
        return code == 0 ? ct_ps_open(worker, err) : code;
    if (code == 0)
        code = ct_agree_inputs(worker, err);
    if (code == 0)
        code = make_executor(worker, err);
    if (code == 0)
        code = open_outputs(worker, err);
    return code == 0 ? acquire_state(worker, err) : code;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void free_evaluation(struct ct_worker *worker)
{
    free(worker->eval_buffer.x);
    free(worker->eval_buffer.labels);
    worker->eval_buffer = (struct ct_batch_buffer){.x = NULL};
}

/* What the round made, but for a state that is carried on and rank 0's files. */
static void free_round(struct ct_worker *worker)
{
    free_evaluation(worker);
    ct_snapshot_deinit(&worker->snapshot);
    ct_exec_free(worker->exec);
    ct_replicas_free(worker->replicas);
    ct_plan_deinit(&worker->plan);
    worker->exec = NULL;
    worker->replicas = NULL;
    worker->reused = false;
    worker->plan = (struct ct_plan){.tensor_count = 0};
}

int ct_round_carry(struct ct_worker *worker, struct ct_error *err)
{
    if (worker->carry.tensors != NULL || worker->lineage == 0 || worker->exec == NULL)
        return 0;
    int code = ct_snapshot_init(&worker->carry, &worker->plan, err);
    if (code == 0)
        ct_snapshot_take(&worker->carry, &worker->plan, worker->exec);
    return code;
}

/* In a world of the same size, plan and executor are those of the next round, with the state where
 * it is. */
static int keep_or_free(struct ct_worker *worker, int world, struct ct_error *err)
{
    if (worker->exec != NULL && worker->me->world == world && !ct_parts_held(worker) &&
        worker->replicas == NULL) {
        free_evaluation(worker);
        worker->reused = true;
        return 0;
    }
    int code = ct_round_carry(worker, err);
    if (code == 0)
        free_round(worker);
    return code;
}

int ct_round_leave(struct ct_worker *worker, struct ct_error *err)
{
    int world = worker->me->world;

    free_groups(worker);
    ct_ps_disconnect(worker);
    if (ct_parts_held(worker)) {
        worker->lineage = 0;
        ct_saving_discard(&worker->saving);
    }
    if (worker->carry.tensors == NULL && worker->lineage > 0 && worker->exec != NULL)
        worker->digest = ct_exec_digest(worker->exec);
    const struct ct_ready ready = {
        .lineage = worker->lineage, .step = worker->step, .digest = worker->digest};
    bool served = ct_ps_serves(worker);
    int code = ct_job_regroup(worker->job, &ready, err);
    if (code == 0)
        code = ct_ps_assign_role(worker, err);
    if (code == 0 && served != ct_ps_serves(worker))
        free_round(worker); /* another part is its now */
    return code == 0 ? keep_or_free(worker, world, err) : code;
}

bool ct_round_can_save(struct ct_worker *worker)
{
    if (worker->lineage == 0 || worker->exec == NULL || worker->me->rank != 0 ||
        ct_parts_held(worker))
        return false;
    if (worker->carry.tensors != NULL)
        ct_snapshot_put(&worker->carry, &worker->plan, worker->exec);
    return true;
}

void ct_round_undo(struct ct_worker *worker)
{
    free_groups(worker);
    ct_ps_free(worker);
    ct_saving_deinit(&worker->saving);
    free_round(worker);
    ct_snapshot_deinit(&worker->carry);
}
