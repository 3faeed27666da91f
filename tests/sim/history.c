/* The invariants of what the nodes live through: rounds, states, and how one
 * descends from another.
 *
 *      state = (lineage, step)         made in round `lineage`
 *      past[g] = (lineage, base_step)  the state that round g started from
 *
 * The way back from a state through the bases is its descent. */
#include "sim.h"

#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "history/history.h"

#include <inttypes.h>
#include <string.h>

enum {
    UNTOLD = 20,     /* answers without what they should bring: no bad luck any more */
    RETRY_MS = 1000, /* after which a daemon has tried its disk again */
};

static uint64_t hash_of(const struct ct_round *round)
{
    const uint64_t head[] = {
        round->generation,
        round->lineage,
        round->base_step,
        round->base_digest,
        round->world,
        round->node_count,
        (uint64_t)(int64_t)round->base_node,
        round->published_generation,
        round->published_step,
    };
    uint64_t hash = ct_hash64(head, sizeof(head), 1);
    for (uint32_t i = 0; i < round->node_count; i++) {
        const struct ct_round_node *node = &round->nodes[i];
        const uint64_t row[] = {node->id.high, node->id.low, node->slots, node->first_rank};
        hash = ct_hash64(row, sizeof(row), hash);
        hash = ct_hash64(node->host, strlen(node->host), hash);
    }
    return hash;
}

/* ---- rounds ---- */

void oracle_node_round(struct sim *sim, uint32_t index, const struct ct_round *round)
{
    const struct sim_node *node = &sim->nodes[index];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < round->node_count; i++) {
        if (round->nodes[i].first_rank != rank)
            sim_fail(sim, "S1: ranks of g%" PRIu64 " have a hole at %u", round->generation, rank);
        rank += round->nodes[i].slots;
        for (uint32_t k = 0; k < i; k++)
            if (ct_id_equal(round->nodes[i].id, round->nodes[k].id))
                sim_fail(sim, "S1: %s has two places in g%" PRIu64, round->nodes[i].host,
                         round->generation);
    }
    if (rank != round->world || round->node_count < sim->params.nodes_min ||
        round->node_count > sim->params.nodes_max)
        sim_fail(sim, "S1: g%" PRIu64 " has %u nodes, %u of %u ranks", round->generation,
                 round->node_count, rank, round->world);
    if (rank > 0 && sim->params.world_divides % rank != 0)
        sim_fail(sim, "S1: a world of %u does not divide %u", round->world,
                 sim->params.world_divides);
    CT_ASSERT(round->generation < SIM_ROUNDS);
    struct past *past = &sim->oracle.past[round->generation];
    if (past->roster != 0 && past->roster != hash_of(round))
        sim_fail(sim, "S2: %s sees another roster of g%" PRIu64, node->host, round->generation);
    past->roster = hash_of(round);
    bool is_cold = round->base_node < 0;
    past->lineage = is_cold ? round->published_generation : round->lineage;
    past->base_step = is_cold ? round->published_step : round->base_step;
    if (round->generation <= node->acting_max || round->generation != node->promised_max)
        sim_fail(sim, "S3: %s begins g%" PRIu64 " after g%" PRIu64 ", with g%" PRIu64 " promised",
                 node->host, round->generation, node->acting_max, node->promised_max);
}

/* A message came to a node. */
void oracle_node_informed(struct sim *sim, const struct conn *conn,
                          const struct ct_message *message, bool was_joining)
{
    struct sim_node *node = &sim->nodes[conn->node];
    bool was_welcomed = message->type == CT_MSG_WELCOME && was_joining;
    if (was_welcomed && node->acting > 0 && node->acting != message->welcome.generation)
        sim_fail(sim, "S3: %s goes on in g%" PRIu64 ", the daemon welcomes it in g%" PRIu64,
                 node->host, node->acting, message->welcome.generation);
    uint64_t epoch = sim->embedded && was_welcomed ? message->welcome.epoch : conn->epoch;
    if (was_welcomed && epoch < node->epoch)
        sim_fail(sim, "S13: %s, which knows epoch %" PRIu64 ", joins epoch %" PRIu64, node->host,
                 node->epoch, epoch);
    if (was_welcomed && node->member.received > 0)
        node->epoch = CT_MAX(node->epoch, epoch);
    const struct ct_rdzv *job = sim->embedded ? sim_job(sim_newest_daemon(sim)) : NULL;
    bool is_agreed = job == NULL || job->pending == 0; /* what it would be asked for */
    bool is_untold = message->type == CT_MSG_HEARTBEAT_ACK && is_agreed &&
                     message->heartbeat_ack.state == CT_RDZV_PREPARING &&
                     node->requested < message->heartbeat_ack.generation && sim->disk.full == 0 &&
                     sim->now > sim->disk.full_until + RETRY_MS;
    if (is_untold)
        node->untold++;
    else if (message->type == CT_MSG_HEARTBEAT_ACK || message->type == CT_MSG_PREPARE)
        node->untold = 0;
    if (node->untold >= UNTOLD)
        sim_fail(sim, "L2: %s is to promise g%" PRIu64 " and is not asked", node->host,
                 message->heartbeat_ack.generation);
}

