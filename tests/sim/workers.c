/* What the agent's core decides, done to model workers: two processes a node, which hold a state
 * together and act in rounds together, but leave, stop and die one by one.
 *
 * What they do takes as long as it takes; what the agent reads of them waits while it stands still.
 */
#include "sim.h"

#include "base/assert.h"
#include "chance.h"

#include <inttypes.h>

enum {
    LEAVE_MS = 200,   /* how long leaving a round or ending takes, as a rule */
    KILL_MS = 20,     /* how long dying of SIGKILL takes */
    INQUIRY_MS = 500, /* until an inquiry has its answer, at most */
    SIGKILL_NUMBER = 9,
};

static bool any_lives(const struct sim_node *node)
{
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        if (node->alive[i])
            return true;
    return false;
}

static void later(struct sim *sim, uint32_t index, uint64_t most_ms, enum agent_event_kind kind)
{
    sim_schedule(sim, sim->now + ct_rng_below(&sim->work_rng, most_ms + 1), EV_AGENT, index, kind);
}

/* ---- leaving a round ------------------------------------------------------------------------ */

/* It says that it has left, unless it still loads. In some seeds some never do. */
static void schedule_ready(struct sim *sim, uint32_t index, uint32_t worker, uint64_t most_ms)
{
    const struct sim_node *node = &sim->nodes[index];
    uint64_t delay = 1 + ct_rng_below(&sim->work_rng, most_ms);
    bool slow = !sim->faults_ended && sim->slow_stops;
    if (!node->alive[worker] || !sim->survivable || node->survivors[worker].idle)
        return;
    if (slow && rng_chance(&sim->work_rng, 20))
        sim->nodes[index].stuck[worker] = true;
    if (node->stuck[worker])
        return;
    if (slow && rng_chance(&sim->work_rng, 30))
        delay += ct_rng_below(&sim->work_rng, sim->params.prepare_ms);
    sim_schedule(sim, sim->now + delay, EV_READY, index, sim_worker_tag(node, worker));
}

void sim_worker_ready(struct sim *sim, uint32_t index, uint64_t tag)
{
    struct sim_node *node = &sim->nodes[index];
    uint32_t worker = tag & (SIM_WORKER_ABLE - 1);
    bool is_able = (tag & SIM_WORKER_ABLE) != 0;
    if ((tag & ~(uint64_t)SIM_WORKER_ABLE) != sim_worker_tag(node, worker) || !node->alive[worker])
        return; /* it is another one by now */
    if (is_able) {
        sim_node_feed(
            sim, index,
            &(struct agent_event){.kind = AGENT_ON_READY, .local_rank = worker, .able = true});
        return;
    }
    if (node->acting > 0 && !node->stopped)
        return; /* it acts in the next round */
    struct agent_event event = {
        .kind = AGENT_ON_READY, .local_rank = worker, .generation = node->core.round, .able = true};
    if (node->holds[worker])
        event.held = (struct agent_held){node->state.lineage, node->state.step, node->state.digest};
    sim_node_feed(sim, index, &event);
}

static void revoke(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    if (node->acting > node->core.revoked)
        return;
    node->acting = 0;
    node->boundary = node->stopped = false;
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        schedule_ready(sim, index, i, LEAVE_MS);
}

void sim_workers_at_boundary(struct sim *sim, uint32_t index)
{
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        schedule_ready(sim, index, i, 1);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void end_by_sigkill(struct sim *sim, uint32_t index, uint32_t worker)
{
    const struct sim_node *node = &sim->nodes[index];
    if (node->alive[worker])
        sim_schedule(sim, sim->now + 1 + ct_rng_below(&sim->work_rng, KILL_MS), EV_GONE, index,
                     sim_worker_tag(node, worker));
}

/* They end in order, and after the grace by SIGKILL, which a process that waits for a disk may not
 * notice for long. */
static void stop(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    if (!node->running || node->stopping)
        return;
    node->stopping = true;
    node->acting = 0;
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        uint64_t delay = 1 + ct_rng_below(&sim->work_rng, LEAVE_MS);
        if (!sim->faults_ended && sim->slow_stops && rng_chance(&sim->work_rng, 30))
            delay += ct_rng_below(&sim->work_rng, sim->params.prepare_ms * 5);
        if (node->alive[i])
            sim_schedule(sim, sim->now + delay, EV_GONE, index, sim_worker_tag(node, i));
    }
}

