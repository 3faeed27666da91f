/* ctrun's collectives on the loop of peers/loop.h: a worker that scripts/bench/wire starts on two
 * nodes.
 *
 *     ctrun --nnodes 2 ... wire [BYTES ...]
 *
 * From the environment: BENCH_BACKEND (or auto), BENCH_BLOCK (bytes) and BENCH_RAILS, as in struct
 * ct_tuning. */
#include "ctrun.h"
#include "group.h"
#include "peers/loop.h"

static void must(int code, const struct ct_error *err)
{
    if (code == 0)
        return;
    (void)fprintf(stderr, "wire: %s\n", err->text);
    exit(ct_exit_status(code));
}

static void run(void *context, enum bench_op op, float *data, size_t count)
{
    struct ct_group *group = context;
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
    struct ct_group *group = context;

    must(ct_all_reduce(group, ct_inplace(&value, 1, CT_F64), CT_REDUCE_MAX, NULL),
         ct_group_failure(group));
    return value;
}

static size_t number_of(const char *name)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    struct ct_tuning tuning = {.tcp_block_bytes = number_of("BENCH_BLOCK"),
                               .tcp_rails = (int)number_of("BENCH_RAILS")};
    struct ct_group_options options = {.backend = getenv("BENCH_BACKEND")};
    struct ct_error err = {0};
    struct ct_job *job = NULL;
    struct ct_group *group = NULL;

    must(ct_job_open(&job, &err), &err);
    must(ct_group_new_tuned(job, &options, &tuning, &group, &err), &err);
    struct bench_peer peer = {ct_group_rank(group), ct_group_size(group), group, run, most};
    if (peer.rank == 0)
        (void)printf("backend %s\n", ct_group_backend(group));
    bench_all(&peer, argc, argv);
    ct_group_free(group);
    ct_job_close(job);
    return 0;
}
