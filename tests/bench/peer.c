/* ctrun's collectives on the loop of peers/loop.h: a worker that scripts/bench/wire starts on two
 * nodes, scripts/bench/collectives on one.
 *
 *     ctrun ... peer [WORD ...]
 *
 * From the environment: BENCH_BACKEND (or auto); BENCH_BLOCK, BENCH_CHUNK, BENCH_FLAT (bytes) and
 * BENCH_RAILS, as in struct ct_tuning; with BENCH_SYMMETRIC the data lie in memory of ct_mem_alloc.
 */
#include "backend/local/local.h"
#include "ctrun.h"
#include "group/group.h"
#include "peers/bare.h"
#include "peers/loop.h"

#include <string.h>

enum { FLAGS_BYTES = 64 << 10 }; /* enough for an all_reduce that goes in place */

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
    struct bare bare; /* no ranks: the group has no memory in common */
};

static void run(void *context, enum bench_op op, float *data, size_t count)
{
    struct ct_group *group = ((struct bench *)context)->group;
    int code;

    if (op == BENCH_ALL_REDUCE)
        code = ct_all_reduce(group, ct_inplace(data, count, CT_F32), CT_REDUCE_SUM, NULL);
    else if (op == BENCH_BROADCAST)
        code = ct_broadcast(group, ct_inplace(data, count, CT_F32), 0, NULL);
    else
        code = ct_all_gather(group, ct_inplace(data, count / (size_t)ct_group_size(group), CT_F32),
                             NULL);
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

/* ---- the bare way, on the group's own pages --------------------------------------------------*/

/* Where all ranks' buffers lie, if this one's of the last call on symmetric memory is `data`. */
static bool find_buffers(const struct bench *bench, const void *data, char **ret_of)
{
    const struct ct_local *local = bench->group->state;

    if (local->reach[local->rank].buffer[0] != data)
        return false;
    for (int i = 0; i < local->size; i++)
        ret_of[i] = local->reach[i].buffer[0];
    return true;
}

/* Flags, one a rank, in memory of each. */
static void make_bare(struct bench *bench)
{
    int size = ct_group_size(bench->group);
    char *flags[BARE_RANKS_MAX];
    float *page;

    if (strcmp(ct_group_backend(bench->group), "shm") != 0 || size > BARE_RANKS_MAX)
        return;
    page = memory(bench, FLAGS_BYTES);
    memset(page, 0, FLAGS_BYTES);
    run(bench, BENCH_ALL_REDUCE, page, FLAGS_BYTES / sizeof *page);
    if (!find_buffers(bench, page, flags))
        return;
    bench->bare = (struct bare){.ranks = size,
                                .rank = ct_group_rank(bench->group),
                                .crowded = size > (int)sysconf(_SC_NPROCESSORS_ONLN)};
    for (int i = 0; i < size; i++)
        bench->bare.flags[i] = (struct bare_flag *)(void *)flags[i];
}

/* As bench_peer.bare. */
static int bare(void *context, enum bench_op op, float *data, size_t count, int calls)
{
    struct bench *bench = context;
    struct bare *bare = &bench->bare;
    bool brief = count * sizeof *data < BENCH_TOUCH_BYTES;

    if (calls < 0 && (op != BENCH_ALL_REDUCE || bare->ranks == 0))
        return 0;
    if (calls < 0)
        return brief ? bare->ranks == 2 : find_buffers(bench, data, bare->data);
    for (int i = 0; i < calls; i++) {
        if (brief) {
            bare_hop(bare);
        } else {
            bare_sum(bare, count * sizeof *data);
            bare_meet(bare);
        }
    }
    return 1;
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
                              .bare = bare,
                              .max = most,
                              .memory = getenv("BENCH_SYMMETRIC") != NULL ? memory : NULL};
    make_bare(&bench);
    if (peer.rank == 0)
        (void)printf("backend %s\n", ct_group_backend(bench.group));
    bench_all(&peer, argc, argv);
    ct_group_free(bench.group);
    ct_job_close(bench.job);
    return 0;
}
