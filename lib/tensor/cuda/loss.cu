/* Losses and counts. A row of logits is one block's: 16-byte reads into shared memory while the
 * maximum is found, the sum of exponentials from there; probabilities are never stored.
 *
 *     logits  row 7 | . . . . . . . . . . . . |   sum of exp(x - max): 16 lanes a piece of 256
 *                    \__ 256 __/\__ 256 __/ ...   columns; pieces are added up in double, in their
 *                                                 order (the CPU's)
 *
 * Rows' losses go into the workspace, a double each; one block then joins them by the CPU's tree.
 */
#include "tensor/cuda/sum.cuh"

#include "tensor/cpu/log.h"

enum {
    PIECE = 256,
    PIECES = 512,
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
static inline __device__ float piece_sum(const T *x, int64_t first, int64_t columns, float max)
{
    int lane = (int)threadIdx.x % LANES;
    float sum = 0;

    for (int64_t j = first + lane; j < first + PIECE; j += LANES)
        sum += j < columns ? exp_of<T>(wide(x[j]) - max) : 0;
    return fold_lanes(sum);
}

/* The sum over the row; in thread 0. */
template <typename T>
static inline __device__ double row_sum_exp(const T *x, int64_t columns, float max, float *pieces)
{
    int half_warps = (int)blockDim.x / LANES, half_warp = (int)threadIdx.x / LANES;
    int64_t count = (columns + PIECE - 1) / PIECE;
    double total = 0;

    for (int64_t base = 0; base < count; base += PIECES) {
        for (int piece = half_warp; piece < PIECES && base + piece - half_warp % 2 < count;
             piece += half_warps) { /* both halves of a warp go on while one has a piece */
            float sum = piece_sum(x, (base + piece) * PIECE, columns, max);

            if (threadIdx.x % LANES == 0)
                pieces[piece] = sum;
        }
        __syncthreads();
        for (int piece = 0; threadIdx.x == 0 && piece < PIECES && base + piece < count; piece++)
            total += (double)pieces[piece];
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

/* ---- cross entropy --------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS, 2)
    cross_entropy_kernel(const T *logits, const int32_t *labels, double *loss, float *stats,
                         int64_t rows, int64_t columns, bool cached)
{
    CT_SHARED_BYTES(memory);
    __shared__ float best[MAX_WARPS], pieces[PIECES];

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *x = logits + row * columns;
        T *cache = cached ? (T *)memory + skew_of(x) : NULL;
        int32_t label = labels[row];

        if (label >= columns)
            __trap();
        if (label < 0) {
            if (threadIdx.x == 0)
                loss[row] = stats[row * 2] = stats[row * 2 + 1] = 0;
            continue;
        }
        float max = row_max(x, columns, cache, best, -1, NULL);
        double sum = row_sum_exp(cached ? cache : x, columns, max, pieces);

        if (threadIdx.x == 0) {
            double log_sum = log_of(sum);

            stats[row * 2] = max;
            stats[row * 2 + 1] = (float)log_sum;
            loss[row] = log_sum - ((double)wide(x[label]) - (double)max);
        }
    }
}

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

extern "C" int ct_cuda_cross_entropy_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                             const struct ct_kernel_args *args, size_t *ret_bytes,
                                             struct ct_error *err)
{
    *ret_bytes = (size_t)ct_shape_rows(args->in[0].shape) * sizeof(double);
    return ALLOW_ROWS(cross_entropy_kernel, queue, dtype, err);
}

template <typename T>
static void launch_cross_entropy(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);
    size_t cache = cache_bytes(queue, columns, sizeof(T));

    CT_LAUNCH(cross_entropy_kernel<T>, grid_of(queue, rows, 1), row_block(columns), cache,
              queue->stream, (const T *)args->in[0].data, (const int32_t *)args->in[1].data,
              (double *)queue->workspace, (float *)args->out[1].data, rows, columns, cache > 0);
    launch_join_rows(queue, args, rows);
}
LAUNCHER(cross_entropy)

/* A `part` of the logits: the columns of the classes from `begin` on, of `classes` in all. */
struct part {
    int64_t begin, real; /* columns that are no padding */
};

static struct part part_of(const struct ct_attr *attr, int64_t columns)
{
    int64_t left = (int64_t)attr->classes - (int64_t)attr->begin;
    struct part whole = {0, columns};
    struct part part = {(int64_t)attr->begin, left < 0 ? 0 : left < columns ? left : columns};

    return attr->part ? part : whole;
}

template <typename T>
static __global__ void cross_entropy_bw_kernel(const T *logits, const int32_t *labels,
                                               const float *stats, const double *scale, T *dlogits,
                                               struct part part, int64_t rows, int64_t columns)
{
    float factor = (float)*scale;

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        int64_t label = labels[row] - part.begin, first = row * columns;
        float max = stats[row * 2], log_sum = stats[row * 2 + 1];
        bool masked = labels[row] < 0;

        EACH_ROW_PACK(T, j, logits + first, columns)
        {
            float a[PACK(T)];

            load<T>(a, logits + first, j, columns);
            for (int k = 0; k < PACK(T); k++) {
                float probability = exp_of<T>((a[k] - max) - log_sum);

                a[k] = factor * (j + k == label ? probability - 1 : probability);
                if (masked || j + k >= part.real)
                    a[k] = 0;
            }
            store<T>(dlogits + first, j, columns, a);
        }
    }
}

template <typename T>
static void launch_cross_entropy_bw(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);

    CT_LAUNCH(cross_entropy_bw_kernel<T>, grid_of(queue, rows, 1), row_block(columns), 0,
              queue->stream, (const T *)args->in[0].data, (const int32_t *)args->in[1].data,
              (const float *)args->in[2].data, (const double *)args->in[3].data,
              (T *)args->out[0].data, part_of(&args->attr, columns), rows, columns);
}
LAUNCHER(cross_entropy_bw)

/* ---- loss, count and gradient of a row that is read once ------------------------------------ */

/* A row's gradient; x: the row, or its copy in shared memory. dlogits may be the row itself: it is
 * aligned as that, so that a thread writes what it alone has read. */
template <typename T>
static inline __device__ void row_gradient(T *dlogits, const T *row, const T *x, int64_t columns,
                                           int64_t label, float max, float log_sum, float factor)
{
    EACH_ROW_PACK(T, j, row, columns)
    {
        float a[PACK(T)];

        load<T>(a, x, j, columns);
        for (int k = 0; k < PACK(T); k++) {
            float probability = exp_of<T>((a[k] - max) - log_sum);

            a[k] = factor * (j + k == label ? probability - 1 : probability);
        }
        store<T>(dlogits, j, columns, a);
    }
}

template <typename T> static inline __device__ void zero_row(T *dlogits, int64_t columns)
{
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x)
        dlogits[j] = narrow<T>(0);
}

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS, 2)
    cross_entropy_grad_kernel(const T *logits, const int32_t *labels, const double *scale,
                              T *dlogits, double *loss, double *right, int64_t rows,
                              int64_t columns, bool cached)
{
    CT_SHARED_BYTES(memory);
    __shared__ float best[MAX_WARPS], pieces[PIECES], log_sum;
    float factor = (float)*scale;

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *x = logits + row * columns;
        T *cache = cached ? (T *)memory + skew_of(x) : NULL;
        int32_t label = labels[row];
        bool beaten = false;

        if (label >= columns)
            __trap();
        if (label < 0) {
            if (threadIdx.x == 0)
                loss[row] = right[row] = 0;
            zero_row(dlogits + row * columns, columns);
            continue;
        }
        float at_label = wide(x[label]);
        float max = row_max(x, columns, cache, best, label, &beaten);
        double sum = row_sum_exp(cached ? cache : x, columns, max, pieces);

        beaten = __syncthreads_or(beaten);
        if (threadIdx.x == 0) {
            double log_of_sum = log_of(sum);

            log_sum = (float)log_of_sum;
            loss[row] = log_of_sum - ((double)at_label - (double)max);
            right[row] = beaten ? 0 : 1;
        }
        __syncthreads();
        row_gradient(dlogits + row * columns, x, cached ? cache : x, columns, label, max, log_sum,
                     factor);
        __syncthreads(); /* the next row takes this one's place in shared memory */
    }
}

