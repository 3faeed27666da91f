/* The invariants of elastic.md 2.12 that one job with one daemon can break. The names S1, S2, ...
 * are those of the table in README.md. */
#include "sim.h"

#include "base/assert.h"
#include "base/hash.h"

#include <inttypes.h>
#include <string.h>

static bool same_id(struct ct_id a, struct ct_id b)
{
    return a.high == b.high && a.low == b.low;
}

/* ---- what the daemon says ---- */

void oracle_daemon_tells(struct sim *sim, const struct ct_message *message)
{
    struct oracle *o = &sim->oracle;
    uint64_t generation = 0;
    if (message->type == CT_MSG_PREPARE)
        generation = message->prepare.generation;
    if (message->type == CT_MSG_ROUND)
        generation = o->committed = CT_MAX(o->committed, message->round.generation);
    if (message->type == CT_MSG_CLOSE)
        o->told_close = true;
    if (generation > 0 && o->told_close) {
        if (ct_rdzv_phase(sim_job(sim)) == CT_RDZV_CLOSED)
            sim_fail(sim, "S12: round %" PRIu64 " is told after the end of the job", generation);
        sim->daemon.was_reaped = true; /* another job took the name */
    }
    o->generation = CT_MAX(o->generation, generation);
}

/* S10: what was told is there after a restart. */
void oracle_daemon_restored(struct sim *sim)
{
    struct oracle *o = &sim->oracle;
    const struct ct_rdzv *job = sim_job(sim);
    if (sim->daemon.epoch <= o->epoch)
        sim_fail(sim, "S3: epoch %" PRIu64 " after %" PRIu64, sim->daemon.epoch, o->epoch);
    o->epoch = sim->daemon.epoch;
    o->core_generation = o->core_restarts = 0;
    memset(o->was_member, 0, sizeof(o->was_member));
    if (job == NULL) {
        if (o->generation > 0 && sim->last_phase != CT_RDZV_CLOSED)
            sim_fail(sim, "S10: the job is forgotten after round %" PRIu64, o->generation);
        return;
    }
    if (ct_rdzv_generation(job) < o->generation)
        sim_fail(sim, "S10: generation %" PRIu64 " was told, %" PRIu64 " is known", o->generation,
                 ct_rdzv_generation(job));
    if (ct_rdzv_roster(job)->generation < o->committed)
        sim_fail(sim, "S10: round %" PRIu64 " was told, %" PRIu64 " is known", o->committed,
                 ct_rdzv_roster(job)->generation);
    if (o->told_close && sim->daemon.close_failed)
        sim->daemon.was_reaped = true; /* the end is told even when it cannot be kept */
    else if (o->told_close && ct_rdzv_phase(job) != CT_RDZV_CLOSED)
        sim_fail(sim, "S12: the job was ended and lives again");
    o->core_restarts = ct_rdzv_restarts(job); /* one that was not told yet may be forgotten */
    o->core_generation = ct_rdzv_generation(job);
    o->phase_ms = sim_local_ms(sim, 0);
}

/* ---- what the daemon does ---- */

/* S11: survivors keep their order, and their ranks when the places did not change. */
static void check_order(struct sim *sim, const struct ct_rdzv_roster *roster)
{
    struct oracle *o = &sim->oracle;
    uint32_t after = 0;
    bool same_shape = roster->count == o->order_count;
    for (uint32_t i = 0; same_shape && i < roster->count; i++)
        same_shape = roster->places[i].slots == o->worlds[i];
    for (uint32_t i = 0; i < roster->count; i++) {
        for (uint32_t k = 0; k < o->order_count; k++) {
            if (!same_id(roster->places[i].id, o->order[k]))
                continue;
            if (k < after)
                sim_fail(sim, "S11: %s fell behind another survivor", roster->places[i].host);
            o->overlaps[roster->generation] = true;
            if (same_shape && i != k)
                sim_fail(sim, "S11: %s moved from place %u to %u of an equal world",
                         roster->places[i].host, k, i);
            after = k + 1;
        }
    }
    CT_ASSERT(roster->count <= CT_COUNT(o->order) && roster->generation < SIM_ROUNDS);
    o->order_count = roster->count;
    o->order_generation = roster->generation;
    for (uint32_t i = 0; i < roster->count; i++) {
        o->order[i] = roster->places[i].id;
        o->worlds[i] = roster->places[i].slots;
    }
}

