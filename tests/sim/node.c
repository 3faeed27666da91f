/* A node: the real client of the rendezvous and the real agent's core, side by side as in ctrun.
 * Its workers are a few numbers (workers.c).
 *
 * Workers that survive (70 % of the seeds) keep their state from round to round; others are ended
 * whenever a round ends. A node whose agent dies loses everything. */
#include "agent_names.h"
#include "sim.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the agent's core ---- */

/* A3: what was promised last is held by a worker that lives, or nothing was promised. */
static void check_promise(struct sim *sim, const struct sim_node *node)
{
    const struct agent_core *core = &node->core;
    bool held = false;
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        held = held || (node->alive[i] && node->holds[i]);
    if (core->phase != AGENT_PROMISED || !core->linked || core->best.lineage == 0)
        return;
    if (!held || core->best.lineage != node->state.lineage || core->best.step != node->state.step)
        sim_fail(sim, "A3: %s has promised step %" PRIu64 " of g%" PRIu64 ", which nobody holds",
                 node->host, core->best.step, core->best.lineage);
}

/* A4: a stopped node without workers waits for the rendezvous no longer than for a while; one that
 * is told to leave waits for its step boundary so. */
static void check_stop(struct sim *sim, const struct sim_node *node,
                       const struct agent_event *event)
{
    bool told = event->kind == AGENT_ON_DRAIN || event->kind == AGENT_ON_SIGNAL;
    const struct agent_core *core = &node->core;
    bool waits = core->life == AGENT_STOPPING && !node->running;
    bool leaves = told && core->life == AGENT_DRAINING && node->running && !node->stopping;
    if ((waits || leaves) && agent_core_deadline(core) == UINT64_MAX)
        sim_fail(sim, "A4: %s is %s, and nothing ends that", node->host,
                 agent_life_name(core->life));
}

void sim_node_feed(struct sim *sim, uint32_t index, const struct agent_event *event)
{
    struct sim_node *node = &sim->nodes[index];
    const struct sim_daemon *daemon = &sim->daemons[sim_process(index)]; /* embedded */
    enum ct_holder_duty duty = sim->embedded ? sim_host_duty(sim, index) : CT_HOLDER_FREE;
    const struct agent_view view = {
        .now_ms = sim_local_ms(sim, sim_process(index)),
        .running = node->running,
        .stopping = node->stopping,
        .alive = node->alive,
        .hosts = sim->hosts[index].holds,
        .can_yield = duty == CT_HOLDER_YIELDS,
        .unserved = duty == CT_HOLDER_NEEDED && sim_job(daemon) == NULL,
        .jobs = sim_job(daemon) != NULL ? ct_service_running(daemon->service) : 0,
        .links = sim_job(daemon) != NULL ? ct_service_links(daemon->service) : 0,
    };
    struct ct_buf line;
    if (!sim->processes[sim_process(index)].alive)
        return;
    uint64_t actions = agent_core_step(&node->core, &view, event);
    ct_buf_init(&line, 0);
    agent_step_print(&node->core, event, actions, &line);
    sim_log(sim, "%s: %s", node->host, ct_buf_str(&line));
    ct_buf_deinit(&line);
    if (node->core.life != AGENT_LIVE && node->ends_ms == 0)
        node->ends_ms = sim->now;
    for (int action = 0; action < AGENT_ACTIONS; action++)
        if (agent_has(actions, (enum agent_action)action))
            sim_workers_do(sim, index, (enum agent_action)action, event);
    check_promise(sim, node);
    check_stop(sim, node, event);
    sim_node_after(sim, index);
}

void sim_node_signal(struct sim *sim, uint32_t index, int number)
{
    sim_node_feed(sim, index, &(struct agent_event){.kind = AGENT_ON_SIGNAL, .signal = number});
}

/* ---- what the agent is told ---- */

static void feed(struct sim_node *node, struct agent_event event)
{
    sim_node_feed(node->sim, node->index, &event);
}

