/* Listening and admission; see listen_uv.h.
 *
 *   kernel backlog -> admit? -> accept -> ct_conn_begin -> ... first message -> proven
 *                       | no
 *                       v
 *                  `waiting`: libuv accepts no more until on_turn or on_timer admits
 *
 * A few connections are accepted per turn of the loop, so that those already accepted are read in
 * between and many honest clients that come at once prove themselves before the limits bite. */
#include "net/listen_uv.h"
#include "net/conn_inner_uv.h"

#include "base/assert.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    ACCEPTS_PER_TURN = 16,
    PATIENCE_MS = 250, /* an unproven connection may be pushed out once it is this old */
    REPORT_MS = 10000, /* one report a peer address in this time */
    REPORTED = 64,     /* addresses remembered for that */
};

struct ct_listener {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    uv_timer_t timer; /* runs while `waiting` for an unproven connection to grow old */
    uv_check_t turn;  /* runs at the end of a turn that accepted something */
    unsigned handles; /* whose close callback has not run */
    uv_loop_t *loop;
    bool stopped;
    bool waiting;     /* libuv holds one accepted descriptor for us */
    unsigned accepts; /* in this turn */

    struct ct_listener_options options;
    struct ct_key key;
    bool has_key;
    struct ct_conn_callbacks callbacks;
    void *user;
    struct ct_endpoint endpoint;
    char *chunk; /* what all its connections read into */

    struct ct_conn *oldest, *newest; /* unproven ones, by age */
    uint32_t unproven, connections;
    struct {
        uint64_t hash, until_ms;
    } reported[REPORTED];
};

static void admit(struct ct_listener *listener);

/* ---- unproven connections ---- */

static void add_unproven(struct ct_listener *listener, struct ct_conn *conn)
{
    conn->older = listener->newest;
    if (listener->newest != NULL)
        listener->newest->newer = conn;
    else
        listener->oldest = conn;
    listener->newest = conn;
    listener->unproven++;
}

static void remove_unproven(struct ct_listener *listener, struct ct_conn *conn)
{
    if (conn->older != NULL)
        conn->older->newer = conn->newer;
    else
        listener->oldest = conn->newer;
    if (conn->newer != NULL)
        conn->newer->older = conn->older;
    else
        listener->newest = conn->older;
    conn->older = conn->newer = NULL;
    listener->unproven--;
}

/* Connections of `host` among the unproven; the oldest of them. */
static uint32_t count_host(const struct ct_listener *listener, const char *host,
                           struct ct_conn **ret_oldest)
{
    uint32_t count = 0;

    for (struct ct_conn *conn = listener->oldest; conn != NULL; conn = conn->newer) {
        if (conn->state == CT_CONN_ENDED || strcmp(conn->peer_host, host) != 0)
            continue;
        if (count++ == 0)
            *ret_oldest = conn;
    }
    return count;
}

/* Tell the owner about a refused peer, unless its address was reported just now. */
static void report(struct ct_listener *listener, const struct ct_conn *conn,
                   const struct ct_error *why)
{
    uint64_t hash = ct_hash_str(conn->peer_host);
    uint64_t now_ms = uv_now(listener->loop);
    size_t slot = hash % REPORTED;

    if (listener->options.on_refused == NULL || listener->stopped ||
        (listener->reported[slot].hash == hash && listener->reported[slot].until_ms > now_ms))
        return;
    listener->reported[slot].hash = hash;
    listener->reported[slot].until_ms = now_ms + REPORT_MS;
    listener->options.on_refused(listener->user, conn->peer, why);
}

/* ---- end ---- */

static void free_listener(struct ct_listener *listener)
{
    if (!listener->stopped || listener->handles > 0 || listener->connections > 0)
        return;
    ct_net_key_wipe(&listener->key);
    free(listener->chunk);
    free(listener);
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_listener *listener = handle->data;

    listener->handles--;
    free_listener(listener);
}

