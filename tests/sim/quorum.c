/* Who of those that hold the record lives, and whether one of them must lead: for the oracle of
 * agreement.c, and for liveness.c. */
#include "sim.h"

#include "rendezvous/replica/replica_state.h"

struct sim_host *agreement_holder_with(struct sim *sim, uint64_t id)
{
    for (uint32_t i = 0; i < SIM_NODES; i++)
        if (sim->processes[sim_process(i)].alive && sim->hosts[i].holds &&
            sim->hosts[i].holder.id == id)
            return &sim->hosts[i];
    return NULL;
}

static bool is_alive_in(const struct sim *sim, uint32_t index, uint64_t era)
{
    const struct sim_host *host = &sim->hosts[index];
    return sim->processes[sim_process(index)].alive && host->holds && host->era == era;
}

/* The living holder whose log is the newest: who votes, it knows best. NULL: none lives. */
static struct sim_host *newest_holder(struct sim *sim, uint64_t era)
{
    struct sim_host *newest = NULL;
    uint64_t term = 0, last = 0;
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        struct sim_host *host = &sim->hosts[i];
        if (!is_alive_in(sim, i, era))
            continue;
        const struct replica_log *log = &host->holder.replica->log;
        uint64_t at = replica_log_last(log), of = replica_log_term(log, at);
        if (newest != NULL && (of < term || (of == term && at <= last)))
            continue;
        newest = host;
        term = of;
        last = at;
    }
    return newest;
}

/* Has a survivor been heard so lately that it goes on when it learns of the deaths? */
static bool may_go_on(const struct sim *sim, uint64_t era)
{
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        const struct sim_host *host = &sim->hosts[i];
        if (is_alive_in(sim, i, era) && host->other_count > 0 && !host->serves &&
            ct_replica_known_within(host->holder.replica,
                                    sim_local_ms(sim, sim_process(host->index)),
                                    sim->params.lease_ms))
            return true;
    }
    return false;
}

/* Do so many of its voters live that they can elect one, or may one of two go on alone? */
static bool lives_in(struct sim *sim, uint64_t era)
{
    struct sim_host *host = newest_holder(sim, era);
    struct replica_servers servers;
    uint32_t alive = 0;
    if (host == NULL)
        return false;
    replica_voters(host->holder.replica, &servers);
    for (uint32_t i = 0; i < servers.count; i++) {
        const struct sim_host *other = agreement_holder_with(sim, servers.list[i].id);
        alive += other != NULL && other->era == era;
    }
    if (servers.count == 2 && alive == 1)
        return ct_replica_holds_all(host->holder.replica,
                                    sim_local_ms(sim, sim_process(host->index)));
    return 2 * alive > servers.count || may_go_on(sim, era);
}

/* The era in which somebody leads who may: others may have founded it anew, or reduced, meanwhile,
 * and wait. That era, or the newest. */
static uint64_t era_of(struct sim *sim, uint32_t record)
{
    uint64_t newest = sim->agreement.records[record].newest_era;
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        const struct sim_host *host = &sim->hosts[i];
        if (host->holds && host->record == record && host->serves && host->era != newest &&
            is_alive_in(sim, i, host->era) && !lives_in(sim, newest) && lives_in(sim, host->era))
            return host->era;
    }
    return newest;
}

bool agreement_lives(struct sim *sim, uint32_t record)
{
    return lives_in(sim, era_of(sim, record));
}

bool agreement_can_lead(struct sim *sim)
{
    return agreement_lives(sim, sim->agreement.record);
}

struct sim_host *agreement_newest(struct sim *sim)
{
    return newest_holder(sim, era_of(sim, sim->agreement.record));
}

/* Does it hold another record, or one that went on without it? */
bool agreement_is_behind(struct sim *sim, uint32_t index)
{
    const struct sim_host *host = &sim->hosts[index];
    uint32_t record = sim->agreement.record;
    return host->holds && (host->record != record || host->era != era_of(sim, record));
}
