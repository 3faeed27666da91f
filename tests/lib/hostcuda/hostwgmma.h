/* The functions of tensor/cuda/wgmma.cuh for the host: a warpgroup's products as exchanges of its
 * 128 threads, done at once. Elements lie where the swizzle of 128 bytes has them, which depends on
 * bits of their address; so a tile that is not aligned gives other numbers, as on a GPU. */
#ifndef CT_TESTS_HOSTCUDA_HOSTWGMMA_H
#define CT_TESTS_HOSTCUDA_HOSTWGMMA_H

#include "hostmma.h"

enum { HOSTCUDA_WARPGROUP = 4 * HOSTCUDA_WARP };

struct ct_tile_operand {
    const unsigned char *from;
    int group;
};

static inline struct ct_tile_operand operand_at(const void *from, int group)
{
    return {static_cast<const unsigned char *>(from), group};
}

static inline struct ct_tile_operand operand_behind(struct ct_tile_operand operand, int bytes)
{
    return {operand.from + bytes, operand.group};
}

static inline void products_begin(void)
{
}

static inline void products_end_group(void)
{
}

template <int NEWEST> static inline void products_wait(void)
{
}

static inline void show_tiles(void)
{
}

static inline void keep_order(float (*)[4], int)
{
}

/* Element `column` of 64 of a row of 128 bytes. */
template <typename T>
float hostcuda_element(const struct ct_tile_operand *operand, int row, int column)
{
    uintptr_t at = (uintptr_t)operand->from + (uintptr_t)(row / 8 * operand->group) +
                   (uintptr_t)(row % 8 * 128 + 2 * column);

    at ^= (at >> 7 & 7) << 4;
    return hostcuda_wide(T(), *reinterpret_cast<const uint16_t *>(at));
}

struct hostcuda_warpgroup {
    float (*c)[4];
    int tiles, add;
    struct ct_tile_operand a, b;
    const uint32_t *registers; /* a's, or NULL */
    bool transposed;           /* b */
};

template <typename T> float hostcuda_left(void *const mine[], int row, int k)
{
    const struct hostcuda_warpgroup *first =
        static_cast<const struct hostcuda_warpgroup *>(mine[0]);

    if (first->registers == NULL)
        return hostcuda_element<T>(&first->a, row, k);
    int lane = row / 16 * HOSTCUDA_WARP + row % 8 * 4 + k % 8 / 2;
    uint32_t word = static_cast<const struct hostcuda_warpgroup *>(mine[lane])
                        ->registers[row % 16 / 8 + 2 * (k / 8)];

    return hostcuda_wide(T(), k % 2 == 0 ? word & 0xffffu : word >> 16);
}

template <typename T> void hostcuda_multiply_group(void *const mine[], int width)
{
    const struct hostcuda_warpgroup *first =
        static_cast<const struct hostcuda_warpgroup *>(mine[0]);
    static float a[64][16], b[16][64];

    for (int row = 0; row < 64; row++)
        for (int k = 0; k < 16; k++)
            a[row][k] = hostcuda_left<T>(mine, row, k);
    for (int k = 0; k < 16; k++)
        for (int column = 0; column < 8 * first->tiles; column++)
            b[k][column] = first->transposed ? hostcuda_element<T>(&first->b, k, column)
                                             : hostcuda_element<T>(&first->b, column, k);
    for (int thread = 0; thread < width; thread++) {
        const struct hostcuda_warpgroup *own =
            static_cast<const struct hostcuda_warpgroup *>(mine[thread]);
        int lane = thread % HOSTCUDA_WARP;

        for (int n = 0; n < own->tiles; n++)
            for (int i = 0; i < 4; i++) {
                int row = thread / HOSTCUDA_WARP * 16 + lane / 4 + i / 2 * 8;
                int column = 8 * n + lane % 4 * 2 + i % 2;
                float sum = 0;

                for (int k = 0; k < 16; k++)
                    sum += a[row][k] * b[k][column];
                own->c[n][i] = own->add ? own->c[n][i] + sum : sum;
            }
    }
}

template <typename T>
void multiply(T, int tiles, float (*c)[4], struct ct_tile_operand a, struct ct_tile_operand b,
              int add, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"wgmma", file, line};
    struct hostcuda_warpgroup mine = {c, tiles, add, a, b, NULL, false};

    hostcuda_sync(HOSTCUDA_WARPGROUP, ~0u, hostcuda_multiply_group<T>, &mine, &site);
}

template <typename T>
void multiply_transposed(T, float (*c)[4], const uint32_t a[4], struct ct_tile_operand b,
                         HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"wgmma", file, line};
    struct hostcuda_warpgroup mine = {c, 8, 1, b, b, a, true};

    hostcuda_sync(HOSTCUDA_WARPGROUP, ~0u, hostcuda_multiply_group<T>, &mine, &site);
}

#endif
