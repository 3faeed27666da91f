/* Backends: how a group's bytes move. Each is a const table of functions; the group (group.c) owns
 * requests, order, deadlines and revocation, so that a backend only has to advance.
 *
 *   group.c               backend of rank 0 .. size - 1
 *   suits?                the same answer at all members, from what all know
 *   prepare               get ready to be found: make a segment, listen      no waiting
 *      exchange of blobs  through the store
 *   connect               map the segment, connect and be connected          waits, to a deadline
 *      exchange of results; one failure anywhere: the next backend of the table
 *   settle                all members are connected
 *   progress ...          the group's thread
 *   close
 *
 * No function but `connect` and `park` blocks. One thread at a time calls, but for `revoke` and
 * `wake`. */
#ifndef CT_COLL_BACKEND_H
#define CT_COLL_BACKEND_H

#include "call.h"
#include "job.h"

#include <stdatomic.h>

/* What a member tells the others about itself while the group forms. */
enum { CT_BLOB_BYTES = 384 };
struct ct_blob {
    unsigned char data[CT_BLOB_BYTES];
};

/* Sizes at which algorithms change; tests make them tiny. Zero: the default that is given. */
struct ct_tuning {
    size_t local_chunk_bytes;  /* what a rank stages in one round; 512 KiB */
    size_t local_stage_bytes;  /* all that a rank stages until it begins anew; 2 MiB */
    size_t local_flat_bytes;   /* an all_reduce up to this is reduced whole by each rank; 32 KiB */
    size_t local_ring_bytes;   /* a slot of a send/recv ring; 64 KiB */
    size_t local_direct_bytes; /* from this size on symmetric memory is used where it is; 8 KiB */
    size_t tcp_block_bytes;    /* what a rank sends to another in one phase; 512 KiB */
    size_t tcp_flat_bytes;     /* an all_reduce up to this goes to everyone whole; 16 KiB */
    size_t tcp_chain_bytes;    /* a broadcast above this goes through a chain; 256 KiB */
    int tcp_direct_world;      /* FAST: up to this many ranks talk each to each; 8 */
    int tcp_rails;             /* connections that share the collectives of a pair; 1 */
    size_t tcp_rail_bytes;     /* what is worth a rail of its own; 32 KiB */
    size_t hier_small_bytes;   /* up to this each column carries all of it; 16 KiB */
    size_t
        hier_piece_bytes; /* a piece that moves on one level while others do on the other; 4 MiB */
    bool inner;           /* a part of another group: nobody watches it */
};

struct ct_setup {
    struct ct_job *job;
    const char *key; /* unique to this group in the round: "world/1" */
    int rank, size;  /* in the group */
    const int *ranks;
    uint64_t deadline_ns; /* of the creation */
    bool encrypt;         /* what leaves the node, or may */
    struct ct_tuning tuning;

    const char *backend; /* the one that is tried */
    bool automatic;      /* nobody asked for it by name */
    /* To be asked now and then by who waits for others while it connects: 0, or the failure of a
     * member that will not come. NULL: nobody tells. */
    int (*failed_elsewhere)(const struct ct_setup *setup, struct ct_error *err);
};

/* An operation under way. `at` and below are the backend's own, zero at the start. */
struct ct_task {
    struct ct_call call;
    struct ct_signature signature;
    uint64_t moves; /* the backend raises it at each advance, so that waiting can be told apart */
    size_t at;
    size_t part;
    size_t skipped;
    int stage, path;
};

struct ct_backend {
    const char *name;

    bool (*suits)(const struct ct_setup *setup);
    int (*prepare)(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err);
    int (*connect)(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                   struct ct_error *err);
    void (*settle)(void *state);

    /* Advance `task`: 1 complete, 0 not yet, negative: failed, with the sentence. Collectives come
     * one after the other; sends and receives one at a time for each peer and direction. */
    int (*progress)(void *state, struct ct_task *task, struct ct_error *err);

    /* How often to look before a waiter gives its core to others. */
    int (*spins)(const void *state);

    /* Sleep until something may have changed: arm, progress once more, park. A timeout of 0 takes
     * the arming back. */
    uint32_t (*arm)(void *state);
    void (*park)(void *state, uint32_t armed, uint64_t timeout_ns);

    /* A member that `task` waits for; -1 when not known. */
    int (*missing)(void *state, const struct ct_task *task);

    /* The group failed here with `code`: tell the others if they can be told. */
    void (*fail)(void *state, int code);

    /* Any thread: end a park that is under way, or the next one. NULL: no call stays open. */
    void (*wake)(void *state);

    /* Any thread: make every member's operations end with CT_EREVOKED, as far as they share memory
     * with this one. NULL: they do not; this member sees it by itself, and tells by `fail`. */
    void (*revoke)(void *state);

    /* Free the state, whatever it has come to. */
    void (*close)(void *state);
};

extern const struct ct_backend ct_backend_self, ct_backend_thread, ct_backend_shm, ct_backend_hier,
    ct_backend_ucx, ct_backend_tcp;

#endif
