/* Losses and counts. Rows' losses go into the workspace, a double each; one block then joins them
 * by the CPU's tree. */
#include "tensor/cuda/rows/loss_row.cuh"

/* ---- cross entropy --------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS, 2)
    cross_entropy_kernel(const T *logits, const int32_t *labels, double *loss, float *stats,
                         int64_t rows, int64_t columns, bool cached)
{
    CT_SHARED_BYTES(memory);
    __shared__ float best[MAX_WARPS], parts[PARTS];

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
        double sum = row_sum_exp(cached ? cache : x, columns, max, parts);

        if (threadIdx.x == 0) {
            double log_sum = log_of(sum);

            stats[row * 2] = max;
            stats[row * 2 + 1] = (float)log_sum;
            loss[row] = log_sum - ((double)wide(x[label]) - (double)max);
        }
    }
}

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
    __shared__ float parts[PARTS];
    __shared__ int counts[MAX_WARPS];

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float *x = logits + row * columns;
        float max = maxima[row];
        int64_t label = labels[row] - part.begin, before = label < part.real ? label : part.real;
        bool counted = labels[row] >= 0;
        int ties = 0;
        double sum = row_sum_exp(x, part.real, max, parts);

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
