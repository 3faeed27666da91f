/* An emulated GPU: CUDA's runtime and driver on the host, for the product with train.device cuda.
 *
 *     ctworker --dlopen--> libcuda.so.1        driver.c, and below CUDA's runtime:
 *         |                                      stream.c   a stream is a thread and a list; events
 *         |                                      graph.c    captures
 *         |                                      memory.c   memory that the host cannot touch
 *         |----dlopen--> libctrun_cuda.so      lib/tensor/cuda as it is, its kernels by host.h, and
 *         |                                    cublaslt.c
 *         `----dlopen--> libnccl.so.2          tests/lib/fakenccl, on streams of these
 *
 * What it finds beside wrong results:
 * - memory of the device that the host reads or writes: its addresses cannot be touched. Kernels
 *   and copies get them translated (hostcuda_near), also within structs that are given by value;
 * - kernels that are given memory of the host which is not registered, copies beyond their
 *   allocation, memory that was given back (its addresses never come again), memory that is read
 *   before it is written (it begins as NaN);
 * - work that is not ordered by streams and events: each stream goes on by itself;
 * - what a capture forbids: allocations, waits, queries, events from beyond it, streams not joined.
 *
 * Copies from and to memory that is not pinned hold up the caller as CUDA's do. A device that has
 * failed stays so. What it cannot: time, and kernels side by side (one runs at a time in a
 * process).
 *
 * Variables, read when they are needed:
 *   HOSTCUDA_COUNT=2        GPUs; CUDA_VISIBLE_DEVICES chooses among them
 *   HOSTCUDA_MEMORY=BYTES   of a process: what is beyond is out of memory (8 GiB)
 *   HOSTCUDA_BREAK=PATH     the next launch of whichever process finds this file, and takes it
 *                           away, is an illegal access */
#ifndef CT_TESTS_HOSTCUDA_RUNTIME_H
#define CT_TESTS_HOSTCUDA_RUNTIME_H

#include "include/cuda_runtime_api.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One thing for a stream to do. `run` may come several times when it is captured, `release` (may be
 * NULL) once, after the last. */
struct hostcuda_work {
    void (*run)(void *context);
    void (*release)(void *context);
    void *context;
};

/* After all that the stream was given before. NULL, the default stream, does it before it returns.
 */
cudaError_t hostcuda_push(cudaStream_t stream, struct hostcuda_work work);

/* As hostcuda_push, of a kernel's launch: HOSTCUDA_BREAK is about these. */
cudaError_t hostcuda_push_launch(cudaStream_t stream, struct hostcuda_work work);

/* Return the host address of device memory; other addresses are returned unchanged. */
void *hostcuda_near(const void *memory);

/* May a kernel be given this address? */
bool hostcuda_is_reachable(const void *memory);

/* ---- between the files of the runtime ---- */

/* Note a failure for cudaGetLastError; returns it. */
cudaError_t hostcuda_error(cudaError_t error);

/* Mark the device as failed from now on; return cudaSuccess, or that failure, which every call
 * returns first. */
void hostcuda_break(cudaError_t error);
cudaError_t hostcuda_state(void);

/* Number of GPUs that are visible, and which one is number `device` of these. */
int hostcuda_count(void);
int hostcuda_card(int device);

/* Return whether this thread captures. Then its call is forbidden, and the capture is
 * invalidated. */
bool hostcuda_forbidden(void);

/* Until no stream has anything to do. */
void hostcuda_wait_all(void);

struct CUgraph_st;

/* In captures. Under the lock of streams: */
void hostcuda_graph_add(struct CUgraph_st *graph, struct hostcuda_work work);
size_t hostcuda_graph_count(const struct CUgraph_st *graph);
void hostcuda_lock(void);
void hostcuda_unlock(void);

/* The capture that a stream takes part in; streams of one leave it together. False: not all of them
 * were joined. */
struct CUgraph_st *hostcuda_capture_of(cudaStream_t stream);
void hostcuda_capture_begin(cudaStream_t stream, struct CUgraph_st *graph);
bool hostcuda_capture_end(cudaStream_t origin, struct CUgraph_st *graph);

#ifdef __cplusplus
}
#endif

#endif