extern "C" int ct_cuda_cross_entropy_grad_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                                  const struct ct_kernel_args *args,
                                                  size_t *ret_bytes, struct ct_error *err)
{
    (void)args;
    *ret_bytes = 0;
    return ALLOW_ROWS(cross_entropy_grad_kernel, queue, dtype, err);
}

template <typename T>
static void launch_cross_entropy_grad(struct ct_cuda_queue *queue,
                                      const struct ct_kernel_args *args)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);
    size_t cache = cache_bytes(queue, columns, sizeof(T));

    CT_LAUNCH(cross_entropy_grad_kernel<T>, grid_of(queue, rows, 1), row_block(columns), cache,
              queue->stream, (const T *)args->in[0].data, (const int32_t *)args->in[1].data,
              (const double *)args->in[2].data, (T *)args->out[0].data, (double *)args->out[1].data,
              (double *)args->out[2].data, rows, columns, cache > 0);
}
LAUNCHER(cross_entropy_grad)

extern "C" int ct_cuda_sum_rows_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                        const struct ct_kernel_args *args, size_t *ret_bytes,
                                        struct ct_error *err)
{
    (void)queue, (void)dtype, (void)err;
    *ret_bytes = (size_t)ct_shape_elements(args->in[0].shape) * sizeof(double);
    return 0;
}

