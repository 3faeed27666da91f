/* Many sends and receives that go at once: whatever the order of the lists. */
#include "base/assert.h"
#include "base/rng.h"
#include "buffer.h"
#include "reference.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

TestSuite(exchange, .timeout = 60);

enum { WORLD_MAX = 8, A_PAIR = 3, LIST = 2 * WORLD_MAX * A_PAIR, LENGTH = 97 };

/* The nth message between two ranks: some are empty, most take several slots of the tiny ring. */
static size_t length_of(int from, int to, int n)
{
    return (size_t)(from * 31 + to * 17 + n * 41) % LENGTH;
}

struct lists {
    struct buffer out[WORLD_MAX][A_PAIR], in[WORLD_MAX][A_PAIR];
    struct ct_transfer transfers[LIST];
    int count;
};

/* Every message of every pair, this rank with itself among them, in list order. */
static void lists_new(struct lists *lists, int rank, int world)
{
    lists->count = 0;
    for (int peer = 0; peer < world; peer++)
        for (int n = 0; n < A_PAIR; n++) {
            size_t out = length_of(rank, peer, n), in = length_of(peer, rank, n);

            lists->out[peer][n] = buffer_new(out, CT_I32);
            lists->in[peer][n] = buffer_new(in, CT_I32);
            buffer_fill(lists->out[peer][n].data, CT_I32, rank, (size_t)(1000 * n + peer), out);
            lists->transfers[lists->count++] =
                ct_transfer_to(peer, lists->out[peer][n].data, out, CT_I32);
            lists->transfers[lists->count++] =
                ct_transfer_from(peer, lists->in[peer][n].data, in, CT_I32);
        }
}

static int lists_free(struct lists *lists, int rank, int world, int line)
{
    for (int peer = 0; peer < world; peer++)
        for (int n = 0; n < A_PAIR; n++) {
            if (line == 0 && !buffer_filled(lists->in[peer][n].data, CT_I32, peer,
                                            (size_t)(1000 * n + rank), length_of(peer, rank, n)))
                line = __LINE__;
            line = buffers_free(&lists->out[peer][n], &lists->in[peer][n], line);
        }
    return line;
}

/* Shuffle, but for the order within a pair and direction: lane k's messages take, in their order,
 * the places that the shuffle gives to lane k. */
static void shuffle(struct lists *lists, struct ct_rng *rng)
{
    struct ct_transfer mixed[LIST];
    bool taken[LIST] = {false};

    memcpy(mixed, lists->transfers, sizeof mixed);
    for (int i = lists->count - 1; i > 0; i--) {
        int j = (int)ct_rng_below(rng, (uint64_t)i + 1);
        struct ct_transfer swap = mixed[i];

        mixed[i] = mixed[j];
        mixed[j] = swap;
    }
    for (int i = 0; i < lists->count; i++) {
        int from = 0;

        while (taken[from] || lists->transfers[from].peer != mixed[i].peer ||
               lists->transfers[from].direction != mixed[i].direction)
            from++;
        taken[from] = true;
        mixed[i] = lists->transfers[from];
    }
    memcpy(lists->transfers, mixed, sizeof mixed);
}

static int exchange_shuffled(struct ct_group *group, struct rig *rig)
{
    int world = ct_group_size(group), rank = ct_group_rank(group), line = 0;
    struct ct_rng rng;

    (void)rig;
    ct_rng_init(&rng, (uint64_t)(rank + 1));
    for (int turn = 0; turn < 10 && line == 0; turn++) {
        struct lists lists;

        lists_new(&lists, rank, world);
        shuffle(&lists, &rng);
        if (ct_exchange(group, lists.transfers, lists.count, NULL) != 0)
            line = __LINE__;
        line = lists_free(&lists, rank, world, line);
    }
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

/* A plain send, an exchange, a plain receive, while a collective is under way. */
static int mix(struct ct_group *group, struct rig *rig)
{
    enum { COUNT = 200000 };
    static _Thread_local int32_t out[3][COUNT], in[3][COUNT];
    int world = ct_group_size(group), rank = ct_group_rank(group);
    int right = (rank + 1) % world, left = (rank + world - 1) % world;
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
    for (size_t i = 0; i < CT_COUNT(rig_backends); i++) {
        struct rig rig = {.backend = rig_backends[i], .world = 3};

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
    for (size_t i = 0; i < CT_COUNT(rig_backends); i++) {
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
