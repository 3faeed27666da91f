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
#include "keys/grant.h"
#include "keys/key.h"
#include "net/endpoint.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ct_conn;
struct ct_key_ring;

/* on_message and on_close must be there. */
struct ct_conn_callbacks {
    /* The connection is open, and with a key the peer has proved that it holds it: messages may be
     * sent. */
    void (*on_open)(struct ct_conn *conn);
    /* `message` and its strings are valid only during the call. */
    void (*on_message)(struct ct_conn *conn, const struct ct_message *message);
    /* The end. `why`: CT_ECLOSED when the peer ended in order or the owner closed without a reason.
     * The connection is freed after the call. */
    void (*on_close)(struct ct_conn *conn, const struct ct_error *why);
    /* The attempt to connect is under way (may be NULL): called about once a second with the
     * obstacle, and whenever a peer has accepted and the TLS handshake begins. `accepted`: the last
     * peer has accepted, and its part of the handshake is missing. */
    void (*on_waiting)(struct ct_conn *conn, uint64_t waited_ms, const char *what, bool accepted);
    /* The peer is of a newer release, and its message of this type was passed over, as all others
     * that are unknown here will be. Called once at most (may be NULL). */
    void (*on_skipped)(struct ct_conn *conn, unsigned type);
};

/* The budget of queued bytes of all connections of one loop; outlives them. Above the limit, a
 * connection with more than CT_CONN_SHARE queued is dropped when more is sent to it, if its account
 * has more than a CT_CONN_ACCOUNTS-th of the limit; above twice the limit, any. */
struct ct_conn_budget {
    size_t limit;
    size_t used; /* zeroed at first */
};

enum { CT_CONN_SHARE = 64 << 10, CT_CONN_ACCOUNTS = 16 };

/* Zero in a number means its default. */
struct ct_conn_options {
    unsigned from;                 /* CT_FROM_...: what the peer may send */
    const struct ct_key *key;      /* NULL: in clear. Copied. Unused on AF_UNIX */
    const char *job;               /* with a key: the job whose key a client proves. Copied */
    bool accept_expired;           /* a server's certificate may have expired: the job runs */
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
 * queue cap; CT_ELIMIT for a message above its limits (it is not sent, the connection stays
 * open). */
int ct_conn_send(struct ct_conn *conn, const struct ct_message *message, struct ct_error *err);

/* Flush the queue (within message_ms, or what was set), then close; on_close follows with `code`
 * and the sentence (0 and NULL: CT_ECLOSED). No more messages are delivered. A second call is a
 * no-op. */
void ct_conn_close(struct ct_conn *conn, int code, const char *sentence);

/* Let ct_conn_close flush for `ms` at most: the peer may be one who does not read. */
void ct_conn_set_flush_ms(struct ct_conn *conn, uint32_t ms);

/* Return the owner's pointer. */
void *ct_conn_user(const struct ct_conn *conn);
void ct_conn_set_user(struct ct_conn *conn, void *user);

/* Return the peer's address as text: "10.0.0.7:41230", "unix:/run/x". Valid as long as the
 * connection. */
const char *ct_conn_peer(const struct ct_conn *conn);

/* On the listener's side: return what the key allows that it has proved; NULL: none, in clear.
 * Likewise. */
const struct ct_grant *ct_conn_grant(const struct ct_conn *conn);

/* Find the user that the peer runs as: of a peer on this machine, or one whom munge names. False:
 * not known. */
bool ct_conn_user_of_peer(const struct ct_conn *conn, unsigned *ret_uid);

/* Return the user of a peer on this machine as the listener found it, or of one whom munge names;
 * -1: not known. Costs nothing. */
int64_t ct_conn_known_user(const struct ct_conn *conn);

/* On the listener's side: return 0 when this peer may do what `right` says to `job` (NULL: to some
 * job): with a key, if it has proved it for that job and its grant allows it; in clear, always.
 * CT_EAUTH with the sentence (`err` may be NULL). */
int ct_conn_may(const struct ct_conn *conn, enum ct_right right, const char *job,
                struct ct_error *err);

/* On the listener's side: return whether what the peer has proved is accepted by `ring` too. */
bool ct_conn_is_accepted(const struct ct_conn *conn, const struct ct_key_ring *ring);

/* Return the number of bytes queued for the peer. */
size_t ct_conn_queued(const struct ct_conn *conn);

/* Set the limit of a message's payload in bytes from now on: it may grow once a peer has
 * authenticated. */
void ct_conn_set_frame_limit(struct ct_conn *conn, uint32_t limit);

#endif
