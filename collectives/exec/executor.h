/* The executor itself. Inside of collectives/exec only. */
#ifndef CT_EXEC_EXECUTOR_H
#define CT_EXEC_EXECUTOR_H

#include "collectives/exec/run.h"

enum { CT_EXEC_CHUNK_BYTES = 1 << 16 };

struct ct_exec {
    const struct ct_plan *plan;
    struct ct_device *device;
    struct ct_exec_options options;
    struct ct_group *groups[CT_AXIS_COUNT]; /* WORLD is the caller's, as is SHARD without copies */
    char *arena;
    bool symmetric; /* the arena is the job's memory */
    struct ct_runner init, step, eval;
    _Alignas(double) char chunk[CT_EXEC_CHUNK_BYTES]; /* between the device and the host */
};

#endif
