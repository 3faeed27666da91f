/* The CUDA device itself; what launchers see of it is its queue (cuda.h). */
#ifndef CT_TENSOR_CUDA_DEVICE_CUDA_H
#define CT_TENSOR_CUDA_DEVICE_CUDA_H

#include "tensor/cuda/cuda.h"
#include "tensor/device.h"

#include <cuda_runtime_api.h>

enum { CT_CUDA_SLOTS = 8, CT_CUDA_SLOT_BYTES = 1 << 20 };

/* Pinned memory between the host's and the device's. */
struct ct_cuda_slot {
    char *memory;
    cudaEvent_t done; /* the last copy from it or to it */
};

struct ct_cuda_block {
    void *memory;
    struct ct_cuda_block *older;
};

struct ct_cuda {
    struct ct_device device; /* first: a ct_device * is a ct_cuda * */
    struct ct_cuda_queue queue;
    int number; /* of the GPU */
    struct ct_cuda_slot slots[CT_CUDA_SLOTS];
    int next;
    struct ct_cuda_block *blocks; /* workspaces */
};

/* Record `error` as the queue's failure in `what`; returns whether there was none. */
bool ct_cuda_check(struct ct_cuda *cuda, cudaError_t error, const char *what);

/* Return the device, which becomes the thread's current one. */
struct ct_cuda *ct_cuda_of(struct ct_device *device);

/* Open a queue on GPU `number`. 0, CT_ENOMEM, CT_EUNSUPPORTED. */
int ct_cuda_open(int number, struct ct_device **ret_device, struct ct_error *err);

/* Entries of the table (device.h). */
struct ct_mark *ct_cuda_mark_new(struct ct_device *device);
void ct_cuda_mark_free(struct ct_mark *mark);
void ct_cuda_mark(struct ct_device *device, struct ct_mark *mark);
void ct_cuda_await(struct ct_device *device, const struct ct_mark *mark);
int ct_cuda_record(struct ct_device *device, struct ct_error *err);
int ct_cuda_record_end(struct ct_device *device, struct ct_recording **ret_recording,
                       struct ct_error *err);
void ct_cuda_replay(struct ct_device *device, struct ct_recording *recording);
void ct_cuda_recording_free(struct ct_recording *recording);

#endif
