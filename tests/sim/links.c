/* A node's own connections: of its holder to others and to the job's endpoint, of its agent to who
 * may lead. As replica_links_uv.c, server_replica_uv.c and agent_uv.c have them. */
#include "sim.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>

enum {
    RETRY_MS = 200,
    SOON_MS = 10,
    LATELY_MS = 1000,
    CONNECT_MS = 3000,
    UNUSED_MS = 10000,
    BRIEF_MS = 100,
    ENDPOINT_RETRY_MS = 100,
    AGENT_RETRY_MS = 100,
};

static uint64_t local_ms(const struct sim_host *host)
{
    return sim_local_ms(host->sim, sim_process(host->index));
}

/* ---- to other holders ---- */

static struct sim_link *find(struct sim_host *host, uint64_t id)
{
    for (size_t i = 0; i < host->link_count; i++)
        if (host->links[i].id == id)
            return &host->links[i];
    return NULL;
}

static struct sim_link *link_on(struct sim_host *host, uint32_t conn)
{
    for (size_t i = 0; i < host->link_count; i++)
        if (host->links[i].conn == conn)
            return &host->links[i];
    return NULL;
}

static void drop(struct sim_host *host, struct sim_link *link)
{
    if (link->conn != SIM_CONNS)
        sim_hang_up(host->sim, link->conn);
    ct_buf_deinit(&link->frame);
    *link = host->links[--host->link_count];
}

static void dial(struct sim_host *host, struct sim_link *link)
{
    link->conn = sim_dial(host->sim, host->index, CONN_REPLICA, link->address, CONNECT_MS);
}

static struct sim_link *add(struct sim_host *host, uint64_t id, const char *address)
{
    struct sim_link *link = &host->links[host->link_count];
    CT_ASSERT(host->link_count < SIM_LINKS);
    host->link_count++;
    *link = (struct sim_link){.id = id, .used_ms = local_ms(host)};
    ct_buf_init(&link->frame, 0);
    (void)ct_str_copy(link->address, sizeof(link->address), address);
    dial(host, link);
    return link;
}

void sim_links_want(struct sim *sim, uint32_t index, const struct ct_replica_server *list,
                    size_t count)
{
    struct sim_host *host = &sim->hosts[index];
    uint64_t now = local_ms(host);
    for (size_t i = 0; i < host->link_count; i++)
        host->links[i].wanted = false;
    for (size_t i = 0; i < count; i++) {
        struct sim_link *link = find(host, list[i].id);
        if (link == NULL)
            link = add(host, list[i].id, list[i].address);
        link->wanted = true;
    }
    for (size_t i = 0; i < host->link_count;) {
        if (!host->links[i].wanted && now - host->links[i].used_ms >= UNUSED_MS)
            drop(host, &host->links[i]);
        else
            i++;
    }
}

void sim_links_send(struct sim *sim, uint32_t index, uint64_t id, const char *address,
                    const struct ct_message *message)
{
    struct sim_host *host = &sim->hosts[index];
    struct sim_link *link = find(host, id);
    if (link == NULL)
        link = add(host, id, address);
    link->used_ms = local_ms(host);
    if (link->is_open) {
        sim_send(sim, &sim->conns[link->conn], AT_NODE, message);
        return;
    }
    ct_buf_clear(&link->frame);
    (void)ct_wire_encode(message, 0, &link->frame, NULL);
}

static void send_waiting(struct sim *sim, struct sim_link *link)
{
    struct ct_frame_reader reader;
    struct ct_message message;
    struct ct_arena arena;
    struct ct_frame frame;
    ct_arena_init(&arena, 4 << 20);
    ct_frame_reader_init(&reader, CT_FROM_REPLICA, CT_WIRE_VALUE);
    if (ct_frame_reader_push(&reader, link->frame.data, link->frame.size) == 0 &&
        ct_frame_reader_next(&reader, &frame, NULL) == 1 &&
        ct_wire_decode(&frame, &arena, &message, NULL) == 0)
        sim_send(sim, &sim->conns[link->conn], AT_NODE, &message);
    ct_buf_clear(&link->frame);
    ct_frame_reader_deinit(&reader);
    ct_arena_deinit(&arena);
}

