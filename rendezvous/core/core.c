/* One step: note the time, let the event change the state, then look at the clocks.
 *
 * An event that names a member is checked first: its link must be the member's own, and its
 * sequence number newer than the last. What remains is handed to members.c (who is here) and
 * rounds.c (how rounds follow each other). */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    REATTACH_MS = 5000, /* at most */
    REUSE_MS = 5000,    /* beyond two leases, until an ended job's name may be used again */
};

const struct ct_rdzv_params ct_rdzv_params_default = {
    .nodes_min = 1,
    .nodes_max = 1,
    .join_timeout_ms = 600000,
    .last_call_ms = 300,
    .lease_ms = 5000,
    .prepare_ms = 30000,
    .grow_ms = 2000,
    .autonomy_ms = 600000,
    .cordon_faults = 3,
};

#define TO(name) | 1u << CT_RDZV_##name
static const unsigned phase_successors[CT_RDZV_PHASES] = {
#define CT_RDZV_PHASE(name, successors) [CT_RDZV_##name] = 0 successors,
#include "rendezvous/core/states.def"
#undef CT_RDZV_PHASE
};
#undef TO

int ct_rdzv_params_check(const struct ct_rdzv_params *params, struct ct_error *err)
{
    if (params->nodes_min == 0 || params->nodes_min > params->nodes_max)
        return ct_error_set(err, CT_EUSAGE,
                            "nodes %u:%u: the smallest number must be 1 or more "
                            "and not above the largest",
                            params->nodes_min, params->nodes_max);
    if (params->nodes_max > CT_RDZV_NODES_LIMIT)
        return ct_error_set(err, CT_EUSAGE, "%u nodes: at most %d are possible", params->nodes_max,
                            CT_RDZV_NODES_LIMIT);
    if (params->lease_ms < CT_RDZV_LEASE_MIN_MS)
        return ct_error_set(err, CT_EUSAGE,
                            "lease %u ms: at least %d ms, or a busy node is taken "
                            "for a dead one",
                            params->lease_ms, CT_RDZV_LEASE_MIN_MS);
    if (params->join_timeout_ms < params->last_call_ms)
        return ct_error_set(err, CT_EUSAGE,
                            "join timeout %u ms is shorter than the last call of "
                            "%u ms: raise join_timeout",
                            params->join_timeout_ms, params->last_call_ms);
    uint32_t heartbeat_ms = ct_rdzv_heartbeat_ms(params);
    if (heartbeat_ms > params->lease_ms / 2)
        return ct_error_set(err, CT_EUSAGE,
                            "lease %u ms is too short for up to %u nodes, which are heard every %u "
                            "ms: give a lease of %u ms or more",
                            params->lease_ms, params->nodes_max, heartbeat_ms, 2 * heartbeat_ms);
    if (params->prepare_ms < heartbeat_ms)
        return ct_error_set(err, CT_EUSAGE,
                            "%u ms to stop the workers is less than the heartbeat of %u ms, so "
                            "nobody could be asked twice: raise it",
                            params->prepare_ms, heartbeat_ms);
    if (params->autonomy_ms < 2 * (uint64_t)params->lease_ms)
        return ct_error_set(err, CT_EUSAGE,
                            "autonomy %u ms is less than two leases of %u ms, so workers would end "
                            "while the daemon restarts: raise it",
                            params->autonomy_ms, params->lease_ms);
    return 0;
}

uint32_t ct_rdzv_heartbeat_ms(const struct ct_rdzv_params *params)
{
    return CT_MAX(params->lease_ms / 5, params->nodes_max / 2);
}

uint32_t ct_rdzv_reattach_ms(uint32_t lease_ms)
{
    return CT_MIN(lease_ms / 50, (uint32_t)REATTACH_MS);
}

struct ct_rdzv_action *ct_rdzv_push(struct ct_rdzv *job, enum ct_rdzv_action_kind kind,
                                    uint64_t link)
{
    CT_ASSERT(job->out->count < CT_RDZV_ACTIONS_LIMIT);
    struct ct_rdzv_action *action = &job->out->list[job->out->count++];
    memset(action, 0, offsetof(struct ct_rdzv_action, text) + 1);
    action->kind = kind;
    action->link = link;
    return action;
}

void ct_rdzv_announce(struct ct_rdzv *job, enum ct_announcement kind, const char *format, ...)
{
    /* An announcement never takes the last places: other actions need them. */
    if (job->out->count >= CT_RDZV_ACTIONS_LIMIT - CT_RDZV_EFFECTS_LIMIT)
        return;
    struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_ANNOUNCE, 0);
    action->announcement = kind;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(action->text, sizeof(action->text), format, list);
    va_end(list);
}

void ct_rdzv_set_phase(struct ct_rdzv *job, enum ct_rdzv_phase phase)
{
    CT_ASSERT((phase_successors[job->phase] >> phase & 1u) != 0);
    job->phase = phase;
    job->phase_since_ms = job->now_ms;
}

