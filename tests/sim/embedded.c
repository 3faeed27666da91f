/* No daemon: each node has a holder of the job's record, as a ctrun has; node 0 listens at the
 * job's endpoint and founds one when it starts.
 *
 *      VOTERS to its agent -> the holder waits to be added -> OFFER
 *      connections, deaths -> holder -> messages, connections (links.c)
 *
 * While it leads, the oracle sees its service as a daemon's. */
#include "sim.h"

#include "base/assert.h"
#include "base/str.h"
#include "message_print.h"
#include "rendezvous/replica/replica_state.h"
#include "rendezvous/service/admin.h"

#include <inttypes.h>
#include <stdio.h>

enum { OWN_PORT = 1000, ENDPOINT_PORT = 29400 };

static const char endpoint[] = "10.0.0.0:29400";

static uint64_t local_ms(const struct sim_host *host)
{
    return sim_local_ms(host->sim, sim_process(host->index));
}

static struct sim_daemon *daemon_of(const struct sim_host *host)
{
    return &host->sim->daemons[sim_process(host->index)];
}

/* ---- its actions ---- */

/* It dies in the middle of an event: the rest of what it sends in it is never seen. */
static bool is_unseen(struct sim_host *host)
{
    struct sim_daemon *daemon = daemon_of(host);
    daemon->service = host->holder.service;
    if (daemon->tears && !daemon->dying)
        daemon->dying = daemon->tears-- == 1;
    return daemon->dying;
}

static void operator_receives(struct sim *sim, struct sim_host *host,
                              const struct ct_msg_admin_reply *reply)
{
    const struct ct_rdzv *job = sim_job(daemon_of(host));
    sim->operator_answer = reply->code;
    sim_trace(sim, "the operator is told: %.*s", (int)reply->text.size,
              (const char *)reply->text.data);
    if (reply->code != 0 || sim->operator_verb != CT_ADMIN_CORDON || job == NULL)
        return;
    sim->oracle.cordoned |= 1u << sim->operator_node;
    sim->oracle.cordoned_generation[sim->operator_node] = ct_rdzv_generation(job);
}

static void io_send(void *context, void *peer, const struct ct_message *message)
{
    struct sim_host *host = context;
    struct conn *conn = peer;
    if (is_unseen(host) || !conn->open[AT_DAEMON] || conn->closing)
        return;
    if (conn == &host->sim->operator) {
        if (message->type == CT_MSG_ADMIN_REPLY)
            operator_receives(host->sim, host, &message->admin_reply);
        return;
    }
    agreement_sends(host->sim, host->index, message);
    sim_send(host->sim, conn, AT_DAEMON, message);
}

static void close_conn(void *context, void *peer, int code, const char *sentence)
{
    struct sim_host *host = context;
    struct sim *sim = host->sim;
    struct conn *conn = peer;
    if (daemon_of(host)->dying || conn->closing || !conn->open[AT_DAEMON] || conn == &sim->operator)
        return;
    sim_log(sim, "n%u closes the link of n%u: %s (%s)", host->index, conn->node, sentence,
            ct_error_name(code));
    conn->closing = true;
    sim_schedule(sim, sim->now, EV_UNANSWERED, (uint32_t)(conn - sim->conns), AT_DAEMON);
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    const struct sim_host *host = context;
    (void)job;
    sim_trace(host->sim, "n%u leads: %s", host->index, sentence);
}

static void io_admit(void *context, void *peer)
{
    (void)context;
    (void)peer;
}

static void io_send_replica(void *context, uint64_t id, const char *address,
                            const struct ct_message *message)
{
    struct sim_host *host = context;
    if (!is_unseen(host))
        sim_links_send(host->sim, host->index, id, address, message);
}

static void io_want(void *context, const struct ct_replica_server *list, size_t count)
{
    const struct sim_host *host = context;
    sim_links_want(host->sim, host->index, list, count);
}

static bool io_dial_endpoint(void *context)
{
    const struct sim_host *host = context;
    sim_endpoint_dial(host->sim, host->index);
    return true;
}

static void io_send_endpoint(void *context, const struct ct_message *message)
{
    struct sim_host *host = context;
    if (host->there != SIM_CONNS && !is_unseen(host))
        sim_send(host->sim, &host->sim->conns[host->there], AT_NODE, message);
}

static void io_leave_endpoint(void *context)
{
    const struct sim_host *host = context;
    sim_endpoint_leave(host->sim, host->index);
}

static void io_log(void *context, enum ct_log_level level, const char *sentence)
{
    const struct sim_host *host = context;
    (void)level;
    sim_trace(host->sim, "n%u: %s", host->index, sentence);
}

/* ---- its life ---- */

