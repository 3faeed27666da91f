/* Norms over the columns, and sums over the rows for the gradients of what is added or multiplied
 * by columns.
 *
 *     a row:     half a warp; lane l of 16 reads x[l], x[l + 16], ..., twice or three times: what
 * was read before lies in the nearest cache a column:  chunks of 256 rows, each one chain of
 * additions by one thread, side by side into the workspace; then the chunks in their order
 */
#include "tensor/cuda/sum.cuh"

#include "tensor/cpu/gemm.h"

/* Rows `row` of a half-warp: all half-warps of a warp go round equally often, for its shuffles; a
 * row beyond the end is computed as the last one and not kept. */
#define EACH_ROW(row, rows)                                                           \
    for (int64_t row##_base = (int64_t)blockIdx.x * HALF_WARPS; row##_base < (rows);  \
         row##_base += (int64_t)gridDim.x * HALF_WARPS)                               \
        for (int64_t row##_own = row##_base + threadIdx.x / LANES,                    \
                     row = row##_own < (rows) ? row##_own : (rows)-1, row##_once = 1; \
             row##_once != 0; row##_once = 0)

struct norm {
    int64_t rows, columns;
    float eps;
    bool centred; /* layer norm: the mean is taken off */
};

static struct norm norm_of(const struct ct_kernel_args *args, bool centred)
{
    struct norm norm = {ct_shape_rows(args->in[0].shape), ct_shape_columns(args->in[0].shape),
                        (float)args->attr.eps, centred};

    return norm;
}

/* ---- forward --------------------------------------------------------------------------------- */

template <typename T> static inline __device__ float total_of(const T *x, int64_t columns, int lane)
{
    float sum = 0;

#pragma unroll 8
    for (int64_t j = lane; j < columns; j += LANES)
        sum += wide(x[j]);
    return fold_lanes(sum);
}

template <typename T>
static inline __device__ float squares_of(const T *x, float mean, int64_t columns, int lane)
{
    float sum = 0;

#pragma unroll 8
    for (int64_t j = lane; j < columns; j += LANES) {
        float d = wide(x[j]) - mean;

        sum += d * d;
    }
    return fold_lanes(sum);
}

/* y = (x - mean) rstd g (+ b), a pack at a time. */
template <typename T>
static inline __device__ void scale_row(const T *x, T *y, const float *g, const float *b,
                                        const float *stats, int64_t columns, int lane)
{
    for (int64_t j = lane * PACK(T); j < columns; j += LANES * PACK(T)) {
        float a[PACK(T)], factor[PACK(T)], shift[PACK(T)];

        load<T>(a, x, j, columns);
        load<T>(factor, g, j, columns);
        if (b != NULL)
            load<T>(shift, b, j, columns);
        for (int k = 0; k < PACK(T); k++) {
            a[k] = (a[k] - stats[0]) * stats[1] * factor[k];
            if (b != NULL)
                a[k] += shift[k];
        }
        store<T>(y, j, columns, a);
    }
}

template <typename T>
static __global__ void norm_kernel(const T *x, const float *g, const float *b, T *y, float *stats,
                                   struct norm norm)
{
    int lane = (int)threadIdx.x % LANES;

    EACH_ROW(row, norm.rows)
    {
        const T *from = x + row * norm.columns;
        float own[2] = {0, 0}, count = (float)norm.columns;

        if (norm.centred)
            own[0] = total_of(from, norm.columns, lane) / count;
        own[1] = 1 / sqrtf(squares_of(from, own[0], norm.columns, lane) / count + norm.eps);
        if (row != row_own)
            continue;
        scale_row(from, y + row * norm.columns, g, b, own, norm.columns, lane);
        if (lane < 2)
            stats[row * 2 + lane] = lane == 0 ? own[0] : own[1];
    }
}

template <typename T>
static void launch_norm(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                        bool centred)
{
    struct norm norm = norm_of(args, centred);

    CT_LAUNCH(norm_kernel<T>, grid_of(queue, norm.rows, HALF_WARPS), CT_CUDA_BLOCK, 0,
              queue->stream, (const T *)args->in[0].data, (const float *)args->in[1].data,
              (const float *)args->in[2].data, (T *)args->out[0].data, (float *)args->out[1].data,
              norm);
}

template <typename T>
static void launch_layernorm(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    launch_norm<T>(queue, args, true);
}
LAUNCHER(layernorm)

template <typename T>
static void launch_rmsnorm(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    launch_norm<T>(queue, args, false);
}
LAUNCHER(rmsnorm)

/* ---- backward: with n = (x - mean) rstd, dx = rstd (dy g - mean(dy g) - n mean(dy g n)) ------ */

struct slopes {
    float shift, slope;
};

template <typename T>
static inline __device__ struct slopes slopes_of(const T *dy, const T *x, const float *g,
                                                 const float *stats, struct norm norm, int lane)
{
    float mean = norm.centred ? stats[0] : 0, one = 0, two = 0;
    struct slopes slopes;

#pragma unroll 4
    for (int64_t j = lane; j < norm.columns; j += LANES) {
        float d = wide(dy[j]) * g[j];

        one += d;
        two += d * (wide(x[j]) - mean);
    }
    slopes.shift = norm.centred ? fold_lanes(one) / (float)norm.columns : 0;
    slopes.slope = fold_lanes(two) * stats[1] / (float)norm.columns;
    return slopes;
}

template <typename T>
static __global__ void norm_dx_kernel(const T *dy, const T *x, const float *g, const float *stats,
                                      T *dx, struct norm norm)
{
    int lane = (int)threadIdx.x % LANES;

    EACH_ROW(row, norm.rows)
    {
        int64_t first = row * norm.columns;
        const float mean = norm.centred ? stats[row * 2] : 0, rstd = stats[row * 2 + 1];
        struct slopes s = slopes_of(dy + first, x + first, g, stats + row * 2, norm, lane);

        __syncwarp(); /* dx may be dy */
        for (int64_t j = lane * PACK(T); row == row_own && j < norm.columns; j += LANES * PACK(T)) {
            float d[PACK(T)], a[PACK(T)], factor[PACK(T)];

            load<T>(d, dy + first, j, norm.columns);
            load<T>(a, x + first, j, norm.columns);
            load<T>(factor, g, j, norm.columns);
            for (int k = 0; k < PACK(T); k++) {
                float along = d[k] * factor[k];

                if (norm.centred)
                    along = along - s.shift;
                d[k] = rstd * (along - (a[k] - mean) * rstd * s.slope);
            }
            store<T>(dx + first, j, norm.columns, d);
        }
    }
}

template <typename T>
static void launch_norm_dx(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                           bool centred)
{
    struct norm norm = norm_of(args, centred);

    CT_LAUNCH(norm_dx_kernel<T>, grid_of(queue, norm.rows, HALF_WARPS), CT_CUDA_BLOCK, 0,
              queue->stream, (const T *)args->in[0].data, (const T *)args->in[1].data,
              (const float *)args->in[2].data, (const float *)args->in[3].data,
              (T *)args->out[0].data, norm);
}

template <typename T>
static void launch_layernorm_dx(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    launch_norm_dx<T>(queue, args, true);
}
LAUNCHER(layernorm_dx)

template <typename T>
static void launch_rmsnorm_dx(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    launch_norm_dx<T>(queue, args, false);
}
LAUNCHER(rmsnorm_dx)

/* ---- sums over rows, in the order of a matrix product (tensor/cpu/gemm.h) -------------------- */

/* A pack of columns of a chunk a thread. With x: dy (x - mean) rstd, else dy. */
template <typename T>
static __global__ void chunks_kernel(const T *dy, const T *x, const float *stats, float *partial,
                                     int64_t rows, int64_t columns)
{
    int64_t packs = (columns + PACK(T) - 1) / PACK(T);
    int64_t units = (rows + CT_GEMM_KC - 1) / CT_GEMM_KC * packs;
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < units; u += step) {
        int64_t chunk = u / packs, j = u % packs * PACK(T), row = chunk * CT_GEMM_KC;
        int64_t end = row + CT_GEMM_KC < rows ? row + CT_GEMM_KC : rows;
        float sum[PACK(T)] = {0}, d[PACK(T)], a[PACK(T)];

#pragma unroll 4
        for (; row < end; row++) {
            load<T>(d, dy + row * columns, j, columns);
            if (x != NULL)
                load<T>(a, x + row * columns, j, columns);
            for (int k = 0; k < PACK(T); k++)
                sum[k] += x == NULL ? d[k] : d[k] * ((a[k] - stats[row * 2]) * stats[row * 2 + 1]);
        }
        store<T>(partial + chunk * columns, j, columns, sum);
    }
}

static __global__ void join_chunks_kernel(const float *partial, float *out, int64_t chunks,
                                          int64_t columns, bool accumulate)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; j < columns; j += step) {
        float total = accumulate ? out[j] : 0;

#pragma unroll 8
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            total += partial[chunk * columns + j];
        out[j] = total;
    }
}

