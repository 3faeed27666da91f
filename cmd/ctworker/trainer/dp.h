/* Strategy dp: one worker whose replicas are threads (collectives/exec/replicas.h). */
#ifndef CT_TRAINER_DP_H
#define CT_TRAINER_DP_H

#include "worker/worker.h"

/* Return the kernel threads of each replica: its part of OMP_NUM_THREADS; 0, which is all of them,
 * with any other strategy. */
int ct_dp_threads(const struct ct_config *cfg);

/* Check that the job has one worker. 0 or CT_ECONFIG. */
int ct_dp_check(const struct ct_worker *worker, struct ct_error *err);

#endif
