/* Backends: how a group's bytes move. Each is a const table of functions; the group (group.c) owns
 * requests, order, deadlines and revocation, so that a backend only has to advance.
 *
 *   group.c               backend of rank 0 .. size - 1
 *   suits?                the same answer at all members, from common knowledge
 *   prepare               become reachable: make a segment, listen           no waiting
 *      exchange of blobs  through the store
 *   connect               map the segment, connect and be connected          waits, to a deadline
 *      exchange of results; one failure anywhere: the next backend of the table
 *   finish_setup          all members are connected
 *   progress ...          the group's thread
 *   close
 *
 * Only `connect`, `park`, `split` and `register_memory` block. One thread at a time calls, except
 * `revoke` and `wake`. */
#ifndef CT_COLL_H
#define CT_COLL_H

#include "algorithm/call.h"
#include "algorithm/select.h"
#include "job/job.h"

#include <stdatomic.h>

/* The data that a member publishes about itself while the group forms. */
enum { CT_BLOB_BYTES = 384 };
struct ct_blob {
    unsigned char data[CT_BLOB_BYTES];
};

struct ct_table; /* tuning.h */

struct ct_setup {
    struct ct_job *job;
    const char *key;               /* unique to this group in the round: "world/1" */
    const struct ct_group *parent; /* the group that it is split from, by ct_group_split; or NULL */
    int rank, size;                /* in the group */
    const int *ranks;
    uint64_t deadline_ns;          /* of the creation */
    bool encrypt;                  /* data that leaves the node, or may */
    const struct ct_accel *device; /* where the buffers lie; NULL: in the host's memory */
    const struct ct_tuning *given; /* by the caller, for sub-groups */
    const struct ct_table *table;  /* of the machine of member 0 */
    struct ct_tuning tuning;       /* the result of both, for the backend that is tried */

    const char *backend; /* the one that is tried */
    int attempt;         /* how many were tried before */
    bool automatic;      /* it was not requested by name */
    /* Polled now and then by a member that waits for others while it connects: 0, or the failure of
     * a member that will not arrive. NULL: none. */
    int (*failed_elsewhere)(const struct ct_setup *setup, struct ct_error *err);
};

/* Return whether a member over a network connects with `peer` while the group forms: with all in a
 * small group, else with its neighbours in the ring, so that each has been reached, and has reached
 * another one. Other pairs connect when a call first needs it. */
static inline bool ct_setup_begins_with(const struct ct_setup *setup, int peer)
{
    int ahead = (peer - setup->rank + setup->size) % setup->size;

    return (size_t)setup->size <= setup->tuning.tcp_direct_world || ahead == 1 ||
           ahead == setup->size - 1;
}

/* An operation under way. `at` and below are the backend's own, zero at the start. */
struct ct_task {
    struct ct_call call;
    struct ct_signature signature;
    uint64_t moves; /* the backend increments it at each advance, so that waiting is detected */
    size_t at;
    size_t part;
    size_t skipped;
    int stage, path;
    enum ct_algorithm algorithm; /* of a collective, once it has begun */
    bool queued;                 /* the backend keeps its own order: later calls need not wait */
};

/* A small blocking all_reduce, or a barrier: the needed fields of its call. */
struct ct_small_message {
    struct ct_signature signature;
    const char *send;
    char *recv;
    size_t bytes; /* CT_SMALL_MESSAGE_BYTES at most; 0: a barrier */
    enum ct_dtype dtype;
    enum ct_reduce reduce;
    enum ct_reduce_mode mode;
};
enum { CT_SMALL_MESSAGE_BYTES = 32 };

struct ct_backend {
    const char *name;
    bool on_device; /* its groups' buffers lie in the memory of a device */
    bool batches;   /* sends and receives that are open when a call waits or tests are issued
                     * together, none before; there is no helper */

    bool (*suits)(const struct ct_setup *setup);
    int (*prepare)(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err);
    int (*connect)(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                   struct ct_error *err);
    void (*finish_setup)(void *state);

    /* Advance `task`: 1 complete, 0 not yet, negative: failed, with the sentence. Collectives come
     * one after the other; sends and receives one at a time for each peer and direction. */
    int (*progress)(void *state, struct ct_task *task, struct ct_error *err);

    /* NULL, or the small-message fast path, for a call that is the only one open (small_message.h).
     * `post`: notify the others; false: not now, nothing has been done. `collect`, after it: true
     * when all others are found within a short while, in the same call, which is complete then;
     * false: the task of it comes next, with its first step done. */
    bool (*post)(void *state, const struct ct_small_message *message);
    bool (*collect)(void *state, const struct ct_small_message *message);

    /* NULL, or answer members that connect with this one, although no call of this group is under
     * way: for a backend that is made of groups. `progress` does so, too. 0, or an error. */
    int (*tend)(void *state, struct ct_error *err);

    /* How often to poll before a waiter yields its core to others. */
    int (*spins)(const void *state);

    /* Sleep until something may have changed: arm, progress once more, park. A timeout of 0 takes
     * the arming back. */
    uint32_t (*arm)(void *state);
    void (*park)(void *state, uint32_t armed, uint64_t timeout_ns);

    /* Return a member that `task` waits for; -1 when not known. */
    int (*missing)(void *state, const struct ct_task *task);

    /* The group failed here with `code`: notify the others if they can be reached. */
    void (*fail)(void *state, int code);

    /* Any thread: end the current park, or the next one. NULL: no call stays open. */
    void (*wake)(void *state);

    /* Any thread: make every member's operations end with CT_EREVOKED, as far as they share memory
     * with this one. NULL: they do not; this member notices it by itself, and notifies by
     * `fail`. */
    void (*revoke)(void *state);

    /* Free the state, also half-built. */
    void (*close)(void *state);

    /* ---- of backends on a device; NULL at the others ---- */

    /* Return the group, of the same members, for buffers in host memory. */
    struct ct_group *(*host)(const void *state);

    /* Copy within this member's memory, after the work queued on `stream`; done when `copied`
     * returns 1. */
    int (*copy)(void *state, void *to, const void *from, size_t bytes, void *stream);
    int (*copied)(void *state);

    /* NULL, or prepare a split: all members call it before the parts form, while no call is under
     * way. With CT_NO_COLOUR a member is in no part. A part of several members may then find (by
     * ct_setup.parent) what this has prepared for it, or must do without. Waits, to the
     * deadline. */
    int (*split)(void *state, int colour, int key, uint64_t deadline_ns, struct ct_error *err);

    /* NULL, or register memory of ct_mem_alloc_on, as large at all members; called likewise. */
    int (*register_memory)(void *state, void *memory, uint64_t deadline_ns, struct ct_error *err);
};

extern const struct ct_backend ct_backend_self, ct_backend_thread, ct_backend_mpi, ct_backend_shm,
    ct_backend_hier, ct_backend_ucx, ct_backend_tcp, ct_backend_nccl, ct_backend_staged;

#endif
