/* See relay_uv.h: the side of the hub, who may come, start and stop. Its clients are in
 * relay_line_uv.c. */
#include "rendezvous/tcpstore/relay_state_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "net/address.h"
#include "rendezvous/tcpstore/tcpstore_uv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    PATIENCE_MS = 250,
    SILENT_MS = 10000,
    RESUME_MS = 20000,
    LIST_BYTES = 1 << 20,
    BUDGET = 128 << 20,
};

static int dial(struct ct_tcpstore_relay *relay, uint32_t connect_ms, struct ct_error *err);

/* ---- ends ---- */

void ct_relay_free(struct ct_tcpstore_relay *relay)
{
    if (!relay->stopped || relay->handles > 0)
        return;
    ct_tunnel_deinit(&relay->tunnel);
    ct_net_key_wipe(&relay->key);
    free(relay->input);
    free(relay);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct ct_tcpstore_relay *relay = handle->data;

    relay->handles--;
    ct_relay_free(relay);
}

/* ---- the hub ---- */

static void on_open(struct ct_conn *conn)
{
    struct ct_tcpstore_relay *relay = ct_conn_user(conn);

    if (relay == NULL)
        return;
    struct ct_arena arena;
    ct_arena_init(&arena, LIST_BYTES);
    const struct ct_message hello = {
        .type = CT_MSG_TUNNEL_HELLO,
        .tunnel_hello = {.generation = relay->options.generation,
                         .job = relay->job,
                         .relay = relay->id,
                         .streams = {.data = ct_tunnel_list(&relay->tunnel, &arena),
                                     .count = relay->tunnel.count}},
    };
    if (hello.tunnel_hello.streams.data != NULL)
        (void)ct_conn_send(conn, &hello, NULL);
    else
        ct_conn_close(conn, CT_ENOMEM, "out of memory for a tunnel");
    ct_arena_deinit(&arena);
}

/* The hub does not know it: it has heard this end's CLOSE, or is another one. */
static void drop_unknown(struct ct_tcpstore_relay *relay)
{
    for (uint32_t i = 0; i < relay->tunnel.room; i++) {
        struct ct_line *line = (struct ct_line *)relay->tunnel.streams[i];
        if (line == NULL || line->stream.known)
            continue;
        ct_line_close(line);
        ct_line_forget(line);
    }
}

/* The way is open; streams that began over another connection go on. */
static bool welcome(struct ct_tcpstore_relay *relay, const struct ct_msg_tunnel_welcome *m)
{
    if (relay->conn_open)
        return false;
    for (uint32_t i = 0; i < m->streams.count; i++) {
        struct ct_tunnel_stream *stream = ct_tunnel_find(&relay->tunnel, m->streams.data[i].number);
        if (stream == NULL || !ct_tunnel_resume(stream, &m->streams.data[i]))
            return false;
    }
    drop_unknown(relay);
    relay->conn_open = true;
    for (uint32_t i = 0; i < m->streams.count; i++)
        ct_tunnel_repeat(relay->conn, ct_tunnel_find(&relay->tunnel, m->streams.data[i].number),
                         &m->streams.data[i]);
    for (struct ct_line *line = relay->lines, *next; line != NULL; line = next) {
        next = line->next;
        ct_line_read(line);
    }
    return true;
}

/* What the hub says of a stream; false: it must not be said. */
static bool on_link_message(struct ct_tcpstore_relay *relay, const struct ct_message *message)
{
    if (message->type == CT_MSG_TUNNEL_WELCOME)
        return welcome(relay, &message->tunnel_welcome);
    if (!relay->conn_open)
        return false;
    uint32_t number = message->type == CT_MSG_TUNNEL_DATA  ? message->tunnel_data.number
                      : message->type == CT_MSG_TUNNEL_ACK ? message->tunnel_ack.number
                                                           : message->tunnel_close.number;
    struct ct_line *line = (struct ct_line *)ct_tunnel_find(&relay->tunnel, number);

    if (line == NULL || line->stream.close_received)
        return false;
    if (message->type == CT_MSG_TUNNEL_DATA) {
        const struct ct_bytes *data = &message->tunnel_data.data;
        if (!ct_tunnel_came(&line->stream, data->size))
            return false;
        if (!line->closed)
            ct_line_write(line, data->data, data->size);
    } else if (message->type == CT_MSG_TUNNEL_ACK) {
        if (!ct_tunnel_acked(&line->stream, message->tunnel_ack.bytes))
            return false;
        ct_line_charge(line);
        if (!line->closed)
            ct_line_read(line);
    } else {
        line->stream.close_received = true;
        ct_line_end(line, NULL);
    }
    return true;
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct ct_tcpstore_relay *relay = ct_conn_user(conn);

    if (relay == NULL)
        return;
    if (!on_link_message(relay, message))
        ct_conn_close(conn, CT_EPROTOCOL, "a message that a hub does not send now");
    ct_lines_wake(relay);
}