void ct_rdzv_persist(struct ct_rdzv *job, enum ct_rdzv_record record)
{
    job->pending = record;
    job->retry_ms = UINT64_MAX;
    job->pending_seq = ct_rdzv_push_record(job, record);
}

uint64_t ct_rdzv_push_record(struct ct_rdzv *job, enum ct_rdzv_record record)
{
    struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_PERSIST, 0);
    action->record = record;
    action->seq = ++job->record_seq;
    action->generation = job->generation;
    return action->seq;
}

/* Several members asked in one step are asked in one action, however many they are. */
void ct_rdzv_push_prepare(struct ct_rdzv *job, uint64_t link)
{
    struct ct_rdzv_action *action = NULL;
    for (size_t i = 0; i < job->out->count && action == NULL; i++)
        if (job->out->list[i].kind == CT_RDZV_DO_PREPARE)
            action = &job->out->list[i];
    if (action == NULL)
        action = ct_rdzv_push(job, CT_RDZV_DO_PREPARE, link);
    else if (action->link != link)
        action->link = CT_RDZV_ALL;
    action->generation = job->generation;
    action->reason = job->reason;
    action->at_boundary = job->at_boundary;
}

/* The member that the event's link belongs to; NULL when it is none, or not any more. */
static struct ct_rdzv_member *member_of(struct ct_rdzv *job, const struct ct_rdzv_event *event)
{
    if (event->member >= job->capacity)
        return NULL;
    struct ct_rdzv_member *member = &job->members[event->member];
    bool is_named = event->link != 0 || event->kind == CT_RDZV_ON_DISCONNECT;
    return member->state != CT_RDZV_FREE && member->link == event->link && is_named ? member : NULL;
}

static void on_member_event(struct ct_rdzv *job, struct ct_rdzv_member *member,
                            const struct ct_rdzv_event *event)
{
    if (event->kind == CT_RDZV_ON_DISCONNECT) {
        ct_rdzv_on_disconnect(job, member, event->silent);
        return;
    }
    if (event->seq <= member->seq)
        return;
    member->seq = event->seq;
    switch (event->kind) {
    case CT_RDZV_ON_HEARTBEAT:
        ct_rdzv_on_heartbeat(job, member, event);
        break;
    case CT_RDZV_ON_PREPARED:
        ct_rdzv_on_prepared(job, member, event);
        break;
    case CT_RDZV_ON_FAILURE:
        ct_rdzv_on_failure(job, member, event->generation, event->failure);
        break;
    case CT_RDZV_ON_DONE:
        ct_rdzv_on_done(job, member, event->generation);
        break;
    case CT_RDZV_ON_LEAVE:
        ct_rdzv_on_leave(job, member, event->leave);
        break;
    case CT_RDZV_ON_PUBLISH:
        ct_rdzv_on_publish(job, member, event);
        break;
    default:
        break;
    }
}

/* The record that the phase waits for is kept, or not. */
static void on_pending(struct ct_rdzv *job, bool is_kept)
{
    enum ct_rdzv_record record = job->pending;
    if (is_kept || record == CT_RDZV_RECORD_CLOSE)
        ct_rdzv_on_persisted(job);
    if (is_kept)
        return;
    /* The end of a job is told even when the disk is full, for nothing contradicts it; the record
     * follows when it can. */
    job->pending = record;
    job->retry_ms = job->now_ms + CT_RDZV_PERSIST_RETRY_MS;
}

static void on_record(struct ct_rdzv *job, const struct ct_rdzv_event *event)
{
    bool is_kept = event->kind == CT_RDZV_ON_PERSISTED;
    if (!is_kept && !job->journal_failure_announced)
        ct_rdzv_announce(job, CT_ANNOUNCE_NO_RECORD,
                         "the journal cannot be written: no new round until it can");
    job->journal_failure_announced = !is_kept;
    if (event->seq == job->cordon_seq && event->seq != 0)
        ct_rdzv_on_cordon_record(job, is_kept);
    else if (event->seq == job->publishing_seq && event->seq != 0)
        ct_rdzv_on_publish_record(job, is_kept);
    else if (job->pending != 0 && event->seq == job->pending_seq)
        on_pending(job, is_kept);
}

/* What is over by now. Messages that wait may speak against it: so this is for ticks alone. */
static void check_clocks(struct ct_rdzv *job)
{
    if (job->scan_awake_ms <= ct_rdzv_awake_ms(job))
        ct_rdzv_scan_leases(job);
    ct_rdzv_round_tick(job);
    ct_rdzv_cordon_tick(job);
    if (job->retry_ms <= job->now_ms)
        ct_rdzv_persist(job, job->pending);
}

void ct_rdzv_step(struct ct_rdzv *job, uint64_t now_ms, const struct ct_rdzv_event *event,
                  struct ct_rdzv_actions *actions)
{
    CT_ASSERT(now_ms >= job->now_ms);
    actions->count = 0;
    job->out = actions;
    ct_rdzv_note_time(job, now_ms);

