/* Requests: start, progress, waiting.
 *
 * The happy path of a blocking call is start, a few looks at the backend, done; no clock is read.
 * What has to wait longer climbs a ladder: look again and again for as long as the backend finds
 * useful, then give the core to others for a moment, then sleep until the backend is rung or a
 * slice of 10 ms is over, so that a revocation, which rings no backend's bell, is seen. Whenever
 * something moved the ladder starts anew. */
#include "recorder.h"

#include "base/assert.h"
#include "base/clock.h"
#include "cause.h"
#include "exchange.h"

#include <sched.h>

enum { YIELD_NS = 100000, SLICE_NS = 10000000, QUICK_LOOKS = 50 };

/* ---- failure ---------------------------------------------------------------------------------*/

void ct_group_break(struct ct_group *group, int code)
{
    CT_ASSERT(code < 0);
    group->failure.code = code;
    group->backend->fail(group->state, code);
    ct_worker_record_failed(group->record, code);
    for (int i = 0; i < group->queued; i++) {
        ct_recorder_end(group->queue[i], true);
        group->queue[i]->over = true;
        group->queue[i]->code = code;
    }
    group->queued = 0;
}

/* ---- progress --------------------------------------------------------------------------------*/

/* Must `later` wait for `before`? Collectives do for each other, and so do exchanges, and the
 * messages of one pair and direction; an exchange looks itself which of its own have to wait. */
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
        if (waits_for(group, &group->queue[index]->task.call, &group->queue[i]->task))
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
    ct_recorder_end(request, false);
    group->queued--;
    for (int i = index; i < group->queued; i++)
        group->queue[i] = group->queue[i + 1];
}

/* Whom a request waits for; -1 when not known. */
static int missing_of(const struct ct_request *request)
{
    const struct ct_group *group = request->group;

    if (request->task.call.kind == CT_CALL_EXCHANGE)
        return ct_exchange_missing(group);
    return group->backend->missing(group->state, &request->task);
}

/* Who reads the record wants to know whom the call that fails has waited for. */
static void record_missing(struct ct_group *group, int missing)
{
    ct_worker_record_beat(group->record, ct_clock_mono_ns(&ct_clock_system), group->moves,
                          missing >= 0 ? group->ranks[missing] : -1);
}

static void fail(struct ct_group *group, const struct ct_request *request, int code)
{
    char what[128];

    ct_signature_print(request->task.signature, what, sizeof what);
    record_missing(group, missing_of(request));
    code = ct_cause_settle(group, code);
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

        if (may_advance(group, i)) {
            ct_recorder_start(group->queue[i]);
            code = progress(group, task);
        }
        if (code < 0) {
            fail(group, group->queue[i], code);
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
    int awaited = missing_of(request);
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
    if (!request->over && request->group->backend->spins(request->group->state) >= QUICK_LOOKS)
        (void)look(request, QUICK_LOOKS);
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

int ct_request_start(struct ct_group *group, const struct ct_call *call, uint64_t timeout_ms,
                     struct ct_request **ret_request)
{
    struct ct_request *request = group->free;

    if (group->failure.code != 0)
        return group->failure.code;
    if (request == NULL)
        return CT_ELIMIT;
    group->free = request->next_free;
    request->task = (struct ct_task){.call = *call, .signature = ct_call_signature(call)};
    request->timeout_ms = timeout_ms != 0 ? timeout_ms : group->timeout_ms;
    request->number = ct_call_is_transfer(call) ? 0 : ++group->collectives;
    if (request->number != 0)
        ct_worker_record_entered(group->record, request->number);
    request->first_test_ns = 0;
    request->over = false;
    request->code = 0;
    ct_recorder_begin(request);
    group->queue[group->queued++] = request;
    *ret_request = request;
    return 0;
}
