/* A committed round, as this node's workers see it: their environments, output, CPUs, and the
 * message that assigns a native worker its place. */
#ifndef CT_CTRUN_AGENT_ROUND_H
#define CT_CTRUN_AGENT_ROUND_H

#include "launch/workers_uv.h"
#include "launch_job.h"
#include "rendezvous/client/agent_uv.h"

/* Where PyTorch's store is: MASTER_ADDR and MASTER_PORT. */
struct round_master {
    const char *address;
    uint16_t port;
    bool served; /* by an agent; else rank 0 serves it there */
};

struct round_input {
    const struct job *job;
    const struct ct_round *round;
    struct round_master master;
    const char *marks;                  /* of the guard; NULL: none */
    const char *const *heartbeat_files; /* of each slot; NULL: nobody looks at them */
    const char *run_folder; /* that the training writes to; "" until a worker has said so */
};

/* Describe the worker of each slot, in `arena`. 0; CT_ECANTCREAT (its folder); CT_ENOMEM. */
int round_specs(const struct round_input *input, struct ct_arena *arena,
                const struct ct_worker_spec **ret_specs, struct ct_error *err);

/* Return the environment of an interpreter that waits until it becomes a worker, in `arena`; NULL
 * without memory. */
char **round_warm_env(const struct job *job, const char *marks, struct ct_arena *arena);

/* Return the ASSIGN message of worker `local_rank`. It borrows from `round`. */
struct ct_message round_assign(const struct job *job, const struct ct_round *round,
                               uint32_t local_rank);

#endif
