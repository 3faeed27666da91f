/* Evaluation: loss and accuracy on the held-out data. */
#ifndef CT_WORKER_EVALUATE_H
#define CT_WORKER_EVALUATE_H

#include "worker.h"

/* Every rank evaluates its share of every batch; the sums are added over the group. Collective;
 * the same result on every rank. Needs worker->eval.rows > 0. */
int ct_evaluate(struct ct_worker *worker, struct ct_evaluation *ret, struct ct_error *err);

#endif
