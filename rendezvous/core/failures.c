/* What went wrong, and what it costs: failures of workers, lost nodes, the budget.
 *
 *      the first of an incident is its cause; it costs one restart, and the last one ends the job
 *      what breaks before the next round is committed belongs to the same incident
 *      a worker that ended because a peer was gone is a consequence: the peer is the cause
 *      the last failure that a job may have waits a moment for an earlier one of another node */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)CT_FAILURE_HOST_BYTES >= CT_RDZV_HOST_BYTES,
               "a member's host name is kept whole");

static bool is_over(const struct ct_rdzv *job)
{
    return job->phase == CT_RDZV_CLOSING || job->phase == CT_RDZV_CLOSED;
}

/* A worker that ended because a peer was gone: the peer is the cause, should it be heard of. */
static bool is_consequence(const struct ct_wire_failure *failure)
{
    return failure->rank >= 0 && (failure->code == CT_EREVOKED || failure->code == CT_ENODE_LOST ||
                                  failure->code == CT_ETIMEOUT);
}

static int status_of(const struct ct_wire_failure *failure)
{
    if (failure->signal > 0 && failure->code != CT_EHUNG) /* whose signal was ctrun's own */
        return 128 + failure->signal;
    if (failure->signal > 0)
        return ct_exit_status(failure->code);
    return failure->status > 0 ? failure->status : ct_exit_status(failure->code);
}

/* The failure that a lost node is; its text lies in `text`. */
static struct ct_wire_failure loss_of(const struct ct_rdzv_member *member, const char *why,
                                      char text[CT_FAILURE_TEXT_BYTES])
{
    (void)snprintf(text, CT_FAILURE_TEXT_BYTES, "node %d (host %s) was lost: %s", member->place,
                   member->host, why);
    return (struct ct_wire_failure){
        .code = CT_ENODE_LOST,
        .rank = -1,
        .local_rank = -1,
        .host = member->host,
        .text = text,
    };
}

/* When it happened, on the clock here. */
static uint64_t moment_of(const struct ct_rdzv *job, const struct ct_wire_failure *failure)
{
    return job->now_ms - CT_MIN(job->now_ms, failure->age_ms);
}

static void set_cause(struct ct_rdzv *job, const struct ct_wire_failure *failure)
{
    ct_failure_keep(&job->cause, failure, job->rooms.cause, sizeof(job->rooms.cause));
    job->cause_at_ms = moment_of(job, failure);
}

/* The job is to end over a consequence: a node whose connection just closed is the better cause. */
static void blame_silent_node(struct ct_rdzv *job)
{
    char text[CT_FAILURE_TEXT_BYTES];

    for (size_t i = 0; i < job->capacity && is_consequence(&job->cause); i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_ACTING || member->link != 0)
            continue;
        const struct ct_wire_failure loss = loss_of(member, "its connection closed", text);
        set_cause(job, &loss);
    }
}

void ct_rdzv_conclude(struct ct_rdzv *job)
{
    blame_silent_node(job);
    ct_rdzv_close(job, job->cause.code, status_of(&job->cause), &job->cause);
}

/* A peer is the better cause than who ended because of it; else the earlier failure is. */
static bool is_better_cause(const struct ct_rdzv *job, const struct ct_wire_failure *failure)
{
    if (!job->has_cause || is_consequence(&job->cause) != is_consequence(failure))
        return !job->has_cause || is_consequence(&job->cause);
    return job->cause.rank >= 0 && failure->rank >= 0 && moment_of(job, failure) < job->cause_at_ms;
}

/* May a node that has not reported one yet know of an earlier failure? Its worker may take longer
 * to end than those that ended because of it. */
static bool may_learn_of_earlier(const struct ct_rdzv *job, const struct ct_wire_failure *failure)
{
    bool acts = job->phase == CT_RDZV_RECOVER || job->phase == CT_RDZV_RUNNING;

    return acts && failure->rank >= 0 && job->failure_count < job->count[CT_RDZV_ACTING];
}

/* Keep a failure that is not the cause, in short: the last lines that there is room for. */
static void keep_other(struct ct_rdzv *job, const struct ct_wire_failure *failure)
{
    if (failure->rank < 0 || job->other_count == CT_RDZV_OTHERS)
        return;
    char *room = job->rooms.others[job->other_count];
    ct_failure_keep(&job->others[job->other_count++], failure, room, sizeof(job->rooms.others[0]));
}

/* Of two failures the better cause becomes the job's, the other one is kept beside it. */
static void weigh(struct ct_rdzv *job, const struct ct_wire_failure *failure)
{
    if (!is_better_cause(job, failure)) {
        keep_other(job, failure);
        return;
    }
    if (job->has_cause)
        keep_other(job, &job->cause);
    set_cause(job, failure);
    job->has_cause = true;
}

