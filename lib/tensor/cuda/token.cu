/* Tokens and their places; the gradient of an embedding without atomic additions:
 *
 *     ids      7 3 7 9 3 7        sort.cuh: rows sorted by id, those of one id in their order
 *     by id    3: 1 4   7: 0 2 5   9: 3
 *     dW[7] += dy[0], then dy[2], then dy[5]: one warp for PACK(T) * 32 columns of a run
 */
#include "tensor/cuda/sort.cuh"
#include "tensor/cuda/sum.cuh"

/* ---- forward: a pack of columns a thread ----------------------------------------------------- */

struct places {
    int64_t sequence, first;
};

template <typename T>
static __global__ void embedding_kernel(const int32_t *ids, const float *w, const float *p, T *y,
                                        struct part part, struct places places, int64_t rows,
                                        int64_t columns)
{
    int64_t packs = (columns + PACK(T) - 1) / PACK(T), step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < rows * packs; u += step) {
        int64_t row = u / packs, j = u % packs * PACK(T), id = row_of(&part, ids[row]);
        float a[PACK(T)] = {0}, place[PACK(T)];

        if (id >= 0)
            load<T>(a, w + id * columns, j, columns);
        if (p != NULL) {
            load<T>(place, p + (row + places.first) % places.sequence * columns, j, columns);
            for (int k = 0; k < PACK(T); k++)
                a[k] += place[k];
        }
        store<T>(y + row * columns, j, columns, a);
    }
}

template <typename T>
static void launch_embedding(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t rows = ct_shape_rows(args->out[0].shape),
            columns = ct_shape_columns(args->out[0].shape);
    struct places places = {(int64_t)args->attr.sequence, (int64_t)args->attr.first};
    struct part part = part_of(&args->attr, ct_shape_rows(args->in[1].shape));

    CT_LAUNCH(embedding_kernel<T>,
              grid_of(queue, rows * ((columns + PACK(T) - 1) / PACK(T)), CT_CUDA_BLOCK),
              CT_CUDA_BLOCK, 0, queue->stream, (const int32_t *)args->in[0].data,
              (const float *)args->in[1].data, (const float *)args->in[2].data,
              (T *)args->out[0].data, part, places, rows, columns);
}
LAUNCHER(embedding)

static __global__ void add_rows_kernel(const float *x, const float *p, float *y,
                                       struct places places, int64_t rows, int64_t columns)
{
    int64_t packs = (columns + PACK(float) - 1) / PACK(float);
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < rows * packs; u += step) {
        int64_t row = u / packs, j = u % packs * PACK(float);
        float a[PACK(float)], place[PACK(float)];

        load<float>(a, x + row * columns, j, columns);
        load<float>(place, p + (row + places.first) % places.sequence * columns, j, columns);
        for (int k = 0; k < PACK(float); k++)
            a[k] += place[k];
        store<float>(y + row * columns, j, columns, a);
    }
}

LAUNCHER_HEAD(add_rows)
{
    int64_t rows = ct_shape_rows(args->out[0].shape),
            columns = ct_shape_columns(args->out[0].shape);
    struct places places = {(int64_t)args->attr.sequence, (int64_t)args->attr.begin};

    (void)dtype;
    CT_LAUNCH(add_rows_kernel,
              grid_of(queue, rows * ((columns + PACK(float) - 1) / PACK(float)), CT_CUDA_BLOCK),
              CT_CUDA_BLOCK, 0, queue->stream, (const float *)args->in[0].data,
              (const float *)args->in[1].data, (float *)args->out[0].data, places, rows, columns);
}

/* ---- backward: tokens ----------------------------------------------------------------------- */

/* The warp's columns of the run of `id` that begins at `at`: its rows' dy onto `sum`, in their
 * order. */
template <typename T>
static inline __device__ void add_run(const struct sorted *sorted, int64_t at, int32_t id,
                                      const T *dy, int64_t columns, int64_t j, float *sum)
{
    int lane = (int)threadIdx.x % 32;
    float d[PACK(T)];

    for (bool more = true; more; at += 32) {
        bool mine = at + lane < sorted->count && sorted->keys[at + lane] == id;
        int32_t row = mine ? sorted->rows[at + lane] : 0;
        int found = __popc(__ballot_sync(WHOLE_WARP, mine));

#pragma unroll 4
        for (int i = 0; i < found; i++) {
            load<T>(d, dy + (int64_t)__shfl_sync(WHOLE_WARP, row, i) * columns, j, columns);
            for (int k = 0; k < PACK(T); k++)
                sum[k] += d[k];
        }
        more = found == 32;
    }
}