    if (event->kind == CT_RDZV_ON_JOIN) {
        ct_rdzv_on_join(job, event);
    } else if (event->kind == CT_RDZV_ON_DRAIN || event->kind == CT_RDZV_ON_CORDON ||
               event->kind == CT_RDZV_ON_UNCORDON) {
        ct_rdzv_on_order(job, event);
    } else if (event->kind == CT_RDZV_ON_PERSISTED || event->kind == CT_RDZV_ON_PERSIST_FAILED) {
        on_record(job, event);
    } else if (event->kind == CT_RDZV_ON_TICK) {
        check_clocks(job);
    } else {
        struct ct_rdzv_member *member = member_of(job, event);
        if (member != NULL)
            on_member_event(job, member, event);
    }
    job->ticked = event->kind == CT_RDZV_ON_TICK;
    job->due_ms = ct_rdzv_deadline(job);
    job->out = NULL;
}

uint64_t ct_rdzv_deadline(const struct ct_rdzv *job)
{
    uint64_t due = CT_MIN(ct_rdzv_lease_deadline(job), job->retry_ms);
    due = CT_MIN(due, CT_MIN(job->cordon_ms, job->cordon_retry_ms));
    if (job->verdict_ms != UINT64_MAX)
        return CT_MIN(due, job->verdict_ms);
    switch (job->phase) {
    case CT_RDZV_LOBBY:
    case CT_RDZV_PAUSED:
        due = CT_MIN(due, job->join_until_ms);
        break;
    case CT_RDZV_LAST_CALL:
        due = CT_MIN(due, job->call_until_ms);
        break;
    case CT_RDZV_PREPARE:
        if (job->pending == 0)
            due = CT_MIN(due, job->prepare_until_ms);
        if (job->hear_until_ms != 0)
            due = CT_MIN(due, CT_MAX(job->hear_until_ms, job->now_ms));
        break;
    case CT_RDZV_RECOVER:
        due = CT_MIN(due, job->leave_until_ms);
        break;
    case CT_RDZV_RUNNING:
        due = CT_MIN(due, job->grow_until_ms);
        break;
    case CT_RDZV_CLOSED:
        if (job->closed_ms + ct_rdzv_outlived_ms(job) > job->now_ms)
            due = CT_MIN(due, job->closed_ms + ct_rdzv_outlived_ms(job));
        break;
    default:
        break;
    }
    return due;
}

enum ct_rdzv_phase ct_rdzv_phase(const struct ct_rdzv *job)
{
    return job->phase;
}

uint64_t ct_rdzv_phase_since_ms(const struct ct_rdzv *job)
{
    return job->phase_since_ms;
}

const char *ct_rdzv_name(const struct ct_rdzv *job)
{
    return job->name;
}

uint64_t ct_rdzv_generation(const struct ct_rdzv *job)
{
    return job->generation;
}

enum ct_rdzv_reason ct_rdzv_last_reason(const struct ct_rdzv *job)
{
    return job->reason;
}

uint32_t ct_rdzv_restarts(const struct ct_rdzv *job)
{
    return job->restarts;
}

const struct ct_wire_failure *ct_rdzv_last_cause(const struct ct_rdzv *job)
{
    return job->restarts > 0 && job->cause.code != 0 ? &job->cause : NULL;
}

const struct ct_rdzv_params *ct_rdzv_params(const struct ct_rdzv *job)
{
    return &job->params;
}

const struct ct_wire_failure *ct_rdzv_others(const struct ct_rdzv *job, size_t *ret_count)
{
    *ret_count = job->other_count;
    return job->others;
}

const struct ct_rdzv_result *ct_rdzv_result(const struct ct_rdzv *job)
{
    return &job->result;
}

const struct ct_rdzv_publication *ct_rdzv_published(const struct ct_rdzv *job)
{
    return &job->published;
}

const struct ct_rdzv_roster *ct_rdzv_roster(const struct ct_rdzv *job)
{
    return &job->roster;
}

size_t ct_rdzv_capacity(const struct ct_rdzv *job)
{
    return job->capacity;
}

const struct ct_rdzv_member *ct_rdzv_member(const struct ct_rdzv *job, size_t index)
{
    CT_ASSERT(index < job->capacity);
    return &job->members[index];
}

const struct ct_rdzv_member *ct_rdzv_member_of(const struct ct_rdzv *job, struct ct_id id)
{
    return ct_rdzv_find(job, id);
}

uint64_t ct_rdzv_reusable_ms(const struct ct_rdzv *job, uint64_t now_ms)
{
    uint64_t from = job->closed_ms + 2 * (uint64_t)job->params.lease_ms + REUSE_MS;
    return from > now_ms ? from - now_ms : 0;
}

bool ct_rdzv_is_idle(const struct ct_rdzv *job)
{
    if (job->pending != 0 || job->count[CT_RDZV_FREE] < job->capacity)
        return false;
    if (job->phase != CT_RDZV_CLOSED)
        return job->generation == 0 && !ct_rdzv_is_elsewhere(job);
    uint32_t informed = 0;
    for (uint32_t i = 0; i < job->roster.count; i++)
        informed += job->roster.places[i].informed;
    return informed == job->roster.count ||
           job->closed_ms + ct_rdzv_outlived_ms(job) <= job->now_ms;
}
