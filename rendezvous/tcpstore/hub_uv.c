/* See hub_uv.h.
 *
 *   listener -> link -> TUNNEL_HELLO -> OPEN -> remote = a client of the core
 *                                       DATA -> ct_tcpstore_input -> serve: its sink -> DATA */
#include "rendezvous/tcpstore/hub_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "net/listen_uv.h"
#include "rendezvous/tcpstore/tunnel_uv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RESUME_MS = 30000, LIST_BYTES = 1 << 20 };

struct link;

struct remote {
    struct ct_tunnel_stream stream;
    struct ct_tcpstore_sink sink;
    struct link *link;
    struct ct_tcpstore_client *client; /* NULL: it has left */
};

/* A relay. */
struct link {
    struct ct_tcpstore_hub *hub;
    struct link *next, *prev;
    struct ct_conn *conn; /* NULL: it broke, `since_ms` */
    uint64_t since_ms;
    struct ct_tunnel tunnel;
    bool proven; /* TUNNEL_HELLO came */
    struct ct_id relay;
    char host[CT_ENDPOINT_HOST];
};

struct ct_tcpstore_hub {
    struct ct_tcpstore_hub *self; /* a connection's user is the hub until it has a link */
    uv_loop_t *loop;
    struct ct_tcpstore_hub_options options;
    struct ct_listener *listener;
    struct ct_endpoint endpoint;
    struct link *links;
    uv_timer_t timer; /* while a connection is broken */
    bool stopped, timer_closed;
    char job[129];
};

static struct remote *remote_of(struct ct_tcpstore_sink *sink)
{
    return (struct remote *)(void *)((char *)sink - offsetof(struct remote, sink));
}

static uint64_t now_ms(const struct ct_tcpstore_hub *hub)
{
    return uv_now(hub->loop);
}

/* ---- remote clients ---- */

/* Its client is over: in good order (NULL), or for a reason. */
static void leave(struct remote *remote, const struct ct_error *why)
{
    const struct ct_tcpstore_hub *hub = remote->link->hub;

    if (remote->client == NULL)
        return;
    const struct ct_tcpstore_about about = ct_tcpstore_about(remote->client);
    struct ct_error copy = {0};
    if (why != NULL)
        copy = *why; /* it may lie in the client */
    const struct ct_tcpstore_lost lost = {
        .peer = remote->link->host,
        .host = remote->link->host,
        .is_client = about.dialect != CT_TCPSTORE_UNKNOWN,
        .pid = about.pid,
        .waited = about.waits,
        .why = why != NULL ? &copy : NULL,
    };
    ct_tcpstore_leave(remote->client);
    remote->client = NULL;
    if (hub->options.on_lost != NULL && !hub->stopped)
        hub->options.on_lost(hub->options.user, &lost);
}

/* Its number is free when both ends have said so. */
static void free_closed(struct remote *remote)
{
    if (!remote->stream.close_sent || !remote->stream.close_received)
        return;
    ct_tunnel_remove(&remote->link->tunnel, &remote->stream);
    free(remote);
}

static void on_flush(struct ct_tcpstore_sink *sink)
{
    struct remote *remote = remote_of(sink);
    struct ct_conn *conn = remote->link->conn;
    struct ct_tcpstore_bytes output = ct_tcpstore_output(remote->client);
    size_t sent = 1;

    while (output.size > 0 && sent > 0) {
        sent = ct_tunnel_send(conn, &remote->stream, output.data, output.size);
        ct_tcpstore_sent(remote->client, now_ms(remote->link->hub), sent);
        output = ct_tcpstore_output(remote->client);
    }
    ct_tcpstore_hold(remote->client, remote->stream.kept.room);
    if (!ct_tcpstore_is_full(remote->client))
        ct_tunnel_consume(conn, &remote->stream, remote->stream.inside - remote->stream.consumed);
}

static void on_broke(struct ct_tcpstore_sink *sink, const struct ct_error *why)
{
    struct remote *remote = remote_of(sink);

    ct_tunnel_close(remote->link->conn, &remote->stream, why);
    leave(remote, why);
    free_closed(remote);
}

/* ---- what relays say; false: it must not be said ---- */

static bool on_open_stream(struct link *link, uint32_t number, struct ct_conn *way);
static void remove_link(struct link *link);

