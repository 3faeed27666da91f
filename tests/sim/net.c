/* Connections between nodes and daemons.
 *
 * As streams: what a side writes in one step becomes one to three chunks that
 * arrive in order, each after a delay; a cut holds them up, and a connection
 * that is cut for longer than a lease is given up by both ends, each when its
 * own TCP tires of it. As datagrams (half of the seeds): every message travels
 * alone and may be lost, doubled or overtaken, which no TCP does; the protocol
 * bears it. */
#include "sim.h"

#include "base/assert.h"
#include "base/str.h"
#include "chance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_MS = 400, SYN_MS = 200 };

/* Faults that hold up what goes from a node to process `daemon`, or back. */
static uint32_t cuts(const struct sim *sim, uint32_t node, uint32_t daemon, int side)
{
    if (daemon < SIM_DAEMONS)
        return sim->nodes[node].cut[daemon][side == AT_DAEMON ? 0 : 1];
    uint32_t other = daemon - SIM_DAEMONS;
    return side == AT_DAEMON ? sim->severed[node][other] : sim->severed[other][node];
}

static bool is_cut_towards(const struct sim *sim, const struct conn *conn, int side)
{
    return cuts(sim, conn->node, conn->daemon, side) > 0;
}

static bool is_cut(const struct sim *sim, uint32_t node, uint32_t daemon)
{
    return cuts(sim, node, daemon, AT_DAEMON) > 0 || cuts(sim, node, daemon, AT_NODE) > 0;
}

/* Holders' connections are streams always: their order counts. */
static bool is_datagrams(const struct sim *sim, const struct conn *conn)
{
    return sim->datagrams && conn->kind == CONN_AGENT;
}

/* One way. Now and then a packet is late. */
static uint64_t delay(struct sim *sim)
{
    uint64_t ms = 1 + ct_rng_below(&sim->net_rng, 2 * sim->delay_ms + 1);
    if (!sim->faults_ended && !sim->calm && rng_chance(&sim->net_rng, 10))
        ms *= 10;
    if (sim->storms > 0)
        ms += ct_rng_below(&sim->net_rng, 1500);
    return ms;
}

/* What a daemon says while it waits for its disk leaves when that is done. */
static uint64_t departure(const struct sim *sim, const struct conn *conn, int from)
{
    return from == AT_DAEMON ? CT_MAX(sim->now, sim->daemons[conn->daemon].slow_until) : sim->now;
}

/* The next thing towards a side arrives no earlier than the one before it. */
static void book_arrival(struct sim *sim, struct conn *conn, int to)
{
    uint64_t at = departure(sim, conn, 1 - to) + delay(sim);
    conn->last[to] = CT_MAX(conn->last[to], at);
}

/* ---- connecting ---- */

void sim_connect(struct sim *sim, uint32_t node)
{
    sim->nodes[node].attempt++;
    sim_schedule(sim, sim->now, EV_CONNECT, node, sim->nodes[node].attempt);
}

enum {
    FROM_DIALLER = CT_FROM_NODE | CT_FROM_SERVER | CT_FROM_REPLICA,
    FROM_DIALLED = CT_FROM_SERVER | CT_FROM_REPLICA,
};

static struct conn *new_conn(struct sim *sim)
{
    for (size_t i = 0; i < SIM_CONNS; i++) {
        struct conn *conn = &sim->conns[i];
        if (conn->used)
            continue;
        *conn = (struct conn){.used = true, .life = conn->life + 1};
        ct_frame_reader_init(&conn->reader[AT_DAEMON], FROM_DIALLER, CT_WIRE_VALUE);
        ct_frame_reader_init(&conn->reader[AT_NODE], FROM_DIALLED, CT_WIRE_VALUE);
        ct_buf_init(&conn->out[AT_DAEMON], 0);
        ct_buf_init(&conn->out[AT_NODE], 0);
        return conn;
    }
    return NULL;
}

static void free_conn(struct conn *conn)
{
    for (int side = 0; side < 2; side++) {
        ct_frame_reader_deinit(&conn->reader[side]);
        ct_buf_deinit(&conn->out[side]);
    }
    conn->used = conn->dead = conn->dialling = false;
    conn->life++;
}

/* A daemon of the node's list that answers; SIM_DAEMONS: none. One that has
 * been taken over from answers too, as long as it does not know. */
