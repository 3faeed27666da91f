/* Sums over rows, for the gradients of what is added or multiplied by columns: chunks of rows, each
 * one chain of additions, side by side in the workspace; then the chunks in their order. In f32
 * this is the order of a matrix product (tensor/cpu/gemm.h); chunks of 16-bit rows are shorter, for
 * more of them to be read at once. */
#ifndef CT_TENSOR_CUDA_ROW_SUM_H
#define CT_TENSOR_CUDA_ROW_SUM_H

#include "tensor/cpu/gemm.h"
#include "tensor/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a chunk, of elements of so many bytes. */
#define CT_CUDA_CHUNK_ROWS(size) ((size) == 2 ? 128 : CT_GEMM_KC)

/* Chunks of the rows of in[0]. */
static inline int64_t ct_cuda_row_chunks(const struct ct_kernel_args *args)
{
    int rows = CT_CUDA_CHUNK_ROWS(ct_dtype_size(args->in[0].dtype));

    return (ct_shape_rows(args->in[0].shape) + rows - 1) / rows;
}

/* The sums of the workspace's `chunks` rows, each of the columns of `first` and, unless that is
 * NULL, of those of `second` behind them; added to what is there when `accumulate`. `dtype`: of the
 * rows; sums of f32 are one chain. */
void ct_cuda_join_chunks(struct ct_cuda_queue *queue, enum ct_dtype dtype, float *first,
                         float *second, int64_t chunks, int64_t columns, bool accumulate);

#ifdef __cplusplus
}
#endif

#endif
