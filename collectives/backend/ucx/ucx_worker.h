/* A job's UCX worker: one context and one worker per process, made for the first group that needs
 * it and kept until the job is closed, across rounds. An endpoint belongs to a peer's worker, not
 * to a group: groups share it, and a survivor's serves the next round, too.
 *
 * libucp is loaded at run time. Where this was built without UCX's headers (ucx_none.c in the place
 * of ucx_worker.c), opening fails with a sentence.
 *
 * A group's port gets an endpoint to another member when a message between the two is first posted,
 * in either direction: a receiver's endpoint is what tells it of the sender's death.
 *
 * Several groups may work in several threads: a lock orders them; the thread that progresses the
 * worker completes the messages of all, and wakes the sleepers. */
#ifndef CT_COLL_UCX_WORKER_H
#define CT_COLL_UCX_WORKER_H

#include "backend/message/message.h"

struct ct_ucx;
struct ct_ucx_peer;

/* A group's part in the worker: the context of its transport of message.h. */
struct ct_ucx_port {
    struct ct_ucx *ucx;
    uint64_t group; /* in the high bits of its tags */
    int rank, size;
    struct ct_ucx_peer **peers; /* by rank; NULL: this rank itself, or not needed so far */
    /* Fill in `peers[peer]`. 0, or an error with its sentence. */
    int (*make_endpoint)(struct ct_ucx_port *port, int peer, struct ct_error *err);
    int wakeup; /* an eventfd */
    _Atomic bool asleep;
};

/* Of the 64 bits of a tag: the group, the channel, the sender. */
enum { CT_UCX_GROUP_BITS = 46 };

/* Make the context and the worker. 0, or a code with its sentence. */
int ct_ucx_open(struct ct_ucx **ret_ucx, struct ct_error *err);

/* Free, after a moment in which peers may receive what is in flight. Requests that a dead or
 * hanging peer has kept from ending stay, with the worker, until the process ends. NULL is fine. */
void ct_ucx_close(struct ct_ucx *ucx);

/* Return whether this process has an RDMA device and can use it; makes the job's worker then. */
bool ct_ucx_has_fabric(struct ct_job *job);

/* Return the worker's address, which others connect to. */
const void *ct_ucx_address(const struct ct_ucx *ucx, size_t *ret_bytes);

/* Get the endpoint to the worker at `address`, made unless a living one exists; to be given back
 * with _put. Does not wait. 0, or a code with its sentence. */
int ct_ucx_peer_get(struct ct_ucx *ucx, const void *address, size_t bytes,
                    struct ct_ucx_peer **ret_peer, struct ct_error *err);
void ct_ucx_peer_put(struct ct_ucx *ucx, struct ct_ucx_peer *peer);

/* The transport whose context is a struct ct_ucx_port. */
extern const struct ct_message_transport ct_ucx_transport;

/* Do as ct_backend.arm and .park. */
uint32_t ct_ucx_arm(struct ct_ucx_port *port);
void ct_ucx_park(struct ct_ucx_port *port, uint32_t armed, uint64_t timeout_ns);

#endif
