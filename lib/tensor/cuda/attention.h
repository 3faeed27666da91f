/* Causal attention on the GPU, as op.def has it.
 *
 *     ct_cuda_heads_flash(&heads, dtype)    heads of 64 or 128, 16 bits, aligned: tensor cores
 *         flash_64.cu, flash_128.cu         by flash_body.cuh (Dao, FlashAttention-2, 2307.08691)
 *     else attention.cu                     any head: a warp a query, or a key
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

/* The operands of attention or attention_bw. */
struct ct_cuda_heads ct_cuda_heads_forward(const struct ct_kernel_args *args);
struct ct_cuda_heads ct_cuda_heads_backward(const struct ct_kernel_args *args, void *workspace);

/* Whether the kernels for tensor cores take them: whole rows of 16 bytes. */
bool ct_cuda_heads_flash(const struct ct_cuda_heads *heads, enum ct_dtype dtype);

/* Bytes of delta. */
size_t ct_cuda_heads_workspace(const struct ct_cuda_heads *heads);

/* The kernels for one size of head: allow them their shared memory (a cudaError_t), forward, and
 * backward with delta filled. */
#define CT_CUDA_FLASH(size)                                                                \
    int ct_cuda_flash_##size##_prepare(enum ct_dtype dtype);                               \
    void ct_cuda_flash_##size(const struct ct_cuda_heads *heads, enum ct_dtype dtype,      \
                              struct CUstream_st *stream);                                 \
    void ct_cuda_flash_##size##_bw(const struct ct_cuda_heads *heads, enum ct_dtype dtype, \
                                   struct CUstream_st *stream);
CT_CUDA_FLASH(64)
CT_CUDA_FLASH(128)
#undef CT_CUDA_FLASH

#ifdef __cplusplus
}
#endif

#endif
