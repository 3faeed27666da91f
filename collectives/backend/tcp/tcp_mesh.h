/* The connections of backend tcp between pairs of ranks: one for send and recv, and one or more
 * (rails) for collectives, so that neither waits behind the other.
 *
 *   listen     on the node's address (loopback when all members share the node), a free port
 *   form       small groups: each with each; larger ones: each with its neighbours in the ring
 *   need       any other connection is made when a call first needs it, by either end
 *
 * So a rank of a large group has as many connections as its algorithms have partners, not one for
 * each rank. When both ends of a pair dial at once, the connection that the higher rank dialled is
 * kept. The listener stays until all connections are there, or the group ends; a dialled rank
 * answers in its next call.
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

#include <poll.h>
#include <sys/socket.h>

/* The connections of a pair by number: one for transfers, then one a rail. */
enum ct_mesh_connection { CT_MESH_TRANSFER, CT_MESH_COLLECTIVE };

enum { CT_RAILS_MAX = 16 };

/* In place of a descriptor. */
enum { CT_MESH_NONE = -1, CT_MESH_COMING = -2 };

/* What a member publishes: where it listens. The last ones come from member 0 only: the exchange
 * carries no zeros at the end. */
struct ct_mesh_address {
    uint8_t encrypted; /* all must agree */
    uint8_t socket_bytes;
    struct sockaddr_storage socket;
    uint8_t rails; /* 1 .. CT_RAILS_MAX */
    unsigned char secret[CT_SECRET_BYTES];
    unsigned char key[CT_SECRET_BYTES];
};
_Static_assert(sizeof(struct ct_mesh_address) <= CT_BLOB_BYTES, "fits the blob");
_Static_assert(sizeof(struct sockaddr_storage) <= UINT8_MAX, "its length fits a byte");

struct ct_mesh;

/* Listen for this member; `*ret_fd` is the listener, the caller's. 0, or an error with its
 * sentence. */
int ct_mesh_listen(const struct ct_setup *setup, struct ct_mesh_address *ret_address, int *ret_fd,
                   struct ct_error *err);

/* Let others listen on the port that a closed connection keeps for a minute: otherwise a machine
 * that makes thousands of groups a minute runs out of ports. */
void ct_mesh_reuse_port(int fd);

/* Return the number of connections of a pair, which member 0 decides. */
int ct_mesh_connection_count(const struct ct_blob *blobs);

/* Take the listener, and keep the connections in fds[connection * size + peer]: a descriptor, or
 * one of the two values above. `fds` and setup->job outlive the mesh; what it has opened is the
 * caller's to close. 0 or CT_ENOMEM. */
int ct_mesh_new(const struct ct_setup *setup, int listener, const struct ct_blob *blobs, int *fds,
                struct ct_mesh **ret_mesh, struct ct_error *err);

/* End the listener and what is pending. NULL: nothing. */
void ct_mesh_free(struct ct_mesh *mesh);

/* Make the connections that a group begins with. Waits until the setup's deadline at most. 0, or an
 * error with its sentence: CT_ETIMEOUT, CT_EUNAVAILABLE, CT_EREVOKED, CT_ENOMEM. */
int ct_mesh_form(struct ct_mesh *mesh, const struct ct_setup *setup, struct ct_error *err);

/* A connection is needed: dial it, unless it comes already. 0, or an error with its sentence:
 * CT_ECLOSED when the member has left, or its machine is silent. */
int ct_mesh_need(struct ct_mesh *mesh, int connection, int peer, struct ct_error *err);

/* Take one step with all that is pending, without waiting; the same errors. */
int ct_mesh_step(struct ct_mesh *mesh, struct ct_error *err);

bool ct_mesh_is_pending(const struct ct_mesh *mesh);  /* something was dialled, or called */
bool ct_mesh_is_complete(const struct ct_mesh *mesh); /* each is connected with each */

/* Fill in what a step waits for, at most `room` entries. Returns how many. */
size_t ct_mesh_polls(struct ct_mesh *mesh, struct pollfd *polls, size_t room);

#endif
