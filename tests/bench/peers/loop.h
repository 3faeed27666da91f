/* One measuring loop for all who do collectives: ctrun (../peer.c), MPI (mpi.c), Gloo (gloo.cc).
 * C and C++.
 *
 *     program [WORD ...]          a number: so many bytes (65536 ... 67108864); the name of an
 *                                 operation (all_reduce, broadcast, all_gather); pin: rank r stays
 *                                 on core r; touch: data are written anew before each call;
 *                                 brief: a fifth of the time
 *
 * Rank 0 prints a line a cell: operation, bytes, microseconds a call. A batch is as many calls as
 * take about BATCH_US, its time that of the slowest rank, a cell the median of BATCHES. With touch,
 * each rank writes all of its data before a call, as a gradient is written, all meet, and the call
 * alone counts, a batch being the median of its calls; below TOUCH_BYTES, where looking at the
 * clock costs as much as the call, it writes an element within the timed loop instead, and a batch
 * is the mean. Batches are short, so that others on the machine disturb few of them. The first
 * calls of a cell are checked: every element of the result. A line "# faults BYTES N" follows: the
 * pages that rank 0 got from the system in each call, 0 where nobody allocates and gives back. A
 * peer that has a bare way, which is the least that a call has to do (bare.h), is timed with it in
 * turns, batch by batch, on the same pages: "# bare BYTES US RATIO", the ratio being the median of
 * those of neighbouring batches. */
#ifndef CT_BENCH_LOOP_H
#define CT_BENCH_LOOP_H

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum bench_op { BENCH_ALL_REDUCE, BENCH_BROADCAST, BENCH_ALL_GATHER, BENCH_OPS };

enum {
    BENCH_BATCHES = 25,
    BENCH_BATCH_US = 8000,
    BENCH_CALLS_MAX = 20000,
    BENCH_TOUCH_BYTES = 4096,
    BENCH_SIZES_MAX = 32
};

static const char *const bench_names[BENCH_OPS] = {"all_reduce", "broadcast", "all_gather"};

struct bench_peer {
    int rank, size;
    void *context;
    /* In place, the sum of floats; a broadcast from rank 0; an all_gather whose whole result has
     * `count` elements. Whatever fails ends the program. */
    void (*run)(void *context, enum bench_op op, float *data, size_t count);
    /* May be NULL: `calls` times the least that such a call has to do, on the data of the last one;
     * with -1 calls, is there such a way? Leaves anything in the data. */
    int (*bare)(void *context, enum bench_op op, float *data, size_t count, int calls);
    double (*max)(void *context, double value);    /* over all ranks; also a barrier */
    float *(*memory)(void *context, size_t bytes); /* NULL: from the heap; never given back */
};

/* What was asked for. */
struct bench_plan {
    size_t bytes[BENCH_SIZES_MAX];
    int sizes;
    int ops; /* a bit each */
    int pin, touch, brief;
};

static double bench_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static long bench_faults(void)
{
    struct rusage used;

    (void)getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
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

/* Fresh data, as their owner leaves them. */
static void bench_touch(const struct bench_peer *peer, float *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(peer->rank + 1);
}

static double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, bench_by_size);
    return values[count / 2];
}

static void bench_call(const struct bench_peer *peer, enum bench_op op, float *data, size_t count,
                       int bare)
{
    if (bare)
        (void)peer->bare(peer->context, op, data, count, 1);
    else
        peer->run(peer->context, op, data, count);
}

/* One by one: the median. */
static double bench_apart(const struct bench_peer *peer, enum bench_op op, float *data,
                          size_t count, int calls, int bare)
{
    static double each[BENCH_CALLS_MAX];

    for (int i = 0; i < calls; i++) {
        bench_touch(peer, data, count);
        (void)peer->max(peer->context, 0);
        double from = bench_now_us();
        bench_call(peer, op, data, count, bare);
        each[i] = bench_now_us() - from;
    }
    return bench_median(each, calls);
}

/* One after the other: the mean. */
static double bench_row(const struct bench_peer *peer, enum bench_op op, float *data, size_t count,
                        int calls, int touch, int bare)
{
    double start = bench_now_us();

    if (bare)
        (void)peer->bare(peer->context, op, data, count, calls);
    for (int i = 0; i < calls && !bare; i++) {
        if (touch && count > 0)
            data[0] = (float)(peer->rank + 1);
        peer->run(peer->context, op, data, count);
    }
    return (bench_now_us() - start) / calls;
}

