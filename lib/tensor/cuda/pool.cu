/* Pools (op.def): a thread an element of the result. Gradients are gathered, window after window in
 * the CPU's order, so that no two threads write one element. */
#include "tensor/cuda/number.cuh"
#include "tensor/cuda/picture.h"

#define THREADS 256

/* An element of an image of height x width pixels. */
struct ct_spot {
    int64_t sample;
    int line, column, channel;
};

static __device__ __forceinline__ struct ct_spot spot_of(int64_t i, int height, int width,
                                                         int channels)
{
    struct ct_spot s;

    s.channel = (int)(i % channels);
    s.column = (int)(i / channels % width);
    s.line = (int)(i / channels / width % height);
    s.sample = i / channels / width / height;
    return s;
}

static __device__ __forceinline__ int64_t element()
{
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

/* x at place k of the window of y's pixel (line, column): its element, or -1 in the pads. */
static __device__ __forceinline__ int64_t in_window(const struct ct_picture &p,
                                                    const struct ct_spot &y, int k)
{
    int line = y.line * p.stride - p.pad + k / p.kernel;
    int column = y.column * p.stride - p.pad + k % p.kernel;

    if (line < 0 || line >= p.height || column < 0 || column >= p.width)
        return -1;
    return ((y.sample * p.height + line) * p.width + column) * p.channels + y.channel;
}

static __global__ void __launch_bounds__(THREADS)
    max_pool(struct ct_picture p, float *y, const float *x)
{
    struct ct_spot s = spot_of(element(), p.out_height, p.out_width, p.channels);
    float most = -INFINITY;

    if (element() >= p.out_pixels * p.channels)
        return;
    for (int k = 0; k < p.kernel * p.kernel; k++) {
        int64_t at = in_window(p, s, k);

        if (at >= 0 && (x[at] > most || x[at] != x[at]))
            most = x[at];
    }
    y[element()] = most;
}

static __global__ void __launch_bounds__(THREADS)
    mean_pool(struct ct_picture p, float *y, const float *x)
{
    struct ct_spot s = spot_of(element(), p.out_height, p.out_width, p.channels);
    float sum = 0;

    if (element() >= p.out_pixels * p.channels)
        return;
    for (int k = 0; k < p.kernel * p.kernel; k++) {
        int64_t at = in_window(p, s, k);

        if (at >= 0)
            sum += x[at];
    }
    y[element()] = sum * (1 / (float)(p.kernel * p.kernel));
}

/* The windows that may have a line (or column) of x: from the first one on, below the second. */
static __device__ __forceinline__ void windows_of(const struct ct_picture &p, int line, int count,
                                                  int *ret_first, int *ret_end)
{
    int low = line + p.pad - p.kernel + 1, high = (line + p.pad) / p.stride + 1;

    *ret_first = low <= 0 ? 0 : (low + p.stride - 1) / p.stride;
    *ret_end = high < count ? high : count;
}

/* Whether x's element `at` is the one that y, the largest of its window, was taken from: the first
 * that is as large, or no number. */
static __device__ __forceinline__ bool is_first(const struct ct_picture &p, const float *x,
                                                const struct ct_spot &s, float y, int64_t at)
{
    for (int k = 0; k < p.kernel * p.kernel; k++) {
        int64_t other = in_window(p, s, k);

        if (other >= 0 && (x[other] == y || x[other] != x[other]))
            return other == at;
    }
    return false;
}

/* dx, from the maxima y of x, or of means where x is NULL. */
static __global__ void __launch_bounds__(THREADS)
    pool_gradient(struct ct_picture p, float *dx, const float *dy, const float *x, const float *y)
{
    struct ct_spot to = spot_of(element(), p.height, p.width, p.channels), s = to;
    int first_line, end_line, first_column, end_column;
    float share = 1 / (float)(p.kernel * p.kernel), sum = 0;

    if (element() >= p.pixels * p.channels)
        return;
    windows_of(p, to.line, p.out_height, &first_line, &end_line);
    windows_of(p, to.column, p.out_width, &first_column, &end_column);
    for (s.line = first_line; s.line < end_line; s.line++)
        for (s.column = first_column; s.column < end_column; s.column++) {
            int64_t pixel = (s.sample * p.out_height + s.line) * p.out_width + s.column;
            int64_t at = pixel * p.channels + s.channel;

            if (x == NULL)
                sum += share * dy[at];
            else if (is_first(p, x, s, y[at], element()))
                sum += dy[at];
        }
    dx[element()] = sum;
}

static unsigned blocks(int64_t elements)
{
    return (unsigned)((elements + THREADS - 1) / THREADS);
}

static void forward(struct ct_cuda_queue *queue, const struct ct_kernel_args *args, bool mean)
{
    struct ct_picture p = ct_picture_of(&args->attr, args->in[0].shape, args->out[0].shape);
    unsigned grid = blocks(p.out_pixels * p.channels);
    float *y = (float *)args->out[0].data;
    const float *x = (const float *)args->in[0].data;

    if (grid > 0 && mean)
        CT_LAUNCH(mean_pool, grid, THREADS, 0, queue->stream, p, y, x);
    else if (grid > 0)
        CT_LAUNCH(max_pool, grid, THREADS, 0, queue->stream, p, y, x);
}

extern "C" void ct_cuda_maxpool(struct ct_cuda_queue *queue, enum ct_dtype,
                                const struct ct_kernel_args *args)
{
    forward(queue, args, false);
}

extern "C" void ct_cuda_avgpool(struct ct_cuda_queue *queue, enum ct_dtype,
                                const struct ct_kernel_args *args)
{
    forward(queue, args, true);
}

static void backward(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    struct ct_picture p = ct_picture_of(&args->attr, args->out[0].shape, args->in[0].shape);
    unsigned grid = blocks(p.pixels * p.channels);

    if (grid > 0)
        CT_LAUNCH(pool_gradient, grid, THREADS, 0, queue->stream, p, (float *)args->out[0].data,
                  (const float *)args->in[0].data, (const float *)args->in[1].data,
                  (const float *)args->in[2].data);
}

extern "C" void ct_cuda_maxpool_bw(struct ct_cuda_queue *queue, enum ct_dtype,
                                   const struct ct_kernel_args *args)
{
    backward(queue, args);
}

extern "C" void ct_cuda_avgpool_bw(struct ct_cuda_queue *queue, enum ct_dtype,
                                   const struct ct_kernel_args *args)
{
    backward(queue, args);
}
