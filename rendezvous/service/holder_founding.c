/* When a record is founded: by who starts, and by who is left.
 *
 * Two voters have no majority without each other. When the ctrun of one is known to be dead, the
 * other goes on; and the one that led goes on when the other has been silent for a lease. The one
 * that did not lead never does because of silence, so there are never two. */
#include "rendezvous/service/holder_state.h"

#include "base/assert.h"

uint64_t holder_epoch(const struct ct_holder *holder)
{
    return (ct_replica_era(holder->replica) >> 32) << 32 | ct_replica_term(holder->replica);
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
    holder->voter_count = 0;
    ct_replica_found(anew);
    return true;
}

static void found_anew(struct ct_holder *holder, const char *why)
{
    uint64_t era = new_era(holder, (ct_replica_era(holder->replica) >> 32) + 1);

    holder_log(holder, CT_LOG_INFO, "host %s holds the rendezvous alone: %s", holder->host, why);
    if (ct_replica_found_anew(holder->replica, holder->now_ms, era) != 0)
        return;
    if (holder->service != NULL)
        ct_service_raise(holder->service, holder_epoch(holder));
}

static bool others_are_dead(const struct ct_holder *holder)
{
    bool dead = holder->voter_count > 0;

    for (size_t i = 0; i < holder->voter_count; i++)
        dead = dead && holder_is_dead(holder, holder->voters[i].id);
    return dead;
}

void holder_go_on_without_silent(struct ct_holder *holder)
{
    uint64_t id = holder->voters[0].id;

    if (holder->service != NULL || holder->voter_count != 1 ||
        holder->now_ms - holder->voters[0].heard_ms < holder_silence_ms(holder) ||
        !ct_replica_holds_all(holder->replica, holder->now_ms))
        return;
    found_anew(holder, "the other one has been silent for a lease, and never led");
    if (holder->service != NULL)
        ct_service_node_died(holder->service, holder->now_ms, id);
}

/* With an empty record, which this host waited to hold, it has ended with all who held it, and
 * nobody will tell more: where the nodes meet, it is as if this ctrun had just been started. */
void holder_go_on_without_dead(struct ct_holder *holder)
{
    struct ct_replica_server first;

    if (!others_are_dead(holder))
        return;
    if (!ct_replica_server(holder->replica, 0, &first) && holder->at_endpoint)
        (void)holder_found(holder, (ct_replica_era(holder->replica) >> 32) + 1);
    else if (ct_replica_holds_all(holder->replica, holder->now_ms))
        found_anew(holder, "the ctrun of each other host that held it is dead");
}
