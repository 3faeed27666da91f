/* A TCPStore on a libuv loop; see tcpstore_uv.h.
 *
 *   kernel backlog -> ct_tcpstore_admit? -> accept -> ct_tcpstore_join -> read -> ct_tcpstore_input
 *                       | not yet                                                     |
 *                       v                                        serve_ready: write, or close
 *                  `waiting`: libuv accepts no more until the timer asks again
 *
 * All decisions are the core's. Writing: as much as the socket takes at once, the rest out of a
 * chunk of the connection's own, so that the core's buffers may move. */
#include "rendezvous/tcpstore/tcpstore_uv.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "net/address.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    CLIENTS = 16384,
    READ_BYTES = 64 << 10,
    CHUNK_BYTES = 256 << 10,
    SPARE_DESCRIPTORS = 128, /* left to the rest of the program */
    REPORT_MS = 10000,       /* one report a refused host in this time */
    REPORTED = 16,           /* hosts remembered for that */
};

struct conn {
    struct ct_tcpstore_sink sink; /* what the core's client points to */
    uv_tcp_t tcp;
    struct ct_tcpstore_server *server;
    struct ct_tcpstore_client *client; /* NULL: ended */
    struct conn *next, *prev;
    uv_write_t write;
    char *chunk; /* being written; NULL: nothing is */
    size_t chunk_size;
    bool reading;
    char peer[CT_ADDRESS_TEXT], host[CT_ADDRESS_TEXT];
};

struct ct_tcpstore_server {
    uv_loop_t *loop;
    uv_tcp_t tcp;
    uv_timer_t timer;
    unsigned handles; /* whose close callback has not run */
    struct ct_tcpstore *store;
    struct ct_tcpstore_server_options options;
    char (*allowed)[CT_ADDRESS_TEXT]; /* sorted */
    size_t allowed_count;
    bool held; /* who may come is not known yet */
    struct ct_endpoint endpoint;
    struct conn *conns;
    char *input; /* what all connections read into */
    bool waiting, stopped;
    struct {
        uint64_t hash, until_ms;
    } reported[REPORTED];
};

static void set_timer(struct ct_tcpstore_server *server);
static void admit(struct ct_tcpstore_server *server);

/* ---- the end ---- */

static void free_server(struct ct_tcpstore_server *server)
{
    if (!server->stopped || server->handles > 0)
        return;
    ct_tcpstore_free(server->store);
    free(server->allowed);
    free(server->input);
    free(server);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct ct_tcpstore_server *server = handle->data;

    server->handles--;
    free_server(server);
}

static void on_conn_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    struct ct_tcpstore_server *server = conn->server;

    free(conn->chunk);
    free(conn);
    server->handles--;
    free_server(server);
}

/* The connection is over; `why` is NULL for an orderly end. */
static void end_conn(struct conn *conn, const struct ct_error *why)
{
    struct ct_tcpstore_server *server = conn->server;

    if (conn->client == NULL)
        return;
    const struct ct_tcpstore_about about = ct_tcpstore_about(conn->client);
    struct ct_error copy = {0};
    if (why != NULL)
        copy = *why; /* it may lie in the client */
    const struct ct_tcpstore_lost lost = {
        .peer = conn->peer,
        .host = conn->host,
        .is_client = about.dialect != CT_TCPSTORE_UNKNOWN,
        .pid = about.pid,
        .waited = about.waits,
        .why = why != NULL ? &copy : NULL,
    };
    ct_tcpstore_leave(conn->client);
    conn->client = NULL;
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        server->conns = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    uv_close((uv_handle_t *)&conn->tcp, on_conn_closed);
    if (server->options.on_lost != NULL && !server->stopped)
        server->options.on_lost(server->options.user, &lost);
}

static void end_with_status(struct conn *conn, int status)
{
    struct ct_error why = {0};

    ct_error_set(&why, status, "the connection broke: %s", uv_strerror(status));
    end_conn(conn, &why);
}

void ct_tcpstore_server_stop(struct ct_tcpstore_server *server)
{
    if (server->stopped)
        return;
    server->stopped = true;
    while (server->conns != NULL)
        end_conn(server->conns, NULL);
    uv_close((uv_handle_t *)&server->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&server->timer, on_handle_closed);
}

