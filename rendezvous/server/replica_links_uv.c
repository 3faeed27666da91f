/* See replica_links_uv.h. */
#include "rendezvous/server/replica_links_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "net/conn_uv.h"
#include "rendezvous/holder/holder.h"
#include "wire/frame.h"

#include <stdlib.h>

enum {
    RETRY_MS = 200,    /* between two tries to reach one that is not reachable */
    SOON_MS = 10,      /* ... that has closed a connection just now: a process that is killed may */
    LATELY_MS = 1000,  /* still have accepted one more */
    CONNECT_MS = 3000, /* one try */
    UNUSED_MS = 10000, /* until one that is no voter is closed */
    BRIEF_MS = 100,    /* a connection that was closed so soon was not wanted there */
    REFUSED_MS = 5000, /* to the next try to reach one that did not want this */
    REPORT_MS = 60000, /* from one report of that to the next */
    QUEUE_BYTES = 2 * CT_WIRE_VALUE,
    ARENA_BYTES = 16 << 20,
};

struct link {
    struct ct_replica_links *links;
    struct link *next;
    uint64_t id;
    char address[CT_REPLICA_ADDRESS_BYTES];
    struct ct_conn *conn; /* NULL: none */
    bool is_open;
    bool was_open;      /* ever: it listens at this address, then */
    bool wanted;        /* it votes */
    uint32_t protocol;  /* that the next HELLO offers */
    uint64_t opened_ms; /* the last time */
    uint64_t closed_ms; /* by the other end, when it was open; 0: never */
    uint64_t dial_ms;   /* no connection: when the next is tried */
    uint64_t used_ms;
    struct ct_error refused; /* by its own words; code 0: no */
    uint64_t reported_ms;    /* when that was reported; 0: never */
    struct ct_buf frame;     /* of the last message, which waits for the connection */
};

struct ct_replica_links {
    struct ct_replica_links_options options;
    uv_timer_t timer;
    struct link *list;
    void (*closed)(void *context);
    void *closed_context;
};

static uint64_t now_ms(const struct ct_replica_links *links)
{
    return ct_clock_mono_ms(links->options.clock);
}

/* ---- one of them ---- */

static struct link *find(const struct ct_replica_links *links, uint64_t id)
{
    struct link *link = links->list;

    while (link != NULL && link->id != id)
        link = link->next;
    return link;
}

static void drop(struct link *link)
{
    struct link **at = &link->links->list;

    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    if (link->conn != NULL) {
        ct_conn_set_user(link->conn, NULL);
        ct_conn_close(link->conn, 0, NULL);
    }
    ct_buf_deinit(&link->frame);
    free(link);
}

static void on_timer(uv_timer_t *timer);

static void arm(struct ct_replica_links *links)
{
    uint64_t due = UINT64_MAX, now = now_ms(links);

    for (const struct link *link = links->list; link != NULL; link = link->next)
        if (link->conn == NULL)
            due = CT_MIN(due, link->dial_ms);
    if (due == UINT64_MAX)
        (void)uv_timer_stop(&links->timer);
    else
        (void)uv_timer_start(&links->timer, on_timer, due > now ? due - now : 0, 0);
}

static void send_waiting(struct link *link)
{
    struct ct_frame_reader reader;
    struct ct_message message;
    struct ct_arena arena;
    struct ct_frame frame;

    ct_arena_init(&arena, ARENA_BYTES);
    ct_frame_reader_init(&reader, CT_FROM_REPLICA, CT_WIRE_VALUE);
    if (ct_frame_reader_push(&reader, link->frame.data, link->frame.size) == 0 &&
        ct_frame_reader_next(&reader, &frame, NULL) == 1 &&
        ct_wire_decode(&frame, &arena, &message, NULL) == 0)
        (void)ct_conn_send(link->conn, &message, NULL);
    ct_buf_deinit(&link->frame);
    ct_frame_reader_deinit(&reader);
    ct_arena_deinit(&arena);
}

static void on_open(struct ct_conn *conn)
{
    struct link *link = ct_conn_user(conn);

    if (link == NULL)
        return;
    const struct ct_replica_links_options *o = &link->links->options;
    struct ct_message hello = ct_holder_hello(o->job, o->host, o->incarnation);

    hello.hello.protocol = link->protocol;
    link->is_open = link->was_open = true;
    link->opened_ms = now_ms(link->links);
    (void)ct_conn_send(conn, &hello, NULL);
    if (link->frame.size > 0)
        send_waiting(link);
}

/* What comes back is a refusal at most. */
static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct link *link = ct_conn_user(conn);

    if (link != NULL && message->type == CT_MSG_REFUSE)
        (void)ct_error_set(&link->refused, message->refuse.code, "%s", message->refuse.text);
}

