/* See bench.h: the loop over operations and sizes, and what is printed. */
#include "bench.h"

#include "algorithm/tuning.h"
#include "base/assert.h"
#include "base/clock.h"
#include "group/group.h"

#include <stdlib.h>
#include <string.h>

enum { BATCHES = 5, BATCH_US = 2000, CALLS_MAX = 20000 };

struct bench {
    struct ct_job *job;
    struct ct_group *group;
    const struct ct_bench_options *options;
    FILE *to;
    bool speaks; /* rank 0 */
    void *send, *recv;
    double bus_sum; /* of the lines that were printed */
    uint64_t lines, wrong;
    int code;
};

/* A size in one place. */
struct result {
    enum ct_algorithm algorithm;
    double us, min_us, max_us; /* the median batch: of the slowest rank; of the fastest, slowest */
    uint64_t wrong;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double over_ranks(struct bench *bench, double value, enum ct_reduce reduce)
{
    int code = ct_all_reduce(bench->group, ct_inplace(&value, 1, CT_F64), reduce, NULL);

    bench->code = bench->code != 0 ? bench->code : code;
    return value;
}

/* Microseconds a call of this rank. */
static double time_batch(struct bench *bench, const struct ct_bench_call *call, uint64_t calls)
{
    int code = ct_barrier(bench->group, NULL);
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);

    for (uint64_t i = 0; i < calls && code == 0; i++)
        code = ct_bench_make(call);
    bench->code = bench->code != 0 ? bench->code : code;
    return (double)(ct_clock_mono_ns(&ct_clock_system) - start_ns) / 1e3 / (double)calls;
}

static void check(struct bench *bench, const struct ct_bench_call *call, struct result *result)
{
    ct_bench_fill(call);
    int code = ct_bench_make(call);
    bench->code = bench->code != 0 ? bench->code : code;
    double wrong = code == 0 ? (double)ct_bench_wrong(call) : 0;
    result->wrong = (uint64_t)over_ranks(bench, wrong, CT_REDUCE_SUM);
}

static struct result measure(struct bench *bench, const struct ct_bench_call *call)
{
    double slowest[BATCHES], fastest[BATCHES];
    struct result result = {0};

    if (bench->options->check != 0 && call->op != CT_BENCH_BARRIER)
        check(bench, call, &result);
    double once = over_ranks(bench, time_batch(bench, call, 3), CT_REDUCE_MAX);
    double fitting = CT_MIN(BATCH_US / CT_MAX(once, 0.01), (double)CALLS_MAX);
    uint64_t calls = CT_MAX(bench->options->iters, (uint64_t)fitting);
    for (int i = 0; i < BATCHES && bench->code == 0; i++) {
        if (call->op != CT_BENCH_BARRIER)
            ct_bench_fill(call);
        double us = time_batch(bench, call, calls);
        result.algorithm = bench->group->last;
        slowest[i] = over_ranks(bench, us, CT_REDUCE_MAX);
        fastest[i] = over_ranks(bench, us, CT_REDUCE_MIN);
    }
    if (bench->code != 0)
        return result;
    qsort(slowest, BATCHES, sizeof *slowest, by_size);
    qsort(fastest, BATCHES, sizeof *fastest, by_size);
    if (call->op == CT_BENCH_SEND_RECV)
        result.algorithm = CT_ALGO_NONE;
    result.us = slowest[BATCHES / 2];
    result.min_us = fastest[0];
    result.max_us = slowest[BATCHES - 1];
    return result;
}

/* ---- printing --------------------------------------------------------------------------------*/

static const char *reduce_name(const struct ct_bench_options *options)
{
    static const char *const names[] = {"sum", "avg", "max", "min", "prod"};

    return names[options->reduce];
}

/* Sizes that are those of a tuning table, and no defaults. */
static void print_sizes(const struct bench *bench)
{
    struct ct_tuning sizes = bench->group->sizes, defaults = ct_tuning_complete(NULL);

    for (int i = 0; i < CT_TUNABLES; i++)
        if (*ct_tuning_at(&sizes, (enum ct_tunable)i) !=
            *ct_tuning_at(&defaults, (enum ct_tunable)i))
            (void)fprintf(bench->to, "# of the tuning table: %s %zu\n",
                          ct_tunable_name((enum ct_tunable)i),
                          *ct_tuning_at(&sizes, (enum ct_tunable)i));
}

