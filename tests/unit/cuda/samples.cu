/* See samples.cuh. */
#include "samples.cuh"

#include "tensor/cuda/launch.cuh"

enum { BLOCK = 64 };
#define ALL 0xffffffffu

static __global__ void turn_kernel(const float *x, float *y, bool ordered, int skipped)
{
    __shared__ float held[BLOCK];
    int first = (int)blockIdx.x * BLOCK, own = (int)threadIdx.x;

    if (own != skipped)
        held[own] = x[first + own];
    if (ordered)
        __syncthreads();
    y[first + own] = held[BLOCK - 1 - own];
}

void samples_turn(const float *x, float *y, int blocks)
{
    CT_LAUNCH(turn_kernel, (unsigned)blocks, BLOCK, 0, (cudaStream_t)NULL, x, y, true, -1);
}

void samples_turn_unordered(const float *x, float *y, int blocks)
{
    CT_LAUNCH(turn_kernel, (unsigned)blocks, BLOCK, 0, (cudaStream_t)NULL, x, y, false, -1);
}

void samples_turn_unwritten(const float *x, float *y, int blocks)
{
    CT_LAUNCH(turn_kernel, (unsigned)blocks, BLOCK, 0, (cudaStream_t)NULL, x, y, true, 17);
}

static __global__ void turn_twice_kernel(const float *x, float *y)
{
    CT_SHARED_BYTES(memory);
    float *held = (float *)memory;
    int first = (int)blockIdx.x * BLOCK, own = (int)threadIdx.x;

    held[own] = x[first + own];
    __syncthreads();
    float turned = held[BLOCK - 1 - own];

    held[own] = -turned;
    __syncthreads();
    y[first + own] = -held[own];
}

void samples_turn_twice_unordered(const float *x, float *y, int blocks)
{
    CT_LAUNCH(turn_twice_kernel, (unsigned)blocks, BLOCK, BLOCK * sizeof(float), (cudaStream_t)NULL,
              x, y);
}

static __global__ void leave_early_kernel(int)
{
    if (threadIdx.x % 2 == 1)
        return;
    __syncthreads();
}

void samples_leave_early(void)
{
    CT_LAUNCH(leave_early_kernel, 1, BLOCK, 0, (cudaStream_t)NULL, 0);
}

static __global__ void wait_apart_kernel(int)
{
    if (threadIdx.x % 2 == 1)
        __syncthreads();
    else
        __syncthreads();
}

void samples_wait_apart(void)
{
    CT_LAUNCH(wait_apart_kernel, 1, BLOCK, 0, (cudaStream_t)NULL, 0);
}

static __global__ void warp_sum_kernel(const float *x, float *y)
{
    float sum = x[threadIdx.x];

    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(ALL, sum, distance);
    y[threadIdx.x] = sum;
}

void samples_warp_sum(const float *x, float *y)
{
    CT_LAUNCH(warp_sum_kernel, 1, BLOCK, 0, (cudaStream_t)NULL, x, y);
}

static __global__ void absent_lane_kernel(const float *x, float *y)
{
    if (threadIdx.x % 32 < 16)
        y[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 16);
}

void samples_absent_lane(const float *x, float *y)
{
    CT_LAUNCH(absent_lane_kernel, 1, BLOCK, 0, (cudaStream_t)NULL, x, y);
}

static __global__ void places_kernel(float *y)
{
    int i = (int)((blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);

    y[3 * i] = (float)blockIdx.x;
    y[3 * i + 1] = (float)threadIdx.x;
    y[3 * i + 2] = (float)threadIdx.y;
}

void samples_places(float *y)
{
    CT_LAUNCH(places_kernel, 2, dim3(16, BLOCK / 16), 0, (cudaStream_t)NULL, y);
}

/* So large that it is copied byte by byte. */
struct padded {
    uint64_t more[32];
    unsigned number;
    unsigned char flag; /* and three bytes of nothing */
};

static __global__ void padded_kernel(struct padded padded, unsigned char *flag)
{
    *flag = (unsigned char)(padded.flag + padded.more[threadIdx.x % 32]);
}

unsigned char samples_padded(const void *end)
{
    struct padded padded;
    unsigned char flag = 0;

    memset(&padded, 0, sizeof padded);
    memcpy(&padded.number, &end, sizeof end);
    CT_LAUNCH(padded_kernel, 1, BLOCK, 0, (cudaStream_t)NULL, padded, &flag);
    return flag;
}
