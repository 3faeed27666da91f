/* All of a norm's backward with one reading of dy and x. A block has a chunk of rows (row_sum.h)
 * and takes it tile by tile, the next tile on its way into shared memory meanwhile:
 *
 *     tile of 16 rows    dy, x    a row:              half a warp, shift and slope as in norm.cuh
 *                                 a pair of columns:  a thread, down the rows: dx, and the chunk's
 *                                                     sums for dg and db
 *
 * Longer rows make lower tiles; where not even one row fits, it is three kernels. */
#include "tensor/cuda/rows/norm.cuh"

enum { TILE_ROWS = HALF_WARPS, STATIC_BYTES = 1024 };

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

/* Begin to copy `count` rows into a tile, half a warp a row; unaligned rows are copied at once. */
template <typename T>
static inline __device__ void fetch_rows(T *tile, const T *from, int count, int64_t columns,
                                         int step)
{
    int row = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;

    from += row * columns;
    tile += row * step;
    for (int j = lane * PACK(T); row < count && j < columns; j += LANES * PACK(T)) {
        if (j + PACK(T) <= columns && aligned(from + j)) {
            copy_16(tile + j, from + j, true);
        } else {
            for (int k = 0; k < PACK(T); k++)
                tile[j + k] = j + k < columns ? from[j + k] : narrow<T>(0);
        }
    }
}

/* The same of a row of a tile, of 16 bits: a pack a lane and turn. */
template <typename T>
static inline __device__ struct slopes packed_slopes_of(const T *dy, const T *x, const float *g,
                                                        const float *stats, struct norm norm,
                                                        int lane)
{
    float mean = norm.centred ? stats[0] : 0, one = 0, two = 0;
    struct slopes slopes;

    for (int j = lane * PACK(T); j < norm.columns; j += LANES * PACK(T)) {
        const union pack<T, T> d = *(const union pack<T, T> *)(dy + j);
        const union pack<T, T> a = *(const union pack<T, T> *)(x + j);
        float factor[PACK(T)];

        load<T>(factor, g, j,
                norm.columns); /* 0 behind the row, whose place in the tile is 0, too */
        for (int k = 0; k < PACK(T); k++) {
            float along = wide(d.at[k]) * factor[k];

            one += along;
            two = fmaf(along, wide(a.at[k]) - mean, two);
        }
    }
    slopes.shift = norm.centred ? fold_lanes(one) / (float)norm.columns : 0;
    slopes.slope = fold_lanes(two) * stats[1] / (float)norm.columns;
    return slopes;
}

template <typename T>
static inline __device__ void find_facts(struct row_facts *facts, const T *dy, const T *x,
                                         const float *g, const float *stats, int count, int step,
                                         struct norm norm)
{
    int own = (int)threadIdx.x / LANES, row = own < count ? own : count - 1;
    int lane = (int)threadIdx.x % LANES;
    struct slopes slopes =
        sizeof(T) == 2
            ? packed_slopes_of(dy + row * step, x + row * step, g, stats + row * 2, norm, lane)
            : slopes_of(dy + row * step, x + row * step, g, stats + row * 2, norm, lane);

    if (own == row && lane == 0) {
        facts[row].mean = stats[row * 2];
        facts[row].rstd = stats[row * 2 + 1];
        facts[row].slopes = slopes;
    }
}

