/* Every operation, type, reduction and mode, on every backend and world, against the reference:
 * conform.h, on ranks that are threads. */
#include "buffer.h"
#include "conform.h"
#include "rig.h"
#include "sanitized.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

TestSuite(conformance, .timeout = 60);

static int check_all_reductions(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    return conform_reductions(group);
}

static int check_all_moves(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    return conform_moves(group);
}

static int check_all_parts(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    return conform_parts(group);
}

static int check_large(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    return conform_large(group);
}

/* In pieces so small that few elements take every path. */
static void expect_tiny(int index, int (*body)(struct ct_group *group, struct rig *rig))
{
    struct rig rig = rig_case(index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, body), 0);
}

ParameterizedTestParameters(conformance, reductions_equal_the_reference)
{
    return rig_cases();
}
ParameterizedTest(int *index, conformance, reductions_equal_the_reference)
{
    expect_tiny(*index, check_all_reductions);
}

ParameterizedTestParameters(conformance, moves_equal_the_reference)
{
    return rig_cases();
}
ParameterizedTest(int *index, conformance, moves_equal_the_reference)
{
    expect_tiny(*index, check_all_moves);
}

ParameterizedTestParameters(conformance, parts_of_any_length_equal_the_reference)
{
    return rig_cases();
}
ParameterizedTest(int *index, conformance, parts_of_any_length_equal_the_reference)
{
    expect_tiny(*index, check_all_parts);
}

ParameterizedTestParameters(conformance, large_data_streams_through_the_real_chunks)
{
    return rig_cases();
}
ParameterizedTest(int *index, conformance, large_data_streams_through_the_real_chunks)
{
    struct rig rig = rig_case(*index);

    cr_assert_eq(rig_run(&rig, check_large), 0);
}

/* ---- symmetric memory ------------------------------------------------------------------------*/

enum { SHARED_BYTES = 4 << 20 };

/* Run `body` with the buffers of this rank, if `shared`, in symmetric memory, at each rank at other
 * offsets. */
static int with_buffers(struct ct_group *group, struct rig *rig, bool shared,
                        int (*body)(struct ct_group *group, struct rig *rig))
{
    size_t skip = 24 * (size_t)ct_group_rank(group);
    void *memory = NULL;

    if (shared && ct_mem_alloc(group->job, SHARED_BYTES + skip, &memory, NULL) != 0)
        return __LINE__;
    buffers_from(shared ? (char *)memory + skip : NULL, SHARED_BYTES);
    int line = body(group, rig);
    buffers_from(NULL, 0);
    ct_mem_free(group->job, memory);
    return line;
}

static int check_everything(struct ct_group *group, struct rig *rig)
{
    int line = check_all_reductions(group, rig);

    return line != 0 ? line : check_all_moves(group, rig);
}

static int check_shared(struct ct_group *group, struct rig *rig)
{
    return with_buffers(group, rig, true, check_everything);
}

/* The odd ranks' buffers are ordinary. */
static int check_mixed(struct ct_group *group, struct rig *rig)
{
    return with_buffers(group, rig, ct_group_rank(group) % 2 == 0, check_everything);
}

static int check_large_shared(struct ct_group *group, struct rig *rig)
{
    return with_buffers(group, rig, true, check_large);
}

ParameterizedTestParameters(conformance, symmetric_memory_equals_the_reference)
{
    return rig_shared_cases();
}
ParameterizedTest(int *index, conformance, symmetric_memory_equals_the_reference)
{
    struct rig rig = rig_case(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, check_shared), 0);
    cr_assert_eq(rig_run(&rig, check_mixed), 0);
    rig.tuning = (struct ct_tuning){0};
    cr_assert_eq(rig_run(&rig, check_large_shared), 0);
}

/* The algorithms for many ranks, on few, and on more than a power of two. */
ParameterizedTestParameters(conformance, wide_algorithms_equal_the_reference)
{
    static int worlds[] = {2, 3, 4, 5, 9, 17}; /* sanitizers do without the last */

    return cr_make_param_array(int, worlds, CT_COUNT(worlds) - (SANITIZED ? 1 : 0));
}
ParameterizedTest(int *world, conformance, wide_algorithms_equal_the_reference, .timeout = 240)
{
    struct rig rig = {.backend = "tcp", .world = *world, .tuning = tiny};

    rig.tuning.tcp_direct_world = 1;
    cr_assert_eq(rig_run(&rig, check_all_reductions), 0);
    rig.tuning.tcp_chain_reduce_bytes = rig.tuning.tcp_doubling_bytes = 1 << 20;
    cr_assert_eq(rig_run(&rig, check_all_reductions), 0);
    cr_assert_eq(rig_run(&rig, check_all_moves), 0);
    cr_assert_eq(rig_run(&rig, check_all_parts), 0);
}
