/* State recovery: at the start of a round every rank gets the state of the most advanced survivor.
 *
 *   gather    what each rank holds: lineage, step, digest of its state
 *   base      of those whose lineage is the job's, the one at the highest step (lowest rank)
 *   broadcast on any difference: step, position and the state itself, from the base to all
 *   verify    equal digests everywhere
 *
 * Survivors differ by at most one step: a rank completes a step only when all have done their part
 * of it. So at most the step in flight is repeated. */
#ifndef CT_CTWORKER_TRAINER_RECOVER_STATE_H
#define CT_CTWORKER_TRAINER_RECOVER_STATE_H

#include "collectives/job/state_recovery.h"
#include "worker/worker.h"

/* The trainer's own fields of a holding. */
enum {
    CT_HELD_COMPLETED, /* own[]: what follows a step (evaluation, checkpoint) is done up to this one
                      */
    CT_HELD_MARKS,     /* own[]: bits: */
    CT_HELD_WRITES = 1,  /* it has written the metrics so far */
    CT_HELD_TRAINED = 2, /* it has the result of its last step */
};

/* Return whether the work after the base's step (evaluation, checkpoint) must be repeated: some
 * rank has not done it yet, or the rank that recorded it is gone. */
bool ct_state_recovery_redo(const struct ct_holding *all, int world, int base);

/* Recover the state. *ret_found is false if no rank holds the state of the assignment; then nothing
 * has changed. Collective. 0, or CT_EDIVERGED that names a rank, or the code of the group. After a
 * failure the copy in worker->carry, if there is one, is still this rank's state. */
int ct_state_recovery(struct ct_worker *worker, bool *ret_found, struct ct_error *err);

#endif
