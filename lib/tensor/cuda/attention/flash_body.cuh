/* Causal attention with heads of HEAD elements on tensor cores.
 *
 * forward: a block has QUERIES queries of one head, a warp ROW_TILES times 16 of them; keys and
 * values pass by in tiles of KEYS, the next tile on its way while this one is used:
 *
 *     s = q k^T;  m' = max(m, s);  p = e^(s - m')
 *     l = l e^(m - m') + sum p;    y = y e^(m - m') + p v       at the end y / l, lse = m + log l
 *
 * backward, keys: a block has 64 keys, a warp 16; queries and dy pass by from the diagonal on. All
 * is transposed, so that p and ds are operands from registers:
 *
 *     p^T = e^(k q^T - lse);  dv += p^T dy;  ds^T = p^T (v dy^T - delta);  dk += ds^T q
 *
 * backward, queries: a block has 64 queries, a warp 16; keys and values pass by up to the diagonal:
 *
 *     p = e^(q k^T - lse);  ds = p (dy v^T - delta);  dq += ds k
 *
 * Sums are floats; p and ds are rounded to T before they are multiplied. e^x is 2^(x log2 e). Rows
 * behind the end of the sequence are zero in every tile: they add nothing, and are not stored.
 *
 * The file that includes this defines HEAD, the size of the tiles (ROW_TILES, KEYS, PASSING:
 * queries, or keys, of a tile that passes in the backward), FORWARD_BLOCKS, KEYS_BLOCKS and
 * QUERIES_BLOCKS (of each kernel, a multiprocessor), and FLASH, the beginning of its functions'
 * names. With WARPGROUP it multiplies as Hopper does (flash_wgmma.cuh), else by warps
 * (flash_mma.cuh), and then needs AT_ONCE (queries of a passing tile that a warp computes with at a
 * time). */
#include "tensor/cuda/attention/attention.h"
#include "tensor/cuda/number.cuh"

#define WARPS 4
#define THREADS (32 * WARPS)

#include "tensor/cuda/attention/tile.cuh"

#define QUERIES (WARPS * ROW_TILES * 16)
#define OWN (WARPS * 16)   /* keys, or queries, of a block of the backward */
#define COLUMNS (HEAD / 8) /* tiles of C, and ... */
#define DEPTH (HEAD / 16)  /* ... products deep, of a head */
#define PASSING_BYTES (PASSING * ROW_BYTES)
#define LOG2_E 1.4426950408889634f

/* Where a head of a sequence lies: its rows, and what lies between them. */
template <class T> struct ct_head {
    const T *q, *k, *v;
    int64_t step, row; /* elements between rows of qkv; first row */
    int sequence, heads, number, width;
};

template <class T>
static __device__ __forceinline__ ct_head<T> head_of(const struct ct_cuda_heads &a, int64_t unit)
{
    ct_head<T> h;

    h.heads = a.heads;
    h.sequence = a.sequence;
    h.number = (int)(unit % a.heads);
    h.width = a.heads * HEAD;
    h.step = 3 * (int64_t)h.width;
    h.row = unit / a.heads * a.sequence;
    h.q = (const T *)a.qkv + h.row * h.step + h.number * HEAD;
    h.k = h.q + h.width;
    h.v = h.k + h.width;
    return h;
}

static __device__ __forceinline__ int lesser(int a, int b)
{
    return a < b ? a : b;
}

/* c[i] of a tile of C: its row among 16, its column among 8. */
static __device__ __forceinline__ int row_of(int i)
{
    return (((int)threadIdx.x & 31) >> 2) + 8 * (i >> 1);
}

static __device__ __forceinline__ int column_of(int i)
{
    return 2 * ((int)threadIdx.x & 3) + (i & 1);
}

/* The largest, and the sum, of what the four lanes that share a row of C have. */
static __device__ __forceinline__ float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

static __device__ __forceinline__ void clear(float (*c)[4], int tiles)
{
#pragma unroll
    for (int n = 0; n < tiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[n][i] = 0;
}

/* Rows `row` and up of a head, HEAD columns at `to`, from c [16, HEAD] times a factor a row. */
template <class T>
static __device__ __forceinline__ void store(T *to, int64_t step, int row, int rows,
                                             const float (*c)[4], const float factor[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int at = row + row_of(2 * half);

        if (at >= rows)
            continue;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            float low = c[n][2 * half] * factor[half], high = c[n][2 * half + 1] * factor[half];

            *(uint32_t *)(to + at * step + 8 * n + column_of(0)) = pair(T(), low, high);
        }
    }
}

