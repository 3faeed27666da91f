/* Who is still here: leases, closed connections, and the times when the daemon cannot tell.
 *
 *      heard                         the lease runs anew
 *      connection closed by its end  the node died, or is about to connect again: a short while
 *      silent for a lease            lost
 *      all silent at once            the daemon itself is cut off, in all likelihood: nobody is
 *                                    lost before somebody is heard again, or all must have given
 *                                    up; leases last longer by the time in which nobody was heard
 *      the daemon was away itself    leases last as much longer
 *
 * The daemon's own stalls (a stopped process, a busy machine, a full disk) are seen by steps that
 * come later than they were due, and a step is due at least every half of a heartbeat while
 * there are members. Leases run on a clock that stands still while a step is late: so each ends
 * after as much waking time as it is long, in which the daemon looked many times. Only ticks end
 * leases, and the loop reads what has arrived before a tick: nobody is lost whose word lies unread
 * in a socket. A node whose agent lives in the daemon's own process has no lease to lose. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    GRACE_MS = 5 * 1000, /* beyond a lease, to find the daemon again */
};

/* ---- contact ---- */

/* Agents end their workers after autonomy_ms without a daemon, by clocks that are at most so wrong.
 */
uint64_t ct_rdzv_outlived_ms(const struct ct_rdzv *job)
{
    return job->params.autonomy_ms + job->params.autonomy_ms / 20;
}

/* How long nobody was heard while the daemon was awake. */
static uint64_t silence_ms(const struct ct_rdzv *job)
{
    return job->now_ms - job->contact_ms - (job->stalled_ms - job->contact_stalled_ms);
}

/* Nobody was heard for so long: the daemon was cut off, and knows nothing of the members. */
static void extend_leases(struct ct_rdzv *job, uint64_t gap_ms)
{
    uint64_t awake = ct_rdzv_awake_ms(job);
    uint64_t least = awake + ct_rdzv_heartbeat_ms(&job->params);
    job->excused_awake_ms = awake + job->params.lease_ms;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE && member->lease_awake_ms != UINT64_MAX &&
            !member->missed)
            member->lease_awake_ms = CT_MAX(member->lease_awake_ms + gap_ms, least);
    }
}

void ct_rdzv_contact(struct ct_rdzv *job)
{
    uint64_t silent_ms = silence_ms(job);
    bool was_cut_off = ct_rdzv_is_isolated(job);
    job->contact_ms = job->now_ms;
    job->contact_stalled_ms = job->stalled_ms;
    if (!job->is_cut_off && was_cut_off)
        extend_leases(job, silent_ms);
    if (!job->is_cut_off)
        return;
    job->is_cut_off = false;
    job->excused_awake_ms = ct_rdzv_awake_ms(job) + job->params.lease_ms + GRACE_MS;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE && !member->missed)
            member->lease_awake_ms = CT_MAX(member->lease_awake_ms, job->excused_awake_ms);
    }
    ct_rdzv_announce(job, CT_ANNOUNCE_HEARD, "nodes are heard again");
}

bool ct_rdzv_is_isolated(const struct ct_rdzv *job)
{
    bool several = job->capacity - job->count[CT_RDZV_FREE] >= 2;
    return several && job->roster.generation > 0 && job->phase != CT_RDZV_CLOSED &&
           silence_ms(job) > 2 * (uint64_t)ct_rdzv_heartbeat_ms(&job->params) &&
           job->now_ms - job->contact_ms < ct_rdzv_outlived_ms(job);
}

/* ---- the daemon's own stalls ---- */

uint64_t ct_rdzv_awake_ms(const struct ct_rdzv *job)
{
    return job->now_ms - job->stalled_ms;
}

void ct_rdzv_note_time(struct ct_rdzv *job, uint64_t now_ms)
{
    uint64_t due_ms = CT_MAX(job->due_ms, job->now_ms);
    uint64_t late_ms = now_ms > due_ms ? now_ms - due_ms : 0;
    uint32_t heartbeat_ms = ct_rdzv_heartbeat_ms(&job->params);
    job->now_ms = now_ms;
    job->late_ms = late_ms;
    if (late_ms == 0)
        return;
    uint64_t forgotten_ms = (now_ms - late_ms - CT_MIN(job->stall_ms, now_ms - late_ms)) / 5;
    job->stall_sum_ms = late_ms + job->stall_sum_ms - CT_MIN(job->stall_sum_ms, forgotten_ms);
    job->stalled_ms += late_ms;
    job->stall_ms = now_ms;
    job->prepare_until_ms += late_ms; /* whoever is to promise may have been stopped likewise */
    if (job->stall_sum_ms > heartbeat_ms)
        job->excused_awake_ms = ct_rdzv_awake_ms(job) + job->params.lease_ms;
}

