/* See picture.h. */
#include "tensor/cuda/picture.h"

#include "base/assert.h"

enum {
    TILE = 64,       /* rows and columns of dW that a block has (conv.cu) */
    WANTED = 264,    /* blocks: two for each multiprocessor of an H100 */
    SHORTEST = 1024, /* pixels worth a part */
    STEP = 16        /* pixels that a block adds at a time */
};

struct ct_picture ct_picture_of(const struct ct_attr *attr, struct ct_shape x, struct ct_shape y)
{
    const int64_t *in = x.dim, *out = y.dim;
    struct ct_picture p = {
        .height = (int32_t)in[1],
        .width = (int32_t)in[2],
        .channels = (int32_t)in[3],
        .out_height = (int32_t)out[1],
        .out_width = (int32_t)out[2],
        .out_channels = (int32_t)out[3],
        .kernel = (int32_t)attr->kernel,
        .stride = (int32_t)attr->stride,
        .pad = (int32_t)attr->pad,
    };

    p.window = p.kernel * p.kernel * p.channels;
    p.pixels = in[0] * in[1] * in[2];
    p.out_pixels = out[0] * out[1] * out[2];
    return p;
}

static int64_t tiles(int64_t size)
{
    return (size + TILE - 1) / TILE;
}

int ct_picture_parts(const struct ct_picture *picture)
{
    int64_t blocks = CT_MAX(tiles(picture->out_channels) * tiles(picture->window), 1);
    int64_t bytes = CT_MAX((int64_t)picture->out_channels * picture->window * 4, 1);
    int64_t parts = CT_MIN(WANTED / blocks, CT_CUDA_WORKSPACE / bytes);

    return (int)CT_MAX(CT_MIN(parts, picture->out_pixels / SHORTEST), 1);
}

int64_t ct_picture_part_pixels(const struct ct_picture *picture)
{
    int64_t parts = ct_picture_parts(picture), each = (picture->out_pixels + parts - 1) / parts;

    return (each + STEP - 1) / STEP * STEP;
}
