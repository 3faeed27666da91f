/* Connections; see conn_uv.h.
 *
 *   In:   bytes -> [TLS] -> frame reader -> message -> on_message
 *   Out:  conn_out_uv.c */
#include "net/conn_inner_uv.h"

#include "base/assert.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LISTS_BYTES = 16 << 20, /* records of one message, decoded */
    CLOSE_WAIT_MS = 1000,   /* how long a closed connection waits for the peer's end */
    WAITING_MS = 1000,      /* until one that waits for its turn is looked at again */
};

/* ---- options, birth ---- */

static void set_default(uint32_t *value, uint32_t otherwise)
{
    if (*value == 0)
        *value = otherwise;
}

struct ct_conn *ct_conn_alloc(uv_loop_t *loop, const struct ct_conn_options *options,
                              const struct ct_conn_callbacks *callbacks, void *user)
{
    struct ct_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL)
        return NULL;
    conn->loop = loop;
    conn->uid = -1;
    conn->callbacks = *callbacks;
    conn->user = user;
    conn->options = *options;
    conn->options.key = NULL; /* whoever begins passes it on */
    conn->options.job = NULL;
    set_default(&conn->options.frame_limit, CT_WIRE_VALUE);
    set_default(&conn->options.handshake_ms, 5000);
    set_default(&conn->options.first_ms, 5000);
    set_default(&conn->options.message_ms, 10000);
    set_default(&conn->options.user_timeout_ms, 5000);
    set_default(&conn->options.connect_ms, 60000);
    set_default(&conn->options.retry_ms, 500);
    if (conn->options.queue_limit == 0)
        conn->options.queue_limit = 1 << 20;
    ct_frame_reader_init(&conn->reader, options->from, conn->options.frame_limit);
    ct_arena_init(&conn->lists, LISTS_BYTES);
    uv_timer_init(loop, &conn->timer);
    conn->timer.data = conn;
    conn->timer_exists = true;
    return conn;
}

/* ---- the end ---- */

/* All handles are closed: the last callback. */
static void free_conn(struct ct_conn *conn)
{
    if (conn->io_exists || conn->timer_exists)
        return;
    ct_conn_charge(conn, true);
    if (conn->announced)
        conn->callbacks.on_close(conn, &conn->why);
    if (conn->listener != NULL)
        ct_listener_gone(conn->listener, conn);
    else
        free(conn->chunk);
    ct_tls_free(conn->tls);
    ct_frame_reader_deinit(&conn->reader);
    ct_arena_deinit(&conn->lists);
    ct_buf_deinit(&conn->plain);
    ct_buf_deinit(&conn->out);
    ct_buf_deinit(&conn->flying);
    free(conn);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_conn *conn = handle->data;

    conn->timer_exists = false;
    free_conn(conn);
}

static void on_stream_closed(uv_handle_t *handle)
{
    struct ct_conn *conn = handle->data;

    conn->io_exists = false;
    if (conn->state == CT_CONN_ENDED)
        free_conn(conn);
    else
        ct_dial_stream_closed(conn->dial);
}

static void close_stream(struct ct_conn *conn)
{
    if (conn->io_exists && !uv_is_closing(&conn->io.handle))
        uv_close(&conn->io.handle, on_stream_closed);
}

void ct_conn_end(struct ct_conn *conn, const struct ct_error *why)
{
    if (conn->state == CT_CONN_ENDED)
        return;
    if (conn->state != CT_CONN_CLOSING) { /* else the reason is known already */
        conn->why = *why;
        ct_error_prefix(&conn->why, "%s", conn->peer);
    }
    conn->state = CT_CONN_ENDED;
    ct_conn_forget_munge(conn);
    ct_dial_end(conn->dial);
    conn->dial = NULL;
    close_stream(conn);
    uv_close((uv_handle_t *)&conn->timer, on_timer_closed);
}

static void end_with(struct ct_conn *conn, int code, const char *sentence)
{
    struct ct_error why = {0};

    ct_error_set(&why, code, "%s", sentence);
    ct_conn_end(conn, &why);
}

