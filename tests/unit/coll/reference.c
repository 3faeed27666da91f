/* See reference.h. */
#include "reference.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

static uint64_t bits_of(int rank, size_t index)
{
    uint64_t key[2] = {(uint64_t)rank, index};

    return ct_hash64(key, sizeof key, 7);
}

/* In (-16, 16), with exponents from -12 to 4. */
static double number(int rank, size_t index)
{
    uint64_t bits = bits_of(rank, index);
    double mantissa = (double)(bits >> 11) * 0x1p-53;

    return ldexp((bits & 1) != 0 ? mantissa : -mantissa, (int)(bits >> 1 & 15) - 11);
}

void reference_input(enum ct_dtype dtype, int rank, size_t index, void *at)
{
    uint64_t bits = bits_of(rank, index);
    float f32 = (float)number(rank, index);
    double f64 = number(rank, index);
    uint16_t bf16 = ct_bf16_from_f32(f32);

    switch (dtype) {
    case CT_F32:
        memcpy(at, &f32, sizeof f32);
        break;
    case CT_F64:
        memcpy(at, &f64, sizeof f64);
        break;
    case CT_BF16:
        memcpy(at, &bf16, sizeof bf16);
        break;
    default:
        memcpy(at, &bits, ct_dtype_size(dtype));
    }
}

/* Values in the type they are added in. */
union value {
    float f32;
    double f64;
    int64_t i64;
    int32_t i32;
    uint32_t u32;
};

static union value widen(enum ct_dtype dtype, int rank, size_t index)
{
    unsigned char raw[8];
    union value value = {0};
    uint16_t half;

    reference_input(dtype, rank, index, raw);
    if (dtype == CT_BF16) {
        memcpy(&half, raw, sizeof half);
        value.f32 = ct_bf16_to_f32(half);
    } else if (dtype == CT_U8) {
        value.u32 = raw[0];
    } else {
        memcpy(&value, raw, ct_dtype_size(dtype));
    }
    return value;
}

static union value join(enum ct_dtype dtype, enum ct_reduce reduce, union value a, union value b)
{
    bool max = reduce == CT_REDUCE_MAX;

    switch (dtype) {
    case CT_F64:
        a.f64 = max ? (a.f64 > b.f64 ? a.f64 : b.f64) : a.f64 + b.f64;
        break;
    case CT_I64:
        a.i64 =
            max ? (a.i64 > b.i64 ? a.i64 : b.i64) : (int64_t)((uint64_t)a.i64 + (uint64_t)b.i64);
        break;
    case CT_I32:
        a.i32 =
            max ? (a.i32 > b.i32 ? a.i32 : b.i32) : (int32_t)((uint32_t)a.i32 + (uint32_t)b.i32);
        break;
    case CT_U8:
        a.u32 = max ? (a.u32 > b.u32 ? a.u32 : b.u32) : a.u32 + b.u32;
        break;
    default:
        a.f32 = max ? (a.f32 > b.f32 ? a.f32 : b.f32) : a.f32 + b.f32;
    }
    return a;
}

static void narrow(enum ct_dtype dtype, enum ct_reduce reduce, int world, union value sum, void *at)
{
    int by = reduce == CT_REDUCE_AVG ? world : 1;
    uint16_t half;
    uint8_t byte;

    switch (dtype) {
    case CT_F64:
        sum.f64 /= by;
        memcpy(at, &sum.f64, sizeof sum.f64);
        break;
    case CT_I64:
        sum.i64 /= by;
        memcpy(at, &sum.i64, sizeof sum.i64);
        break;
    case CT_I32:
        sum.i32 /= by;
        memcpy(at, &sum.i32, sizeof sum.i32);
        break;
    case CT_U8:
        byte = (uint8_t)(sum.u32 / (uint32_t)by);
        memcpy(at, &byte, sizeof byte);
        break;
    case CT_BF16:
        half = ct_bf16_from_f32(sum.f32 / (float)by);
        memcpy(at, &half, sizeof half);
        break;
    default:
        sum.f32 /= (float)by;
        memcpy(at, &sum.f32, sizeof sum.f32);
    }
}

void reference_reduce(enum ct_dtype dtype, enum ct_reduce reduce, bool tree, int world,
                      size_t index, void *at)
{
    union value x[REFERENCE_WORLD_MAX];

    for (int i = 0; i < world; i++)
        x[i] = widen(dtype, i, index);
    if (tree)
        for (int d = 1; d < world; d *= 2)
            for (int i = 0; i + d < world; i += 2 * d)
                x[i] = join(dtype, reduce, x[i], x[i + d]);
    else
        for (int i = 1; i < world; i++)
            x[0] = join(dtype, reduce, x[0], x[i]);
    narrow(dtype, reduce, world, x[0], at);
}

bool reference_close(enum ct_dtype dtype, enum ct_reduce reduce, int world, size_t index,
                     const void *at)
{
    double exact = 0, magnitude = 0, got, unit;
    unsigned char expected[8];
    float f32;

    reference_reduce(dtype, reduce, false, world, index, expected);
    if (reduce == CT_REDUCE_MAX || (dtype != CT_F32 && dtype != CT_F64))
        return memcmp(at, expected, ct_dtype_size(dtype)) == 0;
    for (int i = 0; i < world; i++) {
        union value x = widen(dtype, i, index);
        double value = dtype == CT_F64 ? x.f64 : (double)x.f32;

        exact += value;
        magnitude += fabs(value);
    }
    memcpy(&f32, at, sizeof f32);
    got = (double)f32;
    unit = 0x1p-24;
    if (dtype == CT_F64) {
        memcpy(&got, at, sizeof got);
        unit = 0x1p-52;
    }
    if (reduce == CT_REDUCE_AVG)
        got *= world;
    return fabs(got - exact) <= (world + 1) * unit * magnitude;
}