static uint32_t choose_daemon(struct sim *sim, uint32_t node)
{
    uint32_t found = SIM_DAEMONS;
    for (uint32_t i = 0; i < SIM_DAEMONS; i++) {
        if (!sim->processes[i].alive || is_cut(sim, node, i))
            continue;
        if (found == SIM_DAEMONS || rng_chance(&sim->net_rng, 500))
            found = i;
    }
    return found;
}

void sim_try_connect(struct sim *sim, uint32_t index, uint64_t attempt)
{
    struct sim_node *node = &sim->nodes[index];
    if (node->attempt != attempt)
        return;
    if (sim->embedded) {
        sim_agent_dial_again(sim, index);
        return;
    }
    if (sim->now >= node->give_up_ms) {
        struct ct_error why = {0};
        ct_error_set(&why, CT_ETIMEOUT, "nobody answers");
        ct_member_disconnected(&node->member, sim_local_ms(sim, sim_process(index)), &why);
        sim_node_after(sim, index);
        return;
    }
    uint32_t daemon = choose_daemon(sim, index);
    struct conn *conn = daemon < SIM_DAEMONS ? new_conn(sim) : NULL;
    if (conn == NULL) {
        sim_schedule(sim, sim->now + 10 + ct_rng_below(&sim->net_rng, RETRY_MS), EV_CONNECT, index,
                     attempt);
        return;
    }
    conn->node = index;
    conn->daemon = daemon;
    conn->epoch = sim->daemons[daemon].epoch;
    conn->open[AT_DAEMON] = conn->open[AT_NODE] = true;
    node->conn = (uint32_t)(conn - sim->conns);
    uint64_t there = sim->now + delay(sim);
    conn->last[AT_DAEMON] = there;
    conn->last[AT_NODE] = there + delay(sim);
    sim_schedule(sim, there, EV_OPENED, node->conn, AT_DAEMON);
    sim_schedule(sim, conn->last[AT_NODE], EV_OPENED, node->conn, AT_NODE);
}

/* ---- embedded: a connection to one place ---- */

uint32_t sim_dial(struct sim *sim, uint32_t node, enum conn_kind kind, const char *address,
                  uint64_t wait_ms)
{
    struct conn *conn = new_conn(sim);
    uint32_t index = (uint32_t)(conn - sim->conns);
    unsigned host = 0, port = 0;
    CT_ASSERT(conn != NULL);
    CT_ASSERT(sscanf(address, "10.0.0.%u:%u", &host, &port) == 2 && host < SIM_NODES);
    conn->node = node;
    conn->kind = kind;
    conn->daemon = sim_process(host);
    conn->port = port;
    conn->dialling = true;
    sim_schedule(sim, sim->now + delay(sim), EV_DIAL, index, 0);
    if (wait_ms < sim->ends_ms)
        sim_schedule(sim, sim->now + wait_ms, EV_DIAL_END, index, 0);
    return index;
}

/* A living kernel accepts or refuses; through a cut the request is repeated. */
void sim_dial_arrives(struct sim *sim, uint32_t index)
{
    struct conn *conn = &sim->conns[index];
    if (!conn->dialling)
        return;
    if (is_cut(sim, conn->node, conn->daemon)) {
        sim_schedule(sim, sim->now + SYN_MS + ct_rng_below(&sim->net_rng, SYN_MS), EV_DIAL, index,
                     0);
        return;
    }
    uint64_t back = sim->now + delay(sim);
    if (!sim_host_listens(sim, conn->daemon - SIM_DAEMONS, conn->port)) {
        sim_schedule(sim, back, EV_DIAL_END, index, 1);
        return;
    }
    conn->dialling = false;
    conn->open[AT_DAEMON] = conn->open[AT_NODE] = true;
    conn->last[AT_DAEMON] = sim->now;
    conn->last[AT_NODE] = back;
    sim_schedule(sim, sim->now, EV_OPENED, index, AT_DAEMON);
    sim_schedule(sim, back, EV_OPENED, index, AT_NODE);
}

void sim_dial_ends(struct sim *sim, uint32_t index, bool refused)
{
    struct conn *conn = &sim->conns[index];
    if (!conn->dialling)
        return;
    if (refused && is_cut_towards(sim, conn, AT_NODE)) {
        sim_schedule(sim, sim->now + SYN_MS, EV_DIAL, index, 0);
        return;
    }
    free_conn(conn);
    sim_dialled_failed(sim, conn->node, index, refused);
}

