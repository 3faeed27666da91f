/* What all ranks must have in common, compared over the group. Collective calls; each does nothing
 * in a world of one. When they fail, they fail on every rank with the same sentence. */
#ifndef CT_WORKER_AGREE_H
#define CT_WORKER_AGREE_H

#include "worker.h"

/* Hash the data, once. */
void ct_agree_prepare(struct ct_worker *worker);

/* Same configuration and same data everywhere, before the first step. CT_EMISMATCH names a rank
 * that differs and in what. (The program's hash is compared by ct_exec_new.) */
int ct_agree_inputs(struct ct_worker *worker, struct ct_error *err);

/* Same parameters and moments everywhere. CT_EDIVERGED names a rank that differs and the step. */
int ct_agree_replicas(struct ct_worker *worker, struct ct_error *err);

#endif