/* Begin to copy `rows` keys from place `key` on, and their values behind them. */
template <class T>
static __device__ __forceinline__ void fetch_keys(unsigned char *to, const ct_head<T> &h, int key,
                                                  const int rows)
{
    fetch(to, h.k + key * h.step, h.step, rows, h.sequence - key);
    fetch(to + rows * ROW_BYTES, h.v + key * h.step, h.step, rows, h.sequence - key);
}

/* ---- what a step needs ----------------------------------------------------------------------- */

struct ct_flash_rows {
    float y[ROW_TILES * COLUMNS][4];
    float max[ROW_TILES][2], sum[ROW_TILES][2]; /* of rows g and g + 8; the sum of this lane's */
};

/* Scores s of rows m become exponentials; what is older shrinks. `scale` turns a score into an
 * exponent of 2. */
static __device__ __forceinline__ void absorb(struct ct_flash_rows *r, const int m, float (*s)[4],
                                              float scale)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float best = r->max[m][half], old = best, total = 0;

#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            best = fmaxf(best, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        best = row_max(best);
        float shrink = power_of_2((old - best) * scale), less = best * scale;

#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = power_of_2(fmaf(s[n][i], scale, -less));
                total += s[n][i];
            }
        r->max[m][half] = best;
        r->sum[m][half] = fmaf(r->sum[m][half], shrink, total);
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            r->y[m * COLUMNS + n][2 * half] *= shrink;
            r->y[m * COLUMNS + n][2 * half + 1] *= shrink;
        }
    }
}

/* Scores of keys that a query does not see, behind its place: minus infinity. */
static __device__ __forceinline__ void hide(float (*s)[4], int query, int key)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (key + 8 * n + column_of(i) > query + row_of(i))
                s[n][i] = -INFINITY;
}

/* Queries and dy of a tile that passes, with their lse and delta. */
struct ct_flash_passing {
    unsigned char *q, *dy;
    float *lse, *delta;
};

static __device__ __forceinline__ struct ct_flash_passing passing_at(unsigned char *memory,
                                                                     int stage)
{
    unsigned char *at = memory + stage * 2 * PASSING_BYTES;
    float *numbers = (float *)(memory + 4 * PASSING_BYTES) + stage * 2 * PASSING;

    return {at, at + PASSING_BYTES, numbers, numbers + PASSING};
}

/* p from a score, for one element: `less` is lse as an exponent of 2. */
static __device__ __forceinline__ float likelihood(float s, bool seen, float scale, float less)
{
    return seen ? power_of_2(fmaf(s, scale, -less)) : 0;
}

/* ds from dy v^T, for one element. */
static __device__ __forceinline__ float slope(float p, float ds, bool seen, float delta)
{
    return seen ? p * (ds - delta) : 0;
}

/* ---- steps: tile_row, own_row, attend, keys_step, queries_step ------------------------------ */

#ifdef WARPGROUP
#include "tensor/cuda/attention/flash_wgmma.cuh"
#else
#include "tensor/cuda/attention/flash_mma.cuh"
#endif

/* ---- kernels --------------------------------------------------------------------------------- */

template <class T>
static __device__ __forceinline__ void finish(struct ct_flash_rows *r, const ct_head<T> &h,
                                              const struct ct_cuda_heads &a, int first, float scale)
{
    T *y = (T *)a.y + h.row * h.width + h.number * HEAD;

#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
        float factor[2];

#pragma unroll
        for (int half = 0; half < 2; half++) {
            int place = first + tile_row(m) + row_of(2 * half);
            float sum = row_sum(r->sum[m][half]);

            factor[half] = 1 / sum;
            if (place < h.sequence && (threadIdx.x & 3) == 0)
                a.lse[(h.row + place) * h.heads + h.number] = r->max[m][half] * scale + logf(sum);
        }
        store(y, h.width, first + tile_row(m), h.sequence, r->y + m * COLUMNS, factor);
    }
}

/* blockIdx.x counts tiles of queries, the last (and longest) first, of one head after the other. */
template <class T>
static __global__ void __launch_bounds__(THREADS, FORWARD_BLOCKS) flash(struct ct_cuda_heads a)
{
    CT_SHARED_BYTES(memory);
    const int tile = KEYS * ROW_BYTES;
    unsigned char *q = memory, *keys = q + QUERIES * ROW_BYTES;
    int tiles = (a.sequence + QUERIES - 1) / QUERIES;
    ct_head<T> h = head_of<T>(a, blockIdx.x / tiles);
    int first = (tiles - 1 - (int)(blockIdx.x % tiles)) * QUERIES;
    int end = lesser(first + QUERIES, h.sequence);
    float scale = 1 / sqrtf((float)HEAD);
    struct ct_flash_rows r;

#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
        clear(r.y + m * COLUMNS, COLUMNS);
        r.max[m][0] = r.max[m][1] = -INFINITY;
        r.sum[m][0] = r.sum[m][1] = 0;
    }
    fetch(q, h.q + first * h.step, h.step, QUERIES, h.sequence - first);
    fetch_keys(keys, h, 0, KEYS);
    copies_end_group();
    for (int key = 0, stage = 0; key < end; key += KEYS, stage ^= 1) {
        unsigned char *k = keys + stage * 2 * tile;

        if (key + KEYS < end)
            fetch_keys(keys + (stage ^ 1) * 2 * tile, h, key + KEYS, KEYS);
        copies_end_group();
        copies_wait_but_newest();
        show_tiles();
        __syncthreads();
        attend<T>(&r, q, k, first, key, scale * LOG2_E);
        __syncthreads();
    }
    finish(&r, h, a, first, scale);
}

