/* Sums in the order of the CPU's (lib/tensor/cpu): what is added up in double comes out with the
 * same bits.
 *
 *     row:        lane l of 16 adds x[l], x[l + 16], ...; lanes are folded 8, 4, 2, 1: half a warp
 *                 a row
 *     row range:  leaves of a fixed size, joined by a binary tree: neighbours at distance 1, 2, 4,
 *                 ..., what has no neighbour waits for the next round
 */
#ifndef CT_TENSOR_CUDA_SUM_CUH
#define CT_TENSOR_CUDA_SUM_CUH

#include "tensor/cuda/number.cuh"

enum {
    LANES = 16,
    HALF_WARPS = CT_CUDA_BLOCK / LANES,
    LEAF_ROWS = 8,
    TREE_BLOCK = 1024,
    COLUMN_BLOCK = 32
};

/* Of the 16 lanes that call it together, in all of them; whole warps call it. */
template <typename V> static inline __device__ V fold_lanes(V sum)
{
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(WHOLE_WARP, sum, distance);
    return sum;
}

/* One block: the tree over count >= 0 sums in `sums`, which it overwrites; *out gets the result.
 * Called by all threads. */
static inline __device__ void join_tree(double *sums, int64_t count, double *out, bool accumulate)
{
    for (int64_t distance = 1; distance < count; distance *= 2) {
        for (int64_t i = threadIdx.x * 2 * distance; i + distance < count;
             i += blockDim.x * 2 * distance)
            sums[i] += sums[i + distance];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        double sum = count > 0 ? sums[0] : 0;

        *out = accumulate ? *out + sum : sum;
    }
}

/* One block: a number a row in `x`, LEAF_ROWS to a leaf; the leaves go into `sums`, which may be x.
 */
static __global__ void join_rows_kernel(const double *x, double *sums, int64_t rows, double *out,
                                        bool accumulate)
{
    int64_t leaves = (rows + LEAF_ROWS - 1) / LEAF_ROWS;

    for (int64_t base = 0; base < leaves; base += blockDim.x) {
        int64_t leaf = base + threadIdx.x;
        double sum = 0;

        for (int64_t row = leaf * LEAF_ROWS; row < (leaf + 1) * LEAF_ROWS && row < rows; row++)
            sum += x[row];
        __syncthreads(); /* leaves are written where rows were read, further in front */
        if (leaf < leaves)
            sums[leaf] = sum;
        __syncthreads();
    }
    join_tree(sums, leaves, out, accumulate);
}

/* out[0] gets the sum of x, a double a row; the workspace has room for as many. */
static inline void launch_join(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                               const double *x, int64_t rows)
{
    CT_LAUNCH(join_rows_kernel, 1, TREE_BLOCK, 0, queue->stream, x, (double *)queue->workspace,
              rows, (double *)args->out[0].data, args->attr.accumulate);
}

/* Of an op that sums over rows: out[0] gets the sum of the queue's workspace, a double a row. */
static inline void launch_join_rows(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                                    int64_t rows)
{
    launch_join(queue, args, (const double *)queue->workspace, rows);
}

/* What its `prepare` asks for. */
#define PREPARE_ROW_SUMS(name)                                                                    \
    extern "C" int ct_cuda_##name##_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,     \
                                            const struct ct_kernel_args *args, size_t *ret_bytes, \
                                            struct ct_error *err)                                 \
    {                                                                                             \
        (void)queue, (void)dtype, (void)err;                                                      \
        *ret_bytes = (size_t)ct_shape_rows(args->in[0].shape) * sizeof(double);                   \
        return 0;                                                                                 \
    }

#endif
