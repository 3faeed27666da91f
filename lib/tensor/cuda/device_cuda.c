/* The CUDA device (device.h): memory, queues, copies; record_cuda.c does marks and recordings.
 *
 *     copy_in    host -> a pinned slot -> device      returns when the slot holds it
 *     run        a launcher's kernels -> stream       returns at once
 *     copy_out   device -> a pinned slot -> host      returns when the host has it
 *
 * What CUDA refuses is noted, the first one with its op, and told by finish: a stream that has
 * failed stays so, and whatever is put into it is dropped. */
#include "tensor/cuda/device_cuda.h"

#include "base/assert.h"
#include "tensor/cuda/accel_cuda.h"
#include "tensor/plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures ------------------------------------------------------------------------------- */

void ct_cuda_note(struct ct_cuda_queue *queue, const char *format, ...)
{
    va_list list;

    if (queue->failure.code != 0)
        return;
    queue->failure.code = CT_EDEVICE;
    va_start(list, format);
    (void)vsnprintf(queue->failure.text, sizeof queue->failure.text, format, list);
    va_end(list);
}

bool ct_cuda_check(struct ct_cuda *cuda, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    ct_cuda_note(&cuda->queue, "%s: %s (%s)", what, cudaGetErrorString(error),
                 cudaGetErrorName(error));
    return false;
}

/* CUDA's current device is the thread's, and a queue may go from thread to thread. */
struct ct_cuda *ct_cuda_of(struct ct_device *device)
{
    struct ct_cuda *cuda = (struct ct_cuda *)device;

    (void)ct_cuda_check(cuda, cudaSetDevice(cuda->number), "choosing the GPU");
    return cuda;
}

static int cuda_finish(struct ct_device *device, struct ct_error *err)
{
    struct ct_cuda *cuda = ct_cuda_of(device);

    (void)ct_cuda_check(cuda, cudaStreamSynchronize(cuda->queue.stream), "waiting for the GPU");
    return cuda->queue.failure.code == 0 ? 0
                                         : ct_error_set(err, CT_EDEVICE, "GPU %d: %s", cuda->number,
                                                        cuda->queue.failure.text);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void *cuda_alloc(struct ct_device *device, size_t bytes)
{
    struct ct_cuda *cuda = ct_cuda_of(device);
    void *memory = NULL;

    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        (void)cudaGetLastError(); /* no failure of the queue's: the caller is told */
        return NULL;
    }
    (void)ct_cuda_check(cuda, cudaMemsetAsync(memory, 0, bytes, cuda->queue.stream), "zeroing");
    (void)ct_cuda_check(cuda, cudaStreamSynchronize(cuda->queue.stream), "zeroing");
    return memory;
}

static void cuda_release(struct ct_device *device, void *memory, size_t bytes)
{
    struct ct_cuda *cuda = ct_cuda_of(device);

    (void)bytes;
    (void)ct_cuda_check(cuda, cudaFree(memory), "giving memory back");
}

static int cuda_reach(struct ct_device *device, void *memory, size_t bytes, struct ct_error *err)
{
    struct ct_cuda *cuda = ct_cuda_of(device);
    cudaError_t error =
        cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);

    if (error == cudaSuccess)
        return 0;
    (void)cudaGetLastError();
    return ct_error_set(err, CT_EUNSUPPORTED,
                        "GPU %d cannot reach %zu bytes of the host's memory: %s (is there a limit "
                        "on locked memory? see ulimit -l)",
                        cuda->number, bytes, cudaGetErrorString(error));
}

static void cuda_unreach(struct ct_device *device, void *memory)
{
    struct ct_cuda *cuda = ct_cuda_of(device);

    (void)ct_cuda_check(cuda, cudaHostUnregister(memory), "letting go of the host's memory");
}

/* ---- copies --------------------------------------------------------------------------------- */

/* The next slot of the ring, at rest. */
static struct ct_cuda_slot *next_slot(struct ct_cuda *cuda)
{
    struct ct_cuda_slot *slot = &cuda->slots[cuda->next];

    cuda->next = (cuda->next + 1) % CT_CUDA_SLOTS;
    (void)ct_cuda_check(cuda, cudaEventSynchronize(slot->done), "copying");
    return slot;
}

static void copy_async(struct ct_cuda *cuda, void *to, const void *from, size_t bytes,
                       const struct ct_cuda_slot *slot)
{
    (void)ct_cuda_check(
        cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda->queue.stream), "copying");
    (void)ct_cuda_check(cuda, cudaEventRecord(slot->done, cuda->queue.stream), "copying");
}

static void cuda_copy_in(struct ct_device *device, void *to, const void *from, size_t bytes)
{
    struct ct_cuda *cuda = ct_cuda_of(device);

    for (size_t at = 0; at < bytes; at += CT_CUDA_SLOT_BYTES) {
        size_t size = CT_MIN(bytes - at, (size_t)CT_CUDA_SLOT_BYTES);
        struct ct_cuda_slot *slot = next_slot(cuda);
        memcpy(slot->memory, (const char *)from + at, size);
        copy_async(cuda, (char *)to + at, slot->memory, size, slot);
    }
}

