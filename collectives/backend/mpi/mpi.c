/* Backend mpi: the engine of message.h over the messages of the MPI that started this process, for
 * sites whose fabric only works under their MPI. In such a job "auto" takes it first.
 *
 * The algorithms are ours, and so are the sums: MPI's own reductions promise no order, differ from
 * library to library, know neither BF16 nor a deadline, and hang where members call different
 * things. */
#include "backend/backend.h"
#include "backend/mpi/mpi_transport.h"
#include "base/assert.h"
#include "job/job_resource.h"

#include <stdlib.h>
#include <string.h>

enum { SPINS = 200 };

struct group {
    struct ct_engine engine;
    struct ct_mpi_port port;
};

/* Its data goes in clear: not for a group that asked for encryption. */
static bool suits(const struct ct_setup *setup)
{
    return ct_job_resource(setup->job, &ct_mpi_resource) != NULL && setup->size > 1 &&
           !setup->encrypt;
}

/* ---- creation --------------------------------------------------------------------------------*/

/* Member 0 gives the group its number. */
static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    struct group *group = calloc(1, sizeof *group);
    uint32_t number = 0;
    int code = 0;

    if (group == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    *ret_state = group;
    group->port = (struct ct_mpi_port){.mpi = ct_job_resource(setup->job, &ct_mpi_resource)};
    group->port.ranks = calloc((size_t)setup->size, sizeof *group->port.ranks);
    if (group->port.ranks == NULL ||
        ct_engine_init(&group->engine, setup, &ct_mpi_transport, &group->port) != 0)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    memcpy(group->port.ranks, setup->ranks, (size_t)setup->size * sizeof *setup->ranks);
    if (setup->rank == 0)
        code = ct_mpi_group_number(group->port.mpi, &number, err);
    memcpy(ret_blob->data, &number, sizeof number);
    return code;
}

static int connect_group(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                         struct ct_error *err)
{
    struct group *group = state;

    memcpy(&group->port.number, blobs[0].data, sizeof group->port.number);
    return ct_engine_handshake(&group->engine, setup, err);
}

static void finish_setup(void *state)
{
    (void)state;
}

static void close_group(void *state)
{
    struct group *group = state;

    ct_engine_close(&group->engine);
    ct_engine_deinit(&group->engine);
    ct_mpi_port_deinit(&group->port);
    free(group->port.ranks);
    free(group);
}

/* ---- at work ---------------------------------------------------------------------------------*/

static int progress(void *state, struct ct_task *task, struct ct_error *err)
{
    struct group *group = state;
    uint64_t moves = task->moves;
    int code = ct_engine_progress(&group->engine, task, err);

    if (task->moves != moves)
        ct_mpi_pause_reset(&group->port);
    return code;
}

static int spins(const void *state)
{
    (void)state;
    return SPINS;
}

/* Nothing rings: whoever parks looks again soon. */
static uint32_t arm(void *state)
{
    (void)state;
    return 1;
}

static void park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    (void)armed;
    if (timeout_ns > 0)
        ct_mpi_pause(&((struct group *)state)->port, timeout_ns);
}

static int missing(void *state, const struct ct_task *task)
{
    return ct_engine_missing(&((struct group *)state)->engine, task);
}

static void fail(void *state, int code)
{
    ct_engine_fail(&((struct group *)state)->engine, code);
}

/* A park is over soon by itself. */
static void wake(void *state)
{
    (void)state;
}

const struct ct_backend ct_backend_mpi = {
    .name = "mpi",
    .suits = suits,
    .prepare = prepare,
    .connect = connect_group,
    .finish_setup = finish_setup,
    .progress = progress,
    .spins = spins,
    .arm = arm,
    .park = park,
    .missing = missing,
    .fail = fail,
    .wake = wake,
    .close = close_group,
};
