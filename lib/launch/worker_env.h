/* The environment of a worker: torchelastic's variables, so that an unmodified env:// script
 * starts, and ctrun's own. One table in worker_env.c lists them all.
 *
 * Ranks follow from the runs of a round's nodes: uneven nodes and several roles are ordinary.
 * Pure. */
#ifndef CT_LAUNCH_WORKER_ENV_H
#define CT_LAUNCH_WORKER_ENV_H

#include "base/arena.h"
#include "wire/node_runs.h"

#include <stdint.h>

enum {
    CT_CONTROL_FD = 3, /* the worker's end of the worker link */
    CT_PAGE_FD = 4,    /* the node's control page */
    CT_RECORD_FD = 5,  /* the worker's record */
};

#define CT_ENV_MARKS "CTRUN_MARKS" /* of the agents that a worker descends from (guard.h) */

struct ct_worker_env {
    uint32_t rank, world_size;
    uint32_t local_rank, local_world_size;
    uint32_t device_rank; /* LOCAL_RANK: local_rank (set by ct_worker_env_ranks), or what a script
                             is to take for it */
    uint32_t group_rank, group_world_size; /* the node, and the number of nodes */
    uint32_t role_rank, role_world_size;   /* among the workers of nodes with the same role */
    uint32_t restart_count, max_restarts;
    uint32_t generation;
    uint32_t master_port;
    uint32_t omp_threads;  /* used when the parent has no OMP_NUM_THREADS; 0: leave it unset */
    const char *role_name; /* set by ct_worker_env_ranks */
    const char *master_addr;
    const char *agent_store; /* is PyTorch's store served at master_addr already: "True", "False" */
    const char *use_libuv;   /* which store rank 0 makes, when the parent does not say; NULL: any */
    const char *run_id;
    const char *visible_devices; /* CUDA_VISIBLE_DEVICES; NULL: the parent's */
    const char *tuning;          /* the collectives' tuning table; NULL: the parent's */
    const char *error_file;      /* "" when there is none */
    const char *marks;           /* CT_ENV_MARKS; NULL: the parent's */
    const char
        *heartbeat_file;       /* that the worker may touch as a sign of life; NULL: the parent's */
    const char *stop_signals;  /* numbers of those at which ctrun stops its workers: "15,2" */
    const char *fault_handler; /* "1": Python prints its stacks at SIGABRT; NULL: the parent's */
    const char
        *flight_dumps; /* PREFIX of PyTorch's flight recorder (torch_flight.h), and how many */
    const char *flight_calls; /* calls it keeps; NULL: the parent's */
    const char *run_folder;   /* that the job's training writes to; "" until it is known */
};

/* Fill the ranks, sizes and role of worker `local_rank` of a node of the round. */
void ct_worker_env_ranks(struct ct_worker_env *env, struct ct_node_runs runs, uint32_t node,
                         uint32_t local_rank);

/* Build the environment: `parent` (a NULL-terminated list) with the variables of `env` on top. The
 * list and the new strings live in `arena`, unchanged strings stay where they are. NULL without
 * memory. */
char **ct_worker_env_build(struct ct_arena *arena, const struct ct_worker_env *env,
                           char *const *parent);

#endif
