/* The v forms: parts of all lengths, zero among them, laid out backwards with gaps; and members
 * that disagree about them. */
#include "base/assert.h"
#include "buffer.h"
#include "reference.h"
#include "rig.h"
#include "shape.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdatomic.h>

TestSuite(uneven, .timeout = 60);

/* Parts, and how many elements the buffer has that they lie in. */
struct layout {
    size_t counts[REFERENCE_WORLD_MAX], offsets[REFERENCE_WORLD_MAX];
    size_t total;
};

/* Lay the parts out from the last to the first, an element apart. */
static void lay_out(struct layout *layout, int world)
{
    layout->total = 1;
    for (int i = world - 1; i >= 0; i--) {
        layout->offsets[i] = layout->total;
        layout->total += layout->counts[i] + 1;
    }
}

static struct layout common_layout(int world, size_t count)
{
    struct layout layout = {0};

    for (int i = 0; i < world; i++)
        layout.counts[i] = i % 3 == 1 ? 0 : count + (size_t)i;
    lay_out(&layout, world);
    return layout;
}

static size_t pair_count(int from, int to, size_t count)
{
    return (from + 2 * to) % 3 == 1 ? 0 : count + (size_t)(2 * from + to) % 5;
}

/* What `rank` has for all others, or gets from them. */
static struct layout pair_layout(int world, int rank, bool sends, size_t count)
{
    struct layout layout = {0};

    for (int i = 0; i < world; i++)
        layout.counts[i] = sends ? pair_count(rank, i, count) : pair_count(i, rank, count);
    lay_out(&layout, world);
    return layout;
}

static struct ct_parts parts_of(const struct layout *layout)
{
    return (struct ct_parts){layout->counts, layout->offsets};
}

static char *part_at(const struct buffer *buffer, const struct layout *layout, int i,
                     enum ct_dtype dtype)
{
    return buffer->data + layout->offsets[i] * ct_dtype_size(dtype);
}

/* The bytes between the parts are as buffer_new left them. */
static bool gaps_are_whole(const struct buffer *buffer, const struct layout *layout, int world,
                           enum ct_dtype dtype)
{
    bool whole = true;

    for (int i = 0; i < world; i++)
        for (size_t b = 0; b < ct_dtype_size(dtype); b++)
            whole = whole && part_at(buffer, layout, i, dtype)[-1 - (int)b] == buffer->memory[0];
    return whole;
}

/* ---- one call each: 0, or the line of what is wrong ------------------------------------------*/

