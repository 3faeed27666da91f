/* The way out of a connection, to its orderly end; see conn_uv.h.
 *
 * message -> frame -> [TLS] -> `out` -> try-write; what the kernel does not take becomes `flying`
 * (one write at a time), later messages collect in `out` meanwhile. */
#include "net/conn_inner_uv.h"

#include "base/assert.h"

enum { KEEP_BYTES = 16 << 10 /* a larger empty buffer is given back */ };

/* ---- to the kernel ---- */

static void recycle(struct ct_buf *buf)
{
    if (buf->room > KEEP_BYTES)
        ct_buf_deinit(buf);
    else
        ct_buf_clear(buf);
}

void ct_conn_charge(struct ct_conn *conn, bool ended)
{
    size_t now = ended ? 0 : conn->out.size + conn->flying.size;

    if (conn->options.budget != NULL)
        conn->options.budget->used += now - conn->charged; /* modulo 2^64, as sizes are */
    (void)ct_turns_queue(conn, conn->charged, now);
    conn->charged = now;
}

static void on_written(uv_write_t *request, int status)
{
    struct ct_conn *conn = request->data;

    conn->writing = false;
    recycle(&conn->flying);
    if (conn->state == CT_CONN_ENDED || status == UV_ECANCELED)
        return;
    if (status != 0)
        ct_conn_stream_failed(conn, status);
    else
        ct_conn_flush(conn);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    struct ct_conn *conn = request->data;

    if (status != 0 && status != UV_ECANCELED)
        ct_conn_stream_failed(conn, status);
}

/* All is written: say so by the end of the stream. */
static void shut_down(struct ct_conn *conn)
{
    if (conn->shut || conn->writing || conn->out.size > 0)
        return;
    conn->shut = true;
    conn->shutdown.data = conn;
    conn->began_ms = uv_now(conn->loop);
    if (uv_shutdown(&conn->shutdown, &conn->io.stream, on_shutdown) != 0)
        ct_conn_stream_failed(conn, UV_EOF);
    else
        ct_conn_arm(conn);
}

/* As far as the kernel takes it, and the rest to one uv_write. */
static void write_out(struct ct_conn *conn)
{
    if (conn->writing)
        return;
    if (conn->out.size > 0) {
        uv_buf_t bytes = uv_buf_init(conn->out.data, (unsigned)conn->out.size);
        int count = uv_try_write(&conn->io.stream, &bytes, 1);
        if (count < 0 && count != UV_EAGAIN) {
            ct_conn_stream_failed(conn, count);
            return;
        }
        ct_buf_consume(&conn->out, count > 0 ? (size_t)count : 0);
    }
    if (conn->out.size == 0) {
        recycle(&conn->out);
        if (conn->state == CT_CONN_CLOSING)
            shut_down(conn);
        return;
    }
    struct ct_buf empty = conn->flying;
    conn->flying = conn->out;
    conn->out = empty;
    uv_buf_t bytes = uv_buf_init(conn->flying.data, (unsigned)conn->flying.size);
    conn->write.data = conn;
    conn->writing = true;
    int status = uv_write(&conn->write, &conn->io.stream, &bytes, 1, on_written);
    if (status != 0) {
        conn->writing = false;
        ct_conn_stream_failed(conn, status);
    }
}

void ct_conn_flush(struct ct_conn *conn)
{
    write_out(conn);
    ct_conn_charge(conn, false);
}

/* ---- messages ---- */

size_t ct_conn_queued(const struct ct_conn *conn)
{
    return conn->out.size + (conn->writing ? uv_stream_get_write_queue_size(&conn->io.stream) : 0);
}

