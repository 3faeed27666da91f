/* See row_sum.h: linear_db and norm_dg. */
#include "tensor/cuda/rows/row_sum.h"
#include "tensor/cuda/sum.cuh"

enum { ROWS_AT_ONCE = 16 }; /* of a column's pack that are on their way */

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
    const int length = CT_CUDA_CHUNK_ROWS(sizeof(T));
    int64_t units = (rows + length - 1) / length * packs;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    bool whole = x == NULL && columns % PACK(T) == 0 && aligned(dy);

    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < units; u += step) {
        int64_t chunk = u / packs, j = u % packs * PACK(T), row = chunk * length;
        int64_t end = row + length < rows ? row + length : rows;
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

enum { JOIN_COLUMNS = 32, JOIN_SHARES = CT_CUDA_BLOCK / JOIN_COLUMNS };

/* `partial` has the columns of `first` and, unless that is NULL, those of `second` in a row. A
 * column is JOIN_SHARES threads', each of which adds up `share` chunks in their order; then their
 * sums are added in order. */
static __global__ void join_chunks_kernel(const float *partial, float *first, float *second,
                                          int64_t chunks, int64_t share, int64_t columns,
                                          bool accumulate)
{
    __shared__ float sums[JOIN_SHARES][JOIN_COLUMNS];
    int column = (int)threadIdx.x % JOIN_COLUMNS, own = (int)threadIdx.x / JOIN_COLUMNS;
    int64_t width = second == NULL ? columns : 2 * columns;
    int64_t j = (int64_t)blockIdx.x * JOIN_COLUMNS + column, begin = own * share;
    int64_t end = begin + share < chunks ? begin + share : chunks;
    float *out = j >= width ? NULL : j < columns ? first + j : second + (j - columns);
    float total = accumulate && own == 0 && out != NULL ? *out : 0;

    if (out != NULL) {
        partial += j;
#pragma unroll 16
        for (int64_t chunk = begin; chunk < end; chunk++)
            total += partial[chunk * width];
    }
    sums[own][column] = total;
    __syncthreads();
    if (own != 0 || out == NULL)
        return;
    for (int i = 1; i < JOIN_SHARES; i++)
        total += sums[i][column];
    *out = total;
}

extern "C" void ct_cuda_join_chunks(struct ct_cuda_queue *queue, enum ct_dtype dtype, float *first,
                                    float *second, int64_t chunks, int64_t columns, bool accumulate)
{
    int64_t width = second == NULL ? columns : 2 * columns;
    int64_t share = dtype == CT_F32 ? chunks : (chunks + JOIN_SHARES - 1) / JOIN_SHARES;

    if (width == 0)
        return;
    CT_LAUNCH(join_chunks_kernel, (unsigned)((width + JOIN_COLUMNS - 1) / JOIN_COLUMNS),
              CT_CUDA_BLOCK, 0, queue->stream, (const float *)queue->workspace, first, second,
              chunks, share, columns, accumulate);
}

template <typename T>
static void launch_chunks(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                          const void *x, const void *stats)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);
    int64_t chunks = ct_cuda_row_chunks(args), units = chunks * ((columns + PACK(T) - 1) / PACK(T));
    float *partial = (float *)queue->workspace;

    CT_LAUNCH(chunks_kernel<T>, grid_of(queue, units, COLUMN_BLOCK), COLUMN_BLOCK, 0, queue->stream,
              (const T *)args->in[0].data, (const T *)x, (const float *)stats, partial, rows,
              columns);
    ct_cuda_join_chunks(queue, args->in[0].dtype, (float *)args->out[0].data, NULL, chunks, columns,
                        args->attr.accumulate);
}

static int prepare_chunks(const struct ct_kernel_args *args, size_t *ret_bytes)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);

    *ret_bytes = (size_t)(ct_cuda_row_chunks(args) * columns) * sizeof(float);
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
