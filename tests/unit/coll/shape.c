/* See shape.h. */
#include "shape.h"

#include "buffer.h"
#include "reference.h"

#include <string.h>

const size_t shape_counts[SHAPE_COUNTS] = {0, 1, 7, 131};
const enum ct_reduce_mode shape_modes[SHAPE_MODES] = {CT_MODE_FAST, CT_MODE_REPRODUCIBLE,
                                                      CT_MODE_INVARIANT};

struct ct_options shape_options(const struct shape *shape, int rank)
{
    return (struct ct_options){.mode = shape->mode, .scale = reference_scale(rank)};
}

bool shape_reduced(const struct shape *shape, int world, const char *data, size_t from)
{
    size_t size = ct_dtype_size(shape->dtype);
    unsigned char expected[8];

    for (size_t i = 0; i < shape->count; i += buffer_stride(shape->count)) {
        const char *at = data + i * size;

        reference_reduce(shape->dtype, shape->reduce, shape->mode == CT_MODE_INVARIANT, world,
                         from + i, expected);
        if (shape->mode == CT_MODE_FAST
                ? !reference_close(shape->dtype, shape->reduce, world, from + i, at)
                : memcmp(expected, at, size) != 0)
            return false;
    }
    return true;
}
