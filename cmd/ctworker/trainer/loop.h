/* The training loop. */
#ifndef CT_WORKER_LOOP_H
#define CT_WORKER_LOOP_H

#include "worker.h"

/* Train from worker->step to worker->steps, or until a stop is asked for: steps, metrics, replica
 * checks, evaluations, checkpoints, each when its key says so. Evaluates and saves after the last
 * step; saves after a stop. CT_EREVOKED at a step boundary when the round is to end there.
 * *ret_stopped tells which. Returns the first failure; parameters are then those of the last
 * completed step. */
int ct_loop_run(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err);

#endif
