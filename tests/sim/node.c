/* A node: the real agent core, and workers that are a few numbers.
 *
 * Workers that survive (half of the seeds) keep their state from round to
 * round; others lose it whenever a round ends. A node whose agent dies loses
 * everything. */
#include "sim.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what the agent is told ---- */

static void on_waiting(void *context, const char *text)
{
    (void)context;
    (void)text;
}

void sim_node_answer(struct sim *sim, uint32_t index, uint64_t delay_ms)
{
    const struct sim_node *node = &sim->nodes[index];
    if (node->asked > 0 && !node->promised)
        sim_schedule(sim, sim->now + delay_ms, EV_PREPARED, index, node->asked);
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct sim_node *node = context;
    struct sim *sim = node->sim;
    sim_tell(sim, "%s is asked for g%" PRIu64 " (%s%s)", node->host, generation,
             ct_rdzv_reason_name(reason), at_boundary ? ", at a step boundary" : "");
    node->asked = generation;
    node->promised = false;
    if (at_boundary && node->acting > 0 && node->workers && !node->stopped) {
        node->boundary = true;
        return;
    }
    uint64_t stopping = ct_rng_below(&sim->work_rng, 200);
    if (!sim->healed && sim->slow_stops && ct_rng_chance(&sim->work_rng, 30))
        stopping += ct_rng_below(&sim->work_rng, sim->params.prepare_ms * 5 / 4);
    node->acting = 0;
    if (!sim->healed && sim->slow_stops && ct_rng_chance(&sim->work_rng, 5))
        return; /* they never stop, until they are asked for another round */
    sim_node_answer(sim, node->index, node->stopped ? 0 : stopping);
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    struct sim_node *node = context;
    sim_tell(node->sim, "%s gives up g%" PRIu64 " (%s)", node->host, generation,
             ct_rdzv_reason_name(reason));
    node->acting = 0;
    node->boundary = node->stopped = false;
    sim_node_answer(node->sim, node->index, 50);
}

static void on_round(void *context, const struct ct_round *round)
{
    struct sim_node *node = context;
    struct sim *sim = node->sim;
    sim_tell(sim, "%s begins g%" PRIu64 " as node %u of %u, world %u", node->host,
             round->generation, round->self, round->node_count, round->world);
    oracle_node_round(sim, node->index, round);
    sim_training_round(sim, round);
    node->acting = node->acting_max = round->generation;
    node->asked = 0;
    node->boundary = node->stopped = false;
    node->workers = true;
    bool is_base = round->base_node == (int32_t)round->self;
    if (is_base && (node->state.lineage != round->lineage || node->state.step != round->base_step))
        sim_worker_crash(sim, node->index); /* it lost since what it promised to give */
}

static void on_store_reply(void *context, const struct ct_msg_store_reply *reply)
{
    (void)context;
    (void)reply;
}

static void on_published(void *context, const struct ct_msg_published *answer)
{
    struct sim_node *node = context;
    node->published_ms = 0;
    sim_log(node->sim, "%s hears of step %" PRIu64 " of g%" PRIu64 ": %s", node->host, answer->step,
            answer->generation, answer->code == 0 ? "published" : answer->text);
}

static void on_drain(void *context, const char *text)
{
    struct sim_node *node = context;
    sim_tell(node->sim, "%s is to leave: %s", node->host, text);
    node->leaves = true; /* after the call into its member */
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    struct sim_node *node = context;
    node->end = NODE_CLOSED;
    node->result = *result;
    sim_tell(node->sim, "%s is told the end: status %d %s", node->host, result->status,
             result->cause.text);
    oracle_node_closed(node->sim, node->index);
}

static void on_released(void *context)
{
    struct sim_node *node = context;
    node->end = NODE_RELEASED;
    sim_tell(node->sim, "%s is released", node->host);
}

static void on_link(void *context, bool connected, const char *why)
{
    struct sim_node *node = context;
    sim_log(node->sim, "%s is %s %s", node->host, connected ? "connected again" : "cut off:", why);
}

static void on_failed(void *context, const struct ct_error *error)
{
    struct sim_node *node = context;
    node->end = NODE_FAILED;
    node->error = *error;
    sim_tell(node->sim, "%s fails: %s", node->host, error->text);
}

/* ---- what the agent does ---- */

static void io_send(void *context, const struct ct_message *message)
{
    struct sim_node *node = context;
    if (node->conn != SIM_CONNS)
        sim_send(node->sim, &node->sim->conns[node->conn], AT_NODE, message);
}

static void io_connect(void *context, uint64_t give_up_ms)
{
    struct sim_node *node = context;
    node->give_up_ms = node->sim->now + give_up_ms;
    sim_connect(node->sim, node->index);
}

static void io_disconnect(void *context)
{
    struct sim_node *node = context;
    node->attempt++; /* an attempt under way counts no more */
    if (node->conn != SIM_CONNS)
        sim_close(node->sim, &node->sim->conns[node->conn], AT_NODE);
}

/* ---- its life ---- */

