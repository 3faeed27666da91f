/* reduce, gather, scatter and all_to_all: every type, root and world, on every backend. */
#include "base/assert.h"
#include "buffer.h"
#include "reference.h"
#include "rig.h"
#include "shape.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

TestSuite(rooted, .timeout = 60);

/* ---- one call each: 0, or the line of what is wrong ------------------------------------------*/

/* Others than the root give no output; in place theirs is read alone. */
static int check_reduce(struct ct_group *group, const struct shape *shape, int root)
{
    int rank = ct_group_rank(group), line = 0;
    struct ct_options options = shape_options(shape, rank);
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    struct ct_data data = shape->in_place ? ct_inplace(out.data, shape->count, shape->dtype)
                                          : ct_from_to(in.data, rank == root ? out.data : NULL,
                                                       shape->count, shape->dtype);
    const char *given = shape->in_place ? out.data : in.data;

    buffer_fill(shape->in_place ? out.data : in.data, shape->dtype, rank, 0, shape->count);
    if (ct_reduce(group, data, shape->reduce, root, &options) != 0)
        line = __LINE__;
    else if (rank == root && !shape_reduced(shape, ct_group_size(group), out.data, 0))
        line = __LINE__;
    else if ((rank != root || !shape->in_place) &&
             !buffer_filled(given, shape->dtype, rank, 0, shape->count))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

static int check_gather(struct ct_group *group, const struct shape *shape, int root)
{
    size_t world = (size_t)ct_group_size(group), rank = (size_t)ct_group_rank(group);
    bool is_root = (int)rank == root;
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(world * shape->count, shape->dtype);
    char *own = shape->in_place && is_root ? out.data + rank * in.bytes : in.data;
    struct ct_data data =
        ct_from_to(in.data, is_root ? out.data : NULL, shape->count, shape->dtype);
    int line = 0;

    if (shape->in_place)
        data = ct_inplace(is_root ? out.data : in.data, shape->count, shape->dtype);
    buffer_fill(own, shape->dtype, (int)rank, 0, shape->count);
    if (ct_gather(group, data, root, NULL) != 0)
        line = __LINE__;
    for (size_t i = 0; is_root && i < world && line == 0; i++)
        if (!buffer_filled(out.data + i * in.bytes, shape->dtype, (int)i, 0, shape->count))
            line = __LINE__;
    if (line == 0 && !is_root && !buffer_filled(own, shape->dtype, (int)rank, 0, shape->count))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

static int check_scatter(struct ct_group *group, const struct shape *shape, int root)
{
    size_t world = (size_t)ct_group_size(group), rank = (size_t)ct_group_rank(group);
    bool is_root = (int)rank == root;
    struct buffer in = buffer_new(world * shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    struct ct_data data =
        ct_from_to(is_root ? in.data : NULL, out.data, shape->count, shape->dtype);
    char *result = out.data;
    int line = 0;

    if (is_root)
        buffer_fill(in.data, shape->dtype, root, 0, world * shape->count);
    if (is_root && shape->in_place) {
        data = ct_inplace(in.data, shape->count, shape->dtype);
        result = in.data + rank * out.bytes;
    }
    if (ct_scatter(group, data, root, NULL) != 0)
        line = __LINE__;
    else if (!buffer_filled(result, shape->dtype, root, rank * shape->count, shape->count))
        line = __LINE__;
    else if (is_root && !buffer_filled(in.data, shape->dtype, root, 0, world * shape->count))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

static int check_all_to_all(struct ct_group *group, const struct shape *shape)
{
    size_t world = (size_t)ct_group_size(group), rank = (size_t)ct_group_rank(group);
    size_t part = shape->count * ct_dtype_size(shape->dtype);
    struct buffer in = buffer_new(world * shape->count, shape->dtype);
    struct buffer out = buffer_new(world * shape->count, shape->dtype);
    struct ct_data data =
        ct_from_to(shape->in_place ? NULL : in.data, out.data, shape->count, shape->dtype);
    int line = 0;

    buffer_fill(shape->in_place ? out.data : in.data, shape->dtype, (int)rank, 0,
                world * shape->count);
    if (ct_all_to_all(group, data, NULL) != 0)
        line = __LINE__;
    for (size_t i = 0; i < world && line == 0; i++)
        if (!buffer_filled(out.data + i * part, shape->dtype, (int)i, rank * shape->count,
                           shape->count))
            line = __LINE__;
    if (line == 0 && !shape->in_place &&
        !buffer_filled(in.data, shape->dtype, (int)rank, 0, world * shape->count))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

/* ---- every combination -----------------------------------------------------------------------*/

static int check_moves(struct ct_group *group, const struct shape *shape, int root)
{
    int line = check_all_to_all(group, shape);

    line = line != 0 ? line : check_gather(group, shape, root);
    return line != 0 ? line : check_scatter(group, shape, root);
}

static int check_reductions(struct ct_group *group, struct shape shape)
{
    int line = 0, root = 0;

    for (int r = 0; r < CT_REDUCE_COUNT && line == 0; r++)
        for (size_t m = 0; m < SHAPE_MODES && line == 0; m++) {
            shape.reduce = (enum ct_reduce)r;
            shape.mode = shape_modes[m];
            shape.in_place = !shape.in_place;
            root = (root + 1) % ct_group_size(group);
            if (reference_supports(shape.dtype, shape.reduce))
                line = check_reduce(group, &shape, root);
        }
    return line;
}

static int check_all(struct ct_group *group, struct rig *rig)
{
    int line = 0, root = 0; /* each takes its turn, with each size */

    (void)rig;
    for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < SHAPE_COUNTS && line == 0; s++) {
            struct shape shape = {.dtype = (enum ct_dtype)dtype,
                                  .count = shape_counts[s],
                                  .in_place = ((size_t)dtype + s) % 2 == 0};

            root = (root + 1) % ct_group_size(group);
            line = check_moves(group, &shape, root);
            line = line != 0 ? line : check_reductions(group, shape);
        }
    return line;
}

static int check_large(struct ct_group *group, struct rig *rig)
{
    struct shape shape = {.dtype = CT_F32, .count = 300007, .mode = CT_MODE_INVARIANT};
    int root = ct_group_size(group) - 1, line = check_reduce(group, &shape, root);

    (void)rig;
    shape.count = 50001;
    shape.in_place = true;
    line = line != 0 ? line : check_all_to_all(group, &shape);
    line = line != 0 ? line : check_gather(group, &shape, root);
    return line != 0 ? line : check_scatter(group, &shape, root);
}

ParameterizedTestParameters(rooted, results_equal_the_reference)
{
    return rig_cases();
}
ParameterizedTest(int *index, rooted, results_equal_the_reference)
{
    struct rig rig = rig_case(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, check_all), 0);
}

ParameterizedTestParameters(rooted, large_data_streams_through_the_real_chunks)
{
    return rig_cases();
}
ParameterizedTest(int *index, rooted, large_data_streams_through_the_real_chunks)
{
    struct rig rig = rig_case(*index);

    cr_assert_eq(rig_run(&rig, check_large), 0);
}
