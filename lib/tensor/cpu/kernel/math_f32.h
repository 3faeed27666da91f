/* exp, tanh and erf for float, as straight-line code that a compiler turns into vector code.
 *
 * They use +, -, *, / and bit operations only (no fused multiply-add), so that every instruction
 * set and every lane gives the same bits. Polynomials are Chebyshev fits; the errors, measured
 * against libm in double over every float that matters, are in the README and held by a test. */
#ifndef CT_TENSOR_CPU_MATH_F32_H
#define CT_TENSOR_CPU_MATH_F32_H

#include "base/number/anywhere.h"

#include <stdint.h>
#include <string.h>

CT_ANYWHERE float f32_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

CT_ANYWHERE uint32_t f32_to_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

CT_ANYWHERE float abs_f32(float x)
{
    return f32_from_bits(f32_to_bits(x) & 0x7fffffffu);
}

/* The magnitude of `x` with the sign of `sign`. */
CT_ANYWHERE float copysign_f32(float x, float sign)
{
    return f32_from_bits((f32_to_bits(x) & 0x7fffffffu) | (f32_to_bits(sign) & 0x80000000u));
}

/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer
 * and leaves n in the low bits; ln 2 is split so that n * high part is exact. Results below 2^-125
 * are 0, those above the largest float infinity. */
CT_ANYWHERE float exp_f32(float x)
{
    const float low = -86.98f, high = 88.72283f, magic = 0x1.8p23f;
    float c = x < low ? low : x;
    c = c > high ? high : c;
    float shifted = c * 1.44269504f + magic;
    float n = shifted - magic;
    float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.392620336e-3f;

    p = p * r + 8.363194882e-3f;
    p = p * r + 4.166655450e-2f;
    p = p * r + 1.666657689e-1f;
    p = p * r + 0.5f;
    p = (p * r) * r + r;
    /* 2^n as 2^(n-1) * 2: n = 128 has no float of its own. */
    float power = f32_from_bits((f32_to_bits(shifted) << 23) + 0x3f000000u);
    float y = (p * power + power) * 2.0f;

    y = x < low ? 0.0f : y;
    return x > high ? f32_from_bits(0x7f800000u) : y;
}

/* x P(x^2) near 0, else 1 - 2 / (e^2|x| + 1) with the sign of x. */
CT_ANYWHERE float tanh_f32(float x)
{
    float a = abs_f32(x), z = x * x;
    float p = -6.045165097e-3f;

    p = p * z + 2.096132911e-2f;
    p = p * z - 5.384326318e-2f;
    p = p * z + 1.333271885e-1f;
    p = p * z - 3.333332843e-1f;
    float near = (p * z) * x + x;
    float far = copysign_f32(1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f), x);

    return a < 0.625f ? near : far;
}

/* x P(x^2) near 0, else 1 - e^-Q(|x|) with the sign of x; 1 beyond 4. */
CT_ANYWHERE float erf_f32(float x)
{
    float a = abs_f32(x), z = x * x;
    float p = -6.102687037e-4f;

    p = p * z + 5.014484151e-3f;
    p = p * z - 2.678071913e-2f;
    p = p * z + 1.128219409e-1f;
    p = p * z - 3.761252880e-1f;
    p = p * z + 1.283791550e-1f; /* 2 / sqrt(pi) - 1 */
    float near = p * x + x;
    float b = a > 4.0f ? 4.0f : a;
    float q = -1.641625185e-6f;

    q = q * b + 4.613062837e-5f;
    q = q * b - 5.972599488e-4f;
    q = q * b + 4.760857985e-3f;
    q = q * b - 2.642184455e-2f;
    q = q * b + 1.100754600e-1f;
    q = q * b + 6.318381263e-1f;
    q = q * b + 1.130221615f;
    q = q * b - 3.159178698e-4f;
    float far = copysign_f32(1.0f - exp_f32(-q), x);

    return a < 0.9f ? near : far;
}

#endif