/* One is gone: what it held is lost with the last that holds it. */
static void lose(struct sim_node *node, uint32_t worker)
{
    bool held = false;
    node->alive[worker] = node->holds[worker] = node->workers = false;
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        held = held || node->holds[i];
    if (!held)
        node->state = (struct state){0};
}

/* The launcher reports it; after the last one, that none is left. */
static void report_gone(struct sim *sim, uint32_t index, uint32_t worker, bool well)
{
    struct sim_node *node = &sim->nodes[index];
    lose(node, worker);
    sim_node_feed(sim, index, &(struct agent_event){.kind = AGENT_ON_LEFT, .local_rank = worker});
    if (any_lives(node) || !node->running)
        return;
    node->running = node->stopping = false;
    node->acting = 0;
    sim_node_feed(sim, index, &(struct agent_event){.kind = AGENT_ON_FINISHED, .well = well});
}

/* It ends as it was told to; now and then it fails over that. */
void sim_worker_gone(struct sim *sim, uint32_t index, uint64_t tag)
{
    struct sim_node *node = &sim->nodes[index];
    uint32_t worker = tag & 0xff;
    if (tag != sim_worker_tag(node, worker) || !node->alive[worker])
        return;
    if (node->stopping) {
        bool fails = rng_chance(&sim->work_rng, 20);
        sim_node_feed(sim, index,
                      &(struct agent_event){
                          .kind = AGENT_ON_CASUALTY,
                          .local_rank = worker,
                          .end = {.status = fails ? 9 : 0, .signal = fails ? 0 : AGENT_SIGTERM}});
    }
    report_gone(sim, index, worker, false);
}

/* Does another one live on without it? */
static bool is_lost_alone(const struct sim_node *node, uint32_t worker)
{
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        if (i != worker && node->alive[i] && node->survivors[i].able)
            return !node->stopping;
    return false;
}

static void crash(struct sim *sim, uint32_t index, uint32_t worker)
{
    struct sim_node *node = &sim->nodes[index];
    struct agent_event failure = {.kind = AGENT_ON_FAILURE,
                                  .local_rank = worker,
                                  .end = {.signal = SIGKILL_NUMBER},
                                  .doubtful = rng_chance(&sim->work_rng, 100)};
    if (!node->alive[worker])
        return;
    bool alone = is_lost_alone(node, worker);
    if (node->stopping)
        failure.kind = AGENT_ON_CASUALTY;
    if (!alone) /* the others are stopped at once, and have not heard of it */
        stop(sim, index);
    sim_node_feed(sim, index, &failure);
    report_gone(sim, index, worker, false);
}

/* A worker dies, or both in one moment. */
void sim_worker_crash(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    uint32_t first = (uint32_t)ct_rng_below(&sim->work_rng, SIM_WORKERS);
    bool both = rng_chance(&sim->work_rng, 500);
    if (!sim->processes[sim_process(index)].alive || !node->running)
        return;
    sim_trace(sim, "%s of %s die%s", both ? "the workers" : "a worker", node->host,
              both ? "" : "s");
    crash(sim, index, first);
    if (both)
        crash(sim, index, 1 - first);
}

void sim_workers_base_lost(struct sim *sim, uint32_t index, uint64_t generation)
{
    if (sim->nodes[index].core.running == generation)
        crash(sim, index, 0);
}

/* They end with 0, each by itself. */
void sim_workers_done(struct sim *sim, uint32_t index, uint64_t generation)
{
    struct sim_node *node = &sim->nodes[index];
    if (!node->running || node->stopping || node->acting != generation)
        return;
    node->done_step = node->state.step;
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        if (node->alive[i])
            report_gone(sim, index, i, true);
}

/* ---- a round -------------------------------------------------------------------------------- */

static void start_fails(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    sim_trace(sim, "%s cannot start a worker", node->host);
    stop(sim, index);
    sim_node_feed(sim, index,
                  &(struct agent_event){
                      .kind = AGENT_ON_START_FAILED, .local_rank = 1, .end = {.status = 127}});
    if (node->alive[1])
        report_gone(sim, index, 1, false);
}

