/* Every operation, type, reduction and mode, on every backend and world, against the reference.
 *
 * Sizes are around the tiny chunks, so that a call takes several of them; one test uses the real
 * sizes. Buffers are misaligned by an element and fenced by canaries. */
#include "base/assert.h"
#include "base/hash.h"
#include "buffer.h"
#include "reference.h"
#include "rig.h"
#include "shape.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

TestSuite(conformance, .timeout = 60);

/* ---- one call each: 0, or the line of what is wrong ------------------------------------------*/

/* All ranks hold the same bytes: everyone's hash, gathered. */
static int same_everywhere(struct ct_group *group, const void *data, size_t bytes)
{
    int64_t all[REFERENCE_WORLD_MAX] = {0}, mine = (int64_t)ct_hash64(data, bytes, 0);

    if (ct_all_gather(group, ct_from_to(&mine, all, 1, CT_I64), NULL) != 0)
        return __LINE__;
    for (int i = 0; i < ct_group_size(group); i++)
        if (all[i] != mine)
            return __LINE__;
    return 0;
}

static int check_all_reduce(struct ct_group *group, const struct shape *shape)
{
    struct ct_options options = shape_options(shape, ct_group_rank(group));
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    int rank = ct_group_rank(group);
    int line = 0;

    buffer_fill(shape->in_place ? out.data : in.data, shape->dtype, rank, 0, shape->count);
    if (ct_all_reduce(
            group,
            ct_from_to(shape->in_place ? NULL : in.data, out.data, shape->count, shape->dtype),
            shape->reduce, &options) != 0)
        line = __LINE__;
    else if (!shape->in_place && !buffer_filled(in.data, shape->dtype, rank, 0, shape->count))
        line = __LINE__;
    else if (!shape_reduced(shape, ct_group_size(group), out.data, 0))
        line = __LINE__;
    else if (shape->mode == CT_MODE_FAST)
        line = same_everywhere(group, out.data, out.bytes);
    return buffers_free(&in, &out, line);
}

