/* Attention's steps by a warpgroup: 64 rows at a time by wgmma, whose products go on by themselves
 * while exponentials are computed. A block is one warpgroup; several blocks a multiprocessor are at
 * different places of a step, so that tensor cores and the other units work at once. */
#include "tensor/cuda/attention/wgmma.cuh"

/* The first of the warp's 16 rows of tile m; of a block's own keys or queries in the backward. */
static __device__ __forceinline__ int tile_row(const int m)
{
    return 64 * m + (int)threadIdx.x / 32 * 16;
}

static __device__ __forceinline__ int own_row(void)
{
    return tile_row(0);
}

/* Begin c [64, 8 tiles] = rows `row` and up of tile x times rows 0 .. 8 tiles - 1 of tile y,
 * transposed. */
template <class T>
static __device__ __forceinline__ void begin_scores(T type, float (*c)[4], const int tiles,
                                                    unsigned char *x, int row, unsigned char *y)
{
    const ct_tile_operand a = operand_at(x + row * ROW_BYTES, GROUP_BYTES);
    const ct_tile_operand b = operand_at(y, GROUP_BYTES);

#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        int at = k / 4 * PANEL_BYTES + k % 4 * 32;

        multiply(type, tiles, c, operand_behind(a, at), operand_behind(b, at), k > 0);
    }
}

/* Begin c [64, HEAD] += p [64, 8 tiles] times rows 0 .. 8 tiles - 1 of tile y. */
template <class T>
static __device__ __forceinline__ void begin_sum(T type, float (*c)[4], const uint32_t (*p)[4],
                                                 const int tiles, unsigned char *y)
{
    const ct_tile_operand b = operand_at(y, GROUP_BYTES);

#pragma unroll
    for (int k = 0; k < tiles / 2; k++)
#pragma unroll
        for (int panel = 0; panel < HEAD / 64; panel++)
            multiply_transposed(type, c + 8 * panel, p[k],
                                operand_behind(b, 2 * k * GROUP_BYTES + panel * PANEL_BYTES));
}

/* p [64, 8 tiles], rounded, as operands from registers. */
template <class T>
static __device__ __forceinline__ void round_all(T type, uint32_t (*to)[4], const float (*p)[4],
                                                 const int tiles)
{
#pragma unroll
    for (int k = 0; k < tiles / 2; k++)
        as_a_again(type, to[k], p[2 * k], p[2 * k + 1]);
}

/* One tile of keys k, from place `key` on, and of values behind it, for the queries of tile q, from
 * place `first` on. */
template <class T>
static __device__ __forceinline__ void attend(struct ct_flash_rows *r, unsigned char *q,
                                              unsigned char *k, int first, int key, float scale)
{
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
        float s[KEYS / 8][4];
        uint32_t p[KEYS / 16][4];

        if (key > first + 64 * m + 63)
            continue;
        products_begin();
        begin_scores(T(), s, KEYS / 8, q, 64 * m, k);
        products_end_group();
        products_wait<0>();
        keep_order(s, KEYS / 8);
        if (key + KEYS - 1 > first + 64 * m)
            hide(s, first + tile_row(m), key);
        absorb(r, m, s, scale);
        round_all(T(), p, s, KEYS / 8);
        keep_order(r->y + m * COLUMNS, COLUMNS);
        products_begin();
        begin_sum(T(), r->y + m * COLUMNS, p, KEYS / 8, k + KEYS * ROW_BYTES);
        products_end_group();
    }
    products_wait<0>();
    keep_order(r->y, ROW_TILES * COLUMNS);
}

struct alignas(8) ct_two {
    float of[2];
};

static __device__ __forceinline__ struct ct_two two_at(const float *from)
{
    return *(const struct ct_two *)from;
}

/* dk and dv of the block's keys, from place `first` on, of the queries of one tile. */
template <class T>
static __device__ __forceinline__ void keys_step(float (*dk)[4], float (*dv)[4], unsigned char *k,
                                                 unsigned char *v, const struct ct_flash_passing &t,
                                                 int query, int first)
{
    float s[PASSING / 8][4], ds[PASSING / 8][4];
    uint32_t p[PASSING / 16][4], rounded[PASSING / 16][4];
    const float scale = LOG2_E / sqrtf((float)HEAD);
    const bool all = query >= first + OWN - 1;
    const int key = first + own_row();

    products_begin();
    begin_scores(T(), s, PASSING / 8, k, 0, t.q);
    products_end_group();
    begin_scores(T(), ds, PASSING / 8, v, 0, t.dy);
    products_end_group();
    products_wait<1>();
    keep_order(s, PASSING / 8);
#pragma unroll
    for (int n = 0; n < PASSING / 8; n++) {
        const struct ct_two lse = two_at(t.lse + 8 * n + column_of(0));

#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = likelihood(s[n][i], all || key + row_of(i) <= query + 8 * n + column_of(i),
                                 scale, lse.of[i & 1] * LOG2_E);
    }
    round_all(T(), p, s, PASSING / 8);
    products_begin();
    begin_sum(T(), dv, p, PASSING / 8, t.dy);
    products_end_group();
    products_wait<1>();
    keep_order(ds, PASSING / 8);
#pragma unroll
    for (int n = 0; n < PASSING / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = 8 * n + column_of(i);

            ds[n][i] =
                slope(s[n][i], ds[n][i], all || key + row_of(i) <= query + column, t.delta[column]);
        }
    round_all(T(), rounded, ds, PASSING / 8);
    products_begin();
    begin_sum(T(), dk, rounded, PASSING / 8, t.q);
    products_end_group();
    products_wait<0>();
    keep_order(dv, COLUMNS);
    keep_order(dk, COLUMNS);
}

/* dq of the block's queries, from place `first` on, of one tile of keys. */
template <class T>
static __device__ __forceinline__ void
queries_step(float (*dq)[4], unsigned char *q, unsigned char *dy, unsigned char *k, int first,
             int key, const float less[2], const float delta[2])
{
    float s[PASSING / 8][4], ds[PASSING / 8][4];
    uint32_t rounded[PASSING / 16][4];
    const float scale = LOG2_E / sqrtf((float)HEAD);
    const bool all = key + PASSING - 1 <= first;
    const int query = first + own_row();

    products_begin();
    begin_scores(T(), s, PASSING / 8, q, 0, k);
    products_end_group();
    begin_scores(T(), ds, PASSING / 8, dy, 0, k + PASSING_BYTES);
    products_end_group();
    products_wait<1>();
    keep_order(s, PASSING / 8);
#pragma unroll
    for (int n = 0; n < PASSING / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = likelihood(s[n][i], all || key + 8 * n + column_of(i) <= query + row_of(i),
                                 scale, less[i >> 1]);
    products_wait<0>();
    keep_order(ds, PASSING / 8);
#pragma unroll
    for (int n = 0; n < PASSING / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            ds[n][i] = slope(s[n][i], ds[n][i],
                             all || key + 8 * n + column_of(i) <= query + row_of(i), delta[i >> 1]);
    round_all(T(), rounded, ds, PASSING / 8);
    products_begin();
    begin_sum(T(), dq, rounded, PASSING / 8, k);
    products_end_group();
    products_wait<0>();
    keep_order(dq, COLUMNS);
}
