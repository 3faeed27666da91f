/* The part of CUDA that a .cu file is compiled with for the host (host.h). It has only the names
 * that our kernels use; add missing ones. */
#ifndef CT_TESTS_HOSTCUDA_HOSTCUDA_H
#define CT_TESTS_HOSTCUDA_HOSTCUDA_H

#include "base/number/dtype.h"
#include "host.h"
#include "runtime.h"

#include <math.h>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the language ---------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("hostcuda_shared")))
#define __constant__ static

#define threadIdx (hostcuda_place.thread)
#define blockIdx (hostcuda_place.block)
#define blockDim (hostcuda_place.threads)
#define gridDim (hostcuda_place.blocks)
enum { warpSize = HOSTCUDA_WARP };

struct dim3 : hostcuda_dim {
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : hostcuda_dim{x_, y_, z_}
    {
    }
};

#define CT_LAUNCH(kernel, grid, block, shared, stream, ...) \
    hostcuda_launch(kernel, grid, block, shared, stream, __VA_ARGS__)
#define CT_SHARED_BYTES(name) \
    unsigned char *const name = static_cast<unsigned char *>(hostcuda_place.shared)

/* ---- the runtime ----------------------------------------------------------------------------- */

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

template <typename... P> cudaError_t cudaFuncSetAttribute(void (*)(P...), cudaFuncAttribute, int)
{
    return cudaSuccess;
}

/* What lies between a struct's members is whatever was there: half an address with a number in
 * front of it must not be taken for one. clang 14 cannot clear it. */
#if __has_builtin(__builtin_clear_padding)
#define HOSTCUDA_CLEAR_PADDING(value) __builtin_clear_padding(value)
#else
#define HOSTCUDA_CLEAR_PADDING(value) (void)(value)
#endif

/* An argument as the kernel gets it: with addresses that it can touch, also those in a struct. All
 * of this is `static`: files may have structs of one name that differ. */
template <typename T> static T *hostcuda_argument(T *pointer)
{
    return static_cast<T *>(hostcuda_near(pointer));
}

template <typename T> static T hostcuda_argument(T value)
{
    if constexpr (__is_class(T)) {
        static_assert(__is_trivially_copyable(T), "bytes that can be given to a device");
        unsigned char *bytes = reinterpret_cast<unsigned char *>(&value);

        HOSTCUDA_CLEAR_PADDING(&value);
        for (size_t at = 0; at + sizeof(void *) <= sizeof value; at += sizeof(void *)) {
            void *word;

            memcpy(&word, bytes + at, sizeof word);
            word = hostcuda_near(word);
            memcpy(bytes + at, &word, sizeof word);
        }
    }
    return value;
}

template <typename T> static bool hostcuda_can_have(T *pointer)
{
    return hostcuda_is_reachable(pointer);
}

template <typename T> static bool hostcuda_can_have(T)
{
    return true;
}

/* A kernel that is on its way to its stream. */
template <typename Body> struct hostcuda_launched {
    struct hostcuda_grid shape;
    Body body;
};

template <typename... P, typename... A>
static void hostcuda_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                            cudaStream_t stream, A... args)
{
    auto body = [=]() { kernel(hostcuda_argument(static_cast<P>(args))...); };
    typedef hostcuda_launched<decltype(body)> launched;
    void *memory = malloc(sizeof(launched));
    struct hostcuda_work work = {[](void *context) {
                                     launched *own = static_cast<launched *>(context);

                                     hostcuda_run(
                                         &own->shape,
                                         [](void *its) { (*static_cast<decltype(body) *>(its))(); },
                                         &own->body);
                                 },
                                 free, memory};

    if (stream != NULL && !(hostcuda_can_have(static_cast<P>(args)) && ...)) {
        fprintf(stderr, "hostcuda: a kernel is given memory of the host\n");
        hostcuda_break(cudaErrorIllegalAddress);
    }
    new (memory) launched{{grid, block, shared}, body};
    hostcuda_push_launch(stream, work);
}

/* ---- vectors --------------------------------------------------------------------------------- */

#define HOSTCUDA_VECTORS(type, name)                                      \
    struct alignas(2 * sizeof(type)) name##2                              \
    {                                                                     \
        type x, y;                                                        \
    };                                                                    \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 \
    {                                                                     \
        type x, y, z, w;                                                  \
    };                                                                    \
    static inline name##2 make_##name##2(type x, type y)                  \
    {                                                                     \
        return {x, y};                                                    \
    }                                                                     \
    static inline name##4 make_##name##4(type x, type y, type z, type w)  \
    {                                                                     \
        return {x, y, z, w};                                              \
    }
HOSTCUDA_VECTORS(float, float)
HOSTCUDA_VECTORS(double, double)
HOSTCUDA_VECTORS(int, int)
HOSTCUDA_VECTORS(unsigned, uint)
HOSTCUDA_VECTORS(unsigned short, ushort)