void ct_listener_stop(struct ct_listener *listener)
{
    const struct ct_error why = {.code = CT_ECLOSED, .text = "nobody listens any more"};

    if (listener->stopped)
        return;
    listener->stopped = true;
    for (struct ct_conn *conn = listener->oldest; conn != NULL; conn = conn->newer)
        if (!conn->announced)
            ct_conn_end(conn, &why); /* nobody else knows it */
    if (listener->endpoint.is_unix)
        unlink(listener->endpoint.path);
    uv_close(&listener->io.handle, on_closed);
    uv_close((uv_handle_t *)&listener->timer, on_closed);
    uv_close((uv_handle_t *)&listener->turn, on_closed);
}

void ct_listener_gone(struct ct_listener *listener, struct ct_conn *conn)
{
    listener->connections--;
    if (!conn->proven) {
        remove_unproven(listener, conn);
        report(listener, conn, &conn->why);
    }
    admit(listener);
    free_listener(listener);
}

void ct_listener_proven(struct ct_listener *listener, struct ct_conn *conn)
{
    remove_unproven(listener, conn);
    admit(listener);
}

/* ---- admission ---- */

static bool is_old(const struct ct_listener *listener, const struct ct_conn *conn)
{
    return uv_now(listener->loop) - conn->accepted_ms >= PATIENCE_MS;
}

static void push_out(struct ct_conn *conn, const char *reason)
{
    struct ct_error why = {0};

    ct_error_set(&why, CT_ELIMIT, "%s", reason);
    ct_conn_end(conn, &why);
}

/* The accepted connection's names. */
static void name_peer(struct ct_listener *listener, struct ct_conn *conn)
{
    struct sockaddr_storage address;
    int size = sizeof(address);

    if (listener->endpoint.is_unix ||
        uv_tcp_getpeername(&conn->io.tcp, (struct sockaddr *)&address, &size) != 0) {
        ct_endpoint_print(&listener->endpoint, conn->peer);
        return;
    }
    ct_address_print((const struct sockaddr *)&address, conn->peer);
    ct_address_host((const struct sockaddr *)&address, conn->peer_host);
}

/* Is there room for `conn`, which has just been accepted? Makes some where old silent peers sit. */
static bool has_room(struct ct_listener *listener, const struct ct_conn *conn)
{
    struct ct_conn *oldest = NULL;

    if (listener->connections >= listener->options.max_connections)
        return false;
    if (conn->peer_host[0] == '\0' ||
        count_host(listener, conn->peer_host, &oldest) < listener->options.max_unproven_per_address)
        return true;
    CT_ASSERT(oldest != NULL); /* the limit is at least 1 */
    if (!is_old(listener, oldest))
        return false;
    push_out(oldest, "pushed out: too many connections of this address sent no message");
    return true;
}

static void on_turn(uv_check_t *turn)
{
    struct ct_listener *listener = turn->data;

    uv_check_stop(turn);
    listener->accepts = 0;
    admit(listener);
}

static void on_timer(uv_timer_t *timer)
{
    admit(timer->data);
}

/* Take the connection that libuv holds. */
static void accept_one(struct ct_listener *listener)
{
    struct ct_conn *conn = ct_conn_alloc(listener->loop, &listener->options.conn,
                                         &listener->callbacks, listener->user);

    if (conn == NULL) {
        uv_timer_start(&listener->timer, on_timer, PATIENCE_MS, 0);
        return;
    }
    if (listener->endpoint.is_unix)
        uv_pipe_init(listener->loop, &conn->io.pipe, 0);
    else
        uv_tcp_init(listener->loop, &conn->io.tcp);
    conn->io_exists = true;
    conn->io.handle.data = conn;
    conn->listener = listener;
    conn->chunk = listener->chunk;
    conn->accepted_ms = uv_now(listener->loop);
    listener->waiting = false;
    listener->accepts++;
    uv_check_start(&listener->turn, on_turn);
    int status = uv_accept(&listener->io.stream, &conn->io.stream);
    if (status == 0)
        name_peer(listener, conn);
    bool room = status == 0 && has_room(listener, conn);
    listener->connections++;
    add_unproven(listener, conn);
    if (room)
        ct_conn_begin(conn, listener->has_key ? &listener->key : NULL);
    else
        push_out(conn, "refused: too many connections");
}

