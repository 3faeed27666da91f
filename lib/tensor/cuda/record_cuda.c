/* Marks are events, recordings are graphs. */
#include "tensor/cuda/device_cuda.h"

#include <stdlib.h>

struct ct_mark {
    cudaEvent_t event;
};

struct ct_mark *ct_cuda_mark_new(struct ct_device *device)
{
    struct ct_cuda *cuda = ct_cuda_of(device);
    struct ct_mark *mark = calloc(1, sizeof *mark);

    if (mark != NULL &&
        ct_cuda_check(cuda, cudaEventCreateWithFlags(&mark->event, cudaEventDisableTiming),
                      "an event"))
        return mark;
    free(mark);
    return NULL;
}

void ct_cuda_mark_free(struct ct_mark *mark)
{
    (void)cudaEventDestroy(mark->event);
    free(mark);
}

void ct_cuda_mark(struct ct_device *device, struct ct_mark *mark)
{
    struct ct_cuda *cuda = ct_cuda_of(device);

    (void)ct_cuda_check(cuda, cudaEventRecord(mark->event, cuda->queue.stream), "a mark");
}

void ct_cuda_await(struct ct_device *device, const struct ct_mark *mark)
{
    struct ct_cuda *cuda = ct_cuda_of(device);

    (void)ct_cuda_check(cuda, cudaStreamWaitEvent(cuda->queue.stream, mark->event, 0),
                        "waiting for a mark");
}

/* ---- recordings ----------------------------------------------------------------------------- */

struct ct_recording {
    cudaGraphExec_t graph;
};

/* A capture that CUDA refuses is no failure of the queue's: the caller runs the ops one by one. */
static int refused(cudaError_t error, struct ct_error *err)
{
    (void)cudaGetLastError();
    return ct_error_set(err, CT_EUNSUPPORTED, "the ops cannot be recorded: %s (%s)",
                        cudaGetErrorString(error), cudaGetErrorName(error));
}

int ct_cuda_record(struct ct_device *device, struct ct_error *err)
{
    struct ct_cuda *cuda = ct_cuda_of(device);
    cudaError_t error =
        cudaStreamBeginCapture(cuda->queue.stream, cudaStreamCaptureModeThreadLocal);

    return error == cudaSuccess ? 0 : refused(error, err);
}

int ct_cuda_record_end(struct ct_device *device, struct ct_recording **ret_recording,
                       struct ct_error *err)
{
    struct ct_cuda *cuda = ct_cuda_of(device);
    struct ct_recording *recording = calloc(1, sizeof *recording);
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(cuda->queue.stream, &graph);

    if (error == cudaSuccess && recording != NULL)
        error = cudaGraphInstantiate(&recording->graph, graph, 0);
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    if (error == cudaSuccess && recording != NULL) {
        *ret_recording = recording;
        return 0;
    }
    free(recording);
    return error != cudaSuccess ? refused(error, err)
                                : ct_error_set(err, CT_ENOMEM, "no memory for a recording");
}

void ct_cuda_replay(struct ct_device *device, struct ct_recording *recording)
{
    struct ct_cuda *cuda = ct_cuda_of(device);

    (void)ct_cuda_check(cuda, cudaGraphLaunch(recording->graph, cuda->queue.stream),
                        "running what was recorded");
}

void ct_cuda_recording_free(struct ct_recording *recording)
{
    (void)cudaGraphExecDestroy(recording->graph);
    free(recording);
}
