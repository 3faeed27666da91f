/* Comparison of calls, which NCCL does not make: there a mismatch hangs, or gives wrong results.
 * While the device works, each call's signature is sent to the others over the host group, and a
 * call is over only when all have the same: for a collective a barrier there, for a message an
 * empty one, both with the signature of the device's call. */
#ifndef CT_COLL_NCCL_CHECK_H
#define CT_COLL_NCCL_CHECK_H

#include "group/group.h"

/* A queue of checks: of collectives, or of messages to a peer or from it. */
struct ct_nccl_queue {
    struct ct_signature own[CT_REQUESTS_MAX]; /* of number n: n % CT_REQUESTS_MAX */
    uint64_t pushed, done;                    /* numbers; from 1 */
    bool busy;
    struct ct_task task; /* of the host group, for number done + 1 */
};

struct ct_nccl_check {
    struct ct_group *host;
    struct ct_nccl_queue *queues; /* collectives, then sends by peer, then receives by peer */
    int open;                     /* numbers that are not done, of all queues */
};

/* Make the queues over the group `host`. 0 or CT_ENOMEM. */
int ct_nccl_check_init(struct ct_nccl_check *check, struct ct_group *host);
void ct_nccl_check_deinit(struct ct_nccl_check *check);

/* Queue the check of a call. Return its number in its queue; 0: the queue is full. */
uint64_t ct_nccl_check_push(struct ct_nccl_check *check, const struct ct_task *task);

/* Return how many checks of the call's queue are done. */
uint64_t ct_nccl_check_done(const struct ct_nccl_check *check, const struct ct_call *call);

/* Advance. Return the number of steps made, or the code of a mismatch or of the host group. */
int ct_nccl_check_pump(struct ct_nccl_check *check, struct ct_error *err);

/* Return the member that the collective under way waits for; -1 when not known. */
int ct_nccl_check_missing(const struct ct_nccl_check *check);

#endif
