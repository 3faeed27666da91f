/* The choice of the checkpoint that a training continues from. */
#ifndef CT_WORKER_RESUME_H
#define CT_WORKER_RESUME_H

#include "worker/worker.h"

/* Continue from the checkpoint that checkpoint.resume names, if any: rank 0 finds and loads it, and
 * broadcasts step, position, parameters and moments. A job that has published a checkpoint
 * continues from exactly that one, whatever checkpoint.resume says; a restart without such
 * knowledge from this run's own newest. Collective; if rank 0 fails, all ranks fail with its
 * code. */
int ct_resume(struct ct_worker *worker, struct ct_error *err);

#endif
