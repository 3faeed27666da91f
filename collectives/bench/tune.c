/* See bench.h: the sizes of select.def, measured.
 *
 * A cut is measured by two groups, one that goes the one way always and one that goes the other
 * way; a size that is chosen among values, by a group a value. At each point the groups take turns,
 * a batch of calls each, so that what slows the machine down slows all of them; medians count. */
#include "bench.h"

#include "algorithm/tuning.h"
#include "base/assert.h"
#include "base/clock.h"
#include "group/group.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 9, BATCH_US = 1500, CALLS_MAX = 5000, BYTES_MAX = 16 << 20 };

static const double WORTHWHILE = 1.05;

/* ---- choosing --------------------------------------------------------------------------------*/

static struct ct_tune_choice keep_present(size_t present)
{
    return (struct ct_tune_choice){present, 1};
}

struct ct_tune_choice ct_tune_cutover(const struct ct_tune_times *times, size_t present, bool from)
{
    double cost[CT_TUNE_POINTS + 1] = {0};
    int n = times->points, now = 0, best;

    while (now < n && (from ? times->bytes[now] < present : times->bytes[now] <= present))
        now++;
    for (int cut = 0; cut <= n; cut++)
        for (int i = 0; i < n; i++)
            cost[cut] += log(times->us[i < cut ? 0 : 1][i]);
    best = now;
    for (int cut = 0; cut <= n; cut++)
        best = cost[cut] < cost[best] ? cut : best;
    double gain = best != now ? exp((cost[now] - cost[best]) / abs(best - now)) : 1;
    if (gain < WORTHWHILE)
        return keep_present(present);
    if (from)
        return (struct ct_tune_choice){best < n ? times->bytes[best] : 2 * times->bytes[n - 1],
                                       gain};
    return (struct ct_tune_choice){best > 0 ? times->bytes[best - 1] : 1, gain};
}

struct ct_tune_choice ct_tune_choose(const struct ct_tune_times *times, const size_t *values,
                                     size_t present)
{
    double cost[CT_TUNE_VARIANTS] = {0};
    int now = 0, best = 0;

    for (int variant = 0; variant < times->variants; variant++) {
        for (int i = 0; i < times->points; i++)
            cost[variant] += log(times->us[variant][i]);
        best = cost[variant] < cost[best] ? variant : best;
    }
    while (now < times->variants && values[now] != present)
        now++;
    CT_ASSERT(now < times->variants);
    double gain = exp((cost[now] - cost[best]) / times->points);
    return gain < WORTHWHILE ? keep_present(present) : (struct ct_tune_choice){values[best], gain};
}

/* ---- what is measured ------------------------------------------------------------------------*/

/* Up to tcp_direct_world ranks, and more. */
enum { FEW = 8, MANY = 9 };

