/* Schedules against the plain definition of each call, for all worlds up to 40 and some larger, on
 * symbols (symbols.h); what they cost, and with whom a rank talks. */
#include "algorithm/step_schedule.h"

#include "base/assert.h"
#include "symbols.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(schedule, .timeout = 120);

static const int larger[] = {64, 65, 100};

/* The worlds: 1 .. 40, then those; 0 behind the last. */
static int world_after(int world)
{
    if (world < 40)
        return world + 1;
    for (size_t i = 0; i < CT_COUNT(larger); i++)
        if (larger[i] > world)
            return larger[i];
    return 0;
}

/* All roots of small worlds, some of larger ones; `world` behind the last. */
static int root_after(int world, int root)
{
    return root + (world <= 12 ? 1 : root < 1 ? 1 : world / 2 - 1);
}

/* ---- orders of a sum -------------------------------------------------------------------------*/

static symbol sum_at_once(int world, int block, int chunk)
{
    symbol sum = 0;

    for (int i = 0; i < world; i++)
        sum = symbol_sum_all(sum, symbol_leaf(i, block, chunk));
    return sum;
}

/* Along a ring that begins at `first`. */
static symbol sum_around(int world, int first, int block, int chunk)
{
    symbol sum = symbol_leaf(first % world, block, chunk);

    for (int i = 1; i < world; i++)
        sum = symbol_sum(sum, symbol_leaf((first + i) % world, block, chunk));
    return sum;
}

/* x[i] += x[i + d], as ctrun.h says of INVARIANT. */
static symbol sum_by_tree(int world, int block, int chunk)
{
    symbol x[SYMBOLS_WORLD_MAX];

    for (int i = 0; i < world; i++)
        x[i] = symbol_leaf(i, block, chunk);
    for (int d = 1; d < world; d *= 2)
        for (int i = 0; i + d < world; i += 2 * d)
            x[i] = symbol_sum(x[i], x[i + d]);
    return x[0];
}

enum order { AT_ONCE, IN_A_ROW, AROUND, TREE, TREE_OF_TWOS, ANY };

static bool is_power_of_two(int world)
{
    return (world & (world - 1)) == 0;
}

/* Is it the documented sum? */
static bool is_sum(symbol sum, enum order order, int world, int block, int chunk)
{
    switch (order) {
    case AT_ONCE:
        return sum == sum_at_once(world, block, chunk);
    case AROUND:
        return sum == sum_around(world, block + 1, block, chunk);
    case IN_A_ROW:
        return sum == sum_around(world, 0, block, chunk);
    case TREE:
        return sum == sum_by_tree(world, block, chunk);
    case TREE_OF_TWOS: /* others in any order */
        return is_power_of_two(world) ? sum == sum_by_tree(world, block, chunk)
                                      : symbol_takes_all_once(sum, world, block, chunk);
    default:
        return symbol_takes_all_once(sum, world, block, chunk);
    }
}

static int blocks_of(const struct symbol_world *world)
{
    return world->ranks[0].schedule.blocks;
}

/* ---- calls -----------------------------------------------------------------------------------*/

static const struct {
    enum ct_algorithm algorithm;
    enum order order;
} all_reduces[] = {
    {CT_ALGO_FLAT, AT_ONCE},          {CT_ALGO_DIRECT, AT_ONCE},  {CT_ALGO_RING, AROUND},
    {CT_ALGO_DOUBLING, TREE_OF_TWOS}, {CT_ALGO_BRUCK, AT_ONCE},   {CT_ALGO_ROUTED, AT_ONCE},
    {CT_ALGO_HALVING, TREE_OF_TWOS},  {CT_ALGO_DOUBLE_TREE, ANY}, {CT_ALGO_CHAIN_REDUCE, IN_A_ROW},
};

static void check_all_reduce(size_t row, int size, bool in_place)
{
    struct symbol_world *world = symbols_run(all_reduces[row].algorithm, size, 0, in_place);

    for (int chunk = 0; chunk < SYMBOLS_CHUNKS; chunk++)
        for (int b = 0; b < blocks_of(world); b++) {
            symbol sum = symbols_output(world, 0, chunk, b);

            cr_assert(is_sum(sum, all_reduces[row].order, size, b, chunk), "%s of %d",
                      ct_algorithm_name(all_reduces[row].algorithm), size);
            for (int r = 1; r < size; r++)
                cr_assert_eq(symbols_output(world, r, chunk, b), sum, "%s, rank %d of %d",
                             ct_algorithm_name(all_reduces[row].algorithm), r, size);
        }
    symbols_free(world);
}

