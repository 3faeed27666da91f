/* See run.h. */
#include "collectives/exec/run.h"

#include "base/assert.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const enum ct_reduce_mode modes[] = {
    [CT_PLAN_FAST] = CT_MODE_FAST,
    [CT_PLAN_REPRODUCIBLE] = CT_MODE_REPRODUCIBLE,
    [CT_PLAN_INVARIANT] = CT_MODE_INVARIANT,
};

/* ---- one op --------------------------------------------------------------------------------- */

static void stamp(struct ct_runner *r, uint64_t *ret_ns, uint64_t *ret_number)
{
    *ret_ns = ct_clock_mono_ns(r->options->clock);
    *ret_number = atomic_fetch_add(&r->events, 1) + 1;
}

/* A part may lie in its place in the whole. */
static int gather(struct ct_group *group, const struct ct_kernel_args *args, enum ct_dtype dtype,
                  const struct ct_options *options)
{
    size_t count = (size_t)ct_shape_elements(args->in[0].shape);
    const char *own = (const char *)args->out[0].data +
                      (size_t)ct_group_rank(group) * count * ct_dtype_size(dtype);
    const void *send = args->in[0].data == own ? NULL : args->in[0].data;

    return ct_all_gather(group, ct_from_to(send, args->out[0].data, count, dtype), options);
}

/* All messages of the op at once. */
static int exchange(struct ct_group *group, const struct ct_program_op *op,
                    const struct ct_kernel_args *args, const struct ct_options *options)
{
    struct ct_transfer transfers[CT_OP_MAX_IN + CT_OP_MAX_OUT];
    int count = 0;

    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (op->in[k] != CT_NONE)
            transfers[count++] =
                ct_transfer_to(op->to[k], args->in[k].data,
                               (size_t)ct_shape_elements(args->in[k].shape), op->dtype);
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        if (op->out[k] != CT_NONE)
            transfers[count++] =
                ct_transfer_from(op->from[k], args->out[k].data,
                                 (size_t)ct_shape_elements(args->out[k].shape), op->dtype);
    return ct_exchange(group, transfers, count, options);
}

/* All of the input, or what is there when it is in place. */
static struct ct_data from_to(const struct ct_kernel_args *args, enum ct_dtype dtype)
{
    size_t count = (size_t)ct_shape_elements(args->out[0].shape);

    return args->in[0].data == args->out[0].data
               ? ct_inplace(args->out[0].data, count, dtype)
               : ct_from_to(args->in[0].data, args->out[0].data, count, dtype);
}

static int communicate(struct ct_runner *r, struct ct_device *device,
                       const struct ct_program_op *op, const struct ct_kernel_args *args)
{
    struct ct_group *group = r->groups[op->axis];
    const struct ct_options options = {.timeout_ms = r->options->timeout_ms,
                                       .mode = modes[r->plan->options.reduce],
                                       .stream = ct_device_stream(device)};
    size_t count = (size_t)ct_shape_elements(args->out[0].shape);

    if (op->kind == CT_OP_EXCHANGE)
        return exchange(group, op, args, &options);
    if (op->kind == CT_OP_ALL_REDUCE || op->kind == CT_OP_RANK_SUM)
        return ct_all_reduce(group, from_to(args, op->dtype), CT_REDUCE_SUM, &options);
    if (op->kind == CT_OP_RANK_MAX)
        return ct_all_reduce(group, from_to(args, op->dtype), CT_REDUCE_MAX, &options);
    if (op->kind == CT_OP_RANK_COPY) {
        if (args->in[0].data != args->out[0].data)
            ct_device_run(device, CT_OP_COPY, op->dtype, args);
        return 0;
    }
    if (op->kind == CT_OP_BROADCAST)
        return ct_broadcast(group, ct_inplace(args->out[0].data, count, op->dtype), 0, &options);
    if (op->kind == CT_OP_REDUCE)
        return ct_reduce(group, ct_inplace(args->out[0].data, count, op->dtype), CT_REDUCE_SUM, 0,
                         &options);
    if (op->kind == CT_OP_SCATTER)
        return ct_scatter(group, ct_from_to(args->in[0].data, args->out[0].data, count, op->dtype),
                          0, &options);
    if (op->kind == CT_OP_REDUCE_SCATTER)
        return ct_reduce_scatter(group,
                                 ct_from_to(args->in[0].data, args->out[0].data, count, op->dtype),
                                 CT_REDUCE_SUM, &options);
    return gather(group, args, op->dtype, &options);
}

