/* The model of latency and bandwidth: the costs of the papers, and what is carried to other numbers
 * of ranks. */
#include "algorithm/cost.h"

#include "algorithm/tuning.h"
#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

TestSuite(cost, .timeout = 30);

static const enum ct_algorithm modelled[] = {
    CT_ALGO_DOUBLING,     CT_ALGO_HALVING,
    CT_ALGO_DOUBLE_TREE,  CT_ALGO_RING,
    CT_ALGO_BRUCK,        CT_ALGO_ROUTED,
    CT_ALGO_CHAIN_REDUCE, CT_ALGO_CHAIN,
    CT_ALGO_BINOMIAL,     CT_ALGO_DOUBLE_TREE_BROADCAST,
};

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* Thakur, Rabenseifner, Gropp 2005, sections 4.1, 4.5. */
Test(cost, latency_and_bytes_are_those_of_the_papers)
{
    cr_assert(is_near(ct_cost(CT_ALGO_DOUBLING, 16, 1000, 10), 4 * 1010));
    cr_assert(is_near(ct_cost(CT_ALGO_HALVING, 16, 1600, 10), 8 * 10 + 2 * 1500));
    cr_assert(is_near(ct_cost(CT_ALGO_RING, 16, 1600, 10), 30 * 10 + 2 * 1500));
    cr_assert(is_near(ct_cost(CT_ALGO_BRUCK, 17, 100, 10), 5 * 10 + 16 * 100));
    cr_assert(is_near(ct_cost(CT_ALGO_BINOMIAL, 17, 100, 10), 5 * 110));
    cr_assert_eq(ct_cost(CT_ALGO_EXCHANGE, 17, 100, 10), 0);
}

Test(cost, costs_grow_with_a_message_and_a_byte_alike)
{
    for (size_t i = 0; i < CT_COUNT(modelled); i++)
        for (int p = 2; p < 300; p += 7)
            cr_assert(is_near(ct_cost(modelled[i], p, 7000, 700),
                              7 * ct_cost(modelled[i], p, 1000, 100)));
}

Test(cost, at_a_cutover_both_cost_as_much)
{
    for (int p = 9; p < 2000; p = 2 * p + 1) {
        double at = ct_cost_cutover(CT_ALGO_BRUCK, CT_ALGO_ROUTED, p, 1 << 20);

        cr_assert(is_near(ct_cost(CT_ALGO_BRUCK, p, at, 1), ct_cost(CT_ALGO_ROUTED, p, at, 1)));
        at = ct_cost_cutover(CT_ALGO_DOUBLING, CT_ALGO_DOUBLE_TREE, p, 1 << 20);
        cr_assert(
            is_near(ct_cost(CT_ALGO_DOUBLING, p, at, 1), ct_cost(CT_ALGO_DOUBLE_TREE, p, at, 1)));
    }
    cr_assert_eq(ct_cost_cutover(CT_ALGO_HALVING, CT_ALGO_RING, 64, 1000), 1000, "never");
}

Test(cost, a_measured_cutover_is_carried_to_other_numbers_of_ranks)
{
    enum ct_tunable tree = CT_SIZE_tcp_tree_bytes, bruck = CT_SIZE_tcp_bruck_bytes;

    cr_assert_eq(ct_cost_extrapolate(tree, 12345, 24, 24), 12345);
    cr_assert_eq(ct_cost_extrapolate(CT_SIZE_tcp_block_bytes, 12345, 24, 64), 12345);
    /* with more ranks a ring has more messages, and a gather brings more bytes */
    for (int ranks = 24; ranks < 4096; ranks *= 2) {
        cr_assert_lt(ct_cost_extrapolate(tree, 1 << 16, 24, ranks),
                     ct_cost_extrapolate(tree, 1 << 16, 24, 2 * ranks));
        cr_assert_gt(ct_cost_extrapolate(bruck, 1 << 16, 24, ranks),
                     ct_cost_extrapolate(bruck, 1 << 16, 24, 2 * ranks));
    }
    /* there and back */
    size_t there = ct_cost_extrapolate(tree, 1 << 20, 24, 100);
    cr_assert_leq(llabs((long long)ct_cost_extrapolate(tree, there, 100, 24) - (1 << 20)), 1);
    cr_assert_eq(ct_cost_extrapolate(bruck, 1, 24, 100000), 1, "at least a byte");
}

Test(cost, a_table_is_carried_within_the_limits_of_a_size)
{
    struct ct_table table = {.count = 1, .lines = {{"tcp", 24, CT_SIZE_tcp_bruck_bytes, 16 << 10}}};
    const struct ct_tuning none = {0}, given = {.tcp_bruck_bytes = 77};

    cr_assert_eq(ct_table_tuning(&table, "tcp", 24, &none).tcp_bruck_bytes, 16 << 10);
    cr_assert_eq(ct_table_tuning(&table, "tcp", 64, &none).tcp_bruck_bytes,
                 ct_cost_extrapolate(CT_SIZE_tcp_bruck_bytes, 16 << 10, 24, 64));
    cr_assert_eq(ct_table_tuning(&table, "tcp", 8, &none).tcp_bruck_bytes, 16 << 10);
    cr_assert_eq(ct_table_tuning(&table, "tcp", 64, &given).tcp_bruck_bytes, 77);
    table.lines[0].value = 16 << 20;
    cr_assert_eq(ct_table_tuning(&table, "tcp", 9, &none).tcp_bruck_bytes, 16 << 20);
}
