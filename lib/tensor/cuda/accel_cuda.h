/* The GPUs as collectives see them (base/accel.h). */
#ifndef CT_TENSOR_CUDA_ACCEL_CUDA_H
#define CT_TENSOR_CUDA_ACCEL_CUDA_H

#include "base/accel.h"

/* GPU `number` of those that this process sees, one table each, which lasts as long as the process.
 * NULL when there is no such GPU, or more than can be. */
const struct ct_accel *ct_cuda_accel(int number);

#endif
