/* The node's job, decided before anything is started: the configuration, the program, the number of
 * workers, their CPUs. */
#ifndef CT_CTRUN_AGENT_LAUNCH_JOB_H
#define CT_CTRUN_AGENT_LAUNCH_JOB_H

#include "base/arena.h"
#include "base/error.h"
#include "config/config.h"
#include "hardware/affinity.h"
#include "hook/hook_target.h"
#include "launch/worker_program.h"
#include "log_folder.h"
#include "slurm/slurm.h"

#include <stdbool.h>
#include <stdint.h>

enum { JOB_NOTES = 4 };

struct job {
    struct ct_config cfg;
    struct ct_arena arena; /* of what is decided here */
    struct ct_program program;
    char *const *env;             /* of this process */
    const char *host;             /* this node's name */
    const char *run_id;           /* the job's name for programs (TORCHELASTIC_RUN_ID) */
    struct folder folder;         /* of its workers' files; node_run drops it */
    uint64_t config_hash;         /* of what must be equal on all nodes; 0: nothing */
    const char *settings;         /* that, a "--key=value" a line */
    uint32_t slots;               /* workers on this node */
    uint32_t omp_threads;         /* each */
    const struct ct_cpus *cpus;   /* of each worker; NULL: workers are not pinned */
    const char *const *gpus;      /* CUDA_VISIBLE_DEVICES of each worker; NULL: this process's */
    uint32_t visible_gpus;        /* that workers could see; 0 without a driver */
    bool virtual_local_rank;      /* LOCAL_RANK is 0: each worker sees one GPU */
    const char *notes[JOB_NOTES]; /* what was decided that nobody asked for, for the log */
    uint32_t note_count;
    const char *warning;        /* about the workers that were asked for, for the log; NULL: none */
    bool alone;                 /* one node that meets nobody */
    bool as_torchrun;           /* called by that name: set before job_decide */
    bool for_output;            /* what the workers print is the result: set before job_decide */
    struct ct_hook_target hook; /* of the job's events; its `path` NULL: none */
    uint64_t hook_kinds;        /* that go to it, a bit each */
    const char *wandb_python;   /* the interpreter that has wandb; NULL: log.wandb is off */
    const struct ct_slurm *slurm; /* what Slurm says, NULL outside of it: set before job_decide */
};

/* Decide from a loaded configuration: `job->cfg`, `as_torchrun` and `slurm` are filled, all else is
 * zero. `args` are ctrun's own arguments, for the trainer of YAML files. 0, or the error with its
 * sentence. */
int job_decide(struct job *job, char *const *args, char *const *env, struct ct_error *err);

/* Refuse a bare program name that is no executable on this node, as job_decide would. */
int job_check_name(const struct ct_config *cfg, char *const *env, struct ct_arena *arena,
                   struct ct_error *err);

void job_deinit(struct job *job);

#endif