void ct_conn_drop_stream(struct ct_conn *conn)
{
    conn->state = CT_CONN_CONNECTING;
    ct_conn_forget_munge(conn);
    ct_tls_free(conn->tls);
    conn->tls = NULL;
    ct_buf_clear(&conn->out);
    uv_timer_stop(&conn->timer);
    conn->armed_ms = 0;
    CT_ASSERT(conn->io_exists);
    close_stream(conn);
}

void ct_conn_stream_failed(struct ct_conn *conn, int status)
{
    struct ct_error why = {0};
    bool inside = ct_frame_reader_inside(&conn->reader);

    if (status == UV_EOF)
        ct_error_set(&why, CT_ECLOSED, "the peer has closed the connection%s",
                     conn->state == CT_CONN_HANDSHAKE ? " during the TLS handshake"
                     : inside                         ? " in the midst of a message"
                                                      : "");
    else if (status == UV_ECONNRESET || status == UV_EPIPE)
        ct_error_set(&why, CT_ECLOSED, "the peer has reset the connection");
    else if (status == UV_ETIMEDOUT)
        ct_error_set(&why, CT_ETIMEOUT, "the peer does not answer any more");
    else
        ct_error_set(&why, status, "the connection failed: %s", uv_strerror(status));
    if (conn->state == CT_CONN_HANDSHAKE && conn->dial != NULL)
        ct_dial_retry(conn->dial, &why);
    else
        ct_conn_end(conn, &why);
}

/* ---- deadlines ---- */

struct deadline {
    uint64_t at_ms; /* UINT64_MAX: none */
    uint32_t limit_ms;
    const char *crime;
};

static void earlier(struct deadline *nearest, uint64_t from_ms, uint32_t limit_ms,
                    const char *crime)
{
    if (limit_ms != 0 && from_ms + limit_ms < nearest->at_ms)
        *nearest = (struct deadline){from_ms + limit_ms, limit_ms, crime};
}

/* What the peer must do next, and by when. */
static struct deadline next_deadline(const struct ct_conn *conn)
{
    struct deadline nearest = {.at_ms = UINT64_MAX};

    switch (conn->state) {
    case CT_CONN_HANDSHAKE:
        earlier(&nearest, conn->began_ms, conn->options.handshake_ms,
                "did not finish the TLS handshake");
        break;
    case CT_CONN_OPEN:
        if (conn->listener != NULL && !conn->proven)
            earlier(&nearest, conn->began_ms, conn->options.first_ms, "sent no message");
        if (ct_frame_reader_inside(&conn->reader))
            earlier(&nearest, conn->message_ms, conn->options.message_ms,
                    "did not finish a message that it had begun");
        earlier(&nearest, conn->received_ms, conn->options.idle_ms, "said nothing");
        break;
    case CT_CONN_CLOSING:
        earlier(&nearest, conn->began_ms,
                conn->shut            ? CLOSE_WAIT_MS
                : conn->flush_ms != 0 ? conn->flush_ms
                                      : conn->options.message_ms,
                "did not take the last messages");
        break;
    default:
        break;
    }
    return nearest;
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_conn *conn = timer->data;
    struct deadline deadline = next_deadline(conn);
    struct ct_error why = {0};

    conn->armed_ms = 0;
    if (conn->waits_for_turn && conn->state != CT_CONN_CLOSING) { /* it is this side that is slow */
        conn->armed_ms = uv_now(conn->loop) + WAITING_MS;
        uv_timer_start(timer, on_timer, WAITING_MS, 0);
        return;
    }
    if (deadline.at_ms > uv_now(conn->loop)) {
        ct_conn_arm(conn);
        return;
    }
    ct_error_set(&why, CT_ETIMEOUT, "the peer %s within %u ms", deadline.crime, deadline.limit_ms);
    if (conn->state == CT_CONN_HANDSHAKE && conn->dial != NULL)
        ct_dial_retry(conn->dial, &why);
    else
        ct_conn_end(conn, &why);
}

/* Have the timer fire at the next deadline or before: a later deadline needs no work now. */
void ct_conn_arm(struct ct_conn *conn)
{
    struct deadline deadline = next_deadline(conn);
    uint64_t now_ms = uv_now(conn->loop);

    if (deadline.at_ms == UINT64_MAX || (conn->armed_ms != 0 && conn->armed_ms <= deadline.at_ms))
        return;
    conn->armed_ms = deadline.at_ms;
    uv_timer_start(&conn->timer, on_timer, deadline.at_ms > now_ms ? deadline.at_ms - now_ms : 0,
                   0);
}

