/* Attention of any head, by a warp a query (or a key): the other side passes by, 32 rows at a time.
 *
 *     lane j      the score of row j, a dot product of whole rows, and what follows from it
 *     all lanes   add up row 0, 1 .. 31 times its factor, a lane every 32nd element
 *
 *     forward     s = q k;  m' = max(m, s);  l = l e^(m - m') + sum of e^(s - m');  y likewise
 *     backward    p = e^(q k - lse);  ds = p (dy v - delta);  dq += ds k,  dk += ds q,  dv += p dy
 *
 * A query's bits depend on its place and on the rows before it alone, so that cached attention
 * gives those of the whole sequence. Heads for tensor cores go to flash_64.cu and flash_128.cu. */
#include "tensor/cuda/attention/attention.h"
#include "tensor/cuda/number.cuh"

#include <assert.h>

#define WARPS 4
#define THREADS (32 * WARPS)
#define BLOCKS 4 /* of a multiprocessor; so heads above 256 do not fit the registers */

/* Elements of a head that a lane has, at most: the code is there for each of these. */
#define BY_WORDS(size, function, ...)          \
    do {                                       \
        if ((size) <= 64)                      \
            function(2, __VA_ARGS__);          \
        else if ((size) <= 128)                \
            function(4, __VA_ARGS__);          \
        else if ((size) <= 256)                \
            function(8, __VA_ARGS__);          \
        else                                   \
            function(MOST_WORDS, __VA_ARGS__); \
    } while (0)
#define MOST_WORDS (CT_HEAD_MAX_SIZE / 32)

/* What a warp works on: rows of q (and y, dy), of k and of v, with the elements between two rows.
 */
template <class T> struct ct_rows {
    const T *q, *k, *v, *dy;
    int64_t q_step, kv_step, y_step;
    int size;
    float scale;
};

static __device__ __forceinline__ int lane(void)
{
    return (int)threadIdx.x & 31;
}

/* Number of the warp in the grid. */
static __device__ __forceinline__ int64_t warp(void)
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, other));
    return x;
}

template <class T>
static __device__ __forceinline__ void give(const int words, T *row, const float *from, int size,
                                            float factor)
{
#pragma unroll
    for (int i = 0; i < words; i++) {
        int at = lane() + 32 * i;

        if (at < size)
            row[at] = narrow<T>(from[i] * factor);
    }
}

template <class T> static __device__ __forceinline__ float dot(const T *a, const T *b, int size)
{
    float sum = 0;

#pragma unroll 8
    for (int i = 0; i < size; i++)
        sum = fmaf(wide(a[i]), wide(b[i]), sum);
    return sum;
}

/* to += the rows from `row` on, `count` of them, each times the factor that its lane has. */
template <class T>
static __device__ __forceinline__ void add_rows(const int words, float *to, float factor,
                                                const T *row, int64_t step, int count, int size)
{
    for (int j = 0; j < count; j++) {
        float f = __shfl_sync(0xffffffffu, factor, j);

#pragma unroll
        for (int i = 0; i < words; i++) {
            int at = lane() + 32 * i;

            if (at < size)
                to[i] = fmaf(f, wide(row[j * step + at]), to[i]);
        }
    }
}

/* ---- forward -------------------------------------------------------------------------------- */

/* y and lse of the query in row `query` of q, of the keys in rows 0 .. last. */
template <class T>
static __device__ __forceinline__ void query_row(const int words, const ct_rows<T> &r,
                                                 int64_t query, int last, T *y, float *lse)
{
    const T *q = r.q + query * r.q_step;
    float sum[MOST_WORDS] = {0}, max = -INFINITY, total = 0;

    for (int key = 0; key <= last; key += 32) {
        int mine = key + lane(), count = last - key < 32 ? last - key + 1 : 32;
        float s = -INFINITY;

        if (mine <= last)
            s = dot(q, r.k + mine * r.kv_step, r.size) * r.scale;
        float best = fmaxf(max, warp_max(s)), shrink = expf(max - best), p = expf(s - best);

        max = best;
        total = fmaf(total, shrink, warp_sum(p));
#pragma unroll
        for (int i = 0; i < words; i++)
            sum[i] *= shrink;
        add_rows(words, sum, p, r.v + key * r.kv_step, r.kv_step, count, r.size);
    }
    give(words, y, sum, r.size, 1 / total);
    if (lse != NULL && lane() == 0)
        *lse = max + logf(total);
}

