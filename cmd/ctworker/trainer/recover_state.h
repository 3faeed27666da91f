/* State recovery: at the start of a round every rank gets the state of the most advanced survivor.
 *
 *   gather    what each rank holds: lineage, step, digest of its state
 *   base      of those whose lineage is the job's, the one at the highest step (lowest rank)
 *   give      on any difference: step, position and the state itself, from the base to all
 *   verify    equal digests everywhere
 *
 * Survivors differ by at most one step: a rank completes a step only when all have done their part
 * of it. So at most the step in flight is repeated. */
#ifndef CT_CTWORKER_TRAINER_RECOVER_STATE_H
#define CT_CTWORKER_TRAINER_RECOVER_STATE_H

#include "collectives/job/state_recovery.h"
#include "worker.h"

/* What the trainer adds to a holding. */
enum {
    CT_HELD_SETTLED, /* own[]: what follows a step (evaluation, checkpoint) is done up to this one
                      */
    CT_HELD_MARKS,   /* own[]: bits: */
    CT_HELD_WRITES = 1,  /* it has written the metrics so far */
    CT_HELD_TRAINED = 2, /* it has the result of its last step */
};

/* Is what follows the base's step to be done again? When somebody has not done it yet, or who wrote
 * it down is gone. */
bool ct_state_recovery_redo(const struct ct_holding *all, int world, int base);

/* Collective. *ret_found is false when nobody holds the state that the assignment speaks of; then
 * nothing has changed. CT_EDIVERGED names a rank. On any failure the copy in worker->carry, if
 * there is one, is still this rank's state. */
int ct_state_recovery(struct ct_worker *worker, bool *ret_found, struct ct_error *err);

#endif
