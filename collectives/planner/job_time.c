/* See job_time.h. */
#include "collectives/planner/job_time.h"

#include <math.h>

static const struct {
    double
#define COST(name, value, unit, text) name,
#include "collectives/planner/job_cost.def"
        end;
} cost = {
#define COST(name, value, unit, text) .name = (value),
#include "collectives/planner/job_cost.def"
};

/* As rendezvous/core/core.c: a heartbeat at least every half millisecond a node, two in a lease. */
static const double BEAT_S = 0.5e-3, LEASE_S = 5;

/* All rosters, whole ones as far as these are sent. */
static double rosters_s(double nodes)
{
    return nodes <= CT_JOB_WHOLE_ROSTER ? nodes * nodes * cost.pair : 0;
}

/* The ranks of a node share its processors; all read from the node that leads, and call each other
 * for the first time along a chain, as dissemination has it. */
static double groups_s(const struct ct_machine *machine, bool tls)
{
    double ranks = (double)machine->nodes * machine->per_node, call_s = machine->device.start_s;
    double share = 1;

    if (ranks > CT_JOB_GROUP_RANKS)
        return 0;
    if (machine->costs != NULL) {
        call_s = ct_costs_call_s(machine->costs, true, CT_CALL_COST_SEND, 2, 16);
        share = fmax(1, machine->per_node / machine->costs->value[CT_COST_cores]);
    }
    return share * (cost.form_rank + ranks * cost.form_member) +
           ranks * ranks * (tls ? cost.form_read_tls : cost.form_read_clear) +
           ceil(log2(fmax(ranks, 2))) * call_s;
}

struct ct_job_times ct_job_times(const struct ct_machine *machine, bool tls, double step_s)
{
    double nodes = machine->nodes, beat_s = fmax(LEASE_S / 5, nodes * BEAT_S);
    struct ct_job_times times = {0};

    times.lease_s = fmax(LEASE_S, 2 * beat_s);
    times.round_s = cost.hops + nodes * (tls ? cost.join_tls : cost.join_clear) + rosters_s(nodes);
    times.groups_s = groups_s(machine, tls);
    times.start_s = machine->per_node * cost.spawn + times.round_s + times.groups_s;
    times.recovery_s = cost.regroup + cost.hops + nodes * (tls ? cost.lost_tls : cost.lost_clear) +
                       rosters_s(nodes) + times.groups_s + step_s;
    times.silent_s = times.recovery_s + times.lease_s;
    times.beats_share = nodes / beat_s * (tls ? cost.beat_tls : cost.beat_clear);
    times.memory_bytes = nodes * (tls ? cost.memory_tls : cost.memory_clear);
    return times;
}
