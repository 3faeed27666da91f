/* When a record is founded: by who starts, and by who is left.
 *
 * Two voters have no majority without each other. When the ctrun of one is known to be dead, the
 * other goes on; and the one that led goes on when the other has been silent for a lease. The one
 * that did not lead never does because of silence, so there are never two. */
#include "rendezvous/holder/holder_state.h"

#include "base/assert.h"

#include <stdio.h>

enum { HEAR_MS = 3000 };

uint64_t holder_epoch(const struct ct_holder *holder)
{
    uint64_t count = ct_replica_era(holder->replica) >> 32;

    return CT_MAX(count, holder_raised_count(holder)) << 32 | ct_replica_term(holder->replica);
}

/* Era number `count`, with 32 random bits: no other founder's, even if two found at once. */
static uint64_t new_era(struct ct_holder *holder, uint64_t count)
{
    return count << 32 | (ct_rng_next(&holder->rng) & UINT32_MAX);
}

uint64_t holder_silence_ms(const struct ct_holder *holder)
{
    return CT_MAX((uint64_t)holder->lease_ms, CT_REPLICA_ALONE * (uint64_t)holder->election_ms);
}

struct ct_replica *holder_new_replica(struct ct_holder *holder, uint64_t era)
{
    const struct ct_replica_options options = {
        .id = holder->id,
        .era = era,
        .address = holder->address,
        .seed = holder->id,
        .election_ms = holder->election_ms,
        .now_ms = holder->now_ms,
        .io = &holder->replica_io,
    };

    return ct_replica_new(&options);
}

bool holder_found(struct ct_holder *holder, uint64_t count)
{
    struct ct_replica *anew = holder_new_replica(holder, new_era(holder, count));

    if (anew == NULL)
        return false;
    ct_replica_free(holder->replica);
    holder->replica = anew;
    holder->known.count = 0;
    holder->left_count = 0;
    holder->voter_count = 0;
    holder->follows_generation = 0;
    ct_replica_found(anew);
    return true;
}

/* The ids of those who hold the record and are not known to be dead; how many hold it. */
static size_t list_living(const struct ct_holder *holder, uint64_t ids[CT_REPLICA_SERVERS],
                          size_t *ret_living)
{
    struct ct_holder_voters voters;

    holder_list_voters(holder, &voters);
    *ret_living = 0;
    for (uint32_t i = 0; i < voters.count; i++)
        if (voters.list[i].id == holder->id || !holder_is_dead(holder, voters.list[i].id))
            ids[(*ret_living)++] = voters.list[i].id;
    return voters.count;
}

/* This host alone holds the record, in the era of number `count`. 0 or CT_ENOMEM. */
static int hold_alone(struct ct_holder *holder, uint64_t count)
{
    holder->left_ms = holder->now_ms;
    (void)list_living(holder, holder->left, &holder->left_count);
    if (ct_replica_found_anew(holder->replica, holder->now_ms, new_era(holder, count)) != 0)
        return CT_ENOMEM;
    if (holder->service != NULL)
        ct_service_raise(holder->service, holder_epoch(holder));
    return 0;
}

/* With a service that nodes may bring up to date, if others may know of more than this record. */
static int found_anew(struct ct_holder *holder, bool is_whole, const char *why)
{
    holder_log(holder, CT_LOG_INFO, "host %s holds the rendezvous alone: %s", holder->host, why);
    holder->partial = holder->partial || !is_whole;
    return hold_alone(holder, (holder_epoch(holder) >> 32) + 1);
}

/* Nodes that live have been told to wait, and ask again every second or two (client/member.c). */
int holder_go_on_alone(struct ct_holder *holder, const char *why)
{
    int rc = found_anew(holder, false, why);

    if (rc == 0 && holder->service != NULL)
        ct_service_hear_for(holder->service, HEAR_MS);
    return rc;
}

/* ---- deaths --------------------------------------------------------------------------------- */

bool ct_holder_is_orphan(const struct ct_holder *holder)
{
    uint64_t ids[CT_REPLICA_SERVERS];
    size_t living, count = list_living(holder, ids, &living);
    bool is_last = holder->service == NULL && living == 1 && ids[0] == holder->id;

    return holder->peers == NULL && (living == 0 ? count > 0 : is_last && count > 1);
}

bool holder_votes(const struct ct_holder *holder)
{
    struct ct_replica_server one;

    for (size_t i = 0; ct_replica_server(holder->replica, i, &one); i++)
        if (one.id == holder->id)
            return true;
    return false;
}

/* The same era of all that know of the same deaths. */
static uint64_t era_of_living(const struct ct_holder *holder, const uint64_t *ids, size_t count)
{
    uint64_t era = ct_replica_era(holder->replica), sum = era;

    for (size_t i = 0; i < count; i++) /* in any order */
        sum += ct_mix64(ids[i] ^ era);
    return ((era >> 32) + 1) << 32 | (uint32_t)sum;
}

/* Is one of those that live known to lead? It goes on alone. */
static bool is_led(const struct ct_holder *holder, const uint64_t *ids, size_t living)
{
    uint64_t leader = ct_replica_leader(holder->replica);

    for (size_t i = 0; i < living; i++)
        if (ids[i] == leader && leader != holder->id)
            return true;
    return false;
}

/* No majority lives any more. One that leads has all that anybody was told; others go on with what
 * they have, if they surely vote still: what only the dead held, nodes may tell. */