static double bench_batch(const struct bench_peer *peer, enum bench_op op, float *data,
                          size_t count, int calls, int touch, int bare)
{
    double us;

    (void)peer->max(peer->context, 0);
    if (touch && count * sizeof *data >= BENCH_TOUCH_BYTES)
        us = bench_apart(peer, op, data, count, calls, bare);
    else
        us = bench_row(peer, op, data, count, calls, touch, bare);
    return peer->max(peer->context, us);
}

static void bench_cell(const struct bench_peer *peer, const struct bench_plan *plan,
                       enum bench_op op, float *data, size_t bytes)
{
    size_t parts = op == BENCH_ALL_GATHER ? (size_t)peer->size : 1;
    size_t count = bytes / sizeof *data / parts * parts;
    double us[BENCH_BATCHES], bare_us[BENCH_BATCHES], ratio[BENCH_BATCHES];

    bench_check(peer, op, data, count);
    double calls = bench_batch(peer, op, data, count, 2, plan->touch, 0);
    calls = (plan->brief ? BENCH_BATCH_US / 5 : BENCH_BATCH_US) / calls;
    calls = calls < 1 ? 1 : calls > BENCH_CALLS_MAX ? BENCH_CALLS_MAX : calls;
    int bare = peer->bare != NULL && peer->bare(peer->context, op, data, count, -1);
    long faults = bench_faults();
    for (int i = 0; i < BENCH_BATCHES; i++) {
        if (bare)
            bare_us[i] = bench_batch(peer, op, data, count, (int)calls, plan->touch, 1);
        us[i] = bench_batch(peer, op, data, count, (int)calls, plan->touch, 0);
        ratio[i] = bare ? us[i] / bare_us[i] : 0;
    }
    faults = (bench_faults() - faults) / (BENCH_BATCHES * (long)calls);
    double median = bench_median(us, BENCH_BATCHES);
    if (peer->rank == 0) {
        (void)printf("%s %zu %.3f\n", bench_names[op], bytes, median);
        (void)printf("# faults %zu %ld\n", bytes, faults);
        if (bare)
            (void)printf("# bare %zu %.4f %.3f\n", bytes, bench_median(bare_us, BENCH_BATCHES),
                         bench_median(ratio, BENCH_BATCHES));
        (void)fflush(stdout);
    }
}

static struct bench_plan bench_read(int argc, char **argv)
{
    static const size_t usual[] = {64 << 10, 1 << 20, 8 << 20, 64 << 20};
    struct bench_plan plan;

    (void)memset(&plan, 0, sizeof plan);
    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10);

        if (bytes > 0 && plan.sizes < BENCH_SIZES_MAX)
            plan.bytes[plan.sizes++] = bytes;
        for (int op = 0; op < BENCH_OPS; op++)
            plan.ops |= (strcmp(argv[i], bench_names[op]) == 0) << op;
        plan.pin |= strcmp(argv[i], "pin") == 0;
        plan.touch |= strcmp(argv[i], "touch") == 0;
        plan.brief |= strcmp(argv[i], "brief") == 0;
    }
    for (int i = 0; i < 4 && plan.sizes == i; i++)
        plan.bytes[plan.sizes++] = usual[i];
    plan.ops = plan.ops != 0 ? plan.ops : (1 << BENCH_OPS) - 1;
    return plan;
}

static void bench_pin(int rank)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)(rank % (int)sysconf(_SC_NPROCESSORS_ONLN)), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static float *bench_memory(const struct bench_peer *peer, size_t bytes)
{
    float *data;

    bytes = (bytes + 4095) / 4096 * 4096;
    if (peer->memory != NULL)
        data = peer->memory(peer->context, bytes);
    else
        data = (float *)aligned_alloc(4096, bytes);
    if (data == NULL) {
        (void)fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return data;
}

static void bench_all(const struct bench_peer *peer, int argc, char **argv)
{
    struct bench_plan plan = bench_read(argc, argv);
    size_t most = 0;

    if (plan.pin)
        bench_pin(peer->rank);
    for (int i = 0; i < plan.sizes; i++)
        most = plan.bytes[i] > most ? plan.bytes[i] : most;
    float *data = bench_memory(peer, most);
    for (int op = 0; op < BENCH_OPS; op++)
        for (int i = 0; i < plan.sizes && (plan.ops >> op & 1) != 0; i++)
            bench_cell(peer, &plan, (enum bench_op)op, data, plan.bytes[i]);
    if (peer->memory == NULL)
        free(data);
}

#endif