/* ---- in ---- */

static void open_conn(struct ct_conn *conn)
{
    conn->state = CT_CONN_OPEN;
    conn->began_ms = conn->received_ms = uv_now(conn->loop);
    ct_dial_end(conn->dial);
    conn->dial = NULL;
    conn->announced = true;
    if (conn->callbacks.on_open != NULL)
        conn->callbacks.on_open(conn);
}

/* The peer broke the rules of wire or TLS. */
static void refuse(struct ct_conn *conn, const struct ct_error *why)
{
    const struct ct_buf *heard = &conn->reader.buf;

    if (conn->tls == NULL && why->code == CT_EAUTH && heard->size > 0 && heard->data[0] == 0x16)
        (void)ct_buf_append(&conn->out, ct_tls_alert, CT_TLS_ALERT);
    ct_conn_leave(conn, why);
}

static void deliver(struct ct_conn *conn, const struct ct_frame *frame)
{
    struct ct_message message;
    struct ct_error err = {0};

    if (ct_wire_decode(frame, &conn->lists, &message, &err) != 0) {
        refuse(conn, &err);
        return;
    }
    ct_frame_reader_note_received(&conn->reader, &message);
    if (!conn->proven) {
        conn->proven = true;
        if (conn->listener != NULL)
            ct_listener_proven(conn->listener, conn);
    }
    ct_turns_charge(conn, CT_TURN_MESSAGE);
    conn->callbacks.on_message(conn, &message);
    ct_arena_deinit(&conn->lists);
}

/* A peer of a newer release has sent a message that is unknown here: once. */
static void report_skipped(struct ct_conn *conn)
{
    if (conn->reader.skipped == 0 || conn->skipped)
        return;
    conn->skipped = true;
    if (conn->callbacks.on_skipped != NULL)
        conn->callbacks.on_skipped(conn, conn->reader.skipped);
}

/* The messages that have come, as many as its account may have in this turn. */
static void deliver_all(struct ct_conn *conn)
{
    struct ct_frame frame;
    struct ct_error err = {0};
    int code = 0;

    while (conn->state == CT_CONN_OPEN && !ct_turns_is_over(conn)) {
        code = ct_frame_reader_next(&conn->reader, &frame, &err);
        report_skipped(conn);
        if (code <= 0)
            break;
        deliver(conn, &frame);
        ct_turns_settle(conn);
        conn->message_ms = uv_now(conn->loop);
    }
    if (code < 0 && conn->state == CT_CONN_OPEN)
        refuse(conn, &err);
}

/* Plain bytes of the peer. */
static void receive(struct ct_conn *conn, const char *data, size_t size)
{
    struct ct_error err = {0};

    if (!ct_frame_reader_inside(&conn->reader))
        conn->message_ms = uv_now(conn->loop);
    int code = ct_frame_reader_push(&conn->reader, data, size);
    if (code != 0) {
        ct_error_set(&err, code, "no room for what the peer sends");
        refuse(conn, &err);
        return;
    }
    deliver_all(conn);
}

/* A server's: has the client shown in its hello that it holds the key? */
static void note_hello(struct ct_conn *conn)
{
    uint64_t hello;

    if (conn->listener == NULL || conn->is_bound || !ct_tls_is_bound(conn->tls, &hello))
        return;
    conn->is_bound = true;
    ct_listener_bound(conn->listener, conn, hello);
}

/* The handshake failed, or the stream broke. */
static void fail_tls(struct ct_conn *conn, const struct ct_error *why)
{
    if (why->code == CT_ECLOSED)
        ct_conn_stream_failed(conn, UV_EOF);
    else if (why->code == CT_EUNAVAILABLE && conn->dial != NULL)
        ct_dial_retry(conn->dial, why);
    else
        ct_conn_leave(conn, why); /* an alert for the peer is in `out` */
}

/* Does a server's handshake wait for a credential to be opened? */
static bool waits_for_munge(struct ct_conn *conn)
{
    const char *socket;

    return conn->state == CT_CONN_HANDSHAKE && ct_tls_credential(conn->tls, &socket) != NULL;
}