static int push(struct ct_runner *r, const struct ct_program_op *op,
                const struct ct_kernel_args *args, struct ct_error *err)
{
    const struct ct_value *value = &r->list->program.values[op->in[0]];

    return r->options->push(r->options->push_context, value->offset_bytes, args->in[0].data,
                            value->bytes, err);
}

/* A failure of the device, or of a push, has its sentence in `err`, one of a group has none. */
static int run_op(struct ct_runner *r, int i, struct ct_error *err)
{
    const struct ct_program_op *op = &r->list->program.ops[i];
    const struct ct_kernel_args *args = &r->args[i];
    struct ct_device *device = r->device[r->list->slot[i].queue];
    int code = 0;

    if (r->tracing)
        stamp(r, &r->trace[i].start_ns, &r->trace[i].start);
    if (r->options->before_op != NULL && r->list == &r->plan->step)
        r->options->before_op(r->options->context, i);
    if (!ct_op_is_comm(op->kind))
        ct_device_run(device, (enum ct_op_kind)op->kind, op->dtype, args);
    else if (op->kind == CT_OP_PUSH)
        code = push(r, op, args, err);
    else if (!device->table->on_host || (code = ct_device_finish(device, err)) == 0)
        code = communicate(r, device, op, args); /* beside the host, behind what is in the queue */
    if (code == 0 && (r->tracing || r->options->check_ops))
        code = ct_device_finish(device, err);
    if (r->tracing)
        stamp(r, &r->trace[i].end_ns, &r->trace[i].end);
    return code;
}

/* ---- queues --------------------------------------------------------------------------------- */

/* Under the mutex. */
static void wake_all(struct ct_runner *r)
{
    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
        pthread_cond_signal(&r->changed[queue]);
}

static void note_failure(struct ct_runner *r, int code, int op, const struct ct_error *failure)
{
    pthread_mutex_lock(&r->mutex);
    if (r->code == 0) {
        r->code = code;
        r->failed_op = op;
        r->failure = *failure;
    }
    wake_all(r);
    pthread_mutex_unlock(&r->mutex);
}

static bool waits(const struct ct_plan_slot *slot)
{
    for (int other = 0; other < CT_QUEUE_COUNT; other++)
        if (slot->wait[other] > 0)
            return true;
    return false;
}

static bool is_due(const struct ct_runner *r, const struct ct_plan_slot *slot)
{
    for (int other = 0; other < CT_QUEUE_COUNT; other++)
        if (r->done[other] < slot->wait[other])
            return false;
    return true;
}

/* Sleep until op `i` is due. The code of a failure on any queue. */
static int wait_for_others(struct ct_runner *r, int i)
{
    const struct ct_plan_slot *slot = &r->list->slot[i];

    if (!waits(slot))
        return 0;
    pthread_mutex_lock(&r->mutex);
    while (r->code == 0 && !is_due(r, slot))
        pthread_cond_wait(&r->changed[slot->queue], &r->mutex);
    int code = r->code;
    pthread_mutex_unlock(&r->mutex);
    for (int other = 0; other < CT_QUEUE_COUNT && code == 0; other++)
        if (slot->wait[other] > 0)
            ct_device_await(r->device[slot->queue], r->signals[r->after[i].op[other]].mark);
    return code;
}

/* The queue's ops up to `i` are done, which others wait for. */
static void publish(struct ct_runner *r, int i, int done)
{
    int queue = r->list->slot[i].queue;

    ct_device_mark(r->device[queue], r->signals[i].mark);
    pthread_mutex_lock(&r->mutex);
    r->done[queue] = done;
    for (int other = 0; other < CT_QUEUE_COUNT; other++)
        if ((r->signals[i].awaited & 1u << other) != 0)
            pthread_cond_signal(&r->changed[other]);
    pthread_mutex_unlock(&r->mutex);
}

