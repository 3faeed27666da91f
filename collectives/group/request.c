/* Requests: start, progress, waiting.
 *
 * The happy path of a blocking call is start, a few looks at the backend, done; no clock is read.
 * What has to wait longer climbs a ladder: look again and again for as long as the backend finds
 * useful, then give the core to others for a moment, then sleep until the backend is rung or a
 * slice of 10 ms is over, so that a revocation, which rings no backend's bell, is seen. Whenever
 * something moved the ladder starts anew.
 *
 * Each call takes the group from its helper (helper.h) before it touches what is under way, and
 * offers it back; a request that is over is given back without. */
#include "group/recorder.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/relax.h"
#include "group/exchange.h"
#include "group/failure_cause.h"

#include <sched.h>

enum { YIELD_NS = 100000, SLICE_NS = 10000000, QUICK_LOOKS = 50 };

static inline bool is_over(const struct ct_request *request)
{
    return atomic_load_explicit(&request->over, memory_order_acquire);
}

/* From here on the group's thread may give it back and use it again, whoever had the group. */
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

/* What the others are told: for them, a rank whose device has failed is one that has gone. */
static int told(int code)
{
    return code == CT_EDEVICE ? CT_ECLOSED : code;
}

void ct_group_break(struct ct_group *group, int code)
{
    int queued = group->queued;

    CT_ASSERT(code < 0);
    group->failure.code = code;
    group->backend->fail(group->state, told(code));
    ct_worker_record_failed(group->record, code);
    atomic_store(&group->broken, code);
    group->queued = 0;
    for (int i = 0; i < queued; i++) {
        ct_recorder_end(group->queue[i], true);
        end(group->queue[i], code);
    }
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
    ct_worker_record_heartbeat(group->record, ct_clock_mono_ns(&ct_clock_system), moves_of(group),
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

/* Look at most `looks` times; true when the request is over or anything has moved. */
static bool look(struct ct_request *request, int looks)
{
    struct ct_group *group = request->group;
    uint64_t moves = moves_of(group);

    for (int i = 0; i < looks && !is_over(request) && moves_of(group) == moves; i++) {
        ct_relax();
        ct_group_advance(group);
    }
    return is_over(request) || moves_of(group) != moves;
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
    char words[CT_RECORD_TEXT];

    ct_signature_print(request->task.signature, words, sizeof words);
    ct_worker_record_text(group->record, words);
    ct_worker_record_heartbeat(group->record, now, moves_of(group),
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

    while (!is_over(request)) {
        bool moved = look(request, now == idle_since ? spins : 1);

        now = ct_clock_mono_ns(&ct_clock_system);
        if (is_over(request))
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
    struct ct_group *group = request->group;

    if (is_over(request))
        return claim(request);
    ct_helper_take(group);
    if (!is_over(request))
        ct_group_advance(group);
    if (!is_over(request) && group->backend->spins(group->state) >= QUICK_LOOKS)
        (void)look(request, QUICK_LOOKS);
    if (!is_over(request))
        wait_until_over(request);
    ct_helper_offer(group);
    return claim(request);
}

/* Has the time of a request that is tested been up? The first test begins it. */
static bool is_late(struct ct_request *request)
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

    if (!is_over(request) && !ct_helper_works(group)) {
        ct_helper_take(group);
        ct_group_advance(group);
        ct_helper_offer(group);
    }
    if (!is_over(request)) {
        if (!is_late(request))
            return 0;
        ct_helper_take(group);
        if (!is_over(request))
            expire(request);
    }
    if (request->first_test_ns != 0)
        ct_worker_record_woke(group->record);
    int code = claim(request);
    return code == 0 ? 1 : code;
}

/* ---- start -----------------------------------------------------------------------------------*/

/* It gets a number, and is recorded; unless the quick way has done so (small_message.h). */
static void begin(struct ct_request *request)
{
    struct ct_group *group = request->group;

    if (group->early.posted) {
        request->number = group->early.number;
        request->turn = group->early.turn;
        request->queued = group->early.queued;
        request->started = true;
        group->early.posted = false;
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
    ct_helper_take(group);
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
        ct_helper_offer(group);
    }
    return 0;
}