LAUNCHER_HEAD(sum_rows)
{
    (void)dtype;
    launch_join(queue, args, (const double *)args->in[0].data,
                ct_shape_elements(args->in[0].shape));
}

/* ---- cross-entropy over a part of the classes ----------------------------------------------- */

static __global__ void vocab_max_kernel(const float *logits, const int32_t *labels, float *max,
                                        struct part part, int64_t rows, int64_t columns)
{
    __shared__ float best[MAX_WARPS];

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float own = row_max(logits + row * columns, part.real, (float *)NULL, best, -1, NULL);

        if (threadIdx.x == 0)
            max[row] = labels[row] >= 0 ? own : 0;
    }
}

LAUNCHER_HEAD(vocab_max)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);

    (void)dtype;
    CT_LAUNCH(vocab_max_kernel, grid_of(queue, rows, 1), row_block(columns), 0, queue->stream,
              (const float *)args->in[0].data, (const int32_t *)args->in[1].data,
              (float *)args->out[0].data, part_of(&args->attr, columns), rows, columns);
}

/* How many of the block's threads' counts add up to, in all threads. */
static inline __device__ int block_count(int own, int *counts)
{
    for (int distance = 16; distance > 0; distance /= 2)
        own += __shfl_xor_sync(WHOLE_WARP, own, distance);
    if (threadIdx.x % 32 == 0)
        counts[threadIdx.x / 32] = own;
    __syncthreads();
    own = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; warp++)
        own += counts[warp];
    __syncthreads();
    return own;
}

static __global__ void vocab_sums_kernel(const float *logits, const int32_t *labels,
                                         const float *maxima, float *sums, struct part part,
                                         int64_t rows, int64_t columns)
{
    __shared__ float pieces[PIECES];
    __shared__ int counts[MAX_WARPS];

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float *x = logits + row * columns;
        float max = maxima[row];
        int64_t label = labels[row] - part.begin, before = label < part.real ? label : part.real;
        bool counted = labels[row] >= 0;
        int ties = 0;
        double sum = row_sum_exp(x, part.real, max, pieces);

        for (int64_t j = threadIdx.x; j < before; j += blockDim.x)
            ties += x[j] == max;
        ties = block_count(ties, counts);
        if (threadIdx.x == 0) {
            bool here = counted && label >= 0 && label < part.real;

            sums[row * 3] = counted ? (float)sum : 0;
            sums[row * 3 + 1] = here ? x[label] - max : 0;
            sums[row * 3 + 2] = counted ? (float)ties : 0;
        }
    }
}

