/* A checkpoint in progress.
 *
 *   start     the bytes that this rank writes are copied; training pauses for this only
 *             rank 0 begins the files
 *   between   they go to disk, with checkpoint.async on an own thread; training continues
 *   end       [ranks exchange their results]
 *             rank 0 gives the folder its name
 *
 * Modes of writing:
 *   alone    each rank holds all: rank 0 writes all
 *   parts    ranks hold shards, and see the same folder: each writes its own
 *   gather   they do not: rank 0 gathers all shards and writes
 * Whether they see the same folder is tested once a round: rank 0 makes a file there, and each rank
 * writes a byte into it.
 *
 * Where ranks hold shards, start and end are collective, and all are at the same point: the step's
 * reduction counts the ranks that have written (ct_saving_is_written), and they end it when all
 * have. */
#ifndef CT_TRAINER_SAVING_H
#define CT_TRAINER_SAVING_H

#include "portion.h"

#include <pthread.h>
#include <stdatomic.h>

struct ct_worker;

enum ct_saving_mode {
    CT_SAVING_UNKNOWN,
    CT_SAVING_ALONE,
    CT_SAVING_PARTS,
    CT_SAVING_GATHER,
};

struct ct_saving {
    bool active;              /* one is being written */
    bool first;               /* by rank 0, which began it */
    enum ct_saving_mode mode; /* of this round */
    struct ct_ckpt_save save;
    struct ct_ckpt_file files[CT_SNAPSHOT_MAX_FILES]; /* their names */
    struct ct_ckpt_places places;
    struct ct_portion portion;
    bool writes; /* this rank has bytes to write, or is rank 0 */

    pthread_t thread;
    bool threaded;      /* it is to be joined */
    atomic_bool cancel; /* to the thread */
    atomic_bool done;   /* from it: code, why and shares are set */
    int code;
    struct ct_error why;
    struct ct_ckpt_shares shares;
};

/* Begin a round, which may need another mode. */
void ct_saving_enter(struct ct_saving *saving);

/* Begin to write the present state as `save` says; none is active. With `async` only the copy is
 * made before this returns. 0, or a code; rank 0 has the sentence of a failure that is not the
 * group's. */
int ct_saving_start(struct ct_worker *worker, const struct ct_ckpt_save *save, bool async,
                    struct ct_error *err);

/* Return whether this rank has written all of its bytes. */
bool ct_saving_is_written(const struct ct_saving *saving);

/* Return the bytes of all tensors' files of the active one. */
uint64_t ct_saving_bytes(const struct ct_saving *saving);

/* Wait for the writers; then rank 0 has a checkpoint that readers do not see yet, and its digest.
 * Fails as ct_saving_start. */
int ct_saving_end(struct ct_worker *worker, uint64_t *ret_digest, struct ct_error *err);

/* Discard the checkpoint in progress. Not collective. */
void ct_saving_discard(struct ct_saving *saving);
void ct_saving_deinit(struct ct_saving *saving);

#endif
