/* The gradient's norm and optimizers, on flat ranges of f32. */
#include "tensor/cuda/sum.cuh"

/* The scalar operand i, or `absent`. */
static inline __device__ double scalar(const double *operand, double absent)
{
    return operand == NULL ? absent : *operand;
}

/* ---- the norm -------------------------------------------------------------------------------- */

enum { LEAF_ELEMENTS = 1024, SEGMENT_LEAVES = HALF_WARPS };

/* A segment of 16 leaves at a time: half a warp a leaf, then their tree. */
static __global__ void sumsq_kernel(const float *x, double *partial, int64_t n, int64_t segments)
{
    __shared__ double leaves[SEGMENT_LEAVES];
    int lane = (int)threadIdx.x % LANES, half_warp = (int)threadIdx.x / LANES;

    for (int64_t segment = blockIdx.x; segment < segments; segment += gridDim.x) {
        int64_t first = (segment * SEGMENT_LEAVES + half_warp) * LEAF_ELEMENTS;
        int64_t end = first + LEAF_ELEMENTS < n ? first + LEAF_ELEMENTS : n;
        double sum = 0;

#pragma unroll 8
        for (int64_t i = first + lane; i < end; i += LANES)
            sum += (double)x[i] * (double)x[i];
        sum = fold_lanes(sum);
        if (lane == 0)
            leaves[half_warp] = sum;
        __syncthreads();
        int64_t left =
            (n - segment * SEGMENT_LEAVES * LEAF_ELEMENTS + LEAF_ELEMENTS - 1) / LEAF_ELEMENTS;

        join_tree(leaves, left < SEGMENT_LEAVES ? left : (int64_t)SEGMENT_LEAVES, &partial[segment],
                  false);
        __syncthreads();
    }
}

static __global__ void join_kernel(double *sums, int64_t count, double *out, bool accumulate)
{
    join_tree(sums, count, out, accumulate);
}

static int64_t segments_of(int64_t n)
{
    return (n + SEGMENT_LEAVES * LEAF_ELEMENTS - 1) / (SEGMENT_LEAVES * LEAF_ELEMENTS);
}

extern "C" int ct_cuda_sumsq_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                     const struct ct_kernel_args *args, size_t *ret_bytes,
                                     struct ct_error *err)
{
    (void)queue, (void)dtype, (void)err;
    *ret_bytes = (size_t)segments_of(ct_shape_elements(args->in[0].shape)) * sizeof(double);
    return 0;
}

LAUNCHER_HEAD(sumsq)
{
    int64_t n = ct_shape_elements(args->in[0].shape), segments = segments_of(n);
    double *partial = (double *)queue->workspace;

    (void)dtype;
    CT_LAUNCH(sumsq_kernel, grid_of(queue, segments, 1), CT_CUDA_BLOCK, 0, queue->stream,
              (const float *)args->in[0].data, partial, n, segments);
    CT_LAUNCH(join_kernel, 1, TREE_BLOCK, 0, queue->stream, partial, segments,
              (double *)args->out[0].data, args->attr.accumulate);
}

static __global__ void clip_scale_kernel(const double *sumsq, double *scale, double max_norm)
{
    double to_norm = max_norm / (sqrt(*sumsq) + 1e-6);

    if (threadIdx.x == 0)
        *scale = to_norm > 1 ? 1 : to_norm;
}

LAUNCHER_HEAD(clip_scale)
{
    (void)dtype;
    CT_LAUNCH(clip_scale_kernel, 1, 32, 0, queue->stream, (const double *)args->in[0].data,
              (double *)args->out[0].data, args->attr.max_norm);
}

static __global__ void guard_kernel(const double *sumsq, const double *loss, const double *scale,
                                    double *guarded)
{
    double given = scalar(scale, 1);

    if (threadIdx.x == 0)
        *guarded = isfinite(*sumsq) && isfinite(*loss) ? given : (double)NAN;
}