/* Without the hub every client is lost. */
static void cut_all(struct ct_tcpstore_relay *relay)
{
    for (uint32_t i = 0; i < relay->tunnel.room; i++) {
        struct ct_line *line = (struct ct_line *)relay->tunnel.streams[i];
        if (line == NULL)
            continue;
        ct_line_close(line);
        ct_line_forget(line);
    }
    while (relay->lines != NULL)
        ct_line_close(relay->lines);
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct ct_tcpstore_relay *relay = ct_conn_user(conn);

    if (relay == NULL)
        return;
    bool used = relay->line_count > 0;
    bool again = relay->conn_open && relay->tunnel.count > 0 && why->code != CT_EPROTOCOL;
    relay->conn = NULL;
    relay->conn_open = false;
    for (struct ct_line *line = relay->lines, *next; line != NULL; line = next) {
        next = line->next;
        ct_line_read(line);
    }
    if (again && dial(relay, relay->options.resume_ms, NULL) == 0) {
        if (relay->options.on_broken != NULL)
            relay->options.on_broken(relay->options.user, why);
        return;
    }
    cut_all(relay);
    if (used && relay->options.on_cut != NULL)
        relay->options.on_cut(relay->options.user, why);
}

static const struct ct_conn_callbacks callbacks = {
    .on_open = on_open,
    .on_message = on_message,
    .on_close = on_close,
};

static int dial(struct ct_tcpstore_relay *relay, uint32_t connect_ms, struct ct_error *err)
{
    const struct ct_conn_options options = {
        .from = CT_FROM_HUB,
        .key = relay->options.key,
        .job = relay->job,
        .accept_expired = true, /* the job runs */
        .queue_limit = CT_TUNNEL_QUEUE,
        .connect_ms = connect_ms,
        .user_timeout_ms = relay->options.user_timeout_ms,
        .seed = relay->options.generation,
    };

    return ct_conn_connect(relay->loop, &relay->options.hub, &options, &callbacks, relay,
                           &relay->conn, err);
}

/* ---- accepting ---- */

static void on_timer(uv_timer_t *timer)
{
    ct_relay_admit(timer->data);
}

/* Close who has said nothing for too long, the oldest first. As many silent ones as have spoken may
 * be second connections of old clients, which never speak. */
static void on_silence(uv_timer_t *timer)
{
    struct ct_tcpstore_relay *relay = timer->data;
    uint64_t now_ms = uv_now(relay->loop);
    uint32_t seconds = relay->line_count - relay->silent;

    for (struct ct_line *line = relay->oldest, *newer; line != NULL; line = newer) {
        newer = line->prev;
        if (relay->silent <= seconds || line->since_ms + relay->options.silent_ms > now_ms)
            break;
        if (!line->opened)
            ct_line_close(line);
    }
    if (relay->silent > 0)
        uv_timer_start(timer, on_silence, CT_MAX(relay->options.silent_ms / 4, 1u), 0);
    ct_relay_admit(relay);
}

static void accept_one(struct ct_tcpstore_relay *relay)
{
    struct ct_line *line = calloc(1, sizeof(*line));
    int fd;

    if (line == NULL) {
        uv_timer_start(&relay->timer, on_timer, PATIENCE_MS, 0);
        return;
    }
    relay->waiting = false;
    line->relay = relay;
    line->since_ms = uv_now(relay->loop);
    (void)uv_tcp_init(relay->loop, &line->tcp);
    line->tcp.data = line;
    relay->handles++;
    relay->line_count++;
    relay->silent++;
    if (!uv_is_active((uv_handle_t *)&relay->silence))
        uv_timer_start(&relay->silence, on_silence, relay->options.silent_ms, 0);
    line->next = relay->lines;
    if (line->next != NULL)
        line->next->prev = line;
    else
        relay->oldest = line;
    relay->lines = line;
    if (uv_accept((uv_stream_t *)&relay->tcp, (uv_stream_t *)&line->tcp) != 0 ||
        relay->line_count > relay->options.clients ||
        uv_fileno((uv_handle_t *)&line->tcp, &fd) != 0 ||
        ct_address_check_peer_user(fd, NULL) != 0 || /* who is not this user's goes at once */
        (relay->conn == NULL && dial(relay, relay->options.connect_ms, NULL) != 0)) {
        ct_line_close(line);
        return;
    }
    (void)uv_tcp_nodelay(&line->tcp, 1);
    ct_line_read(line);
}