Test(schedule, every_rank_ends_with_the_documented_sum)
{
    for (size_t row = 0; row < CT_COUNT(all_reduces); row++)
        for (int size = 1; size > 0; size = world_after(size)) {
            check_all_reduce(row, size, false);
            check_all_reduce(row, size, true);
        }
}

Test(schedule, a_scatter_leaves_each_rank_the_sum_of_its_block)
{
    static const struct {
        enum ct_algorithm algorithm;
        enum order order;
    } rows[] = {{CT_ALGO_DIRECT_SCATTER, AT_ONCE},
                {CT_ALGO_RING_SCATTER, AROUND},
                {CT_ALGO_ROUTED_SCATTER, AT_ONCE}};

    for (size_t row = 0; row < CT_COUNT(rows); row++)
        for (int size = 1; size > 0; size = world_after(size)) {
            struct symbol_world *world = symbols_run(rows[row].algorithm, size, 0, false);

            for (int r = 0; r < size; r++)
                for (int chunk = 0; chunk < SYMBOLS_CHUNKS; chunk++)
                    cr_assert(
                        is_sum(symbols_output(world, r, chunk, 0), rows[row].order, size, r, chunk),
                        "%s, rank %d of %d", ct_algorithm_name(rows[row].algorithm), r, size);
            symbols_free(world);
        }
}

Test(schedule, a_gather_brings_every_block_to_every_rank)
{
    static const enum ct_algorithm algorithms[] = {CT_ALGO_DIRECT_GATHER, CT_ALGO_RING_GATHER,
                                                   CT_ALGO_BRUCK_GATHER};

    for (size_t a = 0; a < CT_COUNT(algorithms); a++)
        for (int size = 1; size > 0; size = world_after(size)) {
            struct symbol_world *world = symbols_run(algorithms[a], size, 0, false);

            for (int r = 0; r < size; r++)
                for (int chunk = 0; chunk < SYMBOLS_CHUNKS; chunk++)
                    for (int b = 0; b < size; b++)
                        cr_assert_eq(symbols_output(world, r, chunk, b), symbol_leaf(b, 0, chunk));
            symbols_free(world);
        }
}

Test(schedule, a_broadcast_reaches_all_from_any_root)
{
    static const enum ct_algorithm algorithms[] = {CT_ALGO_CHAIN, CT_ALGO_BINOMIAL,
                                                   CT_ALGO_DOUBLE_TREE_BROADCAST};

    for (size_t a = 0; a < CT_COUNT(algorithms); a++)
        for (int size = 1; size > 0; size = world_after(size))
            for (int root = 0; root < size; root = root_after(size, root)) {
                struct symbol_world *world =
                    symbols_run(algorithms[a], size, root, (root & 1) != 0);

                for (int r = 0; r < size; r++)
                    for (int chunk = 0; chunk < SYMBOLS_CHUNKS; chunk++)
                        for (int b = 0; b < blocks_of(world); b++)
                            cr_assert_eq(symbols_output(world, r, chunk, b),
                                         symbol_leaf(root, b, chunk), "%s of %d from %d, rank %d",
                                         ct_algorithm_name(algorithms[a]), size, root, r);
                symbols_free(world);
            }
}

/* Each rank must have heard, directly or through others, from all: reachability over the phases. */
Test(schedule, nobody_leaves_a_barrier_before_all_have_come)
{
    for (int size = 2; size <= 64; size++) {
        uint64_t heard[64], next[64];
        struct symbol_world *world = symbols_run(CT_ALGO_DISSEMINATION, size, 0, false);

        for (int r = 0; r < size; r++)
            heard[r] = 1ull << r;
        for (int phase = 0; phase < world->ranks[0].schedule.phases; phase++) {
            memcpy(next, heard, sizeof next);
            for (int r = 0; r < size; r++)
                for (int i = 0; i < world->ranks[r].schedule.steps; i++) {
                    const struct ct_step *step = &world->ranks[r].schedule.step[i];

                    if (step->kind == CT_STEP_RECV && step->phase == phase)
                        next[r] |= heard[step->peer];
                }
            memcpy(heard, next, sizeof heard);
        }
        for (int r = 0; r < size; r++)
            cr_assert_eq(heard[r], UINT64_MAX >> (64 - size));
        symbols_free(world);
    }
}

