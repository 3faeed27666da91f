/* Time of the collectives, one process (or thread) a rank, pinned one a core in turn, beside what
 * the machine allows, taken in the same run.
 *
 * usage: collectives [BACKEND [RANKS [OPERATION [BYTES]]]]      shm 2
 *
 * A line for each operation, size and kind of buffer (ordinary, symmetric), with the median time of
 * a call by the slowest rank, first on buffers that nobody else touches, then on buffers that were
 * written anew by their owners before each call. Beside it the probe, of the same seconds:
 *     hop     a flag from one core to another: half a round trip (ranks 0 and 1)
 *     limit   each rank adds to its own n bytes in place, all ranks at once: the least that an
 *             all_reduce in place can cost
 *     copy    each rank copies n bytes, all ranks at once
 * Bus bandwidth is that of nccl-tests: bytes / time, times 2(p-1)/p for all_reduce and (p-1)/p for
 * all_gather and reduce_scatter, whose bytes are those of the larger buffer. */
#include "base/assert.h"
#include "base/clock.h"
#include "job.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BYTES_MAX = 64 << 20,
    RANKS_MAX = 64,
    SAMPLES = 4096, /* calls of a measurement, at most */
    BATCH_CALLS = 100,
    SMALL_BYTES = 16 << 10, /* up to this, calls are timed in batches */
    MEASURE_NS = 150000000,
    KEYS = 64,
    VALUE_BYTES = 64 << 10,
    SIZES = 7,
    TRIPS = 200,
};

static const size_t sizes[SIZES] = {8, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};

/* What the ranks share beside what they measure: a store, a barrier, the times of all. */
struct entry {
    _Atomic int set;
    char key[256];
    size_t size;
    char value[VALUE_BYTES];
};

struct arena {
    struct entry entries[KEYS];
    _Atomic int entry_count;
    _Alignas(128) _Atomic uint64_t arrived;
    _Alignas(128) _Atomic uint64_t flag[2][16]; /* a line each */
    double us[RANKS_MAX][SAMPLES];
    int samples;
};

enum op { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, BARRIER, OPS };

static const char *const names[OPS] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                       "barrier"};

struct bench {
    struct arena *arena;
    struct ct_job *job;
    struct ct_group *group;
    const char *backend;
    const char *only; /* an operation, or NULL */
    size_t bytes;     /* only these, or 0 */
    int rank, ranks;
    uint64_t barriers;
    float *ordinary, *other, *symmetric;
};

/* ---- the store -------------------------------------------------------------------------------*/

static int kv_set(void *context, const char *key, const void *value, size_t size)
{
    struct arena *arena = context;
    struct entry *entry = &arena->entries[atomic_fetch_add(&arena->entry_count, 1)];

    CT_ASSERT(entry < arena->entries + KEYS && size <= VALUE_BYTES);
    (void)snprintf(entry->key, sizeof entry->key, "%s", key);
    memcpy(entry->value, value, size);
    entry->size = size;
    atomic_store(&entry->set, 1);
    return 0;
}

static int kv_wait(void *context, const char *key, struct ct_kv_value *value, uint64_t timeout_ms)
{
    struct arena *arena = context;
    uint64_t deadline_ms = ct_clock_mono_ms(&ct_clock_system) + timeout_ms;

    while (ct_clock_mono_ms(&ct_clock_system) < deadline_ms) {
        for (struct entry *entry = arena->entries; entry < arena->entries + KEYS; entry++)
            if (atomic_load(&entry->set) != 0 && strcmp(entry->key, key) == 0) {
                CT_ASSERT(entry->size <= value->size);
                memcpy(value->data, entry->value, entry->size);
                value->size = entry->size;
                return 0;
            }
        (void)sched_yield();
    }
    return CT_ETIMEOUT;
}

