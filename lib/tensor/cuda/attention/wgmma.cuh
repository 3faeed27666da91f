/* Products of a warpgroup: 4 warps in a row, the first of which has a number divisible by 4 (PTX
 * ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", m64nNk16; compute
 * capability 9.0a). All 128 threads call these functions together.
 *
 *     products_begin();                 registers and tiles are as the products shall find them
 *     multiply(type, tiles, c, a, b, k > 0); ...
 *     products_end_group();             begun; the tensor cores go on by themselves
 *     products_wait<0>();               all groups, but the newest 0, are done ...
 *     keep_order(c, tiles);                ... and c is what they gave
 *
 * Warp w has rows 16 w .. 16 w + 15 of C [64, 8 tiles], each as mma.cuh has them; an A from
 * registers likewise. A tile in shared memory (tile.cuh) is an operand by rows, whose columns are
 * added up over, or turned, whose rows are; it must begin at a multiple of 1024 bytes. For tests on
 * the host, tests/lib/hostcuda has the same functions. */
#ifndef CT_TENSOR_CUDA_WGMMA_CUH
#define CT_TENSOR_CUDA_WGMMA_CUH

#include "tensor/cuda/mma.cuh"

#ifdef CT_HOSTCUDA
#include "hostwgmma.h"
#else

/* 64 elements of 16 bits: rows of 128 bytes, whose chunks of 16 bytes lie swizzled. */
typedef uint64_t ct_tile_operand;

/* The operand that begins at `from` (in a tile whose groups of 8 rows lie `group` bytes apart). */
static __device__ __forceinline__ ct_tile_operand operand_at(const void *from, int group)
{
    const uint64_t swizzle_128 = 1ull << 62, step = (uint64_t)(group >> 4);
    uint32_t address = (uint32_t)__cvta_generic_to_shared(from);

    return swizzle_128 | step << 32 | step << 16 | (address & 0x3ffff) >> 4;
}

/* The one that begins `bytes` behind it: a multiple of 16. */
static __device__ __forceinline__ ct_tile_operand operand_behind(ct_tile_operand operand, int bytes)
{
    return operand + (uint64_t)(bytes >> 4);
}

/* Where there is no such instruction, nothing of this is launched (attention.cu). */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CT_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define CT_WGMMA(...) __trap()
#endif

static __device__ __forceinline__ void products_begin(void)
{
    CT_WGMMA("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void products_end_group(void)
{
    CT_WGMMA("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int NEWEST> static __device__ __forceinline__ void products_wait(void)
{
    CT_WGMMA("wgmma.wait_group.sync.aligned %0;" ::"n"(NEWEST) : "memory");
}

/* What this thread has stored or copied into shared memory, the tensor cores may read, once a
 * barrier shows it to the others. */
static __device__ __forceinline__ void show_tiles(void)
{
    CT_WGMMA("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The compiler takes c for written when a product begins: keep its readers behind the wait. */
static __device__ __forceinline__ void keep_order(float (*c)[4], const int tiles)
{
#pragma unroll
    for (int n = 0; n < tiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+f"(c[n][i])::"memory");
}

#define CT_WGMMA_C4(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])
#define CT_WGMMA_C16(c) \
    CT_WGMMA_C4((c)[0]), CT_WGMMA_C4((c)[1]), CT_WGMMA_C4((c)[2]), CT_WGMMA_C4((c)[3])
#define CT_WGMMA_C32(c) CT_WGMMA_C16(c), CT_WGMMA_C16((c) + 4)
#define CT_WGMMA_C16_TEXT "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define CT_WGMMA_C32_TEXT                                                \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
    "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "  \
    "%28, %29, %30, %31}"

/* Of one type: c (8 columns a tile, 4 or 8 of them) = or += a b^T, b by rows; c [64, 64] += a b, a
 * from registers, b turned. */
#define CT_WGMMA_OF(T, name)                                                                       \
    static __device__ __forceinline__ void multiply(T, const int tiles, float(*c)[4],              \
                                                    ct_tile_operand a, ct_tile_operand b, int add) \
    {                                                                                              \
        if (tiles == 4)                                                                            \
            CT_WGMMA("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32." name "." name                   \
                     " " CT_WGMMA_C16_TEXT ", %16, %17, p, 1, 1, 0, 0;\n}"                         \
                     : CT_WGMMA_C16(c)                                                             \
                     : "l"(a), "l"(b), "r"(add));                                                  \
        else                                                                                       \
            CT_WGMMA("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name                   \
                     " " CT_WGMMA_C32_TEXT ", %32, %33, p, 1, 1, 0, 0;\n}"                         \
                     : CT_WGMMA_C32(c)                                                             \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }                                                                                              \
    static __device__ __forceinline__ void multiply_transposed(                                    \
        T, float(*c)[4], const uint32_t a[4], ct_tile_operand b)                                   \
    {                                                                                              \
        CT_WGMMA("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                      \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " " CT_WGMMA_C32_TEXT \
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                     \
                 : CT_WGMMA_C32(c)                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                    \
    }
CT_WGMMA_OF(__nv_bfloat16, "bf16")
CT_WGMMA_OF(__half, "f16")

#endif

#endif
