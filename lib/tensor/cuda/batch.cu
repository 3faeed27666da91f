/* Batch norm: statistics of columns over the rows that count, and what is made of them. Sums run in
 * double, in chunks of rows side by side; the chunks are added up in their order:
 *
 *     rows    0 .. 255 | 256 .. 511 | ...       a column of a chunk a thread
 *     sums    chunk 0  + chunk 1    + ...       a column a thread
 */
#include "tensor/cuda/sum.cuh"

enum { CHUNK_ROWS = 256 };

#define EACH(i, n)                                                            \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)gridDim.x * blockDim.x)

/* Rows of [rows, columns]; those of a sample with a label < 0 do not count. */
struct batch {
    const int32_t *labels;       /* or NULL: all count */
    int64_t rows, columns, each; /* rows of a sample */
};

static struct batch batch_of(const struct ct_tensor *x, const struct ct_tensor *labels)
{
    int64_t rows = ct_shape_rows(x->shape);
    int64_t samples = labels == NULL || labels->data == NULL ? 1 : ct_shape_elements(labels->shape);
    struct batch batch = {labels == NULL ? NULL : (const int32_t *)labels->data, rows,
                          ct_shape_columns(x->shape), samples == 0 ? 1 : rows / samples};

    return batch;
}

static inline __device__ bool counts(const struct batch *batch, int64_t row)
{
    return batch->labels == NULL || batch->labels[row / batch->each] >= 0;
}

static int64_t chunks_of(const struct batch *batch)
{
    return (batch->rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
}

/* What a pass over the rows adds up, three doubles a column: how many count, x, x^2 of the forward
 * pass; nothing, dy, dy n of the backward pass, with n = (x - mean) rstd. */
enum { SUMS = 3 };

static __global__ void forward_chunks_kernel(const float *x, double *partial, struct batch batch,
                                             int64_t chunks)
{
    EACH(u, chunks * batch.columns)
    {
        int64_t chunk = u / batch.columns, k = u % batch.columns, row = chunk * CHUNK_ROWS;
        int64_t end = row + CHUNK_ROWS < batch.rows ? row + CHUNK_ROWS : batch.rows, n = 0;
        double one = 0, two = 0;

        for (; row < end; row++) {
            double value = (double)x[row * batch.columns + k];

            if (!counts(&batch, row))
                continue;
            n++;
            one += value;
            two += value * value;
        }
        double *own = partial + chunk * SUMS * batch.columns + k;

        own[0] = (double)n;
        own[batch.columns] = one;
        own[2 * batch.columns] = two;
    }
}

static __global__ void backward_chunks_kernel(const float *dy, const float *x, const float *stats,
                                              double *partial, struct batch batch, int64_t chunks)
{
    EACH(u, chunks * batch.columns)
    {
        int64_t chunk = u / batch.columns, k = u % batch.columns, row = chunk * CHUNK_ROWS;
        int64_t end = row + CHUNK_ROWS < batch.rows ? row + CHUNK_ROWS : batch.rows;
        float mean = stats[k], rstd = stats[batch.columns + k];
        double one = 0, two = 0;

        for (; row < end; row++) {
            double d = (double)dy[row * batch.columns + k];

            one += d;
            two += d * (double)((x[row * batch.columns + k] - mean) * rstd);
        }
        double *own = partial + chunk * SUMS * batch.columns + k;

        own[batch.columns] = one;
        own[2 * batch.columns] = two;
    }
}

/* Rows from .. SUMS - 1 of the chunks' sums. */
static __global__ void add_chunks_kernel(const double *partial, double *sums, int64_t from,
                                         int64_t columns, int64_t chunks)
{
    EACH(i, (SUMS - from) * columns)
    {
        double sum = 0;

        for (int64_t chunk = 0; chunk < chunks; chunk++)
            sum += partial[(chunk * SUMS + from) * columns + i];
        sums[i] = sum;
    }
}

static size_t chunk_bytes(const struct ct_tensor *x)
{
    struct batch batch = batch_of(x, NULL);

    return (size_t)(chunks_of(&batch) * SUMS * batch.columns) * sizeof(double);
}

extern "C" int ct_cuda_batch_sums_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                          const struct ct_kernel_args *args, size_t *ret_bytes,
                                          struct ct_error *err)
{
    (void)queue, (void)dtype, (void)err;
    *ret_bytes = chunk_bytes(&args->in[0]);
    return 0;
}

LAUNCHER_HEAD(batch_sums)
{
    struct batch batch = batch_of(&args->in[0], &args->in[1]);
    int64_t chunks = chunks_of(&batch);
    double *partial = (double *)queue->workspace;

    (void)dtype;
    CT_LAUNCH(forward_chunks_kernel, grid_of(queue, chunks * batch.columns, COLUMN_BLOCK),
              COLUMN_BLOCK, 0, queue->stream, (const float *)args->in[0].data, partial, batch,
              chunks);
    CT_LAUNCH(add_chunks_kernel, grid_of(queue, SUMS * batch.columns, COLUMN_BLOCK), COLUMN_BLOCK,
              0, queue->stream, (const double *)partial, (double *)args->out[0].data, 0,
              batch.columns, chunks);
}