static int64_t chunks_of(const struct ct_kernel_args *args)
{
    return (ct_shape_rows(args->in[0].shape) + CT_GEMM_KC - 1) / CT_GEMM_KC;
}

template <typename T>
static void launch_chunks(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                          const void *x, const void *stats)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);
    int64_t chunks = chunks_of(args), units = chunks * ((columns + PACK(T) - 1) / PACK(T));
    float *partial = (float *)queue->workspace;

    CT_LAUNCH(chunks_kernel<T>, grid_of(queue, units, COLUMN_BLOCK), COLUMN_BLOCK, 0, queue->stream,
              (const T *)args->in[0].data, (const T *)x, (const float *)stats, partial, rows,
              columns);
    CT_LAUNCH(join_chunks_kernel, grid_of(queue, columns, COLUMN_BLOCK), COLUMN_BLOCK, 0,
              queue->stream, partial, (float *)args->out[0].data, chunks, columns,
              args->attr.accumulate);
}

static int prepare_chunks(const struct ct_kernel_args *args, size_t *ret_bytes)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);

    *ret_bytes = (size_t)(chunks_of(args) * columns) * sizeof(float);
    return 0;
}

#define PREPARE_CHUNKS(name)                                                                      \
    extern "C" int ct_cuda_##name##_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,     \
                                            const struct ct_kernel_args *args, size_t *ret_bytes, \
                                            struct ct_error *err)                                 \
    {                                                                                             \
        (void)queue, (void)dtype, (void)err;                                                      \
        return prepare_chunks(args, ret_bytes);                                                   \
    }
PREPARE_CHUNKS(linear_db)
PREPARE_CHUNKS(norm_dg)

template <typename T>
static void launch_linear_db(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    launch_chunks<T>(queue, args, NULL, NULL);
}
LAUNCHER(linear_db)

template <typename T>
static void launch_norm_dg(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    launch_chunks<T>(queue, args, args->in[1].data, args->in[2].data);
}
LAUNCHER(norm_dg)
