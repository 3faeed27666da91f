/* See tunnel_uv.h. */
#include "rendezvous/tcpstore/tunnel_uv.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdlib.h>

void ct_tunnel_deinit(struct ct_tunnel *tunnel)
{
    CT_ASSERT(tunnel->count == 0);
    free(tunnel->streams);
    *tunnel = (struct ct_tunnel){.streams = NULL};
}

/* ---- numbers ---- */

struct ct_tunnel_stream *ct_tunnel_find(const struct ct_tunnel *tunnel, uint32_t number)
{
    return number < tunnel->room ? tunnel->streams[number] : NULL;
}

/* Room for `number`. 0 or CT_ENOMEM. */
static int grow(struct ct_tunnel *tunnel, uint32_t number)
{
    uint32_t room = CT_MAX(tunnel->room, 16u);

    while (room <= number)
        room *= 2;
    struct ct_tunnel_stream **streams =
        realloc(tunnel->streams, room * sizeof(struct ct_tunnel_stream *));
    if (streams == NULL)
        return CT_ENOMEM;
    for (uint32_t i = tunnel->room; i < room; i++)
        streams[i] = NULL;
    tunnel->streams = streams;
    tunnel->room = room;
    return 0;
}

int ct_tunnel_put(struct ct_tunnel *tunnel, uint32_t number, struct ct_tunnel_stream *stream)
{
    if (number >= CT_TUNNEL_STREAMS || ct_tunnel_find(tunnel, number) != NULL)
        return CT_EPROTOCOL;
    if (number >= tunnel->room && grow(tunnel, number) != 0)
        return CT_ENOMEM;
    *stream = (struct ct_tunnel_stream){.number = number, .window = CT_TUNNEL_WINDOW};
    tunnel->streams[number] = stream;
    tunnel->count++;
    return 0;
}

int ct_tunnel_add(struct ct_tunnel *tunnel, struct ct_tunnel_stream *stream)
{
    uint32_t number = 0;

    if (tunnel->count >= CT_TUNNEL_STREAMS)
        return CT_ELIMIT;
    while (ct_tunnel_find(tunnel, number) != NULL)
        number++;
    return ct_tunnel_put(tunnel, number, stream);
}

void ct_tunnel_remove(struct ct_tunnel *tunnel, struct ct_tunnel_stream *stream)
{
    CT_ASSERT(ct_tunnel_find(tunnel, stream->number) == stream);
    ct_buf_deinit(&stream->kept);
    tunnel->streams[stream->number] = NULL;
    tunnel->count--;
}

/* ---- over the next connection ---- */

const struct ct_wire_tunnel_state *ct_tunnel_list(struct ct_tunnel *tunnel, struct ct_arena *arena)
{
    struct ct_wire_tunnel_state *list =
        ct_arena_array(arena, CT_MAX(tunnel->count, 1u), sizeof(*list));
    uint32_t count = 0;

    for (uint32_t i = 0; list != NULL && i < tunnel->room; i++) {
        struct ct_tunnel_stream *stream = tunnel->streams[i];
        if (stream == NULL)
            continue;
        stream->inside -= stream->consumed;
        stream->consumed = 0;
        stream->known = false;
        list[count++] = (struct ct_wire_tunnel_state){
            .number = stream->number,
            .came = stream->came,
            .consumed = stream->came - stream->inside,
            .closed = stream->close_received,
        };
    }
    return list;
}

/* Give back the room that a burst took: what is left is few bytes, and may stay for long. */
static void shrink(struct ct_buf *buf)
{
    struct ct_buf small;

    if (buf->size > CT_TUNNEL_SHARE || buf->room <= 4 * CT_TUNNEL_SHARE)
        return;
    ct_buf_init(&small, 0);
    if (ct_buf_append(&small, buf->data, buf->size) != 0) {
        ct_buf_deinit(&small);
        return;
    }
    ct_buf_deinit(buf);
    *buf = small;
}

