/* Each worker's share of this machine: the number of workers, their GPUs, CPUs, threads. */
#ifndef CT_CTRUN_AGENT_SLOTS_H
#define CT_CTRUN_AGENT_SLOTS_H

#include "launch_job.h"

/* Fill `slots`, `omp_threads`, `visible_gpus`, `virtual_local_rank`, `gpus`, `cpus` and the notes
 * of `job`; its configuration, environment, host and Slurm's view are known. 0, or the error with
 * the setting that is to blame in front. */
int hardware_decide(struct job *job, struct ct_error *err);

#endif
