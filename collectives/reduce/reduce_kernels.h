/* The reduction kernels of one instruction set: included by a file that is compiled for that set
 * and defines CT_REDUCE_TABLE as the name of its table.
 *
 * The vector types are the compiler's own, so the same text becomes SSE2, AVX2 or AVX-512. A type
 * is described by macros, then reduce_type.h is included to make its kernels:
 *
 *     NAME(x)           the name of its function x
 *     T, S              a stored element, a vector of these
 *     A                 vector of accumulators, in which sums and products wrap or round
 *     C, N              what accumulators are compared and divided as: vector, one number
 *     WIDEN(to, from)   S to A
 *     NARROW(to, from)  A to S
 *     KEEP(a, op, x)    where the larger (op is >) or smaller (op is <) of a and x is a: the later
 *                       of two equals, the earlier of two NaN, so that brackets make no difference
 */
#include "reduce/reduce.h"
#include "reduce/reduce_table.h"

#include <string.h>
#if CT_REDUCE_WIDTH > 16
#include <immintrin.h>
#endif

#define VECTOR(name, element, bytes) typedef element name __attribute__((vector_size(bytes)))
VECTOR(vec_f32, float, CT_REDUCE_WIDTH);
VECTOR(vec_f64, double, CT_REDUCE_WIDTH);
VECTOR(vec_u64, uint64_t, CT_REDUCE_WIDTH);
VECTOR(vec_i64, int64_t, CT_REDUCE_WIDTH);
VECTOR(vec_u32, uint32_t, CT_REDUCE_WIDTH);
VECTOR(vec_i32, int32_t, CT_REDUCE_WIDTH);
VECTOR(vec_u8, uint8_t, CT_REDUCE_WIDTH);
VECTOR(half_u16, uint16_t, CT_REDUCE_WIDTH / 2);
VECTOR(half_i16, int16_t, CT_REDUCE_WIDTH / 2);
VECTOR(quarter_u8, uint8_t, CT_REDUCE_WIDTH / 4);
VECTOR(quarter_i8, int8_t, CT_REDUCE_WIDTH / 4);

enum { LEVELS = 17, AHEAD = 1024 };
_Static_assert(1 << (LEVELS - 1) >= CT_REDUCE_SOURCES_MAX, "a level for each bit of the source");

/* Whole blocks, past the caches where the instruction set can; aligned as its vectors are. */
static inline __attribute__((always_inline)) void stream(void *dst, const void *src, size_t bytes)
{
#if CT_REDUCE_WIDTH == 64
    for (size_t at = 0; at < bytes; at += 64)
        _mm512_stream_si512((void *)((char *)dst + at), _mm512_loadu_si512((const char *)src + at));
#elif CT_REDUCE_WIDTH == 32
    for (size_t at = 0; at < bytes; at += 32)
        _mm256_stream_si256((void *)((char *)dst + at),
                            _mm256_loadu_si256((const void *)((const char *)src + at)));
#else
    memcpy(dst, src, bytes);
#endif
}

#define SAME(to, from) (*(to) = *(from))
#define KEEP_FLOAT(a, op, x) (((a)op(x)) | ((a) != (a)))
#define KEEP_INTEGER(a, op, x) ((a)op(x))
#define PICK(mask, yes, no) (((yes) & (mask)) | ((no) & ~(mask)))

/* ---- floats ----------------------------------------------------------------------------------*/

#define NAME(x) f32_##x
#define T float
#define S vec_f32
#define A vec_f32
#define C vec_f32
#define N float
#define WIDEN SAME
#define NARROW SAME
#define KEEP KEEP_FLOAT
#include "reduce/reduce_type.h"

#define NAME(x) f64_##x
#define T double
#define S vec_f64
#define A vec_f64
#define C vec_f64
#define N double
#define WIDEN SAME
#define NARROW SAME
#define KEEP KEEP_FLOAT
#include "reduce/reduce_type.h"

static inline void bf16_widen(vec_f32 *to, const half_u16 *from)
{
    *to = (vec_f32)(__builtin_convertvector(*from, vec_u32) << 16);
}

/* Round to nearest even on the bits; a NaN is made quiet. As ct_bf16_from_f32. */
static inline void bf16_narrow(half_u16 *to, const vec_f32 *from)
{
    vec_u32 bits = (vec_u32)*from;
    vec_u32 nan = (vec_u32)((bits & 0x7fffffffu) > 0x7f800000u);
    vec_u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;

    rounded = PICK(nan, (bits >> 16) | 0x40u, rounded);
    *to = __builtin_convertvector(rounded, half_u16);
}

