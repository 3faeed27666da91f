/* Norms over the columns, and sums over the rows for the gradients of what is added or multiplied
 * by columns.
 *
 * A row: half a warp; lane l of 16 reads x[l], x[l + 16], ..., twice or three times: what was read
 * before lies in the nearest cache. A column: chunks of 256 rows, each one chain of additions by
 * one thread, side by side into the workspace; then the chunks in their order.
 */
#include "tensor/cuda/mma.cuh"
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

/* summed: in[1] is added to in[0] first, and given as out[0]. */
template <typename T>
static void launch_norm(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                        bool centred, bool summed)
{
    struct norm norm = norm_of(args, centred);
    const struct ct_tensor *in = args->in + summed, *out = args->out + summed;

    CT_LAUNCH(norm_kernel<T>, grid_of(queue, norm.rows, HALF_WARPS), CT_CUDA_BLOCK, 0,
              queue->stream, (const T *)args->in[0].data,
              (const T *)(summed ? args->in[1].data : NULL),
              (T *)(summed ? args->out[0].data : NULL), (const float *)in[1].data,
              (const float *)in[2].data, (T *)out[0].data, (float *)out[1].data, norm);
}

/* The launcher of op `name`: `launch` with what sets the op apart from the others that it does. */
#define NORM(name, launch, ...)                                                               \
    template <typename T>                                                                     \
    static void launch_##name(struct ct_cuda_queue *queue, const struct ct_kernel_args *args) \
    {                                                                                         \
        launch<T>(queue, args, __VA_ARGS__);                                                  \
    }                                                                                         \
    LAUNCHER(name)
NORM(layernorm, launch_norm, true, false)
NORM(rmsnorm, launch_norm, false, false)
NORM(add_layernorm, launch_norm, true, true)
NORM(add_rmsnorm, launch_norm, false, true)

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

NORM(layernorm_dx, launch_norm_dx, true)
NORM(rmsnorm_dx, launch_norm_dx, false)

/* ---- sums over rows, in the order of a matrix product (tensor/cpu/gemm.h) -------------------- */

enum { ROWS_AT_ONCE = 32 }; /* of a column's pack that are on their way */

/* sum += the packs of `rows` rows that lie `columns` apart, each whole and aligned. */
template <typename T>
static inline __device__ void add_whole_packs(float *sum, const T *from, int rows, int64_t columns)
{
    union pack<T, T> packs[ROWS_AT_ONCE];

    for (int row = 0; row < rows; row += ROWS_AT_ONCE, from += ROWS_AT_ONCE * columns) {
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            if (row + i < rows)
                packs[i].words[0] = __ldcs((const uint4 *)(from + i * columns));
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            for (int k = 0; k < PACK(T) && row + i < rows; k++)
                sum[k] += wide(packs[i].at[k]);
    }
}

