/* What the workers of a round do together: first all take the base's state,
 * then step after step, each of which needs all of them. A step completes
 * everywhere, but not everywhere at once; when the round ends in between,
 * members differ by one step.
 *
 * Now and then rank 0's node publishes the step that all have completed. A round in which nobody
 * holds a state starts from the newest publication.
 *
 * A state is a lineage, a step and a digest that is mixed on with each step, so
 * that two members that come to one step in different ways are found out. */
#include "sim.h"

#include "base/assert.h"
#include "chance.h"

#include <string.h>

enum { PUBLISH_PERMILLE = 200 }; /* of the steps */

void sim_training_round(struct sim *sim, const struct ct_round *round)
{
    struct training *t = &sim->training;
    if (round->generation <= t->generation)
        return;
    *t = (struct training){
        .generation = round->generation,
        .count = round->node_count,
        .lineage = round->lineage,
        .base_step = round->base_step,
        .base_node = round->base_node,
        .published_generation = round->published_generation,
        .published_step = round->published_step,
    };
    for (uint32_t i = 0; i < round->node_count && i < SIM_NODES; i++) {
        t->ids[i] = round->nodes[i].id;
        t->nodes[i] = (uint32_t)round->nodes[i].id.high - 1;
    }
}

/* Do all its members act in the round, with workers that reach each other? */
static bool is_complete(const struct sim *sim)
{
    const struct training *t = &sim->training;
    if (t->generation == 0)
        return false;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct sim_node *node = &sim->nodes[t->nodes[i]];
        if (!sim->processes[sim_process(t->nodes[i])].alive ||
            node->incarnations != t->ids[i].low || node->acting != t->generation ||
            !node->workers || node->stopped || node->sides != sim->nodes[t->nodes[0]].sides)
            return false;
    }
    return true;
}

/* All steps are made: the workers end, some of them later than others. */
static void finish(struct sim *sim, uint32_t index)
{
    struct training *t = &sim->training;
    uint64_t last = rng_chance(&sim->work_rng, 200) ? 4000 : 5;
    uint64_t at = sim->now + 1 + ct_rng_below(&sim->work_rng, last);
    t->done_ms = CT_MAX(t->done_ms, at);
    sim_schedule(sim, at, EV_DONE, index, t->generation);
}

/* The base's state, or that of the newest publication, or the first one. */
static struct state find_base(const struct sim *sim)
{
    const struct training *t = &sim->training;
    struct state base = {.digest = 1};
    if (t->base_node >= 0)
        base = sim->nodes[t->nodes[t->base_node]].state;
    else if (t->published_generation > 0)
        base = (struct state){.step = t->published_step, .digest = sim->oracle.published.digest};
    base.lineage = t->generation;
    return base;
}

static bool is_last(const struct sim *sim, uint64_t step)
{
    return sim->total_steps > 0 && step >= sim->total_steps;
}

static void recover_member(struct sim *sim, uint32_t index)
{
    const struct training *t = &sim->training;
    sim->nodes[index].state = t->base;
    sim_workers_recovered(sim, index);
}

/* Some members take the base, the others at the next opportunity. */
static void recover(struct sim *sim)
{
    struct training *t = &sim->training;
    uint32_t left = 0;
    if (t->base.lineage != t->generation) {
        oracle_base(sim);
        t->base = find_base(sim);
    }
    for (uint32_t i = 0; i < t->count; i++) {
        if (sim->nodes[t->nodes[i]].recovered_max == t->generation)
            continue;
        if (rng_chance(&sim->work_rng, 700))
            recover_member(sim, t->nodes[i]);
        else
            left++;
    }
    if (left > 0)
        return;
    oracle_recovered(sim);
    t->recovered = true;
    for (uint32_t i = 0; i < t->count && is_last(sim, t->base.step); i++)
        finish(sim, t->nodes[i]);
}

static void step(struct sim *sim)
{
    struct training *t = &sim->training;
    uint64_t now = sim->nodes[t->nodes[0]].state.step;
    bool boundary = false;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct sim_node *node = &sim->nodes[t->nodes[i]];
        if (node->state.step != now)
            return; /* some are still on the way through the last step */
        boundary = boundary || node->boundary;
    }
    if (is_last(sim, now))
        return;
    uint64_t stable = now;
    if (rng_chance(&sim->work_rng, PUBLISH_PERMILLE))
        sim_workers_publish(sim, t->nodes[0], stable, sim->nodes[t->nodes[0]].state.digest);
    if (boundary)
        t->boundary_step = now + 1;
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t index = t->nodes[i];
        uint64_t late =
            1 + ct_rng_below(&sim->work_rng, rng_chance(&sim->work_rng, 900) ? 30 : sim->step_ms);
        if (rng_chance(&sim->work_rng, 700))
            sim_member_step(sim, index, t->generation);
        else
            sim_schedule(sim, sim->now + late, EV_MEMBER_STEP, index, t->generation);
    }
}

void sim_training_step(struct sim *sim)
{
    sim_schedule(sim, sim->now + sim->step_ms, EV_STEP, 0, 0);
    if (!is_complete(sim))
        return;
    if (!sim->training.recovered)
        recover(sim);
    else
        step(sim);
}

void sim_member_step(struct sim *sim, uint32_t index, uint64_t generation)
{
    struct sim_node *node = &sim->nodes[index];
    const struct training *t = &sim->training;
    if (t->generation != generation || node->acting != generation ||
        node->state.lineage != generation || !node->workers)
        return;
    uint64_t number = ++node->state.step;
    node->state.digest = ct_mix64(node->state.digest ^ ct_mix64(t->generation) ^ number);
    oracle_step(sim, index);
    if (t->boundary_step == number) {
        node->stopped = true;
        sim_workers_at_boundary(sim, index);
    }
    if (is_last(sim, number))
        finish(sim, index);
}