void oracle_node_closed(struct sim *sim, uint32_t index)
{
    struct oracle *o = &sim->oracle;
    const struct ct_rdzv_result *result = &sim->nodes[index].result;
    bool began = o->generation > 0; /* else a job of that name may follow it at once */
    if (o->closed && began &&
        (o->result.status != result->status || o->result.code != result->code ||
         strcmp(o->result.cause.text, result->cause.text) != 0))
        sim_fail(sim, "S12: %s is told status %d, others %d", sim->nodes[index].host,
                 result->status, o->result.status);
    o->closed = true;
    o->result = *result;
    ct_failure_keep(&o->result.cause, &result->cause, o->cause_room, sizeof(o->cause_room));
}

/* ---- states ---- */

/* Does state (lineage, step) descend from (old_lineage, old_step), or is it the
 * same? */
static bool descends(const struct oracle *o, uint64_t lineage, uint64_t step, uint64_t old_lineage,
                     uint64_t old_step)
{
    while (old_lineage > 0 && old_step == o->past[old_lineage].base_step)
        old_lineage = o->past[old_lineage].lineage; /* no step was made in between */
    while (lineage > old_lineage) {
        CT_ASSERT(lineage < SIM_ROUNDS && o->past[lineage].lineage < lineage);
        step = o->past[lineage].base_step;
        lineage = o->past[lineage].lineage;
    }
    return lineage == old_lineage && step >= old_step;
}

/* S8: no step is lost that all had, unless a round was made without anybody who knew whether the
 * last one went on; and the base is the newest state of its lineage. */
static void check_base(struct sim *sim, uint32_t index)
{
    const struct oracle *o = &sim->oracle;
    const struct training *t = &sim->training;
    const struct sim_node *node = &sim->nodes[index];
    uint64_t step = o->past[t->generation].base_step;
    uint64_t lineage = o->past[t->generation].lineage;
    bool is_cut = !o->past[t->generation].overlaps || o->cut_generation > o->step_generation;
    bool holds = o->stable > 0 && !is_cut && node->state.lineage == o->step_generation &&
                 node->state.step >= o->stable;
    bool keeps = descends(o, lineage, step, o->step_generation, o->stable);
    if (holds && !keeps)
        sim_fail(sim,
                 "S8: g%" PRIu64 " starts from step %" PRIu64 " of g%" PRIu64 ", but %s holds step "
                 "%" PRIu64 " of g%" PRIu64 " and all had step %" PRIu64 " of g%" PRIu64,
                 t->generation, step, t->lineage, node->host, node->state.step, node->state.lineage,
                 o->stable, o->step_generation);
    if (t->base_node >= 0 && node->state.lineage == t->lineage && node->state.step > step)
        sim_fail(sim,
                 "S8: g%" PRIu64 " starts from step %" PRIu64 " of g%" PRIu64
                 ", %s holds step %" PRIu64 " of it",
                 t->generation, step, t->lineage, node->host, node->state.step);
}

/* S8: the round's state descends from the newest publication; S5: a round in which nobody holds a
 * state starts from exactly that. */
static void check_published(struct sim *sim)
{
    const struct oracle *o = &sim->oracle;
    const struct training *t = &sim->training;
    const struct past *past = &o->past[t->generation];
    const struct ct_rdzv_publication *p = &o->published;
    if (p->generation > 0 && !descends(o, past->lineage, past->base_step, p->generation, p->step))
        sim_fail(sim,
                 "S8: g%" PRIu64 " starts from step %" PRIu64 " of g%" PRIu64 ", which does not "
                 "descend from step %" PRIu64 " of g%" PRIu64 ", which is published",
                 t->generation, past->base_step, past->lineage, p->step, p->generation);
    if (t->base_node < 0 &&
        (t->published_generation != p->generation || t->published_step != p->step))
        sim_fail(sim,
                 "S5: g%" PRIu64 " starts from the checkpoint of step %" PRIu64 ", step %" PRIu64
                 " is published",
                 t->generation, t->published_step, p->step);
}

