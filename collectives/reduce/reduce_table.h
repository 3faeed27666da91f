/* Shared by reduce.c and the kernels of each instruction set. */
#ifndef CT_COLL_REDUCE_TABLE_H
#define CT_COLL_REDUCE_TABLE_H

#include "reduce/reduce.h"

struct ct_reduce_args {
    void *dst;
    void *const *copy;
    const void *const *source;
    const double *factor; /* a source, of a premultiplied sum */
    int sources;
    int copies;
    int divisor;
    bool stream;
    size_t count;
};

typedef void ct_reduce_kernel(const struct ct_reduce_args *args);

/* A kernel for each type, operation and order; NULL where the operation means nothing. Of types
 * that are added in f32: to it and back. */
struct ct_reduce_kernels {
    ct_reduce_kernel *of[CT_DTYPE_COUNT][CT_REDUCE_COUNT][CT_ORDER_COUNT];
    void (*widen[CT_DTYPE_COUNT])(float *dst, const void *src, size_t count);
    void (*narrow[CT_DTYPE_COUNT])(void *dst, const float *src, size_t count);
};

extern const struct ct_reduce_kernels ct_reduce_portable, ct_reduce_avx2, ct_reduce_avx512;

/* The instruction sets of this architecture, best last (reduce_sets_x86_64.c and its sibling). */
struct ct_reduce_set {
    const struct ct_reduce_kernels *kernels; /* NULL: there are no more */
    bool (*runs)(void);                      /* on this machine; NULL: on any */
};

extern const struct ct_reduce_set ct_reduce_sets[CT_REDUCE_ISAS];

#endif
