/* ctrun's collectives on the loop of peers/loop.h: a worker that scripts/bench/wire starts on two
 * nodes, scripts/bench/collectives on one.
 *
 *     ctrun ... peer [WORD ...]
 *
 * From the environment: BENCH_BACKEND (or auto); BENCH_BLOCK, BENCH_CHUNK, BENCH_FLAT (bytes) and
 * BENCH_RAILS, as in struct ct_tuning; with BENCH_SYMMETRIC the data lie in memory of ct_mem_alloc.
 */
#include "ctrun.h"
#include "group.h"
#include "peers/loop.h"

static void must(int code, const struct ct_error *err)
{
    if (code == 0)
        return;
    (void)fprintf(stderr, "peer: %s\n", err->text);
    exit(ct_exit_status(code));
}

struct bench {
    struct ct_job *job;
    struct ct_group *group;
};

static void run(void *context, enum bench_op op, float *data, size_t count)
{
    struct ct_group *group = ((struct bench *)context)->group;
    size_t part = count / (size_t)ct_group_size(group);
    int code;

    if (op == BENCH_ALL_REDUCE)
        code = ct_all_reduce(group, ct_inplace(data, count, CT_F32), CT_REDUCE_SUM, NULL);
    else if (op == BENCH_BROADCAST)
        code = ct_broadcast(group, ct_inplace(data, count, CT_F32), 0, NULL);
    else
        code = ct_all_gather(group, ct_inplace(data, part, CT_F32), NULL);
    must(code, ct_group_failure(group));
}

static double most(void *context, double value)
{
    struct ct_group *group = ((struct bench *)context)->group;

    must(ct_all_reduce(group, ct_inplace(&value, 1, CT_F64), CT_REDUCE_MAX, NULL),
         ct_group_failure(group));
    return value;
}

static float *memory(void *context, size_t bytes)
{
    struct ct_error err = {0};
    void *data = NULL;

    must(ct_mem_alloc(((struct bench *)context)->job, bytes, &data, &err), &err);
    return data;
}

static size_t number_of(const char *name)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    struct ct_tuning tuning = {.tcp_block_bytes = number_of("BENCH_BLOCK"),
                               .tcp_rails = number_of("BENCH_RAILS"),
                               .local_chunk_bytes = number_of("BENCH_CHUNK"),
                               .local_flat_bytes = number_of("BENCH_FLAT")};
    struct ct_group_options options = {.backend = getenv("BENCH_BACKEND")};
    struct ct_error err = {0};
    struct bench bench = {0};

    must(ct_job_open(&bench.job, &err), &err);
    must(ct_group_new_tuned(bench.job, &options, &tuning, &bench.group, &err), &err);
    struct bench_peer peer = {.rank = ct_group_rank(bench.group),
                              .size = ct_group_size(bench.group),
                              .context = &bench,
                              .run = run,
                              .max = most,
                              .memory = getenv("BENCH_SYMMETRIC") != NULL ? memory : NULL};
    if (peer.rank == 0)
        (void)printf("backend %s\n", ct_group_backend(bench.group));
    bench_all(&peer, argc, argv);
    ct_group_free(bench.group);
    ct_job_close(bench.job);
    return 0;
}
