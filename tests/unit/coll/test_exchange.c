/* Many sends and receives that go at once: whatever the order of the lists. */
#include "base/assert.h"
#include "buffer.h"
#include "operation.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

TestSuite(exchange, .timeout = 60);

/* Each rank's lists are mixed by itself (operation.c); some messages are empty, most take several
 * slots of the tiny ring. */
static int exchange_shuffled(struct ct_group *group, struct rig *rig)
{
    struct operation op = {.verb = OPERATION_EXCHANGE, .dtype = CT_I32, .count = 97};
    int line = 0;

    (void)rig;
    for (op.seed = 0; op.seed < 10 && line == 0; op.seed++)
        line = operation_perform(group, &op);
    return line;
}

ParameterizedTestParameters(exchange, no_order_of_the_lists_makes_a_deadlock)
{
    return rig_cases();
}
ParameterizedTest(int *index, exchange, no_order_of_the_lists_makes_a_deadlock)
{
    struct rig rig = rig_case(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, exchange_shuffled), 0);
}

enum { MIX_WORLD = 3 };

/* A plain send, an exchange, a plain receive, while a collective is under way. */
static int mix(struct ct_group *group, struct rig *rig)
{
    enum { COUNT = 200000 };
    static int32_t given[MIX_WORLD][3][COUNT], taken[MIX_WORLD][3][COUNT];
    int world = ct_group_size(group), rank = ct_group_rank(group);
    int right = (rank + 1) % world, left = (rank + world - 1) % world;
    int32_t(*out)[COUNT] = given[rank], (*in)[COUNT] = taken[rank];
    struct ct_request *sum, *first, *middle, *last;
    struct ct_transfer list[] = {
        ct_transfer_to(right, out[1], COUNT, CT_I32), ct_transfer_to(right, out[2], COUNT, CT_I32),
        ct_transfer_from(left, in[0], COUNT, CT_I32), ct_transfer_from(left, in[1], COUNT, CT_I32)};
    int64_t one = 1;

    (void)rig;
    for (int i = 0; i < 3; i++)
        buffer_fill((char *)out[i], CT_I32, rank, (size_t)i * COUNT, COUNT);
    if (ct_all_reduce_start(group, ct_inplace(&one, 1, CT_I64), CT_REDUCE_SUM, NULL, &sum) != 0 ||
        ct_send_start(group, ct_from_to(out[0], NULL, COUNT, CT_I32), right, NULL, &first) != 0 ||
        ct_exchange_start(group, list, 4, NULL, &middle) != 0 ||
        ct_recv_start(group, ct_inplace(in[2], COUNT, CT_I32), left, NULL, &last) != 0)
        return __LINE__;
    if (ct_wait(last) != 0 || ct_wait(middle) != 0 || ct_wait(first) != 0 || ct_wait(sum) != 0)
        return __LINE__;
    for (int i = 0; i < 3; i++)
        if (!buffer_filled((const char *)in[i], CT_I32, left, (size_t)i * COUNT, COUNT))
            return __LINE__;
    return one == world ? 0 : __LINE__;
}

Test(exchange, plain_transfers_and_lists_match_in_order)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct rig rig = {.backend = rig_backends[i], .world = MIX_WORLD};

        cr_assert_eq(rig_run(&rig, mix), 0);
    }
}

static int misuse(struct ct_group *group, struct rig *rig)
{
    float x[4] = {0}, y[4] = {0};
    int rank = ct_group_rank(group), other = 1 - rank;
    struct ct_transfer lonely = ct_transfer_to(rank, x, 4, CT_F32);
    struct ct_transfer nobody = ct_transfer_to(2, x, 4, CT_F32);
    struct ct_transfer nowhere = ct_transfer_from(other, NULL, 4, CT_F32);
    struct ct_transfer odd[] = {lonely, ct_transfer_from(rank, y, 3, CT_F32)};

    (void)rig;
    if (ct_exchange(group, &lonely, 1, NULL) != CT_EUSAGE ||
        ct_exchange(group, &nobody, 1, NULL) != CT_EUSAGE ||
        ct_exchange(group, &nowhere, 1, NULL) != CT_EUSAGE ||
        ct_exchange(group, odd, 2, NULL) != CT_EUSAGE ||
        ct_exchange(group, NULL, 1, NULL) != CT_EUSAGE ||
        ct_exchange(group, NULL, -1, NULL) != CT_EUSAGE)
        return __LINE__;
    return ct_exchange(group, NULL, 0, NULL) == 0 && ct_barrier(group, NULL) == 0 ? 0 : __LINE__;
}

Test(exchange, lists_that_make_no_sense_are_refused_and_the_group_lives_on)
{
    struct rig rig = {.world = 2};

    cr_assert_eq(rig_run(&rig, misuse), 0);
}

/* Rank 1 expects another size in the second message. */
static int differ(struct ct_group *group, struct rig *rig)
{
    float x[8] = {0}, y[8] = {0};
    int rank = ct_group_rank(group), other = 1 - rank;
    struct ct_transfer list[] = {ct_transfer_to(other, x, 4, CT_F32),
                                 ct_transfer_to(other, x, 4, CT_F32),
                                 ct_transfer_from(other, y, 4, CT_F32),
                                 ct_transfer_from(other, y + 4, rank == 1 ? 3 : 4, CT_F32)};
    int code = ct_exchange(group, list, 4, NULL);

    (void)rig;
    if (rank == 1)
        return code == CT_EMISMATCH ? 0 : __LINE__;
    if (code == 0)
        code = ct_barrier(group, NULL);
    return code == CT_EMISMATCH || code == CT_ECLOSED ? 0 : __LINE__;
}

Test(exchange, messages_of_different_sizes_are_a_mismatch)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct rig rig = {.backend = rig_backends[i], .world = 2};

        cr_assert_eq(rig_run(&rig, differ), 0, "%s", rig_backends[i]);
    }
}

/* Who does not come is named, and ends it. */
static int wait_for_nobody(struct ct_group *group, struct rig *rig)
{
    struct ct_options options = {.timeout_ms = 50};
    float x[4];
    struct ct_transfer list[] = {ct_transfer_from(2, x, 4, CT_F32)};

    (void)rig;
    if (ct_group_rank(group) != 0)
        return ct_barrier(group, NULL) != 0 ? 0 : __LINE__;
    if (ct_exchange(group, list, 1, &options) != CT_ETIMEOUT)
        return __LINE__;
    return strstr(ct_group_failure(group)->text, "no sign of rank 2") != NULL ? 0 : __LINE__;
}

Test(exchange, a_member_that_sends_nothing_is_named_when_time_is_over)
{
    struct rig rig = {.world = 3};

    cr_assert_eq(rig_run(&rig, wait_for_nobody), 0);
}
