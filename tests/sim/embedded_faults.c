/* What the kinds of faults.def are where no daemon is: what hits the daemon hits the node that
 * leads, its disk's faults are other cuts, and a takeover is the death of two. */
#include "sim.h"

#include "base/assert.h"
#include "chance.h"

enum { AGAIN_MS = 600, TEARS = 6 };

/* Nothing goes from the nodes of one set to those of the other. */
static void sever(struct sim *sim, uint32_t from, uint32_t to, int by)
{
    for (uint32_t i = 0; i < sim->node_count; i++)
        for (uint32_t k = 0; k < sim->node_count; k++)
            if (i != k && (from >> i & 1u) != 0 && (to >> k & 1u) != 0)
                sim->severed[i][k] = (uint32_t)((int)sim->severed[i][k] + by);
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim_cut_changed(sim, i);
}

/* The nodes of `set` and the others do not reach each other; nor do their workers. */
static void split(struct sim *sim, const struct fault *fault, uint32_t set, int by)
{
    sever(sim, set, ~set, by);
    sever(sim, ~set, set, by);
    for (uint32_t i = 0; i < sim->node_count; i++)
        if ((set >> i & 1u) != 0)
            sim->nodes[i].sides ^= UINT64_C(1) << (fault - sim->faults);
}

static uint32_t leader_of(const struct fault *fault)
{
    return fault->daemon >= SIM_DAEMONS ? fault->daemon - SIM_DAEMONS : fault->node;
}

/* Some of the nodes, always the same of a fault; bit 31 is nobody's. */
static uint32_t some(const struct sim *sim, const struct fault *fault)
{
    return (uint32_t)ct_mix64(sim->seed ^ fault->at ^ fault->lasts) & 0xff;
}

static bool cut(struct sim *sim, const struct fault *fault, int by)
{
    uint32_t one = 1u << fault->node;
    switch (fault->kind) {
    case FAULT_CUT:
        split(sim, fault, one, by);
        return true;
    case FAULT_SPLIT:
        split(sim, fault, ~(one - 1), by);
        return true;
    case FAULT_DISK_FULL:
        split(sim, fault, some(sim, fault), by);
        return true;
    case FAULT_CUT_TO:
        sever(sim, one, ~one, by);
        return true;
    case FAULT_CUT_FROM:
        sever(sim, ~one, one, by);
        return true;
    case FAULT_DISK_SLOW:
        sever(sim, one, some(sim, fault), by);
        return true;
    case FAULT_ISOLATE:
        one = 1u << leader_of(fault);
        sever(sim, one, ~one, by);
        sever(sim, ~one, one, by);
        return true;
    default:
        return false;
    }
}

/* It dies, and is started again. */
static void crash(struct sim *sim, uint32_t node, uint64_t for_ms)
{
    sim_node_crash(sim, node);
    sim_schedule(sim, sim->now + for_ms, EV_START, sim_process(node), 0);
}

bool sim_embedded_fault_begin(struct sim *sim, struct fault *fault)
{
    uint32_t leader = leader_of(fault);
    agreement_disturb(sim);
    if (cut(sim, fault, 1))
        return true;
    switch (fault->kind) {
    case FAULT_DAEMON_CRASH:
        crash(sim, leader, fault->lasts);
        return true;
    case FAULT_DAEMON_TEAR:
        sim->daemons[sim_process(leader)].tears =
            1 + (uint32_t)ct_rng_below(&sim->fault_rng, TEARS);
        return true;
    case FAULT_TAKEOVER:
        crash(sim, leader, fault->lasts);
        crash(sim, fault->node, fault->lasts + ct_rng_below(&sim->fault_rng, AGAIN_MS));
        return true;
    case FAULT_RACE:
        crash(sim, 0, ct_rng_below(&sim->fault_rng, AGAIN_MS));
        return true;
    default:
        return false;
    }
}

bool sim_embedded_fault_end(struct sim *sim, struct fault *fault)
{
    agreement_disturb(sim);
    if (cut(sim, fault, -1))
        return true;
    if (fault->kind == FAULT_DAEMON_TEAR) /* it died of it, or had nothing to say */
        sim_schedule(sim, sim->now, EV_START, sim_process(leader_of(fault)), 0);
    return fault->kind == FAULT_DAEMON_TEAR;
}
