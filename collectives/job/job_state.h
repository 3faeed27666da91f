/* The inside of a job's registered state and steps. */
#ifndef CT_COLL_JOB_STATE_H
#define CT_COLL_JOB_STATE_H

#include "job/job.h"

/* Free it, with its group. NULL is fine. */
void ct_job_state_free(struct ct_job_state *state);

#endif
