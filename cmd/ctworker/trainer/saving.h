/* A checkpoint in progress.
 *
 *   start     the bytes that this rank writes are copied: the training's pause
 *             rank 0 begins the files
 *   between   they go to disk, with checkpoint.async on a thread of their own, and training goes on
 *   end       [ranks exchange their results]
 *             rank 0 gives the folder its name
 *
 * Which rank writes what:
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

enum ct_saving_way {
    CT_SAVING_UNKNOWN,
    CT_SAVING_ALONE,
    CT_SAVING_PARTS,
    CT_SAVING_GATHER,
};

struct ct_saving {
    bool active;            /* one is being written */
    bool first;             /* by rank 0, which began it */
    enum ct_saving_way way; /* of this round */
    struct ct_ckpt_save save;
    struct ct_ckpt_file files[CT_SNAPSHOT_MAX_FILES]; /* their names */
    struct ct_ckpt_places places;
    struct ct_portion portion;
    bool writes; /* this rank has something to write, or is rank 0 */

    pthread_t thread;
    bool threaded;      /* it is to be joined */
    atomic_bool cancel; /* to the thread */
    atomic_bool done;   /* from it: code, why and shares are set */
    int code;
    struct ct_error why;
    struct ct_ckpt_shares shares;
};

/* A round begins: ways may be others. */
void ct_saving_enter(struct ct_saving *saving);

/* Begin to write the present state as `save` says; none is active. With `async` only the copy is
 * made before this returns. A failure that is not the group's is rank 0's to tell. */
int ct_saving_start(struct ct_worker *worker, const struct ct_ckpt_save *save, bool async,
                    struct ct_error *err);

/* Has this rank written what it had to? */
bool ct_saving_is_written(const struct ct_saving *saving);

/* Wait for the writers; then rank 0 has a checkpoint that readers do not see yet, and its digest.
 * As ct_saving_start fails. */
int ct_saving_end(struct ct_worker *worker, uint64_t *ret_digest, struct ct_error *err);

/* Forget it. Not collective. */
void ct_saving_drop(struct ct_saving *saving);
void ct_saving_deinit(struct ct_saving *saving);

#endif
