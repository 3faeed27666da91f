/* Connections: messages over TCP (TLS when there is a key) or AF_UNIX, on a libuv loop.
 *
 *   ct_conn_connect --> CONNECTING --> HANDSHAKE --> OPEN --> CLOSING --> freed
 *   ct_listener     ------------------^                |         ^
 *                       any failure, deadline, limit --+---------+
 *
 * A connection belongs to its loop's thread and frees itself: on_close is its last callback, is
 * called exactly once, and never from inside a call that the owner makes. Callbacks may call
 * anything here, ct_conn_close too.
 *
 * Bounds, each with a named error: the handshake, the first message, a message that has begun, and
 * silence have deadlines; the write queue has a cap (a peer that never reads is dropped, so memory
 * is at most the cap and one message); a frame above the limit or in the wrong direction ends the
 * connection at its header. */
#ifndef CT_NET_CONN_UV_H
#define CT_NET_CONN_UV_H

#include "base/error.h"
#include "net/endpoint.h"
#include "net/key.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ct_conn;

/* on_message and on_close must be there. */
struct ct_conn_callbacks {
    /* The peer is there, and with a key has proved that it holds it: messages may be sent. */
    void (*on_open)(struct ct_conn *conn);
    /* `message` and what it points to are gone after the call. */
    void (*on_message)(struct ct_conn *conn, const struct ct_message *message);
    /* The end. `why`: CT_ECLOSED when the peer ended in order or the owner closed without a reason.
     * The connection is freed after the call. */
    void (*on_close)(struct ct_conn *conn, const struct ct_error *why);
    /* Connecting lasts (may be NULL): called about once a second with what stands in the way, and
     * whenever a peer has accepted and the TLS handshake begins. `accepted`: the one that was tried
     * last took the connection, what is missing is its part of the handshake. */
    void (*on_waiting)(struct ct_conn *conn, uint64_t waited_ms, const char *what, bool accepted);
};

/* What the connections of one loop may have waiting for their peers together; outlives them. Above
 * the limit whoever has more than CT_CONN_SHARE waiting is dropped when more is sent to it. */
struct ct_conn_budget {
    size_t limit;
    size_t used; /* zeroed at first */
};

enum { CT_CONN_SHARE = 64 << 10 };

/* Zero in a number means its default. */
struct ct_conn_options {
    unsigned from;                 /* CT_FROM_...: what the peer may send */
    const struct ct_key *key;      /* NULL: in clear. Copied. Unused on AF_UNIX */
    const char *job;               /* with a key: the job whose key a client proves. Copied */
    uint32_t frame_limit;          /* payload bytes of a message; default CT_WIRE_VALUE */
    size_t queue_limit;            /* bytes that may wait for the peer; default 1 MiB */
    struct ct_conn_budget *budget; /* NULL: none */
    uint32_t handshake_ms;         /* default 5000 */
    uint32_t first_ms;        /* from OPEN to the first message; default 5000. Listener side only */
    uint32_t message_ms;      /* from a message's first byte to its last; default 10000 */
    uint32_t idle_ms;         /* without any byte from the peer; default: no limit */
    uint32_t user_timeout_ms; /* TCP_USER_TIMEOUT: sent data unacknowledged; default 5000 */
    uint32_t connect_ms;      /* ct_conn_connect: until it gives up; default 60000 */
    uint32_t retry_ms;        /* ct_conn_connect: longest pause between tries; default 500 */
    uint64_t seed;            /* for the jitter of these pauses */
    bool once;       /* ct_conn_connect: each address is tried once; why it failed ends it */
    uint32_t source; /* IPv4 address to connect from, as a number; 0: any */
};

/* Connect to `endpoint`, and try again with jittered pauses (doubling from 10 ms) until it answers
 * or connect_ms are over: a server may start after its clients. With `once` it does not try again.
 * Names are resolved off the loop, every address of a name is tried in turn. A refused key or job
 * is final at once. 0 and a connection in CONNECTING; CT_ENOMEM, CT_EUNSUPPORTED. */
int ct_conn_connect(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                    const struct ct_conn_options *options,
                    const struct ct_conn_callbacks *callbacks, void *user,
                    struct ct_conn **ret_conn, struct ct_error *err);

/* Queue one message. 0; CT_ECLOSED when the connection is not OPEN or just lost its peer to the
 * queue cap; CT_ELIMIT for a message above its limits (nothing is sent, the connection lives). */
int ct_conn_send(struct ct_conn *conn, const struct ct_message *message, struct ct_error *err);

/* Write out what is queued (within message_ms), then end; on_close follows with `code` and the
 * sentence (0 and NULL: CT_ECLOSED). No more messages are delivered. A second call changes nothing.
 */
void ct_conn_close(struct ct_conn *conn, int code, const char *sentence);

/* What the owner attached. */
void *ct_conn_user(const struct ct_conn *conn);
void ct_conn_set_user(struct ct_conn *conn, void *user);

/* The other end for people: "10.0.0.7:41230", "unix:/run/x". Valid as long as the connection. */
const char *ct_conn_peer(const struct ct_conn *conn);

/* May this peer speak for `job`? With a key: it proved the key of that job. In clear: yes. */
bool ct_conn_is_for(const struct ct_conn *conn, const char *job);

/* Bytes that wait for the peer. */
size_t ct_conn_queued(const struct ct_conn *conn);

/* Payload bytes of a message from now on: what a peer may send can grow with what it has proved. */
void ct_conn_set_frame_limit(struct ct_conn *conn, uint32_t limit);

#endif
