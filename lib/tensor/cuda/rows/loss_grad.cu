/* Loss, count and gradient of each row of logits, which is read once from memory.
 *
 *     f32, and rows that are      the CPU's sums (loss_row.cuh): maximum, exponentials, gradient,
 *     no whole packs              each a pass over the row in shared memory
 *     16 bits, rows of whole      the maximum and the sum of exponentials in one pass, which
 *     packs                       rescales the sum when the maximum grows (Milakov, Gimelshein,
 *                                 1805.02867); then the gradient
 */
#include "tensor/cuda/mma.cuh"
#include "tensor/cuda/rows/loss_row.cuh"

/* ---- any row -------------------------------------------------------------------------------- */

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

/* Whether a row has no label, and then its results: 0. */
template <typename T>
static inline __device__ bool is_left_out(int32_t label, int64_t columns, double *loss,
                                          double *right, T *dlogits)
{
    if (label >= columns)
        __trap();
    if (label >= 0)
        return false;
    if (threadIdx.x == 0)
        *loss = *right = 0;
    zero_row(dlogits, columns);
    return true;
}

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS, 2)
    cross_entropy_grad_kernel(const T *logits, const int32_t *labels, const double *scale,
                              T *dlogits, double *loss, double *right, int64_t rows,
                              int64_t columns, bool cached)
{
    CT_SHARED_BYTES(memory);
    __shared__ float best[MAX_WARPS], parts[PARTS], log_sum;
    float factor = (float)*scale;

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *x = logits + row * columns;
        T *cache = cached ? (T *)memory + skew_of(x) : NULL;
        int32_t label = labels[row];
        bool beaten = false;

        if (is_left_out(label, columns, loss + row, right + row, dlogits + row * columns))
            continue;
        float at_label = wide(x[label]);
        float max = row_max(x, columns, cache, best, label, &beaten);
        double sum = row_sum_exp(cached ? cache : x, columns, max, parts);

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

/* ---- 16 bits, whole packs ------------------------------------------------------------------- */

#define LOG2_E 1.4426950408889634f

enum { PACKS_AT_ONCE = 4 }; /* of a thread, that are on their way */

/* The largest logit seen and the sum of e^(x - max) over what was seen. */
struct soft {
    float max, sum;
};

static inline __device__ float power_of_e(float x, float max)
{
    return power_of_2(fmaf(x, LOG2_E, -max * LOG2_E));
}

/* Its sum with respect to a larger maximum; a thread that saw nothing has none. */
static inline __device__ float rescaled(struct soft soft, float max)
{
    return soft.sum == 0 ? 0 : soft.sum * power_of_e(soft.max, max);
}

static inline __device__ struct soft join_soft(struct soft a, struct soft b)
{
    float max = larger(a.max, b.max);
    struct soft both = {max, rescaled(a, max) + rescaled(b, max)};

    return both;
}

/* Take in a pack that begins `ahead` elements in front of the label. Returns whether it beats the
 * label's logit `goal`: a larger element, or one as large in front of the label. A NaN makes the
 * sum one. */
template <typename T>
static inline __device__ bool observe_pack(struct soft *soft, const union pack<T, T> *pack,
                                           int64_t ahead, float goal)
{
    float a[PACK(T)], most = -(float)INFINITY;
    bool beaten;

#pragma unroll
    for (int k = 0; k < PACK(T); k++) {
        a[k] = wide(pack->at[k]);
        most = larger(most, a[k]);
    }
    beaten = ahead >= PACK(T) ? most >= goal : most > goal;
    if (ahead > 0 && ahead < PACK(T))
        for (int k = 0; k < PACK(T); k++)
            beaten |= k < ahead && a[k] == goal;
    if (most > soft->max) {
        soft->sum = rescaled(*soft, most);
        soft->max = most;
    }
#pragma unroll
    for (int k = 0; k < PACK(T); k++)
        soft->sum += power_of_e(a[k], soft->max);
    return beaten;
}

/* The row into `cache`; its maximum and sum in all threads. *beaten: of this thread's elements. */
template <typename T>
static inline __device__ struct soft read_row(uint4 *cache, const uint4 *row, int packs,
                                              int64_t label, float goal, struct soft *warps,
                                              bool *beaten)
{
    struct soft own = {-1e38f, 0}; /* no infinity, which less another would be NaN */
    union pack<T, T> pack[PACKS_AT_ONCE];
    const int threads = (int)blockDim.x;

    for (int first = (int)threadIdx.x; first < packs; first += PACKS_AT_ONCE * threads) {
#pragma unroll
        for (int i = 0; i < PACKS_AT_ONCE; i++)
            if (first + i * threads < packs)
                pack[i].words[0] = __ldcs(row + first + i * threads);
#pragma unroll
        for (int i = 0; i < PACKS_AT_ONCE; i++) {
            int at = first + i * threads;

            if (at >= packs)
                continue;
            cache[at] = pack[i].words[0];
            *beaten |= observe_pack<T>(&own, &pack[i], label - (int64_t)at * PACK(T), goal);
        }
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        struct soft other = {__shfl_xor_sync(WHOLE_WARP, own.max, distance),
                             __shfl_xor_sync(WHOLE_WARP, own.sum, distance)};

        own = join_soft(own, other);
    }
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = own;
    __syncthreads();
    own = warps[0];
    for (int warp = 1; warp < threads / 32; warp++)
        own = join_soft(own, warps[warp]);
    return own;
}

/* factor (e^(x - max) / sum - [x is the label's]), each thread the packs that it has cached. */
template <typename T>
static inline __device__ void write_gradient(uint4 *to, const uint4 *cache, int packs,
                                             int64_t label, struct soft soft, float factor)
{
    const float share = factor / soft.sum;

    for (int at = (int)threadIdx.x; at < packs; at += (int)blockDim.x) {
        union pack<T, T> pack;
        int64_t own = label - (int64_t)at * PACK(T);

        pack.words[0] = cache[at];
#pragma unroll
        for (int k = 0; k < PACK(T); k++) {
            float slope = share * power_of_e(wide(pack.at[k]), soft.max);

            pack.at[k] = narrow<T>(k == own ? slope - factor : slope);
        }
        to[at] = pack.words[0];
    }
}

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS, 2)
    whole_rows_kernel(const T *logits, const int32_t *labels, const double *scale, T *dlogits,
                      double *loss, double *right, int64_t rows, int64_t columns)
{
    CT_SHARED_BYTES(memory);
    __shared__ struct soft warps[MAX_WARPS];
    const int packs = (int)(columns / PACK(T));
    float factor = (float)*scale;

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *x = logits + row * columns;
        int32_t label = labels[row];
        bool beaten = false;

        if (is_left_out(label, columns, loss + row, right + row, dlogits + row * columns))
            continue;
        float goal = wide(x[label]);
        struct soft soft =
            read_row<T>((uint4 *)memory, (const uint4 *)x, packs, label, goal, warps, &beaten);

        beaten = __syncthreads_or(beaten || soft.sum != soft.sum);
        write_gradient<T>((uint4 *)(dlogits + row * columns), (const uint4 *)memory, packs, label,
                          soft, factor);
        if (threadIdx.x == 0) {
            loss[row] = log_of((double)soft.sum) - ((double)goal - (double)soft.max);
            right[row] = beaten ? 0 : 1;
        }
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

extern "C" int ct_cuda_cross_entropy_grad_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                                  const struct ct_kernel_args *args,
                                                  size_t *ret_bytes, struct ct_error *err)
{
    int rc = ALLOW_ROWS(cross_entropy_grad_kernel, queue, dtype, err);

    (void)args;
    *ret_bytes = 0;
    if (rc != 0 || dtype == CT_F32)
        return rc;
    return dtype == CT_BF16 ? allow_rows(queue, whole_rows_kernel<__nv_bfloat16>, err)
                            : allow_rows(queue, whole_rows_kernel<__half>, err);
}