void sim_hang_up(struct sim *sim, uint32_t index)
{
    struct conn *conn = &sim->conns[index];
    if (conn->dialling)
        free_conn(conn);
    else
        sim_close(sim, conn, AT_NODE);
}

void sim_opened(struct sim *sim, uint32_t index, int side)
{
    struct conn *conn = &sim->conns[index];
    if (!conn->open[side])
        return;
    if (side == AT_DAEMON) {
        sim_daemon_opened(sim, conn);
        return;
    }
    if (sim->embedded) {
        sim_dialled_opened(sim, index);
        return;
    }
    struct sim_node *node = &sim->nodes[conn->node];
    ct_member_connected(&node->member, sim_local_ms(sim, sim_process(conn->node)));
    sim_node_after(sim, conn->node);
}

/* ---- sending ---- */

static uint32_t new_chunk(struct sim *sim, struct conn *conn, int side, const void *data,
                          size_t size)
{
    size_t i = 0;
    while (i < sim->chunk_room && sim->chunks[i].used)
        i++;
    if (i == sim->chunk_room) {
        size_t room = sim->chunk_room > 0 ? sim->chunk_room * 2 : 64;
        sim->chunks = realloc(sim->chunks, room * sizeof(*sim->chunks));
        CT_ASSERT(sim->chunks != NULL);
        memset(sim->chunks + i, 0, (room - i) * sizeof(*sim->chunks));
        sim->chunk_room = room;
    }
    struct chunk *chunk = &sim->chunks[i];
    *chunk = (struct chunk){
        .used = true,
        .conn = (uint32_t)(conn - sim->conns),
        .life = conn->life,
        .side = side,
        .order = conn->sent[side],
        .size = size,
        .data = malloc(size),
    };
    CT_ASSERT(chunk->data != NULL);
    memcpy(chunk->data, data, size);
    conn->sent[side]++;
    return (uint32_t)i;
}

static void free_chunk(struct chunk *chunk)
{
    free(chunk->data);
    *chunk = (struct chunk){0};
}

/* VOTERS and OFFER are sent once: no TCP loses one of them and brings what follows it. */
static void send_datagram(struct sim *sim, struct conn *conn, int to,
                          const struct ct_message *message, const struct ct_buf *frame)
{
    bool is_single = message->type == CT_MSG_VOTERS || message->type == CT_MSG_OFFER;
    uint32_t loss = is_single ? 0 : sim->loss_permille + (sim->storms > 0 ? 250 : 0);
    uint32_t twice = sim->duplicate_permille + (sim->storms > 0 ? 100 : 0);
    int copies = rng_chance(&sim->net_rng, twice) ? 2 : 1;
    for (int i = 0; i < copies; i++) {
        if (rng_chance(&sim->net_rng, loss))
            continue;
        uint32_t chunk = new_chunk(sim, conn, to, frame->data, frame->size);
        sim_schedule(sim, departure(sim, conn, 1 - to) + delay(sim), EV_DELIVER, chunk, 0);
    }
}

void sim_send(struct sim *sim, struct conn *conn, int side, const struct ct_message *message)
{
    struct ct_error err = {0};
    struct ct_buf frame;
    if (!conn->open[side])
        return;
    /* A replica bears that a message is lost; but for the first, which says whose it is. */
    if (conn->kind == CONN_REPLICA && sim->datagrams && message->type != CT_MSG_HELLO &&
        rng_chance(&sim->net_rng, sim->loss_permille + (sim->storms > 0 ? 250 : 0)))
        return;
    ct_buf_init(&frame, 0);
    int rc = ct_wire_encode(message, conn->next_sequence[side]++, &frame, &err);
    CT_ASSERT(rc == 0);
    if (is_datagrams(sim, conn)) {
        send_datagram(sim, conn, 1 - side, message, &frame);
    } else {
        (void)ct_buf_append(&conn->out[side], frame.data, frame.size);
        if (!conn->dirty) {
            conn->dirty = true;
            sim->dirty[sim->dirty_count++] = (uint32_t)(conn - sim->conns);
        }
    }
    ct_buf_deinit(&frame);
}

