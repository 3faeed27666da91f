/* The natural logarithm of a double with the same bits on every machine: libm chooses other code
 * where there is a fused multiply-add. Two units of the last place from the exact value at most,
 * for x >= 1: a sum of exponentials below their maximum. */
#ifndef CT_TENSOR_CPU_LOG_H
#define CT_TENSOR_CPU_LOG_H

#include "base/number/anywhere.h"

#include <stdint.h>
#include <string.h>

/* x = 2^e m with m in [sqrt 1/2, sqrt 2); log m = 2 atanh s with s = (m - 1) / (m + 1). For finite
 * x >= 2^-1022; infinity and NaN give themselves. */
CT_ANYWHERE double log_of(double x)
{
    static const double c[] = {0.0654481458033731132, 0.0663424284032721342, 0.0769312522397009431,
                               0.0909089772118599271, 0.111111111967833043,  0.142857142853977155,
                               0.200000000000004452,  0.333333333333333332};
    uint64_t bits;
    double m, p = 0;

    if (!(x < (double)__builtin_inff()))
        return x;
    memcpy(&bits, &x, sizeof bits);
    uint64_t rest = bits - 0x3fe6a09e667f3bcdu; /* sqrt 1/2 */
    double e = (double)((int64_t)rest >> 52);

    bits -= rest & 0xfff0000000000000u;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1) / (m + 1), z = s * s;

    for (int i = 0; i < (int)(sizeof c / sizeof c[0]); i++)
        p = p * z + c[i];
    return e * 0.69314718036912381649 + (2 * s + (2 * s * z * p + e * 1.90821492927058770002e-10));
}

#endif