/* Append `message` to `out` as the peer is to get it. */
static int put_message(struct ct_conn *conn, const struct ct_message *message, struct ct_error *err)
{
    struct ct_buf *frame = conn->tls != NULL ? &conn->plain : &conn->out;
    ct_frame_reader_note_sent(&conn->reader, message);
    int code = ct_wire_encode_as(message, conn->reader.protocol, conn->next_sequence, frame, err);
    if (code != 0)
        return code == CT_WIRE_NOT_THERE ? 0 : code;
    conn->next_sequence++;
    if (conn->tls == NULL)
        return 0;
    code = ct_tls_write(conn->tls, frame->data, frame->size, &conn->out, err);
    recycle(frame);
    if (code != 0) /* half of a frame may have been encrypted: the stream is lost */
        ct_conn_end(conn, err != NULL ? err : &(struct ct_error){.code = code});
    return code;
}

/* All links together have more waiting than they may: this one is dropped if it is one of those
 * that do not read, and its account has much of it; when that does not help, whosever it is. */
static void keep_budget(struct ct_conn *conn)
{
    const struct ct_conn_budget *budget = conn->options.budget;
    struct ct_error why = {0};

    if (budget == NULL || budget->used <= budget->limit || conn->charged <= CT_CONN_SHARE ||
        (budget->used <= 2 * budget->limit &&
         ct_turns_queue(conn, 0, 0) <= budget->limit / CT_CONN_ACCOUNTS))
        return;
    ct_error_set(&why, CT_ELIMIT,
                 "the peer does not read: %zu bytes wait for it, above its share of %d while all "
                 "links have %zu waiting, limit %zu; have it read, or connect again later",
                 conn->charged, CT_CONN_SHARE, budget->used, budget->limit);
    ct_conn_end(conn, &why);
}

int ct_conn_send(struct ct_conn *conn, const struct ct_message *message, struct ct_error *err)
{
    size_t queued = ct_conn_queued(conn);

    if (conn->state == CT_CONN_OPEN && queued > conn->options.queue_limit) {
        struct ct_error why = {0};
        ct_error_set(&why, CT_ELIMIT, "the peer does not read: %zu bytes wait for it, limit %zu",
                     queued, conn->options.queue_limit);
        ct_conn_end(conn, &why);
    }
    if (conn->state != CT_CONN_OPEN)
        return ct_error_set(err, CT_ECLOSED, "%s: the connection is not open", conn->peer);
    size_t before = conn->out.size;
    int code = put_message(conn, message, err);
    if (code == 0) {
        ct_turns_charge(conn, conn->out.size - before);
        ct_conn_flush(conn);
    }
    if (code == 0 && conn->state == CT_CONN_OPEN)
        keep_budget(conn);
    return code == 0 && conn->state != CT_CONN_OPEN
               ? ct_error_set(err, CT_ECLOSED, "%s", conn->why.text)
               : code;
}

/* ---- the orderly end ---- */

void ct_conn_leave(struct ct_conn *conn, const struct ct_error *why)
{
    if (conn->state == CT_CONN_CLOSING || conn->state == CT_CONN_ENDED)
        return;
    if (conn->state == CT_CONN_CONNECTING || conn->munge != NULL) { /* nothing was said */
        ct_conn_end(conn, why);
        return;
    }
    conn->why = *why;
    ct_error_prefix(&conn->why, "%s", conn->peer);
    conn->state = CT_CONN_CLOSING;
    conn->began_ms = uv_now(conn->loop);
    ct_dial_end(conn->dial);
    conn->dial = NULL;
    if (conn->tls != NULL) {
        ct_tls_close(conn->tls);
        (void)ct_tls_drain(conn->tls, &conn->out);
    }
    ct_conn_flush(conn);
    ct_conn_arm(conn);
}

void ct_conn_set_flush_ms(struct ct_conn *conn, uint32_t ms)
{
    conn->flush_ms = ms;
}

void ct_conn_close(struct ct_conn *conn, int code, const char *sentence)
{
    struct ct_error why = {0};

    ct_error_set(&why, code != 0 ? code : CT_ECLOSED, "%s",
                 sentence != NULL ? sentence : "the connection was closed on this side");
    ct_conn_leave(conn, &why);
}
