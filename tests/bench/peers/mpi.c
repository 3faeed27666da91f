/* MPI on the loop of loop.h: mpicc peers/mpi.c, any implementation. */
#include "loop.h"

#include <mpi.h>

static void run(void *context, enum bench_op op, float *data, size_t count)
{
    int size, n = (int)count;

    (void)context;
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (op == BENCH_ALL_REDUCE)
        (void)MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (op == BENCH_BROADCAST)
        (void)MPI_Bcast(data, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else
        (void)MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, n / size, MPI_FLOAT,
                            MPI_COMM_WORLD);
}

static double most(void *context, double value)
{
    double result = 0;

    (void)context;
    (void)MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return result;
}

/* What OpenMPI says of how it copies between processes; nothing where it is another MPI. */
static void tell_copies(void)
{
    int provided, index, number = 0, count;
    MPI_T_cvar_handle handle;

    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
        return;
    if (MPI_T_cvar_get_index("btl_vader_single_copy_mechanism", &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS) {
        if (MPI_T_cvar_read(handle, &number) == MPI_SUCCESS)
            (void)printf("# single_copy %d\n", number);
        (void)MPI_T_cvar_handle_free(&handle);
    }
    (void)MPI_T_finalize();
}

int main(int argc, char **argv)
{
    struct bench_peer peer = {.run = run, .max = most};

    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    if (peer.rank == 0)
        tell_copies();
    bench_all(&peer, argc, argv);
    (void)MPI_Finalize();
    return 0;
}
