/* The blocked matrix product, for one instruction set. See gemm.h for what it computes.
 *
 *            b: k x n      CT_GEMM_KC rows at a time, packed into slivers[k][TILE_WIDTH] where
 *            +----+----+   reading it in place would be slower
 *     a      |    |    |
 *    +----+  +----+----+
 *    |    |  | c: m x n|   a tile of c, up to TILE_ROWS x TILE_WIDTH, lives in registers: for each
 *    +----+  +----+----+   k, load a row of b's sliver, broadcast one element of each row of a,
 *    |    |  |    |    |   multiply and add
 *    +----+  +----+----+   rows of a are packed likewise, into slivers[k][tile's rows]
 *
 * The file that includes this defines vec, vmask and their functions, LANES, TILE_ROWS (at most
 * 15), EACH_TILE_HEIGHT(X), which is X(1) ... X(TILE_ROWS), and GEMM, the table that it fills. */
#include "base/assert.h"
#include "tensor/cpu/gemm.h"

#include <assert.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum {
    TILE_VECTORS = 2,
    TILE_WIDTH = LANES * TILE_VECTORS,
    BLOCK_ROWS = 16 * TILE_ROWS, /* of packed a: 16 tiles stay in the second-level cache */
    BLOCK_COLUMNS = 512,         /* of packed b */
};
static_assert(((BLOCK_ROWS + BLOCK_COLUMNS) * CT_GEMM_KC + LANES) * sizeof(float) <=
                  CT_GEMM_WORKSPACE,
              "the packed blocks and their slack fit the workspace");
static_assert(TILE_ROWS <= LANES, "a sliver of a is one vector wide");
static_assert(BLOCK_COLUMNS % TILE_WIDTH == 0, "blocks are whole slivers");

/* ---- tiles ---------------------------------------------------------------------------------- */

/* One tile: c[rows][columns] (+)= a[rows][k] b[k][columns] (+ bias). */
struct tile {
    const float *a, *b, *bias;
    float *c;
    ptrdiff_t a_row, a_k, b_k, c_row;
    int64_t k;
    vmask last; /* the lanes of the last vector that lie in c */
    bool add;   /* to what c holds */
};

INLINE void finish_vector(const struct tile *t, float *c, vec sum, int v, bool partial)
{
    const float *bias = t->bias;

    if (t->add)
        sum = vec_add(partial ? vec_load_some(c, t->last) : vec_load(c), sum);
    if (bias != NULL)
        sum = vec_add(sum, partial ? vec_load_some(bias + v * LANES, t->last)
                                   : vec_load(bias + v * LANES));
    if (partial)
        vec_store_some(c, t->last, sum);
    else
        vec_store(c, sum);
}

/* `rows` and `vectors` are constants where this is inlined, so that `acc` lives in registers. */
INLINE void multiply(const struct tile *t, const int rows, const int vectors)
{
    vec acc[TILE_ROWS][TILE_VECTORS], row[TILE_VECTORS];
    const ptrdiff_t s = t->a_row;
    const float *b = t->b, *a0 = t->a, *a5 = a0 + 5 * s, *a10 = a5 + 5 * s; /* reach all rows */

    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++) acc[i][v] =
        vec_all(0);
    for (int64_t k = t->k; k > 0; k--) {
        UNROLL for (int v = 0; v < vectors - 1; v++) row[v] = vec_load(b + v * LANES);
        row[vectors - 1] = vec_load_some(b + (vectors - 1) * LANES, t->last);
        UNROLL for (int i = 0; i < rows; i++)
        {
            vec x = vec_all(i < 5 ? a0[i * s] : i < 10 ? a5[(i - 5) * s] : a10[(i - 10) * s]);

            UNROLL for (int v = 0; v < vectors; v++) acc[i][v] = vec_fma(x, row[v], acc[i][v]);
        }
        a0 += t->a_k;
        a5 += t->a_k;
        a10 += t->a_k;
        b += t->b_k;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
        finish_vector(t, t->c + i * t->c_row + v * LANES, acc[i][v], v, v == vectors - 1);
}

