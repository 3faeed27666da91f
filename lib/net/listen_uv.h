/* Listening: accepts connections and limits those that have not authenticated.
 *
 * Admission:
 *     AF_UNIX    a socket in a directory of mode 0700 (made if it is missing); this user or root
 *     loopback   this user or root (the owner of the peer's socket); with a key: its holders
 *     beyond     holders of the key; without one, listening there is refused
 *
 * A connection is pending until its first message has arrived. Its place is charged to its account:
 * its address, its /64 in IPv6, its user on loopback. Accounts that have authenticated, and this
 * user and root on loopback, are trusted; all others are strangers. Strangers hold at most
 * `max_unproven` places and `max_unproven_per_address` per account; above, a random one is evicted
 * (of the newcomer's own account, if that is full), so no connection waits in the backlog for them.
 * Trusted ones have as many places of their own: there the oldest is evicted once it is 250 ms old;
 * until then newcomers wait in the kernel's backlog (total) or are closed (of one account). Whoever
 * shows in the hello of TLS that it holds the key moves to one of four times as many places,
 * whatever its account; there the oldest is evicted once it is 1 s old, and newcomers wait. */
#ifndef CT_NET_LISTEN_UV_H
#define CT_NET_LISTEN_UV_H

#include "keys/key_ring.h"
#include "net/conn_uv.h"

struct ct_listener;

struct ct_listener_options {
    struct ct_conn_options conn; /* of accepted connections */
    struct ct_key_ring *ring;    /* what they must prove one of. Held. NULL: conn.key alone */
    size_t budget;         /* bytes that may wait for all its connections together; 0: no limit */
    uint32_t max_unproven; /* strangers, and trusted ones; default 256 */
    uint32_t max_unproven_per_address; /* default 32 */
    uint32_t max_connections;          /* in all; default 16384. Above, newcomers are closed */
    int silent_s;                      /* that the kernel holds who says nothing, about; 0: none */
    /* Called for refused and failed peers (may be NULL), at most once in 10 s a peer address. */
    void (*on_refused)(void *user, const char *peer, const struct ct_error *why);
};

/* Bind and listen. Accepted connections get `callbacks` and `user`; on_open is called when the peer
 * is admitted (TLS done, user checked). 0; CT_EINUSE when the address is in use; CT_EUNAVAILABLE
 * when it is not an address of this machine; CT_EAUTH for a bind beyond loopback without a key;
 * CT_EUSAGE for a name that does not resolve; CT_ECANTCREAT for the socket's directory. */
int ct_listener_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                      const struct ct_listener_options *options,
                      const struct ct_conn_callbacks *callbacks, void *user,
                      struct ct_listener **ret_listener, struct ct_error *err);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_listener_endpoint(const struct ct_listener *listener);

/* Accept the keys of `ring` (held) from now on; connections that stand go on. A no-op for a
 * listener in clear. */
void ct_listener_change_ring(struct ct_listener *listener, struct ct_key_ring *ring);

/* Return the number of connections, and of those that have not authenticated. */
uint32_t ct_listener_connections(const struct ct_listener *listener);
uint32_t ct_listener_unproven(const struct ct_listener *listener);

/* Stop listening and remove the unix socket; connections after on_open stay open (the owner closes
 * them), others are dropped without a callback. Freed by a later iteration of the loop, after its
 * last connection. */
void ct_listener_stop(struct ct_listener *listener);

#endif
