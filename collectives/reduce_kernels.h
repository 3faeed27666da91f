/* The reduction kernels of one instruction set: included by a file that is compiled for that set
 * and defines CT_REDUCE_TABLE as the name of its table.
 *
 * The vector types are the compiler's own, so the same text becomes SSE2, AVX2 or AVX-512. A type
 * is described by macros, then reduce_type.h is included to make its three kernels:
 *
 *     NAME(x)          the name of its function x
 *     T, S, A          stored element, vector of these, vector of accumulators
 *     WIDEN(x)         S to A
 *     NARROW(to, from) A to S
 *     DIVIDE(x, n)     A by a number of ranks
 *     KEEP(a, x)       where the maximum of a and x is a: the later of two equals, the earlier of
 *                      two NaN, so that it does not depend on brackets */
#include "reduce.h"
#include "reduce_table.h"

#include <string.h>

#define VECTOR(name, element, bytes) typedef element name __attribute__((vector_size(bytes)))
VECTOR(vec_f32, float, CT_REDUCE_WIDTH);
VECTOR(vec_f64, double, CT_REDUCE_WIDTH);
VECTOR(vec_u64, uint64_t, CT_REDUCE_WIDTH);
VECTOR(vec_i64, int64_t, CT_REDUCE_WIDTH);
VECTOR(vec_u32, uint32_t, CT_REDUCE_WIDTH);
VECTOR(vec_i32, int32_t, CT_REDUCE_WIDTH);
VECTOR(half_u16, uint16_t, CT_REDUCE_WIDTH / 2);
VECTOR(quarter_u8, uint8_t, CT_REDUCE_WIDTH / 4);

enum { LEVELS = 13 };
_Static_assert(1 << (LEVELS - 1) >= CT_REDUCE_SOURCES_MAX, "a level for each bit of the source");

#define SAME(x) (x)

#define NAME(x) f32_##x
#define T float
#define S vec_f32
#define A vec_f32
#define KEEP(a, x) (((a) > (x)) | ((a) != (a)))
#define WIDEN SAME
#define NARROW(to, from) (*(to) = *(from))
#define DIVIDE(x, n) ((x) / (float)(n))
#include "reduce_type.h"

#define NAME(x) f64_##x
#define T double
#define S vec_f64
#define A vec_f64
#define KEEP(a, x) (((a) > (x)) | ((a) != (a)))
#define WIDEN SAME
#define NARROW(to, from) (*(to) = *(from))
#define DIVIDE(x, n) ((x) / (double)(n))
#include "reduce_type.h"

/* Round to nearest even on the bits; a NaN is made quiet. As ct_bf16_from_f32. */
static inline void bf16_narrow(half_u16 *to, const vec_f32 *from)
{
    vec_u32 bits = (vec_u32)*from;
    vec_u32 nan = (vec_u32)((bits & 0x7fffffffu) > 0x7f800000u);
    vec_u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;

    rounded = (nan & ((bits >> 16) | 0x40u)) | (~nan & rounded);
    *to = __builtin_convertvector(rounded, half_u16);
}

#define NAME(x) bf16_##x
#define T uint16_t
#define S half_u16
#define A vec_f32
#define KEEP(a, x) (((a) > (x)) | ((a) != (a)))
#define WIDEN(x) ((vec_f32)(__builtin_convertvector(x, vec_u32) << 16))
#define NARROW bf16_narrow
#define DIVIDE(x, n) ((x) / (float)(n))
#include "reduce_type.h"

#define NAME(x) i64_##x
#define T uint64_t
#define S vec_u64
#define A vec_u64
#define KEEP(a, x) ((vec_i64)(a) > (vec_i64)(x))
#define WIDEN SAME
#define NARROW(to, from) (*(to) = *(from))
#define DIVIDE(x, n) ((vec_u64)((vec_i64)(x) / (int64_t)(n)))
#include "reduce_type.h"

#define NAME(x) i32_##x
#define T uint32_t
#define S vec_u32
#define A vec_u32
#define KEEP(a, x) ((vec_i32)(a) > (vec_i32)(x))
#define WIDEN SAME
#define NARROW(to, from) (*(to) = *(from))
#define DIVIDE(x, n) ((vec_u32)((vec_i32)(x) / (int32_t)(n)))
#include "reduce_type.h"

#define NAME(x) u8_##x
#define T uint8_t
#define S quarter_u8
#define A vec_u32
#define KEEP(a, x) ((vec_u32)(a) > (vec_u32)(x))
#define WIDEN(x) __builtin_convertvector(x, vec_u32)
#define NARROW(to, from) (*(to) = __builtin_convertvector(*(from), quarter_u8))
#define DIVIDE(x, n) ((x) / (uint32_t)(n))
#include "reduce_type.h"

#define ROW(type)                           \
    {                                       \
        type##_sum, type##_max, type##_tree \
    }
const struct ct_reduce_kernels CT_REDUCE_TABLE = {
    .of = {[CT_F32] = ROW(f32),
           [CT_F64] = ROW(f64),
           [CT_BF16] = ROW(bf16),
           [CT_I64] = ROW(i64),
           [CT_I32] = ROW(i32),
           [CT_U8] = ROW(u8)},
};