void sim_node_start(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    const struct ct_rdzv *job = sim_job(sim_newest_daemon(sim));
    if (sim->oracle.closed || (job != NULL && ct_rdzv_phase(job) >= CT_RDZV_CLOSING))
        return; /* nobody starts a node of a job that has ended */
    const struct ct_agent_callbacks callbacks = {
        .context = node,
        .on_waiting = on_waiting,
        .on_prepare = on_prepare,
        .on_revoke = on_revoke,
        .on_round = on_round,
        .on_store_reply = on_store_reply,
        .on_published = on_published,
        .on_drain = on_drain,
        .on_closed = on_closed,
        .on_released = on_released,
        .on_link = on_link,
        .on_failed = on_failed,
    };
    const struct ct_member_io io = {
        .context = node, .send = io_send, .connect = io_connect, .disconnect = io_disconnect};
    if (node->has_member)
        ct_member_deinit(&node->member);
    struct sim_node fresh = {
        .sim = sim,
        .index = index,
        .clock = node->clock,
        .options = node->options,
        .incarnations = node->incarnations + 1,
        .conn = SIM_CONNS,
        .attempt = node->attempt + 1,
        .sides = node->sides,
        .has_member = true,
    };
    memcpy(fresh.cut, node->cut, sizeof(fresh.cut));
    *node = fresh;
    sim->oracle.starts++;
    (void)snprintf(node->host, sizeof(node->host), "n%u", index);
    node->options.host = node->host;
    node->options.id = (struct ct_id){.high = index + 1, .low = node->incarnations};
    sim->processes[sim_process(index)].alive = true;
    sim->processes[sim_process(index)].life++;
    sim_tell(sim, "%s starts, incarnation %" PRIu64, node->host, node->incarnations);
    ct_member_init(&node->member, &node->options, &callbacks, &io, ct_rng_next(&sim->work_rng));
    ct_member_start(&node->member, sim_local_ms(sim, sim_process(index)));
    sim_node_after(sim, index);
}

static void stop(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    sim->processes[sim_process(index)].alive = false;
    sim->processes[sim_process(index)].life++;
    sim->processes[sim_process(index)].paused_until = 0;
    node->workers = false;
    node->acting = 0;
    node->state = (struct state){0};
    sim_kill_conns(sim, sim_process(index));
}

void sim_node_crash(struct sim *sim, uint32_t index)
{
    if (!sim->processes[sim_process(index)].alive)
        return;
    sim_tell(sim, "%s dies", sim->nodes[index].host);
    stop(sim, index);
}

void sim_node_after(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    if (!sim->processes[sim_process(index)].alive)
        return;
    if (node->end != NODE_RUNS) {
        stop(sim, index);
        if (node->end != NODE_CLOSED)
            sim_schedule(sim, sim->now + 1000 + ct_rng_below(&sim->work_rng, 5000), EV_START,
                         sim_process(index), 0);
        return;
    }
    sim_arm(sim, sim_process(index), ct_member_deadline(&node->member));
}

void sim_node_message(struct sim *sim, struct conn *conn, const struct ct_message *message)
{
    struct sim_node *node = &sim->nodes[conn->node];
    bool was_joining = node->member.phase == CT_MEMBER_JOINING;
    ct_member_message(&node->member, sim_local_ms(sim, sim_process(conn->node)), message);
    oracle_node_told(sim, conn, message, was_joining);
    if (node->leaves && node->end == NODE_RUNS)
        ct_member_leave(&node->member, CT_RDZV_LEAVE_DRAIN);
    node->leaves = false;
    sim_node_after(sim, conn->node);
}

void sim_node_timer(struct sim *sim, uint32_t index)
{
    ct_member_tick(&sim->nodes[index].member, sim_local_ms(sim, sim_process(index)));
    sim_node_after(sim, index);
}

/* ---- what the agent says ---- */

static void promise(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    struct ct_prepared prepared = {
        .generation = node->asked,
        .lineage = node->state.lineage,
        .step = node->state.step,
        .digest = node->state.digest,
        .untouched = node->healed_max < node->acting_max,
    };
    node->promised_max = node->asked;
    ct_member_prepared(&node->member, &prepared);
    sim_node_after(sim, index);
}

void sim_node_prepared(struct sim *sim, uint32_t index, uint64_t generation)
{
    struct sim_node *node = &sim->nodes[index];
    if (node->asked != generation || node->promised)
        return;
    node->acting = 0;
    node->boundary = false;
    node->promised = true;
    if (!sim->survivable) {
        node->workers = false;
        node->state = (struct state){0};
    }
    promise(sim, index);
}

void sim_node_done(struct sim *sim, uint32_t index, uint64_t generation)
{
    ct_member_done(&sim->nodes[index].member, generation);
    sim_node_after(sim, index);
}

void sim_worker_crash(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    if (!sim->processes[sim_process(index)].alive || !node->workers)
        return;
    sim_tell(sim, "a worker of %s dies", node->host);
    node->workers = false;
    node->state = (struct state){0};
    if (node->acting > 0) {
        struct ct_rdzv_failure failure = {
            .generation = node->acting, .code = CT_EWORKER, .rank = 0, .status = -1, .signal = 9};
        ct_member_failure(&node->member, sim_local_ms(sim, sim_process(index)), &failure);
        sim_node_after(sim, index);
    } else if (node->asked > 0 && node->promised) {
        promise(sim, index); /* the state is lost before the round came */
    }
}

void sim_node_healed(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    node->healed_max = node->acting;
    ct_member_healed(&node->member, node->acting);
    sim_node_after(sim, index);
}

void sim_node_publish(struct sim *sim, uint32_t index, uint64_t step, uint64_t digest)
{
    struct sim_node *node = &sim->nodes[index];
    const struct ct_msg_publish publication = {
        .generation = node->acting, .step = step, .digest = digest};
    if (ct_member_publish(&node->member, &publication) == 0)
        node->published_ms = sim->now;
    sim_node_after(sim, index);
}
