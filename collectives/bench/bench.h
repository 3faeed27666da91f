/* Benchmark of the collectives: the worker side of `ctrun bench collectives`.
 *
 * Sizes, columns and bandwidths are those of nccl-tests (its PERFORMANCE.md): a size is that of the
 * larger buffer, `count` what one rank passes; algorithm bandwidth = size / time, bus bandwidth =
 * that times the factor of the operation, so that worlds compare. Times are those of OSU's loop:
 * calls back to back, here in five batches of which the median counts, of the slowest rank. Before
 * a batch every rank writes its buffers. Each size is checked in both places, every element. */
#ifndef CT_BENCH_BENCH_H
#define CT_BENCH_BENCH_H

#include "ctrun.h"

#include <stdio.h>

enum ct_bench_op {
    CT_BENCH_ALL_REDUCE,
    CT_BENCH_REDUCE,
    CT_BENCH_BROADCAST,
    CT_BENCH_ALL_GATHER,
    CT_BENCH_REDUCE_SCATTER,
    CT_BENCH_GATHER,
    CT_BENCH_SCATTER,
    CT_BENCH_ALL_TO_ALL,
    CT_BENCH_SEND_RECV, /* each to the next rank */
    CT_BENCH_BARRIER,
    CT_BENCH_OPS
};

struct ct_bench_options {
    unsigned ops; /* a bit each */
    const char *backend;
    uint64_t min_bytes, max_bytes, factor, iters, root, check;
    enum ct_dtype dtype;
    enum ct_reduce reduce;
    enum ct_reduce_mode mode;
    bool symmetric, encrypt, json, tune;
};

/* Return the number of words of the option at the start of `argv`: 1 (--name=value, --flag) or 2; 0
 * if it is no option of the bench. */
int ct_bench_option_words(int argc, const char *const *argv);

/* Parse options that ct_bench_option_words accepts. 0, or CT_EUSAGE with the sentence. */
int ct_bench_read(int argc, const char *const *argv, struct ct_bench_options *ret_options,
                  struct ct_error *err);

/* ---- an operation ----------------------------------------------------------------------------*/

/* The sizes of a call, as nccl-tests counts them. */
struct ct_bench_shape {
    size_t count;                  /* the call's */
    size_t send_count, recv_count; /* elements of the buffers */
    size_t size;                   /* the larger one's bytes */
};

const char *ct_bench_name(enum ct_bench_op op);
bool ct_bench_reduces(enum ct_bench_op op);
bool ct_bench_is_rooted(enum ct_bench_op op);

/* Return whether the operation can run in place. */
bool ct_bench_has_in_place(enum ct_bench_op op);

struct ct_bench_shape ct_bench_shape(enum ct_bench_op op, size_t bytes, enum ct_dtype dtype,
                                     int world);

/* Return bus bandwidth over algorithm bandwidth: 2(p-1)/p, (p-1)/p or 1. */
double ct_bench_factor(enum ct_bench_op op, int world);

/* Buffers of a call, and the call. In place: `send` NULL. */
struct ct_bench_call {
    struct ct_group *group;
    const struct ct_bench_options *options;
    enum ct_bench_op op;
    struct ct_bench_shape shape;
    void *send, *recv;
};
int ct_bench_make(const struct ct_bench_call *call);

/* Write the input, and other values into a separate output. */
void ct_bench_fill(const struct ct_bench_call *call);

/* Return the number of wrong elements in this rank's result. */
size_t ct_bench_wrong(const struct ct_bench_call *call);

/* ---- all of it -------------------------------------------------------------------------------*/

/* Run the benchmark over all ranks of the job; rank 0 prints to `to`. Collective. 0, or an error
 * with its sentence: CT_EDIVERGED when elements were wrong. */
int ct_bench_run(struct ct_job *job, const struct ct_bench_options *options, FILE *to,
                 struct ct_error *err);

/* ---- the table of the machine ----------------------------------------------------------------*/

/* Measure the algorithms of a call around each cut-over size, up to options->max_bytes, for this
 * backend and as many ranks; rank 0 prints the results to `to` and writes the table (tuning.h).
 * Collective. 0, or an error with its sentence. */
int ct_bench_tune(struct ct_job *job, const struct ct_bench_options *options, FILE *to,
                  struct ct_error *err);

/* Measurements of a tunable size: the variant of each value takes the time us[variant][i] at
 * bytes[i]. A cut-over is measured by two values: one for which every message is small (variant 0,
 * below), one for which none is (variant 1, above). */
enum { CT_TUNE_VARIANTS = 6, CT_TUNE_POINTS = 16 };
struct ct_tune_times {
    int variants, points;
    size_t bytes[CT_TUNE_POINTS];
    double us[CT_TUNE_VARIANTS][CT_TUNE_POINTS];
};

/* The value whose calls take least, by the mean of the ratios, and its speed-up over `present`
 * where the two differ. Below 1.05 the present one stays (gain 1). Pure.
 *   cutover  among the measured sizes: the last one of variant 0; `from`: the first of variant 1
 *   choose   among values[variant] */
struct ct_tune_choice {
    size_t value;
    double gain;
};
struct ct_tune_choice ct_tune_cutover(const struct ct_tune_times *times, size_t present, bool from);
struct ct_tune_choice ct_tune_choose(const struct ct_tune_times *times, const size_t *values,
                                     size_t present);

#endif
