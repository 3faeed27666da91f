/* One rank of a job that checks its collectives as the unit tests do
 * (tests/unit/coll/support/conform.h):
 * for launchers whose ranks cannot be threads of a test.
 *
 * usage: conformance BACKEND [silent]
 *   silent: rank 1 never calls, and all others have to find out in time. */
#include "conform.h"

#include "collectives/group/group.h"

#include <stdio.h>
#include <string.h>

enum { TIMEOUT_MS = 30000, SILENCE_MS = 300 };

/* So small that a few hundred elements take every path. */
static const struct ct_tuning tiny = {
    .tcp_block_bytes = 256, .tcp_flat_bytes = 64, .tcp_chain_bytes = 128};

static int make(struct ct_job *job, const char *backend, const struct ct_tuning *tuning,
                struct ct_group **ret_group)
{
    const struct ct_group_options options = {.backend = backend, .timeout_ms = TIMEOUT_MS};
    struct ct_error err = {0};
    int code = ct_group_new_tuned(job, &options, tuning, ret_group, &err);

    if (code != 0)
        fprintf(stderr, "rank %d: %s\n", ct_job_assignment(job)->rank, err.text);
    return code == 0 ? 0 : __LINE__;
}

/* Groups of every other rank, at work at the same time as the group that they are made from. */
static int check_split(struct ct_group *world)
{
    struct ct_group *half = NULL;
    struct ct_request *barrier;
    int64_t sum = 1;
    int line = 0;

    if (ct_group_split(world, ct_group_rank(world) % 2, -ct_group_rank(world), &half, NULL) != 0)
        return __LINE__;
    if (ct_barrier_start(world, NULL, &barrier) != 0)
        return __LINE__;
    line = conform_moves(half);
    if (line == 0 && (ct_all_reduce(half, ct_inplace(&sum, 1, CT_I64), CT_REDUCE_SUM, NULL) != 0 ||
                      sum != ct_group_size(half)))
        line = __LINE__;
    if (ct_wait(barrier) != 0)
        line = __LINE__;
    ct_group_free(half);
    return line;
}

static int check(struct ct_job *job, const char *backend)
{
    struct ct_group *small = NULL, *real = NULL;
    int line = make(job, backend, &tiny, &small);

    if (line == 0)
        line = make(job, backend, NULL, &real);
    if (line == 0)
        line = conform_reductions(small);
    if (line == 0)
        line = conform_moves(small);
    if (line == 0)
        line = conform_parts(small);
    if (line == 0)
        line = conform_large(real);
    if (line == 0)
        line = check_split(real);
    if (line == 0 && ct_group_rank(real) == 0)
        printf("%d ranks on %s conform\n", ct_group_size(real), ct_group_backend(real));
    if (line != 0 && small != NULL)
        fprintf(stderr, "line %d; %s\n", line, ct_group_failure(small)->text);
    ct_group_free(real);
    ct_group_free(small);
    return line;
}

/* Large enough that a send waits for who receives it. As programs do, all tell their failure. */
static int check_silence(struct ct_job *job, const char *backend)
{
    static float data[1 << 20];
    const struct ct_options options = {.timeout_ms = SILENCE_MS};
    struct ct_group *group = NULL;

    if (make(job, backend, NULL, &group) != 0)
        return __LINE__;
    if (ct_group_rank(group) == 1)
        (void)ct_recv(group, ct_inplace(data, 1, CT_F32), 0, NULL);
    else if (ct_all_reduce(group, ct_inplace(data, 1 << 20, CT_F32), CT_REDUCE_SUM, &options) ==
             CT_ETIMEOUT)
        printf("%s\n", ct_group_failure(group)->text);
    (void)ct_job_failure(job, ct_group_failure(group));
    ct_group_free(group);
    return __LINE__;
}

int main(int argc, char **argv)
{
    struct ct_error err = {0};
    struct ct_job *job;

    if (argc < 2 || ct_job_open(&job, &err) != 0) {
        fprintf(stderr, "%s\n", argc < 2 ? "usage: conformance BACKEND [silent]" : err.text);
        return 2;
    }
    int line = argc > 2 ? check_silence(job, argv[1]) : check(job, argv[1]);
    if (line != 0)
        fprintf(stderr, "rank %d: line %d\n", ct_job_assignment(job)->rank, line);
    ct_job_close(job);
    return line == 0 ? 0 : 1;
}
