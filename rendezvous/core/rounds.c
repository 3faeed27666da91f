/* How rounds follow each other; the picture is in core.h.
 *
 * Nothing is told before it is durable: begin() reserves a generation and PREPARE goes out when the
 * record is kept; commit() writes the roster and ROUND goes out when that is kept. Until COMMIT the
 * roster is open: whoever is lost is left out and whoever joins is asked too, so a burst of losses
 * or joins costs one generation, not one each. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPACING = 5 }; /* between two growths, in units of grow_ms */

/* ---- the end ---- */

void ct_rdzv_close(struct ct_rdzv *job, int code, int status, const struct ct_wire_failure *cause)
{
    CT_ASSERT(job->phase != CT_RDZV_CLOSING && job->phase != CT_RDZV_CLOSED);
    job->result = (struct ct_rdzv_result){
        .code = code,
        .status = status,
        .generation = job->roster.generation,
        .restarts = job->restarts,
    };
    ct_failure_keep(&job->result.cause, cause != NULL ? cause : &ct_failure_none, job->rooms.result,
                    sizeof(job->rooms.result));
    job->verdict_ms = UINT64_MAX;
    ct_rdzv_set_phase(job, CT_RDZV_CLOSING);
    ct_rdzv_persist(job, CT_RDZV_RECORD_CLOSE);
    ct_rdzv_announce(job, status == 0 ? CT_ANNOUNCE_ENDED_WELL : CT_ANNOUNCE_ENDED_BADLY,
                     "the job ends with status %d%s%s", status, cause ? ": " : "",
                     job->result.cause.text);
}

/* ---- gathering ---- */

static enum ct_rdzv_phase waiting_phase(const struct ct_rdzv *job)
{
    return job->roster.generation > 0 ? CT_RDZV_PAUSED : CT_RDZV_LOBBY;
}

/* Whoever had finished is to start again with the others. */
static void forget_done(struct ct_rdzv *job)
{
    job->done_count = 0;
    for (uint32_t i = 0; i < job->roster.count; i++)
        job->roster.places[i].done = false;
}

static void ask(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    member->prepare_sent_ms = job->now_ms;
    ct_rdzv_set_member(job, member, CT_RDZV_PREPARING);
}

void ct_rdzv_begin(struct ct_rdzv *job, enum ct_rdzv_reason reason, bool at_boundary)
{
    job->generation++;
    job->reason = reason;
    job->at_boundary = at_boundary;
    if (!at_boundary)
        forget_done(job);
    ct_rdzv_set_phase(job, CT_RDZV_PREPARE);
    ct_rdzv_persist(job, CT_RDZV_RECORD_RESERVE);
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        bool survivor = member->state == CT_RDZV_STANDBY && member->place >= 0;
        if (member->state == CT_RDZV_ACTING || member->state == CT_RDZV_DONE || survivor)
            ask(job, member);
    }
    ct_rdzv_draft(job);
    ct_rdzv_announce(job, CT_ANNOUNCE_ROUND_BEGUN, "round %" PRIu64 " is being made (%s)",
                     job->generation, ct_rdzv_reason_name(reason));
}

static void revoke_all(struct ct_rdzv *job)
{
    struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_REVOKE, CT_RDZV_ALL);
    action->generation = job->roster.generation;
    action->reason = job->reason;
}

/* Too few are left: everybody waits where it is, and nobody acts. */
static void pause(struct ct_rdzv *job, enum ct_rdzv_reason reason)
{
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE && member->state != CT_RDZV_STANDBY)
            ct_rdzv_stand_by(job, member);
    }
    job->reason = reason;
    job->join_until_ms = job->now_ms + job->params.join_timeout_ms;
    ct_rdzv_set_phase(job, waiting_phase(job));
    if (job->phase != CT_RDZV_PAUSED)
        return;
    ct_rdzv_announce(job, CT_ANNOUNCE_PAUSED, "too few nodes are left: the job waits for others");
    if (job->generation == job->roster.generation) {
        /* A daemon that comes back must know that this round was given up. */
        job->generation++;
        ct_rdzv_persist(job, CT_RDZV_RECORD_RESERVE);
    } else if (job->pending == 0) {
        revoke_all(job);
    }
}

