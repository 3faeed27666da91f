/* How a .cu file starts its kernels.
 *
 *     __global__ void relu(float *y, const float *x, int64_t n);
 *     CT_LAUNCH(relu, blocks, threads, shared_bytes, queue->stream, y, x, n);
 *
 * A kernel's name with commas stands in parentheses: CT_LAUNCH((relu<float, 4>), ...). With
 * CT_HOSTCUDA the same source is compiled for the host, where tests run its grid block by block
 * (tests/lib/hostcuda). */
#ifndef CT_TENSOR_CUDA_LAUNCH_CUH
#define CT_TENSOR_CUDA_LAUNCH_CUH

#include "tensor/cuda/cuda.h"

#ifdef CT_HOSTCUDA
#include "hostcuda.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CT_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

/* What a kernel calls its launch's shared_bytes. */
#define CT_SHARED_BYTES(name) extern __shared__ __align__(1024) unsigned char name[]
#endif

#endif
