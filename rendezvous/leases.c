/* Who is still here: leases, closed connections, and the times when the daemon cannot tell.
 *
 *      heard                         the lease runs anew
 *      connection closed by its end  the node died, or is about to connect again: a short while
 *      silent for a lease            lost
 *      all silent at once            the daemon itself is cut off, in all likelihood: nobody is
 *                                    lost before somebody is heard again, or all must have given
 *                                    up; leases last longer by the time in which nobody was heard
 *      the daemon was away itself    leases last as much longer */
#include "rendezvous/core_state.h"

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

void ct_rdzv_contact(struct ct_rdzv *job)
{
    uint64_t silence_ms = job->now_ms - job->contact_ms;
    bool was_cut_off = ct_rdzv_hears_nobody(job);
    job->contact_ms = job->now_ms;
    if (!job->is_deaf && was_cut_off)
        ct_rdzv_extend_leases(job, job->now_ms, silence_ms);
    if (!job->is_deaf)
        return;
    job->is_deaf = false;
    job->excused_ms = job->now_ms + job->params.lease_ms + GRACE_MS;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE)
            member->lease_until_ms = CT_MAX(member->lease_until_ms, job->excused_ms);
    }
    ct_rdzv_announce(job, "nodes are heard again");
}

bool ct_rdzv_hears_nobody(const struct ct_rdzv *job)
{
    uint64_t silence = job->now_ms - job->contact_ms;
    bool several = job->capacity - job->count[CT_RDZV_FREE] >= 2;
    return several && job->roster.generation > 0 && job->phase != CT_RDZV_CLOSED &&
           silence > 2 * (uint64_t)ct_rdzv_heartbeat_ms(&job->params) &&
           silence < ct_rdzv_outlived_ms(job);
}

/* ---- leases ---- */

void ct_rdzv_renew_lease(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    ct_rdzv_contact(job);
    member->heard_ms = job->now_ms;
    member->lease_until_ms = job->now_ms + job->params.lease_ms;
    job->scan_ms = CT_MIN(job->scan_ms, member->lease_until_ms);
}

void ct_rdzv_extend_leases(struct ct_rdzv *job, uint64_t now_ms, uint64_t gap_ms)
{
    uint64_t least = now_ms + ct_rdzv_heartbeat_ms(&job->params);
    job->excused_ms = now_ms + job->params.lease_ms;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE)
            member->lease_until_ms = CT_MAX(member->lease_until_ms + gap_ms, least);
    }
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
    bool keep = job->phase != CT_RDZV_CLOSED;
    uint64_t until = job->now_ms + (keep ? ct_rdzv_reattach_ms(job->params.lease_ms) : 0);
    member->lease_until_ms =
        keep && job->excused_ms > until ? job->excused_ms : CT_MIN(member->lease_until_ms, until);
    job->scan_ms = CT_MIN(job->scan_ms, member->lease_until_ms);
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
                       job->now_ms - member->heard_ms);
    ct_rdzv_set_member(job, member, CT_RDZV_FREE);
    if (member->place >= 0 && was != CT_RDZV_DONE)
        ct_rdzv_note_loss(job, member->host);
    ct_rdzv_lost(job, member, was, why);
}

void ct_rdzv_scan_leases(struct ct_rdzv *job)
{
    uint64_t next = UINT64_MAX;
    bool hears_nobody = ct_rdzv_hears_nobody(job);
    job->scan_ms = UINT64_MAX;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state == CT_RDZV_FREE)
            continue;
        if (member->lease_until_ms <= job->now_ms && hears_nobody && !member->hung_up) {
            if (!job->is_deaf)
                ct_rdzv_announce(job, "no node is heard: the daemon itself seems to be cut off");
            job->is_deaf = true;
            member->lease_until_ms = job->now_ms + ct_rdzv_heartbeat_ms(&job->params);
        }
        if (member->lease_until_ms > job->now_ms)
            next = CT_MIN(next, member->lease_until_ms);
        else
            drop(job, member);
    }
    job->scan_ms = CT_MIN(job->scan_ms, next);
}
