/* Causal attention on the GPU, as op.def has it.
 *
 *     ct_cuda_heads_flash(...)          heads of 64 or 128, 16 bits, aligned: tensor cores
 *         flash_64.cu, flash_128.cu     by flash_body.cuh (Dao, FlashAttention-2, 2307.08691)
 *         hopper_64.cu, hopper_128.cu   the same, multiplied by warpgroups
 *     else attention.cu                 any head: a warp a query, or a key
 *
 * Each element of the result has one writer that adds in one order, so the bits repeat. The price
 * is that the backward computes scores twice: once for the gradients of keys and values, once for
 * those of queries. */
#ifndef CT_TENSOR_CUDA_ATTENTION_H
#define CT_TENSOR_CUDA_ATTENTION_H

#include "tensor/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* qkv and dqkv are [sequences * sequence, 3 * heads * size], y and dy a third as wide; lse and
 * delta are [rows, heads]. What an op does not have is NULL. */
struct ct_cuda_heads {
    const void *qkv, *dy;
    void *y, *dqkv;
    float *lse;
    float *delta; /* in the workspace: each head's sum of dy y */
    int64_t sequences;
    int32_t sequence, heads, size;
};

/* Return the operands of attention or attention_bw. */
struct ct_cuda_heads ct_cuda_heads_forward(const struct ct_kernel_args *args);
struct ct_cuda_heads ct_cuda_heads_backward(const struct ct_kernel_args *args, void *workspace);

/* Return the bytes of delta. */
size_t ct_cuda_heads_workspace(const struct ct_cuda_heads *heads);

/* The kernels for one size of head on tensor cores. */
struct ct_cuda_flash {
    int (*prepare)(enum ct_dtype dtype); /* allow them their shared memory: a cudaError_t */
    void (*forward)(const struct ct_cuda_heads *heads, enum ct_dtype dtype,
                    struct CUstream_st *stream);
    void (*backward)(const struct ct_cuda_heads *heads, enum ct_dtype dtype,
                     struct CUstream_st *stream);
};

/* By mma.sync; by wgmma, where the queue has warpgroups. */
extern const struct ct_cuda_flash ct_cuda_flash_64, ct_cuda_flash_128;
extern const struct ct_cuda_flash ct_cuda_hopper_64, ct_cuda_hopper_128;

/* Return the kernels for these heads on this queue's GPU, or NULL. */
const struct ct_cuda_flash *ct_cuda_heads_flash(const struct ct_cuda_queue *queue,
                                                const struct ct_cuda_heads *heads,
                                                enum ct_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
