/* Which algorithm: the rules, with the sizes of select.def and with others. */
#include "algorithm/step_schedule.h"

#include "base/assert.h"
#include "symbols.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(select, .timeout = 30);

static char buffer[2][8];

static struct ct_call call_of(enum ct_call_kind kind, size_t bytes, int ranks)
{
    return (struct ct_call){.kind = kind,
                            .dtype = CT_F32,
                            .size = ranks,
                            .count = bytes / 4,
                            .longest_bytes = bytes,
                            .send = buffer[0],
                            .recv = buffer[1]};
}

Test(select, unless_told_otherwise_sizes_are_those_of_the_table)
{
    struct ct_tuning tuning = ct_tuning_complete(NULL);
    struct ct_tuning given = {.tcp_flat_bytes = 100, .inner = true};

    cr_assert_eq(tuning.local_flat_bytes, 4 << 10);
    cr_assert_eq(tuning.tcp_direct_world, 8);
    given = ct_tuning_complete(&given);
    cr_assert_eq(given.tcp_flat_bytes, 100);
    cr_assert(given.inner);
    given.tcp_flat_bytes = tuning.tcp_flat_bytes;
    given.inner = false;
    cr_assert_eq(memcmp(&given, &tuning, CT_TUNABLES * sizeof(size_t)), 0);
}

