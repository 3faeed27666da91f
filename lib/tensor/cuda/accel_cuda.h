/* The GPUs as collectives see them (base/accel.h). */
#ifndef CT_TENSOR_CUDA_ACCEL_CUDA_H
#define CT_TENSOR_CUDA_ACCEL_CUDA_H

#include "base/accel.h"

/* Return the table of GPU `number` of those visible to this process; it lives as long as the
 * process. NULL when there is no such GPU, or above the limit. */
const struct ct_accel *ct_cuda_accel(int number);

#endif
