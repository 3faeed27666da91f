/* The functions of tensor/cuda/mma.cuh for the host: the warp's instructions as exchanges of its
 * lanes, and copies that arrive as late as they may, when they are waited for, or, in every other
 * launch, at once: so that a wait or a barrier that is missing shows. */
#ifndef CT_TESTS_HOSTCUDA_HOSTMMA_H
#define CT_TESTS_HOSTCUDA_HOSTMMA_H

#include "hostcuda.h"

/* ---- products ------------------------------------------------------------------------------- */

struct hostcuda_product {
    float *c;
    const uint32_t *a, *b;
};

static inline float hostcuda_wide(__nv_bfloat16, unsigned bits)
{
    return ct_bf16_to_f32((uint16_t)bits);
}

static inline float hostcuda_wide(__half, unsigned bits)
{
    return ct_f16_to_f32((uint16_t)bits);
}

/* Elements of the warp's operands, from the lanes that hold them (mma.cuh). */
template <typename T> float hostcuda_a(void *const mine[], int row, int column)
{
    const struct hostcuda_product *lane =
        static_cast<const struct hostcuda_product *>(mine[row % 8 * 4 + column % 8 / 2]);
    uint32_t word = lane->a[row / 8 + 2 * (column / 8)];

    return hostcuda_wide(T(), column % 2 == 0 ? word & 0xffffu : word >> 16);
}

template <typename T> float hostcuda_b(void *const mine[], int row, int column)
{
    const struct hostcuda_product *lane =
        static_cast<const struct hostcuda_product *>(mine[column * 4 + row % 8 / 2]);
    uint32_t word = lane->b[row / 8];

    return hostcuda_wide(T(), row % 2 == 0 ? word & 0xffffu : word >> 16);
}

template <typename T> void hostcuda_multiply(void *const mine[], int width)
{
    float a[16][16], b[16][8];

    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            a[i][k] = hostcuda_a<T>(mine, i, k);
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++)
            b[k][j] = hostcuda_b<T>(mine, k, j);
    for (int lane = 0; lane < width; lane++)
        for (int i = 0; i < 4; i++) {
            float *c = &static_cast<struct hostcuda_product *>(mine[lane])->c[i];
            int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float sum = 0;

            for (int k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            *c += sum;
        }
}

template <typename T>
void mma(T, float c[4], const uint32_t a[4], const uint32_t b[2], HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"mma", file, line};
    struct hostcuda_product mine = {c, a, b};

    hostcuda_sync(HOSTCUDA_WARP, ~0u, hostcuda_multiply<T>, &mine, &site);
}

static inline uint32_t pair(__nv_bfloat16, float low, float high)
{
    return (uint32_t)ct_bf16_from_f32(low) | (uint32_t)ct_bf16_from_f32(high) << 16;
}

static inline uint32_t pair(__half, float low, float high)
{
    return (uint32_t)ct_f16_from_f32(low) | (uint32_t)ct_f16_from_f32(high) << 16;
}

static inline float power_of_2(float x)
{
    return hostcuda_ex2(x);
}

/* ---- matrices from shared memory ------------------------------------------------------------ */

struct hostcuda_rows {
    const uint16_t *row;
    uint32_t *r;
};

static inline const uint16_t *hostcuda_row(void *const mine[], int matrix, int row)
{
    return static_cast<const struct hostcuda_rows *>(mine[8 * matrix + row])->row;
}

static inline void hostcuda_load(void *const mine[], int width)
{
    for (int lane = 0; lane < width; lane++)
        for (int i = 0; i < 4; i++) {
            const uint16_t *row = hostcuda_row(mine, i, lane / 4);

            static_cast<struct hostcuda_rows *>(mine[lane])->r[i] =
                row[lane % 4 * 2] | (uint32_t)row[lane % 4 * 2 + 1] << 16;
        }
}

