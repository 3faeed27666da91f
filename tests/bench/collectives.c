/* Time and bus bandwidth of the collectives, ranks as threads.
 *
 * usage: collectives [BACKEND [RANKS]]      shm 2
 *
 * One line a size: microseconds a call by the slowest rank, in the best and in the median batch,
 * and the median's bus bandwidth as nccl-tests defines it: bytes / time, times 2(p-1)/p for
 * all_reduce and (p-1)/p for all_gather and reduce_scatter, whose bytes are those of the larger
 * buffer. Best and median far apart: the machine had other things to do. */
#include "base/assert.h"
#include "base/clock.h"
#include "ctrun.h"
#include "thread_world.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCHES = 25, BYTES_MAX = 64 << 20, BATCH_US = 2000, RANKS_MAX = 64 };

struct bench {
    const char *backend;
    int ranks;
};

enum op { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, BARRIER, OPS };

static const char *const names[OPS] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                       "barrier"};

static int run(struct ct_group *group, enum op op, float *data, size_t bytes)
{
    size_t count = bytes / sizeof *data, part = count / (size_t)ct_group_size(group);

    switch (op) {
    case ALL_REDUCE:
        return ct_all_reduce(group, ct_inplace(data, count, CT_F32), CT_REDUCE_SUM, NULL);
    case ALL_GATHER:
        return ct_all_gather(group, ct_inplace(data, part, CT_F32), NULL);
    case REDUCE_SCATTER:
        return ct_reduce_scatter(group, ct_inplace(data, part, CT_F32), CT_REDUCE_SUM, NULL);
    case BROADCAST:
        return ct_broadcast(group, ct_inplace(data, count, CT_F32), 0, NULL);
    default:
        return ct_barrier(group, NULL);
    }
}

static double bus_factor(enum op op, int ranks)
{
    double p = ranks;

    return op == ALL_REDUCE ? 2 * (p - 1) / p : op == BROADCAST ? 1 : (p - 1) / p;
}

static double timed(struct ct_group *group, enum op op, float *data, size_t bytes, int calls)
{
    double us;

    CT_ASSERT(ct_barrier(group, NULL) == 0);
    uint64_t start = ct_clock_mono_ns(&ct_clock_system);
    for (int i = 0; i < calls; i++)
        CT_ASSERT(run(group, op, data, bytes) == 0);
    us = (double)(ct_clock_mono_ns(&ct_clock_system) - start) / 1e3 / calls;
    CT_ASSERT(ct_all_reduce(group, ct_inplace(&us, 1, CT_F64), CT_REDUCE_MAX, NULL) == 0);
    return us;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(struct ct_group *group, enum op op, float *data, size_t bytes)
{
    double us[BATCHES], once = timed(group, op, data, bytes, 3);
    int calls = (int)CT_MAX(1.0, CT_MIN(20000.0, BATCH_US / once));

    for (int i = 0; i < BATCHES; i++)
        us[i] = timed(group, op, data, bytes, calls);
    qsort(us, BATCHES, sizeof *us, by_size);
    if (ct_group_rank(group) == 0)
        printf("%-15s %10zu B %12.2f us best %12.2f us %8.2f GB/s\n", names[op], bytes, us[0],
               us[BATCHES / 2],
               (double)bytes * bus_factor(op, ct_group_size(group)) / us[BATCHES / 2] / 1e3);
}

/* A core for each rank, in turn. */
static void pin(int rank)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)rank % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static int run_rank(struct ct_job *job, void *context)
{
    static const size_t sizes[] = {8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
    struct bench *bench = context;
    struct ct_group_options options = {.backend = bench->backend};
    struct ct_group *group;
    struct ct_error err = {0};
    float *data = aligned_alloc(4096, BYTES_MAX);

    pin(ct_job_assignment(job)->rank);
    CT_ASSERT(data != NULL);
    memset(data, 0, BYTES_MAX);
    if (ct_group_new(job, &options, &group, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (int op = 0; op < OPS; op++)
        for (size_t i = 0; i < CT_COUNT(sizes) && (op != BARRIER || i == 0); i++)
            measure(group, (enum op)op, data, sizes[i]);
    ct_group_free(group);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {argc > 1 ? argv[1] : "shm", argc > 2 ? atoi(argv[2]) : 2};
    struct ct_thread_world *world;

    if (bench.ranks < 1 || bench.ranks > RANKS_MAX ||
        ct_thread_world_new(bench.ranks, &world) != 0) {
        fprintf(stderr, "usage: collectives [thread|shm|tcp [RANKS]]\n");
        return 2;
    }
    int code = ct_thread_world_run(world, run_rank, &bench);
    ct_thread_world_free(world);
    return code;
}
