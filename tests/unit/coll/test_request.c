/* Handles: order, many at once, limits, wrong use. */
#include "base/assert.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(request, .timeout = 60);

enum { MANY = CT_REQUESTS_MAX };

static void run_on_all(int world, const struct ct_tuning *tuning,
                       int (*body)(struct ct_group *group, struct rig *rig))
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct rig rig = {.backend = rig_backends[i], .world = world};

        if (tuning != NULL)
            rig.tuning = *tuning;
        cr_assert_eq(rig_run(&rig, body), 0, "%s", rig_backends[i]);
    }
}

/* Collectives of several kinds are started at once and waited for from the last to the first. */
static int start_many(struct ct_group *group, struct rig *rig)
{
    struct ct_request *requests[MANY];
    int64_t sums[MANY], all[MANY][8];
    int rank = ct_group_rank(group), size = ct_group_size(group);

    (void)rig;
    for (int i = 0; i < MANY; i++) {
        int code;

        sums[i] = i + rank;
        if (i % 3 == 0)
            code = ct_all_reduce_start(group, ct_inplace(&sums[i], 1, CT_I64), CT_REDUCE_SUM, NULL,
                                       &requests[i]);
        else if (i % 3 == 1)
            code = ct_all_gather_start(group, ct_from_to(&sums[i], all[i], 1, CT_I64), NULL,
                                       &requests[i]);
        else
            code = ct_broadcast_start(group, ct_inplace(&sums[i], 1, CT_I64), i % size, NULL,
                                      &requests[i]);
        if (code != 0)
            return __LINE__;
    }
    for (int i = MANY - 1; i >= 0; i--)
        if (ct_wait(requests[i]) != 0)
            return __LINE__;
    for (int i = 0; i < MANY; i++) {
        if (i % 3 == 0 && sums[i] != (int64_t)size * i + size * (size - 1) / 2)
            return __LINE__;
        if (i % 3 == 1 && all[i][size - 1] != i + size - 1)
            return __LINE__;
        if (i % 3 == 2 && sums[i] != i + i % size)
            return __LINE__;
    }
    return 0;
}

Test(request, collectives_complete_in_the_order_of_their_start)
{
    run_on_all(3, NULL, start_many);
    run_on_all(4, &tiny, start_many);
}

/* Everybody sends to everybody before anybody receives, beside a collective: nothing blocks. */
static int exchange_all(struct ct_group *group, struct rig *rig)
{
    enum { COUNT = 3000, RANKS = 4 };
    int32_t in[RANKS][COUNT] = {0}, out[COUNT];
    struct ct_request *sends[RANKS], *recvs[RANKS], *barrier;
    int rank = ct_group_rank(group);

    (void)rig;
    for (int i = 0; i < COUNT; i++)
        out[i] = rank * COUNT + i;
    if (ct_barrier_start(group, NULL, &barrier) != 0)
        return __LINE__;
    for (int peer = 0; peer < RANKS; peer++)
        if (peer != rank &&
            ct_send_start(group, ct_from_to(out, NULL, COUNT, CT_I32), peer, NULL, &sends[peer]))
            return __LINE__;
    for (int peer = RANKS - 1; peer >= 0; peer--)
        if (peer != rank &&
            ct_recv_start(group, ct_inplace(in[peer], COUNT, CT_I32), peer, NULL, &recvs[peer]))
            return __LINE__;
    if (ct_wait(barrier) != 0)
        return __LINE__;
    for (int peer = 0; peer < RANKS; peer++) {
        if (peer == rank)
            continue;
        if (ct_wait(sends[peer]) != 0 || ct_wait(recvs[peer]) != 0)
            return __LINE__;
        for (int i = 0; i < COUNT; i++)
            if (in[peer][i] != peer * COUNT + i)
                return __LINE__;
    }
    return 0;
}

Test(request, sends_and_receives_of_different_peers_do_not_wait_for_each_other)
{
    run_on_all(4, NULL, exchange_all);
    run_on_all(4, &tiny, exchange_all);
}

static int send_in_order(struct ct_group *group, struct rig *rig)
{
    struct ct_request *requests[MANY];
    int values[MANY];

    (void)rig;
    for (int i = 0; i < MANY; i++) {
        struct ct_options options = {.tag = (uint32_t)i};

        values[i] = ct_group_rank(group) == 0 ? i : -1;
        if (ct_group_rank(group) == 0
                ? ct_send_start(group, ct_inplace(&values[i], 1, CT_I32), 1, &options, &requests[i])
                : ct_recv_start(group, ct_inplace(&values[i], 1, CT_I32), 0, &options,
                                &requests[i]))
            return __LINE__;
    }
    for (int i = 0; i < MANY; i++)
        if (ct_wait(requests[i]) != 0 || values[i] != i)
            return __LINE__;
    return 0;
}

Test(request, messages_of_a_pair_keep_their_order)
{
    run_on_all(2, NULL, send_in_order);
}