#define TILE(rows)                                    \
    static void tile_##rows##_1(const struct tile *t) \
    {                                                 \
        multiply(t, rows, 1);                         \
    }                                                 \
    static void tile_##rows##_2(const struct tile *t) \
    {                                                 \
        multiply(t, rows, 2);                         \
    }
EACH_TILE_HEIGHT(TILE)

static void (*const tiles[TILE_ROWS][TILE_VECTORS])(const struct tile *) = {
#define TILE_ENTRY(rows) {tile_##rows##_1, tile_##rows##_2},
    EACH_TILE_HEIGHT(TILE_ENTRY)};

/* ---- packing -------------------------------------------------------------------------------- */

/* to[k * width + lane] = from[lane * lane_step + k] for `depth` <= LANES values of k. */
static void pack_square(float *to, int64_t width, int64_t lanes, int64_t depth, const float *from,
                        ptrdiff_t lane_step)
{
    vec r[LANES];
    vmask mask = mask_first(depth);

    for (int64_t lane = 0; lane < LANES; lane++)
        r[lane] = lane < lanes ? vec_load_some(from + lane * lane_step, mask) : vec_all(0);
    vec_transpose(r);
    for (int64_t k = 0; k < depth; k++)
        vec_store(to + k * width, r[k]);
}

/* to[k * width + lane] = from[lane * lane_step + k * k_step] for all k and the first `lanes` lanes;
 * one of the steps is 1. Whole vectors are stored: what lies behind the lanes of one k is written
 * by the next k, belongs to no lane, or, at the very end, is the slack of the workspace. */
