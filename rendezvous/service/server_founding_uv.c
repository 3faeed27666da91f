/* When a record is founded: by who starts, and by who is left.
 *
 * Two voters have no majority without each other. When the ctrun of one is known to be dead, the
 * other goes on; and the one that led goes on when the other has been silent for a lease. The one
 * that did not lead never does because of silence, so there are never two. */
#include "rendezvous/service/server_state_uv.h"

#include "base/assert.h"

uint64_t ct_server_epoch(const struct ct_server_replica *of)
{
    return (ct_replica_era(of->replica) >> 32) << 32 | ct_replica_term(of->replica);
}

uint64_t ct_server_new_era(uint64_t count)
{
    uint32_t random = 0;

    (void)uv_random(NULL, NULL, &random, sizeof random, 0, NULL);
    return count << 32 | random;
}

uint64_t ct_server_silence_ms(const struct ct_server_replica *of)
{
    return CT_MAX((uint64_t)of->lease_ms, CT_REPLICA_ALONE * (uint64_t)of->election_ms);
}

struct ct_replica *ct_server_new_replica(struct ct_server_replica *of, uint64_t era)
{
    const struct ct_replica_options options = {
        .id = of->id,
        .era = era,
        .address = of->address,
        .seed = of->id,
        .election_ms = of->election_ms,
        .now_ms = ct_server_now_ms(of->server),
        .io = &of->io,
    };

    return ct_replica_new(&options);
}

static void found_anew(struct ct_server_replica *of, const char *why)
{
    struct ct_rdzv_server *server = of->server;
    uint64_t era = ct_server_new_era((ct_replica_era(of->replica) >> 32) + 1);

    ct_log_event(server->log, CT_LOG_INFO, "replica", "host %s holds the rendezvous alone: %s",
                 of->host, why);
    if (ct_replica_found_anew(of->replica, ct_server_now_ms(server), era) != 0)
        return;
    if (server->service != NULL)
        ct_service_raise(server->service, ct_server_epoch(of));
}

static bool others_are_dead(const struct ct_server_replica *of)
{
    bool dead = of->voter_count > 0;

    for (size_t i = 0; i < of->voter_count; i++)
        dead = dead && ct_server_is_dead(of, of->voters[i].id);
    return dead;
}

/* The record that this host waited to hold has ended with all who held it, nobody will tell more:
 * where the nodes meet, it is as if this ctrun had just been started. */
static void found_first(struct ct_server_replica *of)
{
    uint64_t era = ct_server_new_era((ct_replica_era(of->replica) >> 32) + 1);
    struct ct_replica *anew = ct_server_new_replica(of, era);

    if (anew == NULL)
        return;
    ct_replica_free(of->replica);
    of->replica = anew;
    of->known.count = 0;
    of->voter_count = 0;
    ct_replica_found(anew);
}

void ct_server_go_on_without_silent(struct ct_server_replica *of)
{
    struct ct_rdzv_server *server = of->server;
    uint64_t now_ms = ct_server_now_ms(server), id = of->voters[0].id;

    if (server->service != NULL || of->voter_count != 1 ||
        now_ms - of->voters[0].heard_ms < ct_server_silence_ms(of) ||
        !ct_replica_holds_all(of->replica, now_ms))
        return;
    found_anew(of, "the other one has been silent for a lease, and never led");
    if (server->service != NULL)
        ct_service_node_died(server->service, now_ms, id);
}

void ct_server_go_on_without_dead(struct ct_server_replica *of)
{
    struct ct_replica_server first;

    if (!others_are_dead(of))
        return;
    if (!ct_replica_server(of->replica, 0, &first) && of->job_endpoint[0] == '\0')
        found_first(of);
    else if (ct_replica_holds_all(of->replica, ct_server_now_ms(of->server)))
        found_anew(of, "the ctrun of each other host that held it is dead");
}
