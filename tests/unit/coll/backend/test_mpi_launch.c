/* How a process learns from its environment that MPI has started it. */
#include "backend/mpi/mpi_launch.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(mpi_launch, .timeout = 10);

/* `context` is a list of names and values, NULL at the end. */
static const char *look_up(const void *context, const char *name)
{
    const char *const *list = context;

    while (*list != NULL && strcmp(*list, name) != 0)
        list += 2;
    return *list != NULL ? list[1] : NULL;
}

static bool find(struct ct_mpi_launch *launch, const char *const *environment)
{
    return ct_mpi_launch_find(launch, look_up, environment);
}

Test(mpi_launch, mpirun_of_open_mpi_is_known_before_all_others)
{
    static const char *const environment[] = {"PMIX_RANK",
                                              "7",
                                              "PMI_RANK",
                                              "8",
                                              "OMPI_COMM_WORLD_RANK",
                                              "1",
                                              "OMPI_COMM_WORLD_SIZE",
                                              "4",
                                              "OMPI_COMM_WORLD_LOCAL_RANK",
                                              "0",
                                              NULL};
    struct ct_mpi_launch launch;

    cr_assert(find(&launch, environment));
    cr_assert_eq(launch.rank, 1);
    cr_assert_eq(launch.world, 4);
    cr_assert_eq(launch.local_rank, 0);
    cr_assert(launch.open_mpi);
}

Test(mpi_launch, mpirun_of_mpich_is_known)
{
    static const char *const environment[] = {"PMI_RANK",        "3", "PMI_SIZE", "8",
                                              "MPI_LOCALRANKID", "2", NULL};
    struct ct_mpi_launch launch;

    cr_assert(find(&launch, environment));
    cr_assert_eq(launch.rank, 3);
    cr_assert_eq(launch.world, 8);
    cr_assert_eq(launch.local_rank, 2);
    cr_assert(!launch.open_mpi);
}

Test(mpi_launch, a_launcher_that_does_not_say_how_many_there_are_leaves_it_open)
{
    static const char *const environment[] = {"PMIX_RANK", "0", NULL};
    struct ct_mpi_launch launch;

    cr_assert(find(&launch, environment));
    cr_assert_eq(launch.world, 0);
    cr_assert_eq(launch.local_rank, -1);
}

Test(mpi_launch, without_a_rank_that_is_a_number_nobody_launched)
{
    static const char *const none[] = {"PMI_SIZE", "8", NULL};
    static const char *const word[] = {"PMI_RANK", "first", NULL};
    static const char *const negative[] = {"OMPI_COMM_WORLD_RANK", "-1", NULL};
    struct ct_mpi_launch launch;

    cr_assert(!find(&launch, none));
    cr_assert(!find(&launch, word));
    cr_assert(!find(&launch, negative));
}
