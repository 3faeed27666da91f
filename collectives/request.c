/* Requests: validation, start, progress, waiting.
 *
 * The happy path of a blocking call is start, one look at the backend, done; no clock is read. What
 * has to wait climbs a ladder: look again and again for as long as the backend finds useful, then
 * give the core to others for a moment, then sleep until the backend is rung or a slice of 10 ms is
 * over, so that a revocation, which rings no backend's bell, is seen. Whenever something moved the
 * ladder starts anew. */
#include "group.h"

#include "base/assert.h"
#include "base/clock.h"
#include "reduce.h"

#include <sched.h>

enum { YIELD_NS = 100000, SLICE_NS = 10000000 };

/* ---- failure ---------------------------------------------------------------------------------*/

void ct_group_break(struct ct_group *group, int code)
{
    CT_ASSERT(code < 0);
    group->failure.code = code;
    group->backend->fail(group->state, code);
    for (int i = 0; i < group->queued; i++) {
        group->queue[i]->over = true;
        group->queue[i]->code = code;
    }
    group->queued = 0;
}

/* ---- progress --------------------------------------------------------------------------------*/

static bool is_transfer(const struct ct_call *call)
{
    return call->kind == CT_CALL_SEND || call->kind == CT_CALL_RECV;
}

/* Must `later` wait for `earlier`? Collectives do for each other, and so do the messages of one
 * pair and direction. */
static bool same_lane(const struct ct_call *later, const struct ct_call *earlier)
{
    if (!is_transfer(later))
        return !is_transfer(earlier);
    return later->kind == earlier->kind && later->peer == earlier->peer;
}

static bool first_in_lane(const struct ct_group *group, int index)
{
    for (int i = 0; i < index; i++)
        if (same_lane(&group->queue[index]->task.call, &group->queue[i]->task.call))
            return false;
    return true;
}

static void finish(struct ct_group *group, int index)
{
    struct ct_request *request = group->queue[index];

    request->over = true;
    request->code = 0;
    if (request->number != 0)
        ct_worker_record_completed(group->record, request->number);
    group->queued--;
    for (int i = index; i < group->queued; i++)
        group->queue[i] = group->queue[i + 1];
}

static void fail(struct ct_group *group, const struct ct_task *task, int code)
{
    char what[128];

    ct_signature_print(task->signature, what, sizeof what);
    if (code != CT_EMISMATCH)
        ct_error_prefix(&group->failure, "%s at rank %d", what, group->rank);
    ct_group_break(group, code);
}

/* Everything that can advance. */
static void advance(struct ct_group *group)
{
    if (atomic_load_explicit(&group->revoked, memory_order_relaxed) || ct_job_revoked(group->job)) {
        ct_error_set(&group->failure, CT_EREVOKED, "the round was revoked");
        ct_group_break(group, CT_EREVOKED);
        return;
    }
    for (int i = 0; i < group->queued;) {
        struct ct_task *task = &group->queue[i]->task;
        uint64_t moves = task->moves;
        int code = 0;

        if (first_in_lane(group, i))
            code = group->backend->progress(group->state, task, &group->failure);
        if (code < 0) {
            fail(group, task, code);
            return;
        }
        group->moves += task->moves - moves;
        if (code == 1)
            finish(group, i);
        else
            i++;
    }
}