Test(select, ways_change_at_the_sizes_of_the_table)
{
    static const struct {
        enum ct_topology topology;
        enum ct_call_kind kind;
        int ranks;
        size_t bytes;
        enum ct_algorithm at, above; /* `bytes`, and a byte more */
    } rows[] = {
        {CT_TOPOLOGY_SYMMETRIC, CT_CALL_ALL_REDUCE, 2, 4095, CT_ALGO_FLAT, CT_ALGO_IN_PLACE},
        {CT_TOPOLOGY_SYMMETRIC, CT_CALL_BROADCAST, 2, 4095, CT_ALGO_STAGED, CT_ALGO_IN_PLACE},
        {CT_TOPOLOGY_SYMMETRIC, CT_CALL_ALL_GATHER, 2, 4095, CT_ALGO_STAGED, CT_ALGO_IN_PLACE},
        {CT_TOPOLOGY_SYMMETRIC, CT_CALL_REDUCE, 2, 4096, CT_ALGO_FLAT_ROOT, CT_ALGO_PIPELINE_ROOT},
        {CT_TOPOLOGY_SHARED, CT_CALL_ALL_REDUCE, 2, 4096, CT_ALGO_FLAT, CT_ALGO_PIPELINE},
        {CT_TOPOLOGY_SHARED, CT_CALL_REDUCE, 9, 4096, CT_ALGO_FLAT_ROOT, CT_ALGO_PIPELINE_ROOT},
        {CT_TOPOLOGY_DOMAINS, CT_CALL_ALL_REDUCE, 12, 65535, CT_ALGO_PIPELINE, CT_ALGO_DOMAINS},
        {CT_TOPOLOGY_DOMAINS, CT_CALL_BROADCAST, 12, 65535, CT_ALGO_STAGED, CT_ALGO_DOMAINS},
        {CT_TOPOLOGY_DOMAINS, CT_CALL_ALL_GATHER, 12, 65535, CT_ALGO_STAGED, CT_ALGO_DOMAINS},
        {CT_TOPOLOGY_DOMAINS, CT_CALL_GATHER, 12, 65535, CT_ALGO_STAGED, CT_ALGO_STAGED},
        {CT_TOPOLOGY_MESH, CT_CALL_ALL_REDUCE, 8, 16384, CT_ALGO_FLAT, CT_ALGO_DIRECT},
        {CT_TOPOLOGY_MESH, CT_CALL_ALL_REDUCE, 9, 128 << 10, CT_ALGO_DOUBLING, CT_ALGO_DOUBLE_TREE},
        {CT_TOPOLOGY_MESH, CT_CALL_ALL_REDUCE, 16, 128 << 10, CT_ALGO_DOUBLING, CT_ALGO_HALVING},
        {CT_TOPOLOGY_MESH, CT_CALL_ALL_REDUCE, 9, 512 << 10, CT_ALGO_DOUBLE_TREE, CT_ALGO_RING},
        {CT_TOPOLOGY_MESH, CT_CALL_REDUCE, 8, 16384, CT_ALGO_FLAT_ROOT, CT_ALGO_DIRECT_ROOT},
        {CT_TOPOLOGY_MESH, CT_CALL_REDUCE, 9, 1 << 20, CT_ALGO_TREE_ROOT, CT_ALGO_ROUTED_ROOT},
        {CT_TOPOLOGY_MESH, CT_CALL_REDUCE, 9, (4 << 20) - 1, CT_ALGO_ROUTED_ROOT,
         CT_ALGO_CHAIN_ROOT},
        {CT_TOPOLOGY_MESH, CT_CALL_BROADCAST, 9, 1 << 20, CT_ALGO_BINOMIAL,
         CT_ALGO_DOUBLE_TREE_BROADCAST},
        {CT_TOPOLOGY_MESH, CT_CALL_BROADCAST, 2, 262144, CT_ALGO_BINOMIAL, CT_ALGO_CHAIN},
        {CT_TOPOLOGY_MESH, CT_CALL_ALL_GATHER, 8, 4, CT_ALGO_DIRECT_GATHER, CT_ALGO_DIRECT_GATHER},
        {CT_TOPOLOGY_MESH, CT_CALL_ALL_GATHER, 9, 16384, CT_ALGO_BRUCK_GATHER, CT_ALGO_RING_GATHER},
        {CT_TOPOLOGY_MESH, CT_CALL_REDUCE_SCATTER, 8, 4, CT_ALGO_DIRECT_SCATTER,
         CT_ALGO_DIRECT_SCATTER},
        {CT_TOPOLOGY_MESH, CT_CALL_REDUCE_SCATTER, 9, 16384, CT_ALGO_ROUTED_SCATTER,
         CT_ALGO_RING_SCATTER},
        {CT_TOPOLOGY_MESH, CT_CALL_GATHER, 8, 4, CT_ALGO_GATHER, CT_ALGO_GATHER},
        {CT_TOPOLOGY_MESH, CT_CALL_GATHER, 9, 4, CT_ALGO_BINOMIAL_GATHER, CT_ALGO_BINOMIAL_GATHER},
        {CT_TOPOLOGY_MESH, CT_CALL_SCATTER, 8, 4, CT_ALGO_SCATTER, CT_ALGO_SCATTER},
        {CT_TOPOLOGY_MESH, CT_CALL_SCATTER, 9, 4, CT_ALGO_BINOMIAL_SCATTER,
         CT_ALGO_BINOMIAL_SCATTER},
        {CT_TOPOLOGY_LEVELS, CT_CALL_ALL_REDUCE, 4, 16384, CT_ALGO_COLUMNS, CT_ALGO_LEVELS},
        {CT_TOPOLOGY_LEVELS, CT_CALL_BROADCAST, 4, 16384, CT_ALGO_COLUMNS, CT_ALGO_LEVELS},
    };
    struct ct_tuning tuning = ct_tuning_complete(NULL);

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_call call = call_of(rows[i].kind, rows[i].bytes, rows[i].ranks);

        cr_assert_eq(ct_select(&tuning, rows[i].topology, &call), rows[i].at, "row %zu", i);
        call.longest_bytes++;
        cr_assert_eq(ct_select(&tuning, rows[i].topology, &call), rows[i].above, "row %zu", i);
    }
}

