/* Skipped steps: their loss or gradient is not finite, on all ranks alike, and the executor has
 * left parameters and moments as they were. In f16 a gradient may just be too large for the scale
 * of the loss, which falls then. */
#ifndef CT_WORKER_SKIP_H
#define CT_WORKER_SKIP_H

#include "worker/worker.h"

/* Count the step just completed, and log it when it was skipped. 0, or CT_EDIVERGED with the
 * parameter's name, when train.skip_nonfinite allows no more of them in a row; those of the scale
 * do not count. */
int ct_skip_step(struct ct_worker *worker, const struct ct_exec_result *result,
                 struct ct_error *err);

#endif
