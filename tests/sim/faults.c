/* The setting and the faults of a run, both drawn from its seed before it begins. */
#include "sim.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t between(struct ct_rng *rng, uint64_t low, uint64_t high)
{
    return low + ct_rng_below(rng, high - low + 1);
}

/* Times are drawn from ordinary and from odd values: what a timer is worth must not matter. */
static void draw_params(struct sim *sim)
{
    static const uint32_t leases[] = {500, 1000, 2000, 5000};
    struct ct_rng *rng = &sim->setup_rng;
    uint32_t nodes = (uint32_t)between(rng, 1, 6);
    sim->params = (struct ct_rdzv_params){
        .nodes_max = nodes,
        .nodes_min = ct_rng_chance(rng, 300) ? nodes : (uint32_t)between(rng, 1, nodes),
        .max_restarts = ct_rng_chance(rng, 850) ? 1000 : (uint32_t)between(rng, 0, 3),
        .join_timeout_ms = ct_rng_chance(rng, 900) ? 400000 : (uint32_t)between(rng, 5000, 40000),
        .last_call_ms = (uint32_t)between(rng, 0, 1000),
        .lease_ms = leases[ct_rng_below(rng, CT_COUNT(leases))],
        .prepare_ms = (uint32_t)between(rng, 3000, 10000),
        .grow_ms = (uint32_t)between(rng, 1, 1000),
        .autonomy_ms = 600000,
    };
    uint32_t spare = (uint32_t)ct_rng_below(rng, 3);
    sim->node_count = CT_MIN(nodes + spare, (uint32_t)SIM_NODES);
}

void sim_draw_setting(struct sim *sim)
{
    struct ct_rng *rng = &sim->setup_rng;
    draw_params(sim);
    sim->datagrams = ct_rng_chance(rng, 500);
    sim->survivable = ct_rng_chance(rng, 700);
    sim->delay_ms = (uint32_t)between(rng, 0, 40);
    sim->loss_permille = (uint32_t)between(rng, 0, 150);
    sim->double_permille = (uint32_t)between(rng, 0, 150);
    sim->step_ms = (uint32_t)between(rng, 50, 1000);
    sim->total_steps = ct_rng_chance(rng, 200) ? between(rng, 1, 300) : 0;
    for (uint32_t i = 0; i <= SIM_NODES; i++) {
        sim->processes[i].rate_ppm = (int32_t)between(rng, 0, 20000) - 10000;
        sim->processes[i].offset_ms = between(rng, 1000000, 2000000);
    }
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        sim->nodes[i].conn = SIM_CONNS;
        sim->nodes[i].options = (struct ct_agent_options){
            .run_id = "sim",
            .address = "",
            .role = "default",
            .params = sim->params,
            .slots = (uint32_t)between(rng, 1, 4),
            .node_rank = -1,
            .slurm_node = ct_rng_chance(rng, 300) ? (int32_t)ct_rng_below(rng, SIM_NODES) : -1,
            .survivable = sim->survivable,
        };
    }
}

void sim_draw_faults(struct sim *sim, uint64_t skip)
{
    struct ct_rng *rng = &sim->fault_rng;
    sim->fault_count = ct_rng_below(rng, 25);
    for (size_t i = 0; i < sim->fault_count; i++) {
        struct fault *fault = &sim->faults[i];
        *fault = (struct fault){
            .kind = (enum fault_kind)ct_rng_below(rng, FAULT_KINDS),
            .node = (uint32_t)ct_rng_below(rng, sim->node_count),
            .at = between(rng, 500, SIM_FAULTS_MS - 1),
            .lasts = ct_rng_chance(rng, 500) ? between(rng, 1, 2000)
                                             : between(rng, 1, 4 * sim->params.lease_ms),
            .skipped = (skip >> i & 1u) != 0,
        };
        if (fault->skipped)
            continue;
        sim_schedule(sim, fault->at, EV_FAULT_BEGIN, (uint32_t)i, 0);
        sim_schedule(sim, CT_MIN(fault->at + fault->lasts, (uint64_t)SIM_FAULTS_MS), EV_FAULT_END,
                     (uint32_t)i, 0);
    }
}

void sim_fault_print(const struct fault *fault, char *text, size_t room)
{
    static const char *const names[] = {
#define FAULT(name, what) #name,
#include "faults.def"
#undef FAULT
    };
    (void)snprintf(text, room, "[%7" PRIu64 "] %s n%u for %" PRIu64 " ms", fault->at,
                   names[fault->kind], fault->node, fault->lasts);
}

