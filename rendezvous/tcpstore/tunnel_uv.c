/* See tunnel_uv.h. */
#include "rendezvous/tcpstore/tunnel_uv.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdlib.h>

enum { TELL = CT_TUNNEL_WINDOW / 4 }; /* so many taken bytes are worth a message */

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

void ct_tunnel_remove(struct ct_tunnel *tunnel, const struct ct_tunnel_stream *stream)
{
    CT_ASSERT(ct_tunnel_find(tunnel, stream->number) == stream);
    tunnel->streams[stream->number] = NULL;
    tunnel->count--;
}

/* ---- bytes ---- */

size_t ct_tunnel_send(struct ct_conn *conn, struct ct_tunnel_stream *stream, const void *data,
                      size_t size)
{
    const unsigned char *at = data;
    size_t left = CT_MIN(size, (size_t)stream->window), sent = 0;

    while (left > 0) {
        struct ct_message message = {
            .type = CT_MSG_TUNNEL_DATA,
            .tunnel_data = {.number = stream->number,
                            .data = {at + sent, CT_MIN(left, (size_t)CT_WIRE_TUNNEL_BYTES)}},
        };
        size_t piece = message.tunnel_data.data.size;
        (void)ct_conn_send(conn, &message, NULL); /* a failure ends the connection */
        sent += piece;
        left -= piece;
    }
    stream->window -= (uint32_t)sent;
    return sent;
}

bool ct_tunnel_came(struct ct_tunnel_stream *stream, size_t size)
{
    if (size > CT_TUNNEL_WINDOW - stream->inside)
        return false;
    stream->inside += (uint32_t)size;
    return true;
}

bool ct_tunnel_was_taken(struct ct_tunnel_stream *stream, uint32_t bytes)
{
    if (bytes > CT_TUNNEL_WINDOW - stream->window)
        return false;
    stream->window += bytes;
    return true;
}

void ct_tunnel_take(struct ct_conn *conn, struct ct_tunnel_stream *stream, size_t size)
{
    stream->taken += (uint32_t)size;
    CT_ASSERT(stream->taken <= stream->inside);
    if (stream->taken < TELL || stream->said_close)
        return;
    const struct ct_message message = {
        .type = CT_MSG_TUNNEL_TAKEN,
        .tunnel_taken = {.number = stream->number, .bytes = stream->taken},
    };
    stream->inside -= stream->taken;
    stream->taken = 0;
    (void)ct_conn_send(conn, &message, NULL);
}

void ct_tunnel_close(struct ct_conn *conn, struct ct_tunnel_stream *stream,
                     const struct ct_error *why)
{
    char text[400] = "";

    if (stream->said_close)
        return;
    if (why != NULL)
        (void)ct_str_copy(text, sizeof(text), why->text);
    const struct ct_message message = {
        .type = CT_MSG_TUNNEL_CLOSE,
        .tunnel_close = {.number = stream->number, .text = text},
    };
    stream->said_close = true;
    (void)ct_conn_send(conn, &message, NULL);
}
