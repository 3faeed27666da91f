/* Backend nccl when things go wrong, over tests/lib/fakenccl; and its pure parts. Faults of the
 * double are set before ranks start and unset after: each test is a process of its own. */
#include "backend/nccl/nccl_calls.h"
#include "backend/nccl/nccl_library.h"
#include "base/accel.h"
#include "base/assert.h"
#include "rig.h"
#include "thread_ranks.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where tests are processes of their own this has nothing to do. */
static void forget_faults(void)
{
    static const char *const names[] = {
        "FAKENCCL_FAULT",   "FAKENCCL_RANK",       "FAKENCCL_VERSION", "FAKENCCL_WITHOUT_REVOKE",
        "FAKENCCL_HANG_MS", "CTRUN_NCCL_ABORT_MS", "NCCL_HOSTID",      "NCCL_COMM_BLOCKING"};

    for (size_t i = 0; i < CT_COUNT(names); i++)
        (void)unsetenv(names[i]);
}

TestSuite(nccl, .init = forget_faults, .fini = forget_faults, .timeout = 60);

enum { WORLD = 3, COUNT = 1000 };

/* A rank's; a device may write after a call has failed, until its group is freed. */
static float buffers[WORLD][COUNT];

static struct ct_data buffer_of(const struct ct_group *group, size_t count)
{
    return ct_inplace(buffers[ct_group_rank(group)], count, CT_F32);
}

/* ---- pure parts ------------------------------------------------------------------------------*/

static bool carries(enum ct_reduce reduce, enum ct_dtype dtype, enum ct_reduce_mode mode, int size)
{
    struct ct_call call = {
        .kind = CT_CALL_ALL_REDUCE, .reduce = reduce, .dtype = dtype, .mode = mode, .size = size};

    return ct_nccl_carries(&call);
}

Test(nccl, carries_what_has_the_meaning_of_ours)
{
    cr_assert(carries(CT_REDUCE_SUM, CT_F32, CT_MODE_FAST, 8));
    cr_assert(carries(CT_REDUCE_SUM, CT_BF16, CT_MODE_REPRODUCIBLE, 2));
    cr_assert_not(carries(CT_REDUCE_SUM, CT_F32, CT_MODE_REPRODUCIBLE, 3), "order");
    cr_assert_not(carries(CT_REDUCE_SUM, CT_F32, CT_MODE_INVARIANT, 4), "order");
    cr_assert(carries(CT_REDUCE_SUM, CT_I64, CT_MODE_INVARIANT, 4));
    cr_assert(carries(CT_REDUCE_AVG, CT_F32, CT_MODE_FAST, 4));
    cr_assert_not(carries(CT_REDUCE_AVG, CT_F32, CT_MODE_FAST, 3), "1/3 is rounded");
    cr_assert_not(carries(CT_REDUCE_AVG, CT_I32, CT_MODE_FAST, 4), "rounds to zero here");
    cr_assert_not(carries(CT_REDUCE_MAX, CT_F32, CT_MODE_FAST, 2), "NaN");
    cr_assert(carries(CT_REDUCE_MAX, CT_I32, CT_MODE_FAST, 2));
    cr_assert_not(carries(CT_REDUCE_SUM, CT_BOOL, CT_MODE_FAST, 2));
    cr_assert_not(carries(CT_REDUCE_SUM, CT_I16, CT_MODE_FAST, 2));
    cr_assert_not(carries(CT_REDUCE_PREMUL_SUM, CT_F32, CT_MODE_FAST, 2));
}

Test(nccl, versions_that_are_known_to_be_faulty_are_refused)
{
    static const struct {
        int version;
        bool refused;
    } rows[] = {{21700, true}, {21800, true}, {21801, false}, {22802, false},
                {22803, true}, {22808, true}, {22809, false}, {23007, false}};
    struct ct_error err = {0};

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        cr_assert_eq(ct_nccl_version_check(rows[i].version, &err) != 0, rows[i].refused, "%d",
                     rows[i].version);
    (void)ct_nccl_version_check(22805, &err);
    cr_assert_str_eq(err.text, "NCCL 2.28.5 is not used: recovery after a lost rank is known to "
                               "fail with 2.28.3 to 2.28.8; install a newer one");
}

