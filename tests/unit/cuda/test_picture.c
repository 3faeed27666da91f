/* How the sum of a convolution's weight gradient is cut. */
#include "tensor/cuda/picture.h"

#include "base/assert.h"

#include <criterion/criterion.h>

TestSuite(picture, .timeout = 30);

static struct ct_shape images(int64_t samples, int64_t side, int64_t channels)
{
    struct ct_shape shape = {4, {samples, side, side, channels}};

    return shape;
}

static struct ct_picture of(int64_t samples, int64_t side, int64_t in, int64_t out)
{
    const struct ct_attr attr = {.kernel = 3, .stride = 1, .pad = 1};

    return ct_picture_of(&attr, images(samples, side, in), images(samples, side, out));
}

Test(picture, parts_have_every_pixel_once_and_fit_the_workspace)
{
    static const int64_t samples[] = {0, 1, 7, 128, 4096}, channels[] = {1, 16, 64, 512};

    for (size_t i = 0; i < CT_COUNT(samples); i++)
        for (size_t j = 0; j < CT_COUNT(channels); j++) {
            struct ct_picture p = of(samples[i], 28, channels[j], channels[j]);
            int64_t parts = ct_picture_parts(&p), each = ct_picture_part_pixels(&p);

            cr_assert_geq(parts, 1);
            cr_assert_geq(parts * each, p.out_pixels);
            cr_assert_eq(each % 16, 0);
            cr_assert(parts == 1 ||
                      parts * p.out_channels * p.window * 4 <= (int64_t)CT_CUDA_WORKSPACE);
        }
}

Test(picture, a_long_sum_of_few_weights_is_cut_and_a_short_one_is_not)
{
    struct ct_picture small = of(128, 28, 1, 16), one = of(1, 28, 1, 16),
                      wide = of(128, 7, 512, 512);

    cr_assert_geq(ct_picture_parts(&small), 64);
    cr_assert_eq(ct_picture_parts(&one), 1);
    cr_assert_eq(ct_picture_parts(&wide), 1);
}

Test(picture, sizes_follow_from_the_shapes)
{
    const struct ct_attr attr = {.kernel = 3, .stride = 2, .pad = 1};
    struct ct_picture p = ct_picture_of(&attr, images(2, 5, 3), images(2, 3, 4));

    cr_assert_eq(p.window, 27);
    cr_assert_eq(p.pixels, 50);
    cr_assert_eq(p.out_pixels, 18);
}
