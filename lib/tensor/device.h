/* Devices: memory and kernels behind one table of functions.
 *
 *     ct_device_cpu_new(&options, &device, err)     the CPU is always there; CUDA is a plug-in
 *     ct_device_alloc(device, bytes)                a few big arenas, carved up by the planner
 *     ct_device_prepare(device, op, dtype, &args)   once, when an op is bound to memory
 *     ct_device_copy_in(device, to, from, bytes)    host -> device
 *     ct_device_run(device, op, dtype, &args)       one op of op.def, ... in program order
 *     ct_device_copy_out(device, to, from, bytes)   device -> host, after all that was run before
 *     ct_device_finish(device, err)                 wait until all of it is done; the first failure
 *     ct_device_free(device)
 *
 * A device is one in-order queue: its functions are called by one thread at a time, and
 * ct_device_run may return before the op has run. ct_device_beside makes another queue over the
 * same memory; marks order them:
 *
 *     device   run(a)  mark(m)  run(b) ...          b and c run side by side, c after a
 *     beside               await(m)  run(c) ...
 *
 * The host never follows a pointer to a device's memory unless the table says `on_host`: it copies.
 * Two devices that were made apart share nothing, so ranks may live as threads of one process, each
 * with its own.
 *
 * Running an op never allocates. Operands of a wrong shape or dtype are bugs of the planner, which
 * ct_op_check (op.h) names; other failures, of a broken GPU, are reported by ct_device_finish. On
 * the CPU results do not depend on the number of threads, on the alignment of operands, on the
 * instruction set, or on other rows. */
#ifndef CT_TENSOR_DEVICE_H
#define CT_TENSOR_DEVICE_H

#include "base/accel.h"
#include "tensor/op.h"

/* Arenas are aligned to this; operands need only the alignment of their element type, but those on
 * multiples of it run fastest. */
enum { CT_DEVICE_ALIGN = 64 };

struct ct_device;
struct ct_mark;      /* a moment of a queue */
struct ct_recording; /* ops that were run once, to be run again at once */

/* One kind of device. A synchronous one, which runs ops in the caller's thread, has NULL for
 * prepare, beside, marks, finish and recordings. */
struct ct_device_table {
    const char *name; /* "cpu" */
    bool on_host;     /* computes in the host's memory, wherever that was allocated */
    bool fuses;       /* has ops that stand for several (ct_op_parts) and gains by them */
    void (*free)(struct ct_device *device);
    void *(*alloc)(struct ct_device *device, size_t bytes);
    void (*release)(struct ct_device *device, void *memory, size_t bytes);
    void (*copy_in)(struct ct_device *device, void *to, const void *from, size_t bytes);
    void (*copy_out)(struct ct_device *device, void *to, const void *from, size_t bytes);
    bool (*has)(const struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype);
    void (*run)(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                const struct ct_kernel_args *args);

    int (*prepare)(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                   const struct ct_kernel_args *args, struct ct_error *err);
    int (*reach)(struct ct_device *device, void *memory, size_t bytes, struct ct_error *err);
    void (*unreach)(struct ct_device *device, void *memory);
    int (*beside)(struct ct_device *device, struct ct_device **ret_device, struct ct_error *err);
    int (*finish)(struct ct_device *device, struct ct_error *err);
    struct ct_mark *(*mark_new)(struct ct_device *device);
    void (*mark_free)(struct ct_mark *mark);
    void (*mark)(struct ct_device *device, struct ct_mark *mark);
    void (*await)(struct ct_device *device, const struct ct_mark *mark);
    void *(*stream)(struct ct_device *device);
    const struct ct_accel *(*accel)(struct ct_device *device);
    int (*record)(struct ct_device *device, struct ct_error *err);
    int (*record_end)(struct ct_device *device, struct ct_recording **ret_recording,
                      struct ct_error *err);
    void (*replay)(struct ct_device *device, struct ct_recording *recording);
    void (*recording_free)(struct ct_recording *recording);
};

/* The head of every device; the fields of its kind follow. */
struct ct_device {
    const struct ct_device_table *table;
};

/* Free a device; NULL is ignored. Its memory must have been released. */
void ct_device_free(struct ct_device *device);

/* Allocate an arena of `bytes` (> 0), zeroed, aligned to CT_DEVICE_ALIGN. CT_ENOMEM with the size
 * in `err`. */
int ct_device_alloc(struct ct_device *device, size_t bytes, void **ret_memory,
                    struct ct_error *err);

/* Release an arena; `bytes` as allocated. NULL is ignored. */
void ct_device_release(struct ct_device *device, void *memory, size_t bytes);

