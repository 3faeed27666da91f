/* A job whose ranks MPI has started: rank and world are MPI's, the store is backend/mpi_engine.h's,
 * and there is one round: nobody makes another. */
#ifndef CT_COLL_JOB_MPI_H
#define CT_COLL_JOB_MPI_H

#include "job.h"

/* Has MPI launched this process, beside others? Where the launcher does not say how many there are,
 * it counts as yes. */
bool ct_job_mpi_launched(void);

/* Fill `job`, of which `memory` and `names` are there. 0, or a code with its sentence. */
int ct_job_mpi_open(struct ct_job *job, struct ct_error *err);

#endif