static void run_queue(struct ct_runner *r, int queue)
{
    int done = 0;

    for (int i = 0; i < r->list->program.op_count; i++) {
        struct ct_error failure = {0};
        if (r->list->slot[i].queue != queue)
            continue;
        if (wait_for_others(r, i) != 0)
            return;
        int code = run_op(r, i, &failure);
        if (code != 0) {
            note_failure(r, code, i, &failure);
            return;
        }
        done++;
        if (r->signals[i].awaited != 0)
            publish(r, i, done);
    }
}

/* What cannot be recorded is run op by op, now and from now on. */
static void record(struct ct_runner *r)
{
    struct ct_device *device = r->device[CT_QUEUE_COMPUTE];
    struct ct_error why = {0};

    r->records = ct_device_record(device, &why) == 0;
    if (!r->records)
        return;
    run_queue(r, CT_QUEUE_COMPUTE);
    r->records = ct_device_record_end(device, &r->recording, &why) == 0;
}

/* What is run for the first time may load what no recording can. */
static void run_compute(struct ct_runner *r)
{
    bool whole = r->records && r->started > 1 && !r->tracing && !r->options->check_ops &&
                 r->options->before_op == NULL;

    if (whole && r->recording == NULL)
        record(r);
    if (whole && r->recording != NULL)
        ct_device_replay(r->device[CT_QUEUE_COMPUTE], r->recording);
    else
        run_queue(r, CT_QUEUE_COMPUTE);
}

