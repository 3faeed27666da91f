/* A small HTTP server; see http_uv.h.
 *
 *   accept -> read until the blank line -> handler -> write head and body -> shut down -> close
 *          (TLS: decrypt)                          (TLS: encrypt)        `-> stream -> close */
#include "net/http_inner_uv.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    ACCEPTS_PER_TURN = 4,
    BODY_BYTES = 8 << 20,
    HANDSHAKES = 50, /* a second, and at once */
};

/* ---- the end ---- */

static void free_server(struct ct_http_server *server)
{
    if (!server->stopped || server->closed < 2 || server->count > 0)
        return;
    ct_web_identity_free(server->options.identity);
    free(server);
}

static void on_client_closed(uv_handle_t *handle)
{
    struct ct_http_client *client = handle->data;
    struct ct_http_server *server = client->server;

    if (--client->handles > 0)
        return;
    *client->link = client->next;
    if (client->next != NULL)
        client->next->link = client->link;
    ct_buf_deinit(&client->head);
    ct_buf_deinit(&client->body);
    ct_web_tls_free(client->tls);
    free(client);
    server->count--;
    free_server(server);
}

void ct_http_end_client(struct ct_http_client *client)
{
    if (uv_is_closing(&client->io.handle))
        return;
    ct_web_places_leave(&client->server->places, &client->place);
    uv_close(&client->io.handle, on_client_closed);
    uv_close((uv_handle_t *)&client->timer, on_client_closed);
}

static void on_server_closed(uv_handle_t *handle)
{
    struct ct_http_server *server = handle->data;

    server->closed++;
    free_server(server);
}

void ct_http_stop(struct ct_http_server *server)
{
    if (server->stopped)
        return;
    server->stopped = true;
    if (server->endpoint.is_unix)
        unlink(server->endpoint.path);
    for (struct ct_http_client *client = server->clients; client != NULL; client = client->next)
        ct_http_end_client(client);
    uv_close(&server->io.handle, on_server_closed);
    uv_close((uv_handle_t *)&server->turn, on_server_closed);
}

static void on_timer(uv_timer_t *timer);

/* ---- the answer ---- */

static void on_shutdown(uv_shutdown_t *request, int status)
{
    if (status != 0)
        ct_http_end_client(request->data);
}

/* All is written: wait for the client's end, lest the kernel reset what it has not read yet. */
static void on_written(uv_write_t *request, int status)
{
    struct ct_http_client *client = request->data;

    if (client->stream && status == 0) {
        (void)uv_timer_stop(&client->timer);
        return;
    }
    client->written = true;
    client->shutdown.data = client;
    if (status != 0 || client->peer_done ||
        uv_shutdown(&client->shutdown, &client->io.stream, on_shutdown) != 0)
        ct_http_end_client(client);
}

/* Encrypt the answer, into its body. */
static int seal(struct ct_http_client *client)
{
    struct ct_buf sealed;

    ct_buf_init(&sealed, 0);
    int code = ct_web_tls_write(client->tls, client->head.data, client->head.size, &sealed);
    if (code == 0 && client->body.size > 0)
        code = ct_web_tls_write(client->tls, client->body.data, client->body.size, &sealed);
    ct_buf_deinit(&client->body);
    client->body = sealed;
    ct_buf_clear(&client->head);
    return code;
}

/* Send what `answer` holds (its body is taken over). */
static void respond(struct ct_http_client *client, struct ct_http_answer *answer)
{
    if (answer->body.failed) {
        ct_buf_clear(&answer->body);
        answer->status = 500;
        ct_buf_puts(&answer->body, "the answer is too large\n");
    }
    client->answered = true;
    client->body = answer->body;
    client->stream = answer->stream && answer->status == 200;
    ct_buf_printf(&client->head,
                  "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\n"
                  "Content-Security-Policy: default-src 'self'; img-src data:\r\n"
                  "X-Content-Type-Options: nosniff\r\nConnection: close\r\n",
                  answer->status, ct_http_reason(answer->status), answer->content_type);
    if (!client->stream)
        ct_buf_printf(&client->head, "Content-Length: %zu\r\n", client->body.size);
    if (answer->status == 401)
        ct_buf_puts(&client->head, "WWW-Authenticate: Basic realm=\"ctrun\"\r\n");
    ct_buf_puts(&client->head, "\r\n");
    if (client->head.failed || (client->tls != NULL && seal(client) != 0)) {
        ct_http_end_client(client);
        return;
    }
    uv_buf_t bytes[] = {uv_buf_init(client->head.data, (unsigned)client->head.size),
                        uv_buf_init(client->body.data, (unsigned)client->body.size)};
    unsigned count = client->body.size > 0 ? 2 : 1; /* an empty one is none */
    client->write.data = client;
    uv_timer_start(&client->timer, on_timer, client->server->options.request_ms, 0);
    if (uv_write(&client->write, &client->io.stream, bytes, count, on_written) != 0)
        ct_http_end_client(client);
}

