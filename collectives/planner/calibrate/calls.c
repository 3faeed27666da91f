/* See calibrate.h: calls between ranks. As in `ctrun bench collectives`, a batch is of calls back
 * to back and counts with the time of its slowest rank; here the fastest of up to 25 short batches,
 * since the machine may be busy. Buffers are the job's memory, as a training's are. */
#include "collectives/planner/calibrate/calibrate.h"

#include "base/assert.h"
#include "base/clock.h"
#include "bench/bench.h"

#include <string.h>

enum {
    BATCHES = 25,
    BATCH_US = 500,
    CALLS_MAX = 2000,
    LARGEST = 32 << 20,
    ROOM = 4 * LARGEST,
    LATE_TURNS = 5,
    LATE_CALLS = 100
};

static const double ENOUGH_S = 0.1;  /* of one size */
static const double WORK_S = 300e-6; /* between two calls, as in a training */

static const size_t sizes[] = {16,        256,     2 << 10, 16 << 10, 64 << 10,
                               256 << 10, 1 << 20, 4 << 20, LARGEST};

static const enum ct_bench_op ops[CT_CALL_COST_LATE] = {
    [CT_CALL_COST_ALL_REDUCE] = CT_BENCH_ALL_REDUCE,
    [CT_CALL_COST_ALL_GATHER] = CT_BENCH_ALL_GATHER,
    [CT_CALL_COST_REDUCE_SCATTER] = CT_BENCH_REDUCE_SCATTER,
    [CT_CALL_COST_SEND] = CT_BENCH_SEND_RECV,
};

struct calls {
    struct ct_costs *costs; /* NULL: not rank 0 */
    struct ct_bench_options options;
    struct ct_bench_call call;
    void *buffers[2]; /* of ROOM bytes */
    bool across;
};

/* The largest buckets of a training are in memory; smaller ones have just been written. */
static void use_place(struct calls *calls, uint64_t turn)
{
    size_t at = calls->call.shape.size >= LARGEST ? turn % (ROOM / LARGEST) * LARGEST : 0;

    calls->call.send = (char *)calls->buffers[0] + at;
    calls->call.recv = (char *)calls->buffers[1] + at;
}

/* What each of `count` turns since `from_ns` took, of the slowest rank; `code` of this one. */
static int take_slowest(struct calls *calls, uint64_t from_ns, uint64_t count, int code,
                        double *ret_s)
{
    *ret_s = (double)(ct_clock_mono_ns(&ct_clock_system) - from_ns) * 1e-9 / (double)count;
    return code == 0
               ? ct_all_reduce(calls->call.group, ct_inplace(ret_s, 1, CT_F64), CT_REDUCE_MAX, NULL)
               : code;
}

/* Seconds a call, of the slowest rank. */
static int time_batch(struct calls *calls, uint64_t count, double *ret_s)
{
    use_place(calls, 0);
    ct_bench_fill(&calls->call);
    int code = ct_barrier(calls->call.group, NULL);
    uint64_t from_ns = ct_clock_mono_ns(&ct_clock_system);

    for (uint64_t i = 0; i < count && code == 0; i++) {
        use_place(calls, i);
        code = ct_bench_make(&calls->call);
    }
    return take_slowest(calls, from_ns, count, code, ret_s);
}

static int measure(struct calls *calls, enum ct_cost_call call, size_t bytes)
{
    int ranks = ct_group_size(calls->call.group);
    double best_s = 0, batch_s = 0;

    calls->call.op = ops[call];
    calls->call.shape = ct_bench_shape(ops[call], bytes, CT_F32, ranks);
    int code = time_batch(calls, 3, &best_s);
    double spent_s = 0; /* the same on all ranks */
    for (int i = 0; i < BATCHES && spent_s < ENOUGH_S && code == 0; i++) {
        double fitting = CT_MIN(BATCH_US * 1e-6 / CT_MAX(best_s, 1e-8), (double)CALLS_MAX);
        code = time_batch(calls, CT_MAX((uint64_t)fitting, UINT64_C(1)), &batch_s);
        spent_s += batch_s * CT_MAX(fitting, 1.0);
        best_s = CT_MIN(best_s, batch_s);
    }
    if (code != 0 || calls->costs == NULL || calls->costs->call_count == CT_COSTS_CALLS)
        return code;
    calls->costs->calls[calls->costs->call_count++] =
        (struct ct_cost_between){.across = calls->across,
                                 .call = call,
                                 .ranks = ranks,
                                 .bytes = (double)calls->call.shape.size,
                                 .seconds = best_s};
    return 0;
}

/* ---- late ranks ----------------------------------------------------------------------------- */

/* Work of a rank: a sum that no compiler leaves out. */
static void work(uint64_t terms)
{
    volatile double sink;
    double sum = 0;

    for (uint64_t i = 0; i < terms; i++)
        sum += 1.0 / (double)(i + 1);
    sink = sum;
    (void)sink;
}