#define NAME(x) bf16_##x
#define T uint16_t
#define S half_u16
#define A vec_f32
#define C vec_f32
#define N float
#define WIDEN bf16_widen
#define NARROW bf16_narrow
#define KEEP KEEP_FLOAT
#include "reduce/reduce_type.h"

/* As ct_f16_to_f32: the exponent is moved; numbers below 2^-14 are whole multiples of 2^-24. */
static inline void f16_widen(vec_f32 *to, const half_u16 *from)
{
    vec_u32 bits = __builtin_convertvector(*from, vec_u32);
    vec_u32 sign = (bits & 0x8000u) << 16;
    vec_i32 rest = (vec_i32)(bits & 0x7fffu);
    vec_u32 shifted = (vec_u32)rest << 13;
    vec_u32 small = (vec_u32)(__builtin_convertvector(rest, vec_f32) * 0x1p-24f);
    vec_u32 value = PICK((vec_u32)(rest < 0x400), small, shifted + 0x38000000u);

    value = PICK((vec_u32)(rest >= 0x7c00), shifted | 0x7f800000u, value);
    *to = (vec_f32)(sign | value);
}

/* As ct_f16_from_f32: to nearest even; what is below 2^-14 is shifted, and rounded, by an addition;
 * 65520 and above becomes infinite. */