/* Nobody is left out while its connection is open and it is heard in time (S9: who is not in a new
 * roster has expired or was released). */
static void check_losses(struct sim *sim, const struct ct_rdzv *job)
{
    struct oracle *o = &sim->oracle;
    for (size_t i = 0; i < ct_rdzv_capacity(job) && i < CT_COUNT(o->was_member); i++) {
        const struct ct_rdzv_member *member = ct_rdzv_member(job, i);
        bool was = o->was_member[i];
        o->was_member[i] = member->state != CT_RDZV_FREE;
        if (!was || member->state != CT_RDZV_FREE || member->leaving || member->link == 0)
            continue;
        uint64_t silent = sim_local_ms(sim, 0) - member->heard_ms;
        bool was_slow = sim->last_phase == CT_RDZV_PREPARE &&
                        sim_local_ms(sim, 0) - o->phase_ms >= sim->params.prepare_ms;
        if (silent >= sim->params.lease_ms || was_slow || ct_rdzv_phase(job) == CT_RDZV_CLOSED)
            continue;
        sim_fail(sim, "S9: %s is left out, heard %" PRIu64 " ms ago", member->host, silent);
    }
}

void oracle_daemon_step(struct sim *sim)
{
    struct oracle *o = &sim->oracle;
    struct ct_error err = {0};
    const struct ct_rdzv *job = sim_job(sim);
    bool is_another =
        job != NULL && sim->last_phase == CT_RDZV_CLOSED && ct_rdzv_phase(job) != CT_RDZV_CLOSED;
    if (job == NULL || is_another) {
        sim->daemon.was_reaped = sim->last_phase == CT_RDZV_CLOSED;
        return;
    }
    if (ct_rdzv_check(job, &err) != 0)
        sim_fail(sim, "%s", err.text);
    if (ct_rdzv_generation(job) < o->core_generation)
        sim_fail(sim, "S3: generation %" PRIu64 " after %" PRIu64, ct_rdzv_generation(job),
                 o->core_generation);
    if (ct_rdzv_restarts(job) < o->core_restarts ||
        ct_rdzv_restarts(job) > sim->params.max_restarts)
        sim_fail(sim, "S12: %u restarts after %u, %u are allowed", ct_rdzv_restarts(job),
                 o->core_restarts, sim->params.max_restarts);
    o->core_generation = ct_rdzv_generation(job);
    o->core_restarts = ct_rdzv_restarts(job);
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job);
    if (roster->generation > o->order_generation) {
        check_order(sim, roster);
        sim->coverage.rounds++;
    }
    check_losses(sim, job);
    enum ct_rdzv_phase phase = ct_rdzv_phase(job);
    sim->coverage.moves[sim->last_phase][phase]++;
    if (sim->last_phase != phase)
        o->phase_ms = sim_local_ms(sim, 0);
    sim->last_phase = phase;
}

/* ---- what the nodes do ---- */

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

void oracle_node_round(struct sim *sim, uint32_t index, const struct ct_round *round)
{
    struct oracle *o = &sim->oracle;
    const struct sim_node *node = &sim->nodes[index];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < round->node_count; i++) {
        if (round->nodes[i].first_rank != rank)
            sim_fail(sim, "S1: ranks of g%" PRIu64 " have a hole at %u", round->generation, rank);
        rank += round->nodes[i].slots;
        for (uint32_t k = 0; k < i; k++)
            if (same_id(round->nodes[i].id, round->nodes[k].id))
                sim_fail(sim, "S1: %s has two places in g%" PRIu64, round->nodes[i].host,
                         round->generation);
    }
    if (rank != round->world || round->node_count < sim->params.nodes_min ||
        round->node_count > sim->params.nodes_max)
        sim_fail(sim, "S1: g%" PRIu64 " has %u nodes, %u of %u ranks", round->generation,
                 round->node_count, rank, round->world);
    CT_ASSERT(round->generation < SIM_ROUNDS);
    uint64_t *seen = &o->rosters[round->generation];
    if (*seen != 0 && *seen != hash_of(round))
        sim_fail(sim, "S2: %s sees another roster of g%" PRIu64, node->host, round->generation);
    *seen = hash_of(round);
    if (round->generation <= node->acting_max || round->generation != node->promised_max)
        sim_fail(sim, "S3: %s begins g%" PRIu64 " after g%" PRIu64 ", with g%" PRIu64 " promised",
                 node->host, round->generation, node->acting_max, node->promised_max);
}