Test(schedule, a_root_ends_with_the_documented_sum)
{
    static const struct {
        enum ct_algorithm algorithm;
        enum order order;
    } rows[] = {{CT_ALGO_FLAT_ROOT, AT_ONCE},     {CT_ALGO_DIRECT_ROOT, AT_ONCE},
                {CT_ALGO_BINOMIAL_ROOT, AT_ONCE}, {CT_ALGO_ROUTED_ROOT, AT_ONCE},
                {CT_ALGO_TREE_ROOT, TREE},        {CT_ALGO_CHAIN_ROOT, IN_A_ROW}};

    for (size_t row = 0; row < CT_COUNT(rows); row++)
        for (int size = 1; size > 0; size = world_after(size))
            for (int root = 0; root < size; root = root_after(size, root)) {
                struct symbol_world *world =
                    symbols_run(rows[row].algorithm, size, root, (root & 1) != 0);

                for (int chunk = 0; chunk < SYMBOLS_CHUNKS; chunk++)
                    for (int b = 0; b < blocks_of(world); b++)
                        cr_assert(is_sum(symbols_output(world, root, chunk, b), rows[row].order,
                                         size, b, chunk),
                                  "%s of %d to %d", ct_algorithm_name(rows[row].algorithm), size,
                                  root);
                symbols_free(world);
            }
}

Test(schedule, a_root_gathers_and_scatters_every_block)
{
    static const enum ct_algorithm gathers[] = {CT_ALGO_GATHER, CT_ALGO_BINOMIAL_GATHER},
                                   scatters[] = {CT_ALGO_SCATTER, CT_ALGO_BINOMIAL_SCATTER};

    for (size_t a = 0; a < CT_COUNT(gathers); a++)
        for (int size = 1; size > 0; size = world_after(size))
            for (int root = 0; root < size; root = root_after(size, root)) {
                struct symbol_world *world = symbols_run(gathers[a], size, root, false);

                for (int r = 0; r < size; r++)
                    for (int chunk = 0; chunk < SYMBOLS_CHUNKS; chunk++)
                        cr_assert_eq(symbols_output(world, root, chunk, r),
                                     symbol_leaf(r, 0, chunk), "%d of %d to %d", r, size, root);
                symbols_free(world);
                world = symbols_run(scatters[a], size, root, false);
                for (int r = 0; r < size; r++)
                    for (int chunk = 0; chunk < SYMBOLS_CHUNKS; chunk++)
                        cr_assert_eq(symbols_output(world, r, chunk, 0),
                                     symbol_leaf(root, r, chunk), "%d of %d from %d", r, size,
                                     root);
                symbols_free(world);
            }
}

Test(schedule, an_exchange_transposes_the_blocks_in_place_or_not)
{
    for (int in_place = 0; in_place < 2; in_place++)
        for (int size = 1; size > 0; size = world_after(size)) {
            struct symbol_world *world = symbols_run(
                in_place != 0 ? CT_ALGO_SWAP : CT_ALGO_EXCHANGE, size, 0, in_place != 0);

            for (int r = 0; r < size; r++)
                for (int from = 0; from < size; from++)
                    cr_assert_eq(symbols_output(world, r, 1, from), symbol_leaf(from, r, 1));
            symbols_free(world);
        }
}

/* ---- costs -----------------------------------------------------------------------------------*/