/* As many slots under way as there are. What a broken GPU does not give is zero. */
static void cuda_copy_out(struct ct_device *device, void *to, const void *from, size_t bytes)
{
    struct ct_cuda *cuda = ct_cuda_of(device);
    size_t count = (bytes + CT_CUDA_SLOT_BYTES - 1) / CT_CUDA_SLOT_BYTES;

    for (size_t i = 0; i < count + CT_CUDA_SLOTS; i++) {
        struct ct_cuda_slot *slot = &cuda->slots[i % CT_CUDA_SLOTS];
        (void)ct_cuda_check(cuda, cudaEventSynchronize(slot->done), "copying");
        if (i >= CT_CUDA_SLOTS && i - CT_CUDA_SLOTS < count) {
            size_t at = (i - CT_CUDA_SLOTS) * CT_CUDA_SLOT_BYTES;
            size_t size = CT_MIN(bytes - at, (size_t)CT_CUDA_SLOT_BYTES);
            if (cuda->queue.failure.code == 0)
                memcpy((char *)to + at, slot->memory, size);
            else
                memset((char *)to + at, 0, size);
        }
        if (i < count) {
            size_t at = i * CT_CUDA_SLOT_BYTES;
            copy_async(cuda, slot->memory, (const char *)from + at,
                       CT_MIN(bytes - at, (size_t)CT_CUDA_SLOT_BYTES), slot);
        }
    }
}

/* ---- ops ------------------------------------------------------------------------------------ */