extern "C" int ct_cuda_batch_grads_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                                           const struct ct_kernel_args *args, size_t *ret_bytes,
                                           struct ct_error *err)
{
    (void)queue, (void)dtype, (void)err;
    *ret_bytes = chunk_bytes(&args->in[0]);
    return 0;
}

LAUNCHER_HEAD(batch_grads)
{
    struct batch batch = batch_of(&args->in[0], NULL);
    int64_t chunks = chunks_of(&batch);
    double *partial = (double *)queue->workspace;

    (void)dtype;
    CT_LAUNCH(backward_chunks_kernel, grid_of(queue, chunks * batch.columns, COLUMN_BLOCK),
              COLUMN_BLOCK, 0, queue->stream, (const float *)args->in[0].data,
              (const float *)args->in[1].data, (const float *)args->in[2].data, partial, batch,
              chunks);
    CT_LAUNCH(add_chunks_kernel, grid_of(queue, (SUMS - 1) * batch.columns, COLUMN_BLOCK),
              COLUMN_BLOCK, 0, queue->stream, (const double *)partial, (double *)args->out[0].data,
              1, batch.columns, chunks);
}

/* ---- columns --------------------------------------------------------------------------------- */

static __global__ void batch_total_kernel(const double *from, double *to, int64_t n)
{
    EACH(i, n) to[i] = from[i];
}

LAUNCHER_HEAD(batch_total)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(batch_total_kernel, grid_of(queue, n, COLUMN_BLOCK), COLUMN_BLOCK, 0, queue->stream,
              (const double *)args->in[0].data, (double *)args->out[0].data, n);
}

/* The variance of a column over n rows, which rounding may have made negative. */
static inline __device__ double variance_of(double n, double one, double two)
{
    double variance = two / n - one / n * (one / n);

    return variance < 0 ? 0 : variance;
}

static __global__ void batch_stats_kernel(const double *sums, float *stats, double eps,
                                          int64_t columns)
{
    EACH(k, columns)
    {
        double n = sums[k], one = sums[columns + k], two = sums[2 * columns + k];

        stats[k] = (float)(n > 0 ? one / n : 0);
        stats[columns + k] = (float)(1 / sqrt((n > 0 ? variance_of(n, one, two) : 0) + eps));
    }
}

LAUNCHER_HEAD(batch_stats)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(batch_stats_kernel, grid_of(queue, columns, COLUMN_BLOCK), COLUMN_BLOCK, 0,
              queue->stream, (const double *)args->in[0].data, (float *)args->out[0].data,
              args->attr.eps, columns);
}

static __global__ void running_stats_kernel(const float *mean, const float *var, float *stats,
                                            double eps, int64_t columns)
{
    EACH(k, columns)
    {
        stats[k] = mean[k];
        stats[columns + k] = (float)(1 / sqrt((double)var[k] + eps));
    }
}

LAUNCHER_HEAD(running_stats)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(running_stats_kernel, grid_of(queue, columns, COLUMN_BLOCK), COLUMN_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const float *)args->in[1].data,
              (float *)args->out[0].data, args->attr.eps, columns);
}

/* Row 0 of the grads is b's gradient, row 1 g's. */
static __global__ void batch_take_kernel(const double *grads, float *d, bool accumulate,
                                         int64_t columns)
{
    EACH(k, columns) d[k] = accumulate ? d[k] + (float)grads[k] : (float)grads[k];
}

static void launch_batch_take(struct ct_cuda_queue *queue, const struct ct_kernel_args *args,
                              int64_t row)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);

    CT_LAUNCH(batch_take_kernel, grid_of(queue, columns, COLUMN_BLOCK), COLUMN_BLOCK, 0,
              queue->stream, (const double *)args->in[0].data + row * columns,
              (float *)args->out[0].data, args->attr.accumulate, columns);
}

LAUNCHER_HEAD(batch_db)
{
    (void)dtype;
    launch_batch_take(queue, args, 0);
}

LAUNCHER_HEAD(batch_dg)
{
    (void)dtype;
    launch_batch_take(queue, args, 1);
}

/* dx = g rstd (dy - mean(dy) - n mean(dy n)). */
static __global__ void batch_coef_kernel(const float *g, const float *stats, const double *sums,
                                         const double *grads, float *coef, int64_t columns)
{
    EACH(k, columns)
    {
        double n = sums[k], rstd = (double)stats[columns + k], slope = (double)g[k] * rstd;

        coef[k] = (float)slope;
        coef[columns + k] = (float)(n > 0 ? -slope * grads[k] / n : 0);
        coef[2 * columns + k] = (float)(n > 0 ? -slope * rstd * grads[columns + k] / n : 0);
        coef[3 * columns + k] = stats[k];
    }
}

