/* Calls of few bytes, which go without a request where all are there, beside those that do not. */
#include "collectives/group/group.h"
#include "rig.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <sched.h>

TestSuite(small_message, .timeout = 60);

enum { WORLD = 3, CALLS = 400, WIDEST = 8 };

static struct ct_group *_Atomic groups[WORLD];

static int with_group(struct ct_job *job, const char *backend,
                      int (*run)(struct ct_group *group, int rank))
{
    struct ct_group_options options = {.backend = backend, .timeout_ms = 30000};
    struct ct_group *group = NULL;
    struct ct_error err = {0};
    int rank = ct_job_assignment(job)->rank;

    if (ct_group_new(job, &options, &group, &err) != 0)
        return __LINE__;
    atomic_store(&groups[rank], group);
    int line = run(group, rank);
    if (ct_barrier(group, NULL) != 0)
        line = line != 0 ? line : __LINE__;
    atomic_store(&groups[rank], NULL);
    ct_group_free(group);
    return line;
}

static void run_all(int (*run)(struct ct_job *job, void *context))
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct ct_thread_world *world;

        cr_assert_eq(ct_thread_world_new(WORLD, &world), 0);
        cr_assert_eq(thread_ranks_run(world, run, (void *)(uintptr_t)rig_backends[i]), 0, "%s",
                     rig_backends[i]);
        ct_thread_world_free(world);
    }
}

/* ---- both forms ------------------------------------------------------------------------------*/

/* Which of the ranks wait for a handle. */
static bool by_handle(int call, int rank)
{
    return (call >> rank & 1) != 0;
}

static int reduce(struct ct_group *group, int call, int rank, struct ct_data data,
                  enum ct_reduce how)
{
    struct ct_request *request;

    if (!by_handle(call, rank))
        return ct_all_reduce(group, data, how, NULL);
    int code = ct_all_reduce_start(group, data, how, NULL, &request);
    return code != 0 ? code : ct_wait(request);
}

static int mixed_calls(struct ct_group *group, int rank)
{
    static const enum ct_reduce hows[] = {CT_REDUCE_SUM, CT_REDUCE_AVG, CT_REDUCE_MAX};
    static const float expected[] = {1 + 2 + 3, 2, 3};

    for (int call = 0; call < CALLS; call++) {
        size_t count = (size_t)call % WIDEST + 1, how = (size_t)call % 3;
        float x[WIDEST + 1];

        for (size_t k = 0; k <= WIDEST; k++)
            x[k] = (float)(rank + 1);
        if (reduce(group, call, rank, ct_inplace(x, count, CT_F32), hows[how]) != 0)
            return __LINE__;
        for (size_t k = 0; k < count; k++)
            if (x[k] != expected[how])
                return __LINE__;
        if (x[count] != (float)(rank + 1))
            return __LINE__;
        if (call % 7 == 0 && ct_barrier(group, NULL) != 0)
            return __LINE__;
    }
    return group->posted_call.posted || group->queued != 0 ? __LINE__ : 0;
}

static int mix(struct ct_job *job, void *backend)
{
    return with_group(job, backend, mixed_calls);
}

Test(small_message, small_calls_of_both_forms_meet_in_one_order)
{
    run_all(mix);
}

/* ---- late ------------------------------------------------------------------------------------*/

static bool waits(int rank)
{
    const struct ct_group *group = atomic_load(&groups[rank]);

    return group != NULL && atomic_load(&group->record->waiting) != 0;
}

static int late_call(struct ct_group *group, int rank)
{
    double x[2] = {rank + 1, 10 * (rank + 1)};

    for (int other = 0; rank == WORLD - 1 && other < WORLD - 1; other++)
        while (!waits(other))
            (void)sched_yield();
    if (ct_all_reduce(group, ct_inplace(x, 2, CT_F64), CT_REDUCE_SUM, NULL) != 0)
        return __LINE__;
    if (x[0] != 6 || x[1] != 60)
        return __LINE__;
    return group->collectives != 1 || atomic_load(&group->record->completed) != 1 ? __LINE__ : 0;
}

static int be_late(struct ct_job *job, void *backend)
{
    return with_group(job, backend, late_call);
}

Test(small_message, who_waits_for_a_late_one_has_told_it_once)
{
    run_all(be_late);
}

/* ---- not the same ----------------------------------------------------------------------------*/

static int other_call(struct ct_job *job, void *backend)
{
    struct ct_group_options options = {.backend = backend, .timeout_ms = 30000};
    struct ct_group *group = NULL;
    struct ct_error err = {0};
    float x = 1;

    if (ct_group_new(job, &options, &group, &err) != 0)
        return __LINE__;
    int code = ct_job_assignment(job)->rank == 1
                   ? ct_barrier(group, NULL)
                   : ct_all_reduce(group, ct_inplace(&x, 1, CT_F32), CT_REDUCE_SUM, NULL);
    ct_group_free(group);
    return code == CT_EMISMATCH ? 0 : __LINE__;
}

Test(small_message, a_barrier_beside_sums_ends_all)
{
    run_all(other_call);
}