static void greet(struct link *link)
{
    struct ct_arena arena;

    ct_arena_init(&arena, LIST_BYTES);
    const struct ct_message welcome = {
        .type = CT_MSG_TUNNEL_WELCOME,
        .tunnel_welcome = {.streams = {.data = ct_tunnel_list(&link->tunnel, &arena),
                                       .count = link->tunnel.count}},
    };
    if (welcome.tunnel_welcome.streams.data != NULL)
        (void)ct_conn_send(link->conn, &welcome, NULL);
    else
        ct_conn_close(link->conn, CT_ENOMEM, "out of memory for a tunnel");
    ct_arena_deinit(&arena);
}

/* Streams that the relay does not know any more: it has heard their CLOSE, theirs was lost. */
static void drop_unknown(struct link *link)
{
    for (uint32_t i = 0; i < link->tunnel.room; i++) {
        struct remote *remote = (struct remote *)link->tunnel.streams[i];
        if (remote == NULL || remote->stream.known)
            continue;
        leave(remote, NULL);
        ct_tunnel_remove(&link->tunnel, &remote->stream);
        free(remote);
    }
}

/* The relay has come again: its streams go on. False: they cannot. */
static bool resume(struct link *link, const struct ct_msg_tunnel_hello *m)
{
    for (uint32_t i = 0; i < m->streams.count; i++) {
        const struct ct_wire_tunnel_state *state = &m->streams.data[i];
        bool is_new = ct_tunnel_find(&link->tunnel, state->number) == NULL;
        if (is_new && !on_open_stream(link, state->number, NULL)) /* its OPEN was lost */
            return false;
        struct ct_tunnel_stream *stream = ct_tunnel_find(&link->tunnel, state->number);
        if (stream == NULL || !ct_tunnel_resume(stream, state))
            return false;
    }
    drop_unknown(link);
    greet(link);
    for (uint32_t i = 0; i < m->streams.count; i++) {
        const struct ct_wire_tunnel_state *state = &m->streams.data[i];
        struct remote *remote = (struct remote *)ct_tunnel_find(&link->tunnel, state->number);
        ct_tunnel_repeat(link->conn, &remote->stream, state);
        if (remote->client != NULL && ct_tcpstore_broken(remote->client) == NULL)
            on_flush(&remote->sink);
    }
    return true;
}

/* The link of that relay, whose connection is not this one; NULL: it is new. */
static struct link *find_relay(const struct link *link, struct ct_id relay)
{
    struct link *other = link->hub->links;

    while (other != NULL && (other == link || !other->proven || other->relay.high != relay.high ||
                             other->relay.low != relay.low))
        other = other->next;
    return other;
}

/* Its old connection may not have noticed yet. `link`, which was made for the new one, is freed. */
static bool take_over(struct link *old, struct link *link, const struct ct_msg_tunnel_hello *m)
{
    if (old->conn != NULL) {
        ct_conn_set_user(old->conn, NULL);
        ct_conn_close(old->conn, 0, NULL);
    }
    old->conn = link->conn;
    ct_conn_set_user(old->conn, old);
    remove_link(link);
    return resume(old, m);
}

static bool on_hello(struct link *link, const struct ct_msg_tunnel_hello *m)
{
    const struct ct_tcpstore_hub *hub = link->hub;
    struct link *old;
    char text[400];

    if (link->proven)
        return false;
    link->proven = m->generation == hub->options.generation && strcmp(m->job, hub->job) == 0 &&
                   ct_conn_may(link->conn, CT_RIGHT_RELAY, m->job, NULL) == 0;
    if (link->proven) {
        link->relay = m->relay;
        old = find_relay(link, m->relay);
        if (old != NULL)
            return take_over(old, link, m);
        greet(link); /* what it lists began at another hub: nothing is known of it */
        return true;
    }
    (void)snprintf(text, sizeof(text),
                   "here is the store of round %" PRIu64 " of job %s, not of round %" PRIu64
                   " of job %s",
                   hub->options.generation, hub->job, m->generation, m->job);
    ct_conn_close(link->conn, CT_EFENCED, text);
    return true;
}

/* `way`: where a refusal goes now; NULL: after WELCOME, before which a relay takes nothing. */
static bool on_open_stream(struct link *link, uint32_t number, struct ct_conn *way)
{
    struct ct_tcpstore_hub *hub = link->hub;
    struct ct_tcpstore *store = ct_tcpstore_server_store(hub->options.server);
    struct remote *remote = calloc(1, sizeof(*remote));
    struct ct_error why = {0};

    if (remote == NULL || ct_tunnel_put(&link->tunnel, number, &remote->stream) != 0) {
        free(remote);
        return false;
    }
    remote->link = link;
    remote->sink = (struct ct_tcpstore_sink){.flush = on_flush, .broke = on_broke};
    if (ct_tcpstore_admit(store, now_ms(hub)) == 0)
        remote->client = ct_tcpstore_join(store, now_ms(hub), link->host, &remote->sink, &why);
    else
        ct_error_set(&why, CT_ELIMIT, "too many clients of the store have said nothing yet");
    if (remote->client == NULL)
        ct_tunnel_close(way, &remote->stream, &why);
    return true;
}

