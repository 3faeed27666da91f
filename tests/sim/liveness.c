/* What must have happened by the end, when nothing was wrong for a while, and
 * what a single fault may cost in a calm run. */
#include "agent_names.h"
#include "sim.h"

#include "base/assert.h"

#include <inttypes.h>

enum {
    LOSS_ROUNDS = 4, /* a node goes, perhaps below MIN, and comes back */
    OUT_MS = 2500,   /* beyond the lease, until survivors act again without a silent
                        node */
    FIRST_STEPS = 5, /* that a round makes in twice their time */
    DONE_MS = 10000, /* until a job is over whose ranks are all done */
    ENDS_MS = 10000, /* what an agent's end may take beside its workers' */
    QUIET =
        2, /* generations of the last quarter of a run, or one a node: it cools down, and comes */
    HANDOVER_MS = 2000,
    WASTE = 5, /* generations that a fault, a start or a broken connection may cost */
};

/* ---- nodes without workers ---- */

/* It holds another record, which cannot go on, or has not begun: it waits for an operator. */
static bool is_stuck(struct sim *sim, const struct sim_node *node)
{
    return sim->embedded && agreement_is_behind(sim, node->index);
}

/* It was released, leads, and no other node can hold the record: it stays. */
static bool is_needed(struct sim *sim, const struct sim_node *node)
{
    const struct sim_host *host = &sim->hosts[node->index];
    if (node->core.life != AGENT_HOSTING || !node->core.released || !host->holds ||
        !ct_holder_leads(&host->holder))
        return false;
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (i != node->index && sim->processes[sim_process(i)].alive &&
            !is_stuck(sim, &sim->nodes[i]))
            return false;
    return true;
}

/* It ended, and is not started again, or not yet. */
static bool is_over(const struct sim *sim, const struct sim_node *node)
{
    return sim->embedded && !sim->processes[sim_process(node->index)].alive;
}

static uint32_t count_idle(struct sim *sim)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sim->node_count; i++) {
        const struct sim_node *node = &sim->nodes[i];
        count += is_over(sim, node) || (sim->processes[sim_process(i)].alive &&
                                        (is_needed(sim, node) || is_stuck(sim, node)));
    }
    return count;
}

/* ---- calm runs: one fault after the other ---- */

/* How many generations a fault may cost. */
static uint64_t allowed(const struct sim *sim, const struct fault *fault, uint32_t nodes)
{
    enum { NEVER = 0, SHORT = 1000, LOSS = LOSS_ROUNDS };
    static const uint32_t costs[] = {
#define FAULT(name, rounds, what) [FAULT_##name] = rounds,
#include "faults.def"
#undef FAULT
    };
    bool is_short = fault->lasts < sim->params.lease_ms / 2;
    if (costs[fault->kind] == SHORT)
        return is_short ? 0 : LOSS;
    if (fault->kind == FAULT_ISOLATE && nodes == 1) /* is it the node, or the daemon? */
        return is_short ? 0 : LOSS;
    return costs[fault->kind];
}

static const struct ct_rdzv *running_job(struct sim *sim, const char *when)
{
    const struct ct_rdzv *job = sim_job(sim_newest_daemon(sim));
    if (job != NULL && ct_rdzv_phase(job) == CT_RDZV_RUNNING)
        return job;
    sim_fail(sim, "L2: the job does not run %s", when);
    return NULL;
}

void oracle_calm_begin(struct sim *sim, struct fault *fault)
{
    if (sim->embedded &&
        (!agreement_can_lead(sim) || sim->node_count - count_idle(sim) < sim->params.nodes_min))
        return;
    const struct ct_rdzv *job = running_job(sim, "before a fault");
    if (job == NULL)
        return;
    fault->generation = ct_rdzv_generation(job);
    fault->incarnation = sim->nodes[fault->node].incarnations;
    fault->nodes = ct_rdzv_roster(job)->count;
    bool is_silent = fault->kind == FAULT_NODE_CRASH || fault->kind == FAULT_NODE_PAUSE ||
                     fault->kind == FAULT_CUT || fault->kind == FAULT_CUT_TO;
    uint64_t out = sim->params.lease_ms + OUT_MS;
    if (is_silent && fault->lasts > out)
        sim_schedule(sim, sim->now + out, EV_CALM, (uint32_t)(fault - sim->faults), 1);
    if (fault->kind == FAULT_NODE_DRAIN)
        sim_schedule(sim, sim->now + sim->step_ms + OUT_MS, EV_CALM,
                     (uint32_t)(fault - sim->faults), 2);
}

