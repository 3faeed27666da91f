/* The connections of backend tcp between each pair of ranks: one for send and recv, and one or more
 * rails for collectives, so that neither waits behind the other.
 *
 *   listen     on the node's address (loopback when all members share the node), a free port
 *   dial       every lower rank, once per lane; and be dialled by every higher one
 *
 * Both ends prove that they know a secret (tcp_handshake.h), which member 0 draws for this group
 * and sends through the store; the store is authenticated. The data itself is neither encrypted nor
 * signed, unless the group asked for TLS (tcp_tls.h): its key is a second secret.
 *
 * Strangers have few pending connections and, when these are full, little time: a member always
 * gets one, because it sends its HELLO before it is accepted. The backlog holds further ones. A
 * member that is disconnected before the answer dials again, with a growing back-off, until the
 * deadline. */
#ifndef CT_COLL_TCP_MESH_H
#define CT_COLL_TCP_MESH_H

#include "backend/backend.h"
#include "backend/tcp/tcp_handshake.h"

#include <sys/socket.h>

enum ct_lane { CT_LANE_TRANSFER, CT_LANE_COLLECTIVE }; /* and up: one lane a rail */

enum { CT_RAILS_MAX = 16 };

/* What a member tells the others: where it listens; of member 0 all take the rest. */
struct ct_mesh_address {
    uint32_t rails; /* 1 .. CT_RAILS_MAX */
    struct sockaddr_storage socket;
    uint32_t socket_bytes;
    uint32_t encrypted; /* all must agree */
    unsigned char secret[CT_SECRET_BYTES];
    unsigned char key[CT_SECRET_BYTES];
};
_Static_assert(sizeof(struct ct_mesh_address) <= CT_BLOB_BYTES, "fits the blob");

/* Listen for this member; `*ret_fd` is the listener. 0, or an error with its sentence. */
int ct_mesh_listen(const struct ct_setup *setup, struct ct_mesh_address *ret_address, int *ret_fd,
                   struct ct_error *err);

/* A closed connection keeps its port for a minute: others may listen on it meanwhile, or a machine
 * that makes thousands of groups a minute runs out of ports. */
void ct_mesh_reuse_port(int fd);

/* How many lanes the group has: what member 0 said. */
int ct_mesh_lanes(const struct ct_blob *blobs);

/* Make all connections: fds[lane * size + peer], -1 for this rank itself; on failure some may be
 * open. Waits until the setup's deadline at most. */
int ct_mesh_connect(const struct ct_setup *setup, int listener, const struct ct_blob *blobs,
                    int *fds, struct ct_error *err);

#endif
