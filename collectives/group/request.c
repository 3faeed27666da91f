/* Requests: start, progress, waiting.
 *
 * The happy path of a blocking call is start, a few polls of the backend, done; no clock is read. A
 * call that waits longer backs off in steps: it polls as often as the backend finds useful, then
 * yields its core, then parks until the backend is woken or a slice of 10 ms is over, so that it
 * notices a revocation, which wakes no backend. Whenever something moved it starts over.
 *
 * Each call acquires the group from its helper (helper.h) before it touches open requests, and
 * releases it; a request that is over is freed without. */
#include "group/recorder.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/processor.h"
#include "group/exchange.h"
#include "group/failure_cause.h"

#include <sched.h>

enum { YIELD_NS = 100000, SLICE_NS = 10000000, FIRST_POLLS = 50 };

static inline bool is_over(const struct ct_request *request)
{
    return atomic_load_explicit(&request->over, memory_order_acquire);
}

/* From here on the group's thread may free and reuse the request, whichever thread owns the
 * group. */
static inline void end(struct ct_request *request, int code)
{
    request->code = code;
    atomic_store_explicit(&request->over, true, memory_order_release);
}

static inline uint64_t moves_of(const struct ct_group *group)
{
    return atomic_load_explicit(&group->moves, memory_order_relaxed);
}

/* ---- failure ---------------------------------------------------------------------------------*/

/* The code that is reported to the others: to them, a rank whose device has failed has left. */
static int reported(int code)
{
    return code == CT_EDEVICE ? CT_ECLOSED : code;
}

void ct_group_break(struct ct_group *group, int code)
{
    int queued = group->queued;

    CT_ASSERT(code < 0);
    group->failure.code = code;
    group->backend->fail(group->state, reported(code));
    ct_worker_record_failed(group->record, code);
    atomic_store(&group->broken, code);
    group->queued = 0;
    for (int i = 0; i < queued; i++) {
        ct_recorder_end(group->queue[i], true);
        end(group->queue[i], code);
    }
}

/* ---- progress --------------------------------------------------------------------------------*/

/* Whether `later` must wait for `before`. Collectives do for each other, and so do exchanges, and
 * the messages of one pair and direction; an exchange decides itself which of its messages wait. */
static bool waits_for(const struct ct_group *group, const struct ct_call *later,
                      const struct ct_task *before)
{
    const struct ct_call *earlier = &before->call;

    if (!ct_call_is_transfer(later) || later->kind == CT_CALL_EXCHANGE)
        return later->kind == CT_CALL_EXCHANGE ? earlier->kind == later->kind
                                               : !ct_call_is_transfer(earlier);
    if (earlier->kind == CT_CALL_EXCHANGE)
        return ct_exchange_holds(group, before, later->kind, later->peer);
    return later->kind == earlier->kind && later->peer == earlier->peer;
}

static bool may_advance(const struct ct_group *group, int index)
{
    for (int i = 0; i < index; i++)
        if (!group->queue[i]->task.queued &&
            waits_for(group, &group->queue[index]->task.call, &group->queue[i]->task))
            return false;
    return true;
}

static void finish(struct ct_group *group, int index)
{
    struct ct_request *request = group->queue[index];

    if (request->number != 0) {
        ct_worker_record_completed(group->record, request->number);
        group->last = request->task.algorithm;
    }
    ct_recorder_end(request, false);
    group->queued--;
    for (int i = index; i < group->queued; i++)
        group->queue[i] = group->queue[i + 1];
    end(request, 0);
}

/* The member that a request waits for; -1 when not known. */
static int missing_of(const struct ct_request *request)
{
    const struct ct_group *group = request->group;

    if (request->task.call.kind == CT_CALL_EXCHANGE)
        return ct_exchange_missing(group);
    return group->backend->missing(group->state, &request->task);
}

/* Record the member that a failing call has waited for. */
static void record_missing(struct ct_group *group, int missing)
{
    ct_worker_record_heartbeat(group->record, ct_clock_mono_ns(&ct_clock_system), moves_of(group),
                               missing >= 0 ? group->ranks[missing] : -1);
}