template <class T>
static __device__ __forceinline__ ct_rows<T> rows_of(const struct ct_cuda_heads &a, int64_t unit)
{
    int64_t row = unit / a.heads * a.sequence, width = (int64_t)a.heads * a.size;
    int64_t column = unit % a.heads * a.size;
    ct_rows<T> r;

    r.q_step = r.kv_step = 3 * width;
    r.y_step = width;
    r.q = (const T *)a.qkv + row * r.q_step + column;
    r.k = r.q + width;
    r.v = r.k + width;
    r.dy = (const T *)a.dy + row * width + column;
    r.size = a.size;
    r.scale = 1 / sqrtf((float)a.size);
    return r;
}

/* A warp a query: one head of a sequence after the other. */
template <class T>
static __global__ void __launch_bounds__(THREADS, BLOCKS) attention_rows(struct ct_cuda_heads a)
{
    int64_t unit = warp() / a.sequence, row = unit / a.heads * a.sequence, head = unit % a.heads;
    int query = (int)(warp() % a.sequence);

    if (unit >= a.sequences * a.heads)
        return;
    ct_rows<T> r = rows_of<T>(a, unit);
    T *y = (T *)a.y + (row + query) * r.y_step + head * a.size;

    BY_WORDS(a.size, query_row, r, query, query, y, &a.lse[(row + query) * a.heads + head]);
}

/* What attention_cached works on: qkv [rows, 3 width], cache [places, 2 width]. */
struct ct_cached {
    const float *qkv;
    const int32_t *places;
    float *y, *cache;
    int64_t rows, room;
    int heads, size;
};

/* Keys and values of the new tokens become rows of the cache: a block a token. */
static __global__ void keep(struct ct_cached a)
{
    int64_t width = (int64_t)a.heads * a.size, row = blockIdx.x, place = a.places[0] + row;

    assert(place >= 0 && place < a.room);
    for (int64_t i = threadIdx.x; i < 2 * width; i += THREADS)
        a.cache[place * 2 * width + i] = a.qkv[row * 3 * width + width + i];
}

static __global__ void __launch_bounds__(THREADS, BLOCKS) attention_cached_rows(struct ct_cached a)
{
    int64_t width = (int64_t)a.heads * a.size, row = warp() / a.heads;
    int64_t column = warp() % a.heads * a.size;
    ct_rows<float> r;

    if (row >= a.rows)
        return;
    r.q_step = 3 * width;
    r.kv_step = 2 * width;
    r.q = a.qkv + column;
    r.k = a.cache + column;
    r.v = r.k + width;
    r.size = a.size;
    r.scale = 1 / sqrtf((float)a.size);
    BY_WORDS(a.size, query_row, r, row, a.places[0] + (int)row, a.y + row * width + column,
             (float *)NULL);
}

/* ---- backward ------------------------------------------------------------------------------- */

/* delta: a warp a head of a row. */
template <class T> static __global__ void __launch_bounds__(THREADS) deltas(struct ct_cuda_heads a)
{
    const T *dy = (const T *)a.dy + warp() * a.size, *y = (const T *)a.y + warp() * a.size;
    float sum = 0;

    if (warp() >= a.sequences * a.sequence * a.heads)
        return;
    for (int i = lane(); i < a.size; i += 32)
        sum = fmaf(wide(dy[i]), wide(y[i]), sum);
    sum = warp_sum(sum);
    if (lane() == 0)
        a.delta[warp()] = sum;
}