/* The bytes of one step, in up to three pieces. */
static void flush_side(struct sim *sim, struct conn *conn, int side)
{
    struct ct_buf *out = &conn->out[side];
    int to = 1 - side;
    size_t at = 0;
    while (at < out->size) {
        size_t size = out->size - at;
        if (rng_chance(&sim->net_rng, 100))
            size = 1 + ct_rng_below(&sim->net_rng, size);
        uint32_t chunk = new_chunk(sim, conn, to, out->data + at, size);
        book_arrival(sim, conn, to);
        sim_schedule(sim, conn->last[to], EV_DELIVER, chunk, 0);
        at += size;
    }
    ct_buf_clear(out);
}

void sim_flush(struct sim *sim)
{
    for (size_t i = 0; i < sim->dirty_count; i++) {
        struct conn *conn = &sim->conns[sim->dirty[i]];
        conn->dirty = false;
        flush_side(sim, conn, AT_DAEMON);
        flush_side(sim, conn, AT_NODE);
        if (conn->dead) {
            free_conn(conn);
            sim->oracle.breaks++;
        }
    }
    sim->dirty_count = 0;
}

/* ---- delivering ---- */

static void hand_over(struct sim *sim, struct conn *conn, int side, const struct ct_frame *frame)
{
    struct ct_arena arena;
    struct ct_message message;
    struct ct_error err = {0};
    ct_arena_init(&arena, 4 << 20);
    if (ct_wire_decode(frame, &arena, &message, &err) != 0) {
        sim_fail(sim, "a message cannot be decoded: %s", err.text);
    } else if (side == AT_DAEMON) {
        sim_daemon_message(sim, conn, &message);
    } else {
        sim_node_message(sim, conn, &message);
    }
    ct_arena_deinit(&arena);
}

static void deliver_to(struct sim *sim, struct conn *conn, const struct chunk *chunk,
                       struct ct_frame_reader *reader)
{
    struct ct_frame frame;
    struct ct_error err = {0};
    uint32_t life = conn->life;
    int rc = ct_frame_reader_push(reader, chunk->data, chunk->size);
    CT_ASSERT(rc == 0);
    while (conn->life == life && conn->open[chunk->side] &&
           !(conn->closing && chunk->side == AT_DAEMON)) {
        rc = ct_frame_reader_next(reader, &frame, &err);
        if (rc < 0)
            sim_fail(sim, "a frame cannot be read: %s", err.text);
        if (rc != 1)
            break;
        hand_over(sim, conn, chunk->side, &frame);
    }
}

void sim_deliver(struct sim *sim, uint32_t index)
{
    struct chunk chunk = sim->chunks[index];
    struct conn *conn = &sim->conns[chunk.conn];
    bool is_lost = chunk.life != conn->life || !conn->open[chunk.side];
    if (!is_lost && is_cut_towards(sim, conn, chunk.side)) {
        is_lost = is_datagrams(sim, conn);
        sim->chunks[index].held = !is_lost;
        if (!is_lost)
            return;
    }
    if (!is_lost && !is_datagrams(sim, conn) && chunk.order != conn->came[chunk.side]) {
        sim_schedule(sim, sim->now + 1, EV_DELIVER, index, 0); /* one before it is still held */
        return;
    }
    conn->came[chunk.side] += !is_lost;
    sim->chunks[index].data = NULL;
    free_chunk(&sim->chunks[index]);
    if (!is_lost && is_datagrams(sim, conn)) {
        struct ct_frame_reader reader;
        ct_frame_reader_init(&reader, chunk.side == AT_DAEMON ? FROM_DIALLER : FROM_DIALLED,
                             CT_WIRE_VALUE);
        reader.next_sequence = ct_get_le32(chunk.data + 12);
        deliver_to(sim, conn, &chunk, &reader);
        ct_frame_reader_deinit(&reader);
    } else if (!is_lost) {
        deliver_to(sim, conn, &chunk, &conn->reader[chunk.side]);
    }
    free(chunk.data);
}

/* ---- ending ---- */

/* Freed when the event is over: somebody may still read a message of it. */
static void bury(struct sim *sim, struct conn *conn)
{
    if (conn->open[AT_DAEMON] || conn->open[AT_NODE] || conn->dead)
        return;
    conn->dead = true;
    if (!conn->dirty) {
        conn->dirty = true;
        sim->dirty[sim->dirty_count++] = (uint32_t)(conn - sim->conns);
    }
}

