/* Norms over the columns: what their forward and backward share. */
#ifndef CT_TENSOR_CUDA_NORM_CUH
#define CT_TENSOR_CUDA_NORM_CUH

#include "tensor/cuda/mma.cuh"
#include "tensor/cuda/rows/row_sum.h"
#include "tensor/cuda/sum.cuh"

struct norm {
    int64_t rows, columns;
    float eps;
    bool centred; /* layer norm: the mean is taken off */
};

static struct norm norm_of(const struct ct_kernel_args *args, bool centred)
{
    struct norm norm = {ct_shape_rows(args->in[0].shape), ct_shape_columns(args->in[0].shape),
                        (float)args->attr.eps, centred};

    return norm;
}

/* The launcher of op `name`: `launch` with what sets the op apart from the others that it does. */
#define NORM(name, launch, ...)                                                               \
    template <typename T>                                                                     \
    static void launch_##name(struct ct_cuda_queue *queue, const struct ct_kernel_args *args) \
    {                                                                                         \
        launch<T>(queue, args, __VA_ARGS__);                                                  \
    }                                                                                         \
    LAUNCHER(name)
/* ---- slopes: with n = (x - mean) rstd, dx = rstd (dy g - mean(dy g) - n mean(dy g n)) -------- */

struct slopes {
    float shift, slope;
};

template <typename T>
static inline __device__ struct slopes slopes_of(const T *dy, const T *x, const float *g,
                                                 const float *stats, struct norm norm, int lane)
{
    float mean = norm.centred ? stats[0] : 0, one = 0, two = 0;
    struct slopes slopes;

#pragma unroll 4
    for (int64_t j = lane; j < norm.columns; j += LANES) {
        float d = wide(dy[j]) * g[j];

        one += d;
        two += d * (wide(x[j]) - mean);
    }
    slopes.shift = norm.centred ? fold_lanes(one) / (float)norm.columns : 0;
    slopes.slope = fold_lanes(two) * stats[1] / (float)norm.columns;
    return slopes;
}

#endif