static void pack(float *to, int64_t width, int64_t lanes, int64_t depth, const float *from,
                 ptrdiff_t lane_step, ptrdiff_t k_step)
{
    for (int64_t lane = 0; lane < lanes; lane += LANES, to += LANES) {
        int64_t some = CT_MIN(lanes - lane, LANES);
        const float *first = from + lane * lane_step;
        vmask mask = mask_first(some);

        if (lane_step == 1)
            for (int64_t k = 0; k < depth; k++)
                vec_store(to + k * width, vec_load_some(first + k * k_step, mask));
        else
            for (int64_t k = 0; k < depth; k += LANES)
                pack_square(to + k * width, width, some, CT_MIN(depth - k, LANES), first + k,
                            lane_step);
    }
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* A block of c: rows row .. row + rows - 1, columns likewise, products k .. k + depth - 1. */
struct block {
    int64_t row, rows, column, columns, k, depth;
    float *packed_a, *packed_b; /* NULL: read in place */
};

static int64_t tile_count(int64_t rows)
{
    return (rows + TILE_ROWS - 1) / TILE_ROWS;
}

/* First row of tile `index` of a block: its tiles are equally high, or differ by one row. */
static int64_t tile_start(const struct block *block, int64_t index)
{
    return block->rows * index / tile_count(block->rows);
}

static void pack_a(const struct ct_gemm *g, const struct block *block)
{
    const float *a = (const float *)g->a + block->row * g->a_row + block->k * g->a_k;

    for (int64_t i = 0; i < tile_count(block->rows); i++) {
        int64_t first = tile_start(block, i), rows = tile_start(block, i + 1) - first;

        pack(block->packed_a + first * block->depth, rows, rows, block->depth, a + first * g->a_row,
             g->a_row, g->a_k);
    }
}

static void pack_b(const struct ct_gemm *g, const struct block *block)
{
    const float *b = (const float *)g->b + block->k * g->b_k + block->column * g->b_col;

    for (int64_t j = 0; j < block->columns; j += TILE_WIDTH)
        pack(block->packed_b + j * block->depth, TILE_WIDTH, CT_MIN(block->columns - j, TILE_WIDTH),
             block->depth, b + j * g->b_col, g->b_col, g->b_k);
}

/* All tiles of a block within columns j .. j + TILE_WIDTH - 1 of it. */
static void multiply_sliver(const struct ct_gemm *g, const struct block *block, int64_t j)
{
    int64_t columns = CT_MIN(block->columns - j, TILE_WIDTH);
    int64_t vectors = (columns + LANES - 1) / LANES, column = block->column + j;
    bool last_block = block->k + block->depth == g->k;
    struct tile tile = {
        .b = block->packed_b != NULL ? block->packed_b + j * block->depth
                                     : (const float *)g->b + block->k * g->b_k + column,
        .b_k = block->packed_b != NULL ? TILE_WIDTH : g->b_k,
        .bias = last_block && g->bias != NULL ? (const float *)g->bias + column : NULL,
        .c_row = g->c_row,
        .k = block->depth,
        .last = mask_first(columns - (vectors - 1) * LANES),
        .add = g->accumulate || block->k > 0,
    };

    for (int64_t i = 0; i < tile_count(block->rows); i++) {
        int64_t first = tile_start(block, i), rows = tile_start(block, i + 1) - first;
        int64_t row = block->row + first;

        tile.c = (float *)g->c + row * g->c_row + column;
        tile.a = block->packed_a != NULL ? block->packed_a + first * block->depth
                                         : (const float *)g->a + row * g->a_row + block->k * g->a_k;
        tile.a_row = block->packed_a != NULL ? 1 : g->a_row;
        tile.a_k = block->packed_a != NULL ? rows : g->a_k;
        tiles[rows - 1][vectors - 1](&tile);
    }
}

static void run_block(const struct ct_gemm *g, struct block *block)
{
    if (block->packed_b != NULL)
        pack_b(g, block);
    for (block->row = 0; block->row < g->m; block->row += BLOCK_ROWS) {
        block->rows = CT_MIN(g->m - block->row, BLOCK_ROWS);
        if (block->packed_a != NULL)
            pack_a(g, block);
        for (int64_t j = 0; j < block->columns; j += TILE_WIDTH)
            multiply_sliver(g, block, j);
    }
}

/* Whether `depth` vectors that lie `stride` floats apart evict each other from the first cache: a
 * power of two in the stride leaves few of its 64 sets of lines. */
static bool collide(ptrdiff_t stride, int64_t depth)
{
    return stride % 64 == 0 && depth >= 128;
}

/* Whether to copy a: rows a multiple of a page apart share cache sets, and a transposed a spreads
 * each tile over CT_GEMM_KC lines or pages, which hurts when it is read for many columns. */
static bool worth_packing_a(const struct ct_gemm *g)
{
    return g->a_k == 1 ? g->a_row % 1024 == 0 && g->m > 1
                       : g->n >= (collide(g->a_k, g->k) ? 128 : 512);
}

/* Whether to copy b: always when its columns do not lie side by side, as vectors need them; else
 * when many rows of c reuse the copy. */
static bool worth_packing_b(const struct ct_gemm *g)
{
    return g->b_col != 1 || g->m > 256 || (g->m >= 96 && collide(g->b_k, g->k));
}

static void run(const struct ct_gemm *g, void *workspace)
{
    float *memory = workspace;
    struct block block = {
        .packed_b = worth_packing_b(g) ? memory : NULL,
        .packed_a = worth_packing_a(g) ? memory + BLOCK_COLUMNS * CT_GEMM_KC : NULL,
    };

    for (block.column = 0; block.column < g->n; block.column += BLOCK_COLUMNS) {
        block.columns = CT_MIN(g->n - block.column, BLOCK_COLUMNS);
        block.k = 0;
        do { /* once even for k = 0: c is written */
            block.depth = CT_MIN(g->k - block.k, CT_GEMM_KC);
            run_block(g, &block);
            block.k += block.depth;
        } while (block.k < g->k);
    }
}

const struct ct_gemm_kernels GEMM = {.run = run};