/* ---- measuring -------------------------------------------------------------------------------*/

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Of the bench's own: what is measured is not to measure itself. */
static void meet(struct bench *bench)
{
    uint64_t all = (uint64_t)bench->ranks * ++bench->barriers;

    atomic_fetch_add(&bench->arena->arrived, 1);
    for (int looks = 0; atomic_load(&bench->arena->arrived) < all; looks++)
        if (looks % 64 == 63)
            (void)sched_yield();
        else
            relax();
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct work {
    const char *name;
    void (*run)(struct bench *bench, const struct work *work);
    enum op op;
    float *data;
    size_t bytes;
};

/* The median over the samples of the slowest rank's time. With `touch` each sample is one call on
 * buffers just written; else a batch of calls when they are short. */
static double measure(struct bench *bench, const struct work *work, bool touch)
{
    double(*us)[SAMPLES] = bench->arena->us;
    int batch = !touch && work->bytes <= SMALL_BYTES ? BATCH_CALLS : 1;
    uint64_t begun = ct_clock_mono_ns(&ct_clock_system);
    int samples = 0;

    bench->arena->samples = SAMPLES;
    for (int i = 0; i < batch; i++)
        work->run(bench, work);
    for (; samples < bench->arena->samples; samples++) {
        if (touch)
            memset(work->data, samples & 1, work->bytes);
        meet(bench);
        uint64_t start = ct_clock_mono_ns(&ct_clock_system);
        for (int i = 0; i < batch; i++)
            work->run(bench, work);
        uint64_t end = ct_clock_mono_ns(&ct_clock_system);
        us[bench->rank][samples] = (double)(end - start) / 1e3 / batch;
        meet(bench);
        if (bench->rank == 0 && samples >= 10 && end - begun > MEASURE_NS)
            bench->arena->samples = samples + 1;
        meet(bench);
    }
    for (int i = 0; i < samples && bench->rank == 0; i++)
        for (int rank = 1; rank < bench->ranks; rank++)
            us[0][i] = CT_MAX(us[0][i], us[rank][i]);
    if (bench->rank == 0)
        qsort(us[0], (size_t)samples, sizeof(double), by_size);
    meet(bench);
    double median = us[0][samples / 2];
    meet(bench);
    return median;
}

/* ---- the probe -------------------------------------------------------------------------------*/

static void run_hops(struct bench *bench, const struct work *work)
{
    _Atomic uint64_t *mine = bench->arena->flag[bench->rank & 1];
    _Atomic uint64_t *other = bench->arena->flag[!(bench->rank & 1)];

    (void)work;
    if (bench->rank > 1)
        return;
    uint64_t start = atomic_load(mine);
    for (uint64_t i = start + 1; i <= start + TRIPS; i++) {
        if (bench->rank == 0)
            atomic_store_explicit(mine, i, memory_order_release);
        for (int looks = 1; atomic_load_explicit(other, memory_order_acquire) < i; looks++)
            if (looks % 2000 == 0)
                (void)sched_yield();
        if (bench->rank == 1)
            atomic_store_explicit(mine, i, memory_order_release);
    }
}

/* Compiled for the widest vectors that the machine has, as the kernels are. */
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
static void
add_one(float *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] += 1.0f;
}

static void run_limit(struct bench *bench, const struct work *work)
{
    (void)bench;
    add_one(work->data, work->bytes / sizeof(float));
}

static void run_copy(struct bench *bench, const struct work *work)
{
    memcpy(bench->other, work->data, work->bytes);
}

static double hop_us(struct bench *bench)
{
    struct work hops = {.run = run_hops, .bytes = BYTES_MAX};

    return measure(bench, &hops, false) / (2 * TRIPS);
}

/* ---- the collectives -------------------------------------------------------------------------*/

static int call(struct ct_group *group, const struct work *work)
{
    size_t count = work->bytes / sizeof *work->data;
    size_t part = count / (size_t)ct_group_size(group);

    switch (work->op) {
    case ALL_REDUCE:
        return ct_all_reduce(group, ct_inplace(work->data, count, CT_F32), CT_REDUCE_SUM, NULL);
    case ALL_GATHER:
        return ct_all_gather(group, ct_inplace(work->data, part, CT_F32), NULL);
    case REDUCE_SCATTER:
        return ct_reduce_scatter(group, ct_inplace(work->data, part, CT_F32), CT_REDUCE_SUM, NULL);
    case BROADCAST:
        return ct_broadcast(group, ct_inplace(work->data, count, CT_F32), 0, NULL);
    default:
        return ct_barrier(group, NULL);
    }
}

static void run_call(struct bench *bench, const struct work *work)
{
    CT_ASSERT(call(bench->group, work) == 0);
}

static double bus_factor(enum op op, int ranks)
{
    double p = ranks;

    return op == ALL_REDUCE ? 2 * (p - 1) / p : op == BROADCAST ? 1 : (p - 1) / p;
}

struct line {
    double hop_us, copy_us;
    double us[2], limit_us[2]; /* without, with buffers just written */
};

/* What is compared is measured next to each other. */
static struct line take_line(struct bench *bench, enum op op, float *data, size_t bytes)
{
    struct work call = {.run = run_call, .op = op, .data = data, .bytes = bytes};
    struct work limit = {.run = run_limit, .data = data, .bytes = bytes};
    struct work copy = {.run = run_copy, .data = data, .bytes = bytes};
    struct line line = {.hop_us = hop_us(bench), .copy_us = measure(bench, &copy, false)};

    memset(data, 0, bytes);
    for (int touch = 0; touch < 2; touch++) {
        line.limit_us[touch] = measure(bench, &limit, touch != 0);
        line.us[touch] = measure(bench, &call, touch != 0);
    }
    return line;
}