static void change_cut(struct sim *sim, uint32_t node, int direction, int by)
{
    uint32_t *cut = &sim->nodes[node].cut[direction];
    *cut = (uint32_t)((int)*cut + by);
    sim_cut_changed(sim, node);
}

static void cut_node(struct sim *sim, uint32_t node, int by)
{
    change_cut(sim, node, 0, by);
    change_cut(sim, node, 1, by);
    sim->nodes[node].cut_peers = (uint32_t)((int)sim->nodes[node].cut_peers + by);
}

static void isolate(struct sim *sim, int by)
{
    for (uint32_t i = 0; i < sim->node_count; i++) {
        change_cut(sim, i, 0, by);
        change_cut(sim, i, 1, by);
    }
}

static void pause(struct sim *sim, uint32_t process, uint64_t lasts)
{
    struct process *p = &sim->processes[process];
    if (p->alive)
        p->paused_until =
            CT_MAX(p->paused_until, CT_MIN(sim->now + lasts, (uint64_t)SIM_FAULTS_MS));
}

static void reset(struct sim *sim, uint32_t node)
{
    uint32_t index = sim->nodes[node].conn;
    if (index == SIM_CONNS)
        return;
    for (uint64_t side = 0; side < 2; side++)
        sim_schedule(sim, sim->now, EV_CLOSED, index, side);
}

static void drain(struct sim *sim, uint32_t node)
{
    if (!sim->processes[node + 1].alive)
        return;
    ct_member_leave(&sim->nodes[node].member, CT_RDZV_LEAVE_DRAIN);
    sim_node_after(sim, node);
}

void sim_fault_begin(struct sim *sim, struct fault *fault)
{
    char text[128];
    sim_fault_print(fault, text, sizeof(text));
    sim_log(sim, "fault %s", text + 10);
    sim->coverage.faults++;
    switch (fault->kind) {
    case FAULT_NODE_CRASH:
        sim_node_crash(sim, fault->node);
        break;
    case FAULT_NODE_PAUSE:
        pause(sim, fault->node + 1, fault->lasts);
        break;
    case FAULT_NODE_DRAIN:
        drain(sim, fault->node);
        break;
    case FAULT_WORKER_CRASH:
        sim_worker_crash(sim, fault->node);
        break;
    case FAULT_RESET:
        reset(sim, fault->node);
        break;
    case FAULT_CUT:
        cut_node(sim, fault->node, 1);
        break;
    case FAULT_CUT_TO:
        change_cut(sim, fault->node, 0, 1);
        break;
    case FAULT_CUT_FROM:
        change_cut(sim, fault->node, 1, 1);
        break;
    case FAULT_ISOLATE:
        isolate(sim, 1);
        break;
    case FAULT_STORM:
        sim->storms++;
        break;
    case FAULT_DAEMON_CRASH:
        sim_daemon_crash(sim);
        break;
    case FAULT_DAEMON_TEAR:
        sim->daemon.disk.tear_next = true;
        break;
    case FAULT_DAEMON_PAUSE:
        pause(sim, 0, fault->lasts);
        break;
    case FAULT_DISK_FULL:
        sim->daemon.disk.full++;
        break;
    case FAULT_KINDS:
        break;
    }
}

void sim_fault_end(struct sim *sim, struct fault *fault)
{
    switch (fault->kind) {
    case FAULT_NODE_CRASH:
        sim_schedule(sim, sim->now, EV_START, fault->node + 1, 0);
        break;
    case FAULT_CUT:
        cut_node(sim, fault->node, -1);
        break;
    case FAULT_CUT_TO:
        change_cut(sim, fault->node, 0, -1);
        break;
    case FAULT_CUT_FROM:
        change_cut(sim, fault->node, 1, -1);
        break;
    case FAULT_ISOLATE:
        isolate(sim, -1);
        break;
    case FAULT_STORM:
        sim->storms--;
        break;
    case FAULT_DISK_FULL:
        sim->daemon.disk.full--;
        break;
    default: /* over in a moment, or by a time that was set when it began */
        break;
    }
}

/* All faults have ended by now (their ends come first at this time). What is down starts again. */
void sim_heal(struct sim *sim)
{
    sim_log(sim, "healed");
    sim->healed = true;
    sim->loss_permille = sim->double_permille = 0;
    sim->daemon.disk.tear_next = false;
    sim->delay_ms = CT_MIN(sim->delay_ms, sim->params.lease_ms / 50);
    sim->healed_step = sim->oracle.stable;
    sim_schedule(sim, sim->now, EV_START, 0, 0);
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim_schedule(sim, sim->now + 1000, EV_START, i + 1, 0);
}
