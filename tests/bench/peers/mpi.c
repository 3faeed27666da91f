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

int main(int argc, char **argv)
{
    struct bench_peer peer = {.run = run, .max = most};

    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    bench_all(&peer, argc, argv);
    (void)MPI_Finalize();
    return 0;
}