/* Is there room for one more that says nothing? The oldest of them makes some. */
static bool has_room(struct ct_tcpstore_relay *relay)
{
    struct ct_line *line = relay->oldest;

    if (relay->silent < relay->options.silent)
        return true;
    while (line->opened)
        line = line->prev;
    uint64_t age_ms = uv_now(relay->loop) - line->since_ms;
    if (age_ms < PATIENCE_MS) {
        uv_timer_start(&relay->timer, on_timer, PATIENCE_MS - age_ms, 0);
        return false;
    }
    ct_line_close(line);
    return true;
}

void ct_relay_admit(struct ct_tcpstore_relay *relay)
{
    if (relay->waiting && !relay->stopped && has_room(relay))
        accept_one(relay);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct ct_tcpstore_relay *relay = stream->data;

    if (status != 0)
        return; /* out of descriptors: libuv sheds the newcomer and listens on */
    relay->waiting = true;
    ct_relay_admit(relay);
}

/* ---- start and stop ---- */

static void fill_options(struct ct_tcpstore_relay *relay,
                         const struct ct_tcpstore_relay_options *options)
{
    relay->options = *options;
    (void)ct_str_copy(relay->job, sizeof(relay->job), options->job);
    relay->options.job = NULL;
    if (options->key != NULL) {
        ct_net_key_copy(&relay->key, options->key);
        relay->options.key = &relay->key;
    }
    if (options->clients == 0 || options->clients > CT_TUNNEL_STREAMS)
        relay->options.clients = CT_TUNNEL_STREAMS;
    relay->options.clients = ct_tcpstore_clients_possible(relay->options.clients);
    if (options->silent_ms == 0)
        relay->options.silent_ms = SILENT_MS;
    if (options->budget == 0)
        relay->options.budget = BUDGET;
    if (options->resume_ms == 0)
        relay->options.resume_ms = RESUME_MS;
    if (options->silent == 0)
        relay->options.silent = CT_MAX(relay->options.clients / 2, 1u);
}

/* Listen on loopback. */
static int listen_on(struct ct_tcpstore_relay *relay, struct ct_error *err)
{
    const struct ct_endpoint loopback = {.host = "127.0.0.1"};
    int fd, rc = ct_address_bind(&loopback, false, &fd, &relay->endpoint, err);

    if (rc != 0)
        return rc;
    int status = uv_tcp_open(&relay->tcp, fd);
    if (status != 0)
        (void)close(fd);
    else
        status = uv_listen((uv_stream_t *)&relay->tcp, BACKLOG, on_connection);
    if (status != 0)
        return ct_error_set(err, CT_EUNAVAILABLE, "cannot listen on loopback: %s",
                            uv_strerror(status));
    return 0;
}

int ct_tcpstore_relay_start(uv_loop_t *loop, const struct ct_tcpstore_relay_options *options,
                            struct ct_tcpstore_relay **ret_relay, struct ct_error *err)
{
    struct ct_tcpstore_relay *relay = calloc(1, sizeof(*relay));

    if (relay == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a store");
    relay->loop = loop;
    fill_options(relay, options);
    if (getrandom(&relay->id, sizeof(relay->id), 0) != (ssize_t)sizeof(relay->id)) {
        free(relay);
        return ct_error_set(err, CT_EOS, "getrandom gave no random bytes");
    }
    (void)uv_tcp_init(loop, &relay->tcp);
    (void)uv_timer_init(loop, &relay->timer);
    (void)uv_timer_init(loop, &relay->silence);
    relay->tcp.data = relay->timer.data = relay->silence.data = relay;
    relay->handles = 3;
    relay->input = malloc(CT_WIRE_TUNNEL_BYTES);
    int rc = relay->input != NULL ? listen_on(relay, err)
                                  : ct_error_set(err, CT_ENOMEM, "out of memory for a store");
    if (rc == 0)
        rc = dial(relay, relay->options.connect_ms, err);
    if (rc != 0) {
        ct_tcpstore_relay_stop(relay);
        return rc;
    }
    *ret_relay = relay;
    return 0;
}

const struct ct_endpoint *ct_tcpstore_relay_endpoint(const struct ct_tcpstore_relay *relay)
{
    return &relay->endpoint;
}

void ct_tcpstore_relay_stop(struct ct_tcpstore_relay *relay)
{
    if (relay == NULL || relay->stopped)
        return;
    relay->stopped = true;
    for (uint32_t i = 0; i < relay->tunnel.room; i++)
        if (relay->tunnel.streams[i] != NULL)
            ct_tunnel_close(ct_relay_way(relay), relay->tunnel.streams[i], NULL);
    if (relay->conn != NULL) {
        ct_conn_set_user(relay->conn, NULL);
        ct_conn_close(relay->conn, 0, NULL);
    }
    relay->conn = NULL;
    relay->conn_open = false;
    cut_all(relay);
    uv_close((uv_handle_t *)&relay->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&relay->timer, on_handle_closed);
    uv_close((uv_handle_t *)&relay->silence, on_handle_closed);
}