static const struct row {
    enum ct_tunable size;
    enum kind { UP_TO, FROM, ONE_OF } kind;
    enum ct_bench_op op;
    bool symmetric;
    size_t first, last; /* bytes */
    int factor;
    int least_ranks;
    size_t values[CT_TUNE_VARIANTS]; /* ONE_OF */
    enum ct_reduce_mode mode;
    int most_ranks; /* 0: any number */
} rows[] = {
    {CT_SIZE_local_flat_bytes,
     UP_TO,
     CT_BENCH_ALL_REDUCE,
     false,
     1 << 10,
     1 << 20,
     2,
     2,
     {0},
     CT_MODE_FAST,
     0},
    {CT_SIZE_local_direct_bytes,
     FROM,
     CT_BENCH_ALL_REDUCE,
     true,
     256,
     256 << 10,
     2,
     2,
     {0},
     CT_MODE_FAST,
     0},
    {CT_SIZE_local_chunk_bytes,
     ONE_OF,
     CT_BENCH_ALL_REDUCE,
     false,
     1 << 20,
     16 << 20,
     4,
     2,
     {128 << 10, 256 << 10, 512 << 10, 1 << 20},
     CT_MODE_FAST,
     0},
    {CT_SIZE_local_domains_bytes,
     FROM,
     CT_BENCH_ALL_REDUCE,
     false,
     16 << 10,
     4 << 20,
     4,
     9,
     {0},
     CT_MODE_FAST,
     0},
    {CT_SIZE_tcp_flat_bytes,
     UP_TO,
     CT_BENCH_ALL_REDUCE,
     false,
     1 << 10,
     256 << 10,
     2,
     2,
     {0},
     CT_MODE_FAST,
     FEW},
    {CT_SIZE_tcp_doubling_bytes,
     UP_TO,
     CT_BENCH_ALL_REDUCE,
     false,
     4 << 10,
     1 << 20,
     4,
     MANY,
     {0},
     CT_MODE_FAST,
     0},
    {CT_SIZE_tcp_tree_bytes,
     UP_TO,
     CT_BENCH_ALL_REDUCE,
     false,
     64 << 10,
     4 << 20,
     4,
     MANY,
     {0},
     CT_MODE_FAST,
     0},
    {CT_SIZE_tcp_binomial_bytes,
     UP_TO,
     CT_BENCH_BROADCAST,
     false,
     16 << 10,
     4 << 20,
     4,
     MANY,
     {0},
     CT_MODE_FAST,
     0},
    {CT_SIZE_tcp_bruck_bytes,
     UP_TO,
     CT_BENCH_ALL_REDUCE,
     false,
     256,
     64 << 10,
     4,
     MANY,
     {0},
     CT_MODE_REPRODUCIBLE,
     0},
    {CT_SIZE_tcp_chain_reduce_bytes,
     FROM,
     CT_BENCH_ALL_REDUCE,
     false,
     64 << 10,
     4 << 20,
     4,
     MANY,
     {0},
     CT_MODE_REPRODUCIBLE,
     0},
    {CT_SIZE_tcp_chain_bytes,
     UP_TO,
     CT_BENCH_BROADCAST,
     false,
     16 << 10,
     4 << 20,
     2,
     3,
     {0},
     CT_MODE_FAST,
     0},
    {CT_SIZE_tcp_block_bytes,
     ONE_OF,
     CT_BENCH_ALL_REDUCE,
     false,
     1 << 20,
     16 << 20,
     4,
     2,
     {128 << 10, 256 << 10, 512 << 10, 1 << 20},
     CT_MODE_FAST,
     0},
    {CT_SIZE_tcp_rails,
     ONE_OF,
     CT_BENCH_ALL_REDUCE,
     false,
     1 << 20,
     16 << 20,
     4,
     2,
     {1, 2, 4},
     CT_MODE_FAST,
     0},
    {CT_SIZE_hier_small_bytes,
     UP_TO,
     CT_BENCH_ALL_REDUCE,
     false,
     1 << 10,
     1 << 20,
     2,
     2,
     {0},
     CT_MODE_FAST,
     0},
    {CT_SIZE_hier_piece_bytes,
     ONE_OF,
     CT_BENCH_ALL_REDUCE,
     false,
     4 << 20,
     16 << 20,
     4,
     2,
     {1 << 20, 2 << 20, 4 << 20, 8 << 20},
     CT_MODE_FAST,
     0},
};

struct tune {
    struct ct_job *job;
    struct ct_group *base; /* with the sizes as they are */
    struct ct_bench_options options;
    FILE *to; /* NULL: not rank 0 */
    void *ordinary[2], *symmetric[2];
    struct ct_table table;
};

/* The values of a row, and the present one if it is another. */
static int values_of(const struct row *row, size_t present, size_t values[CT_TUNE_VARIANTS])
{
    int count = 0;
    bool found = false;

    if (row->kind != ONE_OF) {
        values[0] = row->kind == UP_TO ? row->last : 2 * row->last;
        values[1] = 1;
        return 2;
    }
    for (; count < CT_TUNE_VARIANTS && row->values[count] != 0; count++) {
        values[count] = row->values[count];
        found = found || values[count] == present;
    }
    if (!found)
        values[count++] = present;
    return count;
}

/* ---- measuring -------------------------------------------------------------------------------*/

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Microseconds a call, of the slowest rank. */
static int time_batch(struct tune *tune, const struct ct_bench_call *call, uint64_t calls,
                      double *ret_us)
{
    ct_bench_fill(call);
    int code = ct_barrier(call->group, NULL);
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);

    for (uint64_t i = 0; i < calls && code == 0; i++)
        code = ct_bench_make(call);
    *ret_us = (double)(ct_clock_mono_ns(&ct_clock_system) - start_ns) / 1e3 / (double)calls;
    if (code == 0)
        code = ct_all_reduce(tune->base, ct_inplace(ret_us, 1, CT_F64), CT_REDUCE_MAX, NULL);
    return code;
}

/* Time all variants at one size. */
static int time_point(struct tune *tune, const struct row *row, struct ct_group *const *groups,
                      struct ct_tune_times *times, int point)
{
    void *const *buffers = row->symmetric ? tune->symmetric : tune->ordinary;
    struct ct_bench_call call = {
        .options = &tune->options,
        .op = row->op,
        .shape = ct_bench_shape(row->op, times->bytes[point], CT_F32, ct_group_size(tune->base)),
        .send = buffers[0],
        .recv = buffers[1]};
    double us[CT_TUNE_VARIANTS][ROUNDS] = {{0}}, once = 0;
    int code = 0;

