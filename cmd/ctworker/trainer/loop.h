/* The training loop. */
#ifndef CT_WORKER_LOOP_H
#define CT_WORKER_LOOP_H

#include "worker/worker.h"

/* Train from worker->step to worker->steps, or until a stop is requested (*ret_stopped): steps,
 * metrics, replica checks, evaluations, checkpoints, each at the interval of its key. Evaluates and
 * saves after the last step; saves after a stop. 0, CT_EREVOKED at a step boundary where the round
 * ends, or the first failure; parameters are then those of the last completed step. */
int ct_loop_run(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err);

#endif
