/* The connections of backend tcp between each pair of ranks: one for send and recv, and one or more
 * (rails) for collectives, so that neither waits behind the other.
 *
 *   listen     on the node's address (loopback when all members share the node), a free port
 *   dial       every lower rank, once per connection; and be dialled by every higher one
 *
 * Both ends prove that they know a secret (tcp_handshake.h), which member 0 draws for this group
 * and sends through the store; the store is authenticated. The data itself is neither encrypted nor
 * signed, unless the group asked for TLS (tcp_tls.h): its key is a second secret.
 *
 * Unknown callers have few pending connections and, when these are full, little time: a member
 * always gets one, because it sends its HELLO before it is accepted. The backlog holds further
 * ones. A member that is disconnected before the answer dials again, with a growing back-off, until
 * the deadline. */
#ifndef CT_COLL_TCP_MESH_H
#define CT_COLL_TCP_MESH_H

#include "backend/backend.h"
#include "backend/tcp/tcp_handshake.h"

#include <sys/socket.h>

/* The connections of a pair by number: one for transfers, then one a rail. */
enum ct_mesh_connection { CT_MESH_TRANSFER, CT_MESH_COLLECTIVE };

enum { CT_RAILS_MAX = 16 };

/* What a member publishes: where it listens. The rest counts from member 0 only. */
struct ct_mesh_address {
    uint32_t rails; /* 1 .. CT_RAILS_MAX */
    struct sockaddr_storage socket;
    uint32_t socket_bytes;
    uint32_t encrypted; /* all must agree */
    unsigned char secret[CT_SECRET_BYTES];
    unsigned char key[CT_SECRET_BYTES];
};
_Static_assert(sizeof(struct ct_mesh_address) <= CT_BLOB_BYTES, "fits the blob");

/* Listen for this member; `*ret_fd` is the listener, the caller's. 0, or an error with its
 * sentence. */
int ct_mesh_listen(const struct ct_setup *setup, struct ct_mesh_address *ret_address, int *ret_fd,
                   struct ct_error *err);

/* Let others listen on the port that a closed connection keeps for a minute: otherwise a machine
 * that makes thousands of groups a minute runs out of ports. */
void ct_mesh_reuse_port(int fd);

/* Return the number of connections of a pair, which member 0 decides. */
int ct_mesh_connection_count(const struct ct_blob *blobs);

/* Make all connections: fds[connection * size + peer], -1 for this rank itself; on failure some may
 * be open, and are the caller's. Waits until the setup's deadline at most. 0, or an error with its
 * sentence: CT_ETIMEOUT, CT_EUNAVAILABLE, CT_EREVOKED, CT_ENOMEM. */
int ct_mesh_connect(const struct ct_setup *setup, int listener, const struct ct_blob *blobs,
                    int *fds, struct ct_error *err);

#endif