/* With more ranks than tcp_direct_world, by mode and number of ranks. */
Test(select, many_ranks_keep_the_order_of_the_mode)
{
    static const struct {
        enum ct_reduce_mode mode;
        enum ct_call_kind kind;
        int ranks;
        size_t bytes;
        enum ct_algorithm at, above;
    } rows[] = {
        {CT_MODE_REPRODUCIBLE, CT_CALL_ALL_REDUCE, 16, 32768, CT_ALGO_BRUCK, CT_ALGO_ROUTED},
        {CT_MODE_REPRODUCIBLE, CT_CALL_ALL_REDUCE, 16, (4 << 20) - 1, CT_ALGO_ROUTED,
         CT_ALGO_CHAIN_REDUCE},
        {CT_MODE_REPRODUCIBLE, CT_CALL_REDUCE, 16, 32768, CT_ALGO_BINOMIAL_ROOT,
         CT_ALGO_ROUTED_ROOT},
        {CT_MODE_REPRODUCIBLE, CT_CALL_REDUCE_SCATTER, 16, 4096, CT_ALGO_ROUTED_SCATTER,
         CT_ALGO_ROUTED_SCATTER},
        {CT_MODE_INVARIANT, CT_CALL_ALL_REDUCE, 16, 128 << 10, CT_ALGO_DOUBLING, CT_ALGO_HALVING},
        {CT_MODE_INVARIANT, CT_CALL_ALL_REDUCE, 17, 32768, CT_ALGO_BRUCK, CT_ALGO_ROUTED},
        {CT_MODE_INVARIANT, CT_CALL_ALL_REDUCE, 17, 1 << 24, CT_ALGO_ROUTED, CT_ALGO_ROUTED},
        {CT_MODE_INVARIANT, CT_CALL_REDUCE, 17, 1 << 20, CT_ALGO_TREE_ROOT, CT_ALGO_ROUTED_ROOT},
    };
    struct ct_tuning tuning = ct_tuning_complete(NULL);

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_call call = call_of(rows[i].kind, rows[i].bytes, rows[i].ranks);

        call.mode = rows[i].mode;
        cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_MESH, &call), rows[i].at, "row %zu", i);
        call.longest_bytes++;
        cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_MESH, &call), rows[i].above, "row %zu", i);
    }
}

/* In the order of ranks, by the tree, or in any: what an algorithm's sums are. */
static bool keeps(enum ct_algorithm way, enum ct_reduce_mode mode, bool power_of_two)
{
    switch (way) {
    case CT_ALGO_RING:
    case CT_ALGO_RING_SCATTER:
    case CT_ALGO_DOUBLE_TREE:
        return mode == CT_MODE_FAST;
    case CT_ALGO_DOUBLING:
    case CT_ALGO_HALVING:
        return mode == CT_MODE_FAST || (mode == CT_MODE_INVARIANT && power_of_two);
    case CT_ALGO_TREE_ROOT:
        return mode != CT_MODE_REPRODUCIBLE;
    case CT_ALGO_CHAIN_REDUCE:
    case CT_ALGO_CHAIN_ROOT:
        return mode != CT_MODE_INVARIANT;
    default:
        return true;
    }
}

/* Whether rules or sizes of others are in force: sums in another order than the mode's never. */
Test(select, no_size_chooses_a_way_with_other_bits)
{
    for (size_t size = 1; size <= 1 << 20; size <<= 4)
        for (int ranks = 7; ranks <= 8; ranks++) {
            struct ct_tuning tuning = {.tcp_flat_bytes = size,
                                       .tcp_doubling_bytes = (1 << 21) / size,
                                       .tcp_halving_bytes = size,
                                       .tcp_chain_reduce_bytes = size,
                                       .tcp_direct_world = 1};
            struct ct_call call = call_of(CT_CALL_ALL_REDUCE, 4096, ranks);

            tuning = ct_tuning_complete(&tuning);
            for (int kind = 0; kind < CT_CALL_SEND; kind++)
                for (int mode = CT_MODE_FAST; mode <= CT_MODE_INVARIANT; mode++) {
                    call.kind = (enum ct_call_kind)kind;
                    call.mode = (enum ct_reduce_mode)mode;
                    enum ct_algorithm way = ct_select(&tuning, CT_TOPOLOGY_MESH, &call);
                    cr_assert(keeps(way, call.mode, ranks == 8), "%s, mode %d",
                              ct_algorithm_name(way), mode);
                }
        }
}