/* L4: a silent node is out, and the others act again or wait for more. */
void oracle_calm_out(struct sim *sim, const struct fault *fault)
{
    const struct ct_rdzv *job = sim_job(sim_newest_daemon(sim));
    const struct sim_node *node = &sim->nodes[fault->node];
    if (job == NULL || fault->nodes == 1 || sim->embedded)
        return;
    enum ct_rdzv_phase phase = ct_rdzv_phase(job);
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job);
    bool is_in = false;
    for (uint32_t i = 0; phase == CT_RDZV_RUNNING && i < roster->count; i++)
        is_in = is_in || (roster->places[i].id.high == fault->node + 1u &&
                          roster->places[i].id.low == fault->incarnation);
    if (is_in || phase == CT_RDZV_PREPARE)
        sim_fail(sim, "L4: %s is silent for %" PRIu64 " ms and the job is in %s with it",
                 node->host, sim->now - fault->at, ct_rdzv_phase_name(phase));
}

/* L6: the order was heard; who leaves is let go. */
void oracle_calm_ordered(struct sim *sim, const struct fault *fault)
{
    if (sim->calm && sim->operator_answer == 0)
        sim_schedule(sim, sim->now + sim->step_ms + OUT_MS, EV_CALM,
                     (uint32_t)(fault - sim->faults), 2);
}

void oracle_calm_left(struct sim *sim, const struct fault *fault)
{
    const struct sim_node *node = &sim->nodes[fault->node];
    if (node->incarnations == fault->incarnation && node->end == NODE_RUNS &&
        sim->processes[sim_process(fault->node)].alive)
        sim_fail(sim, "L6: %s wanted to leave %" PRIu64 " ms ago", node->host,
                 sim->now - fault->at);
}

/* L8: the fault cost no more than it may; L2, L5: all that can take part do,
 * again. */
static void check_members(struct sim *sim, const struct ct_rdzv *job)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job);
    size_t cooling = 0;
    uint64_t now = sim_local_ms(sim, sim_newest_daemon(sim)->index);
    for (size_t i = 0; i < ct_rdzv_capacity(job); i++) {
        const struct ct_rdzv_member *member = ct_rdzv_member(job, i);
        cooling +=
            member->state == CT_RDZV_STANDBY && (member->barred || member->eligible_ms > now);
    }
    for (uint32_t i = 0; i < roster->count; i++) {
        const struct sim_node *node = &sim->nodes[roster->places[i].id.high - 1];
        if (node->acting != roster->generation && node->done_step == 0)
            sim_fail(sim, "L2: %s does not act in g%" PRIu64, node->host, roster->generation);
    }
    uint32_t possible = CT_MIN(sim->node_count - count_idle(sim), sim->params.nodes_max);
    if (roster->count + cooling < possible && sim->params.world_divides == 0)
        sim_fail(sim, "L5: %u nodes run, %u could", roster->count, possible);
}

void oracle_calm_end(struct sim *sim, const struct fault *fault)
{
    char text[128];
    if (sim->embedded &&
        (!agreement_can_lead(sim) || sim->node_count - count_idle(sim) < sim->params.nodes_min))
        return;
    const struct ct_rdzv *job = running_job(sim, "long after a fault");
    if (job == NULL || sim->embedded)
        return;
    sim_fault_print(fault, text, sizeof(text));
    uint64_t spent = ct_rdzv_generation(job) - fault->generation;
    if (spent > allowed(sim, fault, fault->nodes))
        sim_fail(sim, "L8: %s alone cost %" PRIu64 " generations, %" PRIu64 " are allowed",
                 text + 10, spent, allowed(sim, fault, fault->nodes));
    check_members(sim, job);
}

/* ---- the end: with nothing wrong any more, the job runs or has ended ---- */

static bool has_ended(const struct sim *sim, const struct ct_rdzv *job)
{
    if (job == NULL && sim->embedded && sim->oracle.close_reported)
        return true;
    bool never_began = sim->oracle.close_reported && sim->oracle.generation == 0;
    return job == NULL ? sim->over || never_began : ct_rdzv_phase(job) == CT_RDZV_CLOSED;
}