    for (int variant = 0; variant < times->variants && code == 0; variant++) {
        call.group = groups[variant];
        code = time_batch(tune, &call, 3, &once);
    }
    double fitting = CT_MIN(BATCH_US / CT_MAX(once, 0.01), (double)CALLS_MAX);
    for (int round = 0; round < ROUNDS; round++)
        for (int variant = 0; variant < times->variants && code == 0; variant++) {
            call.group = groups[variant];
            code = time_batch(tune, &call, CT_MAX((uint64_t)fitting, 2u), &us[variant][round]);
        }
    for (int variant = 0; variant < times->variants && code == 0; variant++) {
        qsort(us[variant], ROUNDS, sizeof us[variant][0], by_size);
        times->us[variant][point] = us[variant][ROUNDS / 2];
    }
    return code;
}

static int make_group(struct tune *tune, const struct row *row, size_t value, int variant,
                      struct ct_group **ret_group, struct ct_error *err)
{
    char name[64];
    struct ct_group_options options = {.name = name, .backend = ct_group_backend(tune->base)};
    struct ct_tuning tuning = {0};

    (void)snprintf(name, sizeof name, "%s/%d", ct_tunable_name(row->size), variant);
    *ct_tuning_at(&tuning, row->size) = value;
    return ct_group_new_tuned(tune->job, &options, &tuning, ret_group, err);
}

static int measure(struct tune *tune, const struct row *row, const size_t *values,
                   struct ct_tune_times *times, struct ct_error *err)
{
    struct ct_group *groups[CT_TUNE_VARIANTS] = {NULL};
    int code = 0, broken;

    for (int variant = 0; variant < times->variants && code == 0; variant++)
        code = make_group(tune, row, values[variant], variant, &groups[variant], err);
    bool formed = code == 0;
    size_t last = CT_MIN(row->last, tune->options.max_bytes);

    for (size_t bytes = row->first; bytes <= last && code == 0; bytes *= (size_t)row->factor) {
        times->bytes[times->points] = bytes;
        code = time_point(tune, row, groups, times, times->points++);
    }
    for (broken = 0; formed && code != 0 && broken < times->variants; broken++)
        if (ct_group_failure(groups[broken])->code != 0)
            *err = *ct_group_failure(groups[broken]);
    for (int variant = 0; variant < times->variants; variant++)
        ct_group_free(groups[variant]);
    return code;
}

/* ---- printing --------------------------------------------------------------------------------*/

static void print_head(const struct tune *tune)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double load;

    if (tune->to == NULL)
        return;
    (void)fprintf(tune->to, "# backend %s, %d ranks\n", ct_group_backend(tune->base),
                  ct_group_size(tune->base));
    if (getloadavg(&load, 1) == 1 && load > (double)cores)
        (void)fprintf(tune->to,
                      "# this machine is busy (a load of %.1f on %ld cores): measure again when it "
                      "is not\n",
                      load, cores);
}

static void print_times(const struct tune *tune, const struct row *row, const size_t *values,
                        const struct ct_tune_times *times)
{
    if (tune->to == NULL)
        return;
    (void)fprintf(tune->to, "# %s: us of %s%s\n#%12s", ct_tunable_name(row->size),
                  ct_bench_name(row->op), row->symmetric ? ", symmetric" : "", "bytes");
    for (int variant = 0; variant < times->variants; variant++)
        if (row->kind == ONE_OF)
            (void)fprintf(tune->to, "%12zu", values[variant]);
        else
            (void)fprintf(tune->to, "%12s", variant == 0 ? "below" : "above");
    for (int i = 0; i < times->points; i++) {
        (void)fprintf(tune->to, "\n%13zu", times->bytes[i]);
        for (int variant = 0; variant < times->variants; variant++)
            (void)fprintf(tune->to, "%12.2f", times->us[variant][i]);
    }
    (void)fprintf(tune->to, "\n");
}

static void print_choice(const struct tune *tune, const struct row *row, size_t present,
                         struct ct_tune_choice choice)
{
    if (tune->to == NULL)
        return;
    (void)fprintf(tune->to, "# => %s %zu", ct_tunable_name(row->size), choice.value);
    if (choice.value == present)
        (void)fprintf(tune->to, ", as before\n");
    else
        (void)fprintf(tune->to, ", was %zu: %.2f times as fast between the two\n", present,
                      choice.gain);
    (void)fflush(tune->to);
}

