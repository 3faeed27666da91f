/* A round from the trainer's side: what depends on the world is made when it begins and dropped
 * when it ends; the data, the state of the training and rank 0's files live on.
 *
 *   enter    batches, plan -> group -> same inputs? -> executor -> state (heal.h, else resume.h)
 *   steps
 *   leave    group freed, state copied out -> ct_job_regroup -> the rest freed
 *
 * The state that a rank holds has a lineage: the round in which all ranks had it in common. It is 0
 * until the first heal or resume is complete. From the moment a round is left until the next heal
 * is complete the copy, not the executor, is this rank's state: a heal that is interrupted costs
 * nothing. */
#ifndef CT_WORKER_ROUND_H
#define CT_WORKER_ROUND_H

#include "worker.h"

/* Take part in the round of worker->me. Collective. Needs what ct_setup makes before. */
int ct_round_enter(struct ct_worker *worker, struct ct_error *err);

/* Leave it and wait for the next one: 0 when worker->me is that. CT_ECLOSED when there is none any
 * more. */
int ct_round_leave(struct ct_worker *worker, struct ct_error *err);

/* There is no next round: let the executor hold this rank's state once more, so that rank 0 can
 * save it. False when there is none to save. */
bool ct_round_can_save(struct ct_worker *worker);

/* Free all that a round made, whole or half. */
void ct_round_undo(struct ct_worker *worker);

#endif