/* Was this the end because of what one of the two is? */
static bool is_refused(struct link *link, const struct ct_error *why)
{
    const struct ct_replica_links_options *o = &link->links->options;
    uint64_t now = now_ms(link->links);

    if (link->refused.code == 0 && why->code == CT_EAUTH)
        link->refused = *why;
    if (link->refused.code == 0)
        return false;
    if (o->on_failed != NULL && (link->reported_ms == 0 || now - link->reported_ms >= REPORT_MS)) {
        link->reported_ms = now;
        o->on_failed(o->context, link->address, &link->refused);
    }
    link->refused.code = 0;
    return true;
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct link *link = ct_conn_user(conn);

    if (link == NULL)
        return;
    struct ct_replica_links *links = link->links;
    uint64_t now = now_ms(links), id = link->id;
    /* One that votes has listened there, or it would not have got the log. */
    bool has_listened = link->was_open || link->wanted;
    bool is_dead = !link->is_open && has_listened && why->code == UV_ECONNREFUSED;
    bool at_once = link->is_open && why->code == CT_ECLOSED && now - link->opened_ms >= BRIEF_MS;

    bool is_fresh = link->closed_ms != 0 && now - link->closed_ms < LATELY_MS;
    bool is_unwanted = link->is_open && (link->refused.code != 0 || !at_once);

    if (at_once)
        link->closed_ms = now;
    link->conn = NULL;
    link->is_open = false;
    link->dial_ms = now + (at_once ? 0 : is_fresh ? SOON_MS : RETRY_MS);
    if (is_unwanted) /* it may be of a release that knows only older protocols */
        link->protocol = ct_wire_next_older(link->protocol);
    else if (at_once)
        link->protocol = CT_WIRE_PROTOCOL;
    if (link->protocol != CT_WIRE_PROTOCOL)
        link->refused.code = 0;
    else if (is_refused(link, why))
        link->dial_ms = now + REFUSED_MS;
    if (is_dead && !links->options.returns)
        drop(link);
    if (is_dead)
        links->options.on_died(links->options.context, id);
    arm(links);
}

static void dial(struct link *link)
{
    static const struct ct_conn_callbacks callbacks = {
        .on_open = on_open, .on_message = on_message, .on_close = on_close};
    struct ct_replica_links *links = link->links;
    struct ct_conn_options options = {
        .from = CT_FROM_SERVER | CT_FROM_REPLICA,
        .key = links->options.key,
        .job = links->options.job,
        .accept_expired = true, /* so that no date parts those that hold the record */
        .queue_limit = QUEUE_BYTES,
        .connect_ms = CONNECT_MS,
        .once = true,
        .seed = link->id,
    };
    struct ct_endpoint endpoint;

    link->dial_ms = now_ms(links) + RETRY_MS; /* should it not even begin */
    if (ct_endpoint_parse(link->address, -1, &endpoint, NULL) != 0 ||
        ct_conn_connect(links->options.loop, &endpoint, &options, &callbacks, link, &link->conn,
                        NULL) != 0)
        link->conn = NULL;
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_replica_links *links = timer->data;

    for (struct link *link = links->list; link != NULL; link = link->next)
        if (link->conn == NULL && link->dial_ms <= now_ms(links))
            dial(link);
    arm(links);
}

static struct link *add(struct ct_replica_links *links, uint64_t id, const char *address)
{
    struct link *link = calloc(1, sizeof *link);

    if (link == NULL)
        return NULL;
    *link =
        (struct link){.links = links, .next = links->list, .id = id, .protocol = CT_WIRE_PROTOCOL};
    ct_buf_init(&link->frame, 0);
    (void)ct_str_copy(link->address, sizeof link->address, address);
    link->used_ms = now_ms(links);
    links->list = link;
    dial(link);
    arm(links);
    return link;
}

/* ---- all of them ---- */

struct ct_replica_links *ct_replica_links_new(const struct ct_replica_links_options *options)
{
    struct ct_replica_links *links = calloc(1, sizeof *links);

    if (links == NULL)
        return NULL;
    links->options = *options;
    (void)uv_timer_init(options->loop, &links->timer);
    links->timer.data = links;
    return links;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_replica_links *links = handle->data;
    void (*closed)(void *context) = links->closed;
    void *context = links->closed_context;

    free(links);
    closed(context);
}

void ct_replica_links_free(struct ct_replica_links *links, void (*closed)(void *context),
                           void *context)
{
    while (links->list != NULL)
        drop(links->list);
    links->closed = closed;
    links->closed_context = context;
    uv_close((uv_handle_t *)&links->timer, on_timer_closed);
}

void ct_replica_links_want(struct ct_replica_links *links, const struct ct_replica_server *list,
                           size_t count)
{
    uint64_t now = now_ms(links);

    for (struct link *link = links->list; link != NULL; link = link->next)
        link->wanted = false;
    for (size_t i = 0; i < count; i++) {
        struct link *link = find(links, list[i].id);

        if (link == NULL)
            link = add(links, list[i].id, list[i].address);
        if (link != NULL)
            link->wanted = true;
    }
    for (struct link *link = links->list, *next; link != NULL; link = next) {
        next = link->next;
        if (!link->wanted && now - link->used_ms >= UNUSED_MS)
            drop(link);
    }
    arm(links);
}

void ct_replica_links_send(struct ct_replica_links *links, uint64_t id, const char *address,
                           const struct ct_message *message)
{
    struct link *link = find(links, id);

    if (link == NULL)
        link = add(links, id, address);
    if (link == NULL)
        return;
    link->used_ms = now_ms(links);
    if (link->is_open) {
        (void)ct_conn_send(link->conn, message, NULL);
        return;
    }
    ct_buf_clear(&link->frame);
    (void)ct_wire_encode_as(message, CT_WIRE_PROTOCOL, 0, &link->frame, NULL);
}
