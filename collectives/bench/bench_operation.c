/* See bench.h: each operation as a row, its data and what has to come of them.
 *
 * Rank r's element i is a small whole number, so that every type adds up 100 of them exactly; in a
 * product it is 2 at one rank and 1 at the others. */
#include "bench.h"

#include "base/assert.h"

#include <math.h>
#include <string.h>

/* How nccl-tests counts: is a buffer cut into a part a rank? */
static const struct row {
    const char *name;
    bool reduces, rooted, place;
    bool send_parts, recv_parts;
    int shares; /* bus factor: shares * (p-1)/p; 0: 1 */
} rows[CT_BENCH_OPS] = {
    [CT_BENCH_ALL_REDUCE] = {"all_reduce", true, false, true, false, false, 2},
    [CT_BENCH_REDUCE] = {"reduce", true, true, true, false, false, 0},
    [CT_BENCH_BROADCAST] = {"broadcast", false, true, true, false, false, 0},
    [CT_BENCH_ALL_GATHER] = {"all_gather", false, false, true, false, true, 1},
    [CT_BENCH_REDUCE_SCATTER] = {"reduce_scatter", true, false, true, true, false, 1},
    [CT_BENCH_GATHER] = {"gather", false, true, true, false, true, 1},
    [CT_BENCH_SCATTER] = {"scatter", false, true, true, true, false, 1},
    [CT_BENCH_ALL_TO_ALL] = {"all_to_all", false, false, true, true, true, 1},
    [CT_BENCH_SEND_RECV] = {"send_recv", false, false, false, false, false, 0},
    [CT_BENCH_BARRIER] = {"barrier", false, false, false, false, false, 0},
};

const char *ct_bench_name(enum ct_bench_op op)
{
    return rows[op].name;
}

bool ct_bench_reduces(enum ct_bench_op op)
{
    return rows[op].reduces;
}

bool ct_bench_is_rooted(enum ct_bench_op op)
{
    return rows[op].rooted;
}

bool ct_bench_has_in_place(enum ct_bench_op op)
{
    return rows[op].place;
}

struct ct_bench_shape ct_bench_shape(enum ct_bench_op op, size_t bytes, enum ct_dtype dtype,
                                     int world)
{
    const struct row *row = &rows[op];
    size_t element = ct_dtype_size(dtype), p = (size_t)world, whole = bytes / element;

    if (op == CT_BENCH_BARRIER)
        return (struct ct_bench_shape){0};
    if (!row->send_parts && !row->recv_parts)
        return (struct ct_bench_shape){whole, whole, whole, whole * element};
    size_t part = whole / p;
    return (struct ct_bench_shape){part, row->send_parts ? part * p : part,
                                   row->recv_parts ? part * p : part, part * p * element};
}

double ct_bench_factor(enum ct_bench_op op, int world)
{
    return rows[op].shares == 0 ? 1 : rows[op].shares * (double)(world - 1) / world;
}

/* ---- the call --------------------------------------------------------------------------------*/

static int send_recv(const struct ct_bench_call *call)
{
    int world = ct_group_size(call->group), rank = ct_group_rank(call->group);
    enum ct_dtype dtype = call->options->dtype;
    struct ct_transfer list[] = {
        ct_transfer_to((rank + 1) % world, call->send, call->shape.count, dtype),
        ct_transfer_from((rank + world - 1) % world, call->recv, call->shape.count, dtype)};

    return ct_exchange(call->group, list, CT_COUNT(list), NULL);
}

int ct_bench_make(const struct ct_bench_call *call)
{
    const struct ct_bench_options *how = call->options;
    struct ct_options options = {.mode = how->mode};
    struct ct_data data = {call->send, call->recv, call->shape.count, how->dtype};
    int root = (int)how->root;
    bool is_root = ct_group_rank(call->group) == root;

    switch (call->op) {
    case CT_BENCH_ALL_REDUCE:
        return ct_all_reduce(call->group, data, how->reduce, &options);
    case CT_BENCH_REDUCE:
        return ct_reduce(call->group, data, how->reduce, root, &options);
    case CT_BENCH_BROADCAST:
        data.send = is_root ? data.send : NULL;
        return ct_broadcast(call->group, data, root, &options);
    case CT_BENCH_ALL_GATHER:
        return ct_all_gather(call->group, data, &options);
    case CT_BENCH_REDUCE_SCATTER:
        return ct_reduce_scatter(call->group, data, how->reduce, &options);
    case CT_BENCH_GATHER:
        return ct_gather(call->group, data, root, &options);
    case CT_BENCH_SCATTER:
        return ct_scatter(call->group, data, root, &options);
    case CT_BENCH_ALL_TO_ALL:
        return ct_all_to_all(call->group, data, &options);
    case CT_BENCH_SEND_RECV:
        return send_recv(call);
    default:
        return ct_barrier(call->group, &options);
    }
}