/* Copies between the host and the device; the host's memory may be used again on return. */
void ct_device_copy_in(struct ct_device *device, void *to, const void *from, size_t bytes);
void ct_device_copy_out(struct ct_device *device, void *to, const void *from, size_t bytes);

/* Return whether the device has a kernel of `op` for operands of `dtype` (T in op.def). */
bool ct_device_has(const struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype);

/* Run one op. The device has it, `args` have passed ct_op_check, and it is prepared: once, when
 * they were bound to memory, is enough. */
void ct_device_run(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                   const struct ct_kernel_args *args);

/* Let the device choose all that it needs to run `op` on these operands (an algorithm, a
 * workspace), whose data lies where it will be run. Before the first ct_device_run of it, once. 0,
 * CT_ENOMEM, CT_EUNSUPPORTED with the sentence. */
int ct_device_prepare(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                      const struct ct_kernel_args *args, struct ct_error *err);

/* Let ops on the device read and write `memory` of the host; until ct_device_unreach. CT_ENOMEM,
 * CT_EUNSUPPORTED. */
int ct_device_reach(struct ct_device *device, void *memory, size_t bytes, struct ct_error *err);
void ct_device_unreach(struct ct_device *device, void *memory);

/* ---- queues and time ------------------------------------------------------------------------ */

/* Create another queue over the same memory, for another thread; free it before `device`. It
 * prepares its own ops. */
int ct_device_beside(struct ct_device *device, struct ct_device **ret_device, struct ct_error *err);

/* Wait until all that was run is done. 0, or the first failure since the last call, with the op
 * where it is known: CT_EDEVICE. A device that has failed stays so. */
int ct_device_finish(struct ct_device *device, struct ct_error *err);

/* Create a mark of `device` or of one beside it. *ret_mark is NULL where a device needs none, which
 * the other functions accept. */
int ct_device_mark_new(struct ct_device *device, struct ct_mark **ret_mark, struct ct_error *err);
void ct_device_mark_free(struct ct_device *device, struct ct_mark *mark);

/* Set `mark` to the completion of all earlier ops of this queue. */
void ct_device_mark(struct ct_device *device, struct ct_mark *mark);

/* Make later ops of this queue wait for `mark`, which was set (by a call that has returned). */
void ct_device_await(struct ct_device *device, const struct ct_mark *mark);

/* Return the queue's handle for the device's libraries and its accel (a cudaStream_t), or NULL. */
void *ct_device_stream(struct ct_device *device);

/* Return the interface by which collectives use the device's memory; it lives as long as the
 * process. NULL for a device on the host. */
const struct ct_accel *ct_device_accel(struct ct_device *device);

/* Return whether the device can record. Ops between begin and end are then recorded instead of run,
 * and every ct_device_replay runs them on the same memory. Only ct_device_run may be called in
 * between. Free a recording before the arenas that it uses. */
bool ct_device_can_record(const struct ct_device *device);
int ct_device_record(struct ct_device *device, struct ct_error *err);
int ct_device_record_end(struct ct_device *device, struct ct_recording **ret_recording,
                         struct ct_error *err);
void ct_device_replay(struct ct_device *device, struct ct_recording *recording);
void ct_device_recording_free(struct ct_device *device, struct ct_recording *recording);

/* ---- the CPU -------------------------------------------------------------------------------- */

/* Vector instruction sets that the CPU device has kernels for; of one architecture's the best
 * last. */
enum ct_cpu_isa {
    CT_CPU_AUTO,
    CT_CPU_PORTABLE,
    CT_CPU_NEON,
    CT_CPU_AVX2,
    CT_CPU_AVX512,
    CT_CPU_ISAS
};

struct ct_cpu_options {
    int threads;         /* the caller's thread included; 0: OMP_NUM_THREADS, or else 1 */
    enum ct_cpu_isa isa; /* CT_CPU_AUTO: the best that this machine runs */
};

/* Create a CPU device. `options` may be NULL (all zero). CT_EUNSUPPORTED for an instruction set
 * that the machine lacks, CT_EUSAGE for a bad number of threads, CT_ENOMEM. */
int ct_device_cpu_new(const struct ct_cpu_options *options, struct ct_device **ret_device,
                      struct ct_error *err);

/* Return whether this machine runs an instruction set; the best that it runs; the name of one
 * ("avx512"). */
bool ct_cpu_isa_runs(enum ct_cpu_isa isa);
enum ct_cpu_isa ct_cpu_isa_best(void);
const char *ct_cpu_isa_name(enum ct_cpu_isa isa);

#endif
