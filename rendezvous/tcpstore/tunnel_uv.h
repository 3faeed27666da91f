/* A tunnel: many byte streams over one connection of two agents (TUNNEL_... in wire.def).
 *
 *   client -> relay =====tunnel===== hub -> store        relay_uv.h, hub_uv.h
 *
 * A stream has a number from the relay's OPEN until both ends have sent CLOSE. Each end may have
 * CT_TUNNEL_WINDOW bytes of a stream in flight; TUNNEL_ACK acknowledges bytes that have left the
 * tunnel. So a client that does not read blocks no other, and the tunnel's memory is bounded.
 *
 * When the connection breaks, each end keeps its streams, with the bytes that the other has not
 * acknowledged. Over the next connection both exchange their state (tunnel_state), and retransmit
 * lost bytes: neither the client nor the store sees a difference.
 *
 * This file is common to both ends; it sends, and makes no decisions. A `conn` of NULL: not
 * connected now. */
#ifndef CT_RENDEZVOUS_TCPSTORE_TUNNEL_UV_H
#define CT_RENDEZVOUS_TCPSTORE_TUNNEL_UV_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/error.h"
#include "net/conn_uv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_TUNNEL_STREAMS = 4096,
    CT_TUNNEL_WINDOW = 128 << 10,
    CT_TUNNEL_SHARE = 16 << 10,  /* taken bytes that are told; a stream may always have so many */
    CT_TUNNEL_QUEUE = 600 << 20, /* above all windows together: who keeps the rules is not cut */
};

/* One end of a stream; its owner's struct begins with it. */
struct ct_tunnel_stream {
    uint32_t number;
    uint32_t window;     /* bytes that may still be sent */
    uint32_t inside;     /* bytes that came and were not told as taken */
    uint32_t consumed;   /* of them: have left the tunnel */
    bool close_sent;     /* by this end */
    bool close_received; /* by the other */
    bool known;          /* to the other end, as its list says */
    struct ct_buf kept;  /* sent, and not yet told as taken */
    uint64_t gone;       /* bytes sent before these */
    uint64_t came;       /* bytes that came, all together */
};

/* The streams of a tunnel by their numbers. Zero is an empty table. */
struct ct_tunnel {
    struct ct_tunnel_stream **streams;
    uint32_t room, count;
};

void ct_tunnel_deinit(struct ct_tunnel *tunnel);

/* Return the stream of that number, or NULL. */
struct ct_tunnel_stream *ct_tunnel_find(const struct ct_tunnel *tunnel, uint32_t number);

/* Add a new stream: under the number that the other end gave, or under a free one. 0; CT_EPROTOCOL
 * (the number is taken or too large); CT_ELIMIT (all are taken); CT_ENOMEM. */
int ct_tunnel_put(struct ct_tunnel *tunnel, uint32_t number, struct ct_tunnel_stream *stream);
int ct_tunnel_add(struct ct_tunnel *tunnel, struct ct_tunnel_stream *stream);
void ct_tunnel_remove(struct ct_tunnel *tunnel, struct ct_tunnel_stream *stream);

/* Return the state of all streams at this end, in `arena`; NULL without memory. From here on only
 * the other end's list and later messages count. */
const struct ct_wire_tunnel_state *ct_tunnel_list(struct ct_tunnel *tunnel, struct ct_arena *arena);

/* Apply the other end's state of a stream; false when it is inconsistent. */
bool ct_tunnel_resume(struct ct_tunnel_stream *stream, const struct ct_wire_tunnel_state *state);

/* Retransmit, after both lists, the bytes that `state` lacks. */
void ct_tunnel_repeat(struct ct_conn *conn, const struct ct_tunnel_stream *stream,
                      const struct ct_wire_tunnel_state *state);

/* Send as much as the window allows. Returns the number of bytes; 0 without memory for a copy. */
size_t ct_tunnel_send(struct ct_conn *conn, struct ct_tunnel_stream *stream, const void *data,
                      size_t size);

/* Account for received DATA of `size` bytes, or for a TUNNEL_ACK; false on a protocol violation. */
bool ct_tunnel_came(struct ct_tunnel_stream *stream, size_t size);
bool ct_tunnel_acked(struct ct_tunnel_stream *stream, uint32_t bytes);

/* Account for `size` bytes that left the tunnel (0: only check), and acknowledge them once they are
 * many. */
void ct_tunnel_consume(struct ct_conn *conn, struct ct_tunnel_stream *stream, size_t size);

/* Send CLOSE, once; `why` is NULL for an orderly end. */
void ct_tunnel_close(struct ct_conn *conn, struct ct_tunnel_stream *stream,
                     const struct ct_error *why);

#endif
