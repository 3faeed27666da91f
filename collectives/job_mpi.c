/* See job_mpi.h. */
#include "job_mpi.h"

#include "backend/mpi_engine.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

static const char *variable(const void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

bool ct_job_mpi_launched(void)
{
    struct ct_mpi_launch launch;

    return ct_mpi_launch_find(&launch, variable, NULL) && launch.world != 1;
}

/* A node is a run of neighbouring ranks on one machine: where mpirun deals ranks out in turns, each
 * is a node of its own. */
static int take_nodes(struct ct_job *job, struct ct_error *err)
{
    const struct ct_mpi *mpi = job->mpi;
    int count = 0;

    job->nodes = calloc((size_t)mpi->world, sizeof *job->nodes);
    if (job->nodes == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a job of %d ranks", mpi->world);
    for (int rank = 0; rank < mpi->world; rank++) {
        if (rank == 0 || strcmp(mpi->hosts[rank], mpi->hosts[rank - 1]) != 0)
            job->nodes[count++].first_rank = rank;
        job->nodes[count - 1].slots++;
    }
    for (int i = 0; i < count && count > 1; i++)
        (void)ct_str_copy(job->nodes[i].address, sizeof job->nodes[i].address,
                          mpi->hosts[job->nodes[i].first_rank]);
    job->assignment.world = mpi->world;
    job->assignment.nnodes = count;
    return 0;
}

int ct_job_mpi_open(struct ct_job *job, struct ct_error *err)
{
    struct ct_mpi_launch launch;
    int code = CT_EBUG;

    if (ct_mpi_launch_find(&launch, variable, NULL))
        code = ct_mpi_open(&launch, &job->mpi, err);
    if (code == 0)
        code = take_nodes(job, err);
    if (code != 0)
        return code;
    const struct ct_job_node *node = ct_job_node(job, job->mpi->rank);
    (void)ct_str_copy(job->run_id, sizeof job->run_id, "mpi");
    job->assignment = (struct ct_assignment){.run_id = job->run_id,
                                             .generation = 1,
                                             .base_rank = -1,
                                             .rank = job->mpi->rank,
                                             .world = job->mpi->world,
                                             .local_rank = job->mpi->rank - node->first_rank,
                                             .local_world = node->slots,
                                             .node_rank = (int)(node - job->nodes),
                                             .nnodes = job->assignment.nnodes};
    job->kv = ct_mpi_kv(job->mpi);
    return 0;
}

const char *ct_job_mpi(const struct ct_job *job)
{
    return job->mpi != NULL ? job->mpi->name : NULL;
}
