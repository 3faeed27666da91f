/* See reference.h. */
#include "reference.h"

#include "base/number/hash.h"

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
    uint16_t bf16 = ct_bf16_from_f32(f32), f16 = ct_f16_from_f32(f32);

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
    case CT_F16:
        memcpy(at, &f16, sizeof f16);
        break;
    case CT_BOOL: /* 0 or 2 of 0 .. 3 are true */
        bits = (bits >> 8 & 1) * (bits & 3);
        memcpy(at, &bits, 1);
        break;
    default:
        memcpy(at, &bits, ct_dtype_size(dtype));
    }
}

double reference_scale(int rank)
{
    return 0.3 + 1.7 * rank;
}

bool reference_supports(enum ct_dtype dtype, enum ct_reduce reduce)
{
    bool is_float = dtype == CT_F32 || dtype == CT_F64 || dtype == CT_BF16 || dtype == CT_F16;

    if (reduce == CT_REDUCE_AND || reduce == CT_REDUCE_OR)
        return !is_float;
    if (reduce == CT_REDUCE_AVG)
        return dtype != CT_BOOL;
    return is_float || reduce != CT_REDUCE_PREMUL_SUM;
}

/* Values in the type they are added in. */
union value {
    float f32;
    double f64;
    int64_t i64;
    int32_t i32;
    uint32_t u32;
};

static float widen_f32(enum ct_dtype dtype, const unsigned char *raw)
{
    uint16_t half;
    float value;

    memcpy(&half, raw, sizeof half);
    memcpy(&value, raw, sizeof value);
    return dtype == CT_F32 ? value : dtype == CT_BF16 ? ct_bf16_to_f32(half) : ct_f16_to_f32(half);
}

static union value widen(enum ct_dtype dtype, enum ct_reduce reduce, int rank, size_t index)
{
    double scale = reduce == CT_REDUCE_PREMUL_SUM ? reference_scale(rank) : 1.0;
    unsigned char raw[8] = {0};
    union value value = {0};
    int16_t i16;

    reference_input(dtype, rank, index, raw);
    memcpy(&value, raw, sizeof value);
    memcpy(&i16, raw, sizeof i16);
    switch (dtype) {
    case CT_F64:
        value.f64 *= scale;
        break;
    case CT_I64:
    case CT_I32:
        break;
    case CT_I16:
        value.i32 = i16;
        break;
    case CT_I8:
        value.i32 = (int8_t)raw[0];
        break;
    case CT_U8:
        value.u32 = raw[0];
        break;
    case CT_BOOL:
        value.u32 = raw[0] != 0;
        break;
    default:
        value.f32 = widen_f32(dtype, raw) * (float)scale;
    }
    return value;
}

/* Arithmetic in `wide`, so that integers wrap. */
#define JOIN(name, type, wide)                              \
    static type name(enum ct_reduce reduce, type a, type b) \
    {                                                       \
        switch (reduce) {                                   \
        case CT_REDUCE_MAX:                                 \
            return a > b ? a : b;                           \
        case CT_REDUCE_MIN:                                 \
            return a < b ? a : b;                           \
        case CT_REDUCE_PROD:                                \
            return (type)((wide)a * (wide)b);               \
        default:                                            \
            return (type)((wide)a + (wide)b);               \
        }                                                   \
    }
JOIN(join_f32, float, float)
JOIN(join_f64, double, double)
JOIN(join_i64, int64_t, uint64_t)
JOIN(join_i32, int32_t, uint32_t)
JOIN(join_u32, uint32_t, uint32_t)

static union value join(enum ct_dtype dtype, enum ct_reduce reduce, union value a, union value b)
{
    bool either = reduce == CT_REDUCE_SUM || reduce == CT_REDUCE_MAX || reduce == CT_REDUCE_OR;

    if (dtype == CT_BOOL || reduce == CT_REDUCE_AND || reduce == CT_REDUCE_OR) {
        a.i64 = either ? a.i64 | b.i64 : a.i64 & b.i64;
        return a;
    }
    switch (dtype) {
    case CT_F64:
        a.f64 = join_f64(reduce, a.f64, b.f64);
        break;
    case CT_I64:
        a.i64 = join_i64(reduce, a.i64, b.i64);
        break;
    case CT_I32:
    case CT_I16:
    case CT_I8:
        a.i32 = join_i32(reduce, a.i32, b.i32);
        break;
    case CT_U8:
        a.u32 = join_u32(reduce, a.u32, b.u32);
        break;
    default:
        a.f32 = join_f32(reduce, a.f32, b.f32);
    }
    return a;
}

/* Little-endian: the low bytes of an integer are its narrow self. */
static void narrow(enum ct_dtype dtype, int by, union value sum, void *at)
{
    uint16_t half;

    switch (dtype) {
    case CT_F64:
        sum.f64 /= by;
        break;
    case CT_I64:
        sum.i64 /= by;
        break;
    case CT_U8:
    case CT_BOOL:
        sum.u32 /= (uint32_t)by;
        break;
    case CT_BF16:
        half = ct_bf16_from_f32(sum.f32 / (float)by);
        memcpy(&sum, &half, sizeof half);
        break;
    case CT_F16:
        half = ct_f16_from_f32(sum.f32 / (float)by);
        memcpy(&sum, &half, sizeof half);
        break;
    case CT_F32:
        sum.f32 /= (float)by;
        break;
    default:
        sum.i32 /= by;
    }
    memcpy(at, &sum, ct_dtype_size(dtype));
}

void reference_reduce(enum ct_dtype dtype, enum ct_reduce reduce, bool tree, int world,
                      size_t index, void *at)
{
    union value x[REFERENCE_WORLD_MAX];

    for (int i = 0; i < world; i++)
        x[i] = widen(dtype, reduce, i, index);
    if (tree)
        for (int d = 1; d < world; d *= 2)
            for (int i = 0; i + d < world; i += 2 * d)
                x[i] = join(dtype, reduce, x[i], x[i + d]);
    else
        for (int i = 1; i < world; i++)
            x[0] = join(dtype, reduce, x[0], x[i]);
    narrow(dtype, reduce == CT_REDUCE_AVG ? world : 1, x[0], at);
}

bool reference_close(enum ct_dtype dtype, enum ct_reduce reduce, int world, size_t index,
                     const void *at)
{
    double sum = 0, product = 1, magnitude = 0, got, unit;
    unsigned char expected[8];
    float f32;

    reference_reduce(dtype, reduce, false, world, index, expected);
    if (reduce == CT_REDUCE_MAX || reduce == CT_REDUCE_MIN || (dtype != CT_F32 && dtype != CT_F64))
        return memcmp(at, expected, ct_dtype_size(dtype)) == 0;
    for (int i = 0; i < world; i++) {
        union value x = widen(dtype, reduce, i, index);
        double value = dtype == CT_F64 ? x.f64 : (double)x.f32;

        sum += value;
        product *= value;
        magnitude += fabs(value);
    }
    memcpy(&f32, at, sizeof f32);
    got = (double)f32;
    unit = 0x1p-24;
    if (dtype == CT_F64) {
        memcpy(&got, at, sizeof got);
        unit = 0x1p-52;
    }
    if (reduce == CT_REDUCE_PROD)
        return fabs(got - product) <= (world + 1) * unit * fabs(product) + 0x1p-140;
    if (reduce == CT_REDUCE_AVG)
        got *= world;
    return fabs(got - sum) <= (world + 1) * unit * magnitude;
}
