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

/* The first rank that does not have the digest of most ranks (that of the lowest rank, where
 * several are as common), -1 when all are equal; *ret_common is a rank that has it. Pure. */
int ct_agree_odd(const uint64_t *digests, int world, int *ret_common);

/* Same parameters and moments everywhere. CT_EDIVERGED names the rank that differs from most and
 * the step. */
int ct_agree_replicas(struct ct_worker *worker, struct ct_error *err);

#endif