static inline void f16_narrow(half_u16 *to, const vec_f32 *from)
{
    vec_u32 bits = (vec_u32)*from;
    vec_u32 sign = (bits >> 16) & 0x8000u;
    vec_u32 rest = bits & 0x7fffffffu;
    vec_i32 size = (vec_i32)rest;
    vec_u32 small = (vec_u32)((vec_f32)rest + 0.5f) - 0x3f000000u;
    vec_u32 value = (rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13;

    value = PICK((vec_u32)(size < 0x38800000), small, value);
    value = PICK((vec_u32)(size >= 0x477ff000), (vec_u32){0} + 0x7c00u, value);
    value = PICK((vec_u32)(size > 0x7f800000), (vec_u32){0} + 0x7e00u, value);
    *to = __builtin_convertvector(sign | value, half_u16);
}

#define NAME(x) f16_##x
#define T uint16_t
#define S half_u16
#define A vec_f32
#define C vec_f32
#define N float
#define WIDEN f16_widen
#define NARROW f16_narrow
#define KEEP KEEP_FLOAT
#include "reduce/reduce_type.h"

/* To f32 and back: a vector at a time, the last one through a copy. */
typedef half_u16 half_unaligned __attribute__((aligned(1), may_alias));
typedef vec_f32 f32_span __attribute__((aligned(1), may_alias));

enum { HALVES = sizeof(half_u16) / sizeof(uint16_t) };

/* `widen` and `narrow` are constants wherever they are given, and are inlined. */
static inline __attribute__((always_inline)) void
convert_up(void (*widen)(vec_f32 *to, const half_u16 *from), float *dst, const uint16_t *src,
           size_t count)
{
    for (size_t at = 0; at < count; at += HALVES) {
        size_t n = count - at < HALVES ? count - at : HALVES;
        half_u16 raw = {0};
        vec_f32 wide;

        if (n == HALVES)
            raw = *(const half_unaligned *)(src + at);
        else
            memcpy(&raw, src + at, n * sizeof *src);
        widen(&wide, &raw);
        if (n == HALVES)
            *(f32_span *)(dst + at) = wide;
        else
            memcpy(dst + at, &wide, n * sizeof *dst);
    }
}

static inline __attribute__((always_inline)) void
convert_down(void (*narrow)(half_u16 *to, const vec_f32 *from), uint16_t *dst, const float *src,
             size_t count)
{
    for (size_t at = 0; at < count; at += HALVES) {
        size_t n = count - at < HALVES ? count - at : HALVES;
        vec_f32 wide = {0};
        half_u16 raw;

        if (n == HALVES)
            wide = *(const f32_span *)(src + at);
        else
            memcpy(&wide, src + at, n * sizeof *src);
        narrow(&raw, &wide);
        if (n == HALVES)
            *(half_unaligned *)(dst + at) = raw;
        else
            memcpy(dst + at, &raw, n * sizeof *dst);
    }
}

static void bf16_to_f32(float *dst, const void *src, size_t count)
{
    convert_up(bf16_widen, dst, src, count);
}

static void bf16_from_f32(void *dst, const float *src, size_t count)
{
    convert_down(bf16_narrow, dst, src, count);
}

static void f16_to_f32(float *dst, const void *src, size_t count)
{
    convert_up(f16_widen, dst, src, count);
}

static void f16_from_f32(void *dst, const float *src, size_t count)
{
    convert_down(f16_narrow, dst, src, count);
}

/* ---- integers: unsigned accumulators, which wrap ---------------------------------------------*/

#define NAME(x) i64_##x
#define T uint64_t
#define S vec_u64
#define A vec_u64
#define C vec_i64
#define N int64_t
#define WIDEN SAME
#define NARROW SAME
#define KEEP KEEP_INTEGER
#include "reduce/reduce_type.h"

#define NAME(x) i32_##x
#define T uint32_t
#define S vec_u32
#define A vec_u32
#define C vec_i32
#define N int32_t
#define WIDEN SAME
#define NARROW SAME
#define KEEP KEEP_INTEGER
#include "reduce/reduce_type.h"

#define NAME(x) i16_##x
#define T int16_t
#define S half_i16
#define A vec_u32
#define C vec_i32
#define N int32_t
#define WIDEN(to, from) (*(to) = (vec_u32) __builtin_convertvector(*(from), vec_i32))
#define NARROW(to, from) (*(to) = __builtin_convertvector(*(from), half_i16))
#define KEEP KEEP_INTEGER
#include "reduce/reduce_type.h"

#define NAME(x) i8_##x
#define T int8_t
#define S quarter_i8
#define A vec_u32
#define C vec_i32
#define N int32_t
#define WIDEN(to, from) (*(to) = (vec_u32) __builtin_convertvector(*(from), vec_i32))
#define NARROW(to, from) (*(to) = __builtin_convertvector(*(from), quarter_i8))
#define KEEP KEEP_INTEGER
#include "reduce/reduce_type.h"

#define NAME(x) u8_##x
#define T uint8_t
#define S quarter_u8
#define A vec_u32
#define C vec_u32
#define N uint32_t
#define WIDEN(to, from) (*(to) = __builtin_convertvector(*(from), vec_u32))
#define NARROW(to, from) (*(to) = __builtin_convertvector(*(from), quarter_u8))
#define KEEP KEEP_INTEGER
#include "reduce/reduce_type.h"

/* 0 or 1, whatever was stored. */
#define NAME(x) bool_##x
#define T uint8_t
#define S vec_u8
#define A vec_u8
#define C vec_u8
#define N uint8_t
#define WIDEN(to, from) (*(to) = (vec_u8)(*(from) != 0) & 1)
#define NARROW SAME
#define KEEP KEEP_INTEGER
#include "reduce/reduce_type.h"

/* ---- the table -------------------------------------------------------------------------------*/

#define BOTH(kernel)   \
    {                  \
        kernel, kernel \
    } /* the order makes no difference */
#define SUMS(type)                                                                          \
    [CT_REDUCE_SUM] = {type##_sum, type##_sum_tree},                                        \
    [CT_REDUCE_AVG] = {type##_sum, type##_sum_tree},                                        \
    [CT_REDUCE_PROD] = {type##_prod, type##_prod_tree}, [CT_REDUCE_MAX] = BOTH(type##_max), \
    [CT_REDUCE_MIN] = BOTH(type##_min)
#define FLOAT(type)                                                                \
    {                                                                              \
        SUMS(type), [CT_REDUCE_PREMUL_SUM] = { type##_premul, type##_premul_tree } \
    }
#define INTEGER(type)                                                                    \
    {                                                                                    \
        SUMS(type), [CT_REDUCE_AND] = BOTH(type##_and), [CT_REDUCE_OR] = BOTH(type##_or) \
    }

const struct ct_reduce_kernels CT_REDUCE_TABLE = {
    .of = {[CT_F32] = FLOAT(f32),
           [CT_F64] = FLOAT(f64),
           [CT_BF16] = FLOAT(bf16),
           [CT_F16] = FLOAT(f16),
           [CT_I64] = INTEGER(i64),
           [CT_I32] = INTEGER(i32),
           [CT_I16] = INTEGER(i16),
           [CT_I8] = INTEGER(i8),
           [CT_U8] = INTEGER(u8),
           [CT_BOOL] = {[CT_REDUCE_SUM] = BOTH(bool_or),
                        [CT_REDUCE_MAX] = BOTH(bool_or),
                        [CT_REDUCE_OR] = BOTH(bool_or),
                        [CT_REDUCE_PROD] = BOTH(bool_and),
                        [CT_REDUCE_MIN] = BOTH(bool_and),
                        [CT_REDUCE_AND] = BOTH(bool_and)}},
    .widen = {[CT_BF16] = bf16_to_f32, [CT_F16] = f16_to_f32},
    .narrow = {[CT_BF16] = bf16_from_f32, [CT_F16] = f16_from_f32},
};
