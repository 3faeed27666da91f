/* Norms over the columns, forward, and their dx alone.
 *
 * A row: half a warp; lane l of 16 reads x[l], x[l + 16], ..., twice or three times: what was read
 * before lies in the nearest cache. Of 16 bits: a warp that holds the row in registers. */
#include "tensor/cuda/rows/norm.cuh"

/* Rows `row` of a half-warp: all half-warps of a warp go round equally often, for its shuffles; a
 * row beyond the end is computed as the last one and not kept. */
#define EACH_ROW(row, rows)                                                           \
    for (int64_t row##_base = (int64_t)blockIdx.x * HALF_WARPS; row##_base < (rows);  \
         row##_base += (int64_t)gridDim.x * HALF_WARPS)                               \
        for (int64_t row##_own = row##_base + threadIdx.x / LANES,                    \
                     row = row##_own < (rows) ? row##_own : (rows)-1, row##_once = 1; \
             row##_once != 0; row##_once = 0)

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

/* y = (x - mean) rstd g (+ b), a pack of x at `j`. */
template <typename T>
static inline __device__ void scale_pack(const float *x, T *y, const float *g, const float *b,
                                         const float *stats, int64_t j, int64_t columns)
{
    float factor[PACK(T)], shift[PACK(T)], a[PACK(T)];

    load<T>(factor, g, j, columns);
    if (b != NULL)
        load<T>(shift, b, j, columns);
    for (int k = 0; k < PACK(T); k++) {
        a[k] = (x[k] - stats[0]) * stats[1] * factor[k];
        if (b != NULL)
            a[k] += shift[k];
    }
    store<T>(y, j, columns, a);
}

template <typename T>
static inline __device__ void scale_row(const T *x, T *y, const float *g, const float *b,
                                        const float *stats, int64_t columns, int lane)
{
    for (int64_t j = lane * PACK(T); j < columns; j += LANES * PACK(T)) {
        float a[PACK(T)];

        load<T>(a, x, j, columns);
        scale_pack<T>(a, y, g, b, stats, j, columns);
    }
}

/* h = x + more, a pack at a time. */
template <typename T>
static inline __device__ void add_row(const T *x, const T *more, T *h, int64_t columns, int lane)
{
    for (int64_t j = lane * PACK(T); j < columns; j += LANES * PACK(T)) {
        float a[PACK(T)], b[PACK(T)];

        load<T>(a, x, j, columns);
        load<T>(b, more, j, columns);
        for (int k = 0; k < PACK(T); k++)
            a[k] += b[k];
        store<T>(h, j, columns, a);
    }
}

/* Of x, or, unless `more` is NULL, of h = x + more, which may lie where x does. */
template <typename T>
static __global__ void norm_kernel(const T *x, const T *more, T *h, const float *g, const float *b,
                                   T *y, float *stats, struct norm norm)
{
    int lane = (int)threadIdx.x % LANES;

    EACH_ROW(row, norm.rows)
    {
        const T *from = x + row * norm.columns;
        float own[2] = {0, 0}, count = (float)norm.columns;

        if (more != NULL) {
            T *sum = h + row * norm.columns;

            if (row == row_own)
                add_row(from, more + row * norm.columns, sum, norm.columns, lane);
            __syncwarp(); /* what other lanes have written is read */
            from = sum;
        }
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

enum { ROW_PACKS = 8, WARP = 32, WARPS = CT_CUDA_BLOCK / WARP };

#define EACH_HELD(i)                    \
    for (int i = 0; i < ROW_PACKS; i++) \
        if (i * WARP + lane < packs)

/* The same of 16 bits, for aligned rows of whole packs that a warp holds in registers, ROW_PACKS of
 * a lane at most: read once, and summed up in another order. */
template <typename T>
static __global__ void __launch_bounds__(CT_CUDA_BLOCK, 2)
    held_norm_kernel(const T *x, const T *more, T *h, const float *g, const float *b, T *y,
                     float *stats, struct norm norm)
{
    int lane = (int)threadIdx.x % WARP, packs = (int)(norm.columns / PACK(T));
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, first = row * norm.columns;
    union pack<T, T> held[ROW_PACKS], other[ROW_PACKS];
    float mean = 0, squares = 0, count = (float)norm.columns;

    if (row >= norm.rows)
        return;
#pragma unroll
    EACH_HELD(i)
    held[i].words[0] = ((const uint4 *)(x + first))[i * WARP + lane];
    if (more != NULL) {
#pragma unroll
        EACH_HELD(i)
        other[i].words[0] = ((const uint4 *)(more + first))[i * WARP + lane];
#pragma unroll
        EACH_HELD(i)
        {
            for (int k = 0; k < PACK(T); k++)
                held[i].at[k] = narrow<T>(wide(held[i].at[k]) + wide(other[i].at[k]));
            ((uint4 *)(h + first))[i * WARP + lane] = held[i].words[0];
        }
    }
#pragma unroll
    EACH_HELD(i)
    for (int k = 0; k < PACK(T); k++)
        mean += wide(held[i].at[k]);
    mean = norm.centred ? warp_sum(mean) / count : 0;
#pragma unroll
    EACH_HELD(i)
    for (int k = 0; k < PACK(T); k++) {
        float d = wide(held[i].at[k]) - mean;

        squares = fmaf(d, d, squares);
    }

    const float own[2] = {mean, 1 / sqrtf(warp_sum(squares) / count + norm.eps)};
#pragma unroll
    EACH_HELD(i)
    {
        float a[PACK(T)];

        for (int k = 0; k < PACK(T); k++)
            a[k] = wide(held[i].at[k]);
        scale_pack<T>(a, y + first, g, b, own, ((int64_t)i * WARP + lane) * PACK(T), norm.columns);
    }
    if (lane < 2)
        stats[row * 2 + lane] = lane == 0 ? own[0] : own[1];
}

/* Whether its rows are aligned, whole packs, few enough for a warp's registers, and of 16 bits. */
template <typename T>
static bool is_held(const struct norm *norm, const struct ct_kernel_args *args)
{
    bool fits = sizeof(T) == 2 && norm->rows > 0 && norm->columns % PACK(T) == 0 &&
                norm->columns <= ROW_PACKS * WARP * PACK(T);

    for (int i = 0; i < CT_OP_MAX_IN && fits; i++)
        fits = aligned(args->in[i].data);
    for (int i = 0; i < CT_OP_MAX_OUT && fits; i++)
        fits = aligned(args->out[i].data);
    return fits;
}

/* summed: in[1] is added to in[0] first, and given as out[0]. */
template <typename T>
static void launch_norm(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                        bool centred, bool summed)
{
    struct norm norm = norm_of(args, centred);
    const struct ct_tensor *in = args->in + summed, *out = args->out + summed;

    if (is_held<T>(&norm, args)) {
        CT_LAUNCH(held_norm_kernel<T>, (unsigned)((norm.rows + WARPS - 1) / WARPS), CT_CUDA_BLOCK,
                  0, queue->stream, (const T *)args->in[0].data,
                  (const T *)(summed ? args->in[1].data : NULL),
                  (T *)(summed ? args->out[0].data : NULL), (const float *)in[1].data,
                  (const float *)in[2].data, (T *)out[0].data, (float *)out[1].data, norm);
        return;
    }
    CT_LAUNCH(norm_kernel<T>, grid_of(queue, norm.rows, HALF_WARPS), CT_CUDA_BLOCK, 0,
              queue->stream, (const T *)args->in[0].data,
              (const T *)(summed ? args->in[1].data : NULL),
              (T *)(summed ? args->out[0].data : NULL), (const float *)in[1].data,
              (const float *)in[2].data, (T *)out[0].data, (float *)out[1].data, norm);
}

NORM(layernorm, launch_norm, true, false)
NORM(rmsnorm, launch_norm, false, false)
NORM(add_layernorm, launch_norm, true, true)
NORM(add_rmsnorm, launch_norm, false, true)

/* ---- backward: with n = (x - mean) rstd, dx = rstd (dy g - mean(dy g) - n mean(dy g n)) ------ */

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

NORM(layernorm_dx, launch_norm_dx, true)
NORM(rmsnorm_dx, launch_norm_dx, false)
