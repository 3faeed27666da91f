/* Every operation, type, reduction and mode, on every backend and world, against the reference.
 *
 * Sizes are around the tiny chunks, so that a call takes several of them; one test uses the real
 * sizes. Buffers are misaligned by an element and fenced by canaries. */
#include "base/assert.h"
#include "base/hash.h"
#include "reference.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

TestSuite(conformance, .timeout = 60);

enum { FENCE = 64, FENCE_BYTE = 0xa5, CASES = 3 * 6 };

static const size_t sizes[] = {0, 1, 7, 131};
static const enum ct_reduce_mode modes[] = {CT_MODE_FAST, CT_MODE_REPRODUCIBLE, CT_MODE_INVARIANT};

/* ---- buffers ---------------------------------------------------------------------------------*/

struct buffer {
    char *memory, *data;
    size_t bytes;
};

static struct buffer buffer_new(size_t elements, enum ct_dtype dtype)
{
    struct buffer buffer = {.bytes = elements * ct_dtype_size(dtype)};
    size_t room = buffer.bytes + 2 * FENCE + 8;

    buffer.memory = malloc(room);
    CT_ASSERT(buffer.memory != NULL);
    memset(buffer.memory, FENCE_BYTE, room);
    buffer.data = buffer.memory + FENCE + ct_dtype_size(dtype);
    return buffer;
}

/* Frees it; false when a byte around the data has changed. */
static bool buffer_free(struct buffer *buffer)
{
    bool whole = true;

    for (char *at = buffer->memory; at < buffer->data; at++)
        whole = whole && (unsigned char)*at == FENCE_BYTE;
    for (char *at = buffer->data + buffer->bytes; at < buffer->data + buffer->bytes + FENCE - 8;
         at++)
        whole = whole && (unsigned char)*at == FENCE_BYTE;
    free(buffer->memory);
    return whole;
}

/* The line that was found, or that of a trodden fence. */
static int free_both(struct buffer *in, struct buffer *out, int line)
{
    bool in_whole = buffer_free(in), out_whole = buffer_free(out);

    return line != 0 || (in_whole && out_whole) ? line : __LINE__;
}

/* `count` elements of `rank`'s input from element `from` on. */
static void fill(char *data, enum ct_dtype dtype, int rank, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reference_input(dtype, rank, from + i, data + i * ct_dtype_size(dtype));
}

/* Of long data not every element is looked at: the reference is slow. */
static size_t stride(size_t count)
{
    return count > 10000 ? 13 : 1;
}

static bool filled(const char *data, enum ct_dtype dtype, int rank, size_t from, size_t count)
{
    unsigned char expected[8];

    for (size_t i = 0; i < count; i += stride(count)) {
        reference_input(dtype, rank, from + i, expected);
        if (memcmp(expected, data + i * ct_dtype_size(dtype), ct_dtype_size(dtype)) != 0)
            return false;
    }
    return true;
}

/* ---- one call each: 0, or the line of what is wrong ------------------------------------------*/

struct shape {
    enum ct_dtype dtype;
    enum ct_reduce reduce;
    enum ct_reduce_mode mode;
    size_t count;
    bool in_place;
};

static struct ct_options options_of(const struct ct_group *group, const struct shape *shape)
{
    return (struct ct_options){.mode = shape->mode, .scale = reference_scale(ct_group_rank(group))};
}

static bool reduced(const struct ct_group *group, const struct shape *shape, const char *data,
                    size_t from)
{
    int world = ct_group_size(group);
    size_t size = ct_dtype_size(shape->dtype);
    unsigned char expected[8];

    for (size_t i = 0; i < shape->count; i += stride(shape->count)) {
        const char *at = data + i * size;

        reference_reduce(shape->dtype, shape->reduce, shape->mode == CT_MODE_INVARIANT, world,
                         from + i, expected);
        if (shape->mode == CT_MODE_FAST
                ? !reference_close(shape->dtype, shape->reduce, world, from + i, at)
                : memcmp(expected, at, size) != 0)
            return false;
    }
    return true;
}

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
    struct ct_options options = options_of(group, shape);
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    int rank = ct_group_rank(group);
    int line = 0;

    fill(shape->in_place ? out.data : in.data, shape->dtype, rank, 0, shape->count);
    if (ct_all_reduce(
            group,
            ct_from_to(shape->in_place ? NULL : in.data, out.data, shape->count, shape->dtype),
            shape->reduce, &options) != 0)
        line = __LINE__;
    else if (!shape->in_place && !filled(in.data, shape->dtype, rank, 0, shape->count))
        line = __LINE__;
    else if (!reduced(group, shape, out.data, 0))
        line = __LINE__;
    else if (shape->mode == CT_MODE_FAST)
        line = same_everywhere(group, out.data, out.bytes);
    return free_both(&in, &out, line);
}