static void begin(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    const struct training *t = &sim->training;
    bool fails = !sim->calm && !sim->faults_ended && rng_chance(&sim->fault_rng, 1) &&
                 rng_chance(&sim->fault_rng, 300);
    if (node->stopping)
        sim_fail(sim, "A1: %s begins g%" PRIu64 " while its workers are being ended", node->host,
                 node->core.round);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        if (node->alive[i])
            continue;
        node->alive[i] = true;
        node->stuck[i] = false;
        node->serial[i]++;
        if (sim->programs)
            sim_schedule(sim, sim->now + ct_rng_below(&sim->work_rng, LEAVE_MS), EV_READY, index,
                         sim_worker_tag(node, i) | SIM_WORKER_ABLE);
    }
    node->running = node->workers = true;
    node->boundary = node->stopped = false;
    node->acting = node->core.round;
    node->done_step = 0;
    if (fails) {
        start_fails(sim, index);
        return;
    }
    /* What it promised to give, it may have lost since. */
    bool is_base =
        t->generation == node->core.round && t->base_node >= 0 && t->nodes[t->base_node] == index;
    if (is_base && (node->state.lineage != t->lineage || node->state.step != t->base_step))
        sim_schedule(sim, sim->now, EV_BASE_LOST, index, node->core.round);
}

static bool all_hold(const struct sim_node *node)
{
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        if (!node->alive[i] || !node->holds[i])
            return false;
    return true;
}

/* Those that still load have done nothing in their round. */
static bool all_load(const struct sim_node *node)
{
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        if (node->alive[i] && !node->survivors[i].idle)
            return false;
    return true;
}

/* A2: nobody acts in an older round. */
static void promise(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    const struct agent_held *best = &node->core.best;
    const struct ct_prepared prepared = {
        .generation = node->core.promised,
        .lineage = best->lineage,
        .step = best->step,
        .digest = best->digest,
        .untouched = node->core.untouched,
    };
    if (node->acting > 0 && !node->stopped && !all_load(node))
        sim_fail(sim, "A2: %s promises g%" PRIu64 " while its workers act in g%" PRIu64, node->host,
                 prepared.generation, node->acting);
    node->acting = 0;
    node->boundary = node->stopped = false;
    node->promised_max = prepared.generation;
    ct_member_prepared(&node->member, &prepared);
}

void sim_workers_recovered(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    node->recovered_max = node->acting;
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        node->holds[i] = true;
        if (sim->programs) /* a program says so before it takes a state */
            sim_worker_ready(sim, index, sim_worker_tag(node, i) | SIM_WORKER_ABLE);
        sim_node_feed(sim, index,
                      &(struct agent_event){.kind = AGENT_ON_RECOVERED,
                                            .local_rank = i,
                                            .generation = node->recovered_max});
    }
}

/* ---- publications --------------------------------------------------------------------------- */

void sim_workers_publish(struct sim *sim, uint32_t index, uint64_t step, uint64_t digest)
{
    struct sim_node *node = &sim->nodes[index];
    if (node->published_ms > 0 && node->core.publication.generation == node->acting)
        return; /* they wait for the answer */
    node->published_ms = sim->now;
    node->digest = digest;
    sim_node_feed(sim, index,
                  &(struct agent_event){
                      .kind = AGENT_ON_PUBLISH, .generation = node->acting, .held.step = step});
}

static void publish(struct sim_node *node)
{
    const struct ct_msg_publish publication = {.generation = node->core.publication.generation,
                                               .step = node->core.publication.step,
                                               .digest = node->digest};
    (void)ct_member_publish(&node->member, &publication);
}