LAUNCHER_HEAD(guard)
{
    (void)dtype;
    CT_LAUNCH(guard_kernel, 1, 32, 0, queue->stream, (const double *)args->in[0].data,
              (const double *)args->in[1].data, (const double *)args->in[2].data,
              (double *)args->out[0].data);
}

/* ---- optimizers: a thread takes packs of all operands; scale NaN: nothing changes ------------ */

struct sgd {
    float decay, momentum;
    bool nesterov;
};

static __global__ void sgd_kernel(const float *g, const double *lr_at, const double *scale_at,
                                  float *p, float *buffer, struct sgd sgd, int64_t n)
{
    float lr = (float)*lr_at, factor = (float)scalar(scale_at, 1);

    if (isnan(factor))
        return;
    EACH_PACK(float, at, n)
    {
        float d[PACK(float)], x[PACK(float)], b[PACK(float)];

        load<float>(d, g, at, n);
        load<float>(x, p, at, n);
        if (buffer != NULL)
            load<float>(b, buffer, at, n);
        for (int k = 0; k < PACK(float); k++) {
            float along = factor * d[k] + sgd.decay * x[k];

            if (buffer != NULL) {
                b[k] = sgd.momentum * b[k] + along;
                along = sgd.nesterov ? along + sgd.momentum * b[k] : b[k];
            }
            x[k] -= lr * along;
        }
        store<float>(p, at, n, x);
        if (buffer != NULL)
            store<float>(buffer, at, n, b);
    }
}

LAUNCHER_HEAD(sgd)
{
    const struct ct_attr *attr = &args->attr;
    struct sgd sgd = {(float)attr->weight_decay, (float)attr->momentum, attr->nesterov};
    int64_t n = ct_shape_elements(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(sgd_kernel, grid_of(queue, n, CT_CUDA_BLOCK * PACK(float)), CT_CUDA_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const double *)args->in[1].data,
              (const double *)args->in[2].data, (float *)args->out[0].data,
              sgd.momentum == 0 ? (float *)NULL : (float *)args->out[1].data, sgd, n);
}

/* base^n for a whole n >= 0, by squaring, as the CPU does. */
static inline __device__ double whole_power(double base, double n)
{
    double power = 1;

    for (int64_t left = (int64_t)n; left > 0; left /= 2) {
        if (left % 2 == 1)
            power *= base;
        base *= base;
    }
    return power;
}

struct adamw {
    double beta1, beta2, eps, weight_decay;
};

struct adamw_step {
    float factor, keep, step_size, v_factor;
};

static inline __device__ struct adamw_step adamw_step_of(const struct adamw *adamw, double lr,
                                                         double step, double scale)
{
    double correction1 = 1 - whole_power(adamw->beta1, step);
    double correction2 = 1 - whole_power(adamw->beta2, step);
    struct adamw_step now = {(float)scale, (float)(1 - lr * adamw->weight_decay),
                             (float)(lr / correction1), (float)(1 / sqrt(correction2))};

    return now;
}

/* Of a block: thread 0 reckons what all share. */
static __global__ void adamw_kernel(const float *g, const double *lr, const double *step,
                                    const double *scale, float *p, float *m, float *v,
                                    struct adamw adamw, int64_t n)
{
    __shared__ struct adamw_step now;
    float beta1 = (float)adamw.beta1, rest1 = (float)(1 - adamw.beta1);
    float beta2 = (float)adamw.beta2, rest2 = (float)(1 - adamw.beta2), eps = (float)adamw.eps;

