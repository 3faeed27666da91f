/* A linear layer's bias, rounded to the type of its result: for epilogues that want it so. */
#ifndef CT_TENSOR_CUDA_LINEAR_H
#define CT_TENSOR_CUDA_LINEAR_H

#include "tensor/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of `count` elements of 16 bits, up to a multiple of 256. */
static inline size_t ct_linear_bias_bytes(int64_t count)
{
    return ((size_t)count * 2 + 255) / 256 * 256;
}

/* Convert to[i] = bias[i] to `dtype`, BF16 or F16. */
void ct_linear_round_bias(void *to, const float *bias, int64_t count, enum ct_dtype dtype,
                          struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
