/* Tiles in shared memory: rows of HEAD elements of 16 bits, as the tensor cores' operands.
 *
 *     8 rows, 64 columns     1024 bytes: a row is 8 chunks of 16 bytes, chunk c of row r lies at
 *                            place c ^ (r % 8) of its row (wgmma's swizzle of 128 bytes)
 *     columns 64 .. 127      the next 1024 bytes, with HEAD 128
 *     rows 8 .. 15           behind these, and so on
 *
 *     Eight rows' chunks of one column then lie in all 32 banks, for a load of matrices, and so do
 *     eight chunks of one row, for a copy.
 *
 * The file that includes this defines HEAD (64 or 128) and THREADS (of a block). */
#include "tensor/cuda/mma.cuh"

#define CHUNK 8 /* elements */
#define CHUNKS (HEAD / CHUNK)
#define ROW_BYTES (2 * HEAD)
#define GROUP_BYTES (8 * ROW_BYTES) /* of 8 rows */
#define PANEL_BYTES 1024            /* of these, 64 columns */

static __device__ __forceinline__ unsigned char *chunk_at(unsigned char *tile, int row, int chunk)
{
    return tile + (row >> 3) * GROUP_BYTES + (chunk >> 3) * PANEL_BYTES + ((row & 7) << 7) +
           (((chunk ^ row) & 7) << 4);
}

/* Begin to copy `rows` rows, `step` elements apart, into a tile; zeroes where a row is not below
 * `there`. A thread copies one chunk of every eighth or sixteenth row. */
template <class T>
static __device__ __forceinline__ void fetch(unsigned char *tile, const T *from, int64_t step,
                                             const int rows, int there)
{
    const int turn = THREADS / CHUNKS;
    int row = (int)threadIdx.x / CHUNKS, chunk = (int)threadIdx.x % CHUNKS;
    unsigned char *to = chunk_at(tile, row, chunk);

    from += row * step + chunk * CHUNK;
#pragma unroll
    for (int i = 0; i < rows / turn; i++)
        copy_16(to + i * turn / 8 * GROUP_BYTES, from + i * (turn * step), row + i * turn < there);
}

/* A of rows row .. row + 15 and columns 16 k .. 16 k + 15 of a tile. */
static __device__ __forceinline__ void as_a(uint32_t a[4], unsigned char *tile, int row, int k)
{
    int lane = (int)threadIdx.x & 31;

    load_matrices(a, chunk_at(tile, row + (lane & 15), 2 * k + (lane >> 4)));
}

/* Two B whose columns are rows row .. row + 7 and row + 8 .. row + 15 of a tile, and whose rows are
 * its columns 16 k .. 16 k + 15: b[0], b[1] and b[2], b[3]. */
static __device__ __forceinline__ void rows_as_b(uint32_t b[4], unsigned char *tile, int row, int k)
{
    int lane = (int)threadIdx.x & 31;

    load_matrices(b,
                  chunk_at(tile, row + (lane & 7) + ((lane >> 4) << 3), 2 * k + ((lane >> 3) & 1)));
}

/* Two B whose rows are rows row .. row + 15 of a tile, and whose columns are its columns
 * 16 n .. 16 n + 7 and 16 n + 8 .. 16 n + 15. */
static __device__ __forceinline__ void columns_as_b(uint32_t b[4], unsigned char *tile, int row,
                                                    int n)
{
    int lane = (int)threadIdx.x & 31;

    load_matrices_transposed(b, chunk_at(tile, row + (lane & 15), 2 * n + (lane >> 4)));
}

/* Two neighbouring C as an A. */
template <class T>
static __device__ __forceinline__ void as_a_again(T type, uint32_t a[4], const float left[4],
                                                  const float right[4])
{
    a[0] = pair(type, left[0], left[1]);
    a[1] = pair(type, left[2], left[3]);
    a[2] = pair(type, right[0], right[1]);
    a[3] = pair(type, right[2], right[3]);
}
