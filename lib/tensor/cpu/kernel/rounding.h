/* A float as one of the two values of bf16 beside it, chosen by 16 random bits. */
#ifndef CT_TENSOR_CPU_ROUNDING_H
#define CT_TENSOR_CPU_ROUNDING_H

#include "tensor/cpu/kernel/math_f32.h"

#include <stdbool.h>

/* `random` is from 0 to 2^16 - 1. Of the 2^16 numbers as many carry into the bits that bf16 keeps
 * as the bits that it drops say: the magnitude goes up with just that chance. Above the largest
 * finite value that is infinity. Infinities drop nothing; a NaN is made quiet. */
CT_ANYWHERE float stochastic_bf16(float x, uint32_t random)
{
    uint32_t bits = f32_to_bits(x);
    bool nan = (int32_t)(bits & 0x7fffffffu) > 0x7f800000;

    return f32_from_bits((nan ? bits | 0x400000u : bits + random) & 0xffff0000u);
}

#endif
