/* Where ranks live, by runs of nodes. */
#include "wire/node_runs.h"

#include "base/assert.h"

#include <criterion/criterion.h>

TestSuite(node_runs, .timeout = 10);

static const struct ct_wire_run some[] = {{3, 8, "a"}, {2, 4, "a"}, {1, 4, "b"}};
static const struct ct_node_runs runs = {some, CT_COUNT(some)};

Test(node_runs, nodes_that_are_alike_become_one)
{
    static const struct {
        uint32_t slots;
        const char *role;
    } nodes[] = {{8, "a"}, {8, "a"}, {8, "a"}, {4, "a"}, {4, "a"}, {4, "b"}};
    struct ct_wire_run made[CT_COUNT(nodes)];
    uint32_t count = 0;

    for (size_t i = 0; i < CT_COUNT(nodes); i++)
        ct_node_runs_add(made, &count, nodes[i].slots, nodes[i].role);
    cr_assert_eq(count, runs.count);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(made[i].nodes, some[i].nodes);
        cr_assert_eq(made[i].slots, some[i].slots);
        cr_assert_str_eq(made[i].role, some[i].role);
    }
}

Test(node_runs, each_node_and_rank_is_found)
{
    static const uint32_t firsts[] = {0, 8, 16, 24, 28, 32, 36};

    for (uint32_t node = 0; node < 6; node++) {
        uint32_t first = 99;
        const struct ct_wire_run *run = ct_node_runs_find(runs, node, &first);

        cr_assert_eq(first, firsts[node]);
        cr_assert_eq(run->slots, firsts[node + 1] - firsts[node]);
        for (uint32_t rank = firsts[node]; rank < firsts[node + 1]; rank++)
            cr_assert_eq(ct_node_runs_node_of(runs, rank), (int32_t)node);
    }
    cr_assert_eq(ct_node_runs_node_of(runs, 36), -1);
    cr_assert_eq(ct_node_runs_node_of(runs, -1), -1);
    cr_assert_eq(ct_node_runs_node_of((struct ct_node_runs){0}, 0), -1);
}

Test(node_runs, what_does_not_add_up_does_not_fit)
{
    static const struct ct_wire_run none[] = {{6, 6, ""}, {0, 6, ""}},
                                    idle[] = {{5, 7, ""}, {1, 0, ""}, {0, 1, ""}},
                                    many[] = {{UINT32_MAX, UINT32_MAX, ""}, {7, 36, ""}};

    cr_assert(ct_node_runs_fit(runs, 6, 36));
    cr_assert_not(ct_node_runs_fit(runs, 5, 36));
    cr_assert_not(ct_node_runs_fit(runs, 7, 36));
    cr_assert_not(ct_node_runs_fit(runs, 6, 35));
    cr_assert_not(ct_node_runs_fit(runs, 6, 37));
    cr_assert_not(ct_node_runs_fit((struct ct_node_runs){some, 0}, 6, 36));
    cr_assert_not(ct_node_runs_fit((struct ct_node_runs){none, CT_COUNT(none)}, 6, 36));
    cr_assert_not(ct_node_runs_fit((struct ct_node_runs){idle, CT_COUNT(idle)}, 6, 35));
    cr_assert_not(ct_node_runs_fit((struct ct_node_runs){many, CT_COUNT(many)}, 6, 36));
}