static void answer(struct sim *sim, struct sim_node *node)
{
    if (node->published_ms == 0)
        sim_fail(sim, "A5: %s answers a publication that nobody asked for", node->host);
    node->published_ms = 0;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static void send_failure(struct sim *sim, struct sim_node *node, int code)
{
    const struct ct_wire_failure failure = {
        .code = code,
        .rank = 0,
        .status = -1,
        .signal = SIGKILL_NUMBER,
        .fatal = code == CT_EWORKER && node->core.final,
    };
    ct_member_failure(&node->member, sim_local_ms(sim, sim_process(node->index)), node->core.round,
                      &failure);
}

/* A6: 128 + signal for who was stopped, the job's status for who was told it. */
static void check_status(struct sim *sim, const struct sim_node *node)
{
    const struct agent_core *core = &node->core;
    bool right = core->unstopped > 0     ? core->status == ct_exit_shell_status(core->unstopped_end)
                 : core->stopped_by != 0 ? core->status == 128 + core->stopped_by
                 : node->end == NODE_CLOSED ? core->status == node->result.status
                 : node->end == NODE_FAILED ? core->status == ct_exit_status(node->error.code)
                                            : core->status == 0;
    if (!right)
        sim_fail(sim, "A6: %s ends with status %d", node->host, core->status);
}

static void do_end(struct sim *sim, uint32_t index, enum agent_action action)
{
    struct sim_node *node = &sim->nodes[index];
    switch (action) {
    case AGENT_DO_CLOSE_LINK:
        ct_member_stop(&node->member);
        later(sim, index, LEAVE_MS, AGENT_ON_UNLINKED);
        break;
    case AGENT_DO_FLUSH:
        if (any_lives(node))
            sim_fail(sim, "A4: %s ends before its workers", node->host);
        later(sim, index, sim->disk.full > 0 ? node->core.settings.grace_ms : 5, AGENT_ON_FLUSHED);
        break;
    case AGENT_DO_YIELD:
        sim_host_yield(sim, index);
        break;
    case AGENT_DO_STOP_SERVER:
        sim_host_stop(sim, index);
        later(sim, index, 1, AGENT_ON_SERVER_STOPPED);
        break;
    case AGENT_DO_REPORT:
        check_status(sim, node);
        break;
    default: /* what only a person notices */
        break;
    }
}

static void do_dismiss(struct sim *sim, uint32_t index, bool all)
{
    struct sim_node *node = &sim->nodes[index];
    if (!all && node->core.phase == AGENT_BOUNDARY)
        sim_fail(sim, "A1: %s gives up a worker that may go on to a step boundary", node->host);
    if (all && node->running)
        node->stopping = true;
    if (all)
        node->acting = 0;
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        if (!all && !node->dismissed[i])
            continue;
        if (!all && rng_chance(&sim->work_rng, 300)) /* the moment before, it has left */
            sim_schedule(sim, sim->now, EV_READY, index, sim_worker_tag(node, i));
        end_by_sigkill(sim, index, i);
    }
}

void sim_workers_do(struct sim *sim, uint32_t index, enum agent_action action,
                    const struct agent_event *event)
{
    struct sim_node *node = &sim->nodes[index];
    (void)event;
    sim->coverage.actions[action]++;
    switch (action) {
    case AGENT_DO_SEND_FAILURE:
    case AGENT_DO_SEND_HELD:
        send_failure(sim, node, CT_EWORKER);
        break;
    case AGENT_DO_BLAME_NETWORK:
        send_failure(sim, node, CT_EREVOKED);
        break;
    case AGENT_DO_INQUIRE:
        later(sim, index, INQUIRY_MS, AGENT_ON_INQUIRED);
        break;
    case AGENT_DO_SEND_RECOVERED:
        if (!all_hold(node))
            sim_fail(sim, "S17: %s has recovered, and not all of its workers have", node->host);
        ct_member_state_recovered(&node->member, node->core.running);
        break;
    case AGENT_DO_SEND_DONE:
        ct_member_done(&node->member, node->core.finished);
        break;
    case AGENT_DO_LEAVE:
        ct_member_leave(&node->member, node->core.leave);
        break;
    case AGENT_DO_REVOKE:
        revoke(sim, index);
        break;
    case AGENT_DO_SET_BOUNDARY:
        node->boundary = true;
        break;
    case AGENT_DO_STOP:
        stop(sim, index);
        break;
    case AGENT_DO_DISMISS:
    case AGENT_DO_KILL:
        do_dismiss(sim, index, action == AGENT_DO_KILL);
        break;
    case AGENT_DO_PROMISE:
        promise(sim, index);
        break;
    case AGENT_DO_BEGIN:
        begin(sim, index);
        break;
    case AGENT_DO_PUBLISH:
        publish(node);
        break;
    case AGENT_DO_ANSWER:
        answer(sim, node);
        break;
    default:
        do_end(sim, index, action);
        break;
    }
}
