/* Attention's steps by warps: each multiplies 16 rows at a time by mma.sync. */

/* The first of the warp's 16 rows of tile m; of a block's own keys or queries in the backward. */
static __device__ __forceinline__ int tile_row(const int m)
{
    return ((int)threadIdx.x / 32 * ROW_TILES + m) * 16;
}

static __device__ __forceinline__ int own_row(void)
{
    return (int)threadIdx.x / 32 * 16;
}

static __device__ __forceinline__ void show_tiles(void)
{
}

/* c [16 many, 8 tiles] = rows `row` and up of tile x times rows 0 .. 8 tiles - 1 of tile y,
 * transposed. C of rows m and columns n is c[m * tiles + n]; each B serves all rows. */
template <class T>
static __device__ __forceinline__ void rows_by_rows(T type, float (*c)[4], const int many,
                                                    const int tiles, unsigned char *x, int row,
                                                    unsigned char *y)
{
    clear(c, many * tiles);
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        uint32_t a[ROW_TILES][4];

#pragma unroll
        for (int m = 0; m < many; m++)
            as_a(a[m], x, row + 16 * m, k);
#pragma unroll
        for (int n = 0; n < tiles; n += 2) {
            uint32_t b[4];

            rows_as_b(b, y, 8 * n, k);
#pragma unroll
            for (int m = 0; m < many; m++) {
                mma(type, c[m * tiles + n], a[m], b);
                mma(type, c[m * tiles + n + 1], a[m], b + 2);
            }
        }
    }
}

/* c [16 many, HEAD] += p [16 many, 8 tiles], rounded, times rows 0 .. 8 tiles - 1 of tile y. */
template <class T>
static __device__ __forceinline__ void add_product(T type, float (*c)[4], const float (*p)[4],
                                                   const int many, const int tiles,
                                                   unsigned char *y)
{
#pragma unroll
    for (int k = 0; k < tiles / 2; k++) {
        uint32_t a[ROW_TILES][4];

#pragma unroll
        for (int m = 0; m < many; m++)
            as_a_again(type, a[m], p[m * tiles + 2 * k], p[m * tiles + 2 * k + 1]);
#pragma unroll
        for (int n = 0; n < DEPTH; n++) {
            uint32_t b[4];

            columns_as_b(b, y, 16 * k, n);
#pragma unroll
            for (int m = 0; m < many; m++) {
                mma(type, c[m * COLUMNS + 2 * n], a[m], b);
                mma(type, c[m * COLUMNS + 2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* One tile of keys k, from place `key` on, and of values behind it, for the queries of tile q, from
 * place `first` on. */
template <class T>
static __device__ __forceinline__ void attend(struct ct_flash_rows *r, unsigned char *q,
                                              unsigned char *k, int first, int key, float scale)
{
    float s[ROW_TILES * KEYS / 8][4];
    int row = tile_row(0), query = first + row;

    if (key >= query + 16 * ROW_TILES)
        return;
    rows_by_rows(T(), s, ROW_TILES, KEYS / 8, q, row, k);
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
        if (key + KEYS - 1 > query + 16 * m)
            hide(s + m * KEYS / 8, query + 16 * m, key);
        absorb(r, m, s + m * KEYS / 8, scale);
    }
    add_product(T(), r->y, s, ROW_TILES, KEYS / 8, k + KEYS * ROW_BYTES);
}

/* dk and dv of the warp's keys, of the block's from place `first` on, of one tile of queries. */
template <class T>
static __device__ __forceinline__ void keys_step(float (*dk)[4], float (*dv)[4], unsigned char *k,
                                                 unsigned char *v, const struct ct_flash_passing &t,
                                                 int query, int first)
{
    float scale = LOG2_E / sqrtf((float)HEAD);
    int row = own_row(), key = first + row;

    if (key > query + PASSING - 1)
        return;

    for (int from = 0; from < PASSING; from += AT_ONCE) {
        unsigned char *q = t.q + from * ROW_BYTES, *dy = t.dy + from * ROW_BYTES;
        float s[AT_ONCE / 8][4], ds[AT_ONCE / 8][4];

        rows_by_rows(T(), s, 1, AT_ONCE / 8, k, row, q);
        rows_by_rows(T(), ds, 1, AT_ONCE / 8, v, row, dy);
#pragma unroll
        for (int n = 0; n < AT_ONCE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int column = from + 8 * n + column_of(i);
                bool seen = key + row_of(i) <= query + column;

                s[n][i] = likelihood(s[n][i], seen, scale, t.lse[column] * LOG2_E);
                ds[n][i] = slope(s[n][i], ds[n][i], seen, t.delta[column]);
            }
        add_product(T(), dv, s, 1, AT_ONCE / 8, dy);
        add_product(T(), dk, ds, 1, AT_ONCE / 8, q);
    }
}

/* dq of the warp's queries, of the block's from place `first` on, of one tile of keys. */
template <class T>
static __device__ __forceinline__ void
queries_step(float (*dq)[4], unsigned char *q, unsigned char *dy, unsigned char *k, int first,
             int key, const float less[2], const float delta[2])
{
    float s[PASSING / 8][4], ds[PASSING / 8][4];
    float scale = LOG2_E / sqrtf((float)HEAD);
    int row = own_row(), query = first + row;

    if (key > query + 15)
        return;

    rows_by_rows(T(), s, 1, PASSING / 8, q, row, k);
    rows_by_rows(T(), ds, 1, PASSING / 8, dy, row, k + PASSING_BYTES);
#pragma unroll
    for (int n = 0; n < PASSING / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool seen = key + 8 * n + column_of(i) <= query + row_of(i);

            s[n][i] = likelihood(s[n][i], seen, scale, less[i >> 1]);
            ds[n][i] = slope(s[n][i], ds[n][i], seen, delta[i >> 1]);
        }
    add_product(T(), dq, ds, 1, PASSING / 8, k);
}