/* ---- numbers of all types --------------------------------------------------------------------*/

static void put(enum ct_dtype dtype, void *data, size_t i, double value)
{
    switch (dtype) {
    case CT_F32:
        ((float *)data)[i] = (float)value;
        break;
    case CT_F64:
        ((double *)data)[i] = value;
        break;
    case CT_BF16:
        ((uint16_t *)data)[i] = ct_bf16_from_f32((float)value);
        break;
    case CT_F16:
        ((uint16_t *)data)[i] = ct_f16_from_f32((float)value);
        break;
    case CT_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case CT_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case CT_I16:
        ((int16_t *)data)[i] = (int16_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
    }
}

/* Rank r's element i of what it gives. */
static double input(const struct ct_bench_call *call, int rank, size_t i)
{
    size_t r = (size_t)rank, world = (size_t)ct_group_size(call->group);

    if (ct_bench_reduces(call->op) && call->options->reduce == CT_REDUCE_PROD)
        return (i + r) % world == 0 ? 2 : 1;
    return (double)((i + 3 * r) & 1) + (double)((i >> 3) + r != 0);
}

/* The reduction of element i of all. */
static double reduced(const struct ct_bench_call *call, size_t i)
{
    enum ct_reduce reduce = call->options->reduce;
    int world = ct_group_size(call->group);
    double result = input(call, 0, i);

    for (int r = 1; r < world; r++) {
        double x = input(call, r, i);

        if (reduce == CT_REDUCE_MAX)
            result = fmax(result, x);
        else if (reduce == CT_REDUCE_MIN)
            result = fmin(result, x);
        else
            result = reduce == CT_REDUCE_PROD ? result * x : result + x;
    }
    if (reduce != CT_REDUCE_AVG)
        return result;
    bool is_whole = call->options->dtype >= CT_I64;
    return is_whole ? trunc(result / world) : result / world;
}

/* Element i of this rank's result. */
static double expected(const struct ct_bench_call *call, size_t i)
{
    int world = ct_group_size(call->group), rank = ct_group_rank(call->group);
    size_t count = call->shape.count, own = (size_t)rank * count;

    switch (call->op) {
    case CT_BENCH_ALL_REDUCE:
    case CT_BENCH_REDUCE:
        return reduced(call, i);
    case CT_BENCH_REDUCE_SCATTER:
        return reduced(call, own + i);
    case CT_BENCH_BROADCAST:
        return input(call, (int)call->options->root, i);
    case CT_BENCH_SCATTER:
        return input(call, (int)call->options->root, own + i);
    case CT_BENCH_ALL_TO_ALL:
        return input(call, (int)(i / count), own + i % count);
    case CT_BENCH_SEND_RECV:
        return input(call, (rank + world - 1) % world, i);
    default: /* gathers */
        return input(call, (int)(i / count), i % count);
    }
}

/* ---- in place: where input and result lie in the one buffer ----------------------------------*/

static size_t place_of(const struct ct_bench_call *call, bool result)
{
    const struct row *row = &rows[call->op];
    size_t rank = (size_t)ct_group_rank(call->group);
    bool is_root = (int)call->options->root == (int)rank;

    if (call->send != NULL || row->send_parts == row->recv_parts || (row->rooted && !is_root))
        return 0;
    return (result ? row->send_parts : row->recv_parts) ? rank * call->shape.count : 0;
}

void ct_bench_fill(const struct ct_bench_call *call)
{
    enum ct_dtype dtype = call->options->dtype;
    char *to = call->send != NULL ? call->send : call->recv;
    int rank = ct_group_rank(call->group);
    size_t at = place_of(call, false);

    if (call->send != NULL)
        memset(call->recv, 0x55, call->shape.recv_count * ct_dtype_size(dtype));
    for (size_t i = 0; i < call->shape.send_count; i++)
        put(dtype, to, at + i, input(call, rank, i));
}

size_t ct_bench_wrong(const struct ct_bench_call *call)
{
    enum ct_dtype dtype = call->options->dtype;
    size_t element = ct_dtype_size(dtype), wrong = 0, at = place_of(call, true);
    const char *result = (const char *)call->recv + at * element;
    bool here = !rows[call->op].rooted || call->op == CT_BENCH_BROADCAST ||
                call->op == CT_BENCH_SCATTER ||
                (int)call->options->root == ct_group_rank(call->group);

    for (size_t i = 0; here && i < call->shape.recv_count; i++) {
        unsigned char right[8] = {0};

        put(dtype, right, 0, expected(call, i));
        wrong += memcmp(right, result + i * element, element) != 0;
    }
    return wrong;
}
