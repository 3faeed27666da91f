/* The store's end of tunnels: clients of other nodes that come over their agents' connections.
 *
 * Each connection is a relay's (relay_uv.h) and proves the job's key; in clear it may listen on
 * loopback only. Its streams are clients of the server's store like those with a socket. They
 * outlive a broken connection: the relay has resume_ms to reconnect. On the loop's thread. */
#ifndef CT_RENDEZVOUS_TCPSTORE_HUB_UV_H
#define CT_RENDEZVOUS_TCPSTORE_HUB_UV_H

#include "keys/key.h"
#include "rendezvous/tcpstore/tcpstore_uv.h"

struct ct_tcpstore_hub;

struct ct_tcpstore_hub_options {
    struct ct_tcpstore_server *server; /* it must outlive the hub's stop */
    uint64_t generation;               /* of the round whose store it is; relays name it */
    const char *job;
    const struct ct_key *key; /* NULL: in clear. Copied; those derived from it may relay, too */
    uint32_t resume_ms;       /* 0: 30000 */
    void (*on_lost)(void *user, const struct ct_tcpstore_lost *lost); /* may be NULL */
    void *user;
};

/* Listen on `endpoint`. 0, or as ct_listener_start. */
int ct_tcpstore_hub_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                          const struct ct_tcpstore_hub_options *options,
                          struct ct_tcpstore_hub **ret_hub, struct ct_error *err);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_tcpstore_hub_endpoint(const struct ct_tcpstore_hub *hub);

/* Close all tunnels without a report; their clients leave. Freed by a later iteration of the loop.
 * NULL is ignored. */
void ct_tcpstore_hub_stop(struct ct_tcpstore_hub *hub);

#endif
