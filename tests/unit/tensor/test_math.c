/* The vector functions beside libm: the errors that the README of lib/tensor states. */
#include "base/number/rng.h"
#include "tensor/cpu/kernel/logarithm.h"
#include "tensor/cpu/kernel/math_f32.h"
#include "tensor/cpu/kernel/normal.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(math, .timeout = 60);

enum { STRIDE = 1009 }; /* every 1009th float: each power of two, some 8,000 of its values */

static float exp_at(float x)
{
    return exp_f32(x);
}

static float tanh_at(float x)
{
    return tanh_f32(x);
}

static float erf_at(float x)
{
    return erf_f32(x);
}

/* The worst error in [low, high] in units of the last place of the exact value. */
static double worst_ulp(float (*f)(float), double (*exact)(double), float low, float high)
{
    double worst = 0;

    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += STRIDE) {
        float x = f32_from_bits((uint32_t)bits);

        if (!(x >= low && x <= high) || x == 0)
            continue;
        double want = exact((double)x), unit = ldexp(1, ilogb(want) - 23);

        if (fabs(want) >= 0x1p-126)
            worst = fmax(worst, fabs((double)f(x) - want) / unit);
    }
    return worst;
}

Test(math, errors_stay_below_one_and_a_half_units)
{
    cr_assert_leq(worst_ulp(exp_at, exp, -86.9f, 88.72f), 1.5);
    cr_assert_leq(worst_ulp(tanh_at, tanh, -20, 20), 1.5);
    cr_assert_leq(worst_ulp(erf_at, erf, -6, 6), 1.5);
}

Test(math, exp_goes_to_zero_and_infinity)
{
    cr_assert_eq(exp_at(0), 1);
    cr_assert_eq(exp_at(-88), 0);
    cr_assert_eq(exp_at(-INFINITY), 0);
    cr_assert_eq(exp_at(89), INFINITY);
    cr_assert_eq(exp_at(INFINITY), INFINITY);
    cr_assert(exp_at(88.72f) < INFINITY);
    cr_assert(exp_at(-86.9f) > 0);
    cr_assert(isnan(exp_at(NAN)));
}

Test(math, tanh_and_erf_are_odd_and_end_at_one)
{
    for (float x = 0.01f; x < 30; x *= 1.3f) {
        cr_assert_eq(tanh_at(-x), -tanh_at(x));
        cr_assert_eq(erf_at(-x), -erf_at(x));
        cr_assert_leq(tanh_at(x), 1);
        cr_assert_leq(erf_at(x), 1);
    }
    cr_assert_eq(tanh_at(INFINITY), 1);
    cr_assert_eq(erf_at(INFINITY), 1);
    cr_assert_eq(tanh_at(0), 0);
    cr_assert(isnan(tanh_at(NAN)) && isnan(erf_at(NAN)));
}

Test(math, log_is_two_units_from_exact_at_most)
{
    for (double above = 1e-9; above < 1e9; above *= 1.0003) {
        long double want = log1pl((long double)(1 + above) - 1),
                    unit = ldexpl(1, ilogbl(want) - 52);

        cr_assert_leq(fabsl((long double)log_of(1 + above) - want), 2 * unit, "log(1 + %g)", above);
    }
    cr_assert_eq(log_of(1), 0);
    cr_assert_eq(log_of(INFINITY), INFINITY);
    cr_assert(isnan(log_of(NAN)));
}

/* As far from the C library's as rounding to float reaches, of which there is none in most. */
static int other_than_libm(uint32_t word0, uint32_t word1)
{
    const double two_pi = 6.283185307179586476925;
    double radius = sqrt(-2.0 * log(((double)word0 + 1.0) * 0x1p-32));
    double angle = two_pi * ((double)word1 * 0x1p-32);
    double want[2] = {radius * cos(angle), radius * sin(angle)};
    float pair[2];
    int others = 0;

    normal_pair(word0, word1, pair);
    for (int i = 0; i < 2; i++) {
        cr_assert_leq(fabs((double)pair[i] - want[i]), 0x1.00001p-24 * fabs(want[i]) + 1e-16,
                      "%08x %08x", word0, word1);
        others += pair[i] != (float)want[i];
    }
    return others;
}

Test(math, normal_pairs_are_the_formulas)
{
    const uint32_t edges[] = {0,           1,           2,           0x40000000u, 0x80000000u,
                              0xb504f333u, 0xc0000000u, 0xfffffffeu, 0xffffffffu};
    int others = 0;

    for (uint32_t i = 0; i < 200000; i++) {
        uint32_t words[4];

        ct_philox(7, (const uint32_t[4]){i, 0, 0, 0}, words);
        others += other_than_libm(words[0], words[1]);
    }
    cr_assert_leq(others, 2);
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        for (size_t j = 0; j < sizeof edges / sizeof edges[0]; j++)
            other_than_libm(edges[i], edges[j]);
}

Test(math, normal_pairs_have_mean_zero_and_variance_one)
{
    enum { PAIRS = 50000 };
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < PAIRS; i++) {
        uint32_t words[4];
        float pair[2];

        ct_philox(7, (const uint32_t[4]){i, 0, 0, 0}, words);
        normal_pair(words[0], words[1], pair);
        sum += (double)pair[0] + (double)pair[1];
        squares += (double)pair[0] * (double)pair[0] + (double)pair[1] * (double)pair[1];
    }
    cr_assert_lt(fabs(sum / (2 * PAIRS)), 0.02);
    cr_assert_lt(fabs(squares / (2 * PAIRS) - 1), 0.02);
}
