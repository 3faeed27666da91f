/* A job's UCX worker: one context and one worker per process, made for the first group that needs
 * it and kept until the job is closed, across rounds. An endpoint belongs to a peer's worker, not
 * to a group: groups share it, and a survivor's serves the next round, too.
 *
 * libucp is loaded at run time. Where this was built without UCX's headers (ucx_none.c in the place
 * of ucx_worker.c), opening fails with a sentence.
 *
 * Several groups may work in several threads: a lock orders them; the thread that progresses the
 * worker completes the messages of all, and wakes the sleepers. */
#ifndef CT_COLL_UCX_WORKER_H
#define CT_COLL_UCX_WORKER_H

#include "backend/message/message.h"

struct ct_ucx;
struct ct_ucx_peer;

/* A group's part in the worker: what a transport of message.h is given. */
struct ct_ucx_port {
    struct ct_ucx *ucx;
    uint64_t group; /* in the high bits of its tags */
    int rank, size;
    struct ct_ucx_peer **peers; /* by rank; NULL: this rank itself, or not yet known */
    int bell;                   /* an eventfd */
    _Atomic bool asleep;
};

/* Of the 64 bits of a tag: the group, the lane, the sender. */
enum { CT_UCX_GROUP_BITS = 46 };

/* 0, or a code with its sentence. */
int ct_ucx_open(struct ct_ucx **ret_ucx, struct ct_error *err);

/* Peers get a moment to take what is on its way. What a peer that is gone, or hangs, has kept from
 * ending stays, with the worker, until the process ends. NULL is fine. */
void ct_ucx_close(struct ct_ucx *ucx);

/* Has this process an RDMA device, and what it takes to use it? The job's worker is made then. */
bool ct_ucx_has_fabric(struct ct_job *job);

/* Where others find the worker. */
const void *ct_ucx_address(const struct ct_ucx *ucx, size_t *ret_bytes);

/* The endpoint to the worker at `address`, made unless there is one that is alive; to be given
 * back. Does not wait. */
int ct_ucx_peer_get(struct ct_ucx *ucx, const void *address, size_t bytes,
                    struct ct_ucx_peer **ret_peer, struct ct_error *err);
void ct_ucx_peer_put(struct ct_ucx *ucx, struct ct_ucx_peer *peer);

/* Carries the messages of a struct ct_ucx_port. */
extern const struct ct_message_transport ct_ucx_transport;

/* As ct_backend.arm and .park. */
uint32_t ct_ucx_arm(struct ct_ucx_port *port);
void ct_ucx_park(struct ct_ucx_port *port, uint32_t armed, uint64_t timeout_ns);

#endif