static int check_reduce_scatter(struct ct_group *group, const struct shape *shape)
{
    struct ct_options options = shape_options(shape, ct_group_rank(group));
    size_t world = (size_t)ct_group_size(group), rank = (size_t)ct_group_rank(group);
    struct buffer in = buffer_new(world * shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    char *result = shape->in_place ? in.data + rank * out.bytes : out.data;
    int line = 0;

    buffer_fill(in.data, shape->dtype, (int)rank, 0, world * shape->count);
    struct ct_data data = shape->in_place
                              ? ct_inplace(in.data, shape->count, shape->dtype)
                              : ct_from_to(in.data, out.data, shape->count, shape->dtype);
    if (ct_reduce_scatter(group, data, shape->reduce, &options) != 0)
        line = __LINE__;
    else if (!shape_reduced(shape, (int)world, result, rank * shape->count))
        line = __LINE__;
    else if (!shape->in_place &&
             !buffer_filled(in.data, shape->dtype, (int)rank, 0, world * shape->count))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

static int check_all_gather(struct ct_group *group, const struct shape *shape)
{
    size_t world = (size_t)ct_group_size(group), rank = (size_t)ct_group_rank(group);
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(world * shape->count, shape->dtype);
    int line = 0;

    buffer_fill(shape->in_place ? out.data + rank * in.bytes : in.data, shape->dtype, (int)rank, 0,
                shape->count);
    if (ct_all_gather(
            group,
            ct_from_to(shape->in_place ? NULL : in.data, out.data, shape->count, shape->dtype),
            NULL) != 0)
        line = __LINE__;
    for (size_t i = 0; i < world && line == 0; i++)
        if (!buffer_filled(out.data + i * in.bytes, shape->dtype, (int)i, 0, shape->count))
            line = __LINE__;
    return buffers_free(&in, &out, line);
}

static int check_broadcast(struct ct_group *group, const struct shape *shape, int root)
{
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    bool is_root = ct_group_rank(group) == root;
    int line = 0;

    if (is_root)
        buffer_fill(shape->in_place ? out.data : in.data, shape->dtype, root, 0, shape->count);
    if (ct_broadcast(group,
                     ct_from_to(is_root && !shape->in_place ? in.data : NULL, out.data,
                                shape->count, shape->dtype),
                     root, NULL) != 0)
        line = __LINE__;
    else if (!buffer_filled(out.data, shape->dtype, root, 0, shape->count))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

/* Everyone to the right, by handles, so that it works in a ring. */
static int check_send_recv(struct ct_group *group, const struct shape *shape)
{
    int world = ct_group_size(group), rank = ct_group_rank(group);
    int right = (rank + 1) % world, left = (rank + world - 1) % world;
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    struct ct_data from = ct_from_to(in.data, NULL, shape->count, shape->dtype);
    struct ct_data to = ct_from_to(NULL, out.data, shape->count, shape->dtype);
    struct ct_request *sent, *received;
    int line = 0;

    buffer_fill(in.data, shape->dtype, rank, 0, shape->count);
    if (ct_send_start(group, from, right, NULL, &sent) != 0 ||
        ct_recv_start(group, to, left, NULL, &received) != 0 || ct_wait(received) != 0 ||
        ct_wait(sent) != 0)
        line = __LINE__;
    else if (!buffer_filled(out.data, shape->dtype, left, 0, shape->count))
        line = __LINE__;
    return buffers_free(&in, &out, line);
}

/* ---- every combination -----------------------------------------------------------------------*/

/* Every other combination is in place, another half for each type and size. */
static int check_reductions(struct ct_group *group, struct shape shape)
{
    int line = 0;

    for (int r = 0; r < CT_REDUCE_COUNT && line == 0; r++)
        for (size_t m = 0; m < SHAPE_MODES && line == 0; m++) {
            shape.reduce = (enum ct_reduce)r;
            shape.mode = shape_modes[m];
            if (!reference_supports(shape.dtype, shape.reduce))
                continue;
            shape.in_place = !shape.in_place;
            line = check_all_reduce(group, &shape);
            line = line != 0 ? line : check_reduce_scatter(group, &shape);
        }
    return line;
}

static int check_reductions_of_all_types(struct ct_group *group, struct rig *rig)
{
    int line = 0;

    (void)rig;
    for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < SHAPE_COUNTS && line == 0; s++) {
            struct shape shape = {.dtype = (enum ct_dtype)dtype,
                                  .count = shape_counts[s],
                                  .in_place = ((size_t)dtype + s) % 2 == 0};

            line = check_reductions(group, shape);
        }
    return line;
}

static int check_moves(struct ct_group *group, const struct shape *shape)
{
    int line = check_all_gather(group, shape);

    for (int root = 0; root < ct_group_size(group) && line == 0; root++)
        line = check_broadcast(group, shape, root);
    if (line == 0 && ct_group_size(group) > 1)
        line = check_send_recv(group, shape);
    if (line == 0 && ct_barrier(group, NULL) != 0)
        line = __LINE__;
    return line;
}

static int check_moves_of_all_types(struct ct_group *group, struct rig *rig)
{
    int line = 0;

    (void)rig;
    for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < SHAPE_COUNTS && line == 0; s++) {
            struct shape shape = {.dtype = (enum ct_dtype)dtype,
                                  .count = shape_counts[s],
                                  .in_place = ((size_t)dtype + s) % 2 == 0};

            line = check_moves(group, &shape);
        }
    return line;
}

static int check_large(struct ct_group *group, struct rig *rig)
{
    struct shape shape = {.dtype = CT_F32, .count = 200007, .mode = CT_MODE_REPRODUCIBLE};
    int line = check_all_reduce(group, &shape);

    (void)rig;
    shape.dtype = CT_BF16;
    shape.mode = CT_MODE_INVARIANT;
    line = line != 0 ? line : check_all_reduce(group, &shape);
    shape.count /= (size_t)ct_group_size(group);
    line = line != 0 ? line : check_reduce_scatter(group, &shape);
    return line != 0 ? line : check_moves(group, &shape);
}

ParameterizedTestParameters(conformance, reductions_equal_the_reference)
{
    return rig_cases();
}
ParameterizedTest(int *index, conformance, reductions_equal_the_reference)
{
    struct rig rig = rig_case(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, check_reductions_of_all_types), 0);
}

ParameterizedTestParameters(conformance, moves_equal_the_reference)
{
    return rig_cases();
}
ParameterizedTest(int *index, conformance, moves_equal_the_reference)
{
    struct rig rig = rig_case(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, check_moves_of_all_types), 0);
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
    cr_assert_eq(rig_run(&rig, check_reductions_of_all_types), 0);
    cr_assert_eq(rig_run(&rig, check_moves_of_all_types), 0);
}