/* S8: whoever is in the round holds the step that is published. */
static void check_stable(struct sim *sim, const struct ct_rdzv_publication *published)
{
    const struct training *t = &sim->training;
    for (uint32_t i = 0; i < t->count && t->generation == published->generation; i++) {
        const struct sim_node *node = &sim->nodes[t->nodes[i]];
        if (node->incarnations == t->ids[i].low && node->state.lineage == published->generation &&
            node->state.step < published->step)
            sim_fail(sim, "S8: step %" PRIu64 " is published, %s has come to step %" PRIu64,
                     published->step, node->host, node->state.step);
    }
}

/* S6, S7: publications follow each other, each descends from the one before, none comes from a
 * round that is over. */
void oracle_published(struct sim *sim, const struct ct_rdzv_publication *published)
{
    struct oracle *o = &sim->oracle;
    const struct ct_rdzv_publication *last = &o->published;
    if (published->generation == last->generation && published->step == last->step)
        return;
    if (oracle_has_forgotten(sim)) { /* it is what is left of a record that was lost in part */
        o->published = *published;
        return;
    }
    if (!history_follows(published->generation, published->step, last->generation, last->step))
        sim_fail(sim,
                 "S6: step %" PRIu64 " of g%" PRIu64 " is published after step %" PRIu64
                 " of g%" PRIu64,
                 published->step, published->generation, last->step, last->generation);
    if (published->generation != o->order_generation)
        sim_fail(sim, "S6: g%" PRIu64 " publishes while g%" PRIu64 " runs", published->generation,
                 o->order_generation);
    if (last->generation > 0 &&
        !descends(o, published->generation, published->step, last->generation, last->step))
        sim_fail(sim,
                 "S7: step %" PRIu64 " of g%" PRIu64 " does not descend from step %" PRIu64
                 " of g%" PRIu64,
                 published->step, published->generation, last->step, last->generation);
    check_stable(sim, published);
    o->published = *published;
    sim->coverage.published++;
}

/* The members are about to take the base. S5: it is the state that the round names. */
void oracle_base(struct sim *sim)
{
    const struct training *t = &sim->training;
    if (t->base_node >= 0) {
        const struct sim_node *node = &sim->nodes[t->nodes[t->base_node]];
        if (node->state.lineage != t->lineage || node->state.step != t->base_step)
            sim_fail(sim,
                     "S5: g%" PRIu64 " starts from step %" PRIu64 " of g%" PRIu64
                     ", %s holds step %" PRIu64 " of g%" PRIu64,
                     t->generation, t->base_step, t->lineage, node->host, node->state.step,
                     node->state.lineage);
    }
    for (uint32_t i = 0; i < t->count; i++)
        check_base(sim, t->nodes[i]);
    check_published(sim);
    if (t->base_node < 0) { /* nobody held it any more: from the checkpoint, whoever comes now */
        sim->oracle.stable = t->published_step;
        sim->oracle.step_generation = t->generation;
    }
}

/* All have taken it: steps are made from here. */
void oracle_recovered(struct sim *sim)
{
    sim->oracle.step_generation = sim->training.generation;
    sim->oracle.has_digest = false;
}

/* S4: who completes a step of a round holds the same state as the others. */
void oracle_step(struct sim *sim, uint32_t index)
{
    struct oracle *o = &sim->oracle;
    const struct state *state = &sim->nodes[index].state;
    if (oracle_has_forgotten(sim))
        return; /* workers of the round before, which have not been told yet */
    if (state->lineage != o->step_generation)
        sim_fail(sim, "S5: %s makes a step in g%" PRIu64 ", the round is g%" PRIu64,
                 sim->nodes[index].host, state->lineage, o->step_generation);
    if (o->has_digest && o->digest_step == state->step && o->digest != state->digest)
        sim_fail(sim, "S4: %s holds another state of step %" PRIu64, sim->nodes[index].host,
                 state->step);
    o->digest = state->digest;
    o->digest_step = state->step;
    o->has_digest = true;
    o->stable = CT_MAX(o->stable, state->step - 1);
    sim->coverage.steps++;
}