/* The terms that take WORK_S of a processor; the same on all ranks. */
static int work_for(struct ct_group *group, uint64_t *ret_terms)
{
    enum { TERMS = 100000, TURNS = 5 };
    double best_s = 1;

    for (int i = 0; i < TURNS; i++) {
        uint64_t from_ns = ct_clock_mono_ns(&ct_clock_system);
        work(TERMS);
        best_s = CT_MIN(best_s, (double)(ct_clock_mono_ns(&ct_clock_system) - from_ns) * 1e-9);
    }
    int code = ct_all_reduce(group, ct_inplace(&best_s, 1, CT_F64), CT_REDUCE_MIN, NULL);
    *ret_terms = (uint64_t)(TERMS * WORK_S / best_s);
    return code;
}

/* Seconds of `terms` of work and, if wanted, a call, of the slowest rank. */
static int time_turn(struct calls *calls, uint64_t terms, bool has_call, double *ret_s)
{
    int code = ct_barrier(calls->call.group, NULL);
    uint64_t from_ns = ct_clock_mono_ns(&ct_clock_system);

    for (int i = 0; i < LATE_CALLS && code == 0; i++) {
        work(terms);
        if (has_call)
            code = ct_bench_make(&calls->call);
    }
    return take_slowest(calls, from_ns, LATE_CALLS, code, ret_s);
}

/* What work and a call take longer than the work alone and the call alone. */
static int measure_late(struct calls *calls)
{
    double both_s = 1e9, work_s = 1e9, call_s = 0, turn_s = 0;
    int ranks = ct_group_size(calls->call.group);
    uint64_t terms;
    int code = work_for(calls->call.group, &terms);

    calls->call.op = CT_BENCH_ALL_REDUCE;
    calls->call.shape = ct_bench_shape(CT_BENCH_ALL_REDUCE, CT_COSTS_LATE_BYTES, CT_F32, ranks);
    use_place(calls, 0);
    ct_bench_fill(&calls->call);
    for (int i = 0; i < LATE_TURNS && code == 0; i++) {
        code = time_turn(calls, terms, false, &turn_s);
        work_s = CT_MIN(work_s, turn_s);
        if (code == 0)
            code = time_turn(calls, terms, true, &turn_s);
        both_s = CT_MIN(both_s, turn_s);
    }
    if (code != 0 || calls->costs == NULL || calls->costs->call_count == CT_COSTS_CALLS)
        return code;
    call_s =
        ct_costs_call_s(calls->costs, false, CT_CALL_COST_ALL_REDUCE, ranks, CT_COSTS_LATE_BYTES);
    calls->costs->calls[calls->costs->call_count++] =
        (struct ct_cost_between){.call = CT_CALL_COST_LATE,
                                 .ranks = ranks,
                                 .bytes = CT_COSTS_LATE_BYTES,
                                 .seconds = CT_MAX(both_s - work_s - call_s, 1e-9)};
    return 0;
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* Among the first `ranks` of `all`; the others wait. */
static int measure_among(struct calls *calls, struct ct_group *all, int ranks, struct ct_error *err)
{
    const struct ct_options patient = {.timeout_ms = CT_CALIBRATE_WAIT_MS};
    bool in = ct_group_rank(all) < ranks;
    struct ct_group *group = NULL;
    int code = ct_group_split(all, in ? 0 : CT_NO_COLOUR, ct_group_rank(all), &group, err);

    calls->call.group = group;
    for (int call = 0; call < CT_CALL_COST_LATE && code == 0 && in; call++)
        for (size_t i = 0; i < CT_COUNT(sizes) && code == 0; i++)
            if (sizes[i] >= (size_t)ranks * sizeof(float))
                code = measure(calls, (enum ct_cost_call)call, sizes[i]);
    if (code == 0 && in && !calls->across)
        code = measure_late(calls);
    if (code == 0)
        code = ct_barrier(all, &patient);
    if (code != 0 && err->code == 0)
        code = ct_error_set(err, code, "calls among %d ranks: %s", ranks, ct_strerror(code));
    ct_group_free(group);
    return code;
}

static int measure_backend(struct calls *calls, struct ct_job *job, const char *backend, int most,
                           struct ct_error *err)
{
    const struct ct_group_options how = {.name = backend, .backend = backend};
    struct ct_group *all = NULL;
    int code = ct_group_new(job, &how, &all, err);

    for (int ranks = 2; code == 0 && ranks <= CT_MIN(most, ct_group_size(all)); ranks *= 2)
        code = measure_among(calls, all, ranks, err);
    ct_group_free(all);
    return code;
}

int ct_calls_measure(struct ct_job *job, struct ct_costs *costs, struct ct_error *err)
{
    struct calls calls = {.costs = costs, .options = {.dtype = CT_F32, .reduce = CT_REDUCE_SUM}};
    void **buffers = calls.buffers;
    int code = 0;

    for (int i = 0; i < 2 && code == 0; i++) {
        code = ct_mem_alloc(job, ROOM, &buffers[i], err);
        if (code == 0)
            memset(buffers[i], 0, ROOM);
    }
    calls.call.options = &calls.options;
    if (code == 0)
        code = measure_backend(&calls, job, "shm", INT32_MAX, err);
    calls.across = true;
    if (code == 0)
        code = measure_backend(&calls, job, "tcp", 4, err);
    for (int i = 0; i < 2; i++)
        if (buffers[i] != NULL)
            ct_mem_free(job, buffers[i]);
    return code;
}