LAUNCHER_HEAD(batch_coef)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(batch_coef_kernel, grid_of(queue, columns, COLUMN_BLOCK), COLUMN_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const float *)args->in[1].data,
              (const double *)args->in[2].data, (const double *)args->in[3].data,
              (float *)args->out[0].data, columns);
}

static __global__ void batch_run_kernel(const double *sums, double *run, int64_t columns)
{
    EACH(k, columns)
    {
        double n = sums[k], one = sums[columns + k], two = sums[2 * columns + k];
        bool enough = n > 1; /* one row has no variance */

        run[k] = enough ? n : 0;
        run[columns + k] = enough ? one : 0;
        run[2 * columns + k] = enough ? n * (variance_of(n, one, two) * n / (n - 1)) : 0;
    }
}

LAUNCHER_HEAD(batch_run)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(batch_run_kernel, grid_of(queue, columns, COLUMN_BLOCK), COLUMN_BLOCK, 0,
              queue->stream, (const double *)args->in[0].data, (double *)args->out[0].data,
              columns);
}

static __global__ void running_update_kernel(const double *run, const double *scale, float *mean,
                                             float *var, double rate, int64_t columns)
{
    EACH(k, columns)
    {
        double n = run[k];

        if (!(n > 0) || (scale != NULL && isnan(*scale)))
            continue;
        mean[k] = (float)((1 - rate) * (double)mean[k] + rate * (run[columns + k] / n));
        var[k] = (float)((1 - rate) * (double)var[k] + rate * (run[2 * columns + k] / n));
    }
}

LAUNCHER_HEAD(running_update)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);

    (void)dtype;
    CT_LAUNCH(running_update_kernel, grid_of(queue, columns, COLUMN_BLOCK), COLUMN_BLOCK, 0,
              queue->stream, (const double *)args->in[0].data, (const double *)args->in[1].data,
              (float *)args->out[0].data, (float *)args->out[1].data, args->attr.momentum, columns);
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* A pack of columns of a row a thread. */
struct packs {
    int64_t columns, each, count; /* packs of a row, of all rows */
};

static struct packs packs_of(const struct ct_tensor *x)
{
    int64_t columns = ct_shape_columns(x->shape), each = (columns + PACK(float) - 1) / PACK(float);
    struct packs packs = {columns, each, each * ct_shape_rows(x->shape)};

    return packs;
}

static __global__ void batch_norm_kernel(const float *x, const float *stats, const float *g,
                                         const float *b, float *y, struct packs packs)
{
    int64_t columns = packs.columns;

    EACH(u, packs.count)
    {
        int64_t row = u / packs.each, j = u % packs.each * PACK(float);
        float a[PACK(float)], mean[PACK(float)], rstd[PACK(float)], factor[PACK(float)];
        float shift[PACK(float)] = {0};

        load<float>(a, x + row * columns, j, columns);
        load<float>(mean, stats, j, columns);
        load<float>(rstd, stats + columns, j, columns);
        load<float>(factor, g, j, columns);
        if (b != NULL)
            load<float>(shift, b, j, columns);
        for (int k = 0; k < PACK(float); k++) {
            a[k] = (a[k] - mean[k]) * rstd[k] * factor[k];
            if (b != NULL)
                a[k] += shift[k];
        }
        store<float>(y + row * columns, j, columns, a);
    }
}

LAUNCHER_HEAD(batch_norm)
{
    struct packs packs = packs_of(&args->in[0]);

    (void)dtype;
    CT_LAUNCH(batch_norm_kernel, grid_of(queue, packs.count, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const float *)args->in[1].data,
              (const float *)args->in[2].data, (const float *)args->in[3].data,
              (float *)args->out[0].data, packs);
}

static __global__ void batch_dx_kernel(const float *dy, const float *x, const float *coef,
                                       float *dx, struct batch batch, struct packs packs)
{
    int64_t columns = packs.columns;

    EACH(u, packs.count)
    {
        int64_t row = u / packs.each, j = u % packs.each * PACK(float);
        float d[PACK(float)], a[PACK(float)], c[4][PACK(float)];
        bool counted = counts(&batch, row);

        load<float>(d, dy + row * columns, j, columns);
        load<float>(a, x + row * columns, j, columns);
        for (int i = 0; i < 4; i++)
            load<float>(c[i], coef + i * columns, j, columns);
        for (int k = 0; k < PACK(float); k++) {
            d[k] = c[0][k] * d[k];
            if (counted)
                d[k] = d[k] + c[1][k] + c[2][k] * (a[k] - c[3][k]);
        }
        store<float>(dx + row * columns, j, columns, d);
    }
}

LAUNCHER_HEAD(batch_dx)
{
    struct packs packs = packs_of(&args->in[0]);

    (void)dtype;
    CT_LAUNCH(batch_dx_kernel, grid_of(queue, packs.count, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0,
              queue->stream, (const float *)args->in[0].data, (const float *)args->in[1].data,
              (const float *)args->in[2].data, (float *)args->out[0].data,
              batch_of(&args->in[0], &args->in[3]), packs);
}