static void fail(struct ct_group *group, const struct ct_request *request, int code)
{
    char what[128];

    ct_signature_print(request->task.signature, what, sizeof what);
    record_missing(group, missing_of(request));
    code = ct_failure_cause_find(group, code);
    if (code != CT_EMISMATCH)
        ct_error_prefix(&group->failure, "%s at rank %d", what, group->rank);
    ct_group_break(group, code);
}

static int progress(struct ct_group *group, struct ct_task *task)
{
    if (task->call.kind == CT_CALL_EXCHANGE)
        return ct_exchange_progress(group, task, &group->failure);
    return group->backend->progress(group->state, task, &group->failure);
}

void ct_group_advance(struct ct_group *group)
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

        if (may_advance(group, i)) {
            ct_recorder_start(group->queue[i]);
            code = progress(group, task);
        }
        if (code < 0) {
            fail(group, group->queue[i], code);
            return;
        }
        if (task->moves != moves)
            atomic_store_explicit(&group->moves, moves_of(group) + task->moves - moves,
                                  memory_order_relaxed);
        if (code == 1)
            finish(group, i);
        else
            i++;
    }
}

static void expire(struct ct_request *request)
{
    struct ct_group *group = request->group;
    int missing = missing_of(request);
    char what[128];

    ct_signature_print(request->task.signature, what, sizeof what);
    record_missing(group, missing);
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

/* Poll at most `polls` times; true when the request is over or anything has moved. */
static bool poll_group(struct ct_request *request, int polls)
{
    struct ct_group *group = request->group;
    uint64_t moves = moves_of(group);

    for (int i = 0; i < polls && !is_over(request) && moves_of(group) == moves; i++) {
        ct_relax();
        ct_group_advance(group);
    }
    return is_over(request) || moves_of(group) != moves;
}

/* Record that this thread waits, and for which call. */
static void record_wait(struct ct_request *request, uint64_t now)
{
    uint64_t number = request->number != 0 ? request->number : CT_RECORD_TRANSFER;

    ct_worker_record_wait(request->group->record, number, now);
}

static void record_details(struct ct_request *request, uint64_t now)
{
    struct ct_group *group = request->group;
    int awaited = missing_of(request);
    char words[CT_RECORD_TEXT];

    ct_signature_print(request->task.signature, words, sizeof words);
    ct_worker_record_text(group->record, words);
    ct_worker_record_heartbeat(group->record, now, moves_of(group),
                               awaited >= 0 ? group->ranks[awaited] : -1);
}

static void park(struct ct_request *request, uint64_t timeout_ns)
{
    struct ct_group *group = request->group;
    uint32_t armed = group->backend->arm(group->state);

    group->backend->park(group->state, armed, poll_group(request, 1) ? 0 : timeout_ns);
}

/* Or until `limit_ns` have passed. */
static void wait_until_over(struct ct_request *request, uint64_t limit_ns)
{
    struct ct_group *group = request->group;
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);
    uint64_t deadline = now + request->timeout_ms * 1000000u, idle_since = now, since = now;
    uint64_t limit = limit_ns < UINT64_MAX - now ? now + limit_ns : UINT64_MAX;
    int spins = group->backend->spins(group->state);

    record_wait(request, now);

    while (!is_over(request)) {
        bool moved = poll_group(request, now == idle_since ? spins : 1);

        now = ct_clock_mono_ns(&ct_clock_system);
        if (is_over(request) || now >= limit)
            break;
        if (now >= deadline) {
            expire(request);
        } else if (moved) {
            idle_since = now;
        } else if (now - idle_since < YIELD_NS) {
            (void)sched_yield();
        } else {
            record_details(request, now);
            park(request, CT_MIN(CT_MIN(deadline, limit) - now, (uint64_t)SLICE_NS));
        }
    }
    ct_worker_record_woke(group->record);
    group->waited_ns += now - since;
}