/* ---- meetings: a call's own place in the source is part of what must agree ------------------- */

#define HOSTCUDA_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__syncthreads", file, line};
    const struct hostcuda_dim size = blockDim;

    hostcuda_sync((int)(size.x * size.y * size.z), ~0u, NULL, NULL, &site);
}

static inline void __syncwarp(unsigned mask = ~0u, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__syncwarp", file, line};

    hostcuda_sync(HOSTCUDA_WARP, mask, NULL, NULL, &site);
}

static inline unsigned hostcuda_lane(void)
{
    const struct hostcuda_dim size = blockDim, at = threadIdx;

    return ((at.z * size.y + at.y) * size.x + at.x) % HOSTCUDA_WARP;
}

/* A lane's value and its result: `value` of lane `from`, if that participates. */
struct hostcuda_shuffle {
    unsigned char value[16], got[16];
    unsigned from;
};

static inline void hostcuda_shuffle_values(void *const mine[], int width)
{
    for (int i = 0; i < width; i++) {
        struct hostcuda_shuffle *to = static_cast<struct hostcuda_shuffle *>(mine[i]);
        if (to == NULL)
            continue;
        const struct hostcuda_shuffle *from =
            static_cast<const struct hostcuda_shuffle *>(mine[to->from]);
        if (from != NULL)
            memcpy(to->got, from->value, sizeof to->got);
        else
            memset(to->got, 0xff, sizeof to->got);
    }
}

/* From lane `from` of the `width` lanes in a row that the caller is one of. */
template <typename T>
T hostcuda_shuffle_from(unsigned mask, T value, unsigned from, const struct hostcuda_site *site)
{
    struct hostcuda_shuffle lane;

    static_assert(sizeof value <= sizeof lane.value, "a value of 16 bytes at most");
    memset(&lane, 0xff, sizeof lane);
    memcpy(lane.value, &value, sizeof value);
    lane.from = from % HOSTCUDA_WARP;
    hostcuda_sync(HOSTCUDA_WARP, mask, hostcuda_shuffle_values, &lane, site);
    memcpy(&value, lane.got, sizeof value);
    return value;
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = HOSTCUDA_WARP, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__shfl_sync", file, line};
    unsigned first = hostcuda_lane() / (unsigned)width * (unsigned)width;

    return hostcuda_shuffle_from(mask, value, first + (unsigned)from % (unsigned)width, &site);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = HOSTCUDA_WARP, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__shfl_xor_sync", file, line};
    unsigned lane = hostcuda_lane(), from = lane ^ (unsigned)lanes;
    unsigned end = (lane / (unsigned)width + 1) * (unsigned)width;

    return hostcuda_shuffle_from(mask, value, from < end ? from : lane, &site);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = HOSTCUDA_WARP, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__shfl_down_sync", file, line};
    unsigned lane = hostcuda_lane(), from = lane + lanes;
    unsigned end = (lane / (unsigned)width + 1) * (unsigned)width;

    return hostcuda_shuffle_from(mask, value, from < end ? from : lane, &site);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = HOSTCUDA_WARP, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__shfl_up_sync", file, line};
    unsigned lane = hostcuda_lane(), first = lane / (unsigned)width * (unsigned)width;

    return hostcuda_shuffle_from(mask, value, lane - first >= lanes ? lane - lanes : lane, &site);
}

/* Votes: every thread's value, to a few words that all get. */
struct hostcuda_vote {
    uint64_t value, all[HOSTCUDA_WARP]; /* of a warp's lanes; 0 of those that take no part */
    uint64_t any, every, count;
};

static inline void hostcuda_count_votes(void *const mine[], int width)
{
    struct hostcuda_vote sum = {0, {0}, 0, ~(uint64_t)0, 0};

    for (int i = 0; i < width; i++)
        if (mine[i] != NULL) {
            uint64_t value = static_cast<struct hostcuda_vote *>(mine[i])->value;

            if (width == HOSTCUDA_WARP)
                sum.all[i] = value;
            sum.any |= value;
            sum.every &= value;
            sum.count += value != 0;
        }
    for (int i = 0; i < width; i++)
        if (mine[i] != NULL) {
            sum.value = static_cast<struct hostcuda_vote *>(mine[i])->value;
            memcpy(mine[i], &sum, sizeof sum);
        }
}

static inline struct hostcuda_vote hostcuda_vote_of(int width, unsigned mask, uint64_t value,
                                                    const struct hostcuda_site *site)
{
    struct hostcuda_vote vote = {value, {0}, 0, 0, 0};

    hostcuda_sync(width, mask, hostcuda_count_votes, &vote, site);
    return vote;
}

static inline unsigned hostcuda_lanes_with(const struct hostcuda_vote *vote, unsigned mask,
                                           uint64_t value)
{
    unsigned lanes = 0;

    for (unsigned i = 0; i < HOSTCUDA_WARP; i++)
        lanes |= (unsigned)(vote->all[i] == value) << i;
    return lanes & mask;
}

