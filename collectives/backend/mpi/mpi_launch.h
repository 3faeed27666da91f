/* Detection of the MPI launcher that started this process, from its environment. Pure. */
#ifndef CT_COLL_MPI_LAUNCH_H
#define CT_COLL_MPI_LAUNCH_H

#include <stdbool.h>

struct ct_mpi_launch {
    const char *launcher; /* "mpirun of Open MPI" */
    int rank, world;      /* world 0: the launcher does not say */
    int local_rank;       /* -1: likewise */
    bool open_mpi;        /* its library is probably this one, else one of MPICH's family */
};

/* Return whether MPI launched this process, and how. `variable(context, name)` returns the value of
 * an environment variable, or NULL; one that is no number counts as not set. */
bool ct_mpi_launch_find(struct ct_mpi_launch *ret_launch,
                        const char *(*variable)(const void *context, const char *name),
                        const void *context);

#endif
