/* What reduce.c and the kernels of each instruction set share. */
#ifndef CT_COLL_REDUCE_TABLE_H
#define CT_COLL_REDUCE_TABLE_H

#include "base/dtype.h"

struct ct_reduce_args {
    void *dst;
    const void *const *source;
    int sources;
    int divisor;
    size_t count;
};

struct ct_reduce_row {
    void (*sum)(const struct ct_reduce_args *args); /* rank order */
    void (*max)(const struct ct_reduce_args *args);
    void (*tree)(const struct ct_reduce_args *args); /* sum in tree order */
};

/* A row a type; NULL where the type is not reduced. */
struct ct_reduce_kernels {
    struct ct_reduce_row of[CT_DTYPE_COUNT];
};

extern const struct ct_reduce_kernels ct_reduce_portable, ct_reduce_avx2, ct_reduce_avx512;

#endif
