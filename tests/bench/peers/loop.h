/* One measuring loop for all who do collectives: ctrun (../wire.c), MPI (mpi.c), Gloo (gloo.cc).
 * C and C++.
 *
 *     program [BYTES ...]                         65536 ... 67108864
 *
 * Rank 0 prints a line a cell: operation, bytes, microseconds a call. A batch is as many calls as
 * take about BATCH_US, its time that of the slowest rank, a cell the median of BATCHES. The first
 * calls of a cell are checked: every element of the result. */
#ifndef CT_BENCH_LOOP_H
#define CT_BENCH_LOOP_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum bench_op { BENCH_ALL_REDUCE, BENCH_BROADCAST, BENCH_ALL_GATHER, BENCH_OPS };

enum { BENCH_BATCHES = 5, BENCH_BATCH_US = 40000, BENCH_CALLS_MAX = 2000 };

struct bench_peer {
    int rank, size;
    void *context;
    /* In place, the sum of floats; a broadcast from rank 0; an all_gather whose whole result has
     * `count` elements. Whatever fails ends the program. */
    void (*run)(void *context, enum bench_op op, float *data, size_t count);
    double (*max)(void *context, double value); /* over all ranks; also a barrier */
};

static double bench_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int bench_by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* What element `i` must be when each rank r has written r + 1 to all of its own. */
static float bench_expected(const struct bench_peer *peer, enum bench_op op, size_t i, size_t count)
{
    size_t p = (size_t)peer->size;

    if (op == BENCH_ALL_REDUCE)
        return (float)(p * (p + 1) / 2);
    return op == BENCH_BROADCAST ? 1.0F : (float)(i / (count / p) + 1);
}

static void bench_check(const struct bench_peer *peer, enum bench_op op, float *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(peer->rank + 1);
    peer->run(peer->context, op, data, count);
    for (size_t i = 0; i < count; i++)
        if (data[i] != bench_expected(peer, op, i, count)) {
            (void)fprintf(stderr, "rank %d: element %zu of %zu is wrong\n", peer->rank, i, count);
            exit(1);
        }
    for (size_t i = 0; i < count; i++)
        data[i] = 0;
}

static double bench_batch(const struct bench_peer *peer, enum bench_op op, float *data,
                          size_t count, int calls)
{
    (void)peer->max(peer->context, 0);
    double start = bench_now_us();
    for (int i = 0; i < calls; i++)
        peer->run(peer->context, op, data, count);
    return peer->max(peer->context, (bench_now_us() - start) / calls);
}

static void bench_cell(const struct bench_peer *peer, enum bench_op op, float *data, size_t bytes)
{
    static const char *const names[] = {"all_reduce", "broadcast", "all_gather"};
    size_t p = (size_t)peer->size, count = bytes / sizeof *data / p * p;
    double us[BENCH_BATCHES];

    bench_check(peer, op, data, count);
    double calls = BENCH_BATCH_US / bench_batch(peer, op, data, count, 2);
    calls = calls < 1 ? 1 : calls > BENCH_CALLS_MAX ? BENCH_CALLS_MAX : calls;
    for (int i = 0; i < BENCH_BATCHES; i++)
        us[i] = bench_batch(peer, op, data, count, (int)calls);
    qsort(us, BENCH_BATCHES, sizeof *us, bench_by_size);
    if (peer->rank == 0) {
        (void)printf("%s %zu %.2f\n", names[op], bytes, us[BENCH_BATCHES / 2]);
        (void)fflush(stdout);
    }
}

static void bench_all(const struct bench_peer *peer, int argc, char **argv)
{
    static const size_t usual[] = {64 << 10, 1 << 20, 8 << 20, 64 << 20};
    size_t sizes[32], n = 0, most = 0;

    for (int i = 1; i < argc && n < 32; i++)
        sizes[n++] = strtoull(argv[i], NULL, 10);
    for (int i = 0; argc < 2 && i < 4; i++)
        sizes[n++] = usual[i];
    for (size_t i = 0; i < n; i++)
        most = sizes[i] > most ? sizes[i] : most;
    float *data = (float *)aligned_alloc(4096, (most + 4095) / 4096 * 4096);
    if (data == NULL) {
        (void)fprintf(stderr, "no memory for %zu bytes\n", most);
        exit(1);
    }
    for (int op = 0; op < BENCH_OPS; op++)
        for (size_t i = 0; i < n; i++)
            bench_cell(peer, (enum bench_op)op, data, sizes[i]);
    free(data);
}

#endif