static void compare(struct bench *bench, enum op op, bool symmetric, size_t bytes)
{
    float *data = symmetric ? bench->symmetric : bench->ordinary;
    struct line line = take_line(bench, op, data, bytes);

    if (bench->rank != 0)
        return;
    printf("%-15s%-10s%10zu%12.2f%7.1f%10.2f%7.2f%12.2f%10.2f%7.2f%11.2f%7.3f%8.2f\n", names[op],
           symmetric ? "symmetric" : "ordinary", bytes, line.us[0], line.us[0] / line.hop_us,
           line.limit_us[0], line.us[0] / line.limit_us[0], line.us[1], line.limit_us[1],
           line.us[1] / line.limit_us[1], line.copy_us, line.hop_us,
           (double)bytes * bus_factor(op, bench->ranks) / line.us[0] / 1e3);
    (void)fflush(stdout);
}

static void compare_all(struct bench *bench)
{
    bool direct = strcmp(bench->backend, "tcp") != 0;

    for (int op = 0; op < OPS; op++) {
        if (bench->only != NULL && strcmp(bench->only, names[op]) != 0)
            continue;
        for (int i = 0; i < SIZES && (op != BARRIER || i == 0); i++) {
            if (bench->bytes != 0 && bench->bytes != sizes[i])
                continue;
            compare(bench, (enum op)op, false, sizes[i]);
            if (direct && op != BARRIER)
                compare(bench, (enum op)op, true, sizes[i]);
        }
    }
}

/* ---- ranks -----------------------------------------------------------------------------------*/

/* A core for each rank, in turn. */
static void pin(int rank)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)rank % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static void fill_job(struct ct_job *job, struct ct_job_node *node, struct bench *bench)
{
    *node = (struct ct_job_node){.slots = bench->ranks};
    *job = (struct ct_job){.assignment = {.run_id = "bench",
                                          .generation = 1,
                                          .base_rank = -1,
                                          .rank = bench->rank,
                                          .world = bench->ranks,
                                          .local_rank = bench->rank,
                                          .local_world = bench->ranks,
                                          .nnodes = 1},
                           .nodes = node,
                           .kv = {kv_set, kv_wait, bench->arena},
                           .names = ct_job_names_new()};
    ct_memory_init(&job->memory);
    CT_ASSERT(job->names != NULL);
}

static int run_rank(struct bench *bench)
{
    struct ct_group_options options = {.backend = bench->backend};
    struct ct_error err = {0};
    struct ct_job_node node;
    struct ct_job job;
    void *symmetric;

    pin(bench->rank);
    fill_job(&job, &node, bench);
    bench->job = &job;
    bench->ordinary = aligned_alloc(4096, BYTES_MAX);
    bench->other = aligned_alloc(4096, BYTES_MAX);
    CT_ASSERT(bench->ordinary != NULL && bench->other != NULL);
    memset(bench->ordinary, 0, BYTES_MAX);
    memset(bench->other, 0, BYTES_MAX);
    if (ct_mem_alloc(&job, BYTES_MAX, &symmetric, &err) != 0 ||
        ct_group_new(&job, &options, &bench->group, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    bench->symmetric = symmetric;
    memset(symmetric, 0, BYTES_MAX);
    if (bench->rank == 0)
        printf("%-15s%-10s%10s%12s%7s%10s%7s%12s%10s%7s%11s%7s%8s\n", "operation", "buffers",
               "bytes", "us", "/hop", "limit us", "/limit", "written us", "limit us", "/limit",
               "copy us", "hop us", "GB/s");
    compare_all(bench);
    ct_group_free(bench->group);
    ct_memory_deinit(&job.memory);
    ct_job_names_free(job.names);
    free(bench->ordinary);
    free(bench->other);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {.backend = argc > 1 ? argv[1] : "shm",
                          .ranks = argc > 2 ? atoi(argv[2]) : 2,
                          .only = argc > 3 ? argv[3] : NULL,
                          .bytes = argc > 4 ? strtoul(argv[4], NULL, 10) : 0};
    int result = 0, status;

    if (bench.ranks < 2 || bench.ranks > RANKS_MAX) {
        fprintf(stderr, "usage: collectives [shm|tcp [RANKS [OPERATION [BYTES]]]]\n");
        return 2;
    }
    bench.arena =
        mmap(NULL, sizeof *bench.arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CT_ASSERT(bench.arena != MAP_FAILED);
    for (; bench.rank < bench.ranks; bench.rank++)
        if (fork() == 0)
            _exit(run_rank(&bench));
    while (wait(&status) > 0)
        result = result != 0 ? result : status;
    return result != 0;
}
