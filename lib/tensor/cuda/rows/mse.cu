/* Mean squares, and the targets of classes. */
#include "tensor/cuda/sum.cuh"

/* A row a thread: its columns in their order, in double. */
static __global__ void mse_kernel(const float *x, const float *target, const int32_t *labels,
                                  double *loss, int64_t rows, int64_t columns)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += step) {
        bool masked = labels != NULL && labels[row] < 0;
        double sum = 0;

        for (int64_t j = 0; j < columns && !masked; j++) {
            double d = (double)x[row * columns + j] - (double)target[row * columns + j];

            sum += d * d;
        }
        loss[row] = masked ? 0 : sum / (double)columns;
    }
}

PREPARE_ROW_SUMS(mse)

LAUNCHER_HEAD(mse)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);

    (void)dtype;
    CT_LAUNCH(mse_kernel, grid_of(queue, rows, 32), 32, 0, queue->stream,
              (const float *)args->in[0].data, (const float *)args->in[1].data,
              (const int32_t *)args->in[2].data, (double *)queue->workspace, rows, columns);
    launch_join_rows(queue, args, rows);
}

static __global__ void mse_bw_kernel(const float *x, const float *target, const double *scale,
                                     const int32_t *labels, float *dx, int64_t n, int64_t columns)
{
    float factor = (float)(2 * *scale / (double)columns);
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        bool masked = labels != NULL && labels[i / columns] < 0;

        dx[i] = masked ? 0 : factor * (x[i] - target[i]);
    }
}

LAUNCHER_HEAD(mse_bw)
{
    int64_t n = ct_shape_elements(args->in[0].shape);

    (void)dtype;
    CT_LAUNCH(mse_bw_kernel, grid_of(queue, n, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0, queue->stream,
              (const float *)args->in[0].data, (const float *)args->in[1].data,
              (const double *)args->in[2].data, (const int32_t *)args->in[3].data,
              (float *)args->out[0].data, n, ct_shape_columns(args->in[0].shape));
}

static __global__ void one_hot_kernel(const int32_t *labels, float *y, int64_t n, int64_t columns)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = labels[i / columns] == i % columns ? 1 : 0;
}

LAUNCHER_HEAD(one_hot)
{
    int64_t n = ct_shape_elements(args->out[0].shape);

    (void)dtype;
    CT_LAUNCH(one_hot_kernel, grid_of(queue, n, CT_CUDA_BLOCK), CT_CUDA_BLOCK, 0, queue->stream,
              (const int32_t *)args->in[0].data, (float *)args->out[0].data, n,
              ct_shape_columns(args->out[0].shape));
}