static inline unsigned __ballot_sync(unsigned mask, int holds, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__ballot_sync", file, line};
    const struct hostcuda_vote vote = hostcuda_vote_of(HOSTCUDA_WARP, mask, holds != 0, &site);

    return hostcuda_lanes_with(&vote, mask, 1);
}

static inline int __any_sync(unsigned mask, int holds, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__any_sync", file, line};

    return hostcuda_vote_of(HOSTCUDA_WARP, mask, holds != 0, &site).any != 0;
}

static inline int __all_sync(unsigned mask, int holds, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__all_sync", file, line};

    return hostcuda_vote_of(HOSTCUDA_WARP, mask, holds != 0, &site).every != 0;
}

static inline unsigned __match_any_sync(unsigned mask, unsigned value, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__match_any_sync", file, line};
    const struct hostcuda_vote vote = hostcuda_vote_of(HOSTCUDA_WARP, mask, value, &site);

    return hostcuda_lanes_with(&vote, mask, value);
}

static inline int __syncthreads_or(int holds, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__syncthreads_or", file, line};
    const struct hostcuda_dim size = blockDim;

    return hostcuda_vote_of((int)(size.x * size.y * size.z), ~0u, holds != 0, &site).any != 0;
}

static inline int __syncthreads_count(int holds, HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__syncthreads_count", file, line};
    const struct hostcuda_dim size = blockDim;

    return (int)hostcuda_vote_of((int)(size.x * size.y * size.z), ~0u, holds != 0, &site).count;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static inline void __threadfence(void)
{
}

static inline void __threadfence_block(void)
{
}

template <typename T> T __ldg(const T *from)
{
    return *from;
}

template <typename T> T __ldcs(const T *from)
{
    return *from;
}

template <typename T> void __stcs(T *to, T value)
{
    *to = value;
}

template <typename T> T atomicAdd(T *to, T value)
{
    T before = *to;

    *to = before + value;
    return before;
}

template <typename T> T atomicMax(T *to, T value)
{
    T before = *to;

    *to = before < value ? value : before;
    return before;
}

[[noreturn]] static inline void hostcuda_trap(HOSTCUDA_HERE)
{
    const struct hostcuda_site site = {"__trap", file, line};

    hostcuda_fail("__trap", &site);
}
#define __trap() hostcuda_trap()

/* ---- numbers --------------------------------------------------------------------------------- */

template <typename To, typename From> To hostcuda_bits(From from)
{
    To to;

    static_assert(sizeof to == sizeof from, "the same bits");
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline unsigned __float_as_uint(float x)
{
    return hostcuda_bits<unsigned>(x);
}

static inline int __float_as_int(float x)
{
    return hostcuda_bits<int>(x);
}

static inline float __uint_as_float(unsigned x)
{
    return hostcuda_bits<float>(x);
}

static inline float __int_as_float(int x)
{
    return hostcuda_bits<float>(x);
}

/* The GPU's own functions are as far off as NVIDIA allows them to be (CUDA C++ Programming Guide,
 * "Intrinsic Functions"): UNITS in the last place beside the exact result, this way or that as the
 * result's last bit has it. What is exact on a GPU stays so: 0, infinity, 2^0. */
enum { HOSTCUDA_UNITS = 2 };

static inline float hostcuda_off(float exact)
{
    unsigned bits = __float_as_uint(exact);
    bool whole = exact == 0 || exact == 1 || !(fabsf(exact) <= 0x1.fffffp127f);

    return whole ? exact
                 : __uint_as_float((bits & 1) != 0 ? bits - HOSTCUDA_UNITS : bits + HOSTCUDA_UNITS);
}

/* ex2.approx.ftz */
static inline float hostcuda_ex2(float x)
{
    float y = exp2f(x);

    return hostcuda_off(y < 0x1p-126f ? 0 : y);
}

/* The C library has functions of these names inside. */
#define __expf(x) hostcuda_ex2((x)*1.44269504088896341f)

static inline float __fdividef(float a, float b)
{
    return fabsf(b) > 0x1p126f ? a * copysignf(0, b) : hostcuda_off(a / b);
}

static inline float __frcp_rn(float x)
{
    return 1 / x;
}

static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

/* ---- 16 bits --------------------------------------------------------------------------------- */

struct __nv_bfloat16 {
    unsigned short bits;
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return ct_bf16_to_f32(x.bits);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return {ct_bf16_from_f32(x)};
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return {bits};
}

struct __half {
    unsigned short bits;
};

struct alignas(4) __half2 {
    __half x, y;
};

static inline float __half2float(__half x)
{
    return ct_f16_to_f32(x.bits);
}

static inline __half __float2half_rn(float x)
{
    return {ct_f16_from_f32(x)};
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}

static inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    return {bits};
}

#endif