LAUNCHER_HEAD(vocab_sums)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);

    (void)dtype;
    CT_LAUNCH(vocab_sums_kernel, grid_of(queue, rows, 1), row_block(columns), 0, queue->stream,
              (const float *)args->in[0].data, (const int32_t *)args->in[1].data,
              (const float *)args->in[2].data, (float *)args->out[0].data,
              part_of(&args->attr, columns), rows, columns);
}

static __global__ void vocab_loss_kernel(const float *sums, const int32_t *labels,
                                         const float *maxima, double *loss, float *stats,
                                         int64_t rows)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += step) {
        bool counted = labels[row] >= 0;
        double log_sum = counted ? log_of((double)sums[row * 3]) : 0;

        stats[row * 2] = counted ? maxima[row] : 0;
        stats[row * 2 + 1] = (float)log_sum;
        loss[row] = counted ? log_sum - (double)sums[row * 3 + 1] : 0;
    }
}

PREPARE_ROW_SUMS(vocab_loss)

LAUNCHER_HEAD(vocab_loss)
{
    int64_t rows = ct_shape_rows(args->in[0].shape);

    (void)dtype;
    CT_LAUNCH(vocab_loss_kernel, grid_of(queue, rows, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const int32_t *)args->in[1].data,
              (const float *)args->in[2].data, (double *)queue->workspace,
              (float *)args->out[1].data, rows);
    launch_join_rows(queue, args, rows);
}

static __global__ void vocab_correct_kernel(const float *sums, const int32_t *labels, double *right,
                                            int64_t rows)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += step)
        right[row] = labels[row] >= 0 && sums[row * 3 + 1] == 0 && sums[row * 3 + 2] == 0;
}

PREPARE_ROW_SUMS(vocab_correct)

LAUNCHER_HEAD(vocab_correct)
{
    int64_t rows = ct_shape_rows(args->in[0].shape);

    (void)dtype;
    CT_LAUNCH(vocab_correct_kernel, grid_of(queue, rows, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const int32_t *)args->in[1].data,
              (double *)queue->workspace, rows);
    launch_join_rows(queue, args, rows);
}

/* ---- counts --------------------------------------------------------------------------------- */

/* Right: all logits before the label's are smaller, those behind at most as large, and none is NaN.
 */
template <typename T>
static __global__ void correct_kernel(const T *logits, const int32_t *labels, double *right,
                                      int64_t rows, int64_t columns)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *x = logits + row * columns;
        int32_t label = labels[row];
        bool beaten = label < 0;

        if (label >= columns)
            __trap();
        float best = label < 0 ? 0 : wide(x[label]);

        EACH_ROW_PACK(T, j, x, columns)
        {
            float a[PACK(T)];

            load<T>(a, x, j, columns);
            for (int k = 0; k < PACK(T); k++)
                if (j + k >= 0 && j + k < columns && !(j + k < label ? a[k] < best : a[k] <= best))
                    beaten = true;
        }
        beaten = __syncthreads_or(beaten);
        if (threadIdx.x == 0)
            right[row] = beaten ? 0 : 1;
    }
}

PREPARE_ROW_SUMS(correct)

template <typename T>
static void launch_correct(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);

    CT_LAUNCH(correct_kernel<T>, grid_of(queue, rows, 1), row_block(columns), 0, queue->stream,
              (const T *)args->in[0].data, (const int32_t *)args->in[1].data,
              (double *)queue->workspace, rows, columns);
    launch_join_rows(queue, args, rows);
}
LAUNCHER(correct)
