/* Connections of backend tcp that are made when a call first needs them. */
#include "backend/tcp/tcp.h"
#include "backend/tcp/tcp_mesh.h"
#include "base/assert.h"
#include "base/clock.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

TestSuite(demand, .timeout = 60);

enum { WORLD = 12, LANES = 2, FAR = 5 /* no neighbour of rank 0 */ };

static const struct ct_tuning on_demand = {.tcp_direct_world = 1};

/* The peers that rank is connected with, in any of its lanes. */
static int count_peers(const struct ct_group *group)
{
    const struct ct_tcp *tcp = group->state;
    int peers = 0;

    for (int peer = 0; peer < tcp->size; peer++) {
        bool open = false;

        for (int lane = 0; lane < tcp->connections; lane++)
            open |= tcp->fds[lane * tcp->size + peer] >= 0;
        peers += open;
    }
    return peers;
}

static int look_at_barrier(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    if (count_peers(group) != 2)
        return __LINE__;
    for (int i = 0; i < 3; i++)
        if (ct_barrier(group, NULL) != 0)
            return __LINE__;
    return count_peers(group) <= 8 ? 0 : __LINE__; /* 1, 2, 4 and 8 ahead, and behind */
}

Test(demand, a_group_begins_with_its_neighbours_and_a_barrier_needs_a_few_more)
{
    struct rig rig = {.backend = "tcp", .world = WORLD, .tuning = on_demand};

    cr_assert_eq(rig_run(&rig, look_at_barrier), 0);
}

/* Each sends to each: both ends of every pair dial at the same time. */
static int send_to_all(struct ct_group *group, struct rig *rig)
{
    const struct ct_tcp *tcp = group->state;
    int32_t out[WORLD], in[WORLD];
    struct ct_transfer list[2 * WORLD];
    int rank = ct_group_rank(group);

    (void)rig;
    for (int i = 0; i < WORLD; i++) {
        out[i] = 100 * rank + i;
        list[2 * i] = ct_transfer_to(i, &out[i], 1, CT_I32);
        list[2 * i + 1] = ct_transfer_from(i, &in[i], 1, CT_I32);
    }
    if (ct_exchange(group, list, 2 * WORLD, NULL) != 0)
        return __LINE__;
    for (int i = 0; i < WORLD; i++)
        if (in[i] != 100 * i + rank ||
            (i != rank && tcp->fds[CT_MESH_TRANSFER * tcp->size + i] < 0))
            return __LINE__;
    return 0;
}

Test(demand, both_ends_that_dial_at_once_agree_on_one_connection)
{
    struct rig rig = {.backend = "tcp", .world = WORLD, .tuning = on_demand};

    for (int i = 0; i < 5; i++)
        cr_assert_eq(rig_run(&rig, send_to_all), 0);
}

/* The message waits for its receiver in the kernel, although that one is in another call. */
static int send_to_one_who_waits(struct ct_group *group, struct rig *rig)
{
    int32_t number = 77;

    (void)rig;
    if (ct_group_rank(group) == 0 && ct_send(group, ct_inplace(&number, 1, CT_I32), FAR, NULL) != 0)
        return __LINE__;
    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    number = 0;
    if (ct_group_rank(group) == FAR &&
        (ct_recv(group, ct_inplace(&number, 1, CT_I32), 0, NULL) != 0 || number != 77))
        return __LINE__;
    return 0;
}

Test(demand, a_member_that_waits_for_another_call_answers_who_dials)
{
    struct rig flat = {.backend = "tcp", .world = WORLD, .tuning = on_demand};
    struct rig levels = {.backend = "hier", .world = WORLD, .nodes = 4, .tuning = on_demand};

    cr_assert_eq(rig_run(&flat, send_to_one_who_waits), 0);
    cr_assert_eq(rig_run(&levels, send_to_one_who_waits), 0);
}

/* ---- a member that has left ------------------------------------------------------------------*/

struct scene {
    pthread_barrier_t gone, told;
    int code;
    uint64_t elapsed_ms;
    struct ct_error failure;
};

static int dial_one_who_left(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    int32_t number = 0;

    if (ct_group_rank(group) == FAR) { /* its call fails by itself, and so does its group */
        struct ct_options at_once = {.timeout_ms = 1};

        if (ct_recv(group, ct_inplace(&number, 1, CT_I32), FAR + 1, &at_once) != CT_ETIMEOUT)
            return __LINE__;
    }
    (void)pthread_barrier_wait(&scene->gone);
    if (ct_group_rank(group) == 0) {
        uint64_t start_ms = ct_clock_mono_ms(&ct_clock_system);

        scene->code = ct_recv(group, ct_inplace(&number, 1, CT_I32), FAR, NULL);
        scene->elapsed_ms = ct_clock_mono_ms(&ct_clock_system) - start_ms;
        scene->failure = *ct_group_failure(group);
    }
    (void)pthread_barrier_wait(&scene->told);
    return 0;
}

Test(demand, who_dials_a_member_that_has_left_is_told_at_once)
{
    struct scene scene = {0};
    struct rig rig = {.backend = "tcp", .world = WORLD, .tuning = on_demand, .shared = &scene};

    (void)pthread_barrier_init(&scene.gone, NULL, WORLD);
    (void)pthread_barrier_init(&scene.told, NULL, WORLD);
    cr_assert_eq(rig_run(&rig, dial_one_who_left), 0);
    cr_assert_eq(scene.code, CT_ECLOSED, "%s", scene.failure.text);
    cr_assert_not_null(strstr(scene.failure.text, "rank 5 has closed its connection"), "%s",
                       scene.failure.text);
    cr_assert_lt(scene.elapsed_ms, 1000);
}