template <class T>
static __device__ __forceinline__ void fetch_queries(const struct ct_flash_passing &to,
                                                     const ct_head<T> &h,
                                                     const struct ct_cuda_heads &a, int query)
{
    const T *dy = (const T *)a.dy + h.row * h.width + h.number * HEAD;
    int64_t at = (h.row + query) * h.heads + h.number;

    fetch(to.q, h.q + query * h.step, h.step, PASSING, h.sequence - query);
    fetch(to.dy, dy + (int64_t)query * h.width, h.width, PASSING, h.sequence - query);
    if (threadIdx.x < PASSING) {
        bool is = query + (int)threadIdx.x < h.sequence;
        int64_t from = is ? at + (int64_t)threadIdx.x * h.heads : 0;

        copy_4(&to.lse[threadIdx.x], a.lse + from, is);
        copy_4(&to.delta[threadIdx.x], a.delta + from, is);
    }
}

#define DELTA_LANES (HEAD / 8)

/* delta: each head's sum of dy y in a row; DELTA_LANES threads a head, 16 bytes each. */
template <class T> static __global__ void __launch_bounds__(THREADS) deltas(struct ct_cuda_heads a)
{
    int64_t unit = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / DELTA_LANES;
    int64_t units = a.sequences * a.sequence * a.heads, at = unit < units ? unit : units - 1;
    int lane = (int)threadIdx.x % DELTA_LANES;
    float y[8], dy[8], sum = 0;

    load<T>(y, (const T *)a.y + at * HEAD, lane * 8, HEAD);
    load<T>(dy, (const T *)a.dy + at * HEAD, lane * 8, HEAD);
#pragma unroll
    for (int k = 0; k < 8; k++)
        sum = fmaf(dy[k], y[k], sum);
#pragma unroll
    for (int distance = DELTA_LANES / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (unit < units && lane == 0)
        a.delta[unit] = sum;
}

/* blockIdx.x counts tiles of keys, the first (and longest) first, of one head after the other. */
template <class T>
static __global__ void __launch_bounds__(THREADS, KEYS_BLOCKS) flash_keys(struct ct_cuda_heads a)
{
    CT_SHARED_BYTES(memory);
    unsigned char *k = memory, *v = k + OWN * ROW_BYTES, *queries = v + OWN * ROW_BYTES;
    int tiles = (a.sequence + OWN - 1) / OWN;
    ct_head<T> h = head_of<T>(a, blockIdx.x / tiles);
    int first = (int)(blockIdx.x % tiles) * OWN, row = own_row();
    float dk[COLUMNS][4], dv[COLUMNS][4];
    float scale = 1 / sqrtf((float)HEAD);

    clear(dk, COLUMNS);
    clear(dv, COLUMNS);
    fetch(k, h.k + first * h.step, h.step, OWN, h.sequence - first);
    fetch(v, h.v + first * h.step, h.step, OWN, h.sequence - first);
    fetch_queries(passing_at(queries, 0), h, a, first);
    copies_end_group();
    for (int query = first, stage = 0; query < h.sequence; query += PASSING, stage ^= 1) {
        if (query + PASSING < h.sequence)
            fetch_queries(passing_at(queries, stage ^ 1), h, a, query + PASSING);
        copies_end_group();
        copies_wait_but_newest();
        show_tiles();
        __syncthreads();
        keys_step<T>(dk, dv, k, v, passing_at(queries, stage), query, first);
        __syncthreads();
    }
    const float factor[2] = {scale, scale}, one[2] = {1, 1};
    T *to = (T *)a.dqkv + h.row * h.step + h.width + h.number * HEAD;

    store(to, h.step, first + row, h.sequence, dk, factor);
    store(to + h.width, h.step, first + row, h.sequence, dv, one);
}

/* blockIdx.x counts tiles of queries, the last (and longest) first, of one head after the other. */
template <class T>
static __global__ void __launch_bounds__(THREADS, QUERIES_BLOCKS)
    flash_queries(struct ct_cuda_heads a)
{
    CT_SHARED_BYTES(memory);
    unsigned char *q = memory, *dy = q + OWN * ROW_BYTES, *keys = dy + OWN * ROW_BYTES;
    int tiles = (a.sequence + OWN - 1) / OWN;
    ct_head<T> h = head_of<T>(a, blockIdx.x / tiles);
    int first = (tiles - 1 - (int)(blockIdx.x % tiles)) * OWN, row = own_row();
    int end = lesser(first + OWN, h.sequence);
    float dq[COLUMNS][4], less[2], delta[2];
    float scale = 1 / sqrtf((float)HEAD);

    clear(dq, COLUMNS);
    for (int half = 0; half < 2; half++) {
        int place = lesser(first + row + row_of(2 * half), h.sequence - 1);

        less[half] = a.lse[(h.row + place) * h.heads + h.number] * LOG2_E;
        delta[half] = a.delta[(h.row + place) * h.heads + h.number];
    }
    fetch(q, h.q + first * h.step, h.step, OWN, h.sequence - first);
    fetch(dy, (const T *)a.dy + (h.row + first) * h.width + h.number * HEAD, h.width, OWN,
          h.sequence - first);
    fetch_keys(keys, h, 0, PASSING);
    copies_end_group();
    for (int key = 0, stage = 0; key < end; key += PASSING, stage ^= 1) {
        unsigned char *k = keys + stage * 2 * PASSING_BYTES;

        if (key + PASSING < end)
            fetch_keys(keys + (stage ^ 1) * 2 * PASSING_BYTES, h, key + PASSING, PASSING);
        copies_end_group();
        copies_wait_but_newest();
        show_tiles();
        __syncthreads();
        queries_step<T>(dq, q, dy, k, first, key, less, delta);
        __syncthreads();
    }
    const float factor[2] = {scale, scale};

    store((T *)a.dqkv + h.row * h.step + h.number * HEAD, h.step, first + row, h.sequence, dq,
          factor);
}

/* ---- launching ------------------------------------------------------------------------------ */

#define FLASH_SHARED ((QUERIES + 4 * KEYS) * ROW_BYTES)
#define QUERIES_SHARED ((2 * OWN + 4 * PASSING) * ROW_BYTES)
#define KEYS_SHARED (QUERIES_SHARED + 4 * PASSING * (int)sizeof(float))

static unsigned blocks(const struct ct_cuda_heads *a, int tile)
{
    return (unsigned)((a->sequence + tile - 1) / tile * a->sequences * a->heads);
}

template <class T> static int prepare(void)
{
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    int rc = cudaFuncSetAttribute(flash<T>, most, FLASH_SHARED);

    if (rc == 0)
        rc = cudaFuncSetAttribute(flash_keys<T>, most, KEYS_SHARED);
    if (rc == 0)
        rc = cudaFuncSetAttribute(flash_queries<T>, most, QUERIES_SHARED);
    return rc;
}

template <class T> static void forward(const struct ct_cuda_heads *a, struct CUstream_st *stream)
{
    CT_LAUNCH(flash<T>, blocks(a, QUERIES), THREADS, FLASH_SHARED, stream, *a);
}

template <class T> static void backward(const struct ct_cuda_heads *a, struct CUstream_st *stream)
{
    int64_t lanes = a->sequences * a->sequence * a->heads * DELTA_LANES;

    CT_LAUNCH(deltas<T>, (unsigned)((lanes + THREADS - 1) / THREADS), THREADS, 0, stream, *a);
    CT_LAUNCH(flash_keys<T>, blocks(a, OWN), THREADS, KEYS_SHARED, stream, *a);
    CT_LAUNCH(flash_queries<T>, blocks(a, OWN), THREADS, QUERIES_SHARED, stream, *a);
}

/* This HEAD's row of attention.h. */
#define FLASH_ROW_OF(flash, head) FLASH_JOIN(flash, head)
#define FLASH_JOIN(flash, head) ct_cuda_##flash##_##head
#define FLASH_ROW FLASH_ROW_OF(FLASH, HEAD)

static int prepare_any(enum ct_dtype dtype)
{
    return dtype == CT_BF16 ? prepare<__nv_bfloat16>() : prepare<__half>();
}

static void forward_any(const struct ct_cuda_heads *heads, enum ct_dtype dtype,
                        struct CUstream_st *stream)
{
    if (dtype == CT_BF16)
        forward<__nv_bfloat16>(heads, stream);
    else
        forward<__half>(heads, stream);
}

static void backward_any(const struct ct_cuda_heads *heads, enum ct_dtype dtype,
                         struct CUstream_st *stream)
{
    if (dtype == CT_BF16)
        backward<__nv_bfloat16>(heads, stream);
    else
        backward<__half>(heads, stream);
}

const struct ct_cuda_flash FLASH_ROW = {prepare_any, forward_any, backward_any};
