/* Setup: from the configuration and the job's assignment to an executor that can run steps. */
#ifndef CT_WORKER_SETUP_H
#define CT_WORKER_SETUP_H

#include "worker/worker.h"

/* Load the data, plan the step, make group and executor, compare the inputs of all ranks, and
 * continue from a checkpoint if there is one. Needs cfg, log, clock, job, me and stop; from before
 * its first thread on, SIGTERM and SIGINT are requests to stop. On failure the worker is
 * half-built; ct_setup_undo is needed in any case. */
int ct_setup(struct ct_worker *worker, struct ct_error *err);
void ct_setup_undo(struct ct_worker *worker);

#endif
