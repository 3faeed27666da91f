/* Runs that tell a story: few nodes, a good network, the faults as given. Their
 * transcripts lie in transcripts/ and are compared with what the code does (sim
 * --scenarios DIR). */
#include "sim.h"

#include "base/assert.h"

const struct scenario sim_scenarios[] = {
    {
        .name = "node_lost",
        .nodes = 3,
        .nodes_min = 2,
        .nodes_max = 3,
        .last_nodes = 3,
        .ends = 14000,
        .fault_count = 1,
        .faults = {{.kind = FAULT_NODE_CRASH, .node = 1, .at = 6000, .lasts = 4000}},
    },
    {
        .name = "daemon_restarted",
        .nodes = 3,
        .nodes_min = 2,
        .nodes_max = 3,
        .last_nodes = 3,
        .ends = 12000,
        .fault_count = 1,
        .faults = {{.kind = FAULT_DAEMON_CRASH, .at = 5000}},
    },
    {
        .name = "daemon_taken_over",
        .nodes = 2,
        .nodes_min = 2,
        .nodes_max = 2,
        .last_nodes = 2,
        .ends = 12000,
        .fault_count = 2,
        .faults = {{.kind = FAULT_DAEMON_PAUSE, .at = 4000, .lasts = 3000},
                   {.kind = FAULT_TAKEOVER, .at = 4500}},
    },
    {
        .name = "newcomer_at_boundary",
        .nodes = 3,
        .nodes_min = 2,
        .nodes_max = 3,
        .last_nodes = 2,
        .ends = 12000,
        .fault_count = 0,
    },
};
const size_t sim_scenario_count = CT_COUNT(sim_scenarios);

void sim_stage(struct sim *sim)
{
    const struct scenario *scenario = sim->scenario;
    sim->params = ct_rdzv_params_default;
    sim->params.nodes_min = scenario->nodes_min;
    sim->params.nodes_max = scenario->nodes_max;
    sim->params.max_restarts = 3;
    sim->params.lease_ms = 2000;
    sim->params.grow_ms = 500;
    sim->node_count = scenario->nodes;
    sim->scale = 1;
    sim->faults_ms = SIM_PHASE_MS;
    sim->ends_ms = scenario->ends;
    sim->calm = sim->datagrams = sim->slow_stops = false;
    sim->survivable = true;
    sim->poll_ms = 1000;
    sim->delay_ms = 1;
    sim->loss_permille = sim->duplicate_permille = 0;
    sim->step_ms = 200;
    sim->total_steps = 0;
    for (uint32_t i = 0; i < SIM_PROCESSES; i++)
        sim->processes[i].rate_ppm = 0;
    for (uint32_t i = 0; i < sim->node_count; i++) {
        sim->nodes[i].options.params = sim->params;
        sim->nodes[i].options.slots = 2;
        sim->nodes[i].options.slurm_node = -1;
        sim_schedule(sim, (i < scenario->last_nodes ? 100 : 5000) + 40 * (uint64_t)i, EV_START,
                     sim_process(i), 0);
    }
    sim->fault_count = scenario->fault_count;
    for (uint32_t i = 0; i < scenario->fault_count; i++) {
        sim->faults[i] = scenario->faults[i];
        sim_schedule(sim, sim->faults[i].at, EV_FAULT_BEGIN, i, 0);
        sim_schedule(sim, sim->faults[i].at + sim->faults[i].lasts, EV_FAULT_END, i, 0);
    }
}
