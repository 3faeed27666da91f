/* A node's relay to the store of another node: it listens on loopback, and forwards bytes unchanged
 * through a tunnel (tunnel_uv.h) to the hub (hub_uv.h) at node 0's agent.
 *
 * It connects to the hub at once; earlier clients are not read until then. A silent client is not
 * announced to the hub. When the connection breaks, the relay reconnects, and clients notice only
 * the delay; when that fails, their connections are closed, and the next client makes the relay
 * retry. On the loop's thread. */
#ifndef CT_RENDEZVOUS_TCPSTORE_RELAY_UV_H
#define CT_RENDEZVOUS_TCPSTORE_RELAY_UV_H

#include "keys/key.h"
#include "net/endpoint.h"

#include <uv.h>

struct ct_tcpstore_relay;

/* Zero in a number means its default. */
struct ct_tcpstore_relay_options {
    struct ct_endpoint hub;
    uint64_t generation; /* of the round whose store is meant */
    const char *job;
    const struct ct_key *key; /* NULL: in clear. Copied */
    uint32_t clients;         /* at once; default 4096, the most */
    uint32_t silent;          /* of them: have said nothing; above, the oldest is closed once it is
                                 250 ms old. Default: half of `clients` */
    uint32_t silent_ms;       /* may say nothing for so long, but for as many as have spoken (second
                                 connections of old clients); default 10000 */
    size_t budget;            /* bytes kept for all clients; above it a client has
                                 CT_TUNNEL_SHARE under way at most: more is not read from it, and
                                 it is closed when it does not read. Default 128 MiB */
    uint32_t connect_ms;      /* how long to try; default 60000 */
    uint32_t resume_ms;       /* likewise when a connection broke; default 20000 */
    uint32_t user_timeout_ms; /* as of lib/net */
    /* The connection with the hub broke while clients were here, and is being made anew (may be
     * NULL). */
    void (*on_broken)(void *user, const struct ct_error *why);
    /* It could not be made, and the clients that were here are lost (may be NULL). */
    void (*on_cut)(void *user, const struct ct_error *why);
    void *user;
};

/* Listen on 127.0.0.1, any port, and connect. 0; CT_EUNAVAILABLE, CT_ENOMEM. */
int ct_tcpstore_relay_start(uv_loop_t *loop, const struct ct_tcpstore_relay_options *options,
                            struct ct_tcpstore_relay **ret_relay, struct ct_error *err);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_tcpstore_relay_endpoint(const struct ct_tcpstore_relay *relay);

/* Close all connections without a report. Freed by a later iteration of the loop. NULL is
 * ignored. */
void ct_tcpstore_relay_stop(struct ct_tcpstore_relay *relay);

#endif
