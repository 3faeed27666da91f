/* See mpi_launch.h. */
#include "backend/mpi/mpi_launch.h"

#include "base/assert.h"
#include "base/str.h"

#include <limits.h>

/* What launchers tell each process. Open MPI's comes first: under Slurm, say, others are set, too.
 */
static const struct launcher {
    const char *name, *rank, *world, *local_rank;
    bool open_mpi;
} launchers[] = {
    {"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", true},
    {"mpirun of MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", false},
    {"a launcher with PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", true},
};

typedef const char *(*lookup)(const void *context, const char *name);

static bool number_of(const char *name, lookup variable, const void *context, int *ret_number)
{
    const char *text = variable(context, name);
    int64_t number;

    if (text == NULL || ct_parse_i64(text, &number) != 0 || number < 0 || number > INT_MAX)
        return false;
    *ret_number = (int)number;
    return true;
}

bool ct_mpi_launch_find(struct ct_mpi_launch *ret_launch, lookup variable, const void *context)
{
    for (size_t i = 0; i < CT_COUNT(launchers); i++) {
        const struct launcher *from = &launchers[i];
        struct ct_mpi_launch launch = {
            .launcher = from->name, .local_rank = -1, .open_mpi = from->open_mpi};

        if (!number_of(from->rank, variable, context, &launch.rank))
            continue;
        (void)number_of(from->world, variable, context, &launch.world);
        (void)number_of(from->local_rank, variable, context, &launch.local_rank);
        *ret_launch = launch;
        return true;
    }
    return false;
}
