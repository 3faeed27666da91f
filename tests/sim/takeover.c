/* `ctrun takeover` after the faults, when nothing is cut off any more: where nobody may lead, on
 * the holder that knows most of the record, which is right then; where somebody leads, on each
 * holder, and all refuse it. */
#include "sim.h"

#include "rendezvous/holder/holder_state.h"
#include "rendezvous/replica/replica_state.h"

static bool is_here(const struct sim *sim, const struct sim_host *host)
{
    uint32_t process = sim_process(host->index);
    return host->sim != NULL && sim->processes[process].alive &&
           sim->processes[process].paused_until <= sim->now && host->holds;
}

/* It must know that the job lives, or that it holds nothing. */
static bool must_refuse(const struct sim_host *host)
{
    bool is_led = ct_replica_leader(host->holder.replica) != 0 && host->holder.dead_count == 0;
    if (host->holder.service != NULL)
        return ct_holder_generation(&host->holder) > 0;
    return is_led || !holder_votes(&host->holder);
}

/* R8: an operator who is wrong changes nothing. */
static void give_in_vain(struct sim *sim, struct sim_host *host)
{
    const struct ct_replica *replica = host->holder.replica;
    const struct ct_service *service = host->holder.service;
    uint64_t era = replica->era, term = replica->term;
    int answer = sim_host_take_over(sim, host->index);
    if (answer == 0 || host->holder.replica != replica || host->holder.service != service ||
        replica->era != era || replica->term != term)
        sim_fail(sim, "R8: n%u takes a job over that lives (%d)", host->index, answer);
    sim->coverage.not_taken++;
}

static void give(struct sim *sim, struct sim_host *host)
{
    host->ordered = true;
    int answer = sim_host_take_over(sim, host->index);
    host->ordered = false;
    if (answer != 0)
        sim_fail(sim, "R8: n%u, which waits, does not take the job over (%d)", host->index, answer);
    sim->coverage.taken_over++;
}

void sim_take_over(struct sim *sim)
{
    bool can_lead = agreement_can_lead(sim);
    struct sim_host *newest = agreement_newest(sim);
    if (sim->over || sim->failure[0] != '\0' || sim->oracle.close_reported)
        return;
    for (uint32_t i = 0; can_lead && i < sim->node_count && sim->failure[0] == '\0'; i++)
        if (is_here(sim, &sim->hosts[i]) && must_refuse(&sim->hosts[i]))
            give_in_vain(sim, &sim->hosts[i]);
    if (!can_lead && newest != NULL && is_here(sim, newest) && holder_votes(&newest->holder) &&
        newest->holder.service == NULL)
        give(sim, newest);
}
