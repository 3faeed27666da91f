/* Inside the CUDA device.
 *
 *     ct_device_run -> device_cuda.c finds the op's row in ct_cuda_kernels (kernel.def)
 *                      `- its launcher puts kernels, or calls of a library, into the queue's stream
 *
 * A launcher returns at once: it neither waits nor allocates, and reads no memory of the device.
 * All that an op has to choose, an algorithm or a size of workspace, its `prepare` chooses once,
 * when the op is bound to memory; so what a step puts into the stream is the same at every step,
 * and can be recorded as a graph. Results depend on the operands alone: no atomic sums of floats,
 * one order of additions a shape.
 *
 * This header includes nothing of CUDA's: arithmetic of launches and choices of algorithms (the .c
 * files of this folder but *_cuda.c) are tested on machines without the toolkit. */
#ifndef CT_TENSOR_CUDA_CUDA_H
#define CT_TENSOR_CUDA_CUDA_H

#include "tensor/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* a cudaStream_t points to it */

struct ct_cuda_linear; /* what cuBLASLt keeps for a queue: linear_cuda.c knows it */

/* An in-order queue of the device, the argument of launchers. */
struct ct_cuda_queue {
    struct CUstream_st *stream;
    int processors;         /* multiprocessors of the GPU */
    size_t shared_bytes;    /* shared memory that a block may ask for */
    bool warpgroups;        /* the GPU multiplies by warpgroups: compute capability 9.0 */
    void *workspace;        /* on the device, for one op: the next one finds anything in it */
    size_t workspace_bytes; /* CT_CUDA_WORKSPACE, and as much as any `prepare` has asked for */
    struct ct_cuda_linear *linear; /* made by the first `prepare` that needs it, with: */
    void (*linear_free)(struct ct_cuda_linear *linear);
    struct ct_error failure; /* the first call of a library that failed; code 0: none */
};

/* Every queue has as much without asking. */
enum { CT_CUDA_WORKSPACE = 32 << 20 };

/* Put the op into the queue's stream. `args` have passed ct_op_check; data points to memory of the
 * device. */
typedef void (*ct_cuda_launch)(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                               const struct ct_kernel_args *args);

/* Choose all that the launcher needs for these operands (their shapes; data is where they will
 * lie). `ret_bytes`, which is 0, gets how much workspace that is. 0, or a code with its sentence.
 */
typedef int (*ct_cuda_prepare)(struct ct_cuda_queue *queue, enum ct_dtype dtype,
                               const struct ct_kernel_args *args, size_t *ret_bytes,
                               struct ct_error *err);

struct ct_cuda_kernel {
    ct_cuda_launch launch; /* NULL: there is none */
    ct_cuda_prepare prepare;
    unsigned dtypes; /* bit 1 << T for each T that it takes */
};

/* By op. */
extern const struct ct_cuda_kernel ct_cuda_kernels[CT_OP_COUNT];

/* Record a failed library call; the next ct_device_finish reports it. */
void ct_cuda_note(struct ct_cuda_queue *queue, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The rows of kernel.def are functions: ct_cuda_<name>, ct_cuda_<name>_prepare. */
#define KERNEL(op, name, dtypes)                                          \
    void ct_cuda_##name(struct ct_cuda_queue *queue, enum ct_dtype dtype, \
                        const struct ct_kernel_args *args);
#define PREPARED(op, name, dtypes)                                                     \
    KERNEL(op, name, dtypes)                                                           \
    int ct_cuda_##name##_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,     \
                                 const struct ct_kernel_args *args, size_t *ret_bytes, \
                                 struct ct_error *err);
#define LIBRARY(op, name, dtypes) PREPARED(op, name, dtypes)
#include "tensor/cuda/kernel.def"
#undef LIBRARY
#undef PREPARED
#undef KERNEL

#ifdef __cplusplus
}
#endif

#endif