static void begin(struct sim_host *host, const struct ct_msg_voters *voters)
{
    const struct ct_holder_io io = {
        .context = host,
        .send = io_send,
        .close = close_conn,
        .announce = io_announce,
        .turn_away = close_conn,
        .admit = io_admit,
        .send_replica = io_send_replica,
        .want = io_want,
        .dial_endpoint = io_dial_endpoint,
        .send_endpoint = io_send_endpoint,
        .leave_endpoint = io_leave_endpoint,
        .log = io_log,
    };
    struct sim_node *node = &host->sim->nodes[host->index];
    const struct ct_service_limits limits = {.own = node->options.id, .only_job = "sim"};
    const struct ct_holder_options options = {
        .limits = &limits,
        .host = node->host,
        .address = host->address,
        .at_endpoint = voters == NULL,
        .lease_ms = host->sim->params.lease_ms,
        .seed = ct_rng_next(&host->sim->work_rng),
        .now_ms = local_ms(host),
        .io = &io,
    };
    CT_ASSERT(ct_holder_init(&host->holder, &options, NULL) == 0);
    host->holds = true;
    int rc = voters == NULL ? ct_holder_found(&host->holder, local_ms(host))
                            : ct_holder_follow(&host->holder, local_ms(host), voters);
    CT_ASSERT(rc == 0);
    sim_host_after(host->sim, host->index);
}

void sim_host_start(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    uint32_t process = sim_process(index);
    *host = (struct sim_host){.sim = sim,
                              .index = index,
                              .there = SIM_CONNS,
                              .dial_there_ms = UINT64_MAX,
                              .started_ms = sim->now};
    (void)snprintf(host->address, sizeof(host->address), "10.0.0.%u:%u", index,
                   OWN_PORT + (unsigned)(sim->nodes[index].incarnations / SIM_INCARNATION));
    CT_ASSERT(ct_endpoints_init(&host->endpoints, endpoint, NULL) == 0);
    sim->daemons[process] = (struct sim_daemon){.sim = sim, .index = process};
    if (index == 0)
        begin(host, NULL);
}

void sim_host_end(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    if (host->sim == NULL)
        return;
    sim_links_end(sim, index);
    if (host->holds)
        ct_holder_deinit(&host->holder);
    host->holds = false;
    host->there = SIM_CONNS;
    sim->daemons[sim_process(index)].service = NULL;
    if (sim->operator.daemon == sim_process(index))
        sim->operator.open[AT_DAEMON] = false;
}

void sim_host_stop(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    if (!host->holds)
        return;
    for (uint32_t i = 0; i < SIM_CONNS; i++)
        if (sim->conns[i].used && sim->conns[i].daemon == sim_process(index))
            sim_close(sim, &sim->conns[i], AT_DAEMON);
    ct_holder_stop(&host->holder, local_ms(host));
    sim_host_end(sim, index);
}

void sim_host_yield(struct sim *sim, uint32_t index)
{
    ct_holder_yield(&sim->hosts[index].holder, local_ms(&sim->hosts[index]));
    sim_host_after(sim, index);
}

enum ct_holder_duty sim_host_duty(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    char why[256];
    return host->holds ? ct_holder_duty(&host->holder, local_ms(host), why, sizeof(why))
                       : CT_HOLDER_FREE;
}

void sim_host_after(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    struct sim_daemon *daemon = daemon_of(host);
    if (!host->holds)
        return;
    daemon->service = host->holder.service;
    if (daemon->dying) {
        sim_node_crash(sim, index);
        return;
    }
    agreement_look(sim, index);
    if (daemon->service != NULL)
        oracle_daemon_step(sim, daemon);
    sim_node_after(sim, index);
}

void sim_host_tick(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    sim_links_tick(sim, index);
    if (!host->holds)
        return;
    if (ct_holder_deadline(&host->holder) <= local_ms(host))
        ct_holder_tick(&host->holder, local_ms(host));
    sim_host_after(sim, index);
}

uint64_t sim_host_deadline(const struct sim *sim, uint32_t index)
{
    const struct sim_host *host = &sim->hosts[index];
    uint64_t due = sim_links_deadline(host);
    return host->holds ? CT_MIN(due, ct_holder_deadline(&host->holder)) : due;
}

void sim_host_voters(struct sim *sim, uint32_t index, const struct ct_msg_voters *voters)
{
    struct sim_host *host = &sim->hosts[index];
    struct sim_node *node = &sim->nodes[index];
    ct_endpoints_learn(&host->endpoints, voters);
    if (voters->epoch == 0 || node->member.muted || agent_core_is_ending(&node->core))
        return;
    if (!host->holds) {
        begin(host, voters);
    } else {
        CT_ASSERT(ct_holder_follow(&host->holder, local_ms(host), voters) == 0);
        sim_host_after(sim, index);
    }
    if (!host->holds || node->conn == SIM_CONNS)
        return;
    const struct ct_message offer = {.type = CT_MSG_OFFER, .offer = ct_holder_offer(&host->holder)};
    ct_endpoints_set_own(&host->endpoints, offer.offer.address);
    sim_send(sim, &sim->conns[node->conn], AT_NODE, &offer);
}

