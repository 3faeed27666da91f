/* Images on the GPU: sizes of convolutions and pools (op.def), and how a convolution's weight
 * gradient, a long sum, is cut into parts that blocks add up side by side. */
#ifndef CT_TENSOR_CUDA_PICTURE_H
#define CT_TENSOR_CUDA_PICTURE_H

#include "tensor/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of x and y; a window is kernel x kernel pixels of `channels`. */
struct ct_picture {
    int32_t height, width, channels;
    int32_t out_height, out_width, out_channels;
    int32_t kernel, stride, pad;
    int32_t window;             /* elements */
    int64_t pixels, out_pixels; /* of all samples */
};

struct ct_picture ct_picture_of(const struct ct_attr *attr, struct ct_shape x, struct ct_shape y);

/* Return the number of parts of conv2d_dw's sum over the pixels of y, from the shapes alone: as
 * many as fill a large GPU, each of at least ct_picture_part_pixels, all in the workspace of every
 * queue. */
int ct_picture_parts(const struct ct_picture *picture);

/* Return the number of pixels of one part: a multiple of 16. */
int64_t ct_picture_part_pixels(const struct ct_picture *picture);

#ifdef __cplusplus
}
#endif

#endif