struct ct_http_answer ct_http_answer_new(int status)
{
    struct ct_http_answer answer = {.status = status, .content_type = "text/plain; charset=utf-8"};

    ct_buf_init(&answer.body, BODY_BYTES);
    return answer;
}

static void respond_error(struct ct_http_client *client, int status)
{
    struct ct_http_answer answer = ct_http_answer_new(status);

    ct_buf_printf(&answer.body, "%d %s\n", status, ct_http_reason(status));
    respond(client, &answer);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_http_client *client = timer->data;

    if (client->waits) {
        client->waits = false;
        respond_error(client, 504);
    } else if (client->answered) {
        ct_http_end_client(client);
    } else {
        respond_error(client, 408);
    }
}

/* ---- the request ---- */

/* On AF_UNIX it is this user or root, or it would not be here (may_ask). */
static int64_t uid_of(const struct ct_http_client *client)
{
    unsigned uid;
    int fd;

    if (client->server->endpoint.is_unix)
        return (int64_t)geteuid();
    bool is_known =
        uv_fileno(&client->io.handle, &fd) == 0 && ct_address_find_peer_user(fd, &uid) == 0;

    return is_known ? (int64_t)uid : -1;
}

/* The token of the identity lets in to everything; of others the owner knows. */
static bool admits(void *context, const char *token, size_t size)
{
    struct ct_http_client *client = context;
    const struct ct_http_options *options = &client->server->options;
    bool is_secured = client->tls != NULL;

    client->is_reader = false;
    if (is_secured && ct_web_identity_accepts(options->identity, token, size))
        return true;
    if (options->admit == NULL)
        return !is_secured;
    const struct ct_http_visitor visitor = {
        .token = token, .size = size, .uid = uid_of(client), .is_secured = is_secured};
    return options->admit(options->user, &visitor, &client->is_reader, &client->reader);
}

static void handle(struct ct_http_client *client)
{
    struct ct_http_server *server = client->server;
    struct ct_http_request request;
    const struct ct_http_rules rules = {
        .may_post = server->options.may_post,
        .room = CT_HTTP_REQUEST_BYTES,
        .any_host = client->tls != NULL,
        .admits = admits,
        .context = client,
    };
    int status = ct_http_parse(client->request, client->size, &rules, &request);

    if (status == 0)
        return; /* the rest of its body is to come */
    if (status == 401 && server->options.on_refused != NULL)
        server->options.on_refused(server->options.user, client->peer);
    if (status != 200) {
        respond_error(client, status);
        return;
    }
    struct ct_http_answer answer = ct_http_answer_new(200);
    request.peer = client->peer;
    request.uid = uid_of(client);
    request.reader = client->is_reader ? &client->reader : NULL;
    request.number = client->number = ++server->requests;
    client->place.asked = true;
    client->answered = client->waits = true;
    server->options.handler(server->options.user, &request, &answer);
    if (answer.later) { /* it may have come already */
        ct_buf_deinit(&answer.body);
        return;
    }
    client->waits = false;
    respond(client, &answer);
}

void ct_http_answer_later(struct ct_http_server *server, uint64_t number,
                          struct ct_http_answer *answer)
{
    for (struct ct_http_client *client = server->clients; client != NULL; client = client->next)
        if (client->number == number && client->waits && !uv_is_closing(&client->io.handle)) {
            client->waits = false;
            respond(client, answer);
            return;
        }
    ct_buf_deinit(&answer->body);
}

