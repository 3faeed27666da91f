/* Convolutions as products of matrices that are never made: what a block needs of windows it
 * gathers into shared memory, 16 elements of the sum at a time.
 *
 *     op           c [m, n]           sum over k
 *     conv2d       y [pixel, out]     x at element k of the pixel's window      W [out][k]
 *     conv2d_dx    dx [pixel, in]     dy of the window that has the pixel at    W [out][place][in]
 *                                     place k / out; 0 where there is none
 *     conv2d_dw    dW [out, element]  dy [k][out]                               x at the element of
 *                                                                               pixel k's window
 *
 * A block has TILE x TILE of c, a thread 4 x 4 of these; sums run in one order. dW's long sum is
 * cut into parts (picture.h), which lie in the workspace and are then added in their order. */
#include "tensor/cuda/number.cuh"
#include "tensor/cuda/picture.h"

#define TILE 64
#define STEP 16
#define SIDE 16 /* threads of a block: SIDE x SIDE */
#define THREADS (SIDE * SIDE)
#define EACH (TILE / SIDE)
#define LOADS (TILE * STEP / THREADS)

/* A piece of a and of b: column (of c's rows or columns) by column. */
struct ct_tiles {
    float a[STEP][TILE + 1], b[STEP][TILE + 1];
};

static __device__ __forceinline__ void multiply(float (*sum)[EACH], const struct ct_tiles *p)
{
    int row = (int)threadIdx.x / SIDE, column = (int)threadIdx.x % SIDE;

#pragma unroll
    for (int k = 0; k < STEP; k++) {
        float a[EACH], b[EACH];

#pragma unroll
        for (int i = 0; i < EACH; i++) {
            a[i] = p->a[k][row + SIDE * i];
            b[i] = p->b[k][column + SIDE * i];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++)
                sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
    }
}

/* Where the window of a pixel of y begins, in x. */
struct ct_corner {
    int64_t sample; /* pixels in front of the sample */
    int line, column;
};

static __device__ __forceinline__ struct ct_corner corner_of(const struct ct_picture &p,
                                                             int64_t pixel)
{
    int each = p.out_height * p.out_width, at = (int)(pixel % each);
    struct ct_corner c;

    c.sample = pixel / each * p.height * p.width;
    c.line = at / p.out_width * p.stride - p.pad;
    c.column = at % p.out_width * p.stride - p.pad;
    return c;
}

/* Element k of the window at `c`; 0 in the pads and behind the window. */
static __device__ __forceinline__ float window_at(const struct ct_picture &p, const float *x,
                                                  const struct ct_corner &c, int k)
{
    int place = k / p.channels, line = c.line + place / p.kernel;
    int column = c.column + place % p.kernel;

    if (k >= p.window || line < 0 || line >= p.height || column < 0 || column >= p.width)
        return 0;
    return x[(c.sample + (int64_t)line * p.width + column) * p.channels + k % p.channels];
}

/* ---- y -------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    conv(struct ct_picture p, float *y, const float *x, const float *w, const float *bias)
{
    __shared__ struct ct_tiles tiles;
    int64_t row = (int64_t)blockIdx.x * TILE;
    int column = (int)blockIdx.y * TILE;
    int k = (int)threadIdx.x % STEP, lane = (int)threadIdx.x / STEP; /* what a thread loads */
    float sum[EACH][EACH] = {{0}};

    for (int at = 0; at < p.window; at += STEP) {
        for (int i = 0; i < LOADS; i++) {
            int64_t pixel = row + lane + SIDE * i;
            int out = column + lane + SIDE * i;
            bool there = out < p.out_channels && at + k < p.window;

            tiles.a[k][lane + SIDE * i] =
                pixel < p.out_pixels ? window_at(p, x, corner_of(p, pixel), at + k) : 0;
            tiles.b[k][lane + SIDE * i] = there ? w[(int64_t)out * p.window + at + k] : 0;
        }
        __syncthreads();
        multiply(sum, &tiles);
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int64_t pixel = row + (int)threadIdx.x / SIDE + SIDE * i;
            int out = column + (int)threadIdx.x % SIDE + SIDE * j;

            if (pixel < p.out_pixels && out < p.out_channels)
                y[pixel * p.out_channels + out] = sum[i][j] + (bias != NULL ? bias[out] : 0);
        }
}

extern "C" void ct_cuda_conv2d(struct ct_cuda_queue *queue, enum ct_dtype,
                               const struct ct_kernel_args *args)
{
    struct ct_picture p = ct_picture_of(&args->attr, args->in[0].shape, args->out[0].shape);
    dim3 grid((unsigned)((p.out_pixels + TILE - 1) / TILE),
              (unsigned)((p.out_channels + TILE - 1) / TILE));

    if (grid.x > 0 && grid.y > 0)
        CT_LAUNCH(conv, grid, THREADS, 0, queue->stream, p, (float *)args->out[0].data,
                  (const float *)args->in[0].data, (const float *)args->in[1].data,
                  (const float *)args->in[2].data);
}

/* ---- dx ------------------------------------------------------------------------------------- */

/* dy, channel `out`, of the window that has pixel `pixel` of x at `place`. */
static __device__ __forceinline__ float slope_at(const struct ct_picture &p, const float *dy,
                                                 int64_t pixel, int place, int out)
{
    int each = p.height * p.width, at = (int)(pixel % each);
    int line = at / p.width + p.pad - place / p.kernel;
    int column = at % p.width + p.pad - place % p.kernel;
    int y = line / p.stride, x = column / p.stride;

    if (line < 0 || column < 0 || line % p.stride != 0 || column % p.stride != 0 ||
        y >= p.out_height || x >= p.out_width)
        return 0;
    return dy[((pixel / each * p.out_height + y) * p.out_width + x) * p.out_channels + out];
}

