/* The registered state and the steps of a job, from the inside. */
#ifndef CT_COLL_JOB_STATE_H
#define CT_COLL_JOB_STATE_H

#include "job/job.h"

/* Free it, with its group. NULL is fine. */
void ct_job_state_free(struct ct_job_state *state);

#endif
