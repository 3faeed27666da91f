/* Communicators of a process, from creation to abort.
 *
 *     absent --form, split--> forming --poll--> ready <--> busy      a call has returned InProgress
 *                                |               |          |
 *                                +---------------+----------+--> aborted, or given back
 *
 * All communicators of a job are listed, for two reasons: calls on different communicators of one
 * device must not come from two threads at once, so that each call here is made under the job's
 * lock; and when a round is over all of them have to be aborted together, because freeing one may
 * wait for the device, which another one's kernel keeps busy.
 *
 * A lane is a communicator with a stream of its own: its work completes in order. Batch n is over
 * when its event is; at most RING are in flight. */
#ifndef CT_COLL_NCCL_COMMUNICATOR_H
#define CT_COLL_NCCL_COMMUNICATOR_H

#include "backend/nccl/nccl_library.h"
#include "backend/nccl/nccl_memory.h"
#include "base/accel.h"
#include "job/job.h"

#include <pthread.h>

struct ct_nccl_communicator;

/* One a job; made by the first group that asks. */
struct ct_nccl {
    struct ct_nccl_library lib;
    pthread_mutex_t lock; /* of all calls of the library, and of the list */
    struct ct_nccl_communicator *lanes;
    struct ct_nccl_memory *memories;
    struct ct_nccl_kept *kept; /* communicators that the next round may shrink; nccl_kept.h */
    bool stuck;                /* a thread may still come back to it: it is never freed */
};

enum { CT_NCCL_RING = 64 };

struct ct_nccl_communicator {
    struct ct_nccl_communicator *next;
    struct ct_nccl_comm *comm; /* NULL: none, or none any more */
    bool aborted;              /* by another group, as the round was over */
    bool revoked;              /* it was told to leave its kernels */
    bool leaves;               /* and does */
    bool busy;                 /* batch `launched` is not enqueued yet, and has no event */
    struct ct_nccl_view views[CT_NCCL_VIEWS];
    int view_count;
    const struct ct_accel *device;
    void *stream, *before; /* `before`: the event that a batch begins behind */
    void *events[CT_NCCL_RING];
    uint64_t launched, done; /* batches, from 1 */
};

/* The job's; 0, or why NCCL cannot be had. */
int ct_nccl_of_job(struct ct_job *job, struct ct_nccl **ret_nccl, struct ct_error *err);

/* Stream and events; and the list. */
int ct_nccl_communicator_open(struct ct_nccl *nccl, struct ct_nccl_communicator *lane,
                              const struct ct_accel *device, struct ct_error *err);

/* Take up the library for a moment, without waiting: false when another thread has it. */
bool ct_nccl_try_lock(struct ct_nccl *nccl);
void ct_nccl_unlock(struct ct_nccl *nccl);

/* The rest of this part is called under the lock. */

/* That of all communicators: they do not block, and share nothing. */
struct ct_nccl_config ct_nccl_config(void);

/* List a lane that has no stream: a communicator that is in no use yet. Under the lock. */
void ct_nccl_communicator_list(struct ct_nccl *nccl, struct ct_nccl_communicator *lane,
                               const struct ct_accel *device);

/* Begin a communicator: of `size` ranks from `count` unique ids, the same at all; or of the ranks
 * of a `parent` at rest that give the same `colour`, in the order of `key`; with CT_NCCL_NO_COLOUR
 * none comes. Then poll; of a split the parent. */
int ct_nccl_communicator_form(struct ct_nccl *nccl, struct ct_nccl_communicator *lane, int rank,
                              int size, struct ct_nccl_id *ids, int count, struct ct_error *err);
int ct_nccl_communicator_split(struct ct_nccl *nccl, struct ct_nccl_communicator *lane,
                               struct ct_nccl_communicator *parent, int colour, int key,
                               struct ct_error *err);

/* 1: nothing that NCCL was told is in progress at its side; 0: something is; negative: it failed.
 * A batch that was busy and is no more gets its event. */
int ct_nccl_communicator_poll(struct ct_nccl *nccl, struct ct_nccl_communicator *lane,
                              struct ct_error *err);

/* Make what comes on the lane begin behind what `stream` was given; NULL: nothing. */
int ct_nccl_communicator_follow(struct ct_nccl_communicator *lane, void *stream);

/* A batch was issued with this result: number it. */
int ct_nccl_communicator_launched(struct ct_nccl *nccl, struct ct_nccl_communicator *lane,
                                  int result, struct ct_error *err);

/* Raise the flags of its kernels, if this NCCL can and they are not raised. */
void ct_nccl_communicator_revoke(struct ct_nccl *nccl, struct ct_nccl_communicator *lane);

/* Without the lock: look which batches are over. 0, or the device's failure. */
int ct_nccl_communicator_query(struct ct_nccl_communicator *lane, struct ct_error *err);

/* ---- the end ---------------------------------------------------------------------------------*/

struct ct_nccl_end {
    struct ct_nccl *nccl;
    struct ct_nccl_communicator *lanes; /* of one group */
    int count;
    bool healthy; /* nothing failed and nothing is under way: finish in order, then abort */
    bool all;     /* the round is over: every communicator of the job goes */
};

/* Poll until nothing is in progress there. True: it is at rest, well. */
bool ct_nccl_comes_to_rest(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm,
                           uint64_t patience_ms);

/* Give communicators, streams and events back, on a thread of its own. A library that does not
 * return within its patience (CTRUN_NCCL_ABORT_MS, 10 s) can neither be used again nor be left:
 * then this process is given up (ct_job_give_up). Where that returns, which tests make it do:
 * false, and the lanes stay the library's. */
bool ct_nccl_communicators_end(struct ct_job *job, const struct ct_nccl_end *how);

#endif