/* Let TLS work on what came: handshake, then plain bytes. */
static void turn_tls(struct ct_conn *conn)
{
    struct ct_error err = {0};
    char *plain = conn->chunk + CT_CONN_CHUNK;
    long count;

    do {
        count = ct_tls_read(conn->tls, plain, CT_CONN_CHUNK, &err);
        if (ct_tls_drain(conn->tls, &conn->out) != 0)
            count = ct_error_set(&err, CT_ENOMEM, "no memory for the TLS handshake");
        if (count >= 0 && conn->state == CT_CONN_HANDSHAKE)
            note_hello(conn);
        if (count >= 0 && conn->state == CT_CONN_HANDSHAKE && ct_tls_ready(conn->tls)) {
            ct_conn_flush(conn);
            if (conn->state == CT_CONN_HANDSHAKE)
                open_conn(conn);
        }
        if (count > 0 && conn->state == CT_CONN_OPEN)
            receive(conn, plain, (size_t)count);
    } while (count > 0 && conn->state == CT_CONN_OPEN && !ct_turns_is_over(conn));
    if (conn->state != CT_CONN_HANDSHAKE && conn->state != CT_CONN_OPEN)
        return;
    if (count >= 0 && waits_for_munge(conn))
        count = ct_conn_unseal(conn, &err);
    if (count < 0)
        fail_tls(conn, &err);
    else
        ct_conn_flush(conn);
}

/* May its account have no more of this turn? */
static bool must_wait(struct ct_conn *conn)
{
    return (conn->state == CT_CONN_HANDSHAKE || conn->state == CT_CONN_OPEN) &&
           ct_turns_is_over(conn);
}

/* In a crowd of one account, with nobody else there, the first words of each are heard at once:
 * they tell it from the strangers, of whom few have a place (listen_uv.c). */
static bool may_introduce_itself(const struct ct_conn *conn)
{
    return !conn->spoke && conn->turns != NULL && ct_turns_is_alone(conn->turns);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct ct_conn *conn = stream->data;

    if (count == 0)
        return;
    if (count == UV_ENOBUFS && buf->len == 0) { /* of on_alloc */
        ct_turns_wait(conn, false);
        return;
    }
    if (count < 0) {
        ct_conn_stream_failed(conn, (int)count);
        return;
    }
    if (conn->state == CT_CONN_CLOSING)
        return;
    conn->received_ms = uv_now(conn->loop);
    ct_turns_begin(conn);
    ct_turns_charge(conn, (size_t)count);
    if (!conn->spoke && conn->tls != NULL)
        ct_turns_charge(conn, CT_TURN_HANDSHAKE);
    conn->spoke = true;
    if (conn->tls == NULL)
        receive(conn, buf->base, (size_t)count);
    else if (ct_tls_feed(conn->tls, buf->base, (size_t)count) != 0)
        end_with(conn, CT_ENOMEM, "no memory for what the peer sends");
    else
        turn_tls(conn);
    ct_turns_settle(conn);
    if (must_wait(conn))
        ct_turns_wait(conn, true);
    if (conn->state != CT_CONN_ENDED)
        ct_conn_arm(conn);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct ct_conn *conn = handle->data;

    (void)suggested;
    *buf = must_wait(conn) && !may_introduce_itself(conn) ? uv_buf_init(NULL, 0)
                                                          : uv_buf_init(conn->chunk, CT_CONN_CHUNK);
}

void ct_conn_resume(struct ct_conn *conn)
{
    if (conn->state == CT_CONN_ENDED || conn->munge != NULL) /* ct_conn_shake_on goes on */
        return;
    if (conn->state !=
        CT_CONN_CLOSING) /* its time begins anew: it was not the peer that was late */
        conn->received_ms = conn->message_ms = uv_now(conn->loop);
    if (conn->state == CT_CONN_HANDSHAKE || (conn->state == CT_CONN_OPEN && !conn->proven))
        conn->began_ms = uv_now(conn->loop);
    ct_turns_begin(conn);
    deliver_all(conn);
    if (conn->tls != NULL && !must_wait(conn) &&
        (conn->state == CT_CONN_HANDSHAKE || conn->state == CT_CONN_OPEN))
        turn_tls(conn);
    ct_turns_settle(conn);
    if (must_wait(conn))
        ct_turns_wait(conn, true);
    else if (conn->state != CT_CONN_ENDED)
        (void)uv_read_start(&conn->io.stream, on_alloc, on_read);
    if (conn->state != CT_CONN_ENDED)
        ct_conn_arm(conn);
}

