/* A round in the trainer: world-dependent resources are made when it begins and freed when it
 * ends; the data, the state of the training and rank 0's files survive.
 *
 *   enter    batches, plan -> group -> same inputs? -> executor -> state (recover_state.h,
 *                                                                     else resume.h)
 *   steps
 *   leave    group freed -> ct_job_regroup
 *
 * Plan and executor survive when the world has the same size, and the state stays in place.
 * Otherwise the state is copied out and into the new executor.
 *
 * The state of a rank has a lineage: the round in which all ranks had it in common. It is 0 until
 * the first recovery or resume is complete. Where a recovery would overwrite another state, the
 * copy is this rank's state until it is complete: an interrupted one costs nothing. */
#ifndef CT_CTWORKER_TRAINER_TRAINING_ROUND_H
#define CT_CTWORKER_TRAINER_TRAINING_ROUND_H

#include "worker/worker.h"

/* Enter the round of worker->me, after ct_setup. Collective. 0, or a code with its sentence. */
int ct_round_enter(struct ct_worker *worker, struct ct_error *err);

/* Leave it and wait for the next one, which worker->me is then. 0, or CT_ECLOSED when there is no
 * further one. */
int ct_round_leave(struct ct_worker *worker, struct ct_error *err);

/* Copy this rank's state, unless a copy exists or there is no state. 0 or CT_ENOMEM. */
int ct_round_carry(struct ct_worker *worker, struct ct_error *err);

/* Restore this rank's state into the executor when there is no next round, so that rank 0 can save
 * it. Return false if there is none to save. */
bool ct_round_can_save(struct ct_worker *worker);

/* Free all that a round has made, also half-built. */
void ct_round_undo(struct ct_worker *worker);

#endif
