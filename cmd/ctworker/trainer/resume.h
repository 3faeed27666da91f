/* Checkpoints of a training: where it goes on from, and saving it. */
#ifndef CT_WORKER_RESUME_H
#define CT_WORKER_RESUME_H

#include "worker.h"

/* Go on from what checkpoint.resume names, if anything: rank 0 looks, loads and gives step,
 * position, parameters and moments to all. A restart of the job goes on from this run's own newest
 * checkpoint, whatever checkpoint.resume says. Collective; when rank 0 fails, all ranks fail with
 * its code. */
int ct_resume(struct ct_worker *worker, struct ct_error *err);

/* Rank 0 saves the state of the last completed step; others do nothing. Nothing happens without
 * checkpoint.dir, or when this step is saved already. */
int ct_resume_save(struct ct_worker *worker, struct ct_error *err);

#endif
