/* What each mode of a reduction promises about bits, beyond the reference: the same on every
 * backend and at every chunk length, whatever lies around an element and whichever operation adds
 * it up; in INVARIANT also for worlds of 1, 2, 4 and 8; in FAST each time again. */
#include "base/assert.h"
#include "base/number/rng.h"
#include "reference.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <sched.h>
#include <string.h>

TestSuite(determinism, .timeout = 60);

enum { COUNT = 997, LEAVES = 8 };

static void fill(float *to, int rank, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reference_input(CT_F32, rank, from + i, &to[i]);
}

static int reduce_all(struct ct_group *group, float *data, size_t count, enum ct_reduce_mode mode)
{
    struct ct_options options = {.mode = mode};

    return ct_all_reduce(group, ct_inplace(data, count, CT_F32), CT_REDUCE_SUM, &options);
}

/* ---- INVARIANT: eight leaves over 1, 2, 4, 8 ranks -------------------------------------------*/

/* The leaves of this rank, added up by the same tree. */
static void accumulate(float leaves[LEAVES][COUNT], int first, int count)
{
    for (int i = 0; i < count; i++)
        fill(leaves[i], first + i, 0, COUNT);
    for (int d = 1; d < count; d *= 2)
        for (int i = 0; i + d < count; i += 2 * d)
            for (int e = 0; e < COUNT; e++)
                leaves[i][e] += leaves[i + d][e];
}

static int reduce_leaves(struct ct_group *group, struct rig *rig)
{
    float leaves[LEAVES][COUNT];
    int count = LEAVES / ct_group_size(group), rank = ct_group_rank(group);

    accumulate(leaves, rank * count, count);
    if (reduce_all(group, leaves[0], COUNT, CT_MODE_INVARIANT) != 0)
        return __LINE__;
    if (rank == 0)
        memcpy(rig->shared, leaves[0], sizeof leaves[0]);
    return 0;
}

Test(determinism, invariant_sums_do_not_know_the_size_of_the_world)
{
    static const int worlds[] = {1, 2, 4, 8};
    static float first[COUNT], sum[COUNT];

    for (size_t b = 0; b < (size_t)rig_backend_count(); b++)
        for (size_t w = 0; w < CT_COUNT(worlds); w++) {
            struct rig rig = {.backend = rig_backends[b], .world = worlds[w], .shared = sum};

            rig.tuning = w % 2 == 0 ? tiny : rig.tuning;
            cr_assert_eq(rig_run(&rig, reduce_leaves), 0);
            if (b == 0 && w == 0)
                memcpy(first, sum, sizeof sum);
            cr_assert_arr_eq(first, sum, sizeof sum, "%s, %d ranks", rig_backends[b], worlds[w]);
        }
}

/* ---- REPRODUCIBLE, INVARIANT: backends, chunks, operations -----------------------------------*/

struct bits {
    enum ct_reduce_mode mode;
    float sum[COUNT]; /* of rank 0 */
};

/* Piece by piece, in lengths of this seed. */
static int reduce_pieces(struct ct_group *group, float *data, enum ct_reduce_mode mode)
{
    struct ct_rng rng;
    size_t at = 0;

    ct_rng_init(&rng, 5);
    while (at < COUNT) {
        size_t count = CT_MIN(1 + (size_t)ct_rng_below(&rng, 300), COUNT - at);

        if (reduce_all(group, data + at, count, mode) != 0)
            return __LINE__;
        at += count;
    }
    return 0;
}