/* ---- writing ---- */

static void flush(struct conn *conn);
static void serve_ready(struct ct_tcpstore_server *server);
static void update_reading(struct conn *conn);

static void on_written(uv_write_t *request, int status)
{
    struct conn *conn = request->data;
    struct ct_tcpstore_server *server = conn->server;

    if (conn->client == NULL)
        return;
    free(conn->chunk);
    conn->chunk = NULL;
    if (status != 0)
        end_with_status(conn, status);
    else
        flush(conn);
    serve_ready(server);
}

/* Write the rest out of a chunk of its own. */
static void write_chunk(struct conn *conn, struct ct_tcpstore_bytes rest)
{
    size_t size = CT_MIN(rest.size, (size_t)CHUNK_BYTES);
    int status = UV_ENOMEM;

    conn->chunk = malloc(size);
    if (conn->chunk != NULL) {
        memcpy(conn->chunk, rest.data, size);
        ct_tcpstore_sent(conn->client, uv_now(conn->server->loop), size);
        const uv_buf_t buf = uv_buf_init(conn->chunk, (unsigned)size);
        conn->write.data = conn;
        status = uv_write(&conn->write, (uv_stream_t *)&conn->tcp, &buf, 1, on_written);
    }
    if (status != 0)
        end_with_status(conn, status);
}

/* Send what the core has for this connection. Taking its answers may let it be served on, which
 * makes new ones. */
static void flush(struct conn *conn)
{
    struct ct_tcpstore_bytes output = ct_tcpstore_output(conn->client);

    while (conn->chunk == NULL && output.size > 0) {
        const uv_buf_t buf = uv_buf_init((char *)(uintptr_t)output.data,
                                         (unsigned)CT_MIN(output.size, (size_t)INT32_MAX));
        int sent = uv_try_write((uv_stream_t *)&conn->tcp, &buf, 1);
        if (sent < 0 && sent != UV_EAGAIN) {
            end_with_status(conn, sent);
            return;
        }
        if (sent > 0)
            ct_tcpstore_sent(conn->client, uv_now(conn->server->loop), (size_t)sent);
        output = ct_tcpstore_output(conn->client);
        if (sent <= 0 || output.size >= (size_t)READ_BYTES)
            write_chunk(conn, output);
        if (conn->client == NULL)
            return;
        output = ct_tcpstore_output(conn->client);
    }
    update_reading(conn);
}

/* Everybody who has something to be told. */
static void serve_ready(struct ct_tcpstore_server *server)
{
    struct ct_tcpstore_client *client;

    if (server->stopped)
        return;
    while (!server->stopped && (client = ct_tcpstore_next_ready(server->store)) != NULL) {
        struct ct_tcpstore_sink *sink = ct_tcpstore_about(client).user;
        const struct ct_error *broken = ct_tcpstore_broken(client);
        if (broken != NULL)
            sink->broke(sink, broken);
        else
            sink->flush(sink);
    }
    set_timer(server);
}

static void on_sink_flush(struct ct_tcpstore_sink *sink)
{
    flush((struct conn *)sink);
}

static void on_sink_broke(struct ct_tcpstore_sink *sink, const struct ct_error *why)
{
    end_conn((struct conn *)sink, why);
}

