/* A row of logits, by all threads of a block: 16-byte reads into shared memory while the maximum is
 * found, the sum of exponentials from there; probabilities are never stored.
 *
 *     logits  row 7 | . . . . . . . . . . . . |   sum of exp(x - max): 16 lanes a piece of 256
 *                    \__ 256 __/\__ 256 __/ ...   columns; pieces are added up in double, in their
 *                                                 order (the CPU's)
 */
#ifndef CT_TENSOR_CUDA_LOSS_ROW_CUH
#define CT_TENSOR_CUDA_LOSS_ROW_CUH

#include "tensor/cuda/sum.cuh"

#include "tensor/cpu/kernel/logarithm.h"

enum {
    PART = 256,
    PARTS = 512,
    MAX_WARPS = 16,
    ROW_THREADS = 32 * MAX_WARPS, /* of a block, at most; two blocks share a multiprocessor */
    STATIC_BYTES = 4096           /* of shared memory, that a block has besides a row */
};

/* ---- one row, by all threads of a block ------------------------------------------------------ */

#define EACH_ROW_PACK(T, j, row, columns)                                          \
    for (int64_t j = (int64_t)threadIdx.x * PACK(T) - skew_of(row); j < (columns); \
         j += (int64_t)blockDim.x * PACK(T))

static inline __device__ float larger(float a, float b)
{
    return a < b ? b : a;
}

/* The row's largest element, in all threads; `cache` (may be NULL), aligned as the row is, gets it.
 * With a label >= 0: *beaten (may be NULL) becomes true in a thread that finds a NaN, an element as
 * large as the label's in front of it, or a larger one. */
template <typename T>
static inline __device__ float row_max(const T *x, int64_t columns, T *cache, float *best,
                                       int64_t label, bool *beaten)
{
    float own = -(float)INFINITY, goal = beaten != NULL ? wide(x[label]) : 0;

    EACH_ROW_PACK(T, j, x, columns)
    {
        float a[PACK(T)];

        load<T>(a, x, j, columns);
        if (cache != NULL)
            store<T>(cache, j, columns, a);
        for (int k = 0; k < PACK(T); k++)
            if (j + k >= 0 && j + k < columns) {
                own = larger(own, a[k]);
                if (beaten != NULL && !(j + k < label ? a[k] < goal : a[k] <= goal))
                    *beaten = true;
            }
    }
    for (int distance = 16; distance > 0; distance /= 2)
        own = larger(own, __shfl_xor_sync(WHOLE_WARP, own, distance));
    if (threadIdx.x % 32 == 0)
        best[threadIdx.x / 32] = own;
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / 32; warp++)
        own = larger(own, best[warp]);
    __syncthreads();
    return own;
}

/* Half a warp: the sum of exp(x[j] - max) over the PIECE columns from `first` on. */
template <typename T>
static inline __device__ float part_sum(const T *x, int64_t first, int64_t columns, float max)
{
    int lane = (int)threadIdx.x % LANES;
    float sum = 0;

    for (int64_t j = first + lane; j < first + PART; j += LANES)
        sum += j < columns ? exp_of<T>(wide(x[j]) - max) : 0;
    return fold_lanes(sum);
}

/* The sum over the row; in thread 0. */
template <typename T>
static inline __device__ double row_sum_exp(const T *x, int64_t columns, float max, float *parts)
{
    int half_warps = (int)blockDim.x / LANES, half_warp = (int)threadIdx.x / LANES;
    int64_t count = (columns + PART - 1) / PART;
    double total = 0;

    for (int64_t base = 0; base < count; base += PARTS) {
        for (int part = half_warp; part < PARTS && base + part - half_warp % 2 < count;
             part += half_warps) { /* both halves of a warp go on while one has a piece */
            float sum = part_sum(x, (base + part) * PART, columns, max);

            if (threadIdx.x % LANES == 0)
                parts[part] = sum;
        }
        __syncthreads();
        for (int part = 0; threadIdx.x == 0 && part < PARTS && base + part < count; part++)
            total += (double)parts[part];
        __syncthreads();
    }
    return total;
}

/* Threads that a row of so many columns keeps busy. */
static unsigned row_block(int64_t columns)
{
    return columns <= 2048 ? 128 : columns <= 8192 ? 256 : (unsigned)ROW_THREADS;
}

/* Shared memory for a row of `columns`, or 0 when two blocks would not fit. */
static size_t cache_bytes(const struct ct_cuda_queue *queue, int64_t columns, size_t size)
{
    size_t bytes = ((size_t)columns * size + 15) / 16 * 16 + 16; /* it begins anywhere in 16 */

    return bytes <= queue->shared_bytes / 2 - STATIC_BYTES ? bytes : 0;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Rows in shared memory need leave to be that large. */
template <typename K>
static int allow_rows(const struct ct_cuda_queue *queue, K *kernel, struct ct_error *err)
{
    cudaError_t rc = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)(queue->shared_bytes / 2 - STATIC_BYTES));

    return rc == cudaSuccess ? 0
                             : ct_error_set(err, CT_EDEVICE,
                                            "cross_entropy: %zu bytes of shared "
                                            "memory: %s",
                                            queue->shared_bytes / 2, cudaGetErrorString(rc));
}

#define ALLOW_ROWS(kernel, queue, dtype, err)                             \
    ((dtype) == CT_F32    ? allow_rows(queue, kernel<float>, err)         \
     : (dtype) == CT_BF16 ? allow_rows(queue, kernel<__nv_bfloat16>, err) \
                          : allow_rows(queue, kernel<__half>, err))

#endif
