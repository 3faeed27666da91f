#include "hosts.h"

#include "base/assert.h"
#include "wire/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REDIAL_MS = 100, AGAIN_MS = 10, ARENA_BYTES = 1 << 20 };

const char hosts_endpoint[] = "10.0.0.0:29400";

/* ---- the network ---- */

static void fly(struct hosts *world, struct flight *flight, uint64_t after_ms)
{
    flight->at_ms = world->now_ms + after_ms;
    flight->order = world->next_order++;
    flight->next = world->flights;
    world->flights = flight;
}

static void fly_kind(struct conn *conn, enum flight_kind kind, bool to_dialler, uint64_t after_ms)
{
    struct flight *flight = calloc(1, sizeof *flight);

    CT_ASSERT(flight != NULL);
    flight->conn = conn;
    flight->kind = kind;
    flight->to_dialler = to_dialler;
    fly(conn->from->world, flight, after_ms);
}

static bool is_cut(const struct conn *conn)
{
    return conn->from->world->cut[conn->from->index][conn->to->index];
}

void hosts_put(struct conn *conn, bool to_dialler, const struct ct_message *message)
{
    struct flight *flight;
    struct ct_buf frame;

    if (!conn->open || conn->closed || (!to_dialler && !conn->answered))
        return;
    ct_buf_init(&frame, 0);
    CT_ASSERT(ct_wire_encode(message, 0, &frame, NULL) == 0);
    flight = calloc(1, sizeof *flight + frame.size);
    CT_ASSERT(flight != NULL);
    memcpy(flight->frame, frame.data, frame.size);
    flight->size = frame.size;
    flight->conn = conn;
    flight->kind = FLIGHT_MESSAGE;
    flight->to_dialler = to_dialler;
    fly(conn->from->world, flight, 1);
    ct_buf_deinit(&frame);
}

static struct host *host_at(struct hosts *world, const char *address)
{
    for (uint32_t i = 0; i < world->count; i++)
        if (strcmp(world->list[i].address, address) == 0)
            return &world->list[i];
    return strcmp(address, hosts_endpoint) == 0 ? &world->list[0] : NULL;
}

/* Where a host listened in an earlier life, its kernel refuses. */
static struct host *machine_of(struct hosts *world, const char *address)
{
    unsigned index = 0;

    CT_ASSERT(sscanf(address, "10.0.0.%u:", &index) == 1 && index < world->count);
    return &world->list[index];
}

struct conn *hosts_dial(struct host *from, enum conn_kind kind, const char *address)
{
    struct hosts *world = from->world;
    struct conn *conn = &world->conns[world->conn_count++];
    struct host *there = host_at(world, address);

    CT_ASSERT(world->conn_count < HOSTS_CONNS);
    *conn = (struct conn){
        .kind = kind, .from = from, .to = machine_of(world, address), .from_life = from->life};
    conn->to_life = there != NULL ? there->life : UINT64_MAX;
    fly_kind(conn, FLIGHT_DIAL, false, 1);
    return conn;
}

void hosts_give_up_after(struct conn *conn, uint64_t after_ms)
{
    fly_kind(conn, FLIGHT_TIMEOUT, true, after_ms);
}

void hosts_hang_up(struct conn *conn)
{
    if (conn->closed)
        return;
    conn->closed = true;
    fly_kind(conn, FLIGHT_CLOSE, true, 1);
    fly_kind(conn, FLIGHT_CLOSE, false, 1);
}

/* ---- what arrives ---- */

static bool is_there(const struct conn *conn)
{
    return conn->to->alive && conn->to->life == conn->to_life && conn->to->holds;
}

static bool is_here(const struct conn *conn)
{
    return conn->from->alive && conn->from->life == conn->from_life;
}

static struct link *link_with(const struct conn *conn)
{
    for (size_t i = 0; i < conn->from->link_count; i++)
        if (conn->from->links[i].conn == conn)
            return &conn->from->links[i];
    return NULL;
}

static void opened(struct conn *conn)
{
    struct host *host = conn->from;
    struct ct_message hello = ct_holder_hello("job", host->name, host->id);
    uint64_t now_ms = host->world->now_ms;

    conn->answered = true;
    if (conn->kind != CONN_AGENT)
        hosts_put(conn, false, &hello);
    if (conn == host->agent) {
        ct_endpoints_opened(&host->endpoints);
        ct_member_connected(&host->member, now_ms);
    } else if (conn == host->there) {
        ct_holder_endpoint_opened(&host->holder, now_ms);
    } else if (link_with(conn) != NULL) {
        link_with(conn)->was_open = true;
    }
}

/* Refused, closed, or given up in time. */
static void ended(struct conn *conn, bool refused)
{
    struct host *host = conn->from;
    struct link *link = link_with(conn);
    uint64_t now_ms = host->world->now_ms;
    const struct ct_error why = {.code = CT_ECLOSED, .text = "closed"};

    if (conn == host->agent) {
        host->agent = NULL;
        if (ct_endpoints_go_on(&host->endpoints, conn->answered))
            hosts_dial_next(host);
        else
            ct_member_disconnected(&host->member, now_ms, &why);
    } else if (conn == host->there) {
        if (conn->answered)
            ct_holder_endpoint_closed(&host->holder, now_ms);
        else
            host->dial_there_ms = now_ms + REDIAL_MS;
        host->there = NULL;
    } else if (link != NULL && refused) {
        uint64_t id = link->id;

        *link = host->links[--host->link_count];
        ct_holder_died(&host->holder, now_ms, id);
    } else if (link != NULL) {
        link->conn = NULL;
        link->dial_ms = now_ms + AGAIN_MS;
    }
}