/* L3, L7: the workers come on, and when all are done the job ends. */
static void check_progress(struct sim *sim, const struct ct_rdzv_roster *roster)
{
    const struct training *t = &sim->training;
    if (t->generation != roster->generation)
        return;
    bool all_done = sim->total_steps > 0;
    for (uint32_t i = 0; i < t->count; i++)
        all_done = all_done && CT_MAX(sim->nodes[t->nodes[i]].state.step,
                                      sim->nodes[t->nodes[i]].done_step) >= sim->total_steps;
    if (all_done && sim->now > t->done_ms + DONE_MS * sim->scale)
        sim_fail(sim, "L7: all ranks are done, and the job goes on");
    const struct sim_daemon *daemon = sim_newest_daemon(sim);
    bool is_new =
        sim_local_ms(sim, daemon->index) < daemon->phase_ms + 2 * FIRST_STEPS * sim->step_ms;
    if (sim->total_steps == 0 && !is_new && sim->nodes[t->nodes[0]].state.step < FIRST_STEPS)
        sim_fail(sim, "L3: no steps in g%" PRIu64, roster->generation);
}

/* L9: who asks for a publication is answered. */
static void check_answers(struct sim *sim, const struct ct_rdzv_roster *roster)
{
    for (uint32_t i = 0; i < roster->count; i++) {
        const struct sim_node *node = &sim->nodes[roster->places[i].id.high - 1];
        if (node->published_ms > 0 && sim->now > node->published_ms + DONE_MS * sim->scale)
            sim_fail(sim, "L9: %s asked for a publication %" PRIu64 " ms ago", node->host,
                     sim->now - node->published_ms);
    }
}

static void check_running(struct sim *sim, const struct ct_rdzv *job)
{
    char text[1024];
    if (sim->embedded && ct_rdzv_phase(job) == CT_RDZV_CLOSING)
        return; /* its end is being agreed on */
    if (ct_rdzv_phase(job) != CT_RDZV_RUNNING &&
        sim->node_count - count_idle(sim) < sim->params.nodes_min)
        return;
    if (ct_rdzv_phase(job) != CT_RDZV_RUNNING) {
        ct_rdzv_describe(job, text, sizeof(text));
        sim_fail(sim, "L2: %" PRIu64 " ms after all is well the job is in %s: %s",
                 sim->ends_ms - sim->faults_ms, ct_rdzv_phase_name(ct_rdzv_phase(job)), text);
        return;
    }
    check_members(sim, job);
    check_progress(sim, ct_rdzv_roster(job));
    check_answers(sim, ct_rdzv_roster(job));
}

/* L1: somebody leads, if anybody may. */
bool oracle_led(struct sim *sim, bool is_again)
{
    if (sim->divided)
        return true;
    const struct sim_daemon *daemon = sim_newest_daemon(sim);
    bool is_led = daemon != NULL && agreement_is_newest(sim, daemon);
    bool must_be_led = !sim->oracle.close_reported && agreement_can_lead(sim);
    if (is_led || !must_be_led)
        return true;
    if (is_again)
        sim_fail(sim, "L1: nobody leads %" PRIu64 " ms after all is well",
                 sim->now - sim->faults_ms);
    sim_schedule(sim, sim->now + HANDOVER_MS, EV_LED, 1, 0); /* a drained one may be handing over */
    return false;
}

/* L8: once all is well for a while no round follows the other. */
void oracle_quiet(struct sim *sim)
{
    const struct ct_rdzv *job = sim_job(sim_newest_daemon(sim));
    sim->oracle.quiet_generation = job != NULL ? ct_rdzv_generation(job) : 0;
}

