/* Elements of f32, bf16 and f16 in kernels: all compute in float.
 *
 *     EACH_PACK(T, at, n) {          // 16 bytes of T a thread at a time, over the whole grid
 *         float x[PACK(T)];
 *         load<T>(x, from, at, n);   // beyond the ends: 0
 *         ...
 *         store<T>(to, at, n, x);    // rounded once, to nearest even
 *     }
 *
 * Operands need only the alignment of their elements: a pack that is not aligned to 16 bytes, and
 * the last one, go element by element. Exponentials of 16-bit elements are the GPU's own, whose
 * error is far below the rounding of the result; those of f32 are the CPU's
 * (tensor/cpu/math_f32.h), bit by bit, as are sums, products and quotients: the compiler fuses none
 * (-fmad=false). */
#ifndef CT_TENSOR_CUDA_NUMBER_CUH
#define CT_TENSOR_CUDA_NUMBER_CUH

#include "tensor/cpu/kernel/math_f32.h"
#include "tensor/cuda/launch.cuh"

#include <stdint.h>

static inline __device__ float wide(float x)
{
    return x;
}

static inline __device__ float wide(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static inline __device__ float wide(__half x)
{
    return __half2float(x);
}

static inline __device__ double wide(double x)
{
    return x;
}

template <typename T> inline __device__ T narrow(float x);

template <> inline __device__ float narrow<float>(float x)
{
    return x;
}

template <> inline __device__ __nv_bfloat16 narrow<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

template <> inline __device__ __half narrow<__half>(float x)
{
    return __float2half_rn(x);
}

/* ---- packs ----------------------------------------------------------------------------------- */

#define PACK(T) (16 / (int)sizeof(T))

/* As many elements of an operand of type E (T itself, or what is wide beside it). */
template <typename T, typename E> union pack {
    uint4 words[PACK(T) * sizeof(E) / 16];
    E at[PACK(T)];
};

#define EACH_PACK(T, at, n)                                                                 \
    for (int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * PACK(T); at < (n); \
         at += (int64_t)gridDim.x * blockDim.x * PACK(T))

static inline __host__ __device__ bool aligned(const void *address)
{
    return ((uintptr_t)address & 15) == 0;
}

/* Elements from a multiple of 16 bytes to `row`: packs that begin so many in front of it are
 * aligned, which rows of odd length are not by themselves. */
template <typename T> static inline __device__ int64_t skew_of(const T *row)
{
    return (int64_t)(((uintptr_t)row & 15) / sizeof(T));
}

/* Elements at .. at + PACK(T) - 1 of the n of `from`; `at` may be below 0. */
template <typename T, typename E>
static inline __device__ void load(float *to, const E *from, int64_t at, int64_t n)
{
    union pack<T, E> pack;

    if (at >= 0 && at + PACK(T) <= n && aligned(from + at)) {
        for (unsigned i = 0; i < sizeof pack.words / sizeof pack.words[0]; i++)
            pack.words[i] = ((const uint4 *)(from + at))[i];
        for (int k = 0; k < PACK(T); k++)
            to[k] = wide(pack.at[k]);
    } else {
        for (int k = 0; k < PACK(T); k++)
            to[k] = at + k >= 0 && at + k < n ? wide(from[at + k]) : 0;
    }
}

template <typename T, typename E>
static inline __device__ void store(E *to, int64_t at, int64_t n, const float *from)
{
    union pack<T, E> pack;

    if (at >= 0 && at + PACK(T) <= n && aligned(to + at)) {
        for (int k = 0; k < PACK(T); k++)
            pack.at[k] = narrow<E>(from[k]);
        for (unsigned i = 0; i < sizeof pack.words / sizeof pack.words[0]; i++)
            ((uint4 *)(to + at))[i] = pack.words[i];
    } else {
        for (int k = 0; k < PACK(T); k++)
            if (at + k >= 0 && at + k < n)
                to[at + k] = narrow<E>(from[k]);
    }
}

/* ---- functions ------------------------------------------------------------------------------- */

template <typename T> static inline __device__ float exp_of(float x)
{
    return sizeof(T) == sizeof(float) ? exp_f32(x) : __expf(x);
}

template <typename T> static inline __device__ float quotient(float a, float b)
{
    return sizeof(T) == sizeof(float) ? a / b : __fdividef(a, b);
}

template <typename T> static inline __device__ float sigmoid_of(float x)
{
    return quotient<T>(1, 1 + exp_of<T>(-x));
}

/* ---- launching ------------------------------------------------------------------------------- */

enum { CT_CUDA_BLOCK = 256, CT_CUDA_WAVES = 16 };

/* Blocks for `units` of work, `each` a block: as many as keep the GPU busy, which then take turns.
 */
static inline unsigned grid_of(const struct ct_cuda_queue *queue, int64_t units, int64_t each)
{
    int64_t most = (int64_t)queue->processors * CT_CUDA_WAVES, blocks = (units + each - 1) / each;

    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

#define WHOLE_WARP 0xffffffffu

/* The sum over the 32 lanes that call it together, in all of them. */
static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
        x += __shfl_xor_sync(WHOLE_WARP, x, other);
    return x;
}

/* ct_cuda_NAME calls launch_NAME<T> of the element type. */
#define LAUNCHER_HEAD(name)                                                          \
    extern "C" void ct_cuda_##name(struct ct_cuda_queue *queue, enum ct_dtype dtype, \
                                   const struct ct_kernel_args *args)
#define LAUNCHER(name)                                 \
    LAUNCHER_HEAD(name)                                \
    {                                                  \
        if (dtype == CT_F32)                           \
            launch_##name<float>(queue, args);         \
        else if (dtype == CT_BF16)                     \
            launch_##name<__nv_bfloat16>(queue, args); \
        else                                           \
            launch_##name<__half>(queue, args);        \
    }
/* The same for an op that has no narrow form. */
#define LAUNCHER_F32(name)                 \
    LAUNCHER_HEAD(name)                    \
    {                                      \
        (void)dtype;                       \
        launch_##name<float>(queue, args); \
    }

#endif
