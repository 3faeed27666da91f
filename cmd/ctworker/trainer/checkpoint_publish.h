/* Publication of checkpoints; done by rank 0, except at the end.
 *
 *   save        being written (saving.h)
 *     v
 *   written     complete, visible to nobody
 *     v         the next step is completed, or a later round started from it: all ranks have it
 *   asked       training goes on, also while the rendezvous is away
 *     v         yes: `latest` moves        no: one line in the log, `latest` stays
 *   published
 *
 * One is in progress at a time: a newer one replaces it. A request without an answer when its round
 * ended is repeated in the next one. */
#ifndef CT_CTWORKER_TRAINER_CHECKPOINT_PUBLISH_H
#define CT_CTWORKER_TRAINER_CHECKPOINT_PUBLISH_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_worker;

struct ct_publication {
    bool written; /* there is one on its way */
    bool asked;
    uint64_t step;
    uint64_t digest;
    uint64_t generation; /* of the round that wrote it */
};

/* Write a checkpoint of the present step unless it is there; collective where ranks hold parts.
 * With checkpoint.async it is on its way when this returns. A failure before the end of the
 * training is one line in the log, and the training goes on. */
int ct_publish_save(struct ct_worker *worker, struct ct_error *err);

/* Wait until none is being written. Likewise. */
int ct_publish_await(struct ct_worker *worker, struct ct_error *err);

/* After a step: end what is written, ask what can be asked, take the answer that has come.
 * Likewise.
 */
int ct_publish_advance(struct ct_worker *worker, struct ct_error *err);

/* A round begins; `found`: from the state of a survivor. One that a rank writes alone goes on. */
void ct_publish_enter(struct ct_worker *worker, bool found);

/* The last step is completed: all ranks wait until it is published. CT_EREVOKED: the round ended
 * before. */
int ct_publish_finish(struct ct_worker *worker, struct ct_error *err);

/* A clean stop: save, ask, and wait a little. Parts are saved before, when all
 * ranks agree to stop (parts.h). */
int ct_publish_stop(struct ct_worker *worker, struct ct_error *err);

#endif
