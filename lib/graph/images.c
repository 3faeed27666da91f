/* See builder.h: layers over images. */
#include "graph/builder.h"

#include "base/assert.h"

#include <math.h>
#include <stdio.h>

enum { MAX_NAME = 120 };

static struct ct_shape shape_of(const struct ct_builder *b, int value)
{
    CT_ASSERT(value >= 0 && value < b->program->value_count);
    return b->program->values[value].shape;
}

static struct ct_shape shape4(int64_t n, int64_t height, int64_t width, int64_t channels)
{
    return (struct ct_shape){4, {n, height, width, channels}};
}

/* Blocks of rows x columns of `from` transposed, as `shape`. */
static int swapped(struct ct_builder *b, int from, int64_t rows, int64_t columns,
                   struct ct_shape shape, const char *name)
{
    struct ct_program_op op = ct_program_op(CT_OP_SWAP);

    op.in[0] = from;
    op.out[0] = ct_program_value(b->program, CT_VALUE_TEMP, b->dtype, shape, name);
    op.attr.rows = (uint64_t)rows;
    op.attr.columns = (uint64_t)columns;
    return ct_program_emit(b->program, op);
}

int ct_build_image(struct ct_builder *b, int64_t channels, int64_t height, int64_t width)
{
    if (channels == 1) /* both orders are the same */
        return ct_build_features(b, shape4(b->rows, height, width, 1));
    int x = ct_build_features(b, shape4(b->rows, channels, height, width));

    return ct_build_ok(b) ? swapped(b, x, channels, height * width,
                                    shape4(b->rows, height, width, channels), "image")
                          : CT_NONE;
}

/* Emit an op of windows over `image` that gives `out` channels. */
static int over_windows(struct ct_builder *b, struct ct_program_op op, int image, int64_t out,
                        struct ct_window w)
{
    struct ct_shape x = shape_of(b, image);
    int64_t height = (x.dim[1] + 2 * w.pad - w.kernel) / w.stride + 1;
    int64_t width = (x.dim[2] + 2 * w.pad - w.kernel) / w.stride + 1;

    op.in[0] = image;
    op.out[0] = ct_program_value(b->program, CT_VALUE_TEMP, b->dtype,
                                 shape4(x.dim[0], height, width, out), "image");
    op.attr.kernel = (uint64_t)w.kernel;
    op.attr.stride = (uint64_t)w.stride;
    op.attr.pad = (uint64_t)w.pad;
    return ct_program_emit(b->program, op);
}

static int add_conv(struct ct_builder *b, const char *name, int image, int64_t out,
                    struct ct_window window, bool biased)
{
    struct ct_program_op op = ct_program_op(CT_OP_CONV2D);
    char part[MAX_NAME];

    if (!ct_build_ok(b))
        return CT_NONE;
    int64_t channels = shape_of(b, image).dim[3], area = window.kernel * window.kernel;
    struct ct_init init = {CT_INIT_UNIFORM, 1 / sqrt((double)(channels * area))};

    (void)snprintf(part, sizeof part, "%s.weight", name);
    op.in[1] = ct_build_param(b, part, shape4(out, channels, window.kernel, window.kernel), init);
    (void)snprintf(part, sizeof part, "%s.bias", name);
    if (biased)
        op.in[2] = ct_build_param(b, part, ct_shape1(out), init);
    if (channels > 1 && area > 1 && ct_build_ok(b)) /* channels last, as in the image */
        op.in[1] = swapped(b, op.in[1], channels, area,
                           shape4(out, window.kernel, window.kernel, channels), "weight");
    return ct_build_ok(b) ? over_windows(b, op, image, out, window) : CT_NONE;
}

int ct_build_conv(struct ct_builder *b, const char *name, int image, int64_t out,
                  struct ct_window window)
{
    return add_conv(b, name, image, out, window, true);
}

int ct_build_conv_unbiased(struct ct_builder *b, const char *name, int image, int64_t out,
                           struct ct_window window)
{
    return add_conv(b, name, image, out, window, false);
}

int ct_build_maxpool(struct ct_builder *b, int image, struct ct_window window)
{
    if (!ct_build_ok(b))
        return CT_NONE;
    return over_windows(b, ct_program_op(CT_OP_MAXPOOL), image, shape_of(b, image).dim[3], window);
}

int ct_build_avgpool(struct ct_builder *b, int image, struct ct_window window)
{
    if (!ct_build_ok(b))
        return CT_NONE;
    return over_windows(b, ct_program_op(CT_OP_AVGPOOL), image, shape_of(b, image).dim[3], window);
}

int ct_build_flatten(struct ct_builder *b, int image)
{
    if (!ct_build_ok(b))
        return CT_NONE;
    struct ct_shape x = shape_of(b, image);

    CT_ASSERT(x.dims == 4);
    int64_t pixels = x.dim[1] * x.dim[2];

    return swapped(b, image, pixels, x.dim[3], ct_shape2(x.dim[0], pixels * x.dim[3]), "features");
}
