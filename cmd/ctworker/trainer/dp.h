/* Strategy dp: one worker whose replicas are threads (collectives/exec/replicas.h). */
#ifndef CT_TRAINER_DP_H
#define CT_TRAINER_DP_H

#include "worker.h"

/* Threads that each replica's kernels have: its share of OMP_NUM_THREADS. 0, which is all of them,
 * with any other strategy. */
int ct_dp_threads(const struct ct_config *cfg);

/* CT_ECONFIG for a job of several workers. */
int ct_dp_check(const struct ct_worker *worker, struct ct_error *err);

#endif
