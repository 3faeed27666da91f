/* How long a group of many ranks takes to form, apart from starting its processes. A worker for
 * scripts/bench/forming.
 *
 *     ctrun ... forming NANOSECONDS
 *
 * NANOSECONDS is CLOCK_MONOTONIC when ctrun was started. All ranks are on this machine and compare
 * its clock. Rank 0 prints: forming SPAWNED FORMED BARRIER SECOND CPU, in milliseconds:
 *
 *   SPAWNED  from then until the last rank is about to make its first group
 *   FORMED   ... until the last one has it: what forming adds
 *   BARRIER  ... until the first call, a barrier, is over there: the connections that it needs
 *   SECOND   a second group of the same ranks, from the last that begins to the last that has it
 *   CPU      of all ranks for the first group and its barrier
 *
 * BENCH_BACKEND as in peer.c. */
#include "ctrun.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TIMES = 5 };

static void must(int code, const struct ct_error *err)
{
    if (code == 0)
        return;
    (void)fprintf(stderr, "forming: %s\n", err->text);
    exit(ct_exit_status(code));
}

static double clock_ms(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void form(struct ct_job *job, const char *name, struct ct_group **ret_group)
{
    struct ct_group_options options = {.name = name, .backend = getenv("BENCH_BACKEND")};
    struct ct_error err = {0};

    must(ct_group_new(job, &options, ret_group, &err), &err);
}

int main(int argc, char **argv)
{
    struct ct_group *first, *second;
    struct ct_error err = {0};
    struct ct_job *job;
    double times[TIMES], cpu_ms;

    if (argc != 2)
        return 2;
    must(ct_job_open(&job, &err), &err);
    cpu_ms = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    times[0] = clock_ms(CLOCK_MONOTONIC);
    form(job, "first", &first);
    times[1] = clock_ms(CLOCK_MONOTONIC);
    must(ct_barrier(first, NULL), ct_group_failure(first));
    times[2] = clock_ms(CLOCK_MONOTONIC);
    cpu_ms = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_ms;
    must(ct_barrier(first, NULL), ct_group_failure(first));
    times[3] = clock_ms(CLOCK_MONOTONIC);
    form(job, "second", &second);
    times[4] = clock_ms(CLOCK_MONOTONIC);
    must(ct_all_reduce(first, ct_inplace(times, TIMES, CT_F64), CT_REDUCE_MAX, NULL),
         ct_group_failure(first));
    must(ct_all_reduce(first, ct_inplace(&cpu_ms, 1, CT_F64), CT_REDUCE_SUM, NULL),
         ct_group_failure(first));
    if (ct_group_rank(first) == 0)
        (void)printf("forming %.1f %.1f %.1f %.1f %.1f\n", times[0] - strtod(argv[1], NULL) / 1e6,
                     times[1] - times[0], times[2] - times[1], times[4] - times[3], cpu_ms);
    ct_group_free(second);
    ct_group_free(first);
    ct_job_close(job);
    return 0;
}