static bool on_data(struct link *link, const struct ct_msg_tunnel_data *m)
{
    struct remote *remote = (struct remote *)ct_tunnel_find(&link->tunnel, m->number);

    if (remote == NULL || remote->stream.close_received ||
        !ct_tunnel_came(&remote->stream, m->data.size))
        return false;
    if (remote->client == NULL)
        return true;
    ct_tcpstore_input(remote->client, now_ms(link->hub), m->data.data, m->data.size);
    if (!ct_tcpstore_is_full(remote->client))
        ct_tunnel_consume(link->conn, &remote->stream,
                          remote->stream.inside - remote->stream.consumed);
    return true;
}

static bool on_ack(struct link *link, const struct ct_msg_tunnel_ack *m)
{
    struct remote *remote = (struct remote *)ct_tunnel_find(&link->tunnel, m->number);

    if (remote == NULL || !ct_tunnel_acked(&remote->stream, m->bytes))
        return false;
    if (remote->client != NULL && ct_tcpstore_broken(remote->client) == NULL)
        on_flush(&remote->sink);
    return true;
}

static bool on_close_stream(struct link *link, const struct ct_msg_tunnel_close *m)
{
    struct remote *remote = (struct remote *)ct_tunnel_find(&link->tunnel, m->number);
    struct ct_error why = {0};

    if (remote == NULL || remote->stream.close_received)
        return false;
    remote->stream.close_received = true;
    if (m->text[0] != '\0')
        ct_error_set(&why, CT_ECLOSED, "%s", m->text);
    leave(remote, why.code != 0 ? &why : NULL);
    ct_tunnel_close(link->conn, &remote->stream, NULL);
    free_closed(remote);
    return true;
}

static bool on_link_message(struct link *link, const struct ct_message *message)
{
    if (message->type == CT_MSG_TUNNEL_HELLO)
        return on_hello(link, &message->tunnel_hello);
    if (!link->proven)
        return false;
    switch (message->type) {
    case CT_MSG_TUNNEL_OPEN:
        return on_open_stream(link, message->tunnel_open.number, link->conn);
    case CT_MSG_TUNNEL_DATA:
        return on_data(link, &message->tunnel_data);
    case CT_MSG_TUNNEL_ACK:
        return on_ack(link, &message->tunnel_ack);
    case CT_MSG_TUNNEL_CLOSE:
        return on_close_stream(link, &message->tunnel_close);
    default:
        return false;
    }
}

/* ---- links ---- */

static void leave_all(struct link *link, const struct ct_error *why)
{
    for (uint32_t i = 0; i < link->tunnel.room; i++) {
        struct remote *remote = (struct remote *)link->tunnel.streams[i];
        if (remote == NULL)
            continue;
        leave(remote, why);
        ct_tunnel_remove(&link->tunnel, &remote->stream);
        free(remote);
    }
}

static void free_hub(struct ct_tcpstore_hub *hub)
{
    if (hub->stopped && hub->links == NULL && hub->timer_closed)
        free(hub);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_tcpstore_hub *hub = handle->data;

    hub->timer_closed = true;
    free_hub(hub);
}

/* Its streams have left. */
static void remove_link(struct link *link)
{
    ct_tunnel_deinit(&link->tunnel);
    if (link->prev != NULL)
        link->prev->next = link->next;
    else
        link->hub->links = link->next;
    if (link->next != NULL)
        link->next->prev = link->prev;
    free(link);
}

/* Relays that have not come again are gone. */
static void on_timer(uv_timer_t *timer)
{
    struct ct_tcpstore_hub *hub = timer->data;
    uint64_t next_ms = UINT64_MAX;
    struct ct_error why = {0};

    ct_error_set(&why, CT_ECLOSED, "the connection with its node broke");
    for (struct link *link = hub->links, *next; link != NULL; link = next) {
        uint64_t end_ms = link->since_ms + hub->options.resume_ms;
        next = link->next;
        if (link->conn != NULL)
            continue;
        if (end_ms > now_ms(hub)) {
            next_ms = CT_MIN(next_ms, end_ms - now_ms(hub));
            continue;
        }
        leave_all(link, &why);
        remove_link(link);
    }
    if (next_ms != UINT64_MAX)
        (void)uv_timer_start(timer, on_timer, next_ms, 0);
}