template <typename T>
static __global__ void embedding_dw_kernel(struct sorted sorted, const T *dy, float *dw,
                                           int64_t columns, bool accumulate)
{
    int64_t tiles = (columns + 32 * PACK(T) - 1) / (32 * PACK(T)), units = sorted.count * tiles;
    int64_t warps = (int64_t)gridDim.x * blockDim.x / 32;
    int64_t warp = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;

    for (int64_t u = warp; u < units; u += warps) {
        int64_t at = u / tiles, j = (u % tiles * 32 + threadIdx.x % 32) * PACK(T);
        int32_t id = sorted.keys[at];
        float sum[PACK(T)] = {0};

        if (id == sorted.none || (at > 0 && sorted.keys[at - 1] == id))
            continue;
        if (accumulate)
            load<T>(sum, dw + id * columns, j, columns);
        add_run(&sorted, at, id, dy, columns, j, sum);
        store<T>(dw + id * columns, j, columns, sum);
    }
}

extern "C" int ct_cuda_embedding_dw_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                            const struct ct_kernel_args *args, size_t *ret_bytes,
                                            struct ct_error *err)
{
    (void)queue, (void)dtype, (void)err;
    *ret_bytes = sort_bytes(ct_shape_elements(args->in[0].shape));
    return 0;
}

template <typename T>
static void launch_embedding_dw(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t rows = ct_shape_rows(args->in[1].shape), columns = ct_shape_columns(args->in[1].shape);
    struct part part = part_of(&args->attr, ct_shape_rows(args->out[0].shape));
    struct sorted sorted = sort_rows(queue, (const int32_t *)args->in[0].data, part, rows);
    int64_t tiles = (columns + 32 * PACK(T) - 1) / (32 * PACK(T));

    if (!args->attr.accumulate)
        (void)cudaMemsetAsync(args->out[0].data, 0, ct_tensor_bytes(&args->out[0]), queue->stream);
    CT_LAUNCH(embedding_dw_kernel<T>, grid_of(queue, rows * tiles, CT_CUDA_BLOCK / 32),
              CT_CUDA_BLOCK, 0, queue->stream, sorted, (const T *)args->in[1].data,
              (float *)args->out[0].data, columns, args->attr.accumulate);
}
LAUNCHER(embedding_dw)

/* ---- backward: places, a pack of columns a thread, sequences in their order ----------------- */

template <typename T>
static __global__ void embedding_dp_kernel(const T *dy, float *dp, struct places places,
                                           int64_t rows, int64_t table, int64_t columns,
                                           bool accumulate)
{
    int64_t packs = (columns + PACK(T) - 1) / PACK(T), step = (int64_t)gridDim.x * blockDim.x;
    int64_t sequence = places.sequence;

    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < table * packs; u += step) {
        int64_t place = u / packs, j = u % packs * PACK(T);
        int64_t row = (place + sequence - places.first % sequence) % sequence;
        float sum[PACK(T)] = {0}, d[PACK(T)];

        if (accumulate)
            load<T>(sum, dp + place * columns, j, columns);
#pragma unroll 4
        for (; place < sequence && row < rows; row += sequence) {
            load<T>(d, dy + row * columns, j, columns);
            for (int k = 0; k < PACK(T); k++)
                sum[k] += d[k];
        }
        store<T>(dp + place * columns, j, columns, sum);
    }
}

template <typename T>
static void launch_embedding_dp(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);
    int64_t table = ct_shape_rows(args->out[0].shape);
    struct places places = {(int64_t)args->attr.sequence, (int64_t)args->attr.begin};

    CT_LAUNCH(embedding_dp_kernel<T>,
              grid_of(queue, table * ((columns + PACK(T) - 1) / PACK(T)), COLUMN_BLOCK),
              COLUMN_BLOCK, 0, queue->stream, (const T *)args->in[0].data,
              (float *)args->out[0].data, places, rows, table, columns, args->attr.accumulate);
}
LAUNCHER(embedding_dp)