static void expire(struct ct_request *request)
{
    struct ct_group *group = request->group;
    int missing = group->backend->missing(group->state, &request->task);
    char what[128];

    ct_signature_print(request->task.signature, what, sizeof what);
    if (missing >= 0)
        ct_error_set(&group->failure, CT_ETIMEOUT,
                     "%s at rank %d: no sign of rank %d within %llu ms", what, group->rank, missing,
                     (unsigned long long)request->timeout_ms);
    else
        ct_error_set(&group->failure, CT_ETIMEOUT, "%s at rank %d: not complete within %llu ms",
                     what, group->rank, (unsigned long long)request->timeout_ms);
    ct_group_break(group, CT_ETIMEOUT);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Look at most `looks` times; true when the request is over or anything has moved. */
static bool look(struct ct_request *request, int looks)
{
    struct ct_group *group = request->group;
    uint64_t moves = group->moves;

    for (int i = 0; i < looks && !request->over && group->moves == moves; i++) {
        relax();
        advance(group);
    }
    return request->over || group->moves != moves;
}

/* For who reads the record: what is waited for, and for whom. */
static void record_wait(struct ct_request *request, uint64_t now)
{
    uint64_t number = request->number != 0 ? request->number : CT_RECORD_TRANSFER;

    ct_worker_record_wait(request->group->record, number, now);
}

static void record_details(struct ct_request *request, uint64_t now)
{
    struct ct_group *group = request->group;
    int awaited = group->backend->missing(group->state, &request->task);
    char words[CT_RECORD_WORDS];

    ct_signature_print(request->task.signature, words, sizeof words);
    ct_worker_record_words(group->record, words);
    ct_worker_record_beat(group->record, now, group->moves,
                          awaited >= 0 ? group->ranks[awaited] : -1);
}

static void doze(struct ct_request *request, uint64_t timeout_ns)
{
    struct ct_group *group = request->group;
    uint32_t armed = group->backend->arm(group->state);

    group->backend->park(group->state, armed, look(request, 1) ? 0 : timeout_ns);
}

static void wait_until_over(struct ct_request *request)
{
    struct ct_group *group = request->group;
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);
    uint64_t deadline = now + request->timeout_ms * 1000000u, idle_since = now, since = now;
    int spins = group->backend->spins(group->state);

    record_wait(request, now);

    while (!request->over) {
        bool moved = look(request, now == idle_since ? spins : 1);

        now = ct_clock_mono_ns(&ct_clock_system);
        if (request->over)
            break;
        if (now >= deadline) {
            expire(request);
        } else if (moved) {
            idle_since = now;
        } else if (now - idle_since < YIELD_NS) {
            (void)sched_yield();
        } else {
            record_details(request, now);
            doze(request, CT_MIN(deadline - now, (uint64_t)SLICE_NS));
        }
    }
    ct_worker_record_woke(group->record);
    group->waited_ns += now - since;
}

/* Give the request back, with what it came to. */
static int claim(struct ct_request *request)
{
    int code = request->code;

    request->next_free = request->group->free;
    request->group->free = request;
    return code;
}

int ct_wait(struct ct_request *request)
{
    if (!request->over)
        advance(request->group);
    if (!request->over)
        wait_until_over(request);
    return claim(request);
}

int ct_test(struct ct_request *request)
{
    if (!request->over)
        advance(request->group);
    if (!request->over) {
        uint64_t now = ct_clock_mono_ns(&ct_clock_system);

        if (request->first_test_ns == 0) {
            request->first_test_ns = now;
            record_wait(request, now);
        }
        ct_worker_record_beat(request->group->record, now, request->group->moves, -1);
        if (now - request->first_test_ns < request->timeout_ms * 1000000u)
            return 0;
        expire(request);
    }
    if (request->first_test_ns != 0)
        ct_worker_record_woke(request->group->record);
    int code = claim(request);
    return code == 0 ? 1 : code;
}

/* ---- start -----------------------------------------------------------------------------------*/

/* Bytes that the larger of the two buffers has. */
static bool size_fits(const struct ct_group *group, const struct ct_call *call)
{
    size_t bytes;

    return !__builtin_mul_overflow(call->count, ct_dtype_size(call->dtype), &bytes) &&
           !__builtin_mul_overflow(bytes, (size_t)group->size, &bytes) && bytes < SIZE_MAX / 2;
}

static bool valid(const struct ct_group *group, const struct ct_call *call)
{
    bool writes = call->kind != CT_CALL_SEND, reads = call->kind != CT_CALL_RECV;

    if ((unsigned)call->dtype >= CT_DTYPE_COUNT || !size_fits(group, call))
        return false;
    if (call->peer < 0 || call->peer >= group->size)
        return false;
    if (is_transfer(call) && call->peer == group->rank)
        return false;
    if (call->count > 0 && ((writes && call->recv == NULL) || (reads && call->send == NULL)))
        return false;
    return !ct_call_reduces(call->kind) || (ct_reduce_supports(call->dtype, call->reduce) &&
                                            (unsigned)call->mode <= CT_MODE_INVARIANT);
}

static int start(struct ct_group *group, const struct ct_call *call,
                 const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_request *request = group->free;

    if (group->failure.code != 0)
        return group->failure.code;
    if (!valid(group, call) || (call->reduce == CT_REDUCE_PREMUL_SUM && options == NULL))
        return CT_EUSAGE;
    if (request == NULL)
        return CT_ELIMIT;
    group->free = request->next_free;
    request->task = (struct ct_task){.call = *call, .signature = ct_call_signature(call)};
    request->timeout_ms =
        options != NULL && options->timeout_ms != 0 ? options->timeout_ms : group->timeout_ms;
    request->number = is_transfer(call) ? 0 : ++group->collectives;
    if (request->number != 0)
        ct_worker_record_entered(group->record, request->number);
    request->first_test_ns = 0;
    request->over = false;
    request->code = 0;
    group->queue[group->queued++] = request;
    *ret_request = request;
    return 0;
}

