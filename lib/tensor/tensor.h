/* Tensors: a typed, row-major, contiguous view of memory that they do not own.
 *
 *     float x[6];           struct ct_tensor t = {CT_F32, ct_shape2(2, 3), x};
 *     x = | 0 1 2 |         element (i, j) is x[i * 3 + j]
 *         | 3 4 5 |
 *
 * A tensor is a value: copy it, slice it, drop it. There are no strides and no reference counts:
 * memory comes from a device's arena (device.h) and outlives every view of it. */
#ifndef CT_TENSOR_TENSOR_H
#define CT_TENSOR_TENSOR_H

#include "base/number/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CT_MAX_DIMS = 4 };

/* `dims` sizes, outermost first; dim[dims..] is 0. No dimensions is a shape of one element. */
struct ct_shape {
    int dims;
    int64_t dim[CT_MAX_DIMS];
};

struct ct_tensor {
    enum ct_dtype dtype;
    struct ct_shape shape;
    void *data; /* NULL: an optional operand that is not given */
};

static inline struct ct_shape ct_shape1(int64_t n)
{
    struct ct_shape shape = {1, {n, 0, 0, 0}};
    return shape;
}

static inline struct ct_shape ct_shape2(int64_t rows, int64_t columns)
{
    struct ct_shape shape = {2, {rows, columns, 0, 0}};
    return shape;
}

bool ct_shape_equal(struct ct_shape a, struct ct_shape b);

/* Return the product of all sizes, which are >= 0 and whose product fits an int64_t (asserted). */
int64_t ct_shape_elements(struct ct_shape shape);

/* Return the product of all sizes but the last: a [2, 3, 4] tensor has 6 rows of 4. One row for
 * [n]. */
int64_t ct_shape_rows(struct ct_shape shape);

/* Return the last size: the length of a row; 1 for a shape without dimensions. */
int64_t ct_shape_columns(struct ct_shape shape);

/* Write "[32, 64]" into `text` (cut to `room`); returns `text`. */
char *ct_shape_print(struct ct_shape shape, char *text, size_t room);

/* Return the bytes that the tensor's elements occupy. */
size_t ct_tensor_bytes(const struct ct_tensor *tensor);

/* Return elements first .. first + count - 1 of the flattened tensor as a [count] view. */
struct ct_tensor ct_tensor_range(const struct ct_tensor *tensor, int64_t first, int64_t count);

/* Return rows first .. first + count - 1 (along the outermost dimension) as a view. */
struct ct_tensor ct_tensor_slice(const struct ct_tensor *tensor, int64_t first, int64_t count);

#ifdef __cplusplus
}
#endif

#endif
