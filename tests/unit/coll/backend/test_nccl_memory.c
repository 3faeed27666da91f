/* Memory that communicators of backend nccl know, over tests/lib/fakenccl: it ends the process when
 * memory is freed under a window, or a window goes while a kernel is in it. */
#include "base/accel.h"
#include "base/assert.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void forget_faults(void)
{
    static const char *const names[] = {"FAKENCCL_FAULT", "FAKENCCL_RANK", "FAKENCCL_VERSION",
                                        "FAKENCCL_WITHOUT_REVOKE", "CTRUN_NCCL_WINDOWS"};

    for (size_t i = 0; i < CT_COUNT(names); i++)
        (void)unsetenv(names[i]);
}

static void ask_for_windows(void)
{
    forget_faults();
    setenv("CTRUN_NCCL_WINDOWS", "1", 1);
}

TestSuite(nccl_memory, .init = ask_for_windows, .fini = forget_faults, .timeout = 60);

enum { WORLD = 3, COUNT = 5000, BYTES = 1 << 16 };

/* Of this rank; NULL when there is none. */
static float *allocate(struct ct_group *group, size_t bytes)
{
    void *memory = NULL;
    struct ct_error err = {0};
    int code = ct_mem_alloc_on(group->job, group->device, bytes, &memory, &err);

    if (code != 0)
        (void)fprintf(stderr, "%s\n", err.text);
    return memory;
}

static int sum_in(struct ct_group *group, float *memory)
{
    memory[0] = 1;
    if (ct_all_reduce(group, ct_inplace(memory, COUNT, CT_F32), CT_REDUCE_SUM, NULL) != 0)
        return __LINE__;
    return memory[0] == (float)ct_group_size(group) ? 0 : __LINE__;
}

static void run(int (*body)(struct ct_group *group, struct rig *rig), void *shared)
{
    struct rig rig = {.backend = "nccl", .world = WORLD, .device = true, .shared = shared};

    cr_assert_eq(rig_run(&rig, body), 0);
}

/* Nothing of it is left, and each window went before its communicator. */
static void expect_nothing_left(void)
{
    struct fakenccl_counts counts = rig_nccl();

    cr_assert_eq(counts.comms, 0);
    cr_assert_eq(counts.windows, 0);
    cr_assert_eq(counts.allocations, 0, "%d allocations", counts.allocations);
    cr_assert_eq(counts.left_behind, 0, "%d windows", counts.left_behind);
}

/* Windows of all ranks, when all are here. */
static int expect_windows(struct ct_group *group, int windows)
{
    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    int line = rig_nccl().windows == windows ? 0 : __LINE__;
    return ct_barrier(group, NULL) == 0 ? line : __LINE__;
}

/* ---- in order --------------------------------------------------------------------------------*/

/* The lane that gathers comes later, and gets to know the memory, too. */
static int use(struct ct_group *group, struct rig *rig)
{
    float *memory = allocate(group, BYTES);

    (void)rig;
    if (memory == NULL || memory[0] != 0 || memory[COUNT - 1] != 0)
        return __LINE__;
    if (ct_group_share(group, memory, NULL) != 0)
        return __LINE__;
    int line = expect_windows(group, WORLD);
    line = line != 0 ? line : sum_in(group, memory);
    memory[ct_group_rank(group)] = (float)ct_group_rank(group) + 1;
    if (line == 0 && ct_all_gather(group, ct_inplace(memory, 1, CT_F32), NULL) != 0)
        line = __LINE__;
    for (int i = 0; i < WORLD && line == 0; i++)
        line = memory[i] == (float)i + 1 ? 0 : __LINE__;
    line = line != 0 ? line : expect_windows(group, 2 * WORLD);
    ct_mem_free(group->job, memory); /* it stays as long as windows are on it */
    return line;
}

Test(nccl_memory, each_communicator_that_reduces_or_gathers_gets_a_window)
{
    run(use, NULL);
    expect_nothing_left();
}

/* Parts of the group know it only when they are told. */
static int use_in_part(struct ct_group *group, struct rig *rig)
{
    float *memory = allocate(group, BYTES);
    int rank = ct_group_rank(group), line = 0;
    struct ct_group *part = NULL;

    (void)rig;
    if (memory == NULL || ct_group_split(group, rank > 0, 0, &part, NULL) != 0)
        return __LINE__;
    if (ct_group_share(part, memory, NULL) != 0)
        line = __LINE__;
    line = line != 0 ? line : expect_windows(group, 2);
    line = line != 0 || rank == 0 ? line : sum_in(part, memory);
    ct_group_free(part);
    line = line != 0 ? line : expect_windows(group, 0);
    ct_mem_free(group->job, memory);
    return line != 0 ? line : expect_windows(group, 0);
}

Test(nccl_memory, windows_go_with_the_group_that_was_told)
{
    run(use_in_part, NULL);
    expect_nothing_left();
}

static int leave_to_job(struct ct_group *group, struct rig *rig)
{
    float *memory = allocate(group, BYTES);

    (void)rig;
    return memory != NULL && ct_group_share(group, memory, NULL) == 0 ? 0 : __LINE__;
}

