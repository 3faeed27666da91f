/* The inside of the executor. For collectives/exec only. */
#ifndef CT_EXEC_EXECUTOR_H
#define CT_EXEC_EXECUTOR_H

#include "collectives/exec/run.h"

enum { CT_EXEC_CHUNK_BYTES = 1 << 16 };

struct ct_exec {
    const struct ct_plan *plan;
    struct ct_device *device;
    struct ct_device *queues[CT_QUEUE_COUNT]; /* of the communication threads; NULL where there is
                                                 none */
    struct ct_exec_options options;
    struct ct_group *groups[CT_AXIS_COUNT]; /* of the ops; WORLD is the caller's, as is SHARD
                                               without copies */
    char *arena;
    bool symmetric; /* the arena is the job's memory */
    char *host;     /* plan->host_bytes for activations that are offloaded, or NULL */
    struct ct_runner init, step, eval;
    _Alignas(double) char chunk[CT_EXEC_CHUNK_BYTES]; /* between the device and the host */
};

/* Map the plan's host memory: anonymous, or a file in options.offload_dir; unmap it. 0, CT_ENOMEM,
 * CT_ECANTCREAT, CT_EIO. */
int ct_exec_map_host(struct ct_exec *exec, struct ct_error *err);
void ct_exec_unmap_host(struct ct_exec *exec);

#endif