/* Every way of adding up the same numbers gives the bits of the first. */
static int reduce_every_way(struct ct_group *group, struct rig *rig)
{
    float whole[COUNT], other[COUNT];
    struct bits *bits = rig->shared;
    struct ct_options options = {.mode = bits->mode};
    int rank = ct_group_rank(group), world = ct_group_size(group), root = world - 1;
    size_t part = COUNT / (size_t)world, own = (size_t)rank * part;

    fill(whole, rank, 0, COUNT);
    fill(other, rank, 0, COUNT);
    if (reduce_all(group, whole, COUNT, bits->mode) != 0 ||
        reduce_pieces(group, other, bits->mode) != 0 || memcmp(whole, other, sizeof whole) != 0)
        return __LINE__;
    fill(other, rank, 0, COUNT);
    if (ct_reduce(group, ct_inplace(other, COUNT, CT_F32), CT_REDUCE_SUM, root, &options) != 0)
        return __LINE__;
    if (rank == root && memcmp(whole, other, sizeof whole) != 0)
        return __LINE__;
    fill(other, rank, 0, COUNT);
    if (ct_reduce_scatter(group, ct_inplace(other, part, CT_F32), CT_REDUCE_SUM, &options) != 0)
        return __LINE__;
    if (memcmp(whole + own, other + own, part * sizeof *other) != 0)
        return __LINE__;
    if (rank == 0)
        memcpy(bits->sum, whole, sizeof whole);
    return 0;
}

static struct ct_tuning tuning_of(int turn)
{
    struct ct_tuning tuning = turn > 0 ? tiny : (struct ct_tuning){0};

    if (turn >= 2) {
        tuning.tcp_direct_world = 1;
        tuning.local_chunk_bytes = 1024;
    }
    if (turn == 3) /* chains and halving, where others have gathered and doubled */
        tuning.tcp_bruck_bytes = tuning.tcp_doubling_bytes = tuning.tcp_binomial_bytes =
            tuning.tcp_chain_reduce_bytes = 1;
    return tuning;
}

ParameterizedTestParameters(determinism, ordered_sums_are_the_same_on_every_backend_in_every_way)
{
    static int worlds[] = {2, 3, 5, 7, 8};

    return cr_make_param_array(int, worlds, CT_COUNT(worlds));
}
ParameterizedTest(int *world, determinism, ordered_sums_are_the_same_on_every_backend_in_every_way)
{
    static const enum ct_reduce_mode modes[] = {CT_MODE_REPRODUCIBLE, CT_MODE_INVARIANT};
    static struct bits first, bits;

    for (size_t m = 0; m < CT_COUNT(modes); m++)
        for (size_t b = 0; b < (size_t)rig_backend_count(); b++)
            for (int turn = 0; turn < 4; turn++) {
                struct rig rig = {.backend = rig_backends[b],
                                  .world = *world,
                                  .tuning = tuning_of(turn),
                                  .shared = &bits};

                bits.mode = modes[m];
                cr_assert_eq(rig_run(&rig, reduce_every_way), 0);
                if (b == 0 && turn == 0)
                    first = bits;
                cr_assert_arr_eq(first.sum, bits.sum, sizeof bits.sum, "%s, %d ranks",
                                 rig_backends[b], *world);
            }
}

/* ---- FAST ------------------------------------------------------------------------------------*/

/* Late now and then, each rank at other times. */
static int reduce_again(struct ct_group *group, struct rig *rig)
{
    float first[COUNT], again[COUNT];
    int rank = ct_group_rank(group);
    struct ct_rng rng;

    (void)rig;
    ct_rng_init(&rng, (uint64_t)rank);
    for (int turn = 0; turn < 50; turn++) {
        for (uint64_t naps = ct_rng_below(&rng, 4); naps > 0; naps--)
            (void)sched_yield();
        fill(again, rank, 0, COUNT);
        if (reduce_all(group, again, COUNT, CT_MODE_FAST) != 0)
            return __LINE__;
        if (turn == 0)
            memcpy(first, again, sizeof first);
        if (memcmp(first, again, sizeof first) != 0)
            return __LINE__;
    }
    return 0;
}

ParameterizedTestParameters(determinism, fast_sums_do_not_know_who_was_late)
{
    return rig_cases();
}
ParameterizedTest(int *index, determinism, fast_sums_do_not_know_who_was_late)
{
    struct rig rig = rig_case(*index);

    rig.tuning = tiny;
    rig.tuning.tcp_direct_world = 2;
    cr_assert_eq(rig_run(&rig, reduce_again), 0);
}
