/* See rig.h. */
#include "rig.h"

#include "backend/ucx/ucx_worker.h"
#include "base/assert.h"
#include "sanitized.h"
#include "thread_ranks.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct ct_tuning tiny = {.local_chunk_bytes = 64,
                               .local_stage_bytes = 1024,
                               .local_flat_bytes = 64,
                               .local_ring_bytes = 64,
                               .tcp_block_bytes = 256,
                               .tcp_rails = 3,
                               .tcp_rail_bytes = 64,
                               .local_direct_bytes = 64,
                               .local_stream_bytes = 256,
                               .tcp_flat_bytes = 64,
                               .tcp_bruck_bytes = 128,
                               .tcp_message_bytes = 256,
                               .tcp_doubling_bytes = 64,
                               .tcp_tree_bytes = 256,
                               .tcp_binomial_bytes = 128,
                               .tcp_halving_bytes = 512,
                               .tcp_chain_reduce_bytes = 512,
                               .tcp_gather_bytes = 128,
                               .tcp_chain_bytes = 128,
                               .hier_small_bytes = 64,
                               .hier_piece_bytes = 512,
                               .staged_piece_bytes = 256};
const char *const rig_backends[RIG_BACKENDS] = {"thread", "shm", "tcp", "ucx"};
const int rig_worlds[6] = {1, 2, 3, 4, 5, 8};

/* Its library is looked for once; ThreadSanitizer would take what it does not see for races. */
static bool has_ucx(void)
{
#ifdef __SANITIZE_THREAD__
    return false;
#else
    struct ct_ucx *ucx = NULL;
    struct ct_error err = {0};

    if (ct_ucx_open(&ucx, &err) != 0)
        fprintf(stderr, "skipped on ucx: %s\n", err.text);
    ct_ucx_close(ucx);
    return ucx != NULL;
#endif
}

int rig_backend_count(void)
{
    static int count;

    if (count == 0)
        count = has_ucx() ? RIG_BACKENDS : RIG_BACKENDS - 1;
    return count;
}

/* It lies beside this test. */
static void *double_of_nccl(void)
{
    static void *library;
    char path[4096];

    if (library != NULL)
        return library;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof "fakenccl.so");
    CT_ASSERT(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "fakenccl.so");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CT_ASSERT(library != NULL && setenv("CTRUN_NCCL", path, 1) == 0);
    return library;
}

const struct ct_accel *rig_accel(int index)
{
    static const struct ct_accel *(*accel)(int index);

    if (accel == NULL) {
        void *symbol = dlsym(double_of_nccl(), "fakenccl_accel");

        memcpy(&accel, &symbol, sizeof accel);
    }
    return accel(index);
}

struct fakenccl_counts rig_nccl(void)
{
    struct fakenccl_counts (*counts)(void);
    void *symbol = dlsym(double_of_nccl(), "fakenccl_counts");

    memcpy(&counts, &symbol, sizeof counts);
    return counts();
}

struct run {
    struct rig *rig;
    int (*body)(struct ct_group *group, struct rig *rig);
};

static int run_rank(struct ct_job *job, void *context)
{
    struct run *run = context;
    struct rig *rig = run->rig;
    uint64_t timeout_ms = rig->timeout_ms != 0 ? rig->timeout_ms : 30000;
    struct ct_group_options options = {.backend = rig->backend, .timeout_ms = 30000};
    struct ct_group *group = NULL;
    struct ct_error err = {0};

    if (rig->device)
        options.device = rig_accel(rig->one_device ? 0 : ct_job_assignment(job)->rank);
    if (ct_group_new_tuned(job, &options, &rig->tuning, &group, &err) != 0) {
        fprintf(stderr, "rank %d: %s\n", ct_job_assignment(job)->rank, err.text);
        return __LINE__;
    }
    group->timeout_ms = timeout_ms;
    int line = run->body(group, rig);
    if (line != 0)
        fprintf(stderr, "rank %d of %d, %s: line %d; %s\n", ct_group_rank(group), rig->world,
                ct_group_backend(group), line, ct_group_failure(group)->text);
    ct_group_free(group);
    return line;
}

int rig_run(struct rig *rig, int (*body)(struct ct_group *group, struct rig *rig))
{
    struct run run = {rig, body};

    if (ct_thread_world_new_nodes(rig->world, CT_MAX(rig->nodes, 1), &rig->threads) != 0)
        return __LINE__;
    if (rig->device)
        (void)rig_accel(0); /* before there are threads */
    if (rig->seats != NULL)
        thread_ranks_seat(rig->threads, rig->seats);
    int line = thread_ranks_run(rig->threads, run_rank, &run);
    ct_thread_world_free(rig->threads);
    rig->threads = NULL;
    return line;
}

/* What is done in minutes on two cores: sanitizers get worlds of two and four, ucx up to four. */
static bool is_affordable(int index)
{
    int world = rig_case(index).world;

    return SANITIZED ? world == 2 || world == 4 : world <= 4 || index < RIG_CASES - 6;
}

static struct criterion_test_params cases(int backends)
{
    static int numbers[RIG_CASES];
    size_t count = 0;

    for (int i = 0; i < RIG_LAYOUTS + backends * 6; i++)
        if (is_affordable(i))
            numbers[count++] = i;
    return cr_make_param_array(int, numbers, count);
}

struct criterion_test_params rig_cases(void)
{
    return cases(rig_backend_count());
}

struct criterion_test_params rig_shared_cases(void)
{
    return cases(RIG_SHARED);
}

struct rig rig_case(int index)
{
    static const int layouts[RIG_LAYOUTS][2] = {{4, 2}, {6, 2}, {8, 2}, {9, 3}}; /* world, nodes */

    if (index < RIG_LAYOUTS)
        return (struct rig){
            .backend = "hier", .world = layouts[index][0], .nodes = layouts[index][1]};
    index -= RIG_LAYOUTS;
    return (struct rig){.backend = rig_backends[index / 6], .world = rig_worlds[index % 6]};
}
