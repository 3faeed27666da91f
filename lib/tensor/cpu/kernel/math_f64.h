/* The functions of math_f32.h for double, from libm: the f64 kernels are references for checks. */
#ifndef CT_TENSOR_CPU_MATH_F64_H
#define CT_TENSOR_CPU_MATH_F64_H

#include <math.h>

static inline double exp_f64(double x)
{
    return exp(x);
}

static inline double tanh_f64(double x)
{
    return tanh(x);
}

static inline double erf_f64(double x)
{
    return erf(x);
}

#endif
