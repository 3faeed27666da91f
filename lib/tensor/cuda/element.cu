/* Ops that go element by element, and the exchange of rows and columns. */
#include "tensor/cuda/number.cuh"

/* ---- maps of one input, or two, that the attributes do not change ---------------------------- */

#define MAP1(name, f)                                                                            \
    template <typename T> static __global__ void name##_kernel(const T *x, T *y, int64_t n)      \
    {                                                                                            \
        EACH_PACK(T, at, n)                                                                      \
        {                                                                                        \
            float a[PACK(T)];                                                                    \
                                                                                                 \
            load<T>(a, x, at, n);                                                                \
            for (int k = 0; k < PACK(T); k++)                                                    \
                a[k] = f<T>(a[k]);                                                               \
            store<T>(y, at, n, a);                                                               \
        }                                                                                        \
    }                                                                                            \
    template <typename T>                                                                        \
    static void launch_##name(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)    \
    {                                                                                            \
        int64_t n = ct_shape_elements(args->out[0].shape);                                       \
                                                                                                 \
        CT_LAUNCH(name##_kernel<T>, grid_of(queue, n, CT_CUDA_BLOCK *PACK(T)), CT_CUDA_BLOCK, 0, \
                  queue->stream, (const T *)args->in[0].data, (T *)args->out[0].data, n);        \
    }                                                                                            \
    LAUNCHER(name)

#define MAP2(name, f)                                                                            \
    template <typename T>                                                                        \
    static __global__ void name##_kernel(const T *a, const T *b, T *y, int64_t n)                \
    {                                                                                            \
        EACH_PACK(T, at, n)                                                                      \
        {                                                                                        \
            float u[PACK(T)], v[PACK(T)];                                                        \
                                                                                                 \
            load<T>(u, a, at, n);                                                                \
            load<T>(v, b, at, n);                                                                \
            for (int k = 0; k < PACK(T); k++)                                                    \
                u[k] = f<T>(u[k], v[k]);                                                         \
            store<T>(y, at, n, u);                                                               \
        }                                                                                        \
    }                                                                                            \
    template <typename T>                                                                        \
    static void launch_##name(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)    \
    {                                                                                            \
        int64_t n = ct_shape_elements(args->out[0].shape);                                       \
                                                                                                 \
        CT_LAUNCH(name##_kernel<T>, grid_of(queue, n, CT_CUDA_BLOCK *PACK(T)), CT_CUDA_BLOCK, 0, \
                  queue->stream, (const T *)args->in[0].data, (const T *)args->in[1].data,       \
                  (T *)args->out[0].data, n);                                                    \
    }

template <typename T> static inline __device__ float relu_of(float x)
{
    return x < 0 ? 0 : x; /* NaN stays */
}

template <typename T> static inline __device__ float relu_slope(float dy, float y)
{
    return y <= 0 ? 0 : dy;
}

template <typename T> static inline __device__ float gelu_of(float x)
{
    return 0.5f * x * (1 + erf_f32(x * 0.70710678118654752440f));
}

template <typename T> static inline __device__ float gelu_slope(float dy, float x)
{
    float cdf = 0.5f * (1 + erf_f32(x * 0.70710678118654752440f));
    float density = 0.39894228040143267794f * exp_of<T>(x * x * -0.5f);

    return dy * (cdf + x * density);
}

/* (1 + tanh u) / 2 is the sigmoid of this: 2 u. */
static inline __device__ float gelu_tanh_inner(float x)
{
    return (float)(2 * 0.79788456080286535588) * (x + 0.044715f * x * x * x);
}

template <typename T> static inline __device__ float gelu_tanh_of(float x)
{
    return x * sigmoid_of<T>(gelu_tanh_inner(x));
}

template <typename T> static inline __device__ float gelu_tanh_slope(float dy, float x)
{
    float s = sigmoid_of<T>(gelu_tanh_inner(x));
    float inner_slope = (float)(2 * 0.79788456080286535588) * (1 + (float)(3 * 0.044715) * x * x);

    return dy * (s + x * (s * (1 - s)) * inner_slope);
}

template <typename T> static inline __device__ float tanh_of(float x)
{
    return tanh_f32(x);
}

template <typename T> static inline __device__ float tanh_slope(float dy, float y)
{
    return dy * (1 - y * y);
}

template <typename T> static inline __device__ float sum_of(float a, float b)
{
    return a + b;
}

template <typename T> static inline __device__ float product_of(float a, float b)
{
    return a * b;
}

template <typename T> static inline __device__ float swiglu_of(float gate, float up)
{
    return gate * sigmoid_of<T>(gate) * up;
}