static void print_head(const struct bench *bench, enum ct_bench_op op)
{
    const struct ct_group *group = bench->group;

    if (!bench->speaks || bench->options->json)
        return;
    (void)fprintf(bench->to, "# %s: %d ranks, backend %s\n", ct_bench_name(op),
                  ct_group_size(group), ct_group_backend(group));
    print_sizes(bench);
    (void)fprintf(bench->to, "#%54s%25s%36s\n", "", "out-of-place", "in-place");
    (void)fprintf(bench->to, "#%11s%14s%10s%8s%8s %9s%8s%8s%7s%9s%8s%8s%7s  %s\n", "size", "count",
                  "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
                  "busbw", "#wrong", "algorithm");
    (void)fprintf(bench->to, "#%11s%14s%10s%8s%8s %9s%8s%8s%7s%9s%8s%8s%7s\n", "(B)", "(elements)",
                  "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

/* Bytes over microseconds are MB/s. */
static double bandwidth(size_t size, const struct result *result)
{
    return result->us > 0 ? (double)size / result->us / 1e3 : 0;
}

static void print_columns(struct bench *bench, enum ct_bench_op op, size_t size,
                          const struct result *result)
{
    double algorithm = bandwidth(size, result);
    double bus = algorithm * ct_bench_factor(op, ct_group_size(bench->group));

    bench->bus_sum += bus;
    bench->lines++;
    (void)fprintf(bench->to, "%9.2f%8.2f%8.2f%7llu", result->us, algorithm, bus,
                  (unsigned long long)result->wrong);
}

static void print_json(const struct bench *bench, enum ct_bench_op op,
                       const struct ct_bench_shape *shape, const struct result *result,
                       bool in_place)
{
    double algorithm = bandwidth(shape->size, result);

    (void)fprintf(bench->to,
                  "{\"op\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,\"size\":%zu,\"count\":%zu,"
                  "\"type\":\"%s\",\"redop\":\"%s\",\"in_place\":%s,\"symmetric\":%s,"
                  "\"algorithm\":\"%s\",\"us\":%.3f,\"min_us\":%.3f,\"max_us\":%.3f,\"algbw\":%.3f,"
                  "\"busbw\":%.3f,"
                  "\"wrong\":%llu}\n",
                  ct_bench_name(op), ct_group_backend(bench->group), ct_group_size(bench->group),
                  shape->size, shape->count, ct_dtype_name(bench->options->dtype),
                  reduce_name(bench->options), in_place ? "true" : "false",
                  bench->options->symmetric ? "true" : "false",
                  ct_algorithm_name(result->algorithm), result->us, result->min_us, result->max_us,
                  algorithm, algorithm * ct_bench_factor(op, ct_group_size(bench->group)),
                  (unsigned long long)result->wrong);
}

static void print_line(struct bench *bench, enum ct_bench_op op, const struct ct_bench_shape *shape,
                       const struct result results[2])
{
    const struct ct_bench_options *options = bench->options;

    if (!bench->speaks)
        return;
    if (options->json) {
        for (int i = 0; i < 1 + ct_bench_has_in_place(op); i++)
            print_json(bench, op, shape, &results[i], i == 1);
        return;
    }
    (void)fprintf(bench->to, "%12zu%14zu%10s%8s%8d ", shape->size, shape->count,
                  ct_dtype_name(options->dtype),
                  ct_bench_reduces(op) ? reduce_name(options) : "none",
                  ct_bench_is_rooted(op) ? (int)options->root : -1);
    print_columns(bench, op, shape->size, &results[0]);
    if (ct_bench_has_in_place(op))
        print_columns(bench, op, shape->size, &results[1]);
    else
        (void)fprintf(bench->to, "%9s%8s%8s%7s", "N/A", "N/A", "N/A", "N/A");
    (void)fprintf(bench->to, "  %s\n", ct_algorithm_name(results[0].algorithm));
    (void)fflush(bench->to);
}

/* ---- all of it -------------------------------------------------------------------------------*/

static void run_size(struct bench *bench, enum ct_bench_op op, size_t bytes)
{
    struct ct_bench_shape shape =
        ct_bench_shape(op, bytes, bench->options->dtype, ct_group_size(bench->group));
    struct ct_bench_call call = {.group = bench->group,
                                 .options = bench->options,
                                 .op = op,
                                 .shape = shape,
                                 .send = bench->send,
                                 .recv = bench->recv};
    struct result results[2] = {0};

    if (shape.count == 0 && op != CT_BENCH_BARRIER)
        return;
    results[0] = measure(bench, &call);
    call.send = NULL;
    if (bench->code == 0 && ct_bench_has_in_place(op))
        results[1] = measure(bench, &call);
    bench->wrong += results[0].wrong + results[1].wrong;
    if (bench->code == 0)
        print_line(bench, op, &shape, results);
}

static void run_op(struct bench *bench, enum ct_bench_op op)
{
    const struct ct_bench_options *options = bench->options;

    print_head(bench, op);
    for (uint64_t bytes = options->min_bytes; bytes <= options->max_bytes && bench->code == 0;
         bytes *= options->factor) {
        run_size(bench, op, bytes);
        if (op == CT_BENCH_BARRIER || bytes > options->max_bytes / options->factor)
            break;
    }
}

static int make_buffers(struct bench *bench, struct ct_error *err)
{
    size_t bytes = (bench->options->max_bytes + 4095) / 4096 * 4096;
    int code = 0;

    if (bench->options->symmetric) {
        code = ct_mem_alloc(bench->job, bytes, &bench->send, err);
        return code != 0 ? code : ct_mem_alloc(bench->job, bytes, &bench->recv, err);
    }
    bench->send = aligned_alloc(4096, bytes);
    bench->recv = aligned_alloc(4096, bytes);
    if (bench->send == NULL || bench->recv == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for two buffers of %zu bytes", bytes);
    memset(bench->send, 0, bytes);
    memset(bench->recv, 0, bytes);
    return 0;
}

static void free_buffers(struct bench *bench)
{
    if (bench->options->symmetric) {
        ct_mem_free(bench->job, bench->send);
        ct_mem_free(bench->job, bench->recv);
        return;
    }
    free(bench->send);
    free(bench->recv);
}

static void print_sum(const struct bench *bench)
{
    if (!bench->speaks || bench->options->json)
        return;
    (void)fprintf(bench->to, "# Out of bounds values : %llu %s\n", (unsigned long long)bench->wrong,
                  bench->wrong == 0 ? "OK" : "FAILED");
    (void)fprintf(bench->to, "# Avg bus bandwidth    : %.4f\n",
                  bench->lines > 0 ? bench->bus_sum / (double)bench->lines : 0);
}

static int run_group(struct bench *bench, struct ct_error *err)
{
    const struct ct_bench_options *options = bench->options;
    int code = make_buffers(bench, err);

    if (code == 0 && options->root >= (uint64_t)ct_group_size(bench->group))
        code = ct_error_set(err, CT_EUSAGE, "--root %llu: there are %d ranks",
                            (unsigned long long)options->root, ct_group_size(bench->group));
    if (code != 0)
        return code;
    for (int op = 0; op < CT_BENCH_OPS && bench->code == 0; op++)
        if ((options->ops >> op & 1) != 0)
            run_op(bench, (enum ct_bench_op)op);
    if (bench->code != 0)
        return ct_group_explain(bench->group, bench->code, err);
    print_sum(bench);
    return bench->wrong == 0 ? 0
                             : ct_error_set(err, CT_EDIVERGED, "%llu elements are wrong",
                                            (unsigned long long)bench->wrong);
}

int ct_bench_run(struct ct_job *job, const struct ct_bench_options *options, FILE *to,
                 struct ct_error *err)
{
    struct ct_group_options how = {.backend = options->backend, .encrypt = options->encrypt};
    struct bench bench = {.job = job, .options = options, .to = to};
    int code = ct_group_new(job, &how, &bench.group, err);

    if (code != 0)
        return code;
    bench.speaks = ct_group_rank(bench.group) == 0;
    code = run_group(&bench, err);
    free_buffers(&bench);
    ct_group_free(bench.group);
    return code;
}