static void link_opened(struct sim_host *host, struct sim_link *link)
{
    const struct sim_node *node = &host->sim->nodes[host->index];
    const struct ct_message hello = ct_holder_hello("sim", node->host, node->options.id);
    link->is_open = link->was_open = true;
    link->opened_ms = local_ms(host);
    sim_send(host->sim, &host->sim->conns[link->conn], AT_NODE, &hello);
    if (link->frame.size > 0)
        send_waiting(host->sim, link);
}

/* `closed`: by the other end, when it was open. A refusal proves that who listened there is dead.
 */
static void link_ended(struct sim_host *host, struct sim_link *link, bool closed, bool refused)
{
    uint64_t now = local_ms(host), id = link->id;
    bool is_dead = !link->is_open && (link->was_open || link->wanted) && refused;
    bool at_once = link->is_open && closed && now - link->opened_ms >= BRIEF_MS;
    bool is_fresh = link->closed_ms != 0 && now - link->closed_ms < LATELY_MS;
    if (at_once)
        link->closed_ms = now;
    link->conn = SIM_CONNS;
    link->is_open = false;
    link->dial_ms = now + (at_once ? 0 : is_fresh ? SOON_MS : RETRY_MS);
    if (!is_dead)
        return;
    drop(host, link);
    sim_log(host->sim, "n%u knows that %" PRIx64 " is dead", host->index, id);
    ct_holder_died(&host->holder, now, id);
    sim_host_after(host->sim, host->index);
}

/* ---- all that has to be dialled again ---- */

uint64_t sim_links_deadline(const struct sim_host *host)
{
    uint64_t due = host->dial_there_ms;
    for (size_t i = 0; i < host->link_count; i++)
        if (host->links[i].conn == SIM_CONNS)
            due = CT_MIN(due, host->links[i].dial_ms);
    return due;
}

void sim_links_tick(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    uint64_t now = local_ms(host);
    for (size_t i = 0; i < host->link_count; i++)
        if (host->links[i].conn == SIM_CONNS && host->links[i].dial_ms <= now)
            dial(host, &host->links[i]);
    if (host->dial_there_ms <= now)
        sim_endpoint_dial(sim, index);
}

void sim_links_end(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    while (host->link_count > 0)
        drop(host, &host->links[0]);
    sim_endpoint_leave(sim, index);
}

/* ---- to the job's endpoint ---- */

void sim_endpoint_dial(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    host->dial_there_ms = UINT64_MAX;
    host->there = sim_dial(sim, index, CONN_ENDPOINT, "10.0.0.0:29400", UINT64_MAX);
}

void sim_endpoint_leave(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    uint32_t there = host->there;
    host->there = SIM_CONNS;
    host->dial_there_ms = UINT64_MAX;
    if (there != SIM_CONNS)
        sim_hang_up(sim, there);
}

void sim_endpoint_answers(struct sim *sim, const struct conn *conn,
                          const struct ct_message *message)
{
    struct sim_host *host = &sim->hosts[conn->node];
    if (host->there == SIM_CONNS || conn != &sim->conns[host->there])
        return;
    sim_log(sim, "n%u is told at the endpoint of a job that lives", conn->node);
    ct_holder_endpoint_message(&host->holder, local_ms(host), message);
    sim_host_after(sim, conn->node);
}

/* ---- of its agent ---- */

static void dial_next(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    struct ct_endpoint_try next = ct_endpoints_next(&host->endpoints, local_ms(host));
    host->try_until_ms = sim->now + next.connect_ms;
    host->once = next.once;
    (void)ct_endpoint_print(next.endpoint, host->endpoint);
    sim->nodes[index].conn = sim_dial(sim, index, CONN_AGENT, host->endpoint, next.connect_ms);
}

