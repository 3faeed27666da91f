/* See accel_cuda.h. Each function is a call of CUDA's; `context` is the table itself. */
#include "tensor/cuda/accel_cuda.h"

#include "base/error.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { GPUS_MAX = 64 };

/* One GPU: filled once, then only read. */
struct gpu {
    struct ct_accel accel;
    char name[320];
    int number;
    bool filled;
};

static int code_of(cudaError_t error)
{
    if (error == cudaSuccess)
        return 0;
    return error == cudaErrorMemoryAllocation ? CT_ENOMEM : CT_EDEVICE;
}

static int enter(void *context)
{
    return code_of(cudaSetDevice(((const struct gpu *)context)->number));
}

static int stream_new(void *context, void **ret_stream)
{
    cudaStream_t stream;
    int code = enter(context);

    if (code == 0)
        code = code_of(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (code == 0)
        *ret_stream = stream;
    return code;
}

static void stream_free(void *context, void *stream)
{
    (void)context;
    (void)cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
}

static int event_new(void *context, void **ret_event)
{
    cudaEvent_t event;
    int code = enter(context);

    if (code == 0)
        code = code_of(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    if (code == 0)
        *ret_event = event;
    return code;
}

static void event_free(void *context, void *event)
{
    (void)context;
    (void)cudaEventDestroy(event);
}

static int record(void *context, void *event, void *stream)
{
    (void)context;
    return code_of(cudaEventRecord(event, stream));
}

static int wait_for(void *context, void *stream, void *event)
{
    (void)context;
    return code_of(cudaStreamWaitEvent(stream, event, 0));
}

static int query(void *context, void *event)
{
    (void)context;
    cudaError_t error = cudaEventQuery(event);

    if (error == cudaErrorNotReady)
        return 0;
    return error == cudaSuccess ? 1 : CT_EDEVICE;
}

static int copy(void *context, void *to, const void *from, size_t bytes, void *stream)
{
    (void)context;
    return code_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

static int zero(void *context, void *memory, size_t bytes)
{
    int code = enter(context);

    if (code == 0)
        code = code_of(cudaMemsetAsync(memory, 0, bytes, NULL));
    return code != 0 ? code : code_of(cudaStreamSynchronize(NULL));
}

/* What fails here is only a hint that was not taken: it must not be found by a later call. */
static int pin(void *context, void *memory, size_t bytes)
{
    int code = enter(context);

    if (code == 0)
        code = code_of(cudaHostRegister(memory, bytes, cudaHostRegisterPortable));
    if (code != 0)
        (void)cudaGetLastError();
    return code;
}

static void unpin(void *context, void *memory)
{
    (void)context;
    if (cudaHostUnregister(memory) != cudaSuccess)
        (void)cudaGetLastError();
}

static bool fill(struct gpu *gpu, int number)
{
    struct cudaDeviceProp properties;

    if (cudaGetDeviceProperties(&properties, number) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    (void)snprintf(gpu->name, sizeof gpu->name, "cuda:%d (%s)", number, properties.name);
    gpu->number = number;
    gpu->accel = (struct ct_accel){.name = gpu->name,
                                   .context = gpu,
                                   .enter = enter,
                                   .stream_new = stream_new,
                                   .stream_free = stream_free,
                                   .event_new = event_new,
                                   .event_free = event_free,
                                   .record = record,
                                   .wait = wait_for,
                                   .query = query,
                                   .copy = copy,
                                   .zero = zero,
                                   .pin = pin,
                                   .unpin = unpin};
    memcpy(gpu->accel.unique, properties.uuid.bytes, sizeof gpu->accel.unique);
    return true;
}

const struct ct_accel *ct_cuda_accel(int number)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct gpu gpus[GPUS_MAX];

    if (number < 0 || number >= GPUS_MAX)
        return NULL;
    (void)pthread_mutex_lock(&lock);
    struct gpu *gpu = &gpus[number];
    gpu->filled = gpu->filled || fill(gpu, number);
    (void)pthread_mutex_unlock(&lock);
    return gpu->filled ? &gpu->accel : NULL;
}
