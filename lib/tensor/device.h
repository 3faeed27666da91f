/* Devices: memory and kernels behind one table of functions.
 *
 *     ct_device_cpu_new(&options, &device, err)     the CPU is always there; CUDA is a plug-in
 *     ct_device_alloc(device, bytes)                a few big arenas, carved up by the planner
 *     ct_device_copy_in(device, to, from, bytes)    host -> device
 *     ct_device_run(device, op, dtype, &args)       one op of op.def, ... in program order
 *     ct_device_copy_out(device, to, from, bytes)   device -> host, after all that was run before
 *     ct_device_free(device)
 *
 * A device is one in-order queue: its functions are called by one thread at a time (who wants two
 * queues makes two devices; memory may be shared between them, ordered by the caller). Two devices
 * share nothing, so ranks may live as threads of one process, each with its own.
 *
 * Running an op never allocates and never fails: operands of a wrong shape or dtype are bugs of the
 * planner, which ct_op_check (op.h) names. Results do not depend on the number of threads, on
 * the alignment of operands, on the instruction set, or on the rows that stand beside a row. */
#ifndef CT_TENSOR_DEVICE_H
#define CT_TENSOR_DEVICE_H

#include "tensor/op.h"

/* Arenas are aligned to this; operands need only the alignment of their element type, but those on
 * multiples of it run fastest. */
enum { CT_DEVICE_ALIGN = 64 };

struct ct_device;

/* One kind of device. `alloc` gives zeroed memory aligned to CT_DEVICE_ALIGN, or NULL. */
struct ct_device_table {
    const char *name; /* "cpu" */
    bool on_host;     /* computes in the host's memory, wherever that was allocated */
    void (*free)(struct ct_device *device);
    void *(*alloc)(struct ct_device *device, size_t bytes);
    void (*release)(struct ct_device *device, void *memory, size_t bytes);
    void (*copy_in)(struct ct_device *device, void *to, const void *from, size_t bytes);
    void (*copy_out)(struct ct_device *device, void *to, const void *from, size_t bytes);
    bool (*has)(const struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype);
    void (*run)(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                const struct ct_kernel_args *args);
};

/* The head of every device; what follows belongs to its kind. */
struct ct_device {
    const struct ct_device_table *table;
};

/* NULL is taken. Memory of the device must have been released. */
void ct_device_free(struct ct_device *device);

/* An arena of `bytes` (> 0), zeroed, aligned to CT_DEVICE_ALIGN. CT_ENOMEM with the size in `err`.
 */
int ct_device_alloc(struct ct_device *device, size_t bytes, void **ret_memory,
                    struct ct_error *err);

/* Gives an arena back; `bytes` as allocated. NULL is taken. */
void ct_device_release(struct ct_device *device, void *memory, size_t bytes);

/* Copies between the host and the device; the host's memory may be used again on return. */
void ct_device_copy_in(struct ct_device *device, void *to, const void *from, size_t bytes);
void ct_device_copy_out(struct ct_device *device, void *to, const void *from, size_t bytes);

/* Whether the device has a kernel of `op` for operands of `dtype` (T in op.def). */
bool ct_device_has(const struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype);

/* Run one op. The device has it, and `args` have passed ct_op_check: once, when they were bound to
 * memory, is enough. */
void ct_device_run(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                   const struct ct_kernel_args *args);

/* ---- the CPU -------------------------------------------------------------------------------- */

/* Vector instruction sets that the CPU device has kernels for, best last. */
enum ct_cpu_isa { CT_CPU_AUTO, CT_CPU_PORTABLE, CT_CPU_AVX2, CT_CPU_AVX512 };

struct ct_cpu_options {
    int threads;         /* the caller's thread included; 0: OMP_NUM_THREADS, or else 1 */
    enum ct_cpu_isa isa; /* CT_CPU_AUTO: the best that this machine runs */
};

/* A CPU device. `options` may be NULL (all zero). CT_EUNSUPPORTED for an instruction set that the
 * machine lacks, CT_EUSAGE for a bad number of threads, CT_ENOMEM. */
int ct_device_cpu_new(const struct ct_cpu_options *options, struct ct_device **ret_device,
                      struct ct_error *err);

/* The best instruction set that this machine runs, and the name of one ("avx512"). */
enum ct_cpu_isa ct_cpu_isa_best(void);
const char *ct_cpu_isa_name(enum ct_cpu_isa isa);

#endif
