/* Every operation, type, reduction and mode, on every backend and world, against the reference.
 *
 * Sizes are around the tiny chunks, so that a call takes several of them; one test uses the real
 * sizes. What a call is given and what has to come of it: deed.h. */
#include "base/assert.h"
#include "buffer.h"
#include "deed.h"
#include "reference.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

TestSuite(conformance, .timeout = 60);

static const size_t counts[] = {0, 1, 7, 131};
static const enum ct_reduce_mode modes[] = {CT_MODE_FAST, CT_MODE_REPRODUCIBLE, CT_MODE_INVARIANT};

/* Each of the verbs. In place and not, blocking and not, each root take turns. */
static int perform(struct ct_group *group, struct deed *deed, const enum deed_verb *verbs,
                   size_t count)
{
    int line = 0;

    for (size_t i = 0; i < count && line == 0; i++) {
        deed->verb = verbs[i];
        deed->seed++;
        deed->root = (int)(deed->seed % (uint64_t)ct_group_size(group));
        deed->in_place = !deed->uneven && deed->seed % 3 == 1;
        deed->blocking = deed->seed % 2 == 0;
        deed->symmetric = deed->seed % 5 == 0;
        line = deed_perform(group, deed);
    }
    return line;
}

static int check_reductions(struct ct_group *group, struct deed *deed)
{
    static const enum deed_verb verbs[] = {DEED_ALL_REDUCE, DEED_REDUCE_SCATTER, DEED_REDUCE};
    int line = 0;

    for (int r = 0; r < CT_REDUCE_COUNT; r++)
        for (size_t m = 0; m < CT_COUNT(modes) && line == 0; m++) {
            deed->reduce = (enum ct_reduce)r;
            deed->mode = modes[m];
            if (reference_supports(deed->dtype, deed->reduce))
                line = perform(group, deed, verbs, CT_COUNT(verbs));
        }
    return line;
}

/* One after the other, each to its right. */
static int check_messages(struct ct_group *group, struct deed *deed)
{
    int world = ct_group_size(group), line = 0;

    deed->verb = DEED_MESSAGE;
    for (int i = 0; world > 1 && i < world && line == 0; i++) {
        deed->root = i;
        deed->peer = (i + 1) % world;
        if (deed_concerns(deed, ct_group_rank(group)))
            line = deed_perform(group, deed);
    }
    return line;
}

static int check_moves(struct ct_group *group, struct deed *deed)
{
    static const enum deed_verb verbs[] = {DEED_ALL_GATHER, DEED_BROADCAST, DEED_GATHER,
                                           DEED_SCATTER,    DEED_EXCHANGE,  DEED_ALL_TO_ALL,
                                           DEED_BARRIER};
    int line = 0;

    for (int root = 0; root < ct_group_size(group) && line == 0; root++)
        line = perform(group, deed, verbs, CT_COUNT(verbs));
    return line != 0 ? line : check_messages(group, deed);
}

/* The v forms. */
static int check_parts(struct ct_group *group, struct deed *deed)
{
    static const enum deed_verb verbs[] = {DEED_ALL_GATHER, DEED_ALL_TO_ALL};
    static const enum deed_verb reducing[] = {DEED_REDUCE_SCATTER};
    int line = 0;

    deed->uneven = true;
    line = perform(group, deed, verbs, CT_COUNT(verbs));
    for (int r = 0; r < CT_REDUCE_COUNT; r++)
        for (size_t m = 0; m < CT_COUNT(modes) && line == 0; m++) {
            deed->reduce = (enum ct_reduce)r;
            deed->mode = modes[m];
            if (reference_supports(deed->dtype, deed->reduce))
                line = perform(group, deed, reducing, CT_COUNT(reducing));
        }
    return line;
}

/* `check` with each type and size. */
static int check_all(struct ct_group *group,
                     int (*check)(struct ct_group *group, struct deed *deed))
{
    int line = 0;

    for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < CT_COUNT(counts) && line == 0; s++) {
            struct deed deed = {.dtype = (enum ct_dtype)dtype,
                                .count = counts[s],
                                .seed = (uint64_t)dtype * 1000 + s};

            line = check(group, &deed);
        }
    return line;
}

static int check_all_reductions(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    return check_all(group, check_reductions);
}

static int check_all_moves(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    return check_all(group, check_moves);
}

static int check_all_parts(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    return check_all(group, check_parts);
}

static int check_large(struct ct_group *group, struct rig *rig)
{
    static const enum deed_verb reductions[] = {DEED_ALL_REDUCE, DEED_REDUCE};
    static const enum deed_verb parts[] = {DEED_REDUCE_SCATTER, DEED_ALL_GATHER, DEED_ALL_TO_ALL};
    struct deed deed = {.dtype = CT_F32, .count = 200007, .mode = CT_MODE_REPRODUCIBLE};
    int line = perform(group, &deed, reductions, CT_COUNT(reductions));

    (void)rig;
    deed.dtype = CT_BF16;
    deed.mode = CT_MODE_INVARIANT;
    line = line != 0 ? line : perform(group, &deed, reductions, CT_COUNT(reductions));
    deed.count = 100001;
    deed.uneven = true;
    line = line != 0 ? line : perform(group, &deed, parts, CT_COUNT(parts));
    deed.count /= (size_t)ct_group_size(group);
    deed.uneven = false;
    line = line != 0 ? line : perform(group, &deed, parts, CT_COUNT(parts));
    return line != 0 ? line : check_moves(group, &deed);
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

/* The algorithms for many ranks, on few. */
ParameterizedTestParameters(conformance, wide_algorithms_equal_the_reference)
{
    static int worlds[] = {2, 3, 4, 5};

    return cr_make_param_array(int, worlds, CT_COUNT(worlds));
}
ParameterizedTest(int *world, conformance, wide_algorithms_equal_the_reference)
{
    struct rig rig = {.backend = "tcp", .world = *world, .tuning = tiny};

    rig.tuning.tcp_direct_world = 1;
    cr_assert_eq(rig_run(&rig, check_all_reductions), 0);
    cr_assert_eq(rig_run(&rig, check_all_moves), 0);
    cr_assert_eq(rig_run(&rig, check_all_parts), 0);
}
