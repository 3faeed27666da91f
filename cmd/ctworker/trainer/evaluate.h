/* Evaluation: loss and accuracy on the held-out data. */
#ifndef CT_WORKER_EVALUATE_H
#define CT_WORKER_EVALUATE_H

#include "worker/worker.h"

/* Evaluate: each rank its part of every batch; the sums are reduced over the group. Collective; the
 * same result on every rank. Needs worker->eval.rows > 0. */
int ct_evaluate(struct ct_worker *worker, struct ct_evaluation *ret, struct ct_error *err);

#endif
