/* See dtype.h. Half-precision conversions work on the bits, so that every machine agrees. */
#include "base/number/dtype.h"

#include "base/assert.h"

#include <string.h>
#include <strings.h>

static const struct {
    size_t size;
    const char *name;
} dtypes[CT_DTYPE_COUNT] = {
#define CT_DTYPE(name, size, text, is_float) {size, text},
#include "base/number/dtype.def"
#undef CT_DTYPE
};

size_t ct_dtype_size(enum ct_dtype dtype)
{
    CT_ASSERT(dtype < CT_DTYPE_COUNT);
    return dtypes[dtype].size;
}

const char *ct_dtype_name(enum ct_dtype dtype)
{
    CT_ASSERT(dtype < CT_DTYPE_COUNT);
    return dtypes[dtype].name;
}

int ct_dtype_find(const char *name)
{
    for (int i = 0; i < CT_DTYPE_COUNT; i++)
        if (strcasecmp(dtypes[i].name, name) == 0)
            return i;
    return -1;
}

static uint32_t f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float f32_value(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

float ct_bf16_to_f32(uint16_t bits)
{
    return f32_value((uint32_t)bits << 16);
}

uint16_t ct_bf16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u) /* NaN: keep it quiet, keep it a NaN */
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float ct_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;

    if (exponent == 0x1f)
        return f32_value(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0)
        return f32_value(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    float magnitude = (float)mantissa * 0x1p-24f; /* zero or subnormal: exact in f32 */
    return sign != 0 ? -magnitude : magnitude;
}

uint16_t ct_f16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;

    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (rest >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) { /* below 2^-14: the addition shifts and rounds to even */
        float shifted = f32_value(rest) + 0.5f;
        return (uint16_t)(sign | (f32_bits(shifted) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13));
}