/* Peers of the rank that has most, by the sizes of the table: all_to_all has all of them. */
static int most_peers(struct ct_schedule *schedule, const struct ct_tuning *tuning,
                      const struct ct_call *call)
{
    enum ct_algorithm way = ct_select(tuning, CT_TOPOLOGY_MESH, call);
    int most = 0;

    for (int rank = 0; rank<call->size; rank += call->size> 256 ? call->size / 16 : 1) {
        ct_schedule_build(schedule, way, rank, call->size, 0);
        most = CT_MAX(most, schedule_peers(schedule));
    }
    return most;
}

Test(select, a_rank_of_many_has_few_peers_in_every_call_mode_and_size)
{
    static const int worlds[] = {9, 17, 24, 64, 256, 10000};
    struct ct_tuning tuning = ct_tuning_complete(NULL);

    for (size_t w = 0; w < CT_COUNT(worlds); w++) {
        int size = worlds[w], rounds = ct_schedule_rounds(size);
        int capacity = ct_schedule_capacity(size);
        struct ct_schedule schedule = {.step = calloc((size_t)capacity, sizeof *schedule.step),
                                       .capacity = capacity};

        CT_ASSERT(schedule.step != NULL);
        for (int kind = 0; kind < CT_CALL_SEND; kind++)
            for (int mode = CT_MODE_FAST; mode <= CT_MODE_INVARIANT; mode++)
                for (size_t bytes = 64; bytes <= 16 << 20 && kind != CT_CALL_ALL_TO_ALL;
                     bytes *= 512)
                    for (int wide = 0; wide < 2; wide++) {
                        struct ct_call call = call_of((enum ct_call_kind)kind, bytes, size);

                        call.mode = (enum ct_reduce_mode)mode;
                        call.dtype = wide != 0 ? CT_BF16 : CT_F32;
                        cr_assert_leq(most_peers(&schedule, &tuning, &call), 2 * rounds,
                                      "%d ranks, kind %d, mode %d, %zu bytes", size, kind, mode,
                                      bytes);
                    }
        free(schedule.step);
    }
}

Test(select, what_is_rounded_once_takes_no_steps)
{
    struct ct_tuning tuning = {.tcp_direct_world = 1};
    struct ct_call call = call_of(CT_CALL_ALL_REDUCE, 1 << 24, 5);

    tuning = ct_tuning_complete(&tuning);
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_MESH, &call), CT_ALGO_RING);
    call.dtype = CT_BF16;
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_MESH, &call), CT_ALGO_ROUTED);
    call.dtype = CT_F32;
    call.reduce = CT_REDUCE_PREMUL_SUM;
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_MESH, &call), CT_ALGO_DIRECT);
}

/* They add up in rank order, and one after the other. */
Test(select, domains_are_for_sums_in_rank_order_and_in_steps)
{
    struct ct_tuning tuning = ct_tuning_complete(NULL);
    struct ct_call call = call_of(CT_CALL_ALL_REDUCE, 1 << 20, 12);

    call.mode = CT_MODE_REPRODUCIBLE;
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_DOMAINS, &call), CT_ALGO_DOMAINS);
    call.mode = CT_MODE_INVARIANT;
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_DOMAINS, &call), CT_ALGO_PIPELINE);
    call.mode = CT_MODE_FAST;
    call.dtype = CT_BF16;
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_DOMAINS, &call), CT_ALGO_PIPELINE);
}

Test(select, parts_and_buffers_of_the_call_count)
{
    struct ct_tuning tuning = ct_tuning_complete(NULL);
    struct ct_call call = call_of(CT_CALL_REDUCE_SCATTER, 1 << 20, 4);

    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_SYMMETRIC, &call), CT_ALGO_IN_PLACE);
    call.uneven = true;
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_SYMMETRIC, &call), CT_ALGO_STAGED);
    call = call_of(CT_CALL_ALL_TO_ALL, 64, 4);
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_MESH, &call), CT_ALGO_EXCHANGE);
    call.recv = buffer[0];
    cr_assert_eq(ct_select(&tuning, CT_TOPOLOGY_MESH, &call), CT_ALGO_SWAP);
}

Test(select, every_algorithm_has_a_name)
{
    for (int i = 0; i < CT_ALGO_COUNT; i++)
        cr_assert_not_null(ct_algorithm_name((enum ct_algorithm)i));
}