template <class T>
static __device__ __forceinline__ void query_gradient(const int words, const ct_rows<T> &r,
                                                      int query, float lse, float delta, T *to)
{
    const T *q = r.q + query * r.q_step, *dy = r.dy + query * r.y_step;
    float dq[MOST_WORDS] = {0};

    for (int key = 0; key <= query; key += 32) {
        int64_t mine = key + lane();
        int count = query - key < 32 ? query - key + 1 : 32;
        float ds = 0;

        if (mine <= query) {
            float p = expf(dot(q, r.k + mine * r.kv_step, r.size) * r.scale - lse);

            ds = p * (dot(dy, r.v + mine * r.kv_step, r.size) - delta);
        }
        add_rows(words, dq, ds, r.k + key * r.kv_step, r.kv_step, count, r.size);
    }
    give(words, to, dq, r.size, r.scale);
}

/* dq: a warp a query. */
template <class T>
static __global__ void __launch_bounds__(THREADS, BLOCKS) query_gradients(struct ct_cuda_heads a)
{
    int64_t unit = warp() / a.sequence, row = unit / a.heads * a.sequence, head = unit % a.heads;
    int query = (int)(warp() % a.sequence);

    if (unit >= a.sequences * a.heads)
        return;
    ct_rows<T> r = rows_of<T>(a, unit);
    int64_t at = (row + query) * a.heads + head;
    T *to = (T *)a.dqkv + (row + query) * r.q_step + head * a.size;

    BY_WORDS(a.size, query_gradient, r, query, a.lse[at], a.delta[at], to);
}

/* dk and, a width behind it, dv of one key; lse and delta of the head's first query. */
template <class T>
static __device__ __forceinline__ void key_gradient(const int words, const ct_rows<T> &r, int key,
                                                    const struct ct_cuda_heads &a, const float *lse,
                                                    const float *delta, T *to)
{
    const T *k = r.k + key * r.kv_step, *v = r.v + key * r.kv_step;
    float dk[MOST_WORDS] = {0}, dv[MOST_WORDS] = {0};

    for (int query = key; query < a.sequence; query += 32) {
        int64_t mine = query + lane();
        int count = a.sequence - query < 32 ? a.sequence - query : 32;
        float p = 0, ds = 0;

        if (mine < a.sequence) {
            p = expf(dot(r.q + mine * r.q_step, k, r.size) * r.scale - lse[mine * a.heads]);
            ds = p * (dot(r.dy + mine * r.y_step, v, r.size) - delta[mine * a.heads]);
        }
        add_rows(words, dv, p, r.dy + query * r.y_step, r.y_step, count, r.size);
        add_rows(words, dk, ds, r.q + query * r.q_step, r.q_step, count, r.size);
    }
    give(words, to, dk, r.size, r.scale);
    give(words, to + r.y_step, dv, r.size, 1);
}

/* dk and dv: a warp a key. */
template <class T>
static __global__ void __launch_bounds__(THREADS, BLOCKS) key_gradients(struct ct_cuda_heads a)
{
    int64_t unit = warp() / a.sequence, row = unit / a.heads * a.sequence, head = unit % a.heads;
    int key = (int)(warp() % a.sequence);

    if (unit >= a.sequences * a.heads)
        return;
    ct_rows<T> r = rows_of<T>(a, unit);
    int64_t at = row * a.heads + head;
    T *to = (T *)a.dqkv + (row + key) * r.q_step + r.y_step + head * a.size;

    BY_WORDS(a.size, key_gradient, r, key, a, a.lse + at, a.delta + at, to);
}

/* ---- launchers ------------------------------------------------------------------------------ */

/* Blocks for a warp each of `units`. */
static unsigned blocks(int64_t units)
{
    return (unsigned)((units + WARPS - 1) / WARPS);
}

template <class T> static void forward(const struct ct_cuda_heads *a, struct CUstream_st *stream)
{
    int64_t queries = a->sequences * a->sequence * a->heads;

    CT_LAUNCH(attention_rows<T>, blocks(queries), THREADS, 0, stream, *a);
}

