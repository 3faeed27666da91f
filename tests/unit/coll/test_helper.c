/* The helper: what handle forms leave open goes on while the rank computes. A rank "computes" here
 * by waiting for what its peers can only reach when it takes part, without a call on the group. */
#include "collectives/group/helper.h"

#include "base/assert.h"
#include "rig.h"
#include "thread_ranks.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

TestSuite(helper, .timeout = 60);

enum { COUNT = 40000, OPEN = 5, LAYOUTS = 5, WORLD_MAX = 4 };

/* Enough chunks that a call can not be over at the first look. */
static const struct ct_tuning small = {.local_chunk_bytes = 16 << 10,
                                       .local_ring_bytes = 4 << 10,
                                       .tcp_block_bytes = 8 << 10,
                                       .hier_piece_bytes = 32 << 10};

struct scene {
    _Atomic int through; /* ranks whose blocking call has returned */
};

/* thread, shm, tcp, ucx on one node; hier on two. */
static struct rig layout(int i, struct scene *scene)
{
    *scene = (struct scene){0};
    if (i == RIG_BACKENDS)
        return (struct rig){
            .backend = "hier", .world = 4, .nodes = 2, .tuning = small, .shared = scene};
    return (struct rig){.backend = rig_backends[i], .world = 2, .tuning = small, .shared = scene};
}

static bool exists(int i)
{
    return i == RIG_BACKENDS || i < rig_backend_count();
}

static int sum_of(const float *data, size_t count, float expected)
{
    for (size_t i = 0; i < count; i++)
        if (data[i] != expected)
            return __LINE__;
    return 0;
}

static void fill(float *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] = 1.0f;
}

/* Rank 0 starts, and waits for the others without a call on the group. */
static int start_and_compute(struct ct_group *group, struct rig *rig)
{
    float data[COUNT];
    struct scene *scene = rig->shared;
    struct ct_request *request;
    int others = ct_group_size(group) - 1;

    fill(data, COUNT);
    if (ct_group_rank(group) != 0) {
        int code = ct_all_reduce(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_SUM, NULL);

        atomic_fetch_add(&scene->through, 1);
        return code != 0 ? __LINE__ : sum_of(data, COUNT, (float)others + 1);
    }
    if (ct_all_reduce_start(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_SUM, NULL,
                            &request) != 0)
        return __LINE__;
    while (atomic_load(&scene->through) < others)
        (void)sched_yield();
    return ct_wait(request) != 0 ? __LINE__ : sum_of(data, COUNT, (float)others + 1);
}

Test(helper, peers_get_through_while_a_rank_computes)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct scene scene;
        struct rig rig = layout(i, &scene);

        if (exists(i))
            cr_assert_eq(rig_run(&rig, start_and_compute), 0, "layout %d", i);
    }
}

/* Blocking forms make none; what is over leaves it asleep. */
static int look_at_the_helper(struct ct_group *group, struct rig *rig)
{
    float data[COUNT];
    struct ct_request *request;

    (void)rig;
    fill(data, COUNT);
    if (ct_barrier(group, NULL) != 0 ||
        ct_all_reduce(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_MAX, NULL) != 0)
        return __LINE__;
    if (group->helper.created)
        return __LINE__;
    if (ct_all_reduce_start(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_MAX, NULL,
                            &request) != 0 ||
        ct_wait(request) != 0)
        return __LINE__;
    return atomic_load(&group->helper.owner) == CT_HELPER_NONE ? 0 : __LINE__;
}

Test(helper, nothing_runs_while_nothing_is_open)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct scene scene;
        struct rig rig = layout(i, &scene);

        if (exists(i))
            cr_assert_eq(rig_run(&rig, look_at_the_helper), 0, "layout %d", i);
    }
}

