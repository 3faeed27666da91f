/* Communicators of a process, from creation to abort.
 *
 *     absent --form, split--> forming --poll--> ready <--> busy      a call has returned InProgress
 *                                |               |          |
 *                                +---------------+----------+--> aborted, or freed
 *
 * All communicators of a job are listed, for two reasons: calls on different communicators of one
 * device must not come from two threads at once, so that each call here is made under the job's
 * lock; and when a round is over all of them have to be aborted together, because freeing one may
 * wait for the device, which another one's kernel keeps busy.
 *
 * Each has a stream of its own: its work completes in order. Batch n is over when its event is; at
 * most RING are in flight. */
#ifndef CT_COLL_NCCL_COMMUNICATOR_H
#define CT_COLL_NCCL_COMMUNICATOR_H

#include "backend/nccl/nccl_library.h"
#include "backend/nccl/nccl_memory.h"
#include "base/accel.h"
#include "job/job.h"

#include <pthread.h>

struct ct_nccl_communicator;

/* One per job, made by the first group that needs it. */
struct ct_nccl {
    struct ct_nccl_library lib;
    pthread_mutex_t lock; /* of all calls of the library, and of the list */
    struct ct_nccl_communicator *communicators;
    struct ct_nccl_memory *memories;
    struct ct_nccl_kept *kept; /* communicators that the next round may shrink; nccl_kept.h */
    bool hung;                 /* a call has not returned: it is never freed */
};

enum { CT_NCCL_RING = 64 };

struct ct_nccl_communicator {
    struct ct_nccl_communicator *next;
    struct ct_nccl_comm *comm; /* NULL: none, or none any more */
    bool aborted;              /* by another group, as the round ended */
    bool revoked;              /* its kernels were told to return */
    bool leaves;               /* and does */
    bool busy;                 /* batch `launched` is not enqueued yet, and has no event */
    struct ct_nccl_view views[CT_NCCL_VIEWS];
    int view_count;
    const struct ct_accel *device;
    void *stream, *before; /* `before`: the event that a batch begins behind */
    void *events[CT_NCCL_RING];
    uint64_t launched, done; /* batches, from 1 */
};

/* Get the job's, or make it. 0, or a code with the sentence why NCCL cannot be used. */
int ct_nccl_of_job(struct ct_job *job, struct ct_nccl **ret_nccl, struct ct_error *err);

/* Make stream and events, and list the communicator. 0, or a code with its sentence. */
int ct_nccl_communicator_open(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                              const struct ct_accel *device, struct ct_error *err);

/* Lock the library without waiting: false when another thread has it. */
bool ct_nccl_try_lock(struct ct_nccl *nccl);
void ct_nccl_unlock(struct ct_nccl *nccl);

/* The functions of the rest of this part are called under the lock. */

/* Return the config of all communicators: they do not block, and share no resources. */
struct ct_nccl_config ct_nccl_config(void);

/* List a communicator that has no stream and is not in use yet. */
void ct_nccl_communicator_list(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                               const struct ct_accel *device);

/* Begin to form a communicator: of `size` ranks from `count` unique ids, the same at all; or of the
 * ranks of an idle `parent` that give the same `colour`, in the order of `key`; with
 * CT_NCCL_NO_COLOUR none is made. Then poll; after a split the parent. 0, or a code with its
 * sentence. */
int ct_nccl_communicator_form(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                              int rank, int size, struct ct_nccl_id *ids, int count,
                              struct ct_error *err);
int ct_nccl_communicator_split(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                               struct ct_nccl_communicator *parent, int colour, int key,
                               struct ct_error *err);

/* Poll NCCL's progress. 1: no call is in progress; 0: one is; negative: it failed. A batch whose
 * call has completed gets its event. */
int ct_nccl_communicator_poll(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                              struct ct_error *err);

/* Let later work of the communicator wait for the work queued on `stream`; NULL: do nothing. */
int ct_nccl_communicator_follow(struct ct_nccl_communicator *communicator, void *stream);

/* Number a batch that was issued with this result. 0, or a code with its sentence. */
int ct_nccl_communicator_launched(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                                  int result, struct ct_error *err);

/* Revoke it: let its kernels return, if this NCCL can; once. */
void ct_nccl_communicator_revoke(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator);

/* Without the lock: query which batches are over. 0, or the device's failure. */
int ct_nccl_communicator_query(struct ct_nccl_communicator *communicator, struct ct_error *err);

/* ---- the end ---------------------------------------------------------------------------------*/

struct ct_nccl_end {
    struct ct_nccl *nccl;
    struct ct_nccl_communicator *communicators; /* of one group */
    int count;
    bool healthy; /* no call failed or is under way: finalize in order, then abort */
    bool all;     /* the round is over: end every communicator of the job */
};

/* Poll until no call is in progress. Return true when it is idle and has not failed. */
bool ct_nccl_wait_idle(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm,
                       uint64_t abort_timeout_ms);

/* Free communicators, streams and events, on a thread of its own. A library that does not return
 * within the timeout (CTRUN_NCCL_ABORT_MS, 10 s) can neither be used again nor be left: then this
 * process is given up (ct_job_give_up). Where that returns, as tests make it do: false, and the
 * communicators stay the library's. */
bool ct_nccl_communicators_end(struct ct_job *job, const struct ct_nccl_end *how);

#endif