static int check_all_gather(struct ct_group *group, const struct shape *shape)
{
    int world = ct_group_size(group), rank = ct_group_rank(group), line = 0;
    struct layout layout = common_layout(world, shape->count);
    size_t own = layout.counts[rank];
    struct buffer in = buffer_new(own, shape->dtype);
    struct buffer out = buffer_new(layout.total, shape->dtype);
    struct ct_data data = ct_from_to(shape->in_place ? NULL : in.data, out.data, own, shape->dtype);

    buffer_fill(shape->in_place ? part_at(&out, &layout, rank, shape->dtype) : in.data,
                shape->dtype, rank, 0, own);
    if (ct_all_gather_v(group, data, parts_of(&layout), NULL) != 0)
        line = __LINE__;
    for (int i = 0; i < world && line == 0; i++)
        if (!buffer_filled(part_at(&out, &layout, i, shape->dtype), shape->dtype, i, 0,
                           layout.counts[i]))
            line = __LINE__;
    if (line == 0 && !gaps_are_whole(&out, &layout, world, shape->dtype))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

static int check_reduce_scatter(struct ct_group *group, const struct shape *shape)
{
    int world = ct_group_size(group), rank = ct_group_rank(group), line = 0;
    struct layout layout = common_layout(world, shape->count);
    struct shape own = *shape;
    struct ct_options options = shape_options(shape, rank);
    struct buffer in = buffer_new(layout.total, shape->dtype);
    struct buffer out = buffer_new(layout.counts[rank], shape->dtype);
    char *result = shape->in_place ? part_at(&in, &layout, rank, shape->dtype) : out.data;

    own.count = layout.counts[rank];
    struct ct_data data = shape->in_place ? ct_inplace(in.data, own.count, shape->dtype)
                                          : ct_from_to(in.data, out.data, own.count, shape->dtype);
    for (int i = 0; i < world; i++)
        buffer_fill(part_at(&in, &layout, i, shape->dtype), shape->dtype, rank, layout.offsets[i],
                    layout.counts[i]);
    if (ct_reduce_scatter_v(group, data, parts_of(&layout), shape->reduce, &options) != 0)
        line = __LINE__;
    else if (!shape_reduced(&own, world, result, layout.offsets[rank]))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

static int check_all_to_all(struct ct_group *group, const struct shape *shape)
{
    int world = ct_group_size(group), rank = ct_group_rank(group), line = 0;
    struct layout sent = pair_layout(world, rank, true, shape->count);
    struct layout received = pair_layout(world, rank, false, shape->count);
    struct buffer in = buffer_new(sent.total, shape->dtype);
    struct buffer out = buffer_new(received.total, shape->dtype);
    struct ct_data data = ct_from_to(in.data, out.data, 0, shape->dtype);

    for (int i = 0; i < world; i++)
        buffer_fill(part_at(&in, &sent, i, shape->dtype), shape->dtype, rank, (size_t)i * 1000,
                    sent.counts[i]);
    if (ct_all_to_all_v(group, data, parts_of(&sent), parts_of(&received), NULL) != 0)
        line = __LINE__;
    for (int i = 0; i < world && line == 0; i++)
        if (!buffer_filled(part_at(&out, &received, i, shape->dtype), shape->dtype, i,
                           (size_t)rank * 1000, received.counts[i]))
            line = __LINE__;
    if (line == 0 && !gaps_are_whole(&out, &received, world, shape->dtype))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

/* ---- every combination -----------------------------------------------------------------------*/

static int check_one(struct ct_group *group, struct shape shape)
{
    int line = check_all_gather(group, &shape);

    line = line != 0 ? line : check_all_to_all(group, &shape);
    for (int r = 0; r < CT_REDUCE_COUNT && line == 0; r++)
        for (size_t m = 0; m < SHAPE_MODES && line == 0; m++) {
            shape.reduce = (enum ct_reduce)r;
            shape.mode = shape_modes[m];
            shape.in_place = !shape.in_place;
            if (reference_supports(shape.dtype, shape.reduce))
                line = check_reduce_scatter(group, &shape);
        }
    return line;
}

static int check_all(struct ct_group *group, struct rig *rig)
{
    static const enum ct_dtype dtypes[] = {CT_F32, CT_F16, CT_I64, CT_U8};
    int line = 0;

    (void)rig;
    for (size_t d = 0; d < CT_COUNT(dtypes); d++)
        for (size_t s = 0; s < SHAPE_COUNTS && line == 0; s++)
            line = check_one(group, (struct shape){.dtype = dtypes[d],
                                                   .count = shape_counts[s],
                                                   .in_place = (d + s) % 2 == 0});
    return line;
}

static int check_large(struct ct_group *group, struct rig *rig)
{
    struct shape shape = {.dtype = CT_I16, .count = 100001, .mode = CT_MODE_INVARIANT};
    int line = check_all_gather(group, &shape);

    (void)rig;
    line = line != 0 ? line : check_all_to_all(group, &shape);
    return line != 0 ? line : check_reduce_scatter(group, &shape);
}

ParameterizedTestParameters(uneven, results_equal_the_reference)
{
    return rig_cases();
}
ParameterizedTest(int *index, uneven, results_equal_the_reference)
{
    struct rig rig = rig_case(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, check_all), 0);
}

ParameterizedTestParameters(uneven, large_parts_stream_through_the_real_chunks)
{
    return rig_cases();
}
ParameterizedTest(int *index, uneven, large_parts_stream_through_the_real_chunks)
{
    struct rig rig = rig_case(*index);

    cr_assert_eq(rig_run(&rig, check_large), 0);
}

/* The wide algorithms, on few ranks. */
Test(uneven, rings_carry_parts_of_any_length)
{
    struct rig rig = {.backend = "tcp", .world = 5, .tuning = tiny};

    rig.tuning.tcp_direct_world = 1;
    cr_assert_eq(rig_run(&rig, check_all), 0);
}

/* ---- members that disagree -------------------------------------------------------------------*/

enum { WORLD = 3, ALL_GATHER = 0, REDUCE_SCATTER, ALL_TO_ALL, OPERATIONS };

struct dispute {
    int operation;
    atomic_int mismatches;
};

/* Rank 1 counts one element more for rank 2 than the others do. */
static int call_disputed(struct ct_group *group, int operation)
{
    static _Thread_local float in[64], out[64];
    int rank = ct_group_rank(group);
    struct layout mine = {.counts = {4, 4, 4}}, theirs = mine;
    struct ct_data data = ct_from_to(in, out, 4, CT_F32);

    lay_out(&theirs, WORLD);
    mine.counts[2] += rank == 1;
    lay_out(&mine, WORLD);
    if (operation == ALL_GATHER)
        return ct_all_gather_v(group, data, parts_of(&mine), NULL);
    if (operation == REDUCE_SCATTER)
        return ct_reduce_scatter_v(group, data, parts_of(&mine), CT_REDUCE_SUM, NULL);
    return ct_all_to_all_v(group, data, parts_of(&theirs), parts_of(&mine), NULL);
}

/* Who does not see it itself learns it from the group at the latest in the next call. */
static int dispute(struct ct_group *group, struct rig *rig)
{
    struct dispute *shared = rig->shared;
    int code = call_disputed(group, shared->operation);

    if (code == CT_EMISMATCH)
        atomic_fetch_add(&shared->mismatches, 1);
    if (code == 0)
        code = ct_barrier(group, NULL);
    return code == CT_EMISMATCH || code == CT_ECLOSED ? 0 : __LINE__;
}

ParameterizedTestParameters(uneven, counts_that_differ_are_an_error_on_every_rank)
{
    static int numbers[3 * OPERATIONS];

    for (int i = 0; i < 3 * OPERATIONS; i++)
        numbers[i] = i;
    return cr_make_param_array(int, numbers, 3 * OPERATIONS);
}
ParameterizedTest(int *index, uneven, counts_that_differ_are_an_error_on_every_rank)
{
    struct dispute shared = {.operation = *index % OPERATIONS};
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
    lay_out(&layout, WORLD);
    parts = parts_of(&layout);
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