/* Free the request, and return its code. */
static int release(struct ct_request *request)
{
    int code = request->code;

    request->next_free = request->group->free;
    request->group->free = request;
    return code;
}

static void wait_by_itself(struct ct_request *request, uint64_t limit_ns)
{
    struct ct_group *group = request->group;

    ct_helper_acquire(group);
    if (!is_over(request))
        ct_group_advance(group);
    if (!is_over(request) && group->backend->spins(group->state) >= FIRST_POLLS)
        (void)poll_group(request, FIRST_POLLS);
    if (!is_over(request))
        wait_until_over(request, limit_ns);
    ct_helper_release(group);
}

int ct_wait(struct ct_request *request)
{
    if (!is_over(request))
        wait_by_itself(request, UINT64_MAX);
    return release(request);
}

/* Whether a tested request has timed out. Its time starts with the first test. */
static bool is_overdue(struct ct_request *request)
{
    struct ct_group *group = request->group;
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);

    if (request->first_test_ns == 0) {
        request->first_test_ns = now;
        record_wait(request, now);
    }
    ct_worker_record_heartbeat(group->record, now, moves_of(group), -1);
    return now - request->first_test_ns >= request->timeout_ms * 1000000u;
}

int ct_test(struct ct_request *request)
{
    struct ct_group *group = request->group;

    if (!is_over(request) && !ct_helper_is_busy(group)) {
        ct_helper_acquire(group);
        ct_group_advance(group);
        ct_helper_release(group);
    }
    if (!is_over(request)) {
        if (!is_overdue(request))
            return 0;
        ct_helper_acquire(group);
        if (!is_over(request))
            expire(request);
    }
    if (request->first_test_ns != 0)
        ct_worker_record_woke(group->record);
    int code = release(request);
    return code == 0 ? 1 : code;
}

int ct_wait_for(struct ct_request *request, uint64_t timeout_us)
{
    if (!is_over(request))
        wait_by_itself(request, timeout_us * 1000);
    return ct_test(request);
}

/* ---- start -----------------------------------------------------------------------------------*/

/* Number and record the request, unless the small-message fast path has (small_message.h). */
static void begin(struct ct_request *request)
{
    struct ct_group *group = request->group;

    if (group->posted_call.posted) {
        request->number = group->posted_call.number;
        request->entry = group->posted_call.entry;
        request->queued = group->posted_call.queued;
        request->started = true;
        group->posted_call.posted = false;
        return;
    }
    request->number = ct_call_is_transfer(&request->task.call) ? 0 : ++group->collectives;
    if (request->number != 0)
        ct_worker_record_entered(group->record, request->number);
    ct_recorder_begin(request);
}

int ct_request_start(struct ct_group *group, const struct ct_call *call, uint64_t timeout_ms,
                     struct ct_request **ret_request)
{
    struct ct_request *request = group->free;

    if (ct_group_broken(group) != 0)
        return ct_group_broken(group);
    if (request == NULL)
        return CT_ELIMIT;
    ct_helper_acquire(group);
    if (ct_group_broken(group) != 0)
        return ct_group_broken(group);
    group->free = request->next_free;
    request->task = (struct ct_task){.call = *call,
                                     .signature = ct_call_signature(call),
                                     .moves = 0,
                                     .at = 0,
                                     .part = 0,
                                     .skipped = 0,
                                     .stage = 0,
                                     .path = 0,
                                     .algorithm = CT_ALGO_NONE,
                                     .queued = false};
    request->timeout_ms = timeout_ms != 0 ? timeout_ms : group->timeout_ms;
    request->first_test_ns = 0;
    request->code = 0;
    atomic_store_explicit(&request->over, false, memory_order_relaxed);
    begin(request);
    group->queue[group->queued++] = request;
    *ret_request = request;
    if (!group->waiting && !(group->backend->batches && ct_call_is_transfer(call))) {
        ct_group_advance(group);
        ct_helper_release(group);
    }
    return 0;
}