/* L8: no live-lock. S14: nothing is left of what is gone. */
static void check_waste(struct sim *sim, const struct sim_daemon *daemon)
{
    const struct ct_rdzv *job = sim_job(daemon);
    size_t conns = 0;
    for (size_t i = 0; i < SIM_CONNS; i++)
        conns += sim->conns[i].used && sim->conns[i].open[AT_DAEMON] &&
                 &sim->daemons[sim->conns[i].daemon] == daemon;
    conns += sim->operator.open[AT_DAEMON];
    if (ct_service_links(daemon->service) > conns)
        sim_fail(sim, "S14: %zu links, %zu connections", ct_service_links(daemon->service), conns);
    uint64_t causes = sim->coverage.faults + sim->oracle.starts + sim->oracle.breaks;
    if (job != NULL && sim->oracle.quiet_generation > 0 &&
        ct_rdzv_generation(job) > sim->oracle.quiet_generation + CT_MAX(QUIET, sim->node_count))
        sim_fail(sim, "L8: generation %" PRIu64 ", it was %" PRIu64 " long after all was well",
                 ct_rdzv_generation(job), sim->oracle.quiet_generation);
    if (job != NULL && ct_rdzv_generation(job) > WASTE * causes)
        sim_fail(sim, "L8: %" PRIu64 " generations for %" PRIu64 " causes", ct_rdzv_generation(job),
                 causes);
}

/* A4: an agent that was to end has ended, after its workers' grace and the waits on its way. */
static void check_ends(struct sim *sim, const struct sim_node *node)
{
    uint64_t most_ms = 4 * (uint64_t)sim->params.prepare_ms + sim->params.lease_ms + ENDS_MS;
    if (node->ends_ms > 0 && sim->now > CT_MAX(node->ends_ms, sim->faults_ms) + most_ms &&
        node->core.life != AGENT_DRAINING && !is_needed(sim, node))
        sim_fail(sim, "A4: %s is %s for %" PRIu64 " ms", node->host,
                 agent_life_name(node->core.life), sim->now - node->ends_ms);
}

/* R9: of two jobs that both had rounds one is left, where the nodes can meet. */
static void check_united(struct sim *sim)
{
    const struct sim_host *there = &sim->hosts[0], *first = NULL;
    if (!sim->processes[sim_process(0)].alive || !there->holds)
        return;
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        const struct sim_host *host = &sim->hosts[i];
        if (!sim->processes[sim_process(i)].alive || !host->holds ||
            ct_holder_generation(&host->holder) == 0)
            continue;
        if (first != NULL && host->record != first->record)
            sim_fail(sim,
                     "R9: n%u serves round %" PRIu64 " of record %u, and n%u round %" PRIu64
                     " of record %u, %" PRIu64 " ms after all is well",
                     first->index, ct_holder_generation(&first->holder), first->record, host->index,
                     ct_holder_generation(&host->holder), host->record, sim->now - sim->faults_ms);
        first = host;
    }
    sim->coverage.united += first != NULL;
}

/* Without a daemon: a newcomer whom nobody has taken yet finds the others where the nodes meet. */
static bool finds_nobody(const struct sim *sim, const struct sim_node *node)
{
    bool is_there = sim->processes[sim_process(0)].alive && sim->hosts[0].holds;
    return sim->embedded && !is_there && !node->member.was_joined;
}

void oracle_end(struct sim *sim)
{
    if (sim->divided) {
        if (!sim->over)
            check_united(sim);
        return;
    }
    const struct sim_daemon *daemon = sim_newest_daemon(sim);
    const struct ct_rdzv *job = sim->over ? NULL : sim_job(daemon);
    /* The job has ended, and others wait for one that they remember, or for a new one. */
    if (sim->embedded && sim->oracle.close_reported && !agreement_can_lead(sim))
        job = NULL;
    if (sim->oracle.wall_reads > 0)
        sim_fail(sim, "S15: a core looked at the wall clock");
    if (sim->embedded && !sim->over && !sim->oracle.close_reported && !agreement_can_lead(sim)) {
        sim->coverage.waits++; /* nobody may lead: they wait, and say so */
        return;
    }
    if (daemon != NULL)
        check_waste(sim, daemon);
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (sim->processes[sim_process(i)].alive)
            check_ends(sim, &sim->nodes[i]);
    if (!has_ended(sim, job)) {
        if (job == NULL)
            sim_fail(sim, "L1: no daemon serves the job");
        else
            check_running(sim, job);
        return;
    }
    for (uint32_t i = 0; i < sim->node_count; i++) {
        const struct sim_node *node = &sim->nodes[i];
        if (sim->processes[sim_process(i)].alive && job != NULL && !finds_nobody(sim, node) &&
            sim->now > sim->oracle.close_reported_ms + DONE_MS * sim->scale)
            sim_fail(sim, "L7: %s still lives after the end of the job", node->host);
        sim->coverage.ends[node->end]++;
    }
}
