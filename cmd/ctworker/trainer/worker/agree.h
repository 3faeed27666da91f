/* Comparison of the inputs and state that all ranks must have in common. Collective calls; each
 * does nothing in a world of size 1. A failure is the same on every rank, with the same
 * sentence. */
#ifndef CT_WORKER_AGREE_H
#define CT_WORKER_AGREE_H

#include "worker.h"

/* Hash the data, at the first call. */
void ct_agree_prepare(struct ct_worker *worker);

/* Check that all ranks have the same configuration and data, before the first step. 0, or
 * CT_EMISMATCH that names a rank and the difference. (ct_exec_new compares the program's hash.) */
int ct_agree_inputs(struct ct_worker *worker, struct ct_error *err);

/* Return the first rank whose digest (exec.h) differs from that of most ranks that hold the same
 * kind of state (that of the lowest rank, where several are as common); -1 if all are equal.
 * *ret_other is a rank with the common digest. *ret_shared: whether any two ranks hold the same
 * kind. Pure. */
int ct_agree_odd(const struct ct_exec_common *all, int world, int *ret_other, bool *ret_shared);

/* Check that parameters, moments and averages that several ranks hold are the same on all of them,
 * in any layout. 0, or CT_EDIVERGED that names the rank that differs from most, and the step. */
int ct_agree_replicas(struct ct_worker *worker, struct ct_error *err);

/* Broadcast the result of work that rank 0 did alone: `code` and, for an error, its sentence in
 * `err`. All ranks return it; the sentence is printed once. */
int ct_agree_outcome(struct ct_worker *worker, int code, struct ct_error *err);

/* Broadcast rank 0's `*word`. Collective; a worker without a group, beside servers, keeps its own.
 * 0, or the code of the group. */
int ct_agree_word(struct ct_worker *worker, int64_t *word, struct ct_error *err);

#endif
