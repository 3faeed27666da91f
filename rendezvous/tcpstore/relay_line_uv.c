/* See relay_state_uv.h: the clients of a relay.
 *
 *   accept -> silent -- first bytes --> OPEN, DATA ... --> end of either side: CLOSE
 *
 * A client is read as long as its window allows. What comes for it goes to its socket at once, the
 * rest out of a buffer of its own that is never larger than the other end's window. */
#include "rendezvous/tcpstore/relay_state_uv.h"

#include "base/assert.h"

#include <stdlib.h>

/* ---- what is kept ---- */

void ct_line_charge(struct ct_line *line)
{
    struct ct_tcpstore_relay *relay = line->relay;
    size_t now = line->stream.kept.room + line->out.room + line->flying.room;

    relay->held = relay->held - line->charged + now;
    line->charged = now;
    if (relay->held >= relay->options.budget) {
        relay->full = true;
        relay->woken = false;
    } else if (relay->full && relay->held < relay->options.budget / 8 * 7) {
        relay->full = false;
        relay->woken = true;
    }
}

void ct_lines_wake(struct ct_tcpstore_relay *relay)
{
    if (!relay->woken)
        return;
    relay->woken = false;
    for (struct ct_line *line = relay->lines, *next; line != NULL; line = next) {
        next = line->next;
        ct_line_read(line);
    }
}

/* How much may be read from the client now. */
static uint32_t room_of(const struct ct_line *line)
{
    uint32_t window = line->opened ? line->stream.window : CT_TUNNEL_WINDOW;
    size_t under_way = line->opened ? line->stream.kept.size : 0;

    if (!line->relay->full)
        return window;
    return under_way < CT_TUNNEL_SHARE ? CT_MIN(window, CT_TUNNEL_SHARE - (uint32_t)under_way) : 0;
}

/* ---- ends ---- */

/* Nobody needs it any more: its socket is closed, and the hub does not know its number. */
static void free_line(struct ct_line *line)
{
    if (!line->gone || line->opened)
        return;
    ct_buf_deinit(&line->flying);
    ct_buf_deinit(&line->out);
    ct_line_charge(line);
    free(line);
}

static void on_line_closed(uv_handle_t *handle)
{
    struct ct_line *line = handle->data;
    struct ct_tcpstore_relay *relay = line->relay;

    line->gone = true;
    free_line(line);
    if (!relay->stopped)
        ct_lines_wake(relay);
    relay->handles--;
    ct_relay_free(relay);
}

void ct_line_close(struct ct_line *line)
{
    struct ct_tcpstore_relay *relay = line->relay;

    if (line->closed)
        return;
    line->closed = true;
    if (line->next != NULL)
        line->next->prev = line->prev;
    else
        relay->oldest = line->prev;
    if (line->prev != NULL)
        line->prev->next = line->next;
    else
        relay->lines = line->next;
    relay->line_count--;
    relay->silent -= !line->opened;
    uv_close((uv_handle_t *)&line->tcp, on_line_closed);
}

void ct_line_forget(struct ct_line *line)
{
    if (!line->opened)
        return;
    ct_tunnel_remove(&line->relay->tunnel, &line->stream);
    line->opened = false;
    ct_line_charge(line);
    free_line(line);
}

void ct_line_end(struct ct_line *line, const struct ct_error *why)
{
    ct_line_close(line);
    if (!line->opened)
        return;
    ct_tunnel_close(ct_relay_way(line->relay), &line->stream, why);
    if (line->stream.close_received)
        ct_line_forget(line);
}

static void end_with_status(struct ct_line *line, int status)
{
    struct ct_error why = {0};

    ct_error_set(&why, status, "the connection broke: %s", uv_strerror(status));
    ct_line_end(line, &why);
}

/* ---- to the client ---- */

static void flush(struct ct_line *line);

static void on_written(uv_write_t *request, int status)
{
    struct ct_line *line = request->data;
    struct ct_tcpstore_relay *relay = line->relay;

    line->writing = false;
    if (line->closed)
        return;
    if (status != 0) {
        end_with_status(line, status);
        return;
    }
    ct_tunnel_consume(ct_relay_way(line->relay), &line->stream, line->flying.size);
    ct_buf_clear(&line->flying);
    if (line->out.size == 0) {
        ct_buf_deinit(&line->flying);
        ct_buf_deinit(&line->out);
    }
    ct_line_charge(line);
    flush(line);
    ct_lines_wake(relay);
}

