/* Comparison of what all ranks must have in common. Collective calls; each does nothing in a world
 * of size 1. When they fail, they fail on every rank with the same sentence. */
#ifndef CT_WORKER_AGREE_H
#define CT_WORKER_AGREE_H

#include "worker.h"

/* Hash the data, once. */
void ct_agree_prepare(struct ct_worker *worker);

/* Same configuration and same data everywhere, before the first step. CT_EMISMATCH names a rank
 * that differs and in what. (The program's hash is compared by ct_exec_new.) */
int ct_agree_inputs(struct ct_worker *worker, struct ct_error *err);

/* Of what ranks have in common (exec.h), by rank: the first rank that does not have the digest of
 * most that hold the same (that of the lowest rank, where several are as common), -1 when all are
 * equal; *ret_other is a rank that has it. *ret_shared: whether any two ranks hold the same. Pure.
 */
int ct_agree_odd(const struct ct_exec_common *all, int world, int *ret_other, bool *ret_shared);

/* Parameters, moments and averages that several ranks hold are the same on all of them, whatever
 * the layout. CT_EDIVERGED names the rank that differs from most and the step. */
int ct_agree_replicas(struct ct_worker *worker, struct ct_error *err);

/* What rank 0 did alone, with `code` and, when that is an error, its sentence in `err`: everybody
 * returns the same. The sentence is printed once. */
int ct_agree_outcome(struct ct_worker *worker, int code, struct ct_error *err);

#endif