/* Columns j and j + 1 of a tile's rows. sums: [dg, step][db, step] */
template <typename T>
static inline __device__ void load_columns(const struct row_facts *facts, const T *dy, const T *x,
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

        for (int k = 0; k < 2; k++) { /* without a mean, mean and shift are 0 */
            float up = wide(d.at[k]), unit = (wide(a.at[k]) - fact.mean) * fact.rstd;

            dg[k] += up * unit;
            db[k] += up;
            made.at[k] = narrow<T>(fact.rstd *
                                   (up * factor[k] - fact.slopes.shift - unit * fact.slopes.slope));
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

enum { FOUR = 4 };

template <typename E> struct alignas(FOUR * sizeof(E)) four {
    E at[FOUR];
};

/* The same of 16 bits, of columns j .. j + 3, each operand aligned to four elements. */
template <typename T>
static inline __device__ void load_fours(const struct row_facts *facts, const T *dy, const T *x,
                                         const float *g, T *dx, float *sums, int64_t j, int count,
                                         int step, int64_t columns)
{
    struct four<float> dg = *(struct four<float> *)(sums + j);
    struct four<float> db = *(struct four<float> *)(sums + step + j);
    float factor[FOUR];
    T *to = dx + j;

    for (int k = 0; k < FOUR; k++)
        factor[k] = g[j + k];
#pragma unroll 4
    for (int row = 0; row < count; row++, to += columns) {
        const struct row_facts fact = facts[row];
        const struct four<T> d = *(const struct four<T> *)(dy + row * step + j);
        const struct four<T> a = *(const struct four<T> *)(x + row * step + j);
        const float less = -fact.mean * fact.rstd;
        struct four<T> made;

        for (int k = 0; k < FOUR; k++) {
            float up = wide(d.at[k]), unit = fmaf(wide(a.at[k]), fact.rstd, less);
            float along = fmaf(up, factor[k], -fact.slopes.shift);

            dg.at[k] = fmaf(up, unit, dg.at[k]);
            db.at[k] += up;
            made.at[k] = narrow<T>(fact.rstd * fmaf(-unit, fact.slopes.slope, along));
        }
        *(struct four<T> *)to = made;
    }
    *(struct four<float> *)(sums + j) = dg;
    *(struct four<float> *)(sums + step + j) = db;
}

/* partial: a row a chunk, the columns of dg, then, when `biased`, those of db */
template <typename T>
static __global__ void __launch_bounds__(CT_CUDA_BLOCK, 2)
    norm_bw_kernel(const T *dy, const T *x, const float *g, const float *stats, T *dx,
                   float *partial, bool biased, struct norm norm, struct tiling tiling)
{
    CT_SHARED_BYTES(memory);
    __shared__ struct row_facts facts[TILE_ROWS];
    const int step = tiling.step, tile = tiling.rows * step, length = CT_CUDA_CHUNK_ROWS(sizeof(T));
    const int64_t width = biased ? 2 * norm.columns : norm.columns;
    const bool fours = sizeof(T) == 2 && norm.columns % FOUR == 0 && aligned(dx);
    T *tiles = (T *)memory;
    float *sums = (float *)(memory + 4 * (size_t)tile * sizeof(T));

    for (int64_t from = (int64_t)blockIdx.x * length; from < norm.rows;
         from += (int64_t)gridDim.x * length) {
        int rows = norm.rows - from < length ? (int)(norm.rows - from) : length;

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
            if (fours)
                for (int64_t j = FOUR * threadIdx.x; j < norm.columns; j += FOUR * blockDim.x)
                    load_fours(facts, own, own + tile, g, dx + first * norm.columns, sums, j, count,
                               step, norm.columns);
            else
                for (int64_t j = 2 * threadIdx.x; j < norm.columns; j += 2 * blockDim.x)
                    load_columns(facts, own, own + tile, g, dx + first * norm.columns, sums, j,
                                 count, step, norm);
        }
        __syncthreads(); /* sums of other threads' columns are read */
        for (int64_t j = 2 * threadIdx.x; j < norm.columns; j += 2 * blockDim.x)
            for (int64_t k = j; k < j + 2 && k < norm.columns; k++) {
                float *to = partial + from / length * width + k;

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
    int64_t chunks = ct_cuda_row_chunks(args);
    bool biased = args->out[2].data != NULL;
    float *partial = (float *)queue->workspace;

    if (tiling.rows == 0) {
        launch_parts(queue, centred ? CT_OP_LAYERNORM_BW : CT_OP_RMSNORM_BW, args->in[0].dtype,
                     args);
        return;
    }
    CT_LAUNCH(norm_bw_kernel<T>, grid_of(queue, chunks, 1), CT_CUDA_BLOCK, tiling.bytes,
              queue->stream, (const T *)args->in[0].data, (const T *)args->in[1].data,
              (const float *)args->in[2].data, (const float *)args->in[3].data,
              (T *)args->out[0].data, partial, biased, norm, tiling);
    ct_cuda_join_chunks(queue, args->in[0].dtype, (float *)args->out[1].data,
                        (float *)args->out[2].data, chunks, norm.columns, args->attr.accumulate);
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

    *ret_bytes = 2 * (size_t)(ct_cuda_row_chunks(args) * ct_shape_columns(args->in[0].shape)) *
                 sizeof(float);
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