static void *comm_main(void *context)
{
    struct ct_comm_thread *thread = context;
    struct ct_runner *r = thread->runner;

    pthread_mutex_lock(&r->mutex);
    for (;;) {
        while (!r->quit && thread->ended == r->started)
            pthread_cond_wait(&r->changed[thread->queue], &r->mutex);
        if (r->quit)
            break;
        pthread_mutex_unlock(&r->mutex);
        run_queue(r, thread->queue);
        pthread_mutex_lock(&r->mutex);
        thread->ended++;
        pthread_cond_signal(&r->changed[CT_QUEUE_COMPUTE]);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* What a failure of the op is a failure of. */
static const char *op_noun(int kind)
{
    switch (kind) {
    case CT_OP_ALL_GATHER:
        return "gathering";
    case CT_OP_BROADCAST:
        return "broadcast";
    case CT_OP_SCATTER:
        return "scattering";
    default:
        return "reduction";
    }
}

static int describe(const struct ct_runner *r, struct ct_error *err)
{
    const struct ct_program *program = &r->list->program;
    const struct ct_program_op *op = &program->ops[r->failed_op];

    if (r->code == 0)
        return 0;
    if (op->kind == CT_OP_PUSH)
        return ct_error_set(err, r->code, "%s", r->failure.text);
    if (r->failure.code != 0)
        return ct_error_set(err, r->code, "op %d, %s of %s: %s", r->failed_op,
                            ct_rule_info(op->kind)->name,
                            op->out[0] != CT_NONE ? program->values[op->out[0]].name : "a message",
                            r->failure.text);
    const struct ct_error *why = ct_group_failure(r->groups[op->axis]);
    const char *text = why->code != 0 ? why->text : ct_strerror(r->code);
    if (op->kind == CT_OP_EXCHANGE)
        return ct_error_set(err, r->code, "a message between stages: %s", text);
    return ct_error_set(err, r->code, "%s of %s: %s", op_noun(op->kind),
                        program->values[op->out[0]].name, text);
}

/* Bring the queues to rest, also after a failure, which comes first. A group only sees that its
 * device has failed: the queue knows why. */
static int finish_queues(struct ct_runner *r, int code, struct ct_error *err)
{
    bool unexplained = code == CT_EDEVICE && r->failure.code == 0;

    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++) {
        bool used = queue == CT_QUEUE_COMPUTE || r->threads[queue].started;
        struct ct_error own = {0};
        int failed = used ? ct_device_finish(r->device[queue], &own) : 0;

        if (failed != 0 && unexplained)
            (void)ct_error_prefix(&own, "%s", err != NULL ? err->text : "");
        if (failed != 0 && (code == 0 || unexplained)) {
            if (err != NULL)
                *err = own;
            code = failed;
            unexplained = false;
        }
    }
    return code;
}

/* Under the mutex. */
static bool all_ended(const struct ct_runner *r)
{
    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
        if (r->threads[queue].started && r->threads[queue].ended != r->started)
            return false;
    return true;
}

int ct_runner_run(struct ct_runner *r, struct ct_error *err)
{
    pthread_mutex_lock(&r->mutex);
    memset(r->done, 0, sizeof r->done);
    r->code = 0;
    atomic_store(&r->events, 0);
    if (r->tracing)
        memset(r->trace, 0, (size_t)r->list->program.op_count * sizeof *r->trace);
    r->started++;
    wake_all(r);
    pthread_mutex_unlock(&r->mutex);

    run_compute(r);

    pthread_mutex_lock(&r->mutex);
    while (!all_ended(r))
        pthread_cond_wait(&r->changed[CT_QUEUE_COMPUTE], &r->mutex);
    pthread_mutex_unlock(&r->mutex);
    return finish_queues(r, describe(r, err), err);
}

/* ---- start and end -------------------------------------------------------------------------- */

/* Where values lie. */
struct memory {
    char *arena, *host;
};

static struct ct_tensor bound(const struct ct_plan_list *list, const struct memory *memory,
                              int value)
{
    if (value == CT_NONE)
        return (struct ct_tensor){0};
    const struct ct_value *v = &list->program.values[value];
    size_t offset = ct_plan_offset(list, value);
    char *at = v->kind == CT_VALUE_HOST ? memory->host + (offset - CT_PLAN_HOST_BASE)
                                        : memory->arena + offset;
    return (struct ct_tensor){v->dtype, v->shape, at};
}

static int bind_op(struct ct_runner *r, const struct memory *memory, int i, struct ct_error *err)
{
    const struct ct_program_op *op = &r->list->program.ops[i];
    struct ct_kernel_args *args = &r->args[i];
    struct ct_device *device = r->device[r->list->slot[i].queue];
    enum ct_dtype dtype;

    args->attr = op->attr;
    for (int k = 0; k < CT_OP_MAX_IN; k++)
        args->in[k] = bound(r->list, memory, op->in[k]);
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        args->out[k] = bound(r->list, memory, op->out[k]);
    if (!ct_op_is_comm(op->kind) && !ct_device_has(device, (enum ct_op_kind)op->kind, op->dtype))
        return ct_error_set(err, CT_EUNSUPPORTED, "the device '%s' has no %s for %s",
                            device->table->name, ct_rule_info(op->kind)->name,
                            ct_dtype_name(op->dtype));
    int code = ct_rule_complete(op->kind, args, &dtype, err);
    if (code == 0 && !ct_op_is_comm(op->kind))
        code = ct_device_prepare(device, (enum ct_op_kind)op->kind, op->dtype, args, err);
    return code;
}

bool ct_runner_needs_thread(const struct ct_plan_list *list, enum ct_queue queue)
{
    for (int i = 0; i < list->program.op_count && queue != CT_QUEUE_COMPUTE; i++)
        if (list->slot[i].queue == queue)
            return true;
    return false;
}

/* Op `i` waits for op `after` of another queue. */
static int await(struct ct_runner *r, int i, int after, struct ct_error *err)
{
    const struct ct_plan_slot *slot = r->list->slot;
    struct ct_signal *signal = &r->signals[after];
    int code = 0;

    r->after[i].op[slot[after].queue] = after;
    if (signal->awaited == 0)
        code = ct_device_mark_new(r->device[slot[after].queue], &signal->mark, err);
    signal->awaited |= 1u << slot[i].queue;
    return code;
}

/* The ops that somebody waits for, and who for which: a wait of n is for the n-th of that queue. */
static int find_signals(struct ct_runner *r, struct ct_error *err)
{
    int count = r->list->program.op_count, position[CT_QUEUE_COUNT] = {0}, code = 0;
    int *nth = malloc((size_t)count * CT_QUEUE_COUNT * sizeof *nth);

    if (nth == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a list of %d ops", count);
    for (int i = 0; i < count && code == 0; i++) {
        const struct ct_plan_slot *slot = &r->list->slot[i];
        nth[slot->queue * count + position[slot->queue]++] = i;
        for (int other = 0; other < CT_QUEUE_COUNT && code == 0; other++)
            if (slot->wait[other] > 0)
                code = await(r, i, nth[other * count + slot->wait[other] - 1], err);
    }
    free(nth);
    return code;
}

static bool has_comm(const struct ct_plan_list *list)
{
    for (int i = 0; i < list->program.op_count; i++)
        if (ct_op_is_comm(list->program.ops[i].kind))
            return true;
    return false;
}

static bool has_push(const struct ct_plan_list *list)
{
    for (int i = 0; i < list->program.op_count; i++)
        if (list->program.ops[i].kind == CT_OP_PUSH)
            return true;
    return false;
}

/* The thread takes no signals: those are for the program's own threads. */
static int start_thread(struct ct_runner *r, int queue, struct ct_error *err)
{
    struct ct_comm_thread *thread = &r->threads[queue];
    sigset_t all, old;

    *thread = (struct ct_comm_thread){.runner = r, .queue = queue};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&thread->thread, NULL, comm_main, thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return ct_error_set(err, CT_EOS, "cannot start a communication thread: %s", strerror(rc));
    thread->started = true;
    return 0;
}

int ct_runner_init(struct ct_runner *r, void *arena, void *host, struct ct_error *err)
{
    const struct memory memory = {arena, host};
    size_t count = (size_t)r->list->program.op_count;
    int code = 0;

    pthread_mutex_init(&r->mutex, NULL);
    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
        pthread_cond_init(&r->changed[queue], NULL);
    r->args = calloc(count, sizeof *r->args);
    r->signals = calloc(count, sizeof *r->signals);
    r->after = calloc(count, sizeof *r->after);
    if (r->options->trace)
        r->trace = calloc(count, sizeof *r->trace);
    r->tracing = r->trace != NULL;
    r->records = ct_device_can_record(r->device[CT_QUEUE_COMPUTE]) && !has_comm(r->list);
    if (has_push(r->list) && r->options->push == NULL)
        return ct_error_set(err, CT_EUSAGE, "the plan is served, and nobody takes its gradients");
    if (r->args == NULL || r->signals == NULL || r->after == NULL ||
        (r->options->trace && r->trace == NULL))
        return ct_error_set(err, CT_ENOMEM, "no memory for a list of %zu ops", count);
    for (size_t i = 0; i < count && code == 0; i++)
        code = bind_op(r, &memory, (int)i, err);
    if (code == 0)
        code = find_signals(r, err);
    for (int queue = 0; queue < CT_QUEUE_COUNT && code == 0; queue++)
        if (ct_runner_needs_thread(r->list, (enum ct_queue)queue))
            code = start_thread(r, queue, err);
    return code;
}

static void stop_threads(struct ct_runner *r)
{
    pthread_mutex_lock(&r->mutex);
    r->quit = true;
    wake_all(r);
    pthread_mutex_unlock(&r->mutex);
    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
        if (r->threads[queue].started)
            pthread_join(r->threads[queue].thread, NULL);
}

void ct_runner_deinit(struct ct_runner *r)
{
    if (r->list == NULL)
        return;
    stop_threads(r);
    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
        pthread_cond_destroy(&r->changed[queue]);
    pthread_mutex_destroy(&r->mutex);
    for (int i = 0; r->signals != NULL && i < r->list->program.op_count; i++)
        ct_device_mark_free(r->device[CT_QUEUE_COMPUTE], r->signals[i].mark);
    ct_device_recording_free(r->device[CT_QUEUE_COMPUTE], r->recording);
    free(r->args);
    free(r->signals);
    free(r->after);
    free(r->trace);
    memset(r, 0, sizeof *r);
}