static void go_on_in_minority(struct ct_holder *holder, const uint64_t *ids, size_t living)
{
    if (holder->service != NULL) {
        if (ct_replica_holds_all(holder->replica, holder->now_ms))
            (void)found_anew(holder, true, "no majority of the hosts that held it lives");
        return;
    }
    if (!holder_votes(holder) || is_led(holder, ids, living) ||
        !ct_replica_known_within(holder->replica, holder->now_ms, holder->lease_ms))
        return;
    if (living == 1) {
        (void)found_anew(holder, false, "the ctrun of each other host that held it is dead");
        return;
    }
    holder->partial = true;
    holder_log(holder, CT_LOG_INFO,
               "no majority of the hosts that held the rendezvous lives: %zu go on", living);
    (void)ct_replica_reduce(holder->replica, holder->now_ms, era_of_living(holder, ids, living),
                            ids, living);
}

void holder_describe_orphan(const struct ct_holder *holder, char *text, size_t room)
{
    const char *job = holder->limits.only_job;

    if (holder_votes(holder))
        (void)snprintf(
            text, room,
            "the others that held the record of job %s with host %s are dead, but had not "
            "heard it for a lease, and may have gone on without it: it goes on when ctrun "
            "is started again where the nodes meet, or with `ctrun takeover` here",
            job, holder->host);
    else
        (void)snprintf(
            text, room,
            "all hosts that held the record of job %s are dead; it goes on when ctrun is "
            "started again where the nodes meet",
            job);
}

/* An empty record, which this host waited to hold, has ended with all who held it, and nobody will
 * tell more: where the nodes meet, it is as if this ctrun had just been started. */
static void begin_as_orphan(struct ct_holder *holder)
{
    char text[300];

    if (holder->at_endpoint) {
        (void)holder_found(holder, (ct_replica_era(holder->replica) >> 32) + 1);
        return;
    }
    holder_describe_orphan(holder, text, sizeof text);
    holder_log(holder, CT_LOG_WARN, "%s", text);
}

void holder_go_on_without_dead(struct ct_holder *holder)
{
    struct ct_replica_server first;
    uint64_t ids[CT_REPLICA_SERVERS];
    size_t living, count = list_living(holder, ids, &living);

    if (!ct_replica_server(holder->replica, 0, &first)) {
        if (count > 0 && living == 0)
            begin_as_orphan(holder);
    } else if (living == count) {
        return;
    } else if (living == 1 && ct_replica_holds_all(holder->replica, holder->now_ms)) {
        (void)found_anew(holder, true, "the ctrun of each other host that held it is dead");
    } else if (2 * living <= count) {
        go_on_in_minority(holder, ids, living);
    }
}

bool holder_succeed(struct ct_holder *holder, uint64_t epoch)
{
    uint64_t count = CT_MAX(epoch, holder_epoch(holder)) >> 32;

    if (holder->service == NULL)
        return false;
    if (ct_service_generation(holder->service) > 0) {
        if (holder->partial) /* the node may come when that is on the record */
            holder_raise(holder, epoch);
        return false;
    }
    return ct_replica_holds_all(holder->replica, holder->now_ms) && /* or another was elected */
           hold_alone(holder, count + 1) == 0;
}

/* ---- silence, and an operator's word -------------------------------------------------------- */

void holder_go_on_without_silent(struct ct_holder *holder)
{
    uint64_t id = holder->voters[0].id;

    if (holder->service != NULL || holder->voter_count != 1 ||
        holder->now_ms - holder->voters[0].heard_ms < holder_silence_ms(holder) ||
        !ct_replica_holds_all(holder->replica, holder->now_ms))
        return;
    (void)found_anew(holder, true, "the other one has been silent for a lease, and never led");
    if (holder->service != NULL)
        ct_service_node_died(holder->service, holder->now_ms, id);
}

/* Is somebody known to serve the job? Says who. */
static bool is_served(const struct ct_holder *holder, char *text, size_t room)
{
    uint64_t leader = ct_replica_leader(holder->replica);
    const char *address = NULL;
    struct ct_holder_voters voters;

    holder_list_voters(holder, &voters);
    for (uint32_t i = 0; i < voters.count; i++)
        if (voters.list[i].id == leader && leader != holder->id && !holder_is_dead(holder, leader))
            address = voters.list[i].address;
    if (holder->service != NULL && ct_service_generation(holder->service) > 0)
        address = holder->address;
    if (address != NULL)
        (void)snprintf(text, room,
                       "job %s lives, its rendezvous is at %s: nothing is to be taken over",
                       holder->limits.only_job, address);
    return address != NULL;
}

int holder_take_over(struct ct_holder *holder, const char *author, char *text, size_t room)
{
    char why[300];

    if (is_served(holder, text, room))
        return CT_EINUSE;
    (void)snprintf(why, sizeof why, "%.250s has taken it over", author);
    if (holder->service != NULL) { /* a founder without a round: nodes bring theirs */
        holder->partial = true;
        ct_service_set_rebuild(holder->service, CT_RDZV_REBUILD_OF_ALL);
        holder_log(holder, CT_LOG_INFO, "host %s takes nodes of any round: %s", holder->host, why);
    } else if (!holder_votes(holder)) {
        (void)snprintf(text, room,
                       "host %s does not hold the record of job %s: give this order on one that "
                       "does, or start ctrun at its endpoint and give it there",
                       holder->host, holder->limits.only_job);
        return CT_ENOTFOUND;
    } else if (holder_go_on_alone(holder, why) != 0) {
        (void)snprintf(text, room, "no memory for the record");
        return CT_ENOMEM;
    }
    (void)snprintf(text, room, "the rendezvous of job %s is at host %s now",
                   holder->limits.only_job, holder->host);
    return 0;
}
