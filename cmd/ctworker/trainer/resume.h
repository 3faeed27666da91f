/* The choice of the checkpoint that a training continues from. */
#ifndef CT_WORKER_RESUME_H
#define CT_WORKER_RESUME_H

#include "worker.h"

/* Go on from what checkpoint.resume names, if anything: rank 0 looks, loads and gives step,
 * position, parameters and moments to all. A job that has published a checkpoint goes on from
 * exactly that one, whatever checkpoint.resume says; without such knowledge a restart goes on from
 * this run's own newest. Collective; when rank 0 fails, all ranks fail with
 * its code. */
int ct_resume(struct ct_worker *worker, struct ct_error *err);

#endif