uint64_t ct_rdzv_lease_deadline(const struct ct_rdzv *job)
{
    uint64_t poll_ms = CT_MAX(ct_rdzv_heartbeat_ms(&job->params) / 2, 1u);
    if (job->count[CT_RDZV_FREE] == job->capacity)
        return UINT64_MAX;
    /* Jobs with one lease look at one time, so that many of them wake the daemon no more often. */
    uint64_t poll = (job->now_ms / poll_ms + 1) * poll_ms;
    return job->scan_awake_ms == UINT64_MAX ? poll
                                            : CT_MIN(poll, job->scan_awake_ms + job->stalled_ms);
}

/* ---- leases ---- */

static void set_lease(struct ct_rdzv *job, struct ct_rdzv_member *member, uint64_t until_awake_ms)
{
    member->lease_awake_ms = until_awake_ms;
    job->scan_awake_ms = CT_MIN(job->scan_awake_ms, until_awake_ms);
}

void ct_rdzv_renew_lease(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    ct_rdzv_contact(job);
    member->received_ms = job->now_ms;
    member->spared = member->missed = false;
    set_lease(job, member, member->own ? UINT64_MAX : ct_rdzv_awake_ms(job) + job->params.lease_ms);
}

/* ---- losses ---- */

/* The member is no more. Its place keeps what is known of it. */
static void drop(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    enum ct_rdzv_member_state was = member->state;
    char why[128];
    if (member->hung_up)
        (void)snprintf(why, sizeof(why), "its connection closed");
    else
        (void)snprintf(why, sizeof(why), "not heard for %" PRIu64 " ms",
                       job->now_ms - member->received_ms);
    ct_rdzv_set_member(job, member, CT_RDZV_FREE);
    if (member->place >= 0 && was != CT_RDZV_DONE)
        ct_rdzv_note_loss(job, member->host);
    ct_rdzv_lost(job, member, was, why);
}

/* A closed connection leaves as long as a living agent needs to connect again. One that closed
 * while the daemon was away has a whole lease, and one of a daemon that was cut off as long as
 * those that are silent: its agent may be between two attempts by now. */
void ct_rdzv_on_disconnect(struct ct_rdzv *job, struct ct_rdzv_member *member, bool silent)
{
    member->link = 0;
    if (silent)
        return; /* nobody closed it: the lease runs on */
    ct_rdzv_contact(job);
    member->hung_up = true;
    if (job->phase == CT_RDZV_CLOSED) {
        drop(job, member);
        return;
    }
    uint64_t until = ct_rdzv_awake_ms(job) + ct_rdzv_reattach_ms(job->params.lease_ms);
    bool is_excused = job->excused_awake_ms > until;
    set_lease(job, member,
              is_excused ? job->excused_awake_ms : CT_MIN(member->lease_awake_ms, until));
}

/* A lease that ends as the daemon wakes lasts once more for as long as it was away: who connects
 * again takes more than one reading. */
void ct_rdzv_scan_leases(struct ct_rdzv *job)
{
    uint64_t next = UINT64_MAX;
    uint64_t awake = ct_rdzv_awake_ms(job);
    uint64_t heartbeat_ms = ct_rdzv_heartbeat_ms(&job->params);
    bool is_isolated = ct_rdzv_is_isolated(job);
    bool is_late = job->late_ms > 1; /* a timer's own grain is no stall */
    job->scan_awake_ms = UINT64_MAX;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state == CT_RDZV_FREE)
            continue;
        uint64_t until = member->lease_awake_ms;
        if (until <= awake && is_late && !member->spared) {
            member->spared = true;
            until = member->lease_awake_ms = awake + CT_MIN(job->late_ms, heartbeat_ms);
        } else if (until <= awake && is_isolated && !member->hung_up && !member->missed) {
            if (!job->is_cut_off)
                ct_rdzv_announce(job, CT_ANNOUNCE_UNHEARD,
                                 "no node is heard: the daemon itself seems to be cut off");
            job->is_cut_off = true;
            until = member->lease_awake_ms = awake + heartbeat_ms;
        }
        if (until > awake)
            next = CT_MIN(next, until);
        else
            drop(job, member);
    }
    job->scan_awake_ms = CT_MIN(job->scan_awake_ms, next);
}