/* More of the request is there. */
static void take(struct ct_http_client *client, size_t count)
{
    client->size += count;
    client->request[client->size] = '\0';
    if (strstr(client->request, "\r\n\r\n") != NULL)
        handle(client);
    else if (memchr(client->request, '\0', client->size) != NULL)
        respond_error(client, 400);
    else if (client->size == CT_HTTP_REQUEST_BYTES)
        respond_error(client, 431);
}

static void decrypt(struct ct_http_client *client, size_t count)
{
    struct ct_buf out;
    long got = 0;

    ct_buf_init(&out, 0);
    int code = ct_web_tls_feed(client->tls, client->cipher, count, &out);
    if (out.size > 0)
        ct_http_send_bytes(client, out.data, out.size);
    ct_buf_deinit(&out);
    while (code == 0 && !client->answered &&
           (got = ct_web_tls_read(client->tls, client->request + client->size,
                                  CT_HTTP_REQUEST_BYTES - client->size)) > 0)
        take(client, (size_t)got);
    if (code != 0 || got < 0)
        ct_http_end_client(client);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct ct_http_client *client = stream->data;

    (void)buf;
    if (count == UV_EOF && client->answered && !client->written)
        client->peer_done = true; /* it has asked, and still listens */
    else if (count < 0)
        ct_http_end_client(client);
    if (count <= 0 || client->answered)
        return;
    if (client->tls != NULL)
        decrypt(client, (size_t)count);
    else
        take(client, (size_t)count);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct ct_http_client *client = handle->data;

    (void)suggested;
    if (client->answered)
        *buf = uv_buf_init(client->rest, sizeof(client->rest));
    else if (client->tls != NULL)
        *buf = uv_buf_init(client->cipher, sizeof(client->cipher));
    else
        *buf = uv_buf_init(client->request + client->size,
                           (unsigned)(CT_HTTP_REQUEST_BYTES - client->size));
}

/* ---- accepting ---- */

static void init_stream(struct ct_http_server *server, union ct_http_handle *io, void *data)
{
    if (server->endpoint.is_unix)
        uv_pipe_init(server->loop, &io->pipe, 0);
    else
        uv_tcp_init(server->loop, &io->tcp);
    io->handle.data = data;
}

/* A peer on AF_UNIX must be of this user. */
static bool may_ask(struct ct_http_client *client)
{
    int fd;

    return !client->server->endpoint.is_unix ||
           (uv_fileno(&client->io.handle, &fd) == 0 && ct_address_check_peer_user(fd, NULL) == 0);
}

/* With an identity each connection begins with a handshake: so many a second. */
static bool begin_tls(struct ct_http_client *client)
{
    struct ct_http_server *server = client->server;

    if (server->options.identity == NULL || server->endpoint.is_unix)
        return true;
    if (ct_pace_take(&server->handshakes, uv_now(server->loop), HANDSHAKES, HANDSHAKES) == 0)
        client->tls = ct_web_tls_new(server->options.identity);
    return client->tls != NULL;
}

/* A place for the client, which has just been accepted. False: there is none. */
static bool take_in(struct ct_http_client *client)
{
    struct ct_http_server *server = client->server;
    int fd;

    client->place.owner = client;
    client->place.since_ms = uv_now(server->loop);
    if (!server->endpoint.is_unix && uv_fileno(&client->io.handle, &fd) == 0)
        client->place.account = ct_address_peer_account(fd);
    if (server->places.count >= server->options.connections) {
        struct ct_web_place *displaced =
            ct_web_places_displaced(&server->places, client->place.account, client->place.since_ms);
        if (displaced == NULL)
            return false;
        ct_http_end_client(displaced->owner);
    }
    ct_web_places_enter(&server->places, &client->place);
    return true;
}