void sim_agent_connect(struct sim *sim, uint32_t index, uint64_t give_up_ms)
{
    struct sim_host *host = &sim->hosts[index];
    ct_endpoints_begin(&host->endpoints, local_ms(host), give_up_ms,
                       ct_member_nodes(&sim->nodes[index].member));
    dial_next(sim, index);
}

void sim_agent_dial_again(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    uint64_t left = host->try_until_ms > sim->now ? host->try_until_ms - sim->now : 1;
    sim->nodes[index].conn = sim_dial(sim, index, CONN_AGENT, host->endpoint, left);
}

static void agent_ended(struct sim *sim, uint32_t index, bool was_open, const char *why)
{
    struct sim_host *host = &sim->hosts[index];
    struct sim_node *node = &sim->nodes[index];
    struct ct_error error = {0};
    node->conn = SIM_CONNS;
    if (ct_endpoints_go_on(&host->endpoints, was_open)) {
        dial_next(sim, index);
        return;
    }
    ct_error_set(&error, was_open ? CT_ECLOSED : CT_ETIMEOUT, "%s", why);
    ct_member_disconnected(&node->member, local_ms(host), &error);
    sim_node_after(sim, index);
}

/* ---- what becomes of them ---- */

void sim_dialled_opened(struct sim *sim, uint32_t index)
{
    struct conn *conn = &sim->conns[index];
    struct sim_host *host = &sim->hosts[conn->node];
    struct sim_node *node = &sim->nodes[conn->node];
    struct sim_link *link = link_on(host, index);
    if (node->conn == index) {
        ct_endpoints_opened(&host->endpoints);
        ct_member_connected(&node->member, local_ms(host));
    } else if (host->there == index) {
        struct ct_message hello = ct_holder_hello("sim", node->host, node->options.id);
        sim_send(sim, conn, AT_NODE, &hello);
        ct_holder_endpoint_opened(&host->holder, local_ms(host));
        sim_host_after(sim, conn->node);
    } else if (link != NULL) {
        link_opened(host, link);
    }
    sim_node_after(sim, conn->node);
}

void sim_dialled_failed(struct sim *sim, uint32_t node, uint32_t index, bool refused)
{
    struct sim_host *host = &sim->hosts[node];
    struct sim_link *link = link_on(host, index);
    if (sim->nodes[node].conn == index) {
        sim->nodes[node].conn = SIM_CONNS;
        if (refused && !host->once && sim->now + AGENT_RETRY_MS < host->try_until_ms)
            sim_schedule(sim,
                         sim->now + AGENT_RETRY_MS + ct_rng_below(&sim->net_rng, AGENT_RETRY_MS),
                         EV_CONNECT, node, ++sim->nodes[node].attempt);
        else
            agent_ended(sim, node, false, "nobody answers");
    } else if (host->there == index) {
        host->there = SIM_CONNS;
        host->dial_there_ms = local_ms(host) + ENDPOINT_RETRY_MS;
    } else if (link != NULL) {
        link_ended(host, link, false, refused);
    }
    sim_node_after(sim, node);
}

void sim_dialled_closed(struct sim *sim, uint32_t index, bool silent)
{
    uint32_t node = sim->conns[index].node;
    struct sim_host *host = &sim->hosts[node];
    struct sim_link *link = link_on(host, index);
    if (sim->nodes[node].conn == index) {
        agent_ended(sim, node, true,
                    silent ? "nobody acknowledged what was sent" : "the other end closed");
    } else if (host->there == index) {
        host->there = SIM_CONNS;
        ct_holder_endpoint_closed(&host->holder, local_ms(host));
        sim_host_after(sim, node);
    } else if (link != NULL) {
        link_ended(host, link, !silent, false);
    }
    sim_node_after(sim, node);
}
