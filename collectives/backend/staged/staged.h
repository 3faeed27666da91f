/* Backend staged: collectives on device memory through host memory. For ranks that share one
 * device, where no library moves its memory, and, inside backend nccl, for calls that NCCL cannot
 * make.
 *
 *     device memory               stage (host, pinned)                 host group
 *                                                                      (thread, shm, hier)
 *     send ---- copy, event ----> chunks of the call, in place ------> the same call
 *                                                                           |
 *     recv <--- copy, event ----- its result <------------------------------'
 *
 * The stage is symmetric memory of the job, so that a host group of one node uses it in place.
 * all_reduce, reduce and broadcast go in chunks, other calls whole: their stage is as large as all
 * their parts. Sums are the host's, so each mode gives the bits that it gives there. */
#ifndef CT_COLL_STAGED_H
#define CT_COLL_STAGED_H

#include "base/accel.h"
#include "group/group.h"

/* The stage of one call; collectives have one, and each peer two, one a direction. */
struct ct_stage {
    void *event;
    char *memory;        /* of the host */
    size_t bytes;        /* of it */
    bool busy;           /* the device may still be copying */
    struct ct_task task; /* of the host group */
    size_t *counts[2];   /* of a v form, packed: of its input and of its output */
    size_t *offsets[2];
};

struct ct_staged {
    struct ct_job *job;
    const struct ct_accel *device;
    struct ct_group *host; /* the same members */
    int rank, size;
    size_t chunk_bytes;
    void *stream;
    void *copied;            /* the event behind the copies to oneself */
    struct ct_stage *stages; /* collectives, then sends by peer, then receives by peer */
};

/* As the functions of a backend: prepare; connect, which makes the host group; and free, with the
 * host group, also half-built. 0, or a code with its sentence. */
int ct_staged_init(struct ct_staged *staged, const struct ct_setup *setup, struct ct_error *err);
int ct_staged_connect(struct ct_staged *staged, const struct ct_setup *setup, struct ct_error *err);
void ct_staged_deinit(struct ct_staged *staged);

/* ---- one call and its stage (staged_copy.c) ---- */

/* Return whether calls of this kind can go chunk by chunk: one run of elements, the same at all. */
bool ct_staged_is_chunked(enum ct_call_kind kind);

/* Return the bytes of the chunk that begins at `task->at`; and the bytes of stage that it needs, or
 * that a call without chunks needs. */
size_t ct_staged_chunk_bytes(const struct ct_staged *staged, const struct ct_task *task);
size_t ct_staged_bytes(const struct ct_staged *staged, const struct ct_task *task);

/* Queue copies in the stream. 0 or the device's code. */
int ct_staged_put(struct ct_staged *staged, void *to, const void *from, size_t bytes);
int ct_staged_copy_in(struct ct_staged *staged, struct ct_stage *stage, const struct ct_task *task);
int ct_staged_copy_out(struct ct_staged *staged, struct ct_stage *stage,
                       const struct ct_task *task);

/* Set `stage->task` to the same call of the host group, on the stage. */
void ct_staged_make_call(struct ct_staged *staged, struct ct_stage *stage,
                         const struct ct_task *task);

/* ---- as the functions of a backend ---- */

int ct_staged_progress(struct ct_staged *staged, struct ct_task *task, struct ct_error *err);
int ct_staged_missing(const struct ct_staged *staged, const struct ct_task *task);
void ct_staged_fail(struct ct_staged *staged, int code);
void ct_staged_wake(struct ct_staged *staged);
void ct_staged_revoke(struct ct_staged *staged);
uint32_t ct_staged_arm(struct ct_staged *staged);
void ct_staged_park(struct ct_staged *staged, uint32_t armed, uint64_t timeout_ns);
int ct_staged_copy(struct ct_staged *staged, void *to, const void *from, size_t bytes,
                   void *stream);
int ct_staged_copied(struct ct_staged *staged);

#endif