void sim_close(struct sim *sim, struct conn *conn, int side)
{
    if (!conn->open[side])
        return;
    flush_side(sim, conn, side);
    conn->open[side] = false;
    if (side == AT_NODE && sim->nodes[conn->node].conn == (uint32_t)(conn - sim->conns))
        sim->nodes[conn->node].conn = SIM_CONNS;
    int to = 1 - side;
    book_arrival(sim, conn, to);
    if (conn->open[to])
        sim_schedule(sim, conn->last[to], EV_CLOSED, (uint32_t)(conn - sim->conns), (uint64_t)to);
    bury(sim, conn);
}

/* This side learns of the end and tells its owner. */
static void end_side(struct sim *sim, struct conn *conn, int side, bool silent)
{
    conn->open[side] = false;
    if (side == AT_DAEMON) {
        sim_daemon_closed(sim, conn, silent);
    } else if (sim->embedded) {
        sim_dialled_closed(sim, (uint32_t)(conn - sim->conns), silent);
    } else {
        struct sim_node *node = &sim->nodes[conn->node];
        struct ct_error error = {0};
        ct_error_set(&error, CT_ECLOSED, "%s",
                     silent ? "nobody acknowledged what was sent" : "the other end closed");
        node->conn = SIM_CONNS;
        ct_member_disconnected(&node->member, sim_local_ms(sim, sim_process(conn->node)), &error);
        sim_node_after(sim, conn->node);
    }
    bury(sim, conn);
}

void sim_closed(struct sim *sim, uint32_t index, int side)
{
    struct conn *conn = &sim->conns[index];
    if (!conn->open[side])
        return;
    if (is_cut_towards(sim, conn, side))
        sim_schedule(sim, sim->now + 200, EV_CLOSED, index, (uint64_t)side);
    else
        end_side(sim, conn, side, false);
}

void sim_unanswered(struct sim *sim, uint32_t index, int side)
{
    struct conn *conn = &sim->conns[index];
    bool is_wanted = conn->closing && side == AT_DAEMON;
    if (!conn->open[side] || (!is_wanted && !is_cut(sim, conn->node, conn->daemon)))
        return;
    flush_side(sim, conn, side);
    int to = 1 - side;
    book_arrival(sim, conn, to);
    if (conn->open[to])
        sim_schedule(sim, conn->last[to], EV_CLOSED, index, (uint64_t)to);
    end_side(sim, conn, side, !is_wanted);
}

void sim_kill_conns(struct sim *sim, uint32_t process)
{
    for (uint32_t i = 0; i < SIM_CONNS; i++) {
        struct conn *conn = &sim->conns[i];
        for (int side = 0; side < 2 && conn->used; side++) {
            uint32_t owner = side == AT_DAEMON ? conn->daemon : sim_process(conn->node);
            if (owner != process)
                continue;
            ct_buf_clear(&conn->out[side]);
            if (!conn->dialling)
                sim_close(sim, conn, side);
            else if (side == AT_NODE)
                free_conn(conn);
        }
    }
}

void sim_cut_changed(struct sim *sim, uint32_t node)
{
    uint64_t patience = sim->params.lease_ms;
    for (uint32_t i = 0; i < SIM_CONNS; i++) {
        const struct conn *conn = &sim->conns[i];
        bool is_its = conn->node == node || conn->daemon == sim_process(node);
        if (!conn->used || conn->dialling || !is_its || !is_cut(sim, conn->node, conn->daemon))
            continue;
        for (uint64_t side = 0; side < 2; side++)
            sim_schedule(sim, sim->now + patience + ct_rng_below(&sim->net_rng, patience),
                         EV_UNANSWERED, i, side);
    }
    for (size_t i = 0; i < sim->chunk_room; i++) {
        struct chunk *chunk = &sim->chunks[i];
        const struct conn *conn = &sim->conns[chunk->conn];
        bool is_its = conn->node == node || conn->daemon == sim_process(node);
        if (!chunk->used || !chunk->held || !is_its || is_cut_towards(sim, conn, chunk->side))
            continue;
        chunk->held = false;
        sim_schedule(sim, sim->now, EV_DELIVER, (uint32_t)i, 0);
    }
}

void sim_net_free(struct sim *sim)
{
    for (size_t i = 0; i < SIM_CONNS; i++)
        if (sim->conns[i].used)
            free_conn(&sim->conns[i]);
    for (size_t i = 0; i < sim->chunk_room; i++)
        free(sim->chunks[i].data);
    free(sim->chunks);
}