Test(nccl_memory, what_nobody_frees_goes_with_the_job)
{
    run(leave_to_job, NULL);
    expect_nothing_left();
}

/* ---- none ------------------------------------------------------------------------------------*/

/* As much as *shared says at rank 1, or none there. */
static int share_unequal(struct ct_group *group, struct rig *rig)
{
    size_t bytes = ct_group_rank(group) == 1 ? *(const size_t *)rig->shared : BYTES;
    float *memory = bytes > 0 ? allocate(group, bytes) : NULL, *own = memory, plain[COUNT] = {0};

    if (bytes > 0 && memory == NULL)
        return __LINE__;
    if (ct_group_share(group, memory, NULL) != 0)
        return __LINE__;
    int line = expect_windows(group, 0);
    line = line != 0 ? line : sum_in(group, own != NULL ? own : plain);
    ct_mem_free(group->job, memory);
    return line;
}

Test(nccl_memory, members_with_other_sizes_register_nothing)
{
    size_t bytes[] = {(size_t)2 * BYTES, 0};

    for (size_t i = 0; i < CT_COUNT(bytes); i++)
        run(share_unequal, &bytes[i]);
    expect_nothing_left();
}

static int use_without(struct ct_group *group, struct rig *rig)
{
    float *memory = allocate(group, BYTES);

    (void)rig;
    if (memory == NULL || ct_group_share(group, memory, NULL) != 0)
        return __LINE__;
    int line = expect_windows(group, 0);
    line = line != 0 ? line : sum_in(group, memory);
    ct_mem_free(group->job, memory);
    return line;
}

Test(nccl_memory, windows_that_nccl_refuses_are_done_without)
{
    setenv("FAKENCCL_FAULT", "no_window", 1);
    run(use_without, NULL);
    expect_nothing_left();
}

static int expect_none(struct ct_group *group, struct rig *rig)
{
    void *memory = NULL;
    struct ct_error err = {0};
    int code = ct_mem_alloc_on(group->job, group->device, BYTES, &memory, &err);

    return code < 0 && strstr(err.text, rig->shared) != NULL ? 0 : __LINE__;
}

Test(nccl_memory, there_is_none_unless_it_is_asked_for_and_nccl_has_all_it_takes)
{
    unsetenv("CTRUN_NCCL_WINDOWS");
    run(expect_none, (char[]){"not asked for"});
    setenv("CTRUN_NCCL_WINDOWS", "1", 1);
    setenv("FAKENCCL_VERSION", "22707", 1);
    run(expect_none, (char[]){"before 2.28.7"});
    unsetenv("FAKENCCL_VERSION");
    setenv("FAKENCCL_FAULT", "fail_memory", 1);
    run(expect_none, (char[]){"no memory of a device"});
}

/* ---- when things go wrong --------------------------------------------------------------------*/

static int share_in_vain(struct ct_group *group, struct rig *rig)
{
    float *memory = allocate(group, BYTES);
    struct ct_error err = {0};

    if (memory == NULL || ct_group_share(group, memory, &err) == 0)
        return __LINE__;
    ct_mem_free(group->job, memory);
    if (strstr(err.text, "collectives.windows") != NULL) /* who comes late finds others gone */
        (void)atomic_fetch_add((atomic_int *)rig->shared, 1);
    return ct_barrier(group, NULL) < 0 ? 0 : __LINE__;
}

Test(nccl_memory, a_window_that_fails_breaks_the_group_and_says_what_helps)
{
    atomic_int told = 0;

    setenv("FAKENCCL_FAULT", "fail_window", 1);
    run(share_in_vain, &told);
    cr_assert_gt(atomic_load(&told), 0);
    expect_nothing_left();
}

/* A kernel works in the window when the round ends: rank 0 never calls. */
static int lose_round(struct ct_group *group, struct rig *rig)
{
    float *memory = allocate(group, BYTES);
    int line = 0;

    if (memory == NULL || ct_group_share(group, memory, NULL) != 0)
        return __LINE__;
    /* Rank 0 may be through and gone before the others are; their device is in the memory then. */
    bool told = sum_in(group, memory) != 0;
    if (ct_group_rank(group) == 0)
        ct_thread_world_revoke(rig->threads);
    else if (!told && sum_in(group, memory) == 0)
        line = __LINE__;
    (void)ct_barrier(group, NULL);
    ct_mem_free(group->job, memory);
    return line;
}

Test(nccl_memory, a_round_that_ends_takes_windows_before_the_communicators)
{
    run(lose_round, NULL);
    expect_nothing_left();
}

/* Nothing takes its kernels out of the windows: they stay, and so does what they are on. */
Test(nccl_memory, memory_that_a_kernel_may_be_in_is_not_freed)
{
    setenv("FAKENCCL_WITHOUT_REVOKE", "1", 1);
    run(lose_round, NULL);
    cr_assert_gt(rig_nccl().left_behind, 0);
    cr_assert_eq(rig_nccl().comms, 0);
}
