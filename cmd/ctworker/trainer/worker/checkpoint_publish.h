/* Publication of checkpoints; done by rank 0, except at the end.
 *
 *   save        being written (saving.h)
 *     v
 *   written     complete, not visible to readers
 *     v         the next step is completed, or a later round started from it: all ranks have it
 *   asked       training continues, also while the rendezvous is away
 *     v         yes: `latest` moves        no: one line in the log, `latest` stays
 *   published
 *
 * One is in progress at a time: a newer one replaces it. A request without an answer when its round
 * ended is repeated in the next one. */
#ifndef CT_CTWORKER_TRAINER_CHECKPOINT_PUBLISH_H
#define CT_CTWORKER_TRAINER_CHECKPOINT_PUBLISH_H

#include "base/error.h"
#include "train/best.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_worker;

struct ct_publication {
    bool written; /* a checkpoint is written and not published yet */
    bool asked;
    uint64_t step;
    uint64_t digest;
    uint64_t bytes;      /* of its files */
    uint64_t generation; /* of the round that wrote it, among all of the run's */
    struct ct_best best; /* evaluation, when it was written */
};

/* Write a checkpoint of the present step unless it exists; collective where ranks hold shards. With
 * checkpoint.async it is being written when this returns. A failure before the end of the training
 * is one line in the log, and the training continues. */
int ct_publish_save(struct ct_worker *worker, struct ct_error *err);

/* Wait until none is being written. Fails likewise. */
int ct_publish_await(struct ct_worker *worker, struct ct_error *err);

/* After a step: complete a written checkpoint, request its publication when possible, receive an
 * answer that has arrived. Fails likewise. */
int ct_publish_advance(struct ct_worker *worker, struct ct_error *err);

/* Begin a round; `found`: from the state of a survivor. A checkpoint that rank 0 writes alone
 * continues. */
void ct_publish_enter(struct ct_worker *worker, bool found);

/* Wait, on all ranks, until the checkpoint of the last step is published. 0, or CT_EREVOKED: the
 * round ended before. */
int ct_publish_finish(struct ct_worker *worker, struct ct_error *err);

/* At a clean stop: save, request publication, and wait a little. Shards are saved before, when all
 * ranks agree to stop (parts.h). */
int ct_publish_stop(struct ct_worker *worker, struct ct_error *err);

#endif