/* A pack of columns of a chunk a thread. With x: dy (x - mean) rstd, else dy. */
template <typename T>
static __global__ void chunks_kernel(const T *dy, const T *x, const float *stats, float *partial,
                                     int64_t rows, int64_t columns)
{
    int64_t packs = (columns + PACK(T) - 1) / PACK(T);
    int64_t units = (rows + CT_GEMM_KC - 1) / CT_GEMM_KC * packs;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    bool whole = x == NULL && columns % PACK(T) == 0 && aligned(dy);

    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < units; u += step) {
        int64_t chunk = u / packs, j = u % packs * PACK(T), row = chunk * CT_GEMM_KC;
        int64_t end = row + CT_GEMM_KC < rows ? row + CT_GEMM_KC : rows;
        float sum[PACK(T)] = {0}, d[PACK(T)], a[PACK(T)];

        if (whole) {
            add_whole_packs(sum, dy + row * columns + j, (int)(end - row), columns);
            row = end;
        }
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

enum { JOIN_COLUMNS = 32, JOIN_CHUNKS = 128, JOIN_ROWS = CT_CUDA_BLOCK / JOIN_COLUMNS };

/* `partial` has the columns of `first` and, unless that is NULL, those of `second` in a row. A block
 * reads JOIN_COLUMNS of them, many chunks at once; a thread a column then adds these in order. */
static __global__ void join_chunks_kernel(const float *partial, float *first, float *second,
                                          int64_t chunks, int64_t columns, bool accumulate)
{
    __shared__ float sums[JOIN_CHUNKS][JOIN_COLUMNS];
    int column = (int)threadIdx.x % JOIN_COLUMNS, row = (int)threadIdx.x / JOIN_COLUMNS;
    int64_t width = second == NULL ? columns : 2 * columns;
    int64_t j = (int64_t)blockIdx.x * JOIN_COLUMNS + column;
    float *out = j >= width ? NULL : j < columns ? first + j : second + (j - columns);
    float total = accumulate && out != NULL && row == 0 ? *out : 0;

    for (int64_t base = 0; base < chunks; base += JOIN_CHUNKS) {
#pragma unroll
        for (int i = row; i < JOIN_CHUNKS; i += JOIN_ROWS)
            sums[i][column] =
                out != NULL && base + i < chunks ? partial[(base + i) * width + j] : 0;
        __syncthreads();
#pragma unroll 16
        for (int i = 0; i < JOIN_CHUNKS && row == 0; i++)
            if (base + i < chunks)
                total += sums[i][column];
        __syncthreads();
    }
    if (out != NULL && row == 0)
        *out = total;
}

static void join_chunks(struct ct_cuda_queue *queue, float *first, float *second, int64_t chunks,
                        int64_t columns, bool accumulate)
{
    int64_t width = second == NULL ? columns : 2 * columns;

    if (width == 0)
        return;
    CT_LAUNCH(join_chunks_kernel, (unsigned)((width + JOIN_COLUMNS - 1) / JOIN_COLUMNS),
              CT_CUDA_BLOCK, 0, queue->stream, (const float *)queue->workspace, first, second,
              chunks, columns, accumulate);
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
    join_chunks(queue, (float *)args->out[0].data, NULL, chunks, columns, args->attr.accumulate);
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

/* ---- all of the backward with one reading of dy and x -----------------------------------------
 *
 * A block has a chunk of 256 rows and takes it tile by tile, the next tile on its way into shared
 * memory meanwhile:
 *
 *     tile of 32 rows    dy, x    a row:              half a warp, shift and slope as above
 *                                 a pair of columns:  a thread, down the rows: dx, and the chunk's
 *                                                     sums for dg and db
 *
 * Longer rows make lower tiles; where not even one row fits, it is three kernels. */

enum { NORM_BLOCK = 512, TILE_ROWS = NORM_BLOCK / LANES, STATIC_BYTES = 2048 };

struct tiling {
    int rows;     /* of a tile */
    int step;     /* elements from row to row: rows of two half-warps lie in other banks */
    size_t bytes; /* of shared memory: two tiles of dy and of x, sums of the columns */
};

static struct tiling tiling_of(const struct ct_cuda_queue *queue, int64_t columns, size_t size)
{
    int64_t step = (columns + 15) / 16 * 16 + LANES;
    int64_t row = 4 * step * (int64_t)size, sums = 2 * step * (int64_t)sizeof(float);
    int64_t fit = ((int64_t)queue->shared_bytes - STATIC_BYTES - sums) / row, most = TILE_ROWS;
    int64_t rows = fit < 0 ? 0 : fit < most ? fit : most;
    struct tiling tiling = {(int)rows, (int)step, (size_t)(rows * row + sums)};

    return tiling;
}

/* What a row's dx needs besides dy, x and g. */
struct row_facts {
    float mean, rstd;
    struct slopes slopes;
};

template <typename T> struct alignas(2 * sizeof(T)) two {
    T at[2];
};

/* Begin to copy `count` rows into a tile; what is not aligned is copied at once. */
template <typename T>
static inline __device__ void fetch_rows(T *tile, const T *from, int count, int64_t columns,
                                         int step)
{
    int packs = (int)((columns + PACK(T) - 1) / PACK(T));

    for (int u = (int)threadIdx.x; u < count * packs; u += (int)blockDim.x) {
        int row = u / packs, j = u % packs * PACK(T);
        const T *at = from + row * columns + j;
        T *to = tile + row * step + j;

        if (j + PACK(T) <= columns && aligned(at)) {
            copy_16(to, at, true);
        } else {
            for (int k = 0; k < PACK(T); k++)
                to[k] = j + k < columns ? at[k] : narrow<T>(0);
        }
    }
}

template <typename T>
static inline __device__ void find_facts(struct row_facts *facts, const T *dy, const T *x,
                                         const float *g, const float *stats, int count, int step,
                                         struct norm norm)
{
    int own = (int)threadIdx.x / LANES, row = own < count ? own : count - 1;
    int lane = (int)threadIdx.x % LANES;
    struct slopes slopes =
        slopes_of(dy + row * step, x + row * step, g, stats + row * 2, norm, lane);

    if (own == row && lane == 0) {
        facts[row].mean = stats[row * 2];
        facts[row].rstd = stats[row * 2 + 1];
        facts[row].slopes = slopes;
    }
}

/* Columns j and j + 1 of a tile's rows. sums: [dg, step][db, step] */
template <typename T>
static inline __device__ void take_columns(const struct row_facts *facts, const T *dy, const T *x,
                                           const float *g, T *dx, float *sums, int64_t j, int count,
                                           int step, struct norm norm)
{
    bool both = j + 1 < norm.columns, paired = norm.columns % 2 == 0 && aligned(dx);
    float dg[2] = {sums[j], sums[j + 1]}, db[2] = {sums[step + j], sums[step + j + 1]};
    const float factor[2] = {g[j], both ? g[j + 1] : 0};

#pragma unroll 4
    for (int row = 0; row < count; row++) {
        const struct row_facts fact = facts[row];
        const struct two<T> d = *(const struct two<T> *)(dy + row * step + j);
        const struct two<T> a = *(const struct two<T> *)(x + row * step + j);
        T *to = dx + row * norm.columns + j;
        struct two<T> made;

        for (int k = 0; k < 2; k++) {
            float up = wide(d.at[k]), unit = (wide(a.at[k]) - fact.mean) * fact.rstd;
            float along = up * factor[k];

            dg[k] += up * unit;
            db[k] += up;
            if (norm.centred)
                along = along - fact.slopes.shift;
            else
                unit = wide(a.at[k]) * fact.rstd;
            made.at[k] = narrow<T>(fact.rstd * (along - unit * fact.slopes.slope));
        }
        if (paired) {
            *(struct two<T> *)to = made;
        } else {
            to[0] = made.at[0];
            if (both)
                to[1] = made.at[1];
        }
    }
    for (int k = 0; k < 2; k++) {
        sums[j + k] = dg[k];
        sums[step + j + k] = db[k];
    }
}

/* partial: a row a chunk, the columns of dg, then, when `biased`, those of db */
template <typename T>
static __global__ void __launch_bounds__(NORM_BLOCK, 1)
    norm_bw_kernel(const T *dy, const T *x, const float *g, const float *stats, T *dx,
                   float *partial, bool biased, struct norm norm, struct tiling tiling)
{
    CT_SHARED_BYTES(memory);
    __shared__ struct row_facts facts[TILE_ROWS];
    const int step = tiling.step, tile = tiling.rows * step;
    const int64_t width = biased ? 2 * norm.columns : norm.columns;
    T *tiles = (T *)memory;
    float *sums = (float *)(memory + 4 * (size_t)tile * sizeof(T));

    for (int64_t from = (int64_t)blockIdx.x * CT_GEMM_KC; from < norm.rows;
         from += (int64_t)gridDim.x * CT_GEMM_KC) {
        int rows = norm.rows - from < CT_GEMM_KC ? (int)(norm.rows - from) : (int)CT_GEMM_KC;

        for (int64_t j = 2 * threadIdx.x; j < norm.columns; j += 2 * blockDim.x)
            sums[j] = sums[j + 1] = sums[step + j] = sums[step + j + 1] = 0;
        for (int row = -tiling.rows, turn = 1; row < rows; row += tiling.rows, turn = 1 - turn) {
            T *own = tiles + 2 * turn * tile, *next = tiles + 2 * (1 - turn) * tile;
            int count = rows - row < tiling.rows ? rows - row : tiling.rows;
            int after = row + tiling.rows, more = rows - after;
            int64_t first = from + row, second = from + after;

            copies_end_group(); /* an empty one: all there were are waited for */
            copies_wait_but_newest();
            __syncthreads(); /* this tile is there, the one before is done with */
            if (more > 0) {
                more = more < tiling.rows ? more : tiling.rows;
                fetch_rows(next, dy + second * norm.columns, more, norm.columns, step);
                fetch_rows(next + tile, x + second * norm.columns, more, norm.columns, step);
                copies_end_group();
            }
            if (row < 0)
                continue;
            find_facts(facts, own, own + tile, g, stats + first * 2, count, step, norm);
            __syncthreads();
            for (int64_t j = 2 * threadIdx.x; j < norm.columns; j += 2 * blockDim.x)
                take_columns(facts, own, own + tile, g, dx + first * norm.columns, sums, j, count,
                             step, norm);
        }
        for (int64_t j = 2 * threadIdx.x; j < norm.columns; j += 2 * blockDim.x)
            for (int64_t k = j; k < j + 2 && k < norm.columns; k++) {
                float *to = partial + from / CT_GEMM_KC * width + k;

                to[0] = sums[k];
                if (biased)
                    to[norm.columns] = sums[step + k];
            }
    }
}

static void launch_parts(struct ct_cuda_queue *queue, enum ct_op_kind op, enum ct_dtype dtype,
                         const struct ct_kernel_args *args)
{
    struct ct_op_part parts[CT_OP_MAX_PARTS];
    int count = ct_op_parts(op, args, parts);

    for (int i = 0; i < count; i++)
        ct_cuda_kernels[parts[i].op].launch(queue, dtype, &parts[i].args);
}

template <typename T>
static void launch_norm_bw(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                           bool centred)
{
    struct norm norm = norm_of(args, centred);
    struct tiling tiling = tiling_of(queue, norm.columns, sizeof(T));
    int64_t chunks = chunks_of(args);
    bool biased = args->out[2].data != NULL;
    float *partial = (float *)queue->workspace;

    if (tiling.rows == 0) {
        launch_parts(queue, centred ? CT_OP_LAYERNORM_BW : CT_OP_RMSNORM_BW, args->in[0].dtype,
                     args);
        return;
    }
    CT_LAUNCH(norm_bw_kernel<T>, grid_of(queue, chunks, 1), NORM_BLOCK, tiling.bytes, queue->stream,
              (const T *)args->in[0].data, (const T *)args->in[1].data,
              (const float *)args->in[2].data, (const float *)args->in[3].data,
              (T *)args->out[0].data, partial, biased, norm, tiling);
    join_chunks(queue, (float *)args->out[1].data, (float *)args->out[2].data, chunks, norm.columns,
                args->attr.accumulate);
}

NORM(layernorm_bw, launch_norm_bw, true)
NORM(rmsnorm_bw, launch_norm_bw, false)

/* Room for the sums of all chunks; and leave for tiles as large as a block may have. */
template <typename T>
static int prepare_norm_bw(const struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                           size_t *ret_bytes, struct ct_error *err)
{
    cudaError_t rc =
        cudaFuncSetAttribute(norm_bw_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)(queue->shared_bytes - STATIC_BYTES));

    *ret_bytes =
        2 * (size_t)(chunks_of(args) * ct_shape_columns(args->in[0].shape)) * sizeof(float);
    return rc == cudaSuccess
               ? 0
               : ct_error_set(err, CT_EDEVICE, "norms: %zu bytes of shared memory: %s",
                              queue->shared_bytes - STATIC_BYTES, cudaGetErrorString(rc));
}

#define PREPARE_NORM_BW(name)                                                                     \
    extern "C" int ct_cuda_##name##_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,     \
                                            const struct ct_kernel_args *args, size_t *ret_bytes, \
                                            struct ct_error *err)                                 \
    {                                                                                             \
        return dtype == CT_F32    ? prepare_norm_bw<float>(queue, args, ret_bytes, err)           \
               : dtype == CT_BF16 ? prepare_norm_bw<__nv_bfloat16>(queue, args, ret_bytes, err)   \
                                  : prepare_norm_bw<__half>(queue, args, ret_bytes, err);         \
    }
PREPARE_NORM_BW(layernorm_bw)
PREPARE_NORM_BW(rmsnorm_bw)
