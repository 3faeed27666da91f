/* Reduction of n buffers into one, element by element: the only place where ctrun adds up data of
 * several ranks.
 *
 *     dst[k] = x0[k] o x1[k] o ... o x(n-1)[k]        all types
 *     ORDER_RANK  ((x0 + x1) + x2) + ...
 *     ORDER_TREE  x[i] += x[i + d] for d = 1, 2, 4, ... and i a multiple of 2d, while i + d < n
 *
 * BF16 is added in f32 and rounded once, U8 is added in 32 bits and wraps once. A divisor > 1
 * divides the sum: f32 and f64 by IEEE division, integers towards zero, bf16 before it is rounded.
 * MAX gives NaN when one operand is NaN. The kernels are compiled for several instruction sets and
 * give the same bits in each. */
#ifndef CT_COLL_REDUCE_H
#define CT_COLL_REDUCE_H

#include "ctrun.h"

enum ct_reduce_order { CT_ORDER_RANK, CT_ORDER_TREE };

enum { CT_REDUCE_SOURCES_MAX = 4096 };

struct ct_reduction {
    enum ct_dtype dtype;
    enum ct_reduce reduce;      /* AVG is a SUM with a divisor */
    enum ct_reduce_order order; /* of sums; a maximum has none */
    int divisor;                /* <= 1: none */
};

/* Can elements of this type be reduced? */
bool ct_reduce_supports(enum ct_dtype dtype);

/* Are partial results of this type exact to hand on, that is, is it added in its own precision? */
bool ct_reduce_in_own_type(enum ct_dtype dtype);

/* dst[0 .. count) from `sources` buffers (1 .. CT_REDUCE_SOURCES_MAX). `dst` may be one of them,
 * but must not overlap one in part. Alignment: that of the element. */
void ct_reduce(const struct ct_reduction *how, void *dst, const void *const *source, int sources,
               size_t count);

/* The kernels of one instruction set, and of those this machine has, for tests: index 0 is the
 * portable one; NULL where the machine cannot run it. */
enum { CT_REDUCE_ISAS = 3 };
struct ct_reduce_kernels;
const struct ct_reduce_kernels *ct_reduce_isa(int isa);
void ct_reduce_with(const struct ct_reduce_kernels *kernels, const struct ct_reduction *how,
                    void *dst, const void *const *source, int sources, size_t count);

#endif