Test(nccl, types_are_those_of_its_header)
{
#if __has_include(<nccl.h>)
    cr_assert_eq((int)CT_NCCL_IN_PROGRESS, (int)ncclInProgress);
    cr_assert_eq((int)CT_NCCL_REMOTE_ERROR, (int)ncclRemoteError);
    cr_assert_eq((int)CT_NCCL_AVG, (int)ncclAvg);
    cr_assert_eq((int)CT_NCCL_BFLOAT16, (int)ncclBfloat16);
#ifdef NCCL_WIN_COLL_SYMMETRIC /* NCCL 2.27 */
    cr_assert_eq((int)CT_NCCL_WIN_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
#endif
    cr_assert_eq(sizeof(struct ct_nccl_id), sizeof(ncclUniqueId));
    cr_assert_eq(offsetof(struct ct_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
    cr_assert_eq(offsetof(struct ct_nccl_config, net_name), offsetof(ncclConfig_t, netName));
    cr_assert_eq(offsetof(struct ct_nccl_config, split_share), offsetof(ncclConfig_t, splitShare));
#else
    cr_skip_test("skipped: nccl.h is not on the include path");
#endif
}

/* ---- forming ---------------------------------------------------------------------------------*/

static int expect_backend(struct ct_group *group, struct rig *rig)
{
    float *first = buffers[ct_group_rank(group)];

    *first = 1;
    if (strcmp(ct_group_backend(group), rig->shared) != 0)
        return __LINE__;
    if (ct_all_reduce(group, buffer_of(group, COUNT), CT_REDUCE_SUM, NULL) != 0)
        return __LINE__;
    return *first == (float)ct_group_size(group) ? 0 : __LINE__;
}

static void run_and_expect(struct rig rig, const char *backend)
{
    char name[16];

    (void)snprintf(name, sizeof name, "%s", backend);
    rig.device = true;
    rig.world = WORLD;
    rig.shared = name;
    cr_assert_eq(rig_run(&rig, expect_backend), 0);
}

Test(nccl, is_what_auto_takes_for_a_device_each)
{
    run_and_expect((struct rig){0}, "nccl");
}

Test(nccl, ranks_that_share_a_device_go_through_the_host)
{
    run_and_expect((struct rig){.one_device = true}, "staged");
}

Test(nccl, ranks_that_share_a_device_go_by_nccl_where_each_is_told_to_be_its_own_host)
{
    setenv("NCCL_HOSTID", "a", 1);
    run_and_expect((struct rig){.one_device = true}, "nccl");
}

Test(nccl, a_faulty_version_is_passed_over)
{
    setenv("FAKENCCL_VERSION", "22805", 1);
    run_and_expect((struct rig){0}, "staged");
}

Test(nccl, one_rank_whose_communicator_fails_takes_all_to_the_next_backend)
{
    setenv("FAKENCCL_FAULT", "fail_init", 1);
    setenv("FAKENCCL_RANK", "1", 1);
    run_and_expect((struct rig){0}, "staged");
}

Test(nccl, calls_that_are_enqueued_late_are_waited_for)
{
    setenv("FAKENCCL_FAULT", "slow_enqueue", 1);
    run_and_expect((struct rig){0}, "nccl");
}

static int make_group(struct ct_job *job, void *context)
{
    struct ct_group_options options = {
        .backend = "nccl", .timeout_ms = 300, .device = rig_accel(ct_job_assignment(job)->rank)};
    struct ct_group *group;
    struct ct_error err = {0};
    int code = ct_group_new(job, &options, &group, &err);

    if (code == 0)
        ct_group_free(group);
    ((int *)context)[ct_job_assignment(job)->rank] = code;
    return 0;
}

static void run_jobs(int (*body)(struct ct_job *job, void *context), void *context)
{
    struct ct_thread_world *world;

    (void)rig_accel(0);
    cr_assert_eq(ct_thread_world_new(WORLD, &world), 0);
    cr_assert_eq(thread_ranks_run(world, body, context), 0);
    ct_thread_world_free(world);
}

Test(nccl, a_communicator_that_does_not_form_costs_the_timeout)
{
    int codes[WORLD];

    setenv("FAKENCCL_FAULT", "hang_init", 1);
    run_jobs(make_group, codes);
    for (int i = 0; i < WORLD; i++)
        cr_assert_eq(codes[i], CT_ETIMEOUT, "rank %d", i);
}

Test(nccl, a_library_that_may_block_is_not_used)
{
    int codes[WORLD];

    setenv("NCCL_COMM_BLOCKING", "1", 1);
    run_jobs(make_group, codes);
    for (int i = 0; i < WORLD; i++)
        cr_assert_eq(codes[i], CT_EUNSUPPORTED, "rank %d", i);
}

/* ---- at work ---------------------------------------------------------------------------------*/

/* Rank 1 calls something else. */
static int differ(struct ct_group *group, struct rig *rig)
{
    size_t count = ct_group_rank(group) == 1 ? COUNT / 2 : COUNT;
    int code = ct_all_reduce(group, buffer_of(group, count), CT_REDUCE_SUM, NULL);

    (void)rig;
    if (code != CT_EMISMATCH)
        return __LINE__;
    return strstr(ct_group_failure(group)->text, "500") != NULL ? 0 : __LINE__;
}

Test(nccl, members_that_call_different_things_are_told)
{
    struct rig rig = {.backend = "nccl", .world = WORLD, .device = true};

    cr_assert_eq(rig_run(&rig, differ), 0);
}

/* Rank 0 does not come. */
static int miss(struct ct_group *group, struct rig *rig)
{
    struct ct_options options = {.timeout_ms = 200};

    (void)rig;
    if (ct_group_rank(group) == 0)
        return 0;
    int code = ct_all_reduce(group, buffer_of(group, COUNT), CT_REDUCE_SUM, &options);
    return code == CT_ETIMEOUT || code == CT_ECLOSED ? 0 : __LINE__;
}

Test(nccl, a_member_that_does_not_come_costs_the_timeout)
{
    struct rig rig = {.backend = "nccl", .world = WORLD, .device = true};

    cr_assert_eq(rig_run(&rig, miss), 0);
}

static int fail_late(struct ct_group *group, struct rig *rig)
{
    int code = ct_all_reduce(group, buffer_of(group, COUNT), CT_REDUCE_SUM, NULL);

    (void)rig;
    return code == CT_ECLOSED ? 0 : __LINE__;
}

Test(nccl, what_nccl_finds_out_later_ends_the_call)
{
    struct rig rig = {.backend = "nccl", .world = WORLD, .device = true};

    setenv("FAKENCCL_FAULT", "async_error", 1);
    cr_assert_eq(rig_run(&rig, fail_late), 0);
}

/* ---- rounds ----------------------------------------------------------------------------------*/

/* Two groups under way when the round ends: rank 0 never calls. */
static int lose_round(struct ct_group *group, struct rig *rig)
{
    struct ct_group *second = NULL;
    int line = 0, code;

    if (ct_group_split(group, 0, ct_group_rank(group), &second, NULL) != 0)
        return __LINE__;
    code = ct_barrier(second, NULL); /* all have it when this returns at one */
    if (ct_group_rank(group) == 0 && code == 0) {
        ct_thread_world_revoke(rig->threads);
    } else {
        code = ct_all_reduce(second, buffer_of(group, COUNT), CT_REDUCE_SUM, NULL);
        line = code == CT_EREVOKED ? 0 : __LINE__;
    }
    code = ct_barrier(group, NULL);
    if (code != CT_EREVOKED && code != CT_ECLOSED)
        line = __LINE__;
    ct_group_free(second);
    return line;
}

Test(nccl, a_round_that_ends_takes_all_communicators_and_the_next_makes_new_ones)
{
    struct rig rig = {.backend = "nccl", .world = WORLD, .device = true};

    cr_assert_eq(rig_run(&rig, lose_round), 0);
    setenv("FAKENCCL_WITHOUT_REVOKE", "1", 1);
    cr_assert_eq(rig_run(&rig, lose_round), 0);
    rig.shared = (char[]){"nccl"};
    cr_assert_eq(rig_run(&rig, expect_backend), 0);
}

/* ---- an abort that hangs ---------------------------------------------------------------------*/

static atomic_int given_up;

static void note_end(struct ct_job *job, const struct ct_error *why)
{
    (void)job;
    (void)atomic_fetch_add(&given_up, why->code == CT_EHUNG);
}

static int lose_and_hang(struct ct_group *group, struct rig *rig)
{
    struct ct_options options = {.timeout_ms = 100};

    (void)rig;
    group->job->give_up = note_end;
    if (ct_group_rank(group) == 0)
        return 0;
    (void)ct_all_reduce(group, buffer_of(group, COUNT), CT_REDUCE_SUM, &options);
    return 0;
}

Test(nccl, an_abort_that_hangs_ends_the_process)
{
    struct rig rig = {.backend = "nccl", .world = WORLD, .device = true};

    setenv("FAKENCCL_FAULT", "hang_abort", 1);
    setenv("FAKENCCL_RANK", "2", 1);
    setenv("FAKENCCL_HANG_MS", "3600000", 1);
    setenv("CTRUN_NCCL_ABORT_MS", "300", 1);
    cr_assert_eq(rig_run(&rig, lose_and_hang), 0);
    cr_assert_geq(atomic_load(&given_up), 1);
}
