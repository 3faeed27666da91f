/* Connections of backends tcp and ucx that are made when a call first needs them. */
#include "backend/message/message.h"
#include "backend/tcp/tcp.h"
#include "backend/tcp/tcp_mesh.h"
#include "backend/ucx/ucx_worker.h"
#include "base/assert.h"
#include "base/clock.h"
#include "network.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

TestSuite(demand, .timeout = 60);

enum { WORLD = 12, LANES = 2, FAR = 5 /* no neighbour of rank 0 */ };

static const struct ct_tuning on_demand = {.tcp_direct_world = 1};

/* Run `body` on each of these backends that is here; ucx, where a run takes seconds, once. */
static void run_on_each(int (*body)(struct ct_group *group, struct rig *rig), int times,
                        void *shared)
{
    for (int i = RIG_SHARED; i < rig_backend_count(); i++)
        for (int k = 0; k < (strcmp(rig_backends[i], "tcp") == 0 ? times : 1); k++) {
            struct rig rig = {
                .backend = rig_backends[i], .world = WORLD, .tuning = on_demand, .shared = shared};

            cr_assert_eq(rig_run(&rig, body), 0, "%s", rig_backends[i]);
        }
}

/* Is this rank connected with `peer`? On ucx, whose state begins with its engine: has it an
 * endpoint? */
static bool is_connected(const struct ct_group *group, int peer)
{
    const struct ct_engine *engine = group->state;
    const struct ct_tcp *tcp = group->state;
    bool open = false;

    if (strcmp(ct_group_backend(group), "ucx") == 0)
        return engine->contacts[peer] & CT_CONTACT_CONNECTED;
    for (int lane = 0; lane < tcp->connections; lane++)
        open |= tcp->fds[lane * tcp->size + peer] >= 0;
    return open;
}

static int count_peers(const struct ct_group *group)
{
    int peers = 0;

    for (int peer = 0; peer < ct_group_size(group); peer++)
        peers += is_connected(group, peer);
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
    run_on_each(look_at_barrier, 1, NULL);
}

/* Each sends to each: both ends of every pair dial at the same time. */
static int send_to_all(struct ct_group *group, struct rig *rig)
{
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
        if (in[i] != 100 * i + rank || (i != rank && !is_connected(group, i)))
            return __LINE__;
    return 0;
}

Test(demand, both_ends_that_dial_at_once_agree_on_one_connection)
{
    run_on_each(send_to_all, 5, NULL);
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
    struct rig levels = {.backend = "hier", .world = WORLD, .nodes = 4, .tuning = on_demand};

    run_on_each(send_to_one_who_waits, 1, NULL);
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

static void expect_told_at_once(const char *backend, const char *sentence)
{
    struct scene scene = {0};
    struct rig rig = {.backend = backend, .world = WORLD, .tuning = on_demand, .shared = &scene};

    (void)pthread_barrier_init(&scene.gone, NULL, WORLD);
    (void)pthread_barrier_init(&scene.told, NULL, WORLD);
    cr_assert_eq(rig_run(&rig, dial_one_who_left), 0);
    cr_assert_eq(scene.code, CT_ECLOSED, "%s", scene.failure.text);
    cr_assert_not_null(strstr(scene.failure.text, sentence), "%s", scene.failure.text);
    cr_assert_lt(scene.elapsed_ms, 1000);
}

Test(demand, who_dials_a_member_that_has_left_is_told_at_once)
{
    expect_told_at_once("tcp", "rank 5 has closed its connection");
    if (rig_backend_count() == RIG_BACKENDS)
        expect_told_at_once("ucx", "rank 5 has left the group");
}

/* ---- all kinds of calls ----------------------------------------------------------------------*/

/* The bits are those of the backend whose ranks share memory. */
static int compare_bits(struct ct_group *group, struct rig *rig)
{
    enum { COUNT = 3000 };
    static const enum ct_reduce_mode modes[] = {CT_MODE_REPRODUCIBLE, CT_MODE_INVARIANT};
    float *expected = rig->shared, data[COUNT];
    bool first = strcmp(rig->backend, "thread") == 0;

    for (size_t m = 0; m < CT_COUNT(modes); m++) {
        struct ct_options options = {.mode = modes[m]};

        for (int i = 0; i < COUNT; i++)
            data[i] = 1.0f / (float)(1 + i + 17 * ct_group_rank(group));
        if (ct_all_reduce(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_SUM, &options) != 0)
            return __LINE__;
        if (first && ct_group_rank(group) == 0)
            memcpy(expected + m * COUNT, data, sizeof data);
        if (ct_barrier(group, NULL) != 0 || memcmp(expected + m * COUNT, data, sizeof data) != 0)
            return __LINE__;
    }
    return 0;
}

Test(demand, the_bits_are_those_of_ranks_that_share_memory)
{
    static float expected[2 * 3000];
    struct rig shared = {.backend = "thread", .world = WORLD, .shared = expected};

    cr_assert_eq(rig_run(&shared, compare_bits), 0);
    run_on_each(compare_bits, 1, expected);
}

/* ---- UCX's addresses -------------------------------------------------------------------------*/

/* Each interface makes it longer: with so many it does not fit in what members tell each other. */
Test(demand, a_ucx_address_that_is_long_comes_from_the_store)
{
    enum { INTERFACES = 16 };
    struct rig rig = {.backend = "ucx", .world = WORLD, .tuning = on_demand};
    struct ct_ucx *ucx;
    struct ct_error err = {0};
    size_t bytes;

    if (rig_backend_count() < RIG_BACKENDS)
        cr_skip_test("skipped: there is no UCX here");
    int before = network_make();
    if (before < 0)
        return;
    if (!network_add(INTERFACES)) {
        network_leave(before);
        cr_skip_test("skipped: no interfaces can be added here");
    }
    cr_assert_eq(ct_ucx_open(&ucx, &err), 0, "%s", err.text);
    (void)ct_ucx_address(ucx, &bytes);
    ct_ucx_close(ucx);
    cr_assert_gt(bytes, CT_BLOB_BYTES);
    cr_assert_eq(rig_run(&rig, send_to_one_who_waits), 0);
    network_leave(before);
}
