/* See tensor.h. */
#include "tensor/tensor.h"

#include "base/assert.h"

#include <stdio.h>

bool ct_shape_equal(struct ct_shape a, struct ct_shape b)
{
    if (a.dims != b.dims)
        return false;
    for (int i = 0; i < a.dims; i++)
        if (a.dim[i] != b.dim[i])
            return false;
    return true;
}

static int64_t product(struct ct_shape shape, int dims)
{
    int64_t n = 1;

    CT_ASSERT(dims >= 0 && dims <= CT_MAX_DIMS);
    for (int i = 0; i < dims; i++) {
        CT_ASSERT(shape.dim[i] >= 0);
        CT_ASSERT(!__builtin_mul_overflow(n, shape.dim[i], &n));
    }
    return n;
}

int64_t ct_shape_elements(struct ct_shape shape)
{
    return product(shape, shape.dims);
}

int64_t ct_shape_rows(struct ct_shape shape)
{
    return shape.dims == 0 ? 1 : product(shape, shape.dims - 1);
}

int64_t ct_shape_columns(struct ct_shape shape)
{
    return shape.dims == 0 ? 1 : shape.dim[shape.dims - 1];
}

char *ct_shape_print(struct ct_shape shape, char *text, size_t room)
{
    size_t used = 0;

    CT_ASSERT(room > 0);
    text[0] = 0;
    for (int i = 0; i <= shape.dims; i++) {
        int n;

        if (i < shape.dims)
            n = snprintf(text + used, room - used, "%s%lld", i == 0 ? "[" : ", ",
                         (long long)shape.dim[i]);
        else
            n = snprintf(text + used, room - used, shape.dims == 0 ? "[]" : "]");
        if (n < 0 || (size_t)n >= room - used)
            break;
        used += (size_t)n;
    }
    return text;
}

size_t ct_tensor_bytes(const struct ct_tensor *tensor)
{
    return (size_t)ct_shape_elements(tensor->shape) * ct_dtype_size(tensor->dtype);
}

static void *offset(const struct ct_tensor *tensor, int64_t elements)
{
    return (char *)tensor->data + (size_t)elements * ct_dtype_size(tensor->dtype);
}

struct ct_tensor ct_tensor_range(const struct ct_tensor *tensor, int64_t first, int64_t count)
{
    CT_ASSERT(first >= 0 && count >= 0);
    CT_ASSERT(first <= ct_shape_elements(tensor->shape) - count);
    return (struct ct_tensor){tensor->dtype, ct_shape1(count), offset(tensor, first)};
}

struct ct_tensor ct_tensor_slice(const struct ct_tensor *tensor, int64_t first, int64_t count)
{
    struct ct_tensor slice = *tensor;

    CT_ASSERT(tensor->shape.dims > 0);
    CT_ASSERT(first >= 0 && count >= 0 && first <= tensor->shape.dim[0] - count);
    slice.shape.dim[0] = 1;
    slice.data = offset(tensor, first * ct_shape_elements(slice.shape));
    slice.shape.dim[0] = count;
    return slice;
}