static struct link *link_of(const struct ct_conn *conn)
{
    struct link *link = ct_conn_user(conn);

    return link == NULL || (void *)link->hub == (void *)link ? NULL : link;
}

static void on_open(struct ct_conn *conn)
{
    struct ct_tcpstore_hub *hub = ct_conn_user(conn);
    struct link *link = calloc(1, sizeof(*link));
    struct ct_endpoint peer = {.port = 0};

    CT_ASSERT(!hub->stopped);
    if (link == NULL) {
        ct_conn_set_user(conn, NULL);
        ct_conn_close(conn, CT_ENOMEM, "out of memory for a tunnel");
        return;
    }
    link->hub = hub;
    link->conn = conn;
    if (ct_endpoint_parse(ct_conn_peer(conn), 0, &peer, NULL) == 0)
        (void)ct_str_copy(link->host, sizeof(link->host), peer.host);
    link->next = hub->links;
    if (link->next != NULL)
        link->next->prev = link;
    hub->links = link;
    ct_conn_set_user(conn, link);
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct link *link = link_of(conn);
    struct ct_tcpstore_hub *hub = link != NULL ? link->hub : NULL;

    if (link == NULL || hub->stopped)
        return;
    if (!on_link_message(link, message))
        ct_conn_close(conn, CT_EPROTOCOL, "a message that a relay does not send now");
    ct_tcpstore_server_serve(hub->options.server);
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct link *link = link_of(conn);

    if (link == NULL)
        return;
    struct ct_tcpstore_hub *hub = link->hub;
    bool broke = link->tunnel.count > 0 && why->code != CT_EPROTOCOL && !hub->stopped;
    link->conn = NULL;
    link->since_ms = now_ms(hub);
    if (broke) {
        if (!uv_is_active((uv_handle_t *)&hub->timer))
            (void)uv_timer_start(&hub->timer, on_timer, hub->options.resume_ms, 0);
        return;
    }
    leave_all(link, why->code == CT_ECLOSED ? NULL : why);
    remove_link(link);
    free_hub(hub);
}

static const struct ct_conn_callbacks callbacks = {
    .on_open = on_open,
    .on_message = on_message,
    .on_close = on_close,
};

/* ---- start and stop ---- */

int ct_tcpstore_hub_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                          const struct ct_tcpstore_hub_options *options,
                          struct ct_tcpstore_hub **ret_hub, struct ct_error *err)
{
    struct ct_tcpstore_hub *hub = calloc(1, sizeof(*hub));
    struct ct_listener_options listener = {
        .conn = {.from = CT_FROM_RELAY, .queue_limit = CT_TUNNEL_QUEUE},
    };
    int rc = options->key != NULL ? ct_key_ring_of(options->key, true, &listener.ring, err) : 0;

    if (rc == 0 && hub == NULL)
        rc = ct_error_set(err, CT_ENOMEM, "out of memory for a store");
    if (rc != 0 || hub == NULL) {
        free(hub);
        return rc;
    }
    hub->self = hub;
    hub->loop = loop;
    hub->options = *options;
    (void)ct_str_copy(hub->job, sizeof(hub->job), options->job);
    hub->options.job = NULL;
    hub->options.key = NULL; /* the listener has a copy */
    if (hub->options.resume_ms == 0)
        hub->options.resume_ms = RESUME_MS;
    rc = ct_listener_start(loop, endpoint, &listener, &callbacks, hub, &hub->listener, err);
    ct_key_ring_unref(listener.ring);
    if (rc != 0) {
        free(hub);
        return rc;
    }
    (void)uv_timer_init(loop, &hub->timer);
    hub->timer.data = hub;
    hub->endpoint = *ct_listener_endpoint(hub->listener);
    *ret_hub = hub;
    return 0;
}

const struct ct_endpoint *ct_tcpstore_hub_endpoint(const struct ct_tcpstore_hub *hub)
{
    return &hub->endpoint;
}

void ct_tcpstore_hub_stop(struct ct_tcpstore_hub *hub)
{
    if (hub == NULL)
        return;
    hub->stopped = true;
    ct_listener_stop(hub->listener);
    for (struct link *link = hub->links, *next; link != NULL; link = next) {
        next = link->next;
        leave_all(link, NULL);
        if (link->conn != NULL)
            ct_conn_close(link->conn, CT_ECLOSED, "the round is over");
        else
            remove_link(link);
    }
    uv_close((uv_handle_t *)&hub->timer, on_timer_closed);
}