static inline void hostcuda_load_transposed(void *const mine[], int width)
{
    for (int lane = 0; lane < width; lane++)
        for (int i = 0; i < 4; i++) {
            const uint16_t *low = hostcuda_row(mine, i, lane % 4 * 2);
            const uint16_t *high = hostcuda_row(mine, i, lane % 4 * 2 + 1);

            static_cast<struct hostcuda_rows *>(mine[lane])->r[i] =
                low[lane / 4] | (uint32_t)high[lane / 4] << 16;
        }
}

static inline void hostcuda_aligned(const void *at, size_t bytes, const struct hostcuda_site *site)
{
    if ((uintptr_t)at % bytes != 0)
        hostcuda_fail("an address that is not aligned", site);
}

static inline void load_matrices(uint32_t r[4], const void *row, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"ldmatrix", file, line};
    struct hostcuda_rows mine = {static_cast<const uint16_t *>(row), r};

    hostcuda_aligned(row, 16, &site);
    hostcuda_sync(HOSTCUDA_WARP, ~0u, hostcuda_load, &mine, &site);
}

static inline void load_matrices_transposed(uint32_t r[4], const void *row, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"ldmatrix.trans", file, line};
    struct hostcuda_rows mine = {static_cast<const uint16_t *>(row), r};

    hostcuda_aligned(row, 16, &site);
    hostcuda_sync(HOSTCUDA_WARP, ~0u, hostcuda_load_transposed, &mine, &site);
}

/* ---- copies that go on by themselves -------------------------------------------------------- */

struct hostcuda_copy {
    void *to;
    const void *from; /* NULL: zeroes */
    size_t bytes;
};

/* A thread's copies in order: those in front of `newest` are of older groups, those from there to
 * `open` of the newest group, the others of one that has not ended. */
struct hostcuda_copies {
    struct hostcuda_copy list[256];
    int newest, open, count;
};
static struct hostcuda_copies hostcuda_copies_of[HOSTCUDA_MAX_THREADS];

static inline struct hostcuda_copies *hostcuda_my_copies(void)
{
    const struct hostcuda_dim at = threadIdx, size = blockDim;

    return &hostcuda_copies_of[(at.z * size.y + at.y) * size.x + at.x];
}

static inline void hostcuda_arrive(const struct hostcuda_copy *copies, int many)
{
    for (const struct hostcuda_copy *copy = copies; copy < copies + many; copy++) {
        if (copy->from != NULL)
            memcpy(copy->to, copy->from, copy->bytes);
        else
            memset(copy->to, 0, copy->bytes);
    }
}

static inline void hostcuda_copy(void *to, const void *from, size_t bytes,
                                 const struct hostcuda_site *site)
{
    struct hostcuda_copies *mine = hostcuda_my_copies();

    hostcuda_aligned(to, bytes, site);
    hostcuda_aligned(from, bytes, site);
    if ((size_t)mine->count == sizeof mine->list / sizeof mine->list[0])
        hostcuda_fail("more copies than hostmma.h has room for", site);
    mine->list[mine->count++] = {to, from, bytes};
    if (hostcuda_launches() % 2 == 0)
        hostcuda_arrive(&mine->list[mine->count - 1], 1);
}

static inline void copy_16(void *to, const void *from, bool there, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"cp.async", file, line};

    hostcuda_copy(to, there ? from : NULL, 16, &site);
}

static inline void copy_4(void *to, const void *from, bool there, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"cp.async", file, line};

    hostcuda_copy(to, there ? from : NULL, 4, &site);
}

static inline void copies_end_group(void)
{
    struct hostcuda_copies *mine = hostcuda_my_copies();

    mine->newest = mine->open;
    mine->open = mine->count;
}

/* The first `many` copies have arrived. */
static inline void hostcuda_wait(struct hostcuda_copies *mine, int many)
{
    hostcuda_arrive(mine->list, many);
    mine->count -= many;
    mine->open -= many;
    mine->newest = 0;
    memmove(mine->list, mine->list + many, (size_t)mine->count * sizeof mine->list[0]);
}

static inline void copies_wait_but_newest(void)
{
    hostcuda_wait(hostcuda_my_copies(), hostcuda_my_copies()->newest);
}

#endif
