/* Two independent normal floats (mean 0, variance 1) from two random words: Box and Muller's, in
 * double, with the same bits on every machine and device (see log.h). */
#ifndef CT_TENSOR_CPU_NORMAL_H
#define CT_TENSOR_CPU_NORMAL_H

#include "tensor/cpu/kernel/rotary.h"

#include <math.h>

CT_ANYWHERE void normal_pair(uint32_t word0, uint32_t word1, float ret_pair[2])
{
    double radius = sqrt(-2.0 * log_of(((double)word0 + 1.0) * 0x1p-32)), sine, cosine;

    sine_cosine(6.283185307179586476925 * ((double)word1 * 0x1p-32), &sine, &cosine);
    ret_pair[0] = (float)(radius * cosine);
    ret_pair[1] = (float)(radius * sine);
}

#endif