/* Write what waits, if nothing is being written. */
static void flush(struct ct_line *line)
{
    if (line->writing || line->out.size == 0)
        return;
    struct ct_buf rest = line->flying;
    line->flying = line->out;
    line->out = rest;
    const uv_buf_t buf = uv_buf_init(line->flying.data, (unsigned)line->flying.size);
    line->write.data = line;
    line->writing = true;
    int status = uv_write(&line->write, (uv_stream_t *)&line->tcp, &buf, 1, on_written);
    if (status != 0) {
        line->writing = false;
        end_with_status(line, status);
    }
}

/* It does not read, and memory is short. */
static void end_reluctant(struct ct_line *line)
{
    struct ct_error why = {0};

    ct_error_set(&why, CT_ELIMIT,
                 "it does not read, and its node keeps as much for all its clients as it may "
                 "(%zu MiB)",
                 line->relay->options.budget >> 20);
    ct_line_end(line, &why);
}

void ct_line_write(struct ct_line *line, const unsigned char *data, size_t size)
{
    int sent = 0;

    if (!line->writing && line->out.size == 0) {
        const uv_buf_t buf = uv_buf_init((char *)(uintptr_t)data, (unsigned)size);
        sent = uv_try_write((uv_stream_t *)&line->tcp, &buf, 1);
        if (sent < 0 && sent != UV_EAGAIN) {
            end_with_status(line, sent);
            return;
        }
        sent = CT_MAX(sent, 0);
        ct_tunnel_consume(ct_relay_way(line->relay), &line->stream, (size_t)sent);
    }
    if ((size_t)sent == size)
        return;
    size -= (size_t)sent;
    if (line->relay->full && line->out.size + line->flying.size + size > CT_TUNNEL_SHARE) {
        end_reluctant(line);
        return;
    }
    int rc = ct_buf_append(&line->out, data + sent, size);
    ct_line_charge(line);
    if (rc != 0)
        end_with_status(line, UV_ENOMEM);
    else
        flush(line);
}

/* ---- from the client ---- */

/* Its first bytes: tell the hub. 0, or CT_ENOMEM: it cannot be served. */
static int open_stream(struct ct_line *line)
{
    struct ct_tcpstore_relay *relay = line->relay;
    int rc = ct_tunnel_add(&relay->tunnel, &line->stream);

    if (rc != 0)
        return rc;
    line->opened = true;
    relay->silent--;
    const struct ct_message message = {.type = CT_MSG_TUNNEL_OPEN,
                                       .tunnel_open = {.number = line->stream.number}};
    (void)ct_conn_send(relay->conn, &message, NULL);
    return 0;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    const struct ct_line *line = handle->data;
    uint32_t room =
        CT_MAX(room_of(line), 1u); /* it may have shrunk since it was asked to be read */

    (void)suggested;
    *buf = uv_buf_init(line->relay->input, CT_MIN(room, (uint32_t)CT_WIRE_TUNNEL_BYTES));
}

static void send_on(struct ct_line *line, const char *data, size_t size)
{
    struct ct_error why = {0};

    size_t sent = ct_tunnel_send(ct_relay_way(line->relay), &line->stream, data, size);
    ct_line_charge(line);
    if (sent == size) {
        ct_line_read(line);
        return;
    }
    ct_error_set(&why, CT_ENOMEM, "out of memory for a tunnel");
    ct_line_end(line, &why);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct ct_line *line = stream->data;
    struct ct_tcpstore_relay *relay = line->relay;

    if (count == UV_EOF)
        ct_line_end(line, NULL);
    else if (count < 0)
        end_with_status(line, (int)count);
    else if (count > 0 && !line->opened && open_stream(line) != 0)
        ct_line_close(line);
    else if (count > 0)
        send_on(line, buf->base, (size_t)count);
    ct_lines_wake(relay);
    ct_relay_admit(relay);
}

void ct_line_read(struct ct_line *line)
{
    bool wanted = line->relay->conn_open && room_of(line) > 0;
    int status = 0;

    if (wanted == line->reading)
        return;
    line->reading = wanted;
    if (wanted)
        status = uv_read_start((uv_stream_t *)&line->tcp, on_alloc, on_read);
    else
        uv_read_stop((uv_stream_t *)&line->tcp);
    if (status != 0)
        end_with_status(line, status);
}