void ct_rdzv_gather(struct ct_rdzv *job, bool newcomer)
{
    if (job->phase != CT_RDZV_LOBBY && job->phase != CT_RDZV_PAUSED &&
        job->phase != CT_RDZV_LAST_CALL)
        return;
    const struct ct_rdzv_params *p = &job->params;
    if (ct_rdzv_usable(job, CT_RDZV_POOL_ALL) < p->nodes_min) {
        if (job->phase == CT_RDZV_LAST_CALL)
            ct_rdzv_set_phase(job, waiting_phase(job));
        return;
    }
    if (job->phase != CT_RDZV_LAST_CALL) {
        ct_rdzv_set_phase(job, CT_RDZV_LAST_CALL);
        newcomer = true;
    }
    if (newcomer)
        job->call_until_ms = job->now_ms + p->last_call_ms;
    if (ct_rdzv_is_elsewhere(job)) {
        job->call_until_ms = CT_MAX(job->call_until_ms, job->elsewhere_until_ms);
        return;
    }
    bool complete = ct_rdzv_candidates(job) >= p->nodes_max || p->nodes_min == p->nodes_max;
    if (complete || job->call_until_ms <= job->now_ms)
        ct_rdzv_begin(job, job->roster.generation > 0 ? job->reason : CT_RDZV_REASON_FORM, false);
}

/* ---- PREPARE ---- */

static int by_joined(const void *a, const void *b, void *context)
{
    const struct ct_rdzv_member *members = context;
    uint64_t ja = members[*(const uint32_t *)a].joined;
    uint64_t jb = members[*(const uint32_t *)b].joined;
    return (ja > jb) - (ja < jb);
}

/* The round being made has too few nodes, or none that give a world that the job can use: it asks
 * hosts too that are to pause after they were lost. */
static bool is_short(const struct ct_rdzv *job)
{
    return ct_rdzv_usable(job, CT_RDZV_POOL_DRAFTED) < job->params.nodes_min;
}

static bool is_wanted(const struct ct_rdzv *job, const struct ct_rdzv_member *member, bool is_short)
{
    bool may_come = member->state == CT_RDZV_STANDBY && !member->leaving && !member->barred;
    return is_short ? may_come : ct_rdzv_is_eligible(job, member);
}

void ct_rdzv_draft_one(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    if (ct_rdzv_drafted(job) >= job->params.nodes_max || !is_wanted(job, member, is_short(job)))
        return;
    ask(job, member);
    if (job->pending == 0)
        ct_rdzv_push_prepare(job, member->link);
}

/* Ask those who are wanted, in the order of their coming, while there is room. */
static void draft_wanted(struct ct_rdzv *job, bool is_short)
{
    size_t have = ct_rdzv_drafted(job);
    size_t waiting = 0;
    for (size_t i = 0; i < job->capacity && job->count[CT_RDZV_STANDBY] > 0; i++)
        if (is_wanted(job, &job->members[i], is_short))
            job->order[waiting++] = (uint32_t)i;
    qsort_r(job->order, waiting, sizeof(*job->order), by_joined, job->members);
    size_t room = job->params.nodes_max - CT_MIN(have, job->params.nodes_max);
    size_t taken = CT_MIN(waiting, room);
    for (size_t i = 0; i < taken; i++)
        ask(job, &job->members[job->order[i]]);
    if (taken > 0 && job->pending == 0)
        ct_rdzv_push_prepare(job, taken > 1 ? CT_RDZV_ALL : job->members[job->order[0]].link);
}

void ct_rdzv_draft(struct ct_rdzv *job)
{
    draft_wanted(job, false);
    if (is_short(job))
        draft_wanted(job, true);
}

static void prepare_all(struct ct_rdzv *job)
{
    job->prepare_until_ms = job->now_ms + job->params.prepare_ms;
    ct_rdzv_push_prepare(job, CT_RDZV_ALL);
}

void ct_rdzv_cancel_boundary(struct ct_rdzv *job, enum ct_rdzv_reason reason)
{
    if (!job->at_boundary)
        return;
    job->at_boundary = false;
    job->reason = reason;
    forget_done(job);
    if (job->pending == 0)
        prepare_all(job);
}