static int check_reduce_scatter(struct ct_group *group, const struct shape *shape)
{
    struct ct_options options = options_of(group, shape);
    size_t world = (size_t)ct_group_size(group), rank = (size_t)ct_group_rank(group);
    struct buffer in = buffer_new(world * shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    char *result = shape->in_place ? in.data + rank * out.bytes : out.data;
    int line = 0;

    fill(in.data, shape->dtype, (int)rank, 0, world * shape->count);
    struct ct_data data = shape->in_place
                              ? ct_inplace(in.data, shape->count, shape->dtype)
                              : ct_from_to(in.data, out.data, shape->count, shape->dtype);
    if (ct_reduce_scatter(group, data, shape->reduce, &options) != 0)
        line = __LINE__;
    else if (!reduced(group, shape, result, rank * shape->count))
        line = __LINE__;
    else if (!shape->in_place && !filled(in.data, shape->dtype, (int)rank, 0, world * shape->count))
        line = __LINE__;
    return free_both(&in, &out, line);
}

static int check_all_gather(struct ct_group *group, const struct shape *shape)
{
    size_t world = (size_t)ct_group_size(group), rank = (size_t)ct_group_rank(group);
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(world * shape->count, shape->dtype);
    int line = 0;

    fill(shape->in_place ? out.data + rank * in.bytes : in.data, shape->dtype, (int)rank, 0,
         shape->count);
    if (ct_all_gather(
            group,
            ct_from_to(shape->in_place ? NULL : in.data, out.data, shape->count, shape->dtype),
            NULL) != 0)
        line = __LINE__;
    for (size_t i = 0; i < world && line == 0; i++)
        if (!filled(out.data + i * in.bytes, shape->dtype, (int)i, 0, shape->count))
            line = __LINE__;
    return free_both(&in, &out, line);
}

static int check_broadcast(struct ct_group *group, const struct shape *shape, int root)
{
    struct buffer in = buffer_new(shape->count, shape->dtype);
    struct buffer out = buffer_new(shape->count, shape->dtype);
    bool is_root = ct_group_rank(group) == root;
    int line = 0;

    if (is_root)
        fill(shape->in_place ? out.data : in.data, shape->dtype, root, 0, shape->count);
    if (ct_broadcast(group,
                     ct_from_to(is_root && !shape->in_place ? in.data : NULL, out.data,
                                shape->count, shape->dtype),
                     root, NULL) != 0)
        line = __LINE__;
    else if (!filled(out.data, shape->dtype, root, 0, shape->count))
        line = __LINE__;
    return free_both(&in, &out, line);
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

    fill(in.data, shape->dtype, rank, 0, shape->count);
    if (ct_send_start(group, from, right, NULL, &sent) != 0 ||
        ct_recv_start(group, to, left, NULL, &received) != 0 || ct_wait(received) != 0 ||
        ct_wait(sent) != 0)
        line = __LINE__;
    else if (!filled(out.data, shape->dtype, left, 0, shape->count))
        line = __LINE__;
    return free_both(&in, &out, line);
}

/* ---- every combination -----------------------------------------------------------------------*/

/* Every other combination is in place, another half for each type and size. */
static int check_reductions(struct ct_group *group, struct shape shape)
{
    int line = 0;

    for (int r = 0; r < CT_REDUCE_COUNT && line == 0; r++)
        for (size_t m = 0; m < CT_COUNT(modes) && line == 0; m++) {
            shape.reduce = (enum ct_reduce)r;
            shape.mode = modes[m];
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
        for (size_t s = 0; s < CT_COUNT(sizes) && line == 0; s++) {
            struct shape shape = {.dtype = (enum ct_dtype)dtype,
                                  .count = sizes[s],
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
        for (size_t s = 0; s < CT_COUNT(sizes) && line == 0; s++) {
            struct shape shape = {.dtype = (enum ct_dtype)dtype,
                                  .count = sizes[s],
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

static int backend_and_world[CASES];

static struct criterion_test_params all_cases(void)
{
    for (int i = 0; i < CASES; i++)
        backend_and_world[i] = i;
    return cr_make_param_array(int, backend_and_world, CASES);
}

static struct rig rig_of(int index)
{
    return (struct rig){.backend = rig_backends[index / 6], .world = rig_worlds[index % 6]};
}

ParameterizedTestParameters(conformance, reductions_equal_the_reference)
{
    return all_cases();
}
ParameterizedTest(int *index, conformance, reductions_equal_the_reference)
{
    struct rig rig = rig_of(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, check_reductions_of_all_types), 0);
}

ParameterizedTestParameters(conformance, moves_equal_the_reference)
{
    return all_cases();
}
ParameterizedTest(int *index, conformance, moves_equal_the_reference)
{
    struct rig rig = rig_of(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, check_moves_of_all_types), 0);
}

ParameterizedTestParameters(conformance, large_data_streams_through_the_real_chunks)
{
    return all_cases();
}
ParameterizedTest(int *index, conformance, large_data_streams_through_the_real_chunks)
{
    struct rig rig = rig_of(*index);

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
