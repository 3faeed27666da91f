/* Rotary positions (op.def). A block has the rows of one place, whose angles it makes once, in
 * double as the CPU does (cpu/rotary.h): the same bits. */
#include "tensor/cpu/kernel/rotary.h"
#include "tensor/cuda/number.cuh"

#define THREADS 256

struct ct_rope {
    const int32_t *places; /* NULL: row + first, in a sequence */
    int64_t rows, between; /* rows of x; from one row of a block to the next */
    int64_t first, sequence, width;
    int size;
    double log_base;
    bool inverse;
};

/* y = x, turned, in the columns of q and k; may be x itself. */
template <class T>
static __device__ __forceinline__ void rotate_row(T *y, const T *x, const struct ct_rope &a,
                                                  const float *cosine, const float *sine)
{
    int half = a.size / 2;

    for (int64_t i = threadIdx.x; i < a.width; i += THREADS) { /* pairs of q and k */
        int64_t at = i / half * a.size + i % half;
        float left = wide(x[at]), right = wide(x[at + half]), c = cosine[i % half];
        float s = sine[i % half];

        y[at] = narrow<T>(left * c - right * s);
        y[at + half] = narrow<T>(right * c + left * s);
    }
    if (y == x)
        return;
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS)
        y[2 * a.width + i] = x[2 * a.width + i];
}

template <class T>
static __global__ void __launch_bounds__(THREADS) turn(T *y, const T *x, struct ct_rope a)
{
    __shared__ float cosine[CT_HEAD_MAX_SIZE / 2], sine[CT_HEAD_MAX_SIZE / 2];
    int64_t row = blockIdx.x;
    int64_t place = a.places != NULL ? a.places[row] : (row + a.first) % a.sequence;

    for (int i = (int)threadIdx.x; i < a.size / 2; i += THREADS) {
        double c, s;

        rotary_angle(a.log_base, place, i, a.size / 2, &c, &s);
        cosine[i] = (float)c;
        sine[i] = (float)(a.inverse ? -s : s);
    }
    __syncthreads();
    for (; row < a.rows; row += a.between)
        rotate_row(y + row * 3 * a.width, x + row * 3 * a.width, a, cosine, sine);
}

extern "C" void ct_cuda_rope(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                             const struct ct_kernel_args *args)
{
    const void *x = args->in[0].data;
    void *y = args->out[0].data;
    struct ct_rope a;

    a.places = (const int32_t *)args->in[1].data;
    a.rows = ct_shape_rows(args->in[0].shape);
    a.first = (int64_t)args->attr.first;
    a.sequence = (int64_t)args->attr.sequence;
    a.between = a.places != NULL ? a.rows : a.sequence;
    a.width = ct_shape_columns(args->in[0].shape) / 3;
    a.size = (int)(a.width / (int64_t)args->attr.heads);
    a.log_base = log_of(args->attr.base);
    a.inverse = args->attr.inverse;
    if (a.rows == 0)
        return;
    unsigned blocks = (unsigned)(a.between < a.rows ? a.between : a.rows);

    if (dtype == CT_F32)
        CT_LAUNCH(turn<float>, blocks, THREADS, 0, queue->stream, (float *)y, (const float *)x, a);
    else if (dtype == CT_BF16)
        CT_LAUNCH(turn<__nv_bfloat16>, blocks, THREADS, 0, queue->stream, (__nv_bfloat16 *)y,
                  (const __nv_bfloat16 *)x, a);
    else
        CT_LAUNCH(turn<__half>, blocks, THREADS, 0, queue->stream, (__half *)y, (const __half *)x,
                  a);
}
