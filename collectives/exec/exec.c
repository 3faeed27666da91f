/* See exec.h: start, step, evaluation; run.c does the running, exec_state.c reads and writes
 * tensors. */
#include "collectives/exec/exec.h"

#include "base/assert.h"
#include "collectives/exec/executor.h"
#include "collectives/plan/tensor_extents.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- start and end -------------------------------------------------------------------------- */

/* Ranks of one stage and slice must have the same plan: otherwise they would wait for each other
 * for ever, or worse, add what does not belong together. */
static int agree(const struct ct_plan *plan, struct ct_group *group, struct ct_error *err)
{
    int world = plan->options.world, rank = group == NULL ? 0 : ct_group_rank(group);
    int size = group == NULL ? 1 : ct_group_size(group);

    if (size != world)
        return ct_error_set(err, CT_EUSAGE, "the plan is for %d ranks, the group has %d", world,
                            size);
    if (!ct_plan_holds_all(plan) && plan->options.rank != rank)
        return ct_error_set(err, CT_EUSAGE, "the plan is for rank %d, this is rank %d",
                            plan->options.rank, rank);
    if (world == 1)
        return 0;
    uint64_t *hashes = calloc((size_t)world, sizeof *hashes);
    if (hashes == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the hashes of %d ranks", world);
    hashes[rank] = plan->hash;
    int code = ct_all_gather(group, ct_inplace(hashes, 1, CT_I64), NULL);
    if (code != 0)
        ct_error_set(err, code, "comparing plans: %s", ct_group_failure(group)->text);
    for (int i = 1; i < world && code == 0; i++) {
        int like = ct_mesh_member(&plan->mesh, CT_AXIS_DATA, i, 0);
        if (hashes[i] != hashes[like])
            code = ct_error_set(err, CT_EMISMATCH,
                                "rank %d has another program (%016" PRIx64
                                ") than rank %d (%016" PRIx64
                                "): give every rank the same configuration and the same ctrun",
                                i, hashes[i], like, hashes[like]);
    }
    free(hashes);
    return code;
}

/* The first axis whose group serves this one, too. */
static enum ct_axis first_same(const struct ct_plan *plan, enum ct_axis axis)
{
    enum ct_axis first = CT_AXIS_WORLD;

    while (!ct_mesh_shared(&plan->mesh, first, axis))
        first++;
    return first;
}

static void leave_axes(struct ct_exec *exec)
{
    for (int axis = CT_AXIS_WORLD + 1; axis < CT_AXIS_COUNT; axis++)
        if (first_same(exec->plan, (enum ct_axis)axis) == (enum ct_axis)axis)
            ct_group_free(exec->groups[axis]);
    memset(exec->groups, 0, sizeof exec->groups);
}

/* The groups of the plan's axes: none where a rank is alone, one where two are the same ranks. */
static int join_axes(struct ct_exec *exec, struct ct_error *err)
{
    struct ct_group *group =
        exec->device->table->on_host ? exec->options.group : exec->options.device_group;
    const struct ct_mesh *mesh = &exec->plan->mesh;
    int rank = exec->plan->options.rank, code = 0;

    leave_axes(exec);
    if (exec->options.group != NULL && group == NULL)
        return ct_error_set(err, CT_EUSAGE, "ranks on %s need a group for its memory",
                            exec->device->table->name);
    exec->groups[CT_AXIS_WORLD] = group;
    for (int i = CT_AXIS_WORLD + 1; i < CT_AXIS_COUNT && code == 0; i++) {
        enum ct_axis axis = (enum ct_axis)i, same = first_same(exec->plan, axis);
        if (same != axis)
            exec->groups[axis] = exec->groups[same];
        else if (ct_mesh_size(mesh, axis) > 1)
            code = ct_group_split(group, ct_mesh_group(mesh, axis, rank), rank, &exec->groups[axis],
                                  err);
    }
    return code;
}

/* The job's memory where ranks work in it together, else the device's own. */
static int allocate(struct ct_exec *exec, struct ct_error *err)
{
    struct ct_job *job = exec->options.job;
    struct ct_device *device = exec->device;
    size_t bytes = exec->plan->arena_bytes;
    struct ct_error unread = {0};
    void *arena = NULL;
    int code;

    if (device->table->on_host) {
        exec->symmetric = job != NULL;
        code = exec->symmetric ? ct_mem_alloc(job, bytes, &arena, err)
                               : ct_device_alloc(device, bytes, &arena, err);
    } else {
        exec->symmetric =
            job != NULL && exec->options.device_group != NULL &&
            ct_mem_alloc_on(job, ct_device_accel(device), bytes, &arena, &unread) == 0;
        code = exec->symmetric ? 0 : ct_device_alloc(device, bytes, &arena, err);
    }
    exec->arena = arena;
    return code;
}

/* All groups get to know the arena: of ranks whose arenas differ, as those of stages do, nothing
 * comes of it. */
static int share_arena(struct ct_exec *exec, struct ct_error *err)
{
    int code = 0;

    if (exec->device->table->on_host)
        return 0;
    for (int i = CT_AXIS_WORLD; i < CT_AXIS_COUNT && code == 0; i++)
        if (exec->groups[i] != NULL && first_same(exec->plan, (enum ct_axis)i) == (enum ct_axis)i)
            code = ct_group_share(exec->groups[i], exec->symmetric ? exec->arena : NULL, err);
    return code;
}

/* A queue of the device for each communication thread of a list. */
static int make_queues(struct ct_exec *exec, const struct ct_plan_list *list, struct ct_error *err)
{
    int code = 0;

    for (int queue = 0; queue < CT_QUEUE_COUNT && code == 0; queue++)
        if (exec->queues[queue] == NULL && ct_runner_needs_thread(list, (enum ct_queue)queue))
            code = ct_device_beside(exec->device, &exec->queues[queue], err);
    return code;
}

static int start(struct ct_exec *exec, struct ct_error *err)
{
    struct {
        struct ct_runner *runner;
        const struct ct_plan_list *list;
    } lists[] = {{&exec->init, &exec->plan->init},
                 {&exec->step, &exec->plan->step},
                 {&exec->eval, &exec->plan->eval}};
    int code = join_axes(exec, err);

    if (code == 0)
        code = allocate(exec, err);
    if (code == 0)
        code = share_arena(exec, err);
    if (code == 0)
        code = ct_exec_map_host(exec, err);
    for (size_t i = 0; i < CT_COUNT(lists) && code == 0; i++)
        code = make_queues(exec, lists[i].list, err);
    for (size_t i = 0; i < CT_COUNT(lists) && code == 0; i++) {
        *lists[i].runner = (struct ct_runner){.plan = exec->plan,
                                              .list = lists[i].list,
                                              .options = &exec->options,
                                              .groups = exec->groups};
        memcpy(lists[i].runner->device, exec->queues, sizeof exec->queues);
        lists[i].runner->device[CT_QUEUE_COMPUTE] = exec->device;
        code = ct_runner_init(lists[i].runner, exec->arena, exec->host, err);
    }
    return code == 0 ? ct_runner_run(&exec->init, err) : code;
}

int ct_exec_new(struct ct_exec **ret_exec, const struct ct_plan *plan,
                const struct ct_exec_options *options, struct ct_error *err)
{
    int code = agree(plan, options->group, err);

    if (code != 0)
        return code;
    struct ct_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for an executor");
    exec->plan = plan;
    exec->device = options->device;
    exec->options = *options;
    if (exec->options.clock == NULL)
        exec->options.clock = &ct_clock_system;
    code = start(exec, err);
    if (code != 0) {
        ct_exec_free(exec);
        return code;
    }
    *ret_exec = exec;
    return 0;
}

int ct_exec_regroup(struct ct_exec *exec, struct ct_group *group, struct ct_group *device_group,
                    struct ct_error *err)
{
    int code = agree(exec->plan, group, err);

    exec->options.group = group;
    exec->options.device_group = device_group;
    if (code == 0)
        code = join_axes(exec, err);
    return code == 0 ? share_arena(exec, err) : code;
}

int ct_exec_reset(struct ct_exec *exec, struct ct_error *err)
{
    size_t bytes = exec->plan->state_bytes;

    memset(exec->chunk, 0, sizeof exec->chunk); /* moments and padding begin as zeroes */
    for (size_t at = 0; at < bytes; at += sizeof exec->chunk)
        ct_device_copy_in(exec->device, exec->arena + at, exec->chunk,
                          CT_MIN(bytes - at, sizeof exec->chunk));
    return ct_runner_run(&exec->init, err);
}

void ct_exec_free(struct ct_exec *exec)
{
    if (exec == NULL)
        return;
    ct_runner_deinit(&exec->init);
    ct_runner_deinit(&exec->step);
    ct_runner_deinit(&exec->eval);
    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
        ct_device_free(exec->queues[queue]);
    leave_axes(exec);
    ct_exec_unmap_host(exec);
    if (exec->symmetric)
        ct_mem_free(exec->options.job, exec->arena);
    else
        ct_device_release(exec->device, exec->arena, exec->plan->arena_bytes);
    free(exec);
}

/* Two counts of ranks travel in one number, which a sum of doubles holds exactly. */
enum { SECOND = 1 << 20 };

/* ---- step and evaluation -------------------------------------------------------------------- */

static void put(struct ct_exec *exec, const struct ct_plan_list *list, int value, const void *data)
{
    if (value != CT_NONE)
        ct_device_copy_in(exec->device, exec->arena + ct_plan_offset(list, value), data,
                          list->program.values[value].bytes);
}

static void get(struct ct_exec *exec, const struct ct_plan_list *list, int value, void *data)
{
    ct_device_copy_out(exec->device, data, exec->arena + ct_plan_offset(list, value),
                       list->program.values[value].bytes);
}

static double get_f64(struct ct_exec *exec, const struct ct_plan_list *list, int value)
{
    double number = 0;

    if (value == CT_NONE)
        return 0;
    get(exec, list, value, &number);
    return number;
}

/* Of this rank in the global batch. */
static int64_t first_row(const struct ct_exec *exec)
{
    const struct ct_plan_options *options = &exec->plan->options;
    int rank = exec->options.group == NULL ? 0 : ct_group_rank(exec->options.group);

    return ct_mesh_index(&exec->plan->mesh, CT_AXIS_DATA, rank) * options->micro_rows *
           options->accumulation;
}

int ct_exec_step(struct ct_exec *exec, const struct ct_exec_step *args,
                 struct ct_exec_result *ret_result, struct ct_error *err)
{
    const struct ct_plan_list *list = &exec->plan->step;
    double inv_valid = 1 / (double)args->valid_count;
    double scale = list->io.unscale != CT_NONE && args->scale > 0 ? args->scale : 1;
    double seed = inv_valid * scale, unscale = 1 / scale;
    double update = (double)(args->update - args->skipped);
    double wish = (args->wish ? 1 : 0) + (args->done ? SECOND : 0);
    double draw[] = {(double)args->update, (double)first_row(exec)};

    if (args->valid_count < 1 || args->update < 1 || args->skipped >= args->update)
        return ct_error_set(err, CT_EUSAGE,
                            "a step needs a row that counts and a number from 1 on");
    put(exec, list, list->io.x, args->x);
    put(exec, list, list->io.labels, args->labels);
    put(exec, list, list->io.inv_valid, &seed);
    put(exec, list, list->io.unscale, &unscale);
    put(exec, list, list->io.lr, &args->lr);
    put(exec, list, list->io.update, &update);
    put(exec, list, list->io.wish, &wish);
    put(exec, list, list->io.draw, draw);
    int code = ct_runner_run(&exec->step, err);
    if (code != 0)
        return code;
    double loss = get_f64(exec, list, list->io.loss), sumsq = get_f64(exec, list, list->io.sumsq);
    int64_t wishes = (int64_t)get_f64(exec, list, list->io.wishes);
    *ret_result = (struct ct_exec_result){
        .loss = loss * inv_valid,
        .correct = (int64_t)get_f64(exec, list, list->io.correct),
        .grad_norm = sqrt(sumsq) * unscale,
        .loss_sum = loss,
        .sumsq = sumsq,
        .wishes = wishes % SECOND,
        .done = wishes / SECOND,
        .skipped = !isfinite(loss) || !isfinite(sumsq),
    };
    return 0;
}

int ct_exec_eval(struct ct_exec *exec, const struct ct_exec_eval *args,
                 struct ct_exec_sums *ret_sums, struct ct_error *err)
{
    const struct ct_plan_list *list = &exec->plan->eval;

    put(exec, list, list->io.x, args->x);
    put(exec, list, list->io.labels, args->labels);
    int code = ct_runner_run(&exec->eval, err);
    if (code != 0)
        return code;
    *ret_sums = (struct ct_exec_sums){0};
    if (exec->plan->place.slice == 0) { /* all slices have the same */
        ret_sums->loss = get_f64(exec, list, list->io.loss);
        ret_sums->correct = (int64_t)get_f64(exec, list, list->io.correct);
    }
    if (args->logits != NULL && list->io.logits != CT_NONE)
        get(exec, list, list->io.logits, args->logits);
    return 0;
}

void ct_exec_set_tracing(struct ct_exec *exec, bool on)
{
    exec->step.tracing = on && exec->step.trace != NULL;
}

const struct ct_exec_event *ct_exec_trace(const struct ct_exec *exec)
{
    return exec->step.trace;
}

void *ct_exec_arena(struct ct_exec *exec)
{
    return exec->arena;
}