/* So many of the bytes that are kept have left the tunnel. */
static void forget(struct ct_tunnel_stream *stream, uint32_t bytes)
{
    ct_buf_consume(&stream->kept, bytes);
    if (stream->kept.size == 0)
        ct_buf_deinit(&stream->kept);
    else
        shrink(&stream->kept);
    stream->gone += bytes;
    stream->window += bytes;
}

bool ct_tunnel_resume(struct ct_tunnel_stream *stream, const struct ct_wire_tunnel_state *state)
{
    uint64_t sent = stream->gone + stream->kept.size;

    if (stream->known || state->consumed < stream->gone || state->consumed > state->came ||
        state->came > sent)
        return false;
    forget(stream, (uint32_t)(state->consumed - stream->gone));
    stream->known = true;
    return true;
}

static void send_data(struct ct_conn *conn, uint32_t number, const void *data, size_t size)
{
    const unsigned char *at = data;

    while (size > 0) {
        struct ct_message message = {
            .type = CT_MSG_TUNNEL_DATA,
            .tunnel_data = {.number = number,
                            .data = {at, CT_MIN(size, (size_t)CT_WIRE_TUNNEL_BYTES)}},
        };
        (void)ct_conn_send(conn, &message, NULL); /* a failure ends the connection */
        at += message.tunnel_data.data.size;
        size -= message.tunnel_data.data.size;
    }
}

static void send_close(struct ct_conn *conn, uint32_t number, const char *text)
{
    const struct ct_message message = {
        .type = CT_MSG_TUNNEL_CLOSE,
        .tunnel_close = {.number = number, .text = text},
    };

    if (conn != NULL)
        (void)ct_conn_send(conn, &message, NULL);
}

void ct_tunnel_repeat(struct ct_conn *conn, const struct ct_tunnel_stream *stream,
                      const struct ct_wire_tunnel_state *state)
{
    size_t there = (size_t)(state->came - stream->gone);

    if (there < stream->kept.size) /* else there may be no buffer to point into */
        send_data(conn, stream->number, stream->kept.data + there, stream->kept.size - there);
    if (stream->close_sent && !state->closed)
        send_close(conn, stream->number, "");
}

/* ---- bytes ---- */

size_t ct_tunnel_send(struct ct_conn *conn, struct ct_tunnel_stream *stream, const void *data,
                      size_t size)
{
    size_t fits = CT_MIN(size, (size_t)stream->window);

    if (conn == NULL || ct_buf_append(&stream->kept, data, fits) != 0)
        return 0;
    send_data(conn, stream->number, data, fits);
    stream->window -= (uint32_t)fits;
    return fits;
}

bool ct_tunnel_came(struct ct_tunnel_stream *stream, size_t size)
{
    if (size > CT_TUNNEL_WINDOW - stream->inside)
        return false;
    stream->inside += (uint32_t)size;
    stream->came += size;
    return true;
}

bool ct_tunnel_acked(struct ct_tunnel_stream *stream, uint32_t bytes)
{
    if (bytes > stream->kept.size)
        return false;
    forget(stream, bytes);
    return true;
}

void ct_tunnel_consume(struct ct_conn *conn, struct ct_tunnel_stream *stream, size_t size)
{
    stream->consumed += (uint32_t)size;
    CT_ASSERT(stream->consumed <= stream->inside);
    if (conn == NULL || stream->consumed < CT_TUNNEL_SHARE || stream->close_sent)
        return;
    const struct ct_message message = {
        .type = CT_MSG_TUNNEL_ACK,
        .tunnel_ack = {.number = stream->number, .bytes = stream->consumed},
    };
    stream->inside -= stream->consumed;
    stream->consumed = 0;
    (void)ct_conn_send(conn, &message, NULL);
}

void ct_tunnel_close(struct ct_conn *conn, struct ct_tunnel_stream *stream,
                     const struct ct_error *why)
{
    char text[400] = "";

    if (stream->close_sent)
        return;
    if (why != NULL)
        (void)ct_str_copy(text, sizeof(text), why->text);
    stream->close_sent = true;
    send_close(conn, stream->number, text);
}
