/* The rows of a batch sorted by token, those of one token in their order: a radix sort of eight
 * bits a pass, stable, so that what follows adds up in one order.
 *
 *     tile 0 | tile 1 | ...      count: how often each digit stands in a tile
 *                                scan:  where the first of each (digit, tile) goes
 *                                move:  within a tile warp by warp, within a warp lane by lane
 */
#ifndef CT_TENSOR_CUDA_SORT_CUH
#define CT_TENSOR_CUDA_SORT_CUH

#include "tensor/cuda/number.cuh"

enum {
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS,
    SORT_WARPS = DIGITS / 32,
    WARP_ROUNDS = 4,
    TILE_ROWS = SORT_WARPS * WARP_ROUNDS * 32,
    SCAN_BLOCK = 1024
};

/* What `begin` and `part` of an op make of a table's rows. */
struct part {
    int64_t begin, rows;
    bool is_part;
};

static struct part part_of(const struct ct_attr *attr, int64_t rows)
{
    struct part part = {(int64_t)attr->begin, rows, attr->part};

    return part;
}

/* The row of the table that `id` has here; -1 when it has none. */
static inline __device__ int64_t row_of(const struct part *part, int32_t id)
{
    int64_t row = part->is_part ? id - part->begin : id;

    if (id < 0)
        return -1;
    if (row >= 0 && row < part->rows)
        return row;
    if (!part->is_part)
        __trap();
    return -1;
}

struct sorted {
    const int32_t *keys, *rows;
    int64_t count;
    int32_t none; /* the key of rows without a token here; they come last */
};

/* What a pass reads: rows as they stand, whose keys are their ids', or what the pass before wrote.
 */
struct sort_input {
    const int32_t *ids, *keys, *rows;
    struct part part;
    int64_t count, tiles;
    int shift;
};

static inline __device__ int32_t key_of(const struct sort_input *in, int64_t i)
{
    if (in->keys != NULL)
        return in->keys[i];
    int64_t row = row_of(&in->part, in->ids[i]);

    return (int32_t)(row < 0 ? in->part.rows : row);
}

/* Element of the tile that this thread has in a round: a warp's are side by side. */
static inline __device__ int64_t tile_element(int64_t tile, int round)
{
    return tile * TILE_ROWS + (threadIdx.x / 32 * WARP_ROUNDS + round) * 32 + threadIdx.x % 32;
}

static __global__ void sort_count_kernel(struct sort_input in, int32_t *counts)
{
    __shared__ int32_t own[DIGITS];

    for (int64_t tile = blockIdx.x; tile < in.tiles; tile += gridDim.x) {
        own[threadIdx.x] = 0;
        __syncthreads();
        for (int round = 0; round < WARP_ROUNDS; round++) {
            int64_t i = tile_element(tile, round);

            if (i < in.count)
                atomicAdd(&own[key_of(&in, i) >> in.shift & (DIGITS - 1)], 1);
        }
        __syncthreads();
        counts[threadIdx.x * in.tiles + tile] = own[threadIdx.x];
        __syncthreads();
    }
}

/* One block: each number becomes the sum of those in front of it. */
static __global__ void sort_scan_kernel(int32_t *counts, int64_t n)
{
    __shared__ int32_t totals[SCAN_BLOCK];
    int64_t each = (n + SCAN_BLOCK - 1) / SCAN_BLOCK, first = threadIdx.x * each;
    int64_t end = first + each < n ? first + each : n;
    int32_t sum = 0;

    for (int64_t i = first; i < end; i++)
        sum += counts[i];
    totals[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned distance = 1; distance < SCAN_BLOCK; distance *= 2) {
        int32_t before = threadIdx.x >= distance ? totals[threadIdx.x - distance] : 0;

        __syncthreads();
        totals[threadIdx.x] += before;
        __syncthreads();
    }
    sum = totals[threadIdx.x] - sum;
    for (int64_t i = first; i < end; i++) {
        int32_t own = counts[i];

        counts[i] = sum;
        sum += own;
    }
}

static __global__ void sort_move_kernel(struct sort_input in, const int32_t *starts, int32_t *keys,
                                        int32_t *rows)
{
    __shared__ int32_t next[SORT_WARPS][DIGITS]; /* where a warp's next of a digit goes */
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

    for (int64_t tile = blockIdx.x; tile < in.tiles; tile += gridDim.x) {
        for (int w = 0; w < SORT_WARPS; w++)
            next[w][threadIdx.x] = 0;
        __syncthreads();
        for (int round = 0; round < WARP_ROUNDS; round++) {
            int64_t i = tile_element(tile, round);

            if (i < in.count)
                atomicAdd(&next[warp][key_of(&in, i) >> in.shift & (DIGITS - 1)], 1);
        }
        __syncthreads();
        int32_t at = starts[threadIdx.x * in.tiles + tile];

        for (int w = 0; w < SORT_WARPS; w++) {
            int32_t own = next[w][threadIdx.x];

            next[w][threadIdx.x] = at;
            at += own;
        }
        __syncthreads();
        for (int round = 0; round < WARP_ROUNDS; round++) {
            int64_t i = tile_element(tile, round);
            int32_t key = i < in.count ? key_of(&in, i) : 0;
            unsigned digit = DIGITS; /* beyond the end */

            if (i < in.count)
                digit = (unsigned)key >> in.shift & (DIGITS - 1);
            unsigned same = __match_any_sync(0xffffffffu, digit);
            int before = __popc(same & ((1u << lane) - 1));
            int64_t to = digit < DIGITS ? next[warp][digit] + before : 0;

            __syncwarp();
            if (digit < DIGITS) {
                keys[to] = key;
                rows[to] = in.rows != NULL ? in.rows[i] : (int32_t)i;
                if (before == 0)
                    next[warp][digit] += __popc(same);
            }
            __syncwarp();
        }
        __syncthreads();
    }
}

/* ---- on the host ---------------------------------------------------------------------------- */

static inline int64_t sort_tiles(int64_t count)
{
    return (count + TILE_ROWS - 1) / TILE_ROWS;
}

/* Of workspace: keys and rows, twice, and the digits of all tiles. */
static inline size_t sort_bytes(int64_t count)
{
    return (size_t)(4 * count + DIGITS * sort_tiles(count)) * sizeof(int32_t);
}

/* The rows of `ids` sorted by the table's row that they have; in the queue's workspace. */
static inline struct sorted sort_rows(struct ct_cuda_queue *queue, const int32_t *ids,
                                      struct part part, int64_t count)
{
    int32_t *memory = (int32_t *)queue->workspace, *counts = memory + 4 * count;
    struct sort_input in = {ids, NULL, NULL, part, count, sort_tiles(count), 0};
    unsigned blocks = grid_of(queue, in.tiles, 1);
    int turn = 0;

    do {
        int32_t *keys = memory + turn * 2 * count, *rows = keys + count;

        CT_LAUNCH(sort_count_kernel, blocks, DIGITS, 0, queue->stream, in, counts);
        CT_LAUNCH(sort_scan_kernel, 1, SCAN_BLOCK, 0, queue->stream, counts, DIGITS * in.tiles);
        CT_LAUNCH(sort_move_kernel, blocks, DIGITS, 0, queue->stream, in, (const int32_t *)counts,
                  keys, rows);
        in.keys = keys;
        in.rows = rows;
        in.shift += DIGIT_BITS;
        turn = 1 - turn;
    } while (part.rows >> in.shift > 0);
    struct sorted sorted = {in.keys, in.rows, count, (int32_t)part.rows};

    return sorted;
}

#endif
