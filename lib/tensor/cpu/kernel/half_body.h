/* F32 from and to the 16-bit floats, element by element, for one instruction set: the same bits as
 * base/dtype.h's functions, without a branch, so that loops become vector code. The file that
 * includes this defines HALF, the name of the table that it fills. */
#include "tensor/cpu/kernel/math_f32.h"
#include "tensor/cpu/narrow.h"

static inline float bf16_wide(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

/* To nearest even on the bits; a NaN is made quiet. */
static inline uint16_t bf16_half(float value)
{
    uint32_t bits = f32_to_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    bool nan = (int32_t)(bits & 0x7fffffffu) > 0x7f800000;

    return (uint16_t)(nan ? (bits >> 16) | 0x40u : rounded);
}

/* The exponent is moved; numbers below 2^-14 are whole multiples of 2^-24. */
static inline float f16_wide(uint16_t half)
{
    int32_t rest = half & 0x7fff;
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, shifted = (uint32_t)rest << 13;
    uint32_t small = f32_to_bits((float)rest * 0x1p-24f);
    uint32_t value = rest < 0x400 ? small : shifted + 0x38000000u;

    return f32_from_bits(sign | (rest >= 0x7c00 ? shifted | 0x7f800000u : value));
}

/* To nearest even; what is below 2^-14 is shifted, and rounded, by an addition; 65520 and above
 * becomes infinite. */
static inline uint16_t f16_half(float value)
{
    uint32_t bits = f32_to_bits(value), sign = (bits >> 16) & 0x8000u;
    int32_t rest = (int32_t)(bits & 0x7fffffffu);
    uint32_t small = f32_to_bits(f32_from_bits((uint32_t)rest) + 0.5f) - 0x3f000000u;
    uint32_t moved = ((uint32_t)rest - 0x38000000u + 0xfffu + (((uint32_t)rest >> 13) & 1u)) >> 13;
    uint32_t half = rest < 0x38800000 ? small : moved;

    half = rest >= 0x477ff000 ? 0x7c00u : half;
    half = rest > 0x7f800000 ? 0x7e00u : half;
    return (uint16_t)(sign | half);
}

#define HALF_LOOP(name, to_type, from_type, f)                          \
    static void name(to_type *to, const from_type *from, int64_t count) \
    {                                                                   \
        EACH(i, count) to[i] = f(from[i]);                              \
    }
HALF_LOOP(widen_bf16, float, uint16_t, bf16_wide)
HALF_LOOP(widen_f16, float, uint16_t, f16_wide)
HALF_LOOP(narrow_bf16, uint16_t, float, bf16_half)
HALF_LOOP(narrow_f16, uint16_t, float, f16_half)

const struct ct_half_kernels HALF[CT_DTYPE_COUNT] = {
    [CT_BF16] = {widen_bf16, narrow_bf16},
    [CT_F16] = {widen_f16, narrow_f16},
};