/* A call with what all operations have in common. */
static struct ct_call make_call(enum ct_call_kind kind, struct ct_data data, int peer,
                                const struct ct_options *options)
{
    return (struct ct_call){.kind = kind,
                            .dtype = data.dtype,
                            .mode = options != NULL ? options->mode : CT_MODE_FAST,
                            .peer = peer,
                            .tag = options != NULL ? options->tag : 0,
                            .count = data.count,
                            .scale = options != NULL ? options->scale : 1.0,
                            .send = data.send != NULL ? data.send : data.recv,
                            .recv = data.recv};
}

/* Where this rank's part lies in a buffer of size * count elements. */
static char *own_part(const struct ct_group *group, const struct ct_data *data)
{
    if (data->recv == NULL || (unsigned)data->dtype >= CT_DTYPE_COUNT)
        return data->recv;
    return (char *)data->recv + (size_t)group->rank * data->count * ct_dtype_size(data->dtype);
}

int ct_all_reduce_start(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                        const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(CT_CALL_ALL_REDUCE, data, 0, options);

    call.reduce = reduce;
    return start(group, &call, options, ret_request);
}

int ct_broadcast_start(struct ct_group *group, struct ct_data data, int root,
                       const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(CT_CALL_BROADCAST, data, root, options);

    return start(group, &call, options, ret_request);
}

int ct_all_gather_start(struct ct_group *group, struct ct_data data,
                        const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(CT_CALL_ALL_GATHER, data, 0, options);

    if (data.send == NULL)
        call.send = own_part(group, &data);
    return start(group, &call, options, ret_request);
}

int ct_reduce_scatter_start(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                            const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(CT_CALL_REDUCE_SCATTER, data, 0, options);

    call.reduce = reduce;
    if (data.send == NULL)
        call.recv = own_part(group, &data);
    return start(group, &call, options, ret_request);
}

int ct_send_start(struct ct_group *group, struct ct_data data, int to,
                  const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(CT_CALL_SEND, data, to, options);

    return start(group, &call, options, ret_request);
}

int ct_recv_start(struct ct_group *group, struct ct_data data, int from,
                  const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(CT_CALL_RECV, data, from, options);

    return start(group, &call, options, ret_request);
}

int ct_barrier_start(struct ct_group *group, const struct ct_options *options,
                     struct ct_request **ret_request)
{
    struct ct_data nothing = {NULL, NULL, 0, CT_U8};
    struct ct_call call = make_call(CT_CALL_BARRIER, nothing, 0, options);

    return start(group, &call, options, ret_request);
}

/* ---- blocking forms --------------------------------------------------------------------------*/

static int wait_for(int code, struct ct_request *request)
{
    return code == 0 ? ct_wait(request) : code;
}

int ct_all_reduce(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                  const struct ct_options *options)
{
    struct ct_request *request = NULL;
    int code = ct_all_reduce_start(group, data, reduce, options, &request);

    return wait_for(code, request);
}

int ct_broadcast(struct ct_group *group, struct ct_data data, int root,
                 const struct ct_options *options)
{
    struct ct_request *request = NULL;
    int code = ct_broadcast_start(group, data, root, options, &request);

    return wait_for(code, request);
}

int ct_all_gather(struct ct_group *group, struct ct_data data, const struct ct_options *options)
{
    struct ct_request *request = NULL;
    int code = ct_all_gather_start(group, data, options, &request);

    return wait_for(code, request);
}

int ct_reduce_scatter(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                      const struct ct_options *options)
{
    struct ct_request *request = NULL;
    int code = ct_reduce_scatter_start(group, data, reduce, options, &request);

    return wait_for(code, request);
}

int ct_send(struct ct_group *group, struct ct_data data, int to, const struct ct_options *options)
{
    struct ct_request *request = NULL;
    int code = ct_send_start(group, data, to, options, &request);

    return wait_for(code, request);
}

int ct_recv(struct ct_group *group, struct ct_data data, int from, const struct ct_options *options)
{
    struct ct_request *request = NULL;
    int code = ct_recv_start(group, data, from, options, &request);

    return wait_for(code, request);
}

int ct_barrier(struct ct_group *group, const struct ct_options *options)
{
    struct ct_request *request = NULL;
    int code = ct_barrier_start(group, options, &request);

    return wait_for(code, request);
}