/* Begin with the client, which has just been accepted. False: it ends. */
static bool begin(struct ct_http_client *client)
{
    struct ct_http_server *server = client->server;
    bool is_in = may_ask(client) && take_in(client);
    int fd;

    /* Whoever gets no place is told so: not with TLS, where it would be no answer, and no crowd. */
    if (!is_in &&
        (server->options.identity != NULL || server->count > 2 * server->options.connections))
        return false;
    if (uv_fileno(&client->io.handle, &fd) == 0)
        ct_address_print_peer(fd, client->peer);
    if ((is_in && !begin_tls(client)) || uv_read_start(&client->io.stream, on_alloc, on_read) != 0)
        return false;
    uv_timer_start(&client->timer, on_timer, server->options.request_ms, 0);
    if (!is_in)
        respond_error(client, 503);
    return true;
}

static void on_turn(uv_check_t *turn);

/* Take the connection that libuv holds. */
static void accept_one(struct ct_http_server *server)
{
    struct ct_http_client *client = calloc(1, sizeof(*client));

    uv_check_start(&server->turn, on_turn);
    if (client == NULL)
        return; /* at the end of a later turn */
    server->waiting = false;
    server->accepts++;
    client->server = server;
    init_stream(server, &client->io, client);
    uv_timer_init(server->loop, &client->timer);
    client->timer.data = client;
    client->handles = 2;
    client->next = server->clients;
    client->link = &server->clients;
    if (client->next != NULL)
        client->next->link = &client->next;
    server->clients = client;
    server->count++;
    if (uv_accept(&server->io.stream, &client->io.stream) != 0 || !begin(client))
        ct_http_end_client(client);
}

static void on_turn(uv_check_t *turn)
{
    struct ct_http_server *server = turn->data;

    (void)uv_check_stop(turn);
    server->accepts = 0;
    if (server->waiting && !server->stopped)
        accept_one(server);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct ct_http_server *server = stream->data;

    if (status != 0)
        return; /* out of descriptors: libuv sheds the newcomer and listens on */
    server->waiting = true;
    if (server->accepts < ACCEPTS_PER_TURN)
        accept_one(server);
}

/* Nobody proves anything without a token, so nobody beyond this machine may come. */
static int refuse_others(const struct ct_endpoint *endpoint, struct ct_error *err)
{
    char where[CT_ENDPOINT_TEXT];

    return ct_error_set(err, CT_EAUTH,
                        "refusing to serve status and metrics on %s: other machines can reach it; "
                        "give a certificate and a token (--status_tls, --status_token), or "
                        "127.0.0.1:%u and let a collector on this machine or a tunnel (ssh -L) "
                        "bring it to others",
                        ct_endpoint_print(endpoint, where), endpoint->port);
}

int ct_http_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                  const struct ct_http_options *options, struct ct_http_server **ret_server,
                  struct ct_error *err)
{
    struct ct_http_server *server = calloc(1, sizeof(*server));
    int fd, status;

    if (server == NULL) {
        ct_web_identity_free(options->identity);
        return ct_error_set(err, CT_ENOMEM, "no memory for an HTTP server");
    }
    int code = ct_address_bind(endpoint, options->identity != NULL, &fd, &server->endpoint, err);
    if (code != 0) {
        free(server);
        ct_web_identity_free(options->identity);
        return code == CT_EAUTH ? refuse_others(endpoint, err) : code;
    }
    server->loop = loop;
    server->options = *options;
    if (server->options.request_ms == 0)
        server->options.request_ms = 5000;
    if (server->options.connections == 0)
        server->options.connections = 32;
    init_stream(server, &server->io, server);
    (void)uv_check_init(loop, &server->turn);
    server->turn.data = server;
    status =
        endpoint->is_unix ? uv_pipe_open(&server->io.pipe, fd) : uv_tcp_open(&server->io.tcp, fd);
    if (status != 0)
        close(fd);
    else
        status = uv_listen(&server->io.stream, BACKLOG, on_connection);
    if (status != 0) {
        char text[CT_ENDPOINT_TEXT];
        ct_http_stop(server); /* frees it when the loop has run */
        return ct_error_set(err, CT_EUNAVAILABLE, "cannot listen on %s: %s",
                            ct_endpoint_print(endpoint, text), uv_strerror(status));
    }
    *ret_server = server;
    return 0;
}

const struct ct_endpoint *ct_http_endpoint(const struct ct_http_server *server)
{
    return &server->endpoint;
}