void ct_rdzv_advance(struct ct_rdzv *job)
{
    if (job->phase != CT_RDZV_PREPARE)
        return;
    if (ct_rdzv_drafted(job) < job->params.nodes_min) {
        pause(job, job->reason);
        return;
    }
    if (job->pending != 0 || job->publishing_seq != 0 || job->count[CT_RDZV_PREPARING] > 0 ||
        job->hear_until_ms > job->now_ms)
        return;
    struct ct_error err = {0};
    ct_rdzv_assign(job);
    if (job->next.count < job->params.nodes_min) {
        pause(job, job->reason); /* no world of theirs is one that the job can use */
        return;
    }
    if (ct_rdzv_choose_base(job, &err) != 0) {
        const struct ct_wire_failure cause = {
            .code = err.code, .rank = -1, .local_rank = -1, .text = err.text};
        ct_rdzv_close(job, err.code, ct_exit_status(err.code), &cause);
        return;
    }
    ct_rdzv_set_phase(job, CT_RDZV_COMMIT);
    ct_rdzv_persist(job, CT_RDZV_RECORD_COMMIT);
}

void ct_rdzv_on_prepared(struct ct_rdzv *job, struct ct_rdzv_member *member,
                         const struct ct_rdzv_event *event)
{
    if (job->phase != CT_RDZV_PREPARE || event->generation != job->generation ||
        (member->state != CT_RDZV_PREPARING && member->state != CT_RDZV_PROMISED))
        return;
    member->acted = event->acted;
    member->lineage = event->lineage;
    member->step = event->step;
    member->digest = event->digest;
    member->port = event->port;
    if (member->state == CT_RDZV_PREPARING)
        ct_rdzv_set_member(job, member, CT_RDZV_PROMISED);
    if (member->leaving)
        ct_rdzv_release(job, member);
    ct_rdzv_advance(job);
}

/* ---- COMMIT ---- */

/* The roster is durable: its members act, with whatever happened since then seen to at once. */
static void start_round(struct ct_rdzv *job)
{
    struct ct_rdzv_roster old = job->roster;
    job->roster = job->next;
    job->next = old;
    job->done_count = job->recovered_count = 0;
    for (size_t i = 0; i < job->capacity; i++)
        job->members[i].place = job->members[i].old_place = -1;
    for (uint32_t i = 0; i < job->roster.count; i++) {
        struct ct_rdzv_member *back = NULL;
        if (job->holder[i] >= 0)
            job->members[job->holder[i]].place = (int32_t)i;
        else
            back = ct_rdzv_find(job, job->roster.places[i].id);
        if (back != NULL)
            back->old_place = (int32_t)i; /* lost since it promised, and here again */
    }
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_PROMISED)
            continue;
        if (member->place >= 0)
            ct_rdzv_set_member(job, member, CT_RDZV_ACTING);
        else
            ct_rdzv_stand_by(job, member);
    }

    ct_rdzv_set_phase(job, CT_RDZV_RECOVER);
    job->charged = false;
    job->has_cause = false;
    job->failure_count = 0;
    job->other_count = 0;
    job->running_since_ms = job->now_ms;
    job->store_lost = false;
    job->lost_generation = 0;
    job->leave_until_ms = job->leavers > 0 ? job->now_ms + job->params.prepare_ms : UINT64_MAX;
    ct_rdzv_push(job, CT_RDZV_DO_ROUND, CT_RDZV_ALL)->generation = job->roster.generation;
    ct_rdzv_announce(job, CT_ANNOUNCE_ROUND_RUNS,
                     "round %" PRIu64 " runs with %u node%s, %u rank%s", job->roster.generation,
                     job->roster.count, job->roster.count == 1 ? "" : "s", job->roster.world,
                     job->roster.world == 1 ? "" : "s");
}

/* Somebody was lost while the roster was being made durable. */
static void handle_late_losses(struct ct_rdzv *job)
{
    for (uint32_t i = 0; i < job->roster.count; i++) {
        int32_t holder = job->holder[i];
        if (holder >= 0)
            continue;
        struct ct_rdzv_member gone = {.place = (int32_t)i, .node_rank = -1};
        ct_str_copy(gone.host, sizeof(gone.host), job->roster.places[i].host);
        ct_rdzv_lost(job, &gone, CT_RDZV_ACTING, "it went while the round was made");
        if (job->phase != CT_RDZV_RECOVER)
            return;
    }
}

