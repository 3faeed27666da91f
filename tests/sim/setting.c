/* What a run is like, drawn from its seed before it begins.
 *
 * Each seed draws the probabilities themselves: a network without losses in
 * one, a bad one in the next. Times are ordinary or odd: what a timer is worth
 * must not matter. */
#include "sim.h"

#include "base/assert.h"
#include "chance.h"

#include <stdio.h>

static void draw_params(struct sim *sim)
{
    static const uint32_t leases[] = {1000, 2000, 500, 5000, 200};
    struct ct_rng *rng = &sim->setup_rng;
    uint32_t nodes = (uint32_t)sim_between(rng, 1, 6);
    size_t choice = sim->calm ? 2 : rng_chance(rng, 900) ? 4 : CT_COUNT(leases);
    uint32_t lease = leases[ct_rng_below(rng, choice)];
    bool is_tight = rng_chance(rng, 150) && !sim->calm;
    sim->params = (struct ct_rdzv_params){
        .nodes_max = nodes,
        .nodes_min = rng_chance(rng, 300) ? nodes : (uint32_t)sim_between(rng, 1, nodes),
        .max_restarts = is_tight ? (uint32_t)sim_between(rng, 0, 3) : 1000,
        .join_timeout_ms =
            rng_chance(rng, 900) || sim->calm ? 400000 : (uint32_t)sim_between(rng, 5000, 40000),
        .last_call_ms = (uint32_t)sim_between(rng, 0, 1000),
        .lease_ms = lease,
        .prepare_ms = rng_chance(rng, 100) ? CT_MAX(lease / 5, 400u)
                                           : (uint32_t)sim_between(rng, 3000, 10000),
        .grow_ms = (uint32_t)sim_between(rng, 1, 1000),
        .autonomy_ms = rng_chance(rng, 800) || sim->calm
                           ? 600000 / sim->scale
                           : 2 * lease + (uint32_t)sim_between(rng, 0, 30000),
        .cordon_faults = rng_chance(rng, 500) ? 3 : 0,
    };
    if (sim->calm)
        sim->params.prepare_ms = 10000;
    sim->params.lease_ms *= sim->scale;
    sim->params.prepare_ms *= sim->scale;
    sim->params.grow_ms *= sim->scale;
    sim->params.last_call_ms *= sim->scale;
    sim->params.join_timeout_ms *= sim->scale;
    sim->params.autonomy_ms *= sim->scale;
    uint32_t spare = (uint32_t)ct_rng_below(rng, 3);
    sim->node_count = CT_MIN(nodes + spare, (uint32_t)SIM_NODES);
}

/* Clocks run wrong by up to 1 %, in some runs by up to 10 %. */
static void draw_clocks(struct sim *sim)
{
    struct ct_rng *rng = &sim->setup_rng;
    int32_t most = rng_chance(rng, 100) && !sim->calm ? 100000 : 10000;
    for (uint32_t i = 0; i < SIM_PROCESSES; i++) {
        sim->processes[i].rate_ppm = (int32_t)sim_between(rng, 0, 2 * (uint64_t)most) - most;
        sim->processes[i].offset_ms = sim_between(rng, 1000000, 2000000);
    }
}

/* A clock for the cores' shells; the cores must never look at its wall. */
static uint64_t mono_ns(void *context)
{
    const struct sim_node *node = context;
    return sim_local_ms(node->sim, sim_process(node->index)) * 1000000;
}

static uint64_t wall_ns(void *context)
{
    const struct sim_node *node = context;
    node->sim->oracle.wall_reads++;
    int64_t wrong = node->sim->processes[sim_process(node->index)].wall_ms;
    return (uint64_t)((int64_t)(mono_ns(context) / 1000000) + wrong) * 1000000;
}

/* In some runs the world must divide a number; all nodes together do. */
static void draw_world(struct sim *sim)
{
    enum { ROWS = 24 };
    struct ct_rng *rng = &sim->setup_rng;
    uint32_t slots = (uint32_t)sim_between(rng, 1, 2);
    if (!rng_chance(rng, 200) || ROWS % (sim->params.nodes_max * slots) != 0)
        return;
    sim->params.world_divides = ROWS;
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        sim->nodes[i].options.slots = slots;
        sim->nodes[i].options.params.world_divides = ROWS;
    }
}

static void make_nodes(struct sim *sim)
{
    struct ct_rng *rng = &sim->setup_rng;
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        struct sim_node *node = &sim->nodes[i];
        node->sim = sim;
        node->index = i;
        node->conn = SIM_CONNS;
        (void)snprintf(node->host, sizeof(node->host), "n%u", i);
        node->clock = (struct ct_clock){.mono_ns = mono_ns, .wall_ns = wall_ns, .context = node};
        node->options = (struct ct_agent_options){
            .run_id = "sim",
            .address = "",
            .role = "default",
            .params = sim->params,
            .slots = (uint32_t)sim_between(rng, 1, 4),
            .node_rank = -1,
            .slurm_node = rng_chance(rng, 300) ? (int32_t)ct_rng_below(rng, SIM_NODES) : -1,
            .survivable = sim->survivable,
            .reports_recovery = true,
            .clock = &node->clock,
        };
    }
}

/* One seed of five has no daemon. It takes no draw: the others are what they were. */
static bool draws_embedded(const struct sim *sim)
{
    return sim->mode == SIM_EMBEDDED || (sim->mode == SIM_DRAWN && ct_mix64(~sim->seed) % 5 == 0);
}

/* A job of one node has no record to share. A host that starts again is told that its job lives
 * before MIN nodes are done waiting for more. */
static void embed(struct sim *sim)
{
    struct ct_rdzv_params *p = &sim->params;
    p->nodes_max = CT_MAX(p->nodes_max, 2u);
    p->last_call_ms = CT_MAX(p->last_call_ms, 300u * sim->scale);
    sim->node_count = CT_MAX(sim->node_count, p->nodes_max);
    sim->ends_ms =
        sim->faults_ms + sim->faults_ms * 3 / 4; /* many messages: less of the quiet time */
}

void sim_draw_setting(struct sim *sim)
{
    struct ct_rng *rng = &sim->setup_rng;
    sim->calm = rng_chance(rng, 100);
    sim->scale = rng_chance(rng, 50) && !sim->calm ? SIM_LONG : 1;
    sim->faults_ms = SIM_PHASE_MS * sim->scale;
    sim->ends_ms = 2 * sim->faults_ms;
    draw_params(sim);
    sim->datagrams = rng_chance(rng, 500) && !sim->calm;
    sim->survivable = rng_chance(rng, 700);
    sim->programs = sim->survivable && rng_chance(rng, 250);
    sim->poll_ms = sim->calm ? 1000 : (uint32_t)sim_between(rng, 200, 8000);
    sim->slow_stops = rng_chance(rng, 700) && !sim->calm;
    sim->delay_ms = (uint32_t)sim_between(rng, 0, sim->calm ? 2 : 40);
    sim->loss_permille = (uint32_t)sim_between(rng, 0, 150);
    sim->duplicate_permille = (uint32_t)sim_between(rng, 0, 150);
    sim->step_ms = (uint32_t)sim_between(rng, 50, sim->calm ? 200 : 1000) * sim->scale;
    sim->total_steps = rng_chance(rng, 200) && !sim->calm ? sim_between(rng, 1, 300) : 0;
    draw_clocks(sim);
    sim->embedded = sim->scenario == NULL && draws_embedded(sim);
    if (sim->embedded)
        embed(sim);
    make_nodes(sim);
    draw_world(sim);
}
