/* Slurm's facts about this node and its job, from SLURM_* variables: no scontrol, no network.
 *
 *      sbatch (SLURM_JOB_ID)  -- srun (SLURM_STEP_ID) -- a task a node (SLURM_PROCID): ctrun
 *
 * Inside a task of `srun` everything that a job of several nodes needs is known: nodes, order,
 * endpoint. The step's variables override the job's, as a step may have fewer nodes. Pure. */
#ifndef CT_SLURM_H
#define CT_SLURM_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_slurm_place {
    CT_SLURM_NONE,  /* not inside a Slurm job */
    CT_SLURM_BATCH, /* in a job, but not started by srun: a batch script, or a shell of salloc */
    CT_SLURM_TASK,  /* started by srun */
};

struct ct_slurm {
    enum ct_slurm_place place;
    uint64_t job_id;
    uint32_t step_id; /* TASK */
    /* SLURM_ARRAY_*; -1: no job array */
    int64_t array_job_id, array_task_id;
    uint32_t restart_count;            /* how often Slurm has requeued the job */
    uint32_t nodes;                    /* of the step, or of the job in a batch script */
    uint32_t node_rank;                /* this node's place among `hosts` */
    uint32_t tasks;                    /* of the step, all nodes; 0: not said */
    uint32_t node_tasks;               /* of the step on this node; 0: not said */
    uint32_t task_rank;                /* SLURM_PROCID */
    const char *const *hosts;          /* `nodes` names in Slurm's order; NULL: not said */
    const char *node_name;             /* this one; "" when not said */
    const char *launch_address;        /* of the host where srun runs; "" when not said */
    uint32_t cpus_per_task, node_cpus; /* 0: not said */
    uint32_t node_gpus;                /* 0: not said */
};

/* Read `env` (as environ). 0; CT_EUSAGE with a sentence that names the variable for a value that
 * cannot be right; CT_ENOMEM. */
int ct_slurm_read(char *const *env, struct ct_arena *arena, struct ct_slurm *ret_slurm,
                  struct ct_error *err);

/* The user's settings that Slurm may contradict. */
struct ct_slurm_request {
    bool nodes_given;
    int64_t min_nodes, max_nodes;
    int64_t node_rank; /* -1: not given */
    bool standalone;
};

/* Check that Slurm's allocation allows `request`. 0, or CT_EUSAGE: one sentence, with the remedy. A
 * batch script of several nodes may start ctrun by other means than srun if the number of nodes is
 * given. */
int ct_slurm_check(const struct ct_slurm *slurm, const struct ct_slurm_request *request,
                   struct ct_error *err);

/* Return the job's name for the rendezvous: "4711.0", "4711_3.0" for a task of a job array, without
 * the step in a batch script. In the arena; NULL without memory. */
const char *ct_slurm_run_id(const struct ct_slurm *slurm, struct ct_arena *arena);

/* Return the port of the rendezvous: the same on all nodes, most likely another for other steps,
 * below the ephemeral ones. */
uint16_t ct_slurm_port(const struct ct_slurm *slurm);

/* Return the number of CPUs that Slurm allocated to ctrun and its workers on this node, whether it
 * binds them or not; 0 if unknown. */
uint32_t ct_slurm_cpus(const struct ct_slurm *slurm);

/* Return the tasks of node `node` in SLURM_TASKS_PER_NODE's form, "2(x3),1". 0, or CT_EUSAGE for
 * another form or too few nodes. */
int ct_slurm_tasks_of(const char *text, uint32_t node, uint32_t *ret_tasks);

#endif
