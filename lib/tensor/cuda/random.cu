/* Initial values, dropout and rounding: philox's numbers for a key and a counter that names the
 * logical element (tensor/cpu/kernel/random_body.h), so every layout and device draws the same. */
#include "tensor/cuda/number.cuh"

#include "tensor/cpu/kernel/normal.h"
#include "tensor/cpu/kernel/rounding.h"

/* ct_philox of base/rng.h. */
static inline __device__ void philox(uint64_t key, uint64_t low, uint64_t high, uint32_t word[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    word[0] = (uint32_t)low;
    word[1] = (uint32_t)(low >> 32);
    word[2] = (uint32_t)high;
    word[3] = (uint32_t)(high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * word[0], p1 = (uint64_t)0xCD9E8D57u * word[2];

        word[0] = (uint32_t)(p1 >> 32) ^ word[1] ^ k0;
        word[2] = (uint32_t)(p0 >> 32) ^ word[3] ^ k1;
        word[1] = (uint32_t)p1;
        word[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Element `which` (0 .. 3) of four that lie in registers. */
template <typename V> static inline __device__ V one_of(const V *four, int which)
{
    V low = which == 0 ? four[0] : four[1], high = which == 2 ? four[2] : four[3];

    return which < 2 ? low : high;
}

static inline __device__ float uniform_of(uint32_t word)
{
    return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

/* ---- initial values: element e is word e % 4 of block e / 4 ---------------------------------- */

struct draw {
    uint64_t key, first, run, stride;
};

static struct draw draw_of(const struct ct_attr *attr)
{
    struct draw draw = {attr->key, attr->first, attr->run, attr->stride};

    return draw;
}

/* The logical index of element i. */
static inline __device__ uint64_t element_at(const struct draw *draw, uint64_t i)
{
    return draw->run == 0 ? draw->first + i
                          : draw->first + i / draw->run * draw->stride + i % draw->run;
}

static __global__ void uniform_kernel(float *y, struct draw draw, float low, float range, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t element = element_at(&draw, (uint64_t)i);
        uint32_t word[4];

        philox(draw.key, element / 4, 0, word);
        y[i] = low + range * uniform_of(one_of(word, (int)(element % 4)));
    }
}

LAUNCHER_HEAD(uniform)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(uniform_kernel, grid_of(queue, n, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0, queue->stream,
              (float *)args->out[0].data, draw_of(&args->attr), (float)args->attr.low,
              (float)(args->attr.high - args->attr.low), n);
}

static __global__ void normal_kernel(float *y, struct draw draw, float mean, float std, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t element = element_at(&draw, (uint64_t)i);
        bool later = element % 4 >= 2; /* the block's second pair */
        uint32_t word[4];
        float pair[2];

        philox(draw.key, element / 4, 0, word);
        normal_pair(later ? word[2] : word[0], later ? word[3] : word[1], pair);
        y[i] = mean + std * (element % 2 == 0 ? pair[0] : pair[1]);
    }
}

LAUNCHER_HEAD(normal)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(normal_kernel, grid_of(queue, n, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0, queue->stream,
              (float *)args->out[0].data, draw_of(&args->attr), (float)args->attr.mean,
              (float)args->attr.std, n);
}

/* ---- dropout --------------------------------------------------------------------------------- */

struct drop {
    uint64_t key, unit, first;
    float rate, scale_up;
};

/* A pack's elements begin anywhere in a block of philox: one block more than they fill is drawn,
 * and `shift` words of it are passed over. */
template <typename T>
static __global__ void dropout_kernel(const T *x, const double *at, T *y, struct drop drop,
                                      int64_t n)
{
    uint64_t step = (uint64_t)at[0], start = (uint64_t)at[1] * drop.unit + drop.first;

    EACH_PACK(T, i, n)
    {
        uint64_t element = start + (uint64_t)i;
        int shift = (int)(element % 4);
        uint32_t word[PACK(T) + 4];
        float a[PACK(T)];

        for (int block = 0; block <= PACK(T) / 4; block++)
            if (block < PACK(T) / 4 || shift != 0)
                philox(drop.key, element / 4 + (uint64_t)block, step, word + 4 * block);
            else
                for (int k = 0; k < 4; k++)
                    word[PACK(T) + k] = 0;
        load<T>(a, x, i, n);
        for (int k = 0; k < PACK(T); k++) {
            float number = uniform_of(one_of(word + k, shift));

            a[k] = number >= drop.rate ? a[k] * drop.scale_up : 0;
        }
        store<T>(y, i, n, a);
    }
}

template <typename T>
static void launch_dropout(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    const struct ct_attr *attr = &args->attr;
    struct drop drop = {attr->key, attr->unit, attr->first, (float)attr->rate,
                        (float)(1 / (1 - attr->rate))};
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH(dropout_kernel<T>, grid_of(queue, n, CT_CUDA_BLOCK * PACK(T)), CT_CUDA_BLOCK, 0,
              queue->stream, (const T *)args->in[0].data, (const double *)args->in[1].data,
              (T *)args->out[0].data, drop, n);
}
LAUNCHER(dropout)

/* ---- rounding: element e is half e % 8 of block e / 8, the low half of a word first --------- */

struct rounding {
    uint64_t key, first, begin, run, stride;
};

/* The element's number in the whole parameter (op.def). */
static inline __device__ uint64_t number_at(const struct rounding *r, uint64_t i)
{
    uint64_t place = r->first + i;

    return r->run == 0 ? place : r->begin + place / r->run * r->stride + place % r->run;
}

template <typename T>
static __global__ void narrow_stochastic_kernel(const float *x, const double *at, T *y,
                                                struct rounding rounding, int64_t n)
{
    uint64_t step = (uint64_t)at[0];

    EACH_PACK(T, i, n)
    {
        uint64_t block = ~(uint64_t)0;
        uint32_t word[4] = {0, 0, 0, 0};
        float a[PACK(T)];

        load<T>(a, x, i, n);
        for (int k = 0; k < PACK(T); k++) {
            uint64_t number = number_at(&rounding, (uint64_t)(i + k));
            int half = (int)(number % 8);

            if (number / 8 != block) {
                block = number / 8;
                philox(rounding.key, block, step, word);
            }
            a[k] = stochastic_bf16(a[k], one_of(word, half / 2) >> 16 * (half % 2) & 0xffffu);
        }
        store<T>(y, i, n, a);
    }
}

template <typename T>
static void launch_narrow_stochastic(struct ct_cuda_queue *queue, const struct ct_kernel_args *args)
{
    const struct ct_attr *attr = &args->attr;
    struct rounding rounding = {attr->key, attr->first, attr->begin, attr->run, attr->stride};
    int64_t n = ct_shape_elements(args->out[0].shape);

    CT_LAUNCH(narrow_stochastic_kernel<T>, grid_of(queue, n, CT_CUDA_BLOCK * PACK(T)),
              CT_CUDA_BLOCK, 0, queue->stream, (const float *)args->in[0].data,
              (const double *)args->in[1].data, (T *)args->out[0].data, rounding, n);
}
LAUNCHER(narrow_stochastic)
