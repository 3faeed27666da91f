/* CUDA's runtime as far as our device uses it, for builds of it that run on the host (runtime.h):
 * names, values and types are those of NVIDIA's "CUDA Runtime API". A name that is missing is one
 * to add. */
#ifndef CT_TESTS_HOSTCUDA_CUDA_RUNTIME_API_H
#define CT_TESTS_HOSTCUDA_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDART_VERSION 13000

/* X(name, value, text) */
#define HOSTCUDA_ERRORS(X)                                                                       \
    X(cudaSuccess, 0, "no error")                                                                \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                              \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                             \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                              \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                     \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                            \
    X(cudaErrorNotReady, 600, "device not ready")                                                \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                  \
    X(cudaErrorHostMemoryAlreadyRegistered, 712, "part of the range is already mapped")          \
    X(cudaErrorHostMemoryNotRegistered, 713, "the address is not in a mapped range")             \
    X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted while a stream captures") \
    X(cudaErrorStreamCaptureInvalidated, 901, "operation failed due to an earlier error")        \
    X(cudaErrorStreamCaptureUnmatched, 903, "the capture was not begun in this stream")          \
    X(cudaErrorStreamCaptureUnjoined, 904, "a stream of the capture was not joined")             \
    X(cudaErrorStreamCaptureIsolation, 905, "a dependency beyond the capture's boundary")        \
    X(cudaErrorCapturedEvent, 907,                                                               \
      "operation not permitted on an event last recorded in a "                                  \
      "capture")

typedef enum cudaError {
#define HOSTCUDA_ERROR(name, value, text) name = (value),
    HOSTCUDA_ERRORS(HOSTCUDA_ERROR)
#undef HOSTCUDA_ERROR
} cudaError_t;

cudaError_t cudaGetLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

/* ---- devices ---- */

enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

typedef struct {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
};

cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);

/* ---- streams, events ---- */

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

/* ---- graphs ---- */

typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* ---- memory ---- */

enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum { cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2 };

cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