/* Several are open, blocking calls come between; all ways to look at a request. */
static int mix(struct ct_group *group, struct rig *rig)
{
    float data[OPEN][COUNT / 8];
    struct ct_request *requests[OPEN];
    size_t count = COUNT / 8;
    int found = 0;

    (void)rig;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < OPEN; i++) {
            fill(data[i], count);
            if (ct_all_reduce_start(group, ct_inplace(data[i], count, CT_F32), CT_REDUCE_SUM, NULL,
                                    &requests[i]) != 0)
                return __LINE__;
        }
        if (round % 2 == 0 && ct_barrier(group, NULL) != 0)
            return __LINE__;
        for (int i = OPEN - 1; i > 0; i--)
            if (ct_wait(requests[i]) != 0)
                return __LINE__;
        while ((found = ct_test(requests[0])) == 0)
            (void)sched_yield();
        if (found != 1)
            return __LINE__;
        for (int i = 0; i < OPEN; i++)
            if (sum_of(data[i], count, (float)ct_group_size(group)) != 0)
                return __LINE__;
    }
    return 0;
}

Test(helper, calls_of_all_forms_come_between)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct scene scene;
        struct rig rig = layout(i, &scene);

        if (exists(i))
            cr_assert_eq(rig_run(&rig, mix), 0, "layout %d", i);
    }
}

/* The last rank does not call and revokes its round: the helper ends what rank 0 has left open. */
static int revoke_meanwhile(struct ct_group *group, struct rig *rig)
{
    float data[COUNT] = {0};
    struct scene *scene = rig->shared;
    struct ct_request *request;

    if (ct_group_rank(group) == ct_group_size(group) - 1) {
        while (atomic_load(&scene->through) < ct_group_size(group) - 1)
            (void)sched_yield();
        ct_thread_world_revoke(rig->threads);
        return 0;
    }
    if (ct_all_reduce_start(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_SUM, NULL,
                            &request) != 0)
        return __LINE__;
    atomic_fetch_add(&scene->through, 1);
    while (ct_group_failure(group)->code == 0)
        (void)sched_yield();
    if (ct_group_failure(group)->code != CT_EREVOKED && ct_group_failure(group)->code != CT_ECLOSED)
        return __LINE__;
    return ct_wait(request) == ct_group_failure(group)->code ? 0 : __LINE__;
}

Test(helper, a_revoked_round_is_seen_while_a_rank_computes)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct scene scene;
        struct rig rig = layout(i, &scene);

        if (exists(i))
            cr_assert_eq(rig_run(&rig, revoke_meanwhile), 0, "layout %d", i);
    }
}

/* A group is freed with requests open, at all members at once. */
static int leave_open(struct ct_group *group, struct rig *rig)
{
    static float data[WORLD_MAX][COUNT]; /* is there yet when the rank has returned */
    float *mine = data[ct_group_rank(group)];
    struct ct_request *request;

    (void)rig;
    return ct_all_reduce_start(group, ct_inplace(mine, COUNT, CT_F32), CT_REDUCE_SUM, NULL,
                               &request);
}

Test(helper, a_group_is_freed_while_it_is_at_work)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct scene scene;
        struct rig rig = layout(i, &scene);

        if (exists(i))
            cr_assert_eq(rig_run(&rig, leave_open), 0, "layout %d", i);
    }
}

/* A member that wants no thread gets none, and is served by its tests. */
static int without(struct ct_job *job, void *context)
{
    float data[COUNT];
    struct ct_group_options options = {.name = "alone", .no_thread = true};
    struct ct_request *request;
    struct ct_group *group;
    struct ct_error err;
    int found = 0;

    (void)context;
    fill(data, COUNT);
    if (ct_group_new_tuned(job, &options, &small, &group, &err) != 0)
        return __LINE__;
    int line =
        ct_all_reduce_start(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_SUM, NULL, &request);
    while (line == 0 && (found = ct_test(request)) == 0)
        (void)sched_yield();
    if (found != 1 || group->helper.created)
        line = __LINE__;
    ct_group_free(group);
    return line;
}

Test(helper, a_group_that_wants_no_thread_gets_none)
{
    struct ct_thread_world *world;

    cr_assert_eq(ct_thread_world_new(2, &world), 0);
    cr_assert_eq(thread_ranks_run(world, without, NULL), 0);
    ct_thread_world_free(world);
}
