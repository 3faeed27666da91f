/* Reduction of n buffers into one, element by element: the only place where ctrun adds up data of
 * several ranks.
 *
 *     dst[k] = x0[k] o x1[k] o ... o x(n-1)[k]
 *     ORDER_RANK  ((x0 + x1) + x2) + ...
 *     ORDER_TREE  x[i] += x[i + d] for d = 1, 2, 4, ... and i a multiple of 2d, while i + d < n
 *
 *                 SUM PROD MAX MIN   AVG   AND OR   PREMUL_SUM   added in
 *   F32 F64             yes          yes     -         yes       the type itself
 *   BF16 F16            yes          yes     -         yes       f32, rounded once
 *   I64 I32             yes          yes    yes         -        the type itself, wraps
 *   I16 I8 U8           yes          yes    yes         -        32 bits, wraps once
 *   BOOL                yes           -     yes         -        SUM MAX OR: or; PROD MIN AND: and
 *
 * A divisor > 1 divides the sum before it is rounded: floats by IEEE division, integers towards
 * zero. MAX and MIN give NaN when one operand is NaN. A premultiplied sum adds factor[i] * xi, each
 * product rounded in the type that is added in. BOOL gives 0 or 1; any value but 0 is true. The
 * kernels are compiled for several instruction sets and give the same bits in each. */
#ifndef CT_COLL_REDUCE_H
#define CT_COLL_REDUCE_H

#include "ctrun.h"

enum ct_reduce_order { CT_ORDER_RANK, CT_ORDER_TREE, CT_ORDER_COUNT };

/* The ranks of a group, at most. A tree keeps a vector for each bit of it on the stack. */
enum { CT_REDUCE_SOURCES_MAX = 65536 };

struct ct_reduction {
    enum ct_dtype dtype;
    enum ct_reduce reduce;      /* AVG is a SUM with a divisor */
    enum ct_reduce_order order; /* of sums and products; the others have none */
    int divisor;                /* <= 1: none */
    const double *factor;       /* a source, for PREMUL_SUM */
    void *const *copy;          /* further destinations of the result, in the caches of others; */
    int copies;                 /* like `dst`, each may be one of the sources */
    bool stream;                /* write these past the caches, if they lie on whole lines */
};

/* Return whether this operation is defined for this type (the table above). Any values. */
bool ct_reduce_supports(enum ct_dtype dtype, enum ct_reduce reduce);

/* Return whether the operation may be made in several steps, with partial results of the element's
 * type. */
bool ct_reduce_in_steps(enum ct_dtype dtype, enum ct_reduce reduce);

/* Return whether it is a sum or product of BF16 or F16, which in several steps has partial results
 * in F32 that are rounded once at the end. */
bool ct_reduce_through_f32(enum ct_dtype dtype, enum ct_reduce reduce);

/* Convert src, of type BF16 or F16, to F32 (exact); and back, rounded. No overlap. */
void ct_reduce_widen(enum ct_dtype dtype, float *dst, const void *src, size_t count);
void ct_reduce_narrow(enum ct_dtype dtype, void *dst, const float *src, size_t count);

/* Reduce `sources` buffers (1 .. CT_REDUCE_SOURCES_MAX) into dst[0 .. count). `dst` may be one of
 * them, but must not overlap one in part. Alignment: that of the element. */
void ct_reduce_buffers(const struct ct_reduction *how, void *dst, const void *const *source,
                       int sources, size_t count);

/* Return the kernels of one instruction set, for tests: index 0 is the portable one; NULL where the
 * machine cannot run it. The functions below use them. */
enum { CT_REDUCE_ISAS = 3 };
struct ct_reduce_kernels;
const struct ct_reduce_kernels *ct_reduce_isa(int isa);
void ct_reduce_with(const struct ct_reduce_kernels *kernels, const struct ct_reduction *how,
                    void *dst, const void *const *source, int sources, size_t count);
void ct_reduce_widen_with(const struct ct_reduce_kernels *kernels, enum ct_dtype dtype, float *dst,
                          const void *src, size_t count);
void ct_reduce_narrow_with(const struct ct_reduce_kernels *kernels, enum ct_dtype dtype, void *dst,
                           const float *src, size_t count);

#endif