    if (threadIdx.x == 0)
        now = adamw_step_of(&adamw, *lr, *step, scalar(scale, 1));
    __syncthreads();
    if (isnan(now.factor))
        return;
    EACH_PACK(float, at, n)
    {
        float d[PACK(float)], x[PACK(float)], mean[PACK(float)], square[PACK(float)];

        load<float>(d, g, at, n);
        load<float>(x, p, at, n);
        load<float>(mean, m, at, n);
        load<float>(square, v, at, n);
        for (int k = 0; k < PACK(float); k++) {
            d[k] = now.factor * d[k];
            mean[k] = beta1 * mean[k] + rest1 * d[k];
            square[k] = beta2 * square[k] + rest2 * d[k] * d[k];
            x[k] =
                now.keep * x[k] - now.step_size * mean[k] / (sqrtf(square[k]) * now.v_factor + eps);
        }
        store<float>(p, at, n, x);
        store<float>(m, at, n, mean);
        store<float>(v, at, n, square);
    }
}

LAUNCHER_HEAD(adamw)
{
    const struct ct_attr *attr = &args->attr;
    struct adamw adamw = {attr->beta1, attr->beta2, attr->eps, attr->weight_decay};
    int64_t n = ct_shape_elements(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(adamw_kernel, grid_of(queue, n, CT_CUDA_BLOCK * PACK(float)), CT_CUDA_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const double *)args->in[1].data,
              (const double *)args->in[2].data, (const double *)args->in[3].data,
              (float *)args->out[0].data, (float *)args->out[1].data, (float *)args->out[2].data,
              adamw, n);
}

struct lion {
    double beta1, beta2, weight_decay;
};

static __global__ void lion_kernel(const float *g, const double *lr_at, const double *scale,
                                   float *p, float *m, struct lion lion, int64_t n)
{
    double lr = *lr_at;
    float factor = (float)scalar(scale, 1), rate = (float)lr;
    float keep = (float)(1 - lr * lion.weight_decay);
    float beta1 = (float)lion.beta1, rest1 = (float)(1 - lion.beta1);
    float beta2 = (float)lion.beta2, rest2 = (float)(1 - lion.beta2);

    if (isnan(factor))
        return;
    EACH_PACK(float, at, n)
    {
        float d[PACK(float)], x[PACK(float)], mean[PACK(float)];

        load<float>(d, g, at, n);
        load<float>(x, p, at, n);
        load<float>(mean, m, at, n);
        for (int k = 0; k < PACK(float); k++) {
            d[k] = factor * d[k];
            float c = beta1 * mean[k] + rest1 * d[k];
            float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c == 0 ? 0.0f : c;

            x[k] = keep * x[k] - rate * sign;
            mean[k] = beta2 * mean[k] + rest2 * d[k];
        }
        store<float>(p, at, n, x);
        store<float>(m, at, n, mean);
    }
}

LAUNCHER_HEAD(lion)
{
    const struct ct_attr *attr = &args->attr;
    struct lion lion = {attr->beta1, attr->beta2, attr->weight_decay};
    int64_t n = ct_shape_elements(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(lion_kernel, grid_of(queue, n, CT_CUDA_BLOCK * PACK(float)), CT_CUDA_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const double *)args->in[1].data,
              (const double *)args->in[2].data, (float *)args->out[0].data,
              (float *)args->out[1].data, lion, n);
}

static __global__ void ema_kernel(const float *p, const double *update, const double *scale,
                                  float *e, float rest, int64_t n)
{
    bool begins = *update <= 1;

    if (isnan(scalar(scale, 1)))
        return;
    EACH_PACK(float, at, n)
    {
        float x[PACK(float)], average[PACK(float)];

        load<float>(x, p, at, n);
        load<float>(average, e, at, n);
        for (int k = 0; k < PACK(float); k++)
            average[k] = begins ? x[k] : average[k] + rest * (x[k] - average[k]);
        store<float>(e, at, n, average);
    }
}

LAUNCHER_HEAD(ema)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(ema_kernel, grid_of(queue, n, CT_CUDA_BLOCK * PACK(float)), CT_CUDA_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const double *)args->in[1].data,
              (const double *)args->in[2].data, (float *)args->out[0].data,
              (float)(1 - args->attr.decay), n);
}
