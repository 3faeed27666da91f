/* Sines, cosines and powers of doubles with the same bits on every machine (see log.h): the angles
 * of rotary positions. Errors are some 1e-14 for angles up to a million, far below a float's. */
#ifndef CT_TENSOR_CPU_ROTARY_H
#define CT_TENSOR_CPU_ROTARY_H

#include "tensor/cpu/kernel/logarithm.h"

/* e^-x for 0 <= x <= 700: 2^-n e^-r with r below ln 2, by its Taylor series. */
CT_ANYWHERE double exp_minus(double x)
{
    double n = (double)(int64_t)(x * 1.44269504088896340736);
    double r = -((x - n * 0.69314718036912381649) - n * 1.90821492927058770002e-10), sum = 1;

    for (int i = 20; i > 0; i--)
        sum = 1 + sum * (r / i);
    uint64_t bits = (uint64_t)(1023 - (int64_t)n) << 52;
    double power;

    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

/* Sine and cosine of an angle >= 0: quarter turns off, then their Taylor series. */
CT_ANYWHERE void sine_cosine(double angle, double *ret_sine, double *ret_cosine)
{
    int64_t quarters = (int64_t)(angle * 0.63661977236758134308 + 0.5);
    double q = (double)quarters;
    double r = (angle - q * 1.57079632673412561417) - q * 6.07710050650619224932e-11;
    double z = r * r, sine = 1, cosine = 1;

    for (int i = 18; i > 0; i -= 2) {
        sine = 1 - sine * (z / (double)(i * (i + 1)));
        cosine = 1 - cosine * (z / (double)(i * (i - 1)));
    }
    sine *= r;
    *ret_sine = quarters % 2 == 0 ? sine : cosine;
    *ret_cosine = quarters % 2 == 0 ? cosine : sine;
    if (quarters % 4 >= 2)
        *ret_sine = -*ret_sine;
    if (quarters % 4 == 1 || quarters % 4 == 2)
        *ret_cosine = -*ret_cosine;
}

/* Cosine and sine of place * base^(-2i / (2 * half)), given log base. */
CT_ANYWHERE void rotary_angle(double log_base, int64_t place, int64_t i, int64_t half,
                              double *ret_cosine, double *ret_sine)
{
    sine_cosine((double)place * exp_minus((double)i / (double)half * log_base), ret_sine,
                ret_cosine);
}

/* Those of all i = 0 .. half - 1. */
static inline void rotary_angles(double base, int64_t place, int64_t half, double *ret_cosine,
                                 double *ret_sine)
{
    double log_base = log_of(base);

    for (int64_t i = 0; i < half; i++)
        rotary_angle(log_base, place, i, half, &ret_cosine[i], &ret_sine[i]);
}

#endif
