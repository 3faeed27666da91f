/* See linear.h. */
#include "tensor/cuda/linear.h"
#include "tensor/cuda/number.cuh"

#define THREADS 256

template <class T> static __global__ void round_bias(T *to, const float *bias, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < count)
        to[i] = narrow<T>(bias[i]);
}

extern "C" void ct_linear_round_bias(void *to, const float *bias, int64_t count,
                                     enum ct_dtype dtype, struct CUstream_st *stream)
{
    unsigned blocks = (unsigned)((count + THREADS - 1) / THREADS);

    if (dtype == CT_BF16)
        CT_LAUNCH(round_bias<__nv_bfloat16>, blocks, THREADS, 0, stream, (__nv_bfloat16 *)to, bias,
                  count);
    else
        CT_LAUNCH(round_bias<__half>, blocks, THREADS, 0, stream, (__half *)to, bias, count);
}