void ct_tcpstore_server_serve(struct ct_tcpstore_server *server)
{
    serve_ready(server);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct conn *conn = handle->data;

    (void)suggested;
    *buf = uv_buf_init(conn->server->input, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct conn *conn = stream->data;
    struct ct_tcpstore_server *server = conn->server;

    if (count == UV_EOF)
        end_conn(conn, NULL);
    else if (count < 0)
        end_with_status(conn, (int)count);
    else if (count > 0)
        ct_tcpstore_input(conn->client, uv_now(server->loop), buf->base, (size_t)count);
    if (conn->client != NULL)
        update_reading(conn);
    admit(server);
    serve_ready(server);
}

/* Read as long as the client takes its answers. */
static void update_reading(struct conn *conn)
{
    bool wanted = !ct_tcpstore_is_full(conn->client);
    int status = 0;

    if (wanted == conn->reading)
        return;
    conn->reading = wanted;
    if (wanted)
        status = uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
    else
        uv_read_stop((uv_stream_t *)&conn->tcp);
    if (status != 0)
        end_with_status(conn, status);
}

/* ---- accepting ---- */

static int compare_hosts(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool may_come(const struct ct_tcpstore_server *server, const struct sockaddr *address,
                     const char *host)
{
    return ct_address_is_loopback(address) ||
           bsearch(host, server->allowed, server->allowed_count, sizeof(*server->allowed),
                   compare_hosts) != NULL;
}

static void report_refused(struct ct_tcpstore_server *server, const char *host)
{
    uint64_t hash = ct_hash_str(host);
    uint64_t now_ms = uv_now(server->loop);
    size_t slot = hash % REPORTED;

    if (server->options.on_refused == NULL ||
        (server->reported[slot].hash == hash && server->reported[slot].until_ms > now_ms))
        return;
    server->reported[slot].hash = hash;
    server->reported[slot].until_ms = now_ms + REPORT_MS;
    server->options.on_refused(server->options.user, host);
}

/* The accepted connection becomes a client. False: it must be closed. */
static bool let_in(struct conn *conn)
{
    struct ct_tcpstore_server *server = conn->server;
    struct sockaddr_storage address = {0};
    int size = sizeof address, fd;

    if (uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&address, &size) != 0)
        return false;
    ct_address_print((const struct sockaddr *)&address, conn->peer);
    ct_address_host((const struct sockaddr *)&address, conn->host);
    if (!may_come(server, (const struct sockaddr *)&address, conn->host) ||
        uv_fileno((uv_handle_t *)&conn->tcp, &fd) != 0 ||
        ct_address_check_peer_user(fd, NULL) != 0) {
        report_refused(server, conn->host);
        return false;
    }
    (void)uv_tcp_nodelay(&conn->tcp, 1);
    conn->client = ct_tcpstore_join(server->store, uv_now(server->loop), conn->host, conn, NULL);
    return conn->client != NULL;
}

static void accept_one(struct ct_tcpstore_server *server)
{
    struct conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL)
        return; /* `waiting` stays: the timer tries again */
    server->waiting = false;
    conn->sink = (struct ct_tcpstore_sink){.flush = on_sink_flush, .broke = on_sink_broke};
    conn->server = server;
    (void)uv_tcp_init(server->loop, &conn->tcp);
    conn->tcp.data = conn;
    server->handles++;
    if (uv_accept((uv_stream_t *)&server->tcp, (uv_stream_t *)&conn->tcp) != 0 || !let_in(conn)) {
        uv_close((uv_handle_t *)&conn->tcp, on_conn_closed);
        return;
    }
    conn->next = server->conns;
    if (conn->next != NULL)
        conn->next->prev = conn;
    server->conns = conn;
    update_reading(conn);
}

/* Take the connection that libuv holds, if it may come now. */
static void admit(struct ct_tcpstore_server *server)
{
    if (!server->waiting || server->held || server->stopped)
        return;
    if (ct_tcpstore_admit(server->store, uv_now(server->loop)) == 0)
        accept_one(server);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct ct_tcpstore_server *server = stream->data;

    if (status != 0)
        return; /* out of descriptors: libuv sheds the newcomer and listens on */
    server->waiting = true;
    admit(server);
    serve_ready(server);
}

/* ---- time ---- */

static void on_timer(uv_timer_t *timer)
{
    struct ct_tcpstore_server *server = timer->data;

    ct_tcpstore_tick(server->store, uv_now(server->loop));
    admit(server);
    serve_ready(server);
}