static int use_up(struct ct_group *group, struct rig *rig)
{
    struct ct_request *requests[MANY], *extra = NULL;

    (void)rig;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            if (ct_barrier_start(group, NULL, &requests[i]) != 0)
                return __LINE__;
        if (ct_barrier_start(group, NULL, &extra) != CT_ELIMIT || extra != NULL)
            return __LINE__;
        for (int i = 0; i < MANY; i++)
            if (ct_wait(requests[i]) != 0)
                return __LINE__;
    }
    return ct_barrier(group, NULL) == 0 ? 0 : __LINE__;
}

Test(request, one_more_than_the_limit_is_refused_and_harms_nothing)
{
    run_on_all(2, NULL, use_up);
}

static int test_until_done(struct ct_group *group, struct rig *rig)
{
    float x[100];
    struct ct_request *request;
    int state = 0;

    (void)rig;
    for (int i = 0; i < 100; i++)
        x[i] = (float)i;
    if (ct_all_reduce_start(group, ct_inplace(x, 100, CT_F32), CT_REDUCE_SUM, NULL, &request) != 0)
        return __LINE__;
    while (state == 0)
        state = ct_test(request);
    return state == 1 && x[99] == 99.0f * (float)ct_group_size(group) ? 0 : __LINE__;
}

Test(request, testing_alone_brings_an_operation_to_its_end)
{
    run_on_all(3, &tiny, test_until_done);
}

/* ---- wrong use -------------------------------------------------------------------------------*/

/* Rank 1 comes when rank 0 has waited in vain. */
static int wait_in_slices(struct ct_group *group, struct rig *rig)
{
    struct ct_request *request, *told;
    int64_t sum = 1, word = 0;
    int code;

    (void)rig;
    if (ct_group_rank(group) == 1) {
        if (ct_recv(group, ct_inplace(&word, 1, CT_I64), 0, NULL) != 0)
            return __LINE__;
        return ct_all_reduce(group, ct_inplace(&sum, 1, CT_I64), CT_REDUCE_SUM, NULL) == 0
                   ? 0
                   : __LINE__;
    }
    if (ct_all_reduce_start(group, ct_inplace(&sum, 1, CT_I64), CT_REDUCE_SUM, NULL, &request) != 0)
        return __LINE__;
    if (ct_wait_for(request, 2000) != 0)
        return __LINE__;
    if (ct_send_start(group, ct_inplace(&word, 1, CT_I64), 1, NULL, &told) != 0)
        return __LINE__;
    while ((code = ct_wait_for(request, 500)) == 0)
        continue;
    return code == 1 && sum == 2 && ct_wait(told) == 0 ? 0 : __LINE__;
}

Test(request, a_bounded_wait_ends_in_vain_or_with_the_operation)
{
    run_on_all(2, NULL, wait_in_slices);
}

static int misuse(struct ct_group *group, struct rig *rig)
{
    float x[8] = {0};
    struct ct_data data = ct_inplace(x, 8, CT_F32), bits = ct_inplace(x, 8, CT_I32);
    struct ct_data nowhere = ct_inplace(NULL, 8, CT_F32),
                   huge = ct_inplace(x, SIZE_MAX / 4, CT_F32);
    struct ct_options mode = {.mode = (enum ct_reduce_mode)7}, scaled = {.scale = 2};
    int rank = ct_group_rank(group);

    (void)rig;
    if (ct_all_reduce(group, data, CT_REDUCE_AND, NULL) != CT_EUSAGE)
        return __LINE__;
    if (ct_all_reduce(group, data, CT_REDUCE_PREMUL_SUM, NULL) != CT_EUSAGE ||
        ct_all_reduce(group, bits, CT_REDUCE_PREMUL_SUM, &scaled) != CT_EUSAGE)
        return __LINE__;
    if (ct_all_reduce(group, data, (enum ct_reduce)9, NULL) != CT_EUSAGE)
        return __LINE__;
    if (ct_all_reduce(group, data, CT_REDUCE_SUM, &mode) != CT_EUSAGE)
        return __LINE__;
    if (ct_all_reduce(group, nowhere, CT_REDUCE_SUM, NULL) != CT_EUSAGE)
        return __LINE__;
    if (ct_all_gather(group, huge, NULL) != CT_EUSAGE)
        return __LINE__;
    if (ct_broadcast(group, data, 2, NULL) != CT_EUSAGE ||
        ct_broadcast(group, data, -1, NULL) != CT_EUSAGE)
        return __LINE__;
    if (ct_send(group, data, rank, NULL) != CT_EUSAGE ||
        ct_recv(group, data, rank, NULL) != CT_EUSAGE)
        return __LINE__;
    data.dtype = CT_DTYPE_COUNT;
    if (ct_broadcast(group, data, 0, NULL) != CT_EUSAGE ||
        ct_all_gather(group, data, NULL) != CT_EUSAGE)
        return __LINE__;
    return ct_barrier(group, NULL) == 0 && ct_group_failure(group)->code == 0 ? 0 : __LINE__;
}

Test(request, a_wrong_call_is_refused_and_the_group_lives_on)
{
    run_on_all(2, NULL, misuse);
}