MAP1(relu, relu_of)
MAP1(gelu, gelu_of)
MAP1(gelu_tanh, gelu_tanh_of)
MAP1(tanh, tanh_of)
MAP2(relu_bw, relu_slope)
LAUNCHER(relu_bw)
MAP2(gelu_bw, gelu_slope)
LAUNCHER(gelu_bw)
MAP2(gelu_tanh_bw, gelu_tanh_slope)
LAUNCHER(gelu_tanh_bw)
MAP2(tanh_bw, tanh_slope)
LAUNCHER(tanh_bw)
MAP2(swiglu, swiglu_of)
LAUNCHER(swiglu)
MAP2(add, sum_of)
MAP2(mul, product_of)

/* ---- others ---------------------------------------------------------------------------------- */

template <typename T>
static __global__ void swiglu_bw_kernel(const T *dy, const T *gate, const T *up, T *dgate, T *dup,
                                        int64_t n)
{
    EACH_PACK(T, at, n)
    {
        float d[PACK(T)], x[PACK(T)], u[PACK(T)];

        load<T>(d, dy, at, n);
        load<T>(x, gate, at, n);
        load<T>(u, up, at, n);
        for (int k = 0; k < PACK(T); k++) {
            float s = sigmoid_of<T>(x[k]), given = d[k];

            d[k] = given * u[k] * (s + x[k] * s * (1 - s));
            u[k] = given * (x[k] * s);
        }
        store<T>(dgate, at, n, d);
        store<T>(dup, at, n, u);
    }
}

template <typename T>
static void launch_swiglu_bw(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH(swiglu_bw_kernel<T>, grid_of(queue, n, CT_CUDA_BLOCK * PACK(T)), CT_CUDA_BLOCK, 0,
              queue->stream, (const T *)args->in[0].data, (const T *)args->in[1].data,
              (const T *)args->in[2].data, (T *)args->out[0].data, (T *)args->out[1].data, n);
}
LAUNCHER(swiglu_bw)

template <typename T> static __global__ void scale_kernel(const T *x, T *y, float alpha, int64_t n)
{
    EACH_PACK(T, at, n)
    {
        float a[PACK(T)];

        load<T>(a, x, at, n);
        for (int k = 0; k < PACK(T); k++)
            a[k] = alpha * a[k];
        store<T>(y, at, n, a);
    }
}

template <typename T>
static void launch_scale(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH(scale_kernel<T>, grid_of(queue, n, CT_CUDA_BLOCK * PACK(T)), CT_CUDA_BLOCK, 0,
              queue->stream, (const T *)args->in[0].data, (T *)args->out[0].data,
              (float)args->attr.alpha, n);
}

template <typename T> static __global__ void axpy_kernel(const T *x, T *y, float alpha, int64_t n)
{
    EACH_PACK(T, at, n)
    {
        float a[PACK(T)], sum[PACK(T)];

        load<T>(a, x, at, n);
        load<T>(sum, y, at, n);
        for (int k = 0; k < PACK(T); k++)
            sum[k] = sum[k] + alpha * a[k];
        store<T>(y, at, n, sum);
    }
}

template <typename T>
static void launch_axpy(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH(axpy_kernel<T>, grid_of(queue, n, CT_CUDA_BLOCK * PACK(T)), CT_CUDA_BLOCK, 0,
              queue->stream, (const T *)args->in[0].data, (T *)args->out[0].data,
              (float)args->attr.alpha, n);
}
LAUNCHER(axpy)

template <typename T> static __global__ void fill_kernel(T *y, float alpha, int64_t n)
{
    EACH_PACK(T, at, n)
    {
        float a[PACK(T)];

        for (int k = 0; k < PACK(T); k++)
            a[k] = alpha;
        store<T>(y, at, n, a);
    }
}

template <typename T>
static void launch_fill(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH(fill_kernel<T>, grid_of(queue, n, CT_CUDA_BLOCK * PACK(T)), CT_CUDA_BLOCK, 0,
              queue->stream, (T *)args->out[0].data, (float)args->attr.alpha, n);
}

/* ---- with f64 besides: the scalars of a step ------------------------------------------------ */

enum { SUM, PRODUCT, SCALED, FILLED };

static __global__ void scalars_kernel(int what, const double *a, const double *b, double alpha,
                                      double *y, int64_t n)
{
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n;
         at += (int64_t)gridDim.x * blockDim.x)
        y[at] = what == SUM       ? a[at] + b[at]
                : what == PRODUCT ? a[at] * b[at]
                : what == SCALED  ? alpha * a[at]
                                  : alpha;
}

static void launch_scalars(struct ct_cuda_queue *queue, const struct ct_kernel_args *args, int what)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH(scalars_kernel, grid_of(queue, n, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0, queue->stream,
              what, (const double *)args->in[0].data, (const double *)args->in[1].data,
              args->attr.alpha, (double *)args->out[0].data, n);
}

