/* A TCPStore on a libuv loop: listens, admits clients, moves bytes.
 *
 * PyTorch's protocol has no authentication, so address and user decide: loopback only, or with a
 * list of hosts (the round's members) those and loopback; of this machine only this user and root.
 * Other connections are closed and reported. The port must be known before the members are: with
 * `members_follow` all connections wait in the kernel's backlog until ct_tcpstore_server_allow has
 * the members.
 *
 * A connection that ends is reported with the facts known of its client. The death of a worker is
 * noticed here at once: its connections end. One thread: the loop's. */
#ifndef CT_RENDEZVOUS_TCPSTORE_TCPSTORE_UV_H
#define CT_RENDEZVOUS_TCPSTORE_TCPSTORE_UV_H

#include "net/endpoint.h"
#include "rendezvous/tcpstore/tcpstore.h"

#include <uv.h>

struct ct_tcpstore_server;

/* How a client's connection ended. */
struct ct_tcpstore_lost {
    const char *peer; /* its address and port, in digits */
    const char *host; /* its address alone */
    bool is_client;   /* it spoke the protocol; false: it only connected */
    uint32_t pid;     /* of the client, in its own namespace; 0: it did not say */
    bool waited;      /* it was inside WAIT or BARRIER */
    /* NULL: the client closed the connection in order. Otherwise the connection broke (a negative
     * errno), or the server closed it after a violation. */
    const struct ct_error *why;
};

/* A client without a socket (hub_uv.h) is served by this sink instead. It joins, feeds
 * and leaves through the core (`user` is the sink), and then calls ct_tcpstore_server_serve. */
struct ct_tcpstore_sink {
    /* The client has output: send as much as fits now (ct_tcpstore_output, _sent). */
    void (*flush)(struct ct_tcpstore_sink *sink);
    /* The client is broken: it must leave. */
    void (*broke)(struct ct_tcpstore_sink *sink, const struct ct_error *why);
};

struct ct_tcpstore_server_options {
    struct ct_tcpstore_limits limits;
    const char *const *allowed; /* hosts in digits, besides loopback; copied */
    size_t allowed_count;       /* 0: loopback alone, and only there it may listen */
    bool members_follow;        /* nobody comes in before ct_tcpstore_server_allow */
    void (*on_lost)(void *user, const struct ct_tcpstore_lost *lost); /* may be NULL */
    /* A host that was refused (may be NULL); at most once in 10 s for the same host. */
    void (*on_refused)(void *user, const char *host);
    void *user;
};

/* Listen on `endpoint` (TCP; port 0: any) and serve an empty store. 0; CT_EUNAVAILABLE when the
 * address is in use or not here; CT_EAUTH for an address beyond loopback without hosts; CT_EUSAGE
 * for a name that does not resolve, an AF_UNIX path, or a host that is not in digits; CT_ENOMEM. */
int ct_tcpstore_server_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                             const struct ct_tcpstore_server_options *options,
                             struct ct_tcpstore_server **ret_server, struct ct_error *err);

/* Admit these hosts from now on, besides loopback. 0; CT_EUSAGE and CT_ENOMEM as above. */
int ct_tcpstore_server_allow(struct ct_tcpstore_server *server, const char *const *hosts,
                             size_t count, struct ct_error *err);

/* Flush the output of all clients; call it after a sink has fed the core. */
void ct_tcpstore_server_serve(struct ct_tcpstore_server *server);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_tcpstore_server_endpoint(const struct ct_tcpstore_server *server);

/* Return its store, to inspect it or to add clients through sinks. */
struct ct_tcpstore *ct_tcpstore_server_store(const struct ct_tcpstore_server *server);

/* Stop listening, close every connection without a report, free the store. Clients of sinks must
 * have left. Freed by a later iteration of the loop. */
void ct_tcpstore_server_stop(struct ct_tcpstore_server *server);

/* Return the possible number of clients: at most `most`, and limited by the descriptors. */
uint32_t ct_tcpstore_clients_possible(uint32_t most);

#endif