void ct_rdzv_on_persisted(struct ct_rdzv *job)
{
    enum ct_rdzv_record record = job->pending;
    job->pending = 0;
    job->retry_ms = UINT64_MAX;
    switch (record) {
    case CT_RDZV_RECORD_RESERVE:
        if (job->cordons_changed)
            ct_rdzv_keep_cordons(job);
        if (job->phase == CT_RDZV_PREPARE) {
            prepare_all(job);
            ct_rdzv_advance(job);
        } else if (job->roster.generation > 0) {
            revoke_all(job);
        }
        break;
    case CT_RDZV_RECORD_COMMIT:
        start_round(job);
        handle_late_losses(job);
        break;
    case CT_RDZV_RECORD_CLOSE:
        if (job->phase == CT_RDZV_CLOSED)
            break;
        ct_rdzv_set_phase(job, CT_RDZV_CLOSED);
        ct_rdzv_mark_all_informed(job);
        ct_rdzv_push(job, CT_RDZV_DO_CLOSE, CT_RDZV_ALL);
        break;
    default: /* the others are not waited for by a phase */
        break;
    }
}

/* ---- RECOVER and RUNNING ---- */

bool ct_rdzv_acts(const struct ct_rdzv *job)
{
    return job->phase == CT_RDZV_RECOVER || job->phase == CT_RDZV_RUNNING;
}

static bool somebody_leaves(const struct ct_rdzv *job)
{
    for (size_t i = 0; i < job->capacity && job->leavers > 0; i++)
        if (job->members[i].leaving && job->members[i].state == CT_RDZV_ACTING)
            return true;
    return false;
}

void ct_rdzv_recovered(struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    struct ct_rdzv_place *place = &job->roster.places[member->place];
    if (job->phase != CT_RDZV_RECOVER || place->recovered)
        return;
    place->recovered = true;
    if (++job->recovered_count < job->roster.count)
        return;
    ct_rdzv_set_phase(job, CT_RDZV_RUNNING);
    if (somebody_leaves(job))
        ct_rdzv_change(job, CT_RDZV_REASON_LEAVE, true);
    else
        ct_rdzv_plan_growth(job, NULL);
}

void ct_rdzv_change(struct ct_rdzv *job, enum ct_rdzv_reason reason, bool at_boundary)
{
    CT_ASSERT(ct_rdzv_acts(job));
    job->grow_until_ms = UINT64_MAX;
    if (job->verdict_ms != UINT64_MAX) /* it is to end: there is no other round to wait for */
        ct_rdzv_conclude(job);
    else if (ct_rdzv_usable(job, CT_RDZV_POOL_ALL) >= job->params.nodes_min)
        ct_rdzv_begin(job, reason, at_boundary);
    else
        pause(job, reason);
}

static void plan_for(struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    uint64_t spaced = job->running_since_ms + (uint64_t)SPACING * job->params.grow_ms;
    uint64_t ripe = CT_MAX(member->eligible_ms, job->now_ms + job->params.grow_ms);
    if (member->state == CT_RDZV_STANDBY && !member->leaving && !member->barred)
        job->grow_until_ms = CT_MIN(job->grow_until_ms, CT_MAX(ripe, spaced));
}

void ct_rdzv_plan_growth(struct ct_rdzv *job, const struct ct_rdzv_member *newcomer)
{
    if (job->phase != CT_RDZV_RUNNING || job->done_count > 0 ||
        ct_rdzv_usable(job, CT_RDZV_POOL_ALL) <= job->count[CT_RDZV_ACTING])
        return;
    for (size_t i = 0; newcomer == NULL && i < job->capacity; i++)
        plan_for(job, &job->members[i]);
    if (newcomer != NULL)
        plan_for(job, newcomer);
}

void ct_rdzv_on_done(struct ct_rdzv *job, struct ct_rdzv_member *member, uint64_t generation)
{
    /* On the way to a step boundary workers may come to the end instead. */
    bool on_the_way = job->phase == CT_RDZV_PREPARE && job->at_boundary &&
                      member->state == CT_RDZV_PREPARING && member->place >= 0;
    bool acting = ct_rdzv_acts(job) && member->state == CT_RDZV_ACTING;
    if ((!acting && !on_the_way) || generation != job->roster.generation ||
        job->roster.places[member->place].done)
        return;
    if (member->state == CT_RDZV_ACTING)
        ct_rdzv_set_member(job, member, CT_RDZV_DONE);
    job->roster.places[member->place].done = true;
    job->grow_until_ms = UINT64_MAX;
    if (++job->done_count == job->roster.count)
        ct_rdzv_close(job, 0, 0, NULL);
    else
        ct_rdzv_recovered(job, member);
}