static void set_timer(struct ct_tcpstore_server *server)
{
    uint64_t now_ms = uv_now(server->loop);
    uint64_t due_ms = ct_tcpstore_deadline(server->store);

    if (server->stopped)
        return;
    if (server->waiting && !server->held)
        due_ms = CT_MIN(due_ms, now_ms + CT_TCPSTORE_PATIENCE_MS);
    if (due_ms == UINT64_MAX)
        uv_timer_stop(&server->timer);
    else
        uv_timer_start(&server->timer, on_timer, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

/* ---- start ---- */

static int set_allowed(struct ct_tcpstore_server *server, const char *const *hosts, size_t count,
                       struct ct_error *err)
{
    char(*allowed)[CT_ADDRESS_TEXT] = calloc(CT_MAX(count, 1), sizeof(*allowed));

    if (allowed == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a store");
    for (size_t i = 0; i < count; i++) {
        struct sockaddr_storage addresses[2];
        if (strcmp(hosts[i], "localhost") == 0 || ct_address_numeric(hosts[i], 0, addresses) != 1) {
            free(allowed);
            return ct_error_set(err, CT_EUSAGE,
                                "the store's clients are named by address, and \"%s\" is none",
                                hosts[i]);
        }
        /* Written as it will be read from a socket. */
        ct_address_host((const struct sockaddr *)&addresses[0], allowed[i]);
    }
    qsort(allowed, count, sizeof(*allowed), compare_hosts);
    free(server->allowed);
    server->allowed = allowed;
    server->allowed_count = count;
    return 0;
}

int ct_tcpstore_server_allow(struct ct_tcpstore_server *server, const char *const *hosts,
                             size_t count, struct ct_error *err)
{
    int rc = set_allowed(server, hosts, count, err);

    if (rc != 0)
        return rc;
    server->held = false;
    admit(server);
    serve_ready(server);
    return 0;
}

uint32_t ct_tcpstore_clients_possible(uint32_t most)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
        return most;
    rlim_t spare = CT_MIN(files.rlim_cur / 2, (rlim_t)SPARE_DESCRIPTORS);
    return (uint32_t)CT_MIN((rlim_t)most, files.rlim_cur - spare);
}

static int prepare(struct ct_tcpstore_server *server, const struct ct_endpoint *endpoint,
                   int *ret_fd, struct ct_error *err)
{
    struct ct_tcpstore_server_options *options = &server->options;
    bool open = options->members_follow || options->allowed_count > 0;
    int rc = set_allowed(server, options->allowed, options->allowed_count, err);

    if (rc != 0)
        return rc;
    options->allowed = NULL; /* the caller's */
    server->held = options->members_follow;
    if (endpoint->is_unix)
        return ct_error_set(err, CT_EUSAGE, "PyTorch's store needs a TCP address, not %s",
                            endpoint->path);
    options->limits.clients = ct_tcpstore_clients_possible(
        options->limits.clients != 0 ? options->limits.clients : CLIENTS);
    unsigned char *hash_key = server->options.limits.hash_key;
    if (uv_random(NULL, NULL, hash_key, CT_SIPHASH_KEY, 0, NULL) != 0)
        return ct_error_set(err, CT_EOS, "the system gave no random bytes");
    server->store = ct_tcpstore_new(&server->options.limits);
    server->input = malloc(READ_BYTES);
    if (server->store == NULL || server->input == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a store");
    return ct_address_bind(endpoint, open, ret_fd, &server->endpoint, err);
}

int ct_tcpstore_server_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                             const struct ct_tcpstore_server_options *options,
                             struct ct_tcpstore_server **ret_server, struct ct_error *err)
{
    struct ct_tcpstore_server *server = calloc(1, sizeof(*server));
    int fd = -1;

    if (server == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a store");
    server->loop = loop;
    server->options = *options;
    int rc = prepare(server, endpoint, &fd, err);
    if (rc != 0) {
        server->stopped = true;
        free_server(server);
        return rc;
    }
    uv_tcp_init(loop, &server->tcp);
    uv_timer_init(loop, &server->timer);
    server->tcp.data = server->timer.data = server;
    server->handles = 2;
    int status = uv_tcp_open(&server->tcp, fd);
    if (status != 0)
        (void)close(fd);
    else
        status = uv_listen((uv_stream_t *)&server->tcp, BACKLOG, on_connection);
    if (status != 0) {
        char text[CT_ENDPOINT_TEXT];
        ct_tcpstore_server_stop(server); /* frees it when the loop has run */
        return ct_error_set(err, CT_EUNAVAILABLE, "cannot listen on %s: %s",
                            ct_endpoint_print(endpoint, text), uv_strerror(status));
    }
    uv_update_time(loop);
    *ret_server = server;
    return 0;
}

const struct ct_endpoint *ct_tcpstore_server_endpoint(const struct ct_tcpstore_server *server)
{
    return &server->endpoint;
}

struct ct_tcpstore *ct_tcpstore_server_store(const struct ct_tcpstore_server *server)
{
    return server->store;
}