static void on_waiting(void *context, const char *text)
{
    (void)context;
    (void)text;
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct sim_node *node = context;
    sim_trace(node->sim, "%s is asked for g%" PRIu64 " (%s%s)", node->host, generation,
              ct_rdzv_reason_name(reason), at_boundary ? ", at a step boundary" : "");
    node->requested = generation;
    feed(node, (struct agent_event){
                   .kind = AGENT_ON_PREPARE, .generation = generation, .at_boundary = at_boundary});
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    struct sim_node *node = context;
    sim_trace(node->sim, "%s gives up g%" PRIu64 " (%s)", node->host, generation,
              ct_rdzv_reason_name(reason));
    feed(node, (struct agent_event){.kind = AGENT_ON_REVOKE, .generation = generation});
}

static void on_round(void *context, const struct ct_round *round)
{
    struct sim_node *node = context;
    struct sim *sim = node->sim;
    sim_trace(sim, "%s begins g%" PRIu64 " as node %u of %u, world %u", node->host,
              round->generation, round->self, round->node_count, round->world);
    oracle_node_round(sim, node->index, round);
    sim_training_round(sim, round);
    node->acting_max = round->generation;
    node->requested = 0;
    feed(node, (struct agent_event){.kind = AGENT_ON_ROUND, .generation = round->generation});
}

static void on_store_reply(void *context, const struct ct_msg_store_reply *reply)
{
    (void)context;
    (void)reply;
}

static void on_published(void *context, const struct ct_msg_published *answer)
{
    struct sim_node *node = context;
    sim_log(node->sim, "%s hears of step %" PRIu64 " of g%" PRIu64 ": %s", node->host, answer->step,
            answer->generation, answer->code == 0 ? "published" : answer->text);
    feed(node, (struct agent_event){.kind = AGENT_ON_PUBLISHED,
                                    .generation = answer->generation,
                                    .held.step = answer->step,
                                    .code = answer->code,
                                    .text = answer->text});
}

static void on_drain(void *context, const char *text)
{
    struct sim_node *node = context;
    sim_trace(node->sim, "%s is to leave: %s", node->host, text);
    feed(node, (struct agent_event){.kind = AGENT_ON_DRAIN});
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    struct sim_node *node = context;
    node->end = NODE_CLOSED;
    node->result = *result;
    ct_failure_keep(&node->result.cause, &result->cause, node->cause_room,
                    sizeof(node->cause_room));
    sim_trace(node->sim, "%s is told the end: status %d %s", node->host, result->status,
              result->cause.text);
    oracle_node_closed(node->sim, node->index);
    feed(node, (struct agent_event){.kind = AGENT_ON_OVER,
                                    .generation = result->generation,
                                    .status = result->status,
                                    .code = result->code,
                                    .by_user = result->cause.rank < 0});
}

static void on_released(void *context)
{
    struct sim_node *node = context;
    node->end = NODE_RELEASED;
    sim_trace(node->sim, "%s is released", node->host);
    feed(node, (struct agent_event){.kind = AGENT_ON_RELEASED});
}

static bool is_orphan(void *context)
{
    const struct sim_node *node = context;
    const struct sim_host *host = &node->sim->hosts[node->index];
    return host->holds && ct_holder_is_orphan(&host->holder);
}

static void on_link(void *context, bool connected, const char *why)
{
    struct sim_node *node = context;
    sim_log(node->sim, "%s is %s %s", node->host, connected ? "connected again" : "cut off:", why);
    feed(node, (struct agent_event){.kind = AGENT_ON_LINK, .up = connected});
}

static void on_failed(void *context, const struct ct_error *error)
{
    struct sim_node *node = context;
    node->end = NODE_FAILED;
    node->error = *error;
    sim_trace(node->sim, "%s fails: %s", node->host, error->text);
    feed(node, (struct agent_event){.kind = AGENT_ON_FAILED, .code = error->code});
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
    if (node->sim->embedded)
        sim_agent_connect(node->sim, node->index, give_up_ms);
    else
        sim_connect(node->sim, node->index);
}

static void io_disconnect(void *context)
{
    struct sim_node *node = context;
    node->attempt++; /* an attempt under way counts no more */
    if (node->conn != SIM_CONNS)
        sim_hang_up(node->sim, node->conn);
    node->conn = SIM_CONNS;
}

/* ---- its life ---- */