static void receive(const struct flight *flight)
{
    struct conn *conn = flight->conn;
    const struct ct_frame frame = {.type = ct_get_le16(flight->frame + 8),
                                   .payload = flight->frame + CT_WIRE_HEADER,
                                   .size = (uint32_t)(flight->size - CT_WIRE_HEADER)};
    uint64_t now_ms = conn->from->world->now_ms;
    struct ct_message message;
    struct ct_arena arena;

    ct_arena_init(&arena, ARENA_BYTES);
    CT_ASSERT(ct_wire_decode(&frame, &arena, &message, NULL) == 0);
    if (!flight->to_dialler) {
        if (is_there(conn) && !conn->to_closed)
            ct_holder_message(&conn->to->holder, now_ms, &conn->holder, &message);
    } else if (is_here(conn) && conn == conn->from->agent) {
        hosts_note(conn->from, &message);
        ct_member_message(&conn->from->member, now_ms, &message);
    } else if (is_here(conn) && conn == conn->from->there) {
        ct_holder_endpoint_message(&conn->from->holder, now_ms, &message);
    }
    ct_arena_deinit(&arena);
}

static void close_end(struct conn *conn, bool of_dialler, bool silent)
{
    if (of_dialler && is_here(conn) && !conn->from_closed) {
        conn->from_closed = true;
        ended(conn, false);
    } else if (!of_dialler && is_there(conn) && conn->open && !conn->to_closed) {
        conn->to_closed = true;
        ct_holder_closed(&conn->to->holder, conn->from->world->now_ms, &conn->holder, silent);
    }
}

static void arrive(const struct flight *flight)
{
    struct conn *conn = flight->conn;
    uint64_t now_ms = conn->from->world->now_ms;

    switch (flight->kind) {
    case FLIGHT_DIAL:
        if (conn->closed)
            break;
        if (!is_there(conn)) {
            fly_kind(conn, FLIGHT_REFUSED, true, 1);
        } else if (ct_holder_opened(&conn->to->holder, now_ms, &conn->holder, conn)) {
            conn->open = true;
            fly_kind(conn, FLIGHT_ANSWER, true, 1);
        }
        break;
    case FLIGHT_ANSWER:
        if (is_here(conn) && !conn->closed)
            opened(conn);
        break;
    case FLIGHT_REFUSED:
    case FLIGHT_TIMEOUT:
        if (is_here(conn) && !conn->answered && !conn->closed) {
            conn->closed = true;
            ended(conn, flight->kind == FLIGHT_REFUSED);
        }
        break;
    case FLIGHT_MESSAGE:
        receive(flight);
        break;
    case FLIGHT_CLOSE:
        close_end(conn, flight->to_dialler, false);
        break;
    case FLIGHT_SILENCE:
        if (is_cut(conn)) {
            conn->closed = true;
            close_end(conn, true, true);
            close_end(conn, false, true);
        }
        break;
    }
}

/* ---- what comes first ---- */

/* Nothing crosses a cut; a frozen host takes what comes when it goes on. */
static uint64_t ready_ms(const struct flight *flight)
{
    const struct conn *conn = flight->conn;
    const struct host *host = flight->to_dialler ? conn->from : conn->to;

    if (flight->kind != FLIGHT_TIMEOUT && flight->kind != FLIGHT_SILENCE && is_cut(conn))
        return UINT64_MAX;
    return CT_MAX(flight->at_ms, host->frozen_until_ms);
}

static bool is_before(const struct flight *a, const struct flight *b)
{
    if (ready_ms(a) != ready_ms(b))
        return ready_ms(a) < ready_ms(b);
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static struct flight **first_flight(struct hosts *world)
{
    struct flight **first = &world->flights;

    for (struct flight **at = first; *at != NULL; at = &(*at)->next)
        if (is_before(*at, *first))
            first = at;
    return first;
}

struct flight *hosts_first_flight(struct hosts *world, uint64_t *ret_ready_ms)
{
    struct flight *flight = *first_flight(world);

    *ret_ready_ms = flight != NULL ? ready_ms(flight) : UINT64_MAX;
    return flight;
}

void hosts_arrive(struct hosts *world, struct flight *flight)
{
    *first_flight(world) = flight->next;
    arrive(flight);
    free(flight);
}

void hosts_cut(struct hosts *world, uint32_t index, bool cut)
{
    for (uint32_t i = 0; i < world->count; i++)
        if (i != index)
            world->cut[index][i] = world->cut[i][index] = cut;
    for (size_t i = 0; i < world->conn_count; i++) /* data that is not acknowledged ends it */
        if (is_cut(&world->conns[i]) && world->conns[i].open && !world->conns[i].closed)
            fly_kind(&world->conns[i], FLIGHT_SILENCE, true, HOSTS_USER_TIMEOUT_MS);
}