void oracle_node_closed(struct sim *sim, uint32_t index)
{
    struct oracle *o = &sim->oracle;
    const struct ct_rdzv_result *result = &sim->nodes[index].result;
    if (o->closed && (o->result.status != result->status || o->result.code != result->code ||
                      strcmp(o->result.cause.text, result->cause.text) != 0))
        sim_fail(sim, "S12: %s is told status %d, others %d", sim->nodes[index].host,
                 result->status, o->result.status);
    o->closed = true;
    o->result = *result;
}

/* S5 and S8: the round starts from the state that it names, and no step is lost that all had,
 * unless nobody is left who knows whether the last round went on. */
void oracle_heal(struct sim *sim)
{
    struct oracle *o = &sim->oracle;
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
    for (uint32_t i = 0; i < t->count; i++) {
        const struct sim_node *node = &sim->nodes[t->nodes[i]];
        bool holds = o->stable > 0 && o->overlaps[t->generation] &&
                     node->state.lineage == o->step_generation && node->state.step >= o->stable;
        if (holds && (t->base_node < 0 || t->base_step < o->stable))
            sim_fail(sim,
                     "S8: g%" PRIu64 " starts from step %" PRIu64 ", but %s holds step "
                     "%" PRIu64 " and all had %" PRIu64,
                     t->generation, t->base_step, node->host, node->state.step, o->stable);
    }
    if (t->base_node < 0)
        o->stable = 0; /* nobody held it any more: from the checkpoint */
    o->step_generation = t->generation;
    o->has_digest = false;
}

/* S4: who completes a step of a round holds the same state as the others. */
void oracle_step(struct sim *sim, uint32_t index)
{
    struct oracle *o = &sim->oracle;
    const struct state *state = &sim->nodes[index].state;
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

/* ---- the end: with nothing wrong any more, the job runs or has ended ---- */

static bool has_ended(const struct sim *sim, const struct ct_rdzv *job)
{
    if (job == NULL)
        return sim->daemon.was_reaped;
    return ct_rdzv_phase(job) == CT_RDZV_CLOSED;
}

/* L2, L3: all members act, and steps advance. */
static void check_running(struct sim *sim, const struct ct_rdzv *job)
{
    char text[1024];
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job);
    size_t cooling = 0;
    for (size_t i = 0; i < ct_rdzv_capacity(job); i++)
        cooling += ct_rdzv_member(job, i)->state == CT_RDZV_STANDBY &&
                   ct_rdzv_member(job, i)->eligible_ms > sim_local_ms(sim, 0);
    if (ct_rdzv_phase(job) != CT_RDZV_RUNNING) {
        ct_rdzv_describe(job, text, sizeof(text));
        sim_fail(sim, "L2: %d ms after all is well the job is in %s: %s", SIM_HEALED_MS,
                 ct_rdzv_phase_name(ct_rdzv_phase(job)), text);
        return;
    }
    for (uint32_t i = 0; i < roster->count; i++) {
        const struct sim_node *node = &sim->nodes[roster->places[i].id.high - 1];
        if (node->acting != roster->generation)
            sim_fail(sim, "L2: %s does not act in g%" PRIu64, node->host, roster->generation);
    }
    uint32_t possible = CT_MIN(sim->node_count, sim->params.nodes_max);
    if (roster->count + cooling < possible)
        sim_fail(sim, "L5: %u nodes run, %u could", roster->count, possible);
    if (sim->total_steps == 0 && sim->training.generation == roster->generation &&
        sim->nodes[sim->training.nodes[0]].state.step < 5)
        sim_fail(sim, "L3: no steps in g%" PRIu64, roster->generation);
}

void oracle_end(struct sim *sim)
{
    const struct ct_rdzv *job = sim->daemon.was_reaped ? NULL : sim_job(sim);
    if (!has_ended(sim, job)) {
        if (job == NULL)
            sim_fail(sim, "L1: the daemon serves no job");
        else
            check_running(sim, job);
        return;
    }
    for (uint32_t i = 0; i < sim->node_count; i++) {
        const struct sim_node *node = &sim->nodes[i];
        if (sim->processes[i + 1].alive && job != NULL)
            sim_fail(sim, "L7: %s still lives after the end of the job", node->host);
        sim->coverage.ends[node->end]++;
    }
}