template <typename T>
static void launch_cross_entropy_grad(struct ct_cuda_queue *queue,
                                      const struct ct_kernel_args *args)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);
    size_t cache = cache_bytes(queue, columns, sizeof(T));
    const T *logits = (const T *)args->in[0].data;
    T *dlogits = (T *)args->out[0].data;
    uintptr_t bits = (uintptr_t)logits | (uintptr_t)dlogits;
    bool whole = cache > 0 && columns % PACK(T) == 0 && bits % 16 == 0;

    if constexpr (sizeof(T) == 2)
        if (whole) {
            CT_LAUNCH(whole_rows_kernel<T>, grid_of(queue, rows, 1), row_block(columns), cache,
                      queue->stream, logits, (const int32_t *)args->in[1].data,
                      (const double *)args->in[2].data, dlogits, (double *)args->out[1].data,
                      (double *)args->out[2].data, rows, columns);
            return;
        }
    CT_LAUNCH(cross_entropy_grad_kernel<T>, grid_of(queue, rows, 1), row_block(columns), cache,
              queue->stream, logits, (const int32_t *)args->in[1].data,
              (const double *)args->in[2].data, dlogits, (double *)args->out[1].data,
              (double *)args->out[2].data, rows, columns, cache > 0);
}
LAUNCHER(cross_entropy_grad)