static __global__ void __launch_bounds__(THREADS)
    conv_dx(struct ct_picture p, float *dx, const float *dy, const float *w)
{
    __shared__ struct ct_tiles tiles;
    int64_t row = (int64_t)blockIdx.x * TILE;
    int first = (int)blockIdx.y * TILE, depth = p.kernel * p.kernel * p.out_channels;
    int k = (int)threadIdx.x % STEP, lane = (int)threadIdx.x / STEP;
    float sum[EACH][EACH] = {{0}};

    for (int at = k; at - k < depth; at += STEP) {
        int place = at / p.out_channels, out = at % p.out_channels;

        for (int i = 0; i < LOADS; i++) {
            int64_t pixel = row + lane + SIDE * i;
            int channel = first + lane + SIDE * i;
            bool there = at < depth && channel < p.channels;
            int64_t weight = (int64_t)out * p.window + place * p.channels + channel;

            tiles.a[k][lane + SIDE * i] =
                at < depth && pixel < p.pixels ? slope_at(p, dy, pixel, place, out) : 0;
            tiles.b[k][lane + SIDE * i] = there ? w[weight] : 0;
        }
        __syncthreads();
        multiply(sum, &tiles);
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int64_t pixel = row + (int)threadIdx.x / SIDE + SIDE * i;
            int channel = first + (int)threadIdx.x % SIDE + SIDE * j;

            if (pixel < p.pixels && channel < p.channels)
                dx[pixel * p.channels + channel] = sum[i][j];
        }
}

extern "C" void ct_cuda_conv2d_dx(struct ct_cuda_queue *queue, enum ct_dtype,
                                  const struct ct_kernel_args *args)
{
    struct ct_picture p = ct_picture_of(&args->attr, args->out[0].shape, args->in[0].shape);
    dim3 grid((unsigned)((p.pixels + TILE - 1) / TILE), (unsigned)((p.channels + TILE - 1) / TILE));

    if (grid.x > 0 && grid.y > 0)
        CT_LAUNCH(conv_dx, grid, THREADS, 0, queue->stream, p, (float *)args->out[0].data,
                  (const float *)args->in[0].data, (const float *)args->in[1].data);
}

/* ---- dW ------------------------------------------------------------------------------------- */

/* Part blockIdx.z of the sum, to parts[blockIdx.z]: pixels from `each` times that on. */
static __global__ void __launch_bounds__(THREADS)
    conv_dw(struct ct_picture p, float *parts, const float *dy, const float *x, int64_t each)
{
    __shared__ struct ct_tiles tiles;
    int row = (int)blockIdx.x * TILE, column = (int)blockIdx.y * TILE;
    int lane = (int)threadIdx.x % SIDE, k = (int)threadIdx.x / SIDE;
    int64_t from = blockIdx.z * each, to = from + each < p.out_pixels ? from + each : p.out_pixels;
    float *dw = parts + (int64_t)blockIdx.z * p.out_channels * p.window;
    float sum[EACH][EACH] = {{0}};

    for (int64_t at = from + k; at - k < to; at += STEP) {
        struct ct_corner corner = corner_of(p, at);

        for (int i = 0; i < LOADS; i++) {
            int out = row + lane + SIDE * i, element = column + lane + SIDE * i;
            bool there = at < to && out < p.out_channels;

            tiles.a[k][lane + SIDE * i] = there ? dy[at * p.out_channels + out] : 0;
            tiles.b[k][lane + SIDE * i] = at < to ? window_at(p, x, corner, element) : 0;
        }
        __syncthreads();
        multiply(sum, &tiles);
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int out = row + (int)threadIdx.x / SIDE + SIDE * i;
            int element = column + (int)threadIdx.x % SIDE + SIDE * j;

            if (out < p.out_channels && element < p.window)
                dw[(int64_t)out * p.window + element] = sum[i][j];
        }
}

static __global__ void add_parts(float *dw, const float *parts, int64_t count, int many,
                                 bool accumulate)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float sum = 0;

    if (i >= count)
        return;
    for (int part = 0; part < many; part++)
        sum += parts[part * count + i];
    dw[i] = accumulate ? dw[i] + sum : sum;
}

extern "C" void ct_cuda_conv2d_dw(struct ct_cuda_queue *queue, enum ct_dtype,
                                  const struct ct_kernel_args *args)
{
    struct ct_picture p = ct_picture_of(&args->attr, args->in[1].shape, args->in[0].shape);
    int64_t count = (int64_t)p.out_channels * p.window;
    int parts = ct_picture_parts(&p);
    dim3 grid((unsigned)((p.out_channels + TILE - 1) / TILE),
              (unsigned)((p.window + TILE - 1) / TILE), (unsigned)parts);
    float *sums = (float *)queue->workspace;

    if (count == 0)
        return;
    CT_LAUNCH(conv_dw, grid, THREADS, 0, queue->stream, p, sums, (const float *)args->in[0].data,
              (const float *)args->in[1].data, ct_picture_part_pixels(&p));
    CT_LAUNCH(add_parts, (unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, queue->stream,
              (float *)args->out[0].data, sums, count, parts, args->attr.accumulate);
}

extern "C" int ct_cuda_conv2d_dw_prepare(struct ct_cuda_queue *, enum ct_dtype,
                                         const struct ct_kernel_args *args, size_t *ret_bytes,
                                         struct ct_error *)
{
    struct ct_picture p = ct_picture_of(&args->attr, args->in[1].shape, args->in[0].shape);

    *ret_bytes =
        (size_t)ct_picture_parts(&p) * (size_t)p.out_channels * (size_t)p.window * sizeof(float);
    return 0;
}