/* ct_cuda_NAME: `what` of f64, launch_NAME<T> of others. */
#define LAUNCHER_SCALARS(name, what)                   \
    LAUNCHER_HEAD(name)                                \
    {                                                  \
        if (dtype == CT_F64)                           \
            launch_scalars(queue, args, what);         \
        else if (dtype == CT_F32)                      \
            launch_##name<float>(queue, args);         \
        else if (dtype == CT_BF16)                     \
            launch_##name<__nv_bfloat16>(queue, args); \
        else                                           \
            launch_##name<__half>(queue, args);        \
    }
LAUNCHER_SCALARS(add, SUM)
LAUNCHER_SCALARS(mul, PRODUCT)
LAUNCHER_SCALARS(scale, SCALED)
LAUNCHER_SCALARS(fill, FILLED)

/* Packs of 16 bytes, whatever the elements; the rest, and what is not aligned, byte by byte. */
static __global__ void copy_kernel(const unsigned char *x, unsigned char *y, int64_t n)
{
    EACH_PACK(unsigned char, at, n)
    {
        if (at + 16 <= n && aligned(x + at) && aligned(y + at))
            *(uint4 *)(y + at) = *(const uint4 *)(x + at);
        else
            for (int64_t k = at; k < at + 16 && k < n; k++)
                y[k] = x[k];
    }
}

LAUNCHER_HEAD(copy)
{
    int64_t bytes = ct_shape_elements(args->out[0].shape) * (int64_t)ct_dtype_size(dtype);

    CT_LAUNCH(copy_kernel, grid_of(queue, bytes, CT_CUDA_BLOCK * 16), CT_CUDA_BLOCK, 0,
              queue->stream, (const unsigned char *)args->in[0].data,
              (unsigned char *)args->out[0].data, bytes);
}

/* T is the narrower of the two types. */
template <typename T, typename From, typename To>
static __global__ void convert_kernel(const From *x, To *y, int64_t n)
{
    EACH_PACK(T, at, n)
    {
        float a[PACK(T)];

        load<T>(a, x, at, n);
        store<T>(y, at, n, a);
    }
}

template <typename T>
static void launch_narrow(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH((convert_kernel<T, float, T>), grid_of(queue, n, CT_CUDA_BLOCK * PACK(T)),
              CT_CUDA_BLOCK, 0, queue->stream, (const float *)args->in[0].data,
              (T *)args->out[0].data, n);
}
LAUNCHER(narrow)

template <typename T>
static void launch_widen(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH((convert_kernel<T, T, float>), grid_of(queue, n, CT_CUDA_BLOCK * PACK(T)),
              CT_CUDA_BLOCK, 0, queue->stream, (const T *)args->in[0].data,
              (float *)args->out[0].data, n);
}
LAUNCHER(widen)

/* ---- swap: tiles of x through shared memory, lines of TILE elements in and out --------------- */

enum { TILE = 32, TILE_LINES = 8 };

static __global__ void swap_kernel(const float *x, float *y, int64_t rows, int64_t columns,
                                   int64_t tiles)
{
    __shared__ float tile[TILE][TILE + 1];
    int64_t wide_tiles = (columns + TILE - 1) / TILE, high_tiles = (rows + TILE - 1) / TILE;

    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t block = t / (wide_tiles * high_tiles) * rows * columns;
        int64_t row = t / wide_tiles % high_tiles * TILE, column = t % wide_tiles * TILE;

        for (int i = (int)threadIdx.y; i < TILE; i += TILE_LINES)
            if (row + i < rows && column + threadIdx.x < columns)
                tile[i][threadIdx.x] = x[block + (row + i) * columns + column + threadIdx.x];
        __syncthreads();
        for (int i = (int)threadIdx.y; i < TILE; i += TILE_LINES)
            if (column + i < columns && row + threadIdx.x < rows)
                y[block + (column + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];
        __syncthreads();
    }
}

LAUNCHER_HEAD(swap)
{
    int64_t rows = (int64_t)args->attr.rows, columns = (int64_t)args->attr.columns;
    int64_t blocks = ct_shape_elements(args->in[0].shape) / (rows * columns);
    int64_t tiles = blocks * ((rows + TILE - 1) / TILE) * ((columns + TILE - 1) / TILE);

    (void)dtype;
    CT_LAUNCH(swap_kernel, grid_of(queue, tiles, 1), dim3(TILE, TILE_LINES), 0, queue->stream,
              (const float *)args->in[0].data, (float *)args->out[0].data, rows, columns, tiles);
}