/* ---- the connected stream ---- */

static void set_tcp_options(struct ct_conn *conn)
{
    int fd;

    uv_tcp_nodelay(&conn->io.tcp, 1);
    if (uv_fileno(&conn->io.handle, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &conn->options.user_timeout_ms,
                   sizeof(conn->options.user_timeout_ms));
}

/* In clear the peer's user is all that there is to go by. */
static int check_user(struct ct_conn *conn, struct ct_error *err)
{
    int fd, code = 0;

    if (conn->uid >= 0)
        code = ct_address_check_user((unsigned)conn->uid, err);
    else if (uv_fileno(&conn->io.handle, &fd) == 0)
        code = ct_address_check_peer_user(fd, err);
    if (code != CT_EAUTH || conn->io.handle.type != UV_TCP)
        return code;
    const struct ct_error why = *err;
    return ct_error_set(err, code,
                        "%.400s; without a key both ends must be one user's: make a key with "
                        "`ctrun key new FILE` and pass --key_file FILE at both ends",
                        why.text);
}

/* Another user is told why, in the words that every version knows. */
static void refuse_user(struct ct_conn *conn, const struct ct_error *why)
{
    const struct ct_message message = {.type = CT_MSG_REFUSE,
                                       .refuse = {.code = CT_EAUTH, .text = why->text}};

    if (!(conn->options.from & CT_FROM_NODE) || ct_listener_is_busy(conn->listener) ||
        conn->io.handle.type != UV_TCP ||
        ct_wire_encode(&message, conn->next_sequence, &conn->out, NULL) != 0) {
        ct_conn_end(conn, why);
        return;
    }
    conn->state = CT_CONN_HANDSHAKE;
    ct_conn_leave(conn, why);
}

static void fail_to_begin(struct ct_conn *conn, int code, const struct ct_error *why)
{
    if (code == CT_ECLOSED && conn->dial != NULL)
        ct_dial_retry(conn->dial, why);
    else if (code == CT_EAUTH && conn->listener != NULL)
        refuse_user(conn, why);
    else
        ct_conn_end(conn, why);
}

void ct_conn_begin(struct ct_conn *conn, const struct ct_conn_secret *secret)
{
    struct ct_error err = {0};
    bool is_tcp = conn->io.handle.type == UV_TCP;
    int code = uv_read_start(&conn->io.stream, on_alloc, on_read);

    if (code != 0)
        ct_error_set(&err, code, "cannot read from the peer: %s", uv_strerror(code));
    if (is_tcp)
        set_tcp_options(conn);
    if (code == 0 && (!is_tcp || secret == NULL))
        code = check_user(conn, &err);
    else if (code == 0)
        code = ct_conn_secure(conn, secret, &err);
    if (code != 0) {
        fail_to_begin(conn, code, &err);
        return;
    }
    conn->received_ms = conn->began_ms = uv_now(conn->loop);
    if (conn->tls == NULL && conn->munge == NULL) {
        open_conn(conn);
    } else {
        conn->state = CT_CONN_HANDSHAKE;
        if (conn->munge == NULL)
            turn_tls(conn); /* a client's first words */
    }
    if (conn->state != CT_CONN_ENDED)
        ct_conn_arm(conn);
}

void ct_conn_shake_on(struct ct_conn *conn)
{
    struct ct_error err = {0};

    if (conn->waits_for_turn) /* ct_conn_resume goes on */
        return;
    int code = uv_read_start(&conn->io.stream, on_alloc, on_read);

    CT_ASSERT(conn->state == CT_CONN_HANDSHAKE && conn->munge == NULL);
    if (code != 0) {
        ct_error_set(&err, code, "cannot read from the peer: %s", uv_strerror(code));
        ct_conn_end(conn, &err);
        return;
    }
    turn_tls(conn);
    if (conn->state != CT_CONN_ENDED)
        ct_conn_arm(conn);
}