/* It may hold the record, and knows where the job's nodes meet. */
static void embed(struct sim *sim, struct sim_node *node)
{
    struct sim_host *host = &sim->hosts[node->index];
    (void)snprintf(node->address, sizeof(node->address), "10.0.0.%u", node->index);
    node->options.address = node->address;
    node->options.endpoint = host->endpoint;
    sim_host_start(sim, node->index);
}

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
        .is_orphan = is_orphan,
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
        .incarnations = node->incarnations + (sim->embedded ? SIM_INCARNATION : 1),
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
    sim_trace(sim, "%s starts, incarnation %" PRIu64, node->host, node->incarnations);
    const struct agent_settings settings = {
        .slots = SIM_WORKERS,
        .native = sim->survivable && !sim->programs,
        .elastic = true,
        .grace_ms = sim->params.prepare_ms / 2,
        .ends = 1u << AGENT_SIGINT | 1u << AGENT_SIGTERM,
    };
    agent_core_init(&node->core, &settings, node->survivors, node->dismissed);
    if (sim->embedded)
        embed(sim, node);
    ct_member_init(&node->member, &node->options, &callbacks, &io, ct_rng_next(&sim->work_rng));
    ct_member_start(&node->member, sim_local_ms(sim, sim_process(index)));
    sim_node_feed(sim, index, &(struct agent_event){.kind = AGENT_ON_LINKED});
}

static void stop(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    sim->processes[sim_process(index)].alive = false;
    sim->processes[sim_process(index)].life++;
    sim->processes[sim_process(index)].paused_until = 0;
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        node->alive[i] = node->holds[i] = false;
    node->workers = node->running = node->stopping = false;
    node->acting = 0;
    node->published_ms = 0;
    node->state = (struct state){0};
    sim_kill_conns(sim, sim_process(index));
    sim_host_end(sim, index);
}

void sim_node_crash(struct sim *sim, uint32_t index)
{
    if (!sim->processes[sim_process(index)].alive)
        return;
    sim_trace(sim, "%s dies", sim->nodes[index].host);
    stop(sim, index);
}

void sim_node_after(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    if (!sim->processes[sim_process(index)].alive)
        return;
    if (node->core.life == AGENT_CLOSED) {
        stop(sim, index);
        if (node->end != NODE_CLOSED)
            sim_schedule(sim, sim->now + 1000 + ct_rng_below(&sim->work_rng, 5000), EV_START,
                         sim_process(index), 0);
        return;
    }
    uint64_t due = agent_core_deadline(&node->core);
    if (node->core.linked)
        due = CT_MIN(due, ct_member_deadline(&node->member));
    if (sim->embedded)
        due = CT_MIN(due, sim_host_deadline(sim, index));
    sim_arm(sim, sim_process(index), due);
}

void sim_node_message(struct sim *sim, struct conn *conn, const struct ct_message *message)
{
    struct sim_node *node = &sim->nodes[conn->node];
    bool was_joining = node->member.phase == CT_MEMBER_JOINING;
    if (conn->daemon >= SIM_DAEMONS) {
        if (conn->kind == CONN_ENDPOINT)
            sim_endpoint_answers(sim, conn, message);
        if (conn->kind != CONN_AGENT || &sim->conns[node->conn] != conn)
            return;
        if (message->type == CT_MSG_VOTERS)
            sim_host_voters(sim, conn->node, &message->voters);
        if (!sim->processes[sim_process(conn->node)].alive)
            return;
    }
    ct_member_message(&node->member, sim_local_ms(sim, sim_process(conn->node)), message);
    oracle_node_informed(sim, conn, message, was_joining);
    sim_node_after(sim, conn->node);
}

void sim_node_timer(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    uint64_t now_ms = sim_local_ms(sim, sim_process(index));
    if (sim->embedded && sim_host_deadline(sim, index) <= now_ms)
        sim_schedule(sim, sim->now, EV_TICK, sim_process(index), 0);
    if (node->core.linked)
        ct_member_tick(&node->member, now_ms);
    if (agent_core_deadline(&node->core) <= now_ms)
        sim_node_feed(sim, index, &(struct agent_event){.kind = AGENT_ON_TICK});
    sim_node_after(sim, index);
}