/* ---- all of it -------------------------------------------------------------------------------*/

static int tune_row(struct tune *tune, const struct row *row, struct ct_error *err)
{
    const char *backend = ct_group_backend(tune->base);
    int ranks = ct_group_size(tune->base);
    struct ct_tuning sizes = tune->base->sizes;
    size_t present = *ct_tuning_at(&sizes, row->size), values[CT_TUNE_VARIANTS] = {0};
    struct ct_tune_times times = {.variants = values_of(row, present, values)};
    struct ct_table_line line = {.ranks = ranks, .size = row->size};

    tune->options.mode = row->mode;
    int code = measure(tune, row, values, &times, err);
    if (code != 0)
        return code;
    struct ct_tune_choice choice = row->kind == ONE_OF
                                       ? ct_tune_choose(&times, values, present)
                                       : ct_tune_cutover(&times, present, row->kind == FROM);
    print_times(tune, row, values, &times);
    print_choice(tune, row, present, choice);
    (void)snprintf(line.backend, sizeof line.backend, "%s", backend);
    line.value = choice.value;
    return ct_table_set(&tune->table, &line)
               ? 0
               : ct_error_set(err, CT_ELIMIT, "a tuning table has at most %d lines of a machine",
                              CT_TABLE_LINES);
}

static int make_buffers(struct tune *tune, struct ct_error *err)
{
    int code = 0;

    for (int i = 0; i < 2 && code == 0; i++) {
        tune->ordinary[i] = aligned_alloc(4096, BYTES_MAX);
        if (tune->ordinary[i] == NULL)
            return ct_error_set(err, CT_ENOMEM, "no memory for buffers of %d bytes", BYTES_MAX);
        memset(tune->ordinary[i], 0, BYTES_MAX);
        code = ct_mem_alloc(tune->job, BYTES_MAX, &tune->symmetric[i], err);
    }
    return code;
}

static int tune_rows(struct tune *tune, struct ct_error *err)
{
    const char *backend = ct_group_backend(tune->base);
    int ranks = ct_group_size(tune->base), code = make_buffers(tune, err);

    if (code == 0 && ranks < 2)
        code = ct_error_set(err, CT_EUSAGE, "--tune wants 2 ranks or more");
    if (code == 0 && tune->to != NULL)
        code = ct_table_load(&tune->table, err);
    if (code == 0)
        print_head(tune);
    for (size_t i = 0; i < CT_COUNT(rows) && code == 0; i++)
        if (ct_tunable_concerns(rows[i].size, backend) && ranks >= rows[i].least_ranks &&
            (rows[i].most_ranks == 0 || ranks <= rows[i].most_ranks) &&
            rows[i].first <= tune->options.max_bytes)
            code = tune_row(tune, &rows[i], err);
    if (code == 0 && tune->to != NULL) {
        char path[PATH_MAX];

        code = ct_table_save(&tune->table, err);
        ct_table_path(path, sizeof path);
        if (code == 0)
            (void)fprintf(tune->to, "# written to %s\n", path);
    }
    return code;
}

/* A file that is named and not there is an error elsewhere; here it begins to be. */
static int begin_table(struct tune *tune, struct ct_error *err)
{
    char path[PATH_MAX];

    ct_table_path(path, sizeof path);
    if (ct_job_assignment(tune->job)->rank != 0 || access(path, F_OK) == 0)
        return 0;
    return ct_table_save(&tune->table, err);
}

int ct_bench_tune(struct ct_job *job, const struct ct_bench_options *options, FILE *to,
                  struct ct_error *err)
{
    struct ct_group_options how = {.backend = options->backend, .encrypt = options->encrypt};
    struct tune *tune = calloc(1, sizeof *tune);

    if (tune == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory to tune");
    *tune = (struct tune){
        .job = job,
        .options = {.max_bytes = options->max_bytes, .dtype = CT_F32, .reduce = CT_REDUCE_SUM}};
    int code = begin_table(tune, err);
    if (code == 0)
        code = ct_group_new(job, &how, &tune->base, err);
    if (code == 0) {
        tune->to = ct_group_rank(tune->base) == 0 ? to : NULL;
        code = tune_rows(tune, err);
    }
    for (int i = 0; i < 2; i++) {
        free(tune->ordinary[i]);
        if (tune->symmetric[i] != NULL)
            ct_mem_free(job, tune->symmetric[i]);
    }
    ct_group_free(tune->base);
    free(tune);
    return code;
}
