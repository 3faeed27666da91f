/* The instructions of a warp that feed the tensor cores, one function each (PTX ISA, "Warp Level
 * Matrix Multiply-Accumulate Instructions", m16n8k16). All 32 lanes call them together. Lane 4 g +
 * t holds, of 16-bit elements, two in a word, the lower column first:
 *
 *     A [16,16]          columns 2t, 2t+1    2t+8, 2t+9        B [16,8]      column g
 *         row g               a[0]              a[2]           rows 2t, 2t+1    b[0]
 *         row g+8             a[1]              a[3]           2t+8, 2t+9       b[1]
 *
 *     C [16,8] of floats: row g: c[0], c[1] in columns 2t, 2t+1; row g+8: c[2], c[3]
 *
 * So two neighbouring C are an A, once packed: what one product gives feeds the next one from
 * registers. For tests on the host, tests/lib/hostcuda has the same functions. */
#ifndef CT_TENSOR_CUDA_MMA_CUH
#define CT_TENSOR_CUDA_MMA_CUH

#include "tensor/cuda/number.cuh"

#ifdef CT_HOSTCUDA
#include "hostmma.h"
#else

/* c += a b. */
static __device__ __forceinline__ void mma(__nv_bfloat16, float c[4], const uint32_t a[4],
                                           const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void mma(__half, float c[4], const uint32_t a[4],
                                           const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* `low` and `high` rounded to nearest even, in one word. */
static __device__ __forceinline__ uint32_t pair(__nv_bfloat16, float low, float high)
{
    uint32_t word;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

static __device__ __forceinline__ uint32_t pair(__half, float low, float high)
{
    uint32_t word;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* 2^x as the special function unit has it, within 2 units of the last place. */
static __device__ __forceinline__ float power_of_2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Four 8 x 8 matrices of 16-bit elements from shared memory: lane l gives the address of row l % 8
 * of matrix l / 8, 16 bytes, aligned. r[i] is row g, columns 2t and 2t+1 of matrix i. */
static __device__ __forceinline__ void load_matrices(uint32_t r[4], const void *row)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(row);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed: r[i] is rows 2t and 2t+1, column g of matrix i. */
static __device__ __forceinline__ void load_matrices_transposed(uint32_t r[4], const void *row)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(row);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* Copies from global to shared memory that go on while the thread does: 16 bytes, or zeroes where
 * `there` is false; 4 bytes likewise. Both addresses are multiples of the size. */
static __device__ __forceinline__ void copy_16(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy_4(void *to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}

/* End a group of this thread's copies; wait for all groups but the newest. A barrier then shows
 * what was copied to the other threads. */
static __device__ __forceinline__ void copies_end_group(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

static __device__ __forceinline__ void copies_wait_but_newest(void)
{
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

#endif

#endif