#define F32 (1U << CT_F32)
#define F64 (1U << CT_F64)
#define NARROWS (1U << CT_BF16 | 1U << CT_F16)
#define FLOATS (F32 | NARROWS)
#define KERNEL(op, name, dtypes) [CT_OP_##op] = {ct_cuda_##name, NULL, dtypes},
#define PREPARED(op, name, dtypes) \
    [CT_OP_##op] = {ct_cuda_##name, ct_cuda_##name##_prepare, dtypes},
#define LIBRARY(op, name, dtypes) PREPARED(op, name, dtypes)
const struct ct_cuda_kernel ct_cuda_kernels[CT_OP_COUNT] = {
#include "tensor/cuda/kernel.def"
};
#undef KERNEL
#undef PREPARED

/* A kernel takes 16 bits where op.def says so. */
enum {
#define OP(id, name, operands, in_place, updates, narrows, attributes) NARROWS_##id = (narrows),
#include "tensor/op.def"
#undef OP
};
#define KERNEL(op, name, dtypes) \
    _Static_assert((((dtypes)&NARROWS) != 0) == NARROWS_##op, #op " narrows");
#define PREPARED(op, name, dtypes) KERNEL(op, name, dtypes)
#include "tensor/cuda/kernel.def"

static bool cuda_has(const struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype)
{
    (void)device;
    return (ct_cuda_kernels[op].dtypes & 1U << dtype) != 0;
}

/* Older workspaces stay: a recording may use them. */
static int reserve(struct ct_cuda *cuda, size_t bytes, struct ct_error *err)
{
    struct ct_cuda_block *block;

    if (bytes <= cuda->queue.workspace_bytes)
        return 0;
    block = calloc(1, sizeof *block);
    if (block == NULL || cudaMalloc(&block->memory, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        free(block);
        return ct_error_set(err, CT_ENOMEM, "GPU %d has no room for a workspace of %zu bytes",
                            cuda->number, bytes);
    }
    block->older = cuda->blocks;
    cuda->blocks = block;
    cuda->queue.workspace = block->memory;
    cuda->queue.workspace_bytes = bytes;
    return 0;
}

static int cuda_prepare(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                        const struct ct_kernel_args *args, struct ct_error *err)
{
    struct ct_cuda *cuda = ct_cuda_of(device);
    size_t bytes = 0;
    int code = 0;

    CT_ASSERT(cuda_has(device, op, dtype));
    if (ct_cuda_kernels[op].prepare != NULL)
        code = ct_cuda_kernels[op].prepare(&cuda->queue, dtype, args, &bytes, err);
    return code == 0 ? reserve(cuda, CT_MAX(bytes, (size_t)CT_CUDA_WORKSPACE), err) : code;
}

static void cuda_run(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                     const struct ct_kernel_args *args)
{
    struct ct_cuda *cuda = ct_cuda_of(device);
    int before = cuda->queue.failure.code;

    CT_ASSERT(cuda_has(device, op, dtype));
    ct_cuda_kernels[op].launch(&cuda->queue, dtype, args);
    (void)ct_cuda_check(cuda, cudaGetLastError(), "launching");
    if (before == 0 && cuda->queue.failure.code != 0)
        (void)ct_error_prefix(&cuda->queue.failure, "%s, or an op before it", ct_op_info(op)->name);
}

static void *cuda_stream(struct ct_device *device)
{
    return ((struct ct_cuda *)device)->queue.stream;
}

static const struct ct_accel *cuda_accel(struct ct_device *device)
{
    return ct_cuda_accel(((struct ct_cuda *)device)->number);
}

/* ---- making --------------------------------------------------------------------------------- */

static void cuda_free(struct ct_device *device)
{
    struct ct_cuda *cuda = ct_cuda_of(device);

    if (cuda->queue.stream != NULL)
        (void)cudaStreamSynchronize(cuda->queue.stream);
    if (cuda->queue.linear != NULL)
        cuda->queue.linear_free(cuda->queue.linear);
    while (cuda->blocks != NULL) {
        struct ct_cuda_block *block = cuda->blocks;
        cuda->blocks = block->older;
        (void)cudaFree(block->memory);
        free(block);
    }
    for (int i = 0; i < CT_CUDA_SLOTS; i++)
        if (cuda->slots[i].done != NULL)
            (void)cudaEventDestroy(cuda->slots[i].done);
    (void)cudaFreeHost(cuda->slots[0].memory);
    if (cuda->queue.stream != NULL)
        (void)cudaStreamDestroy(cuda->queue.stream);
    free(cuda);
}

static int cuda_beside(struct ct_device *device, struct ct_device **ret_device,
                       struct ct_error *err)
{
    return ct_cuda_open(((struct ct_cuda *)device)->number, ret_device, err);
}

static const struct ct_device_table table = {
    .name = "cuda",
    .fuses = true,
    .free = cuda_free,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .has = cuda_has,
    .run = cuda_run,
    .prepare = cuda_prepare,
    .reach = cuda_reach,
    .unreach = cuda_unreach,
    .beside = cuda_beside,
    .finish = cuda_finish,
    .mark_new = ct_cuda_mark_new,
    .mark_free = ct_cuda_mark_free,
    .mark = ct_cuda_mark,
    .await = ct_cuda_await,
    .stream = cuda_stream,
    .accel = cuda_accel,
    .record = ct_cuda_record,
    .record_end = ct_cuda_record_end,
    .replay = ct_cuda_replay,
    .recording_free = ct_cuda_recording_free,
};

static bool make_slots(struct ct_cuda *cuda)
{
    char *memory = NULL;
    bool made = ct_cuda_check(
        cuda, cudaMallocHost((void **)&memory, (size_t)CT_CUDA_SLOTS * CT_CUDA_SLOT_BYTES),
        "pinned memory");

    for (int i = 0; i < CT_CUDA_SLOTS && made; i++) {
        struct ct_cuda_slot *slot = &cuda->slots[i];
        slot->memory = memory + (size_t)i * CT_CUDA_SLOT_BYTES;
        made = ct_cuda_check(cuda, cudaEventCreateWithFlags(&slot->done, cudaEventDisableTiming),
                             "an event");
    }
    return made;
}

static bool make_queue(struct ct_cuda *cuda)
{
    int shared = 0, major = 0;
    bool made =
        ct_cuda_check(cuda, cudaSetDevice(cuda->number), "choosing the GPU") &&
        ct_cuda_check(cuda,
                      cudaDeviceGetAttribute(&cuda->queue.processors,
                                             cudaDevAttrMultiProcessorCount, cuda->number),
                      "its attributes") &&
        ct_cuda_check(
            cuda,
            cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, cuda->number),
            "its attributes") &&
        ct_cuda_check(
            cuda, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->number),
            "its attributes") &&
        ct_cuda_check(cuda, cudaStreamCreateWithFlags(&cuda->queue.stream, cudaStreamNonBlocking),
                      "a stream");

    cuda->queue.shared_bytes = (size_t)shared;
    cuda->queue.warpgroups = major == 9;
    return made && make_slots(cuda);
}

int ct_cuda_open(int number, struct ct_device **ret_device, struct ct_error *err)
{
    struct ct_cuda *cuda = calloc(1, sizeof *cuda);

    if (cuda == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a CUDA device");
    cuda->device.table = &table;
    cuda->number = number;
    if (make_queue(cuda)) {
        *ret_device = &cuda->device;
        return 0;
    }
    int code = ct_error_set(err, CT_EUNSUPPORTED, "GPU %d cannot be used: %s", number,
                            cuda->queue.failure.text);
    cuda_free(&cuda->device);
    return code;
}

__attribute__((visibility("default"))) extern const struct ct_device_plugin ct_device_plugin;
const struct ct_device_plugin ct_device_plugin = {
    .version = CT_DEVICE_PLUGIN_VERSION,
    .ops = CT_OP_COUNT,
    .args = sizeof(struct ct_kernel_args),
    .runtime = CUDART_VERSION,
    .capability = 80,
    .open = ct_cuda_open,
};