/* May the next one be accepted now? If not, something will ask again. */
static bool may_accept(struct ct_listener *listener)
{
    if (listener->accepts >= ACCEPTS_PER_TURN)
        return false; /* on_turn will */
    if (listener->unproven < listener->options.max_unproven)
        return true;
    CT_ASSERT(listener->oldest != NULL);
    if (is_old(listener, listener->oldest)) {
        push_out(listener->oldest, "pushed out: too many connections sent no message");
        return false; /* ct_listener_gone will */
    }
    uint64_t age_ms = uv_now(listener->loop) - listener->oldest->accepted_ms;
    uv_timer_start(&listener->timer, on_timer, PATIENCE_MS - age_ms, 0);
    return false;
}

static void admit(struct ct_listener *listener)
{
    if (listener->waiting && !listener->stopped && may_accept(listener))
        accept_one(listener);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct ct_listener *listener = stream->data;

    if (status != 0)
        return; /* out of descriptors: libuv sheds the newcomer and listens on */
    listener->waiting = true;
    admit(listener);
}

/* ---- start ---- */

static void fill_options(struct ct_listener *listener, const struct ct_listener_options *options)
{
    listener->options = *options;
    if (listener->options.max_unproven == 0)
        listener->options.max_unproven = 256;
    if (listener->options.max_unproven_per_address == 0)
        listener->options.max_unproven_per_address = 32;
    if (listener->options.max_connections == 0)
        listener->options.max_connections = 16384;
    listener->has_key = options->conn.key != NULL;
    if (listener->has_key)
        listener->key = *options->conn.key;
    listener->options.conn.key = NULL;
}

/* Give the bound socket `fd` to libuv and listen. */
static int listen_on(struct ct_listener *listener, int fd)
{
    int status;

    if (listener->endpoint.is_unix) {
        uv_pipe_init(listener->loop, &listener->io.pipe, 0);
        status = uv_pipe_open(&listener->io.pipe, fd);
    } else {
        uv_tcp_init(listener->loop, &listener->io.tcp);
        status = uv_tcp_open(&listener->io.tcp, fd);
    }
    uv_timer_init(listener->loop, &listener->timer);
    uv_check_init(listener->loop, &listener->turn);
    listener->io.handle.data = listener->timer.data = listener->turn.data = listener;
    listener->handles = 3;
    if (status != 0)
        close(fd);
    return status != 0 ? status : uv_listen(&listener->io.stream, BACKLOG, on_connection);
}

int ct_listener_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                      const struct ct_listener_options *options,
                      const struct ct_conn_callbacks *callbacks, void *user,
                      struct ct_listener **ret_listener, struct ct_error *err)
{
    struct ct_listener *listener = calloc(1, sizeof(*listener));
    char *chunk = malloc(2 * CT_CONN_CHUNK);
    int fd = -1, code = CT_ENOMEM;

    if (listener == NULL || chunk == NULL)
        ct_error_set(err, code, "no memory for a listener");
    else
        code = ct_address_bind(endpoint, options->conn.key != NULL, &fd, &listener->endpoint, err);
    if (code != 0) {
        free(listener);
        free(chunk);
        return code;
    }
    listener->loop = loop;
    listener->chunk = chunk;
    listener->callbacks = *callbacks;
    listener->user = user;
    fill_options(listener, options);
    uv_update_time(loop);
    code = listen_on(listener, fd);
    if (code != 0) {
        char text[CT_ENDPOINT_TEXT];
        ct_listener_stop(listener); /* frees it when the loop has run */
        return ct_error_set(err, CT_EUNAVAILABLE, "cannot listen on %s: %s",
                            ct_endpoint_print(endpoint, text), uv_strerror(code));
    }
    *ret_listener = listener;
    return 0;
}

const struct ct_endpoint *ct_listener_endpoint(const struct ct_listener *listener)
{
    return &listener->endpoint;
}

uint32_t ct_listener_connections(const struct ct_listener *listener)
{
    return listener->connections;
}

uint32_t ct_listener_unproven(const struct ct_listener *listener)
{
    return listener->unproven;
}