/* Charge the incident to the budget, once; the failure was weighed. False: the job is closing or
 * about to, because that was one too many or because the failure is fatal. */
static bool survives(struct ct_rdzv *job, const struct ct_wire_failure *failure)
{
    if (failure->fatal == CT_FAILURE_REPEATED) {
        ct_rdzv_close(job, CT_EREPEATED, ct_exit_status(CT_EREPEATED), failure);
        return false;
    }
    if (failure->fatal) {
        ct_rdzv_close(job, failure->code, status_of(failure), failure);
        return false;
    }
    if (job->charged)
        return true;
    if (job->restarts >= job->params.max_restarts) {
        if (!may_learn_of_earlier(job, failure))
            ct_rdzv_conclude(job);
        else if (job->verdict_ms == UINT64_MAX)
            job->verdict_ms = job->now_ms + CT_RDZV_VERDICT_MS;
        return false;
    }
    job->charged = true;
    job->restarts++;
    return true;
}

void ct_rdzv_lost(struct ct_rdzv *job, const struct ct_rdzv_member *member,
                  enum ct_rdzv_member_state was, const char *why)
{
    /* Whether a node left in order before the daemon restarted in mid-change is not known any more.
     */
    bool doubtful = member->presumed && job->reason == CT_RDZV_REASON_RESTART;
    bool done = member->place >= 0 && job->roster.places[member->place].done;
    bool counts = member->place >= 0 && !member->leaving && !doubtful && !done;
    if (was != CT_RDZV_DONE && !is_over(job))
        ct_rdzv_announce(job, CT_ANNOUNCE_NODE_LOST, "node %s is lost: %s", member->host, why);
    for (uint32_t i = 0; job->phase == CT_RDZV_COMMIT && i < job->next.count; i++)
        if (job->holder[i] >= 0 && &job->members[job->holder[i]] == member)
            job->holder[i] = -1;

    char text[CT_FAILURE_TEXT_BYTES];
    const struct ct_wire_failure failure = loss_of(member, why, text);
    switch (job->phase) {
    case CT_RDZV_LOBBY:
    case CT_RDZV_LAST_CALL:
    case CT_RDZV_PAUSED:
        ct_rdzv_gather(job, false);
        break;
    case CT_RDZV_PREPARE:
        if (counts)
            weigh(job, &failure);
        if (counts && !survives(job, &failure))
            return;
        if (member->place >= 0 && !done)
            ct_rdzv_cancel_boundary(job, CT_RDZV_REASON_LOST);
        ct_rdzv_draft(job);
        ct_rdzv_advance(job);
        break;
    case CT_RDZV_RECOVER:
    case CT_RDZV_RUNNING:
        if (was != CT_RDZV_ACTING)
            break;
        if (member->leaving && job->verdict_ms != UINT64_MAX) {
            ct_rdzv_conclude(job);
            break;
        }
        if (!member->leaving)
            weigh(job, &failure);
        if (member->leaving || survives(job, &failure))
            ct_rdzv_change(job, member->leaving ? CT_RDZV_REASON_LEAVE : CT_RDZV_REASON_LOST,
                           false);
        break;
    case CT_RDZV_COMMIT: /* seen to when the roster is durable */
    default:
        break;
    }
}

/* The first line of what a worker left behind: its error, its last words, or how it hung. */
static void announce_failure(struct ct_rdzv *job, const struct ct_rdzv_member *member,
                             const struct ct_wire_failure *failure)
{
    int length = (int)strcspn(failure->text, "\n");
    char end[CT_FAILURE_END];

    ct_rdzv_announce(
        job, failure->code == CT_EHUNG ? CT_ANNOUNCE_WORKER_HUNG : CT_ANNOUNCE_WORKER_FAILED,
        "rank %d of node %s %s%s%.*s", failure->rank, member->host, ct_failure_end(failure, end),
        length > 0 ? ": " : "", CT_MIN(length, 300), failure->text);
}

void ct_rdzv_on_failure(struct ct_rdzv *job, struct ct_rdzv_member *member, uint64_t generation,
                        const struct ct_wire_failure *failure)
{
    bool acts = ct_rdzv_acts(job);
    bool preparing =
        job->phase == CT_RDZV_PREPARE && (member->state == CT_RDZV_PREPARING || failure->fatal);

    if (member->place < 0 || generation != job->roster.generation)
        return;
    if (member->failed != generation) { /* else it repeats what waits for a verdict */
        announce_failure(job, member, failure);
        job->failure_count++;
        if (acts || preparing) {
            member->failed = generation;
            weigh(job, failure);
        }
    }
    if ((!acts && !preparing) || !survives(job, failure))
        return;
    if (acts)
        ct_rdzv_change(job, CT_RDZV_REASON_FAILURE, false);
    else
        ct_rdzv_cancel_boundary(job, CT_RDZV_REASON_FAILURE);
}