/* The table in step_schedule.h. */
Test(schedule, phases_and_traffic_are_as_documented)
{
    static const struct {
        enum ct_algorithm algorithm;
        struct {
            int phases, blocks_sent; /* by rank 0, a chunk */
        } of[2];                     /* at world 8 and 11 */
    } rows[] = {
        {CT_ALGO_FLAT, {{1, 7}, {1, 10}}},
        {CT_ALGO_DIRECT, {{2, 14}, {2, 20}}},
        {CT_ALGO_DIRECT_SCATTER, {{1, 7}, {1, 10}}},
        {CT_ALGO_DIRECT_GATHER, {{1, 7}, {1, 10}}},
        {CT_ALGO_RING, {{14, 14}, {20, 20}}},
        {CT_ALGO_RING_SCATTER, {{7, 7}, {10, 10}}},
        {CT_ALGO_RING_GATHER, {{7, 7}, {10, 10}}},
        {CT_ALGO_DOUBLING, {{3, 3}, {5, 4}}},
        {CT_ALGO_CHAIN, {{7, 1}, {10, 1}}},
        {CT_ALGO_BINOMIAL, {{3, 3}, {4, 4}}},
        {CT_ALGO_DISSEMINATION, {{3, 3}, {4, 4}}},
        {CT_ALGO_FLAT_ROOT, {{1, 0}, {1, 0}}},
        {CT_ALGO_DIRECT_ROOT, {{2, 7}, {2, 10}}},
        {CT_ALGO_GATHER, {{1, 0}, {1, 0}}},
        {CT_ALGO_SCATTER, {{1, 7}, {1, 10}}},
        {CT_ALGO_EXCHANGE, {{1, 7}, {1, 10}}},
        {CT_ALGO_SWAP, {{1, 7}, {1, 10}}},
        {CT_ALGO_BRUCK, {{4, 7}, {5, 10}}},
        {CT_ALGO_BRUCK_GATHER, {{4, 7}, {5, 10}}},
        {CT_ALGO_ROUTED, {{6, 12 + 7}, {8, 17 + 10}}},
        {CT_ALGO_ROUTED_SCATTER, {{3, 12}, {4, 17}}},
        {CT_ALGO_ROUTED_ROOT, {{6, 12}, {8, 17}}},
        {CT_ALGO_BINOMIAL_ROOT, {{4, 0}, {5, 0}}},
        {CT_ALGO_BINOMIAL_GATHER, {{4, 0}, {5, 0}}},
        {CT_ALGO_BINOMIAL_SCATTER, {{4, 7}, {5, 10}}},
        {CT_ALGO_HALVING, {{6, 14}, {8, 14 + 8}}},
        {CT_ALGO_DOUBLE_TREE, {{6, 2}, {8, 3}}},
        {CT_ALGO_DOUBLE_TREE_BROADCAST, {{4, 2}, {5, 2}}},
        {CT_ALGO_TREE_ROOT, {{3, 0}, {4, 0}}},
        {CT_ALGO_CHAIN_REDUCE, {{14, 1}, {20, 1}}},
        {CT_ALGO_CHAIN_ROOT, {{8, 1}, {11, 1}}},
    };

    cr_assert_eq(CT_COUNT(rows), CT_ALGO_FLAGS - 1, "every schedule has a row");
    for (size_t i = 0; i < CT_COUNT(rows); i++)
        for (int w = 0; w < 2; w++) {
            struct symbol_world *world = symbols_run(rows[i].algorithm, w == 0 ? 8 : 11, 0, false);

            cr_assert_eq(world->ranks[0].schedule.phases, rows[i].of[w].phases, "row %zu", i);
            cr_assert_eq(world->ranks[0].sent_blocks, rows[i].of[w].blocks_sent * SYMBOLS_CHUNKS,
                         "row %zu: %d", i, world->ranks[0].sent_blocks / SYMBOLS_CHUNKS);
            symbols_free(world);
        }
}

Test(schedule, a_rank_of_many_talks_with_as_many_as_there_are_rounds_and_directions)
{
    static const enum ct_algorithm algorithms[] = {
        CT_ALGO_BRUCK,       CT_ALGO_BRUCK_GATHER,    CT_ALGO_ROUTED,
        CT_ALGO_BINOMIAL,    CT_ALGO_BINOMIAL_ROOT,   CT_ALGO_ROUTED_SCATTER,
        CT_ALGO_ROUTED_ROOT, CT_ALGO_BINOMIAL_GATHER, CT_ALGO_BINOMIAL_SCATTER,
        CT_ALGO_RING,        CT_ALGO_RING_SCATTER,    CT_ALGO_RING_GATHER,
        CT_ALGO_CHAIN,       CT_ALGO_DISSEMINATION,
    };
    static const int worlds[] = {17, 24, 64, 256, 10000};

    for (size_t w = 0; w < CT_COUNT(worlds); w++) {
        int size = worlds[w], capacity = ct_schedule_capacity(size);
        struct ct_schedule schedule = {.step = calloc((size_t)capacity, sizeof *schedule.step),
                                       .capacity = capacity};

        CT_ASSERT(schedule.step != NULL);
        for (size_t a = 0; a < CT_COUNT(algorithms); a++)
            for (int r = 0; r < size; r += size / 16) {
                ct_schedule_build(&schedule, algorithms[a], r, size, size / 3);
                cr_assert_leq(schedule_peers(&schedule), 2 * ct_schedule_rounds(size),
                              "%s, rank %d of %d", ct_algorithm_name(algorithms[a]), r, size);
            }
        free(schedule.step);
    }
}
