/* The v forms: members that disagree about the parts, and parts that make no sense. What the v
 * forms compute: test_conformance.c. */
#include "base/assert.h"
#include "layout.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdatomic.h>

TestSuite(uneven, .timeout = 60);

/* ---- members that disagree -------------------------------------------------------------------*/

enum { WORLD = 3, ALL_GATHER = 0, REDUCE_SCATTER, ALL_TO_ALL, OPERATIONS };

struct dispute {
    int op;
    atomic_int mismatches;
};

/* Rank 1 counts one element more for rank 2 than the others do. */
static int call_disputed(struct ct_group *group, int op)
{
    float in[64] = {0}, out[64] = {0};
    int rank = ct_group_rank(group);
    struct layout mine = {.counts = {4, 4, 4}}, theirs = mine;
    struct ct_data data = ct_from_to(in, out, 4, CT_F32);

    layout_spread(&theirs, WORLD);
    mine.counts[2] += rank == 1;
    layout_spread(&mine, WORLD);
    if (op == ALL_GATHER)
        return ct_all_gather_v(group, data, layout_parts(&mine), NULL);
    if (op == REDUCE_SCATTER)
        return ct_reduce_scatter_v(group, data, layout_parts(&mine), CT_REDUCE_SUM, NULL);
    return ct_all_to_all_v(group, data, layout_parts(&theirs), layout_parts(&mine), NULL);
}

/* Who does not see it itself learns it from the group at the latest in the next call. */
static int dispute(struct ct_group *group, struct rig *rig)
{
    struct dispute *shared = rig->shared;
    int code = call_disputed(group, shared->op);

    if (code == CT_EMISMATCH)
        atomic_fetch_add(&shared->mismatches, 1);
    if (code == 0)
        code = ct_barrier(group, NULL);
    return code == CT_EMISMATCH || code == CT_ECLOSED ? 0 : __LINE__;
}

ParameterizedTestParameters(uneven, counts_that_differ_are_an_error_on_every_rank)
{
    static int numbers[RIG_BACKENDS * OPERATIONS];

    for (int i = 0; i < rig_backend_count() * OPERATIONS; i++)
        numbers[i] = i;
    return cr_make_param_array(int, numbers, (size_t)(rig_backend_count() * OPERATIONS));
}
ParameterizedTest(int *index, uneven, counts_that_differ_are_an_error_on_every_rank)
{
    struct dispute shared = {.op = *index % OPERATIONS};
    struct rig rig = {
        .backend = rig_backends[*index / OPERATIONS], .world = WORLD, .shared = &shared};

    cr_assert_eq(rig_run(&rig, dispute), 0);
    cr_assert_geq(shared.mismatches, 1);
}

static int misuse(struct ct_group *group, struct rig *rig)
{
    float in[16] = {0}, out[16] = {0};
    struct layout layout = {.counts = {2, 2, 2}};
    struct ct_parts none = {NULL, NULL}, parts, beyond;
    size_t far[] = {0, 2, SIZE_MAX / 4};

    (void)rig;
    layout_spread(&layout, WORLD);
    parts = layout_parts(&layout);
    beyond = (struct ct_parts){layout.counts, far};
    if (ct_all_gather_v(group, ct_from_to(in, out, 2, CT_F32), none, NULL) != CT_EUSAGE ||
        ct_all_gather_v(group, ct_from_to(in, out, 3, CT_F32), parts, NULL) != CT_EUSAGE ||
        ct_all_gather_v(group, ct_from_to(in, out, 2, CT_F32), beyond, NULL) != CT_EUSAGE)
        return __LINE__;
    if (ct_all_to_all_v(group, ct_inplace(out, 0, CT_F32), parts, parts, NULL) != CT_EUSAGE)
        return __LINE__;
    return ct_barrier(group, NULL) == 0 ? 0 : __LINE__;
}

Test(uneven, parts_that_make_no_sense_are_refused_and_the_group_lives_on)
{
    struct rig rig = {.world = WORLD};

    cr_assert_eq(rig_run(&rig, misuse), 0);
}