template <class T>
static void backward(const struct ct_cuda_queue *queue, const struct ct_cuda_heads *a,
                     enum ct_dtype dtype)
{
    const struct ct_cuda_flash *flash = ct_cuda_heads_flash(queue, a, dtype);
    int64_t rows = a->sequences * a->sequence * a->heads;

    if (flash != NULL) {
        flash->backward(a, dtype, queue->stream);
        return;
    }
    CT_LAUNCH(deltas<T>, blocks(rows), THREADS, 0, queue->stream, *a);
    CT_LAUNCH(query_gradients<T>, blocks(rows), THREADS, 0, queue->stream, *a);
    CT_LAUNCH(key_gradients<T>, blocks(rows), THREADS, 0, queue->stream, *a);
}

static int prepare(const struct ct_cuda_queue *queue, const struct ct_cuda_heads *a,
                   enum ct_dtype dtype, struct ct_error *err)
{
    const struct ct_cuda_flash *flash = ct_cuda_heads_flash(queue, a, dtype);
    int rc = flash == NULL ? 0 : flash->prepare(dtype);

    if (rc == 0)
        return 0;
    return ct_error_set(err, CT_EUNSUPPORTED,
                        "attention: CUDA error %d for the shared memory of heads of %d", rc,
                        (int)a->size);
}

extern "C" int ct_cuda_attention_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                         const struct ct_kernel_args *args, size_t *,
                                         struct ct_error *err)
{
    struct ct_cuda_heads a = ct_cuda_heads_forward(args);

    return prepare(queue, &a, dtype, err);
}

extern "C" int ct_cuda_attention_bw_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                            const struct ct_kernel_args *args, size_t *ret_bytes,
                                            struct ct_error *err)
{
    struct ct_cuda_heads a = ct_cuda_heads_backward(args, NULL);

    *ret_bytes = ct_cuda_heads_workspace(&a);
    return prepare(queue, &a, dtype, err);
}

extern "C" void ct_cuda_attention(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                  const struct ct_kernel_args *args)
{
    struct ct_cuda_heads a = ct_cuda_heads_forward(args);
    const struct ct_cuda_flash *flash = ct_cuda_heads_flash(queue, &a, dtype);

    if (a.sequences == 0)
        return;
    if (flash != NULL)
        flash->forward(&a, dtype, queue->stream);
    else if (dtype == CT_F32)
        forward<float>(&a, queue->stream);
    else if (dtype == CT_BF16)
        forward<__nv_bfloat16>(&a, queue->stream);
    else
        forward<__half>(&a, queue->stream);
}

extern "C" void ct_cuda_attention_bw(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                     const struct ct_kernel_args *args)
{
    struct ct_cuda_heads a = ct_cuda_heads_backward(args, queue->workspace);

    if (a.sequences == 0)
        return;
    if (dtype == CT_F32)
        backward<float>(queue, &a, dtype);
    else if (dtype == CT_BF16)
        backward<__nv_bfloat16>(queue, &a, dtype);
    else
        backward<__half>(queue, &a, dtype);
}

extern "C" void ct_cuda_attention_cached(struct ct_cuda_queue *queue, enum ct_dtype,
                                         const struct ct_kernel_args *args)
{
    struct ct_cached a;

    a.qkv = (const float *)args->in[0].data;
    a.places = (const int32_t *)args->in[1].data;
    a.y = (float *)args->out[0].data;
    a.cache = (float *)args->out[1].data;
    a.rows = ct_shape_rows(args->in[0].shape);
    a.room = ct_shape_rows(args->out[1].shape);
    a.heads = (int)args->attr.heads;
    a.size = (int)(ct_shape_columns(args->out[0].shape) / (int64_t)args->attr.heads);
    if (a.rows == 0)
        return;
    CT_LAUNCH(keep, (unsigned)a.rows, THREADS, 0, queue->stream, a);
    CT_LAUNCH(attention_cached_rows, blocks(a.rows * a.heads), THREADS, 0, queue->stream, a);
}