/* ---- clocks ---- */

/* MIN was not reached in time: say who is there and who is missing. */
static void give_up_waiting(struct ct_rdzv *job)
{
    char waiting[1024], text[CT_FAILURE_TEXT_BYTES];
    const struct ct_wire_failure cause = {
        .code = CT_ETIMEOUT, .rank = -1, .local_rank = -1, .text = text};
    ct_rdzv_describe(job, waiting, sizeof(waiting));
    (void)snprintf(text, sizeof(text),
                   "gave up after %u.%03u s: %s; start the missing nodes or raise --join_timeout",
                   job->params.join_timeout_ms / 1000, job->params.join_timeout_ms % 1000, waiting);
    if (job->has_cause) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used, " (the job stopped when %.600s)",
                       job->cause.text);
    }
    ct_rdzv_close(job, CT_ETIMEOUT, ct_exit_status(CT_ETIMEOUT), &cause);
}

/* Those who did not stop their workers in time are given up. */
static void give_up_asking(struct ct_rdzv *job)
{
    if (job->at_boundary) {
        ct_rdzv_cancel_boundary(job, job->reason);
        return;
    }
    job->prepare_until_ms = job->now_ms + job->params.prepare_ms; /* for those asked from now on */
    if (ct_rdzv_is_isolated(job))
        return;
    for (size_t i = 0; i < job->capacity && job->phase == CT_RDZV_PREPARE; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_PREPARING)
            continue;
        uint64_t until_ms = member->prepare_sent_ms + job->params.prepare_ms;
        if (until_ms > job->now_ms) { /* drafted later, maybe for one who was given up just now */
            job->prepare_until_ms = CT_MIN(job->prepare_until_ms, until_ms);
            continue;
        }
        char why[128];
        (void)snprintf(why, sizeof(why), "it did not stop its workers within %u ms",
                       job->params.prepare_ms);
        ct_rdzv_set_member(job, member, CT_RDZV_FREE);
        ct_rdzv_lost(job, member, CT_RDZV_PREPARING, why);
    }
}

/* Newcomers are due, if they are still here. */
static void grow(struct ct_rdzv *job)
{
    job->grow_until_ms = UINT64_MAX;
    bool larger = ct_rdzv_usable(job, CT_RDZV_POOL_GROWTH) > job->count[CT_RDZV_ACTING];
    for (size_t i = 0; larger && i < job->capacity; i++) {
        if (ct_rdzv_is_eligible(job, &job->members[i])) {
            ct_rdzv_change(job, CT_RDZV_REASON_GROW, true);
            return;
        }
    }
    ct_rdzv_plan_growth(job, NULL);
}

void ct_rdzv_round_tick(struct ct_rdzv *job)
{
    if (job->verdict_ms != UINT64_MAX) {
        if (job->verdict_ms <= job->now_ms)
            ct_rdzv_conclude(job);
        return;
    }
    switch (job->phase) {
    case CT_RDZV_LOBBY:
    case CT_RDZV_PAUSED:
        if (job->join_until_ms > job->now_ms)
            break;
        if (job->count[CT_RDZV_FREE] < job->capacity || job->roster.generation > 0)
            give_up_waiting(job);
        else
            job->join_until_ms = UINT64_MAX;
        break;
    case CT_RDZV_LAST_CALL:
        ct_rdzv_gather(job, false);
        break;
    case CT_RDZV_PREPARE:
        if (job->hear_until_ms != 0 && job->hear_until_ms <= job->now_ms) {
            job->hear_until_ms = 0;
            ct_rdzv_advance(job);
        } else if (job->pending == 0 && job->prepare_until_ms <= job->now_ms)
            give_up_asking(job);
        break;
    case CT_RDZV_RECOVER:
        if (job->leave_until_ms > job->now_ms)
            break;
        job->leave_until_ms = UINT64_MAX;
        if (somebody_leaves(job))
            ct_rdzv_change(job, CT_RDZV_REASON_LEAVE, false);
        break;
    case CT_RDZV_RUNNING:
        if (job->grow_until_ms <= job->now_ms)
            grow(job);
        break;
    default:
        break;
    }
}
