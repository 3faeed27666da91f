/* A node has left the job, and its process is to end: may the others do without what it holds?
 *
 *      it leads     a round is being entered, or holders change: not yet
 *                   it holds the record alone, or too few of the others answer: it stays
 *                   else another one is asked to lead
 *      it led       it stays until another one serves; then its end is that of a follower */
#include "rendezvous/holder/holder_state.h"

#include <stdio.h>

enum { LED_LEASES = 2 /* and AWAY_MS more: who is away for so long is no holder any more */ };

/* The round's store is in the memory of the one that leads: a round that is being entered would
 * have to be made again. */
static enum ct_holder_duty duty_of_leader(struct ct_holder *holder, char *text, size_t room)
{
    const char *job = holder->limits.only_job;

    if (holder->voter_count == 0)
        (void)snprintf(text, room, "no other host holds the record of job %s", job);
    else if (holder->changes)
        (void)snprintf(text, room, "the hosts that hold the record of job %s change", job);
    else if (!ct_service_is_settled(holder->service))
        (void)snprintf(text, room, "a round of job %s is being made", job);
    else if (!ct_replica_is_spare(holder->replica, holder->now_ms))
        (void)snprintf(text, room,
                       "too few of the %zu other hosts that hold the record of job %s answer",
                       holder->voter_count, job);
    else if (holder->yielded_ms != 0 &&
             holder->now_ms < holder->yielded_ms + (uint64_t)holder->election_ms)
        (void)snprintf(text, room, "another host is to lead the rendezvous of job %s", job);
    else
        return CT_HOLDER_YIELDS;
    return CT_HOLDER_NEEDED;
}

enum ct_holder_duty ct_holder_duty(struct ct_holder *holder, uint64_t now_ms, char *text,
                                   size_t room)
{
    uint64_t patience_ms = LED_LEASES * (uint64_t)holder->lease_ms + CT_HOLDER_AWAY_MS;

    holder->now_ms = now_ms;
    text[0] = '\0';
    if (holder->service != NULL)
        return duty_of_leader(holder, text, room);
    if (holder->led_ms == 0 || ct_replica_is_led(holder->replica) ||
        now_ms - holder->led_ms >= patience_ms)
        return CT_HOLDER_FREE;
    (void)snprintf(text, room, "no other host leads the rendezvous of job %s yet",
                   holder->limits.only_job);
    return CT_HOLDER_NEEDED;
}