bool sim_host_listens(const struct sim *sim, uint32_t index, uint32_t port)
{
    const struct sim_host *host = &sim->hosts[index];
    uint64_t own = OWN_PORT + sim->nodes[index].incarnations / SIM_INCARNATION;
    return sim->processes[sim_process(index)].alive && host->holds &&
           (port == own || (index == 0 && port == ENDPOINT_PORT));
}

/* ---- connections that others dialled ---- */

void sim_host_opened(struct sim *sim, struct conn *conn)
{
    struct sim_host *host = &sim->hosts[conn->daemon - SIM_DAEMONS];
    if (!host->holds) {
        sim_close(sim, conn, AT_DAEMON);
        return;
    }
    conn->held = ct_holder_opened(&host->holder, local_ms(host), &conn->holder, conn);
    CT_ASSERT(conn->held);
    sim_host_after(sim, host->index);
}

static void log_message(struct sim *sim, const struct conn *conn, const struct ct_message *message)
{
    struct ct_buf line;
    if (message->type == CT_MSG_HEARTBEAT && sim->voice != VOICE_ALL)
        return;
    ct_buf_init(&line, 0);
    message_print(message, &line);
    sim_log(sim, "n%u > n%u %s", conn->node, conn->daemon - SIM_DAEMONS, ct_buf_str(&line));
    ct_buf_deinit(&line);
}

void sim_host_message(struct sim *sim, struct conn *conn, const struct ct_message *message)
{
    struct sim_host *host = &sim->hosts[conn->daemon - SIM_DAEMONS];
    struct sim_daemon *daemon = daemon_of(host);
    uint64_t before = 0;
    if (!conn->held || conn->closing || !host->holds)
        return;
    if (message->type < CT_COUNT(sim->coverage.messages))
        sim->coverage.messages[message->type]++;
    if (conn->kind == CONN_AGENT || sim->voice == VOICE_ALL)
        log_message(sim, conn, message);
    conn->link = conn->holder.link;
    if (message->type == CT_MSG_JOIN && conn->link != 0 && conn->holder.is_agent &&
        message->join.generation > 0 && sim_job(daemon) != NULL &&
        ct_rdzv_generation(sim_job(daemon)) == 0)
        host->asked_ms = sim->now;
    bool is_void =
        conn->kind == CONN_AGENT && conn->link != 0 && oracle_is_void(sim, conn, message, &before);
    ct_holder_message(&host->holder, local_ms(host), &conn->holder, message);
    if (is_void && !daemon->dying && conn->holder.link != 0)
        oracle_was_void(sim, conn, message, before);
    sim_host_after(sim, host->index);
}

void sim_host_closed(struct sim *sim, struct conn *conn, bool silent)
{
    struct sim_host *host = &sim->hosts[conn->daemon - SIM_DAEMONS];
    if (!conn->held || !host->holds)
        return;
    conn->held = false;
    ct_holder_closed(&host->holder, local_ms(host), &conn->holder, silent);
    sim_host_after(sim, host->index);
}

/* ---- operators ---- */

static void give(struct sim_host *host, uint8_t verb, uint32_t node)
{
    struct sim *sim = host->sim;
    struct conn *conn = &sim->operator;
    struct sim_host *last = &sim->hosts[conn->daemon > 0 ? conn->daemon - SIM_DAEMONS : 0];
    if (conn->open[AT_DAEMON])
        ct_holder_closed(&last->holder, local_ms(last), &conn->holder, false);
    const struct ct_message hello = {
        .type = CT_MSG_HELLO,
        .hello = {.protocol = CT_WIRE_PROTOCOL, .job = "sim", .host = "desk", .role = "admin"}};
    const struct ct_message order = {
        .type = CT_MSG_ADMIN,
        .admin = {
            .verb = verb, .host = sim->nodes[node].host, .author = "operator@desk", .reason = ""}};
    *conn = (struct conn){.daemon = sim_process(host->index), .open = {[AT_DAEMON] = true}};
    sim->operator_verb = verb;
    sim->operator_node = node;
    CT_ASSERT(ct_holder_opened(&host->holder, local_ms(host), &conn->holder, conn));
    ct_holder_message(&host->holder, local_ms(host), &conn->holder, &hello);
    ct_holder_message(&host->holder, local_ms(host), &conn->holder, &order);
    sim_host_after(sim, host->index);
}

void sim_host_order(struct sim *sim, uint8_t verb, uint32_t node)
{
    const struct sim_daemon *daemon = sim_newest_daemon(sim);
    sim->operator_answer = CT_EUNAVAILABLE;
    if (verb == CT_ADMIN_UNCORDON) /* it may count, whatever the answer */
        sim->oracle.cordoned &= ~(1u << node);
    if (daemon != NULL && sim->processes[daemon->index].paused_until <= sim->now)
        give(&sim->hosts[daemon->index - SIM_DAEMONS], verb, node);
}

int sim_host_take_over(struct sim *sim, uint32_t index)
{
    sim->operator_answer = CT_EUNAVAILABLE;
    give(&sim->hosts[index], CT_ADMIN_TAKEOVER, index);
    return sim->operator_answer;
}
