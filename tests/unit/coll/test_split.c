/* Groups made from groups: who is in them, in which order, and that all work at the same time. */
#include "base/assert.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

TestSuite(split, .timeout = 60);

enum { WORLD = 8 };

static int64_t sum_over(struct ct_group *group, int64_t value)
{
    int code = ct_all_reduce(group, ct_inplace(&value, 1, CT_I64), CT_REDUCE_SUM, NULL);

    return code == 0 ? value : -1;
}

/* Odd and even ranks, in reverse. */
static int split_by_parity(struct ct_group *group, struct rig *rig)
{
    int world = ct_group_size(group), rank = ct_group_rank(group);
    struct ct_group *half = NULL;
    int64_t members[WORLD], mine = rank, expected = 0;
    int size = 0, line = 0;

    for (int i = rank % 2; i < world; i += 2, size++)
        expected += i;
    if (ct_group_split(group, rank % 2, -rank, &half, NULL) != 0)
        return __LINE__;
    if (ct_group_size(half) != size || ct_group_rank(half) != size - 1 - rank / 2)
        line = __LINE__;
    else if (size > 1 && rig->nodes == 0 && strcmp(ct_group_backend(half), rig->backend) != 0)
        line = __LINE__;
    else if (sum_over(half, rank) != expected)
        line = __LINE__;
    else if (ct_all_gather(half, ct_from_to(&mine, members, 1, CT_I64), NULL) != 0)
        line = __LINE__;
    for (int i = 0; i < size && line == 0; i++)
        if (members[i] != rank % 2 + 2 * (size - 1 - i))
            line = __LINE__;
    ct_group_free(half);
    return line;
}

ParameterizedTestParameters(split, members_of_a_colour_are_ranked_by_key)
{
    return rig_cases();
}
ParameterizedTest(int *index, split, members_of_a_colour_are_ranked_by_key)
{
    struct rig rig = rig_case(*index);

    cr_assert_eq(rig_run(&rig, split_by_parity), 0);
}

/* A cube: 8 ranks, halves, quarters; row i of the world beside them. Equal keys: the parent's
 * order. Collectives of all four groups are under way together, started in the same order
 * everywhere. */
static int split_a_cube(struct ct_group *group, struct rig *rig)
{
    int rank = ct_group_rank(group), line = 0;
    struct ct_group *half = NULL, *quarter = NULL, *column = NULL;
    struct ct_group *all[4];
    struct ct_request *requests[4];
    int64_t sums[4] = {rank, rank, rank, rank};
    int64_t expected[4] = {28, rank < 4 ? 6 : 22, 4 * (rank / 2) + 1, rank % 4 * 2 + 4};

    (void)rig;
    if (ct_group_split(group, rank / 4, 0, &half, NULL) != 0 ||
        ct_group_split(half, ct_group_rank(half) / 2, 0, &quarter, NULL) != 0 ||
        ct_group_split(group, rank % 4, 0, &column, NULL) != 0)
        return __LINE__;
    memcpy(all, (struct ct_group *[]){group, half, quarter, column}, sizeof all);
    for (int turn = 0; turn < 20 && line == 0; turn++) {
        bool over[4] = {false};

        for (int i = 0; i < 4; i++) {
            sums[i] = rank;
            if (ct_all_reduce_start(all[i], ct_inplace(&sums[i], 1, CT_I64), CT_REDUCE_SUM, NULL,
                                    &requests[i]) != 0)
                return __LINE__;
        }
        for (int open = 4; open > 0;) /* whichever comes first */
            for (int i = 3; i >= 0; i--) {
                int code = over[i] ? 0 : ct_test(requests[i]);

                if (code < 0)
                    return __LINE__;
                over[i] = over[i] || code == 1;
                open -= code;
            }
        if (memcmp(sums, expected, sizeof sums) != 0)
            line = __LINE__;
    }
    ct_group_free(column);
    ct_group_free(quarter);
    ct_group_free(half);
    return line != 0 || sum_over(group, 1) == WORLD ? line : __LINE__;
}

Test(split, groups_of_groups_work_at_the_same_time)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct rig rig = {.backend = rig_backends[i], .world = WORLD};

        cr_assert_eq(rig_run(&rig, split_a_cube), 0, "%s", rig_backends[i]);
    }
}

/* The same colours again and again: each time another group. */
static int split_again(struct ct_group *group, struct rig *rig)
{
    int rank = ct_group_rank(group);

    (void)rig;
    for (int turn = 0; turn < 3; turn++) {
        struct ct_group *part = NULL;
        bool alone = rank == turn;
        struct ct_error err = {0};

        if (ct_group_split(group, alone ? CT_NO_COLOUR : 7, 0, &part, &err) != 0)
            return __LINE__;
        if (alone ? part != NULL : sum_over(part, 1) != 2)
            return __LINE__;
        ct_group_free(part);
    }
    return ct_group_split(group, -2, 0, NULL, NULL) == CT_EUSAGE ? 0 : __LINE__;
}

Test(split, a_member_may_stay_outside)
{
    struct rig rig = {.backend = "shm", .world = 3};

    cr_assert_eq(rig_run(&rig, split_again), 0);
}

/* A part that breaks leaves its parent alone, and the other part. */
static int break_a_part(struct ct_group *group, struct rig *rig)
{
    int rank = ct_group_rank(group), line = 0;
    struct ct_group *part = NULL;

    (void)rig;
    if (ct_group_split(group, rank % 2, 0, &part, NULL) != 0)
        return __LINE__;
    if (rank == 0)
        ct_group_revoke(part);
    if (rank % 2 == 0 && ct_barrier(part, NULL) == 0)
        line = __LINE__;
    if (rank % 2 == 1 && sum_over(part, 1) != 2)
        line = __LINE__;
    if (line == 0 && sum_over(group, 1) != 4)
        line = __LINE__;
    ct_group_free(part);
    return line;
}

Test(split, a_part_that_breaks_leaves_the_others_alone)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct rig rig = {.backend = rig_backends[i], .world = 4};

        cr_assert_eq(rig_run(&rig, break_a_part), 0, "%s", rig_backends[i]);
    }
}

/* Names grow with the depth; at the limit there is a sentence. */
static int split_deeply(struct ct_group *group, struct rig *rig)
{
    struct ct_group *chain[40] = {group};
    struct ct_error err = {0};
    int depth = 0, code = 0;

    (void)rig;
    while (code == 0 && depth + 1 < 40) {
        code = ct_group_split(chain[depth], 0, 0, &chain[depth + 1], &err);
        depth += code == 0;
    }
    bool whole = depth >= 10 && code == CT_ELIMIT && strstr(err.text, "split further") != NULL &&
                 sum_over(chain[depth], 1) == 2;
    for (; depth > 0; depth--)
        ct_group_free(chain[depth]);
    return whole ? 0 : __LINE__;
}

Test(split, parts_of_parts_end_at_a_named_limit)
{
    struct rig rig = {.backend = "thread", .world = 2};

    cr_assert_eq(rig_run(&rig, split_deeply), 0);
}
