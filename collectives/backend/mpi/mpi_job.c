/* A job whose ranks MPI has started: rank and world are MPI's, the store is mpi_engine.h's, and
 * there is one round: nobody makes another. */
#include "backend/mpi/mpi_engine.h"

#include "base/str.h"
#include "job/job.h"
#include "job/job_resource.h"

#include <stdlib.h>
#include <string.h>

static const char *variable(const void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

/* Where the launcher does not say how many processes there are, it counts as yes. */
static bool launched(void)
{
    struct ct_mpi_launch launch;

    return ct_mpi_launch_find(&launch, variable, NULL) && launch.world != 1;
}

/* A node is a run of neighbouring ranks on one machine: where mpirun deals ranks out in turns, each
 * is a node of its own. */
static int take_nodes(struct ct_job *job, const struct ct_mpi *mpi, struct ct_error *err)
{
    int count = 0;

    job->nodes = calloc((size_t)mpi->world, sizeof *job->nodes);
    if (job->nodes == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a job of %d ranks", mpi->world);
    for (int rank = 0; rank < mpi->world; rank++) {
        if (rank == 0 || strcmp(mpi->hosts[rank], mpi->hosts[rank - 1]) != 0)
            job->nodes[count++].first_rank = rank;
        job->nodes[count - 1].slots++;
    }
    if (count > 1)
        (void)ct_str_copy(job->address, sizeof job->address, mpi->hosts[mpi->rank]);
    job->assignment.world = mpi->world;
    job->assignment.nnodes = count;
    return 0;
}

/* MPI of a process is opened once: the job keeps it before anything else can fail. */
static int open_mpi(struct ct_job *job, struct ct_mpi **ret_mpi, struct ct_error *err)
{
    struct ct_mpi_launch launch;
    int code = CT_EBUG;

    if (ct_mpi_launch_find(&launch, variable, NULL))
        code = ct_mpi_open(&launch, ret_mpi, err);
    if (code == 0 && ct_job_resource_keep(job, &ct_mpi_resource, *ret_mpi) == NULL) {
        ct_mpi_close(*ret_mpi);
        return ct_error_set(err, CT_ENOMEM, "no memory for a job");
    }
    return code;
}

static int open_job(struct ct_job *job, struct ct_error *err)
{
    struct ct_mpi *mpi = NULL;
    int code = open_mpi(job, &mpi, err);

    if (code == 0)
        code = take_nodes(job, mpi, err);
    if (code != 0)
        return code;
    const struct ct_job_node *node = ct_job_node(job, mpi->rank);
    (void)ct_str_copy(job->run_id, sizeof job->run_id, "mpi");
    job->assignment = (struct ct_assignment){.run_id = job->run_id,
                                             .generation = 1,
                                             .base_rank = -1,
                                             .rank = mpi->rank,
                                             .world = mpi->world,
                                             .local_rank = mpi->rank - node->first_rank,
                                             .local_world = node->slots,
                                             .node_rank = (int)(node - job->nodes),
                                             .nnodes = job->assignment.nnodes};
    job->kv = ct_mpi_kv(mpi);
    return 0;
}

const struct ct_job_launcher ct_launcher_mpi = {.launched = launched, .open = open_job};

const char *ct_job_mpi(const struct ct_job *job)
{
    const struct ct_mpi *mpi = ct_job_resource(job, &ct_mpi_resource);

    return mpi != NULL ? mpi->name : NULL;
}

/* ---- as the job keeps it ---------------------------------------------------------------------*/

static void close_resource(struct ct_job *job, void *mpi)
{
    (void)job;
    ct_mpi_close(mpi);
}

static void give_up(void *mpi)
{
    ct_mpi_give_up(mpi);
}

const struct ct_job_resource_type ct_mpi_resource = {
    .name = "mpi", .close = close_resource, .give_up = give_up};
