/* The trainer: one rank of a job that trains the model of a YAML file.
 *
 *   main      config, job                       one sentence and a documented status at the end
 *   train     setup, then rounds until the training is complete
 *   setup     data, device
 *   round     batch, plan, group, executor
 *   recover   the most advanced survivor broadcasts its state; if no rank has one:
 *   resume    rank 0 finds a checkpoint and broadcasts its state
 *   loop      step, report, check, evaluate, save ... until the last step, a stop, the round's end
 *   report    progress, metrics, summary (rank 0)
 *
 * struct ct_worker is the whole state; each part fills its own fields and none is global. */
#ifndef CT_WORKER_H
#define CT_WORKER_H

#include "base/log/log.h"
#include "checkpoint_publish.h"
#include "config/config.h"
#include "ctrun.h"
#include "data/prefetch.h"
#include "exec/exec.h"
#include "exec/replicas.h"
#include "pace.h"
#include "ps/ps_client_uv.h"
#include "ps/ps_server_uv.h"
#include "run_dir.h"
#include "saving.h"
#include "snapshot.h"
#include "stop.h"
#include "text_sample.h"
#include "trace.h"
#include "train/batch_size.h"
#include "train/best.h"
#include "train/lr_schedule.h"
#include "train/plateau.h"
#include "train/scaler.h"
#include "training_report.h"

/* The scope of an error, which decides the ranks that print it: of one rank; the same on all ranks
 * of a node; the same on all ranks of the job. */
enum ct_worker_scope { CT_SCOPE_RANK, CT_SCOPE_NODE, CT_SCOPE_JOB };

/* Strategy ps (ps.h). */
struct ct_worker_ps {
    bool serves;                 /* this rank is a server in this round */
    struct ct_assignment place;  /* the job's, with the world of the ranks that train */
    int *members;                /* ranks of a group of this rank's kind */
    struct ct_ps_server *server; /* with the state that it holds */
    struct ct_ps_client *client; /* of a rank that trains, in this round */
};

struct ct_worker {
    const struct ct_config *cfg;
    const struct ct_log *log;
    const struct ct_clock *clock;
    struct ct_job *job;
    const struct ct_assignment *me; /* rank, world, ... */
    struct ct_stop *stop;
    bool survives;              /* an agent can form another round */
    bool queued_again;          /* Slurm has started this job before */
    enum ct_worker_scope scope; /* of errors of the present phase */

    /* setup */
    struct ct_dataset train, eval; /* eval.rows is 0 when there is no evaluation */
    uint64_t train_hash, eval_hash;
    struct ct_device *device;
    struct ct_text_sample text_sample;

    /* of a round (training_round.h) */
    struct ct_mesh mesh; /* the layout; samples are distributed along CT_AXIS_DATA */
    struct ct_batch_plan batch;
    struct ct_sampler sampler, eval_sampler;
    struct ct_share share, eval_share;
    struct ct_batch_buffer eval_buffer;
    struct ct_schedule schedule;
    struct ct_plan plan;
    struct ct_group *group;        /* NULL in a world of one */
    struct ct_group *device_group; /* the same ranks, for memory of a device that is not the host's;
                                      else NULL */
    struct ct_exec *exec;
    struct ct_snapshot snapshot; /* the files of a checkpoint */
    struct ct_saving saving;
    struct ct_replicas *replicas; /* of strategy dp, whose root `exec` is; else NULL */
    struct ct_worker_ps ps;
    bool reused; /* the executor is that of an older round, with its state */
    struct ct_pace pace;
    struct ct_trace trace;

    /* the training's progress */
    uint64_t steps;    /* of the whole training */
    uint64_t step;     /* completed */
    uint64_t position; /* samples consumed */
    uint64_t skipped;  /* of the steps: not taken, because they were not finite */
    uint64_t skipped_in_a_row;
    struct ct_plateau plateau; /* the learning rate's state after evaluations */
    struct ct_best best;       /* evaluation; its metric is rank 0's checkpoint.best */
    struct ct_scaler scaler;   /* of the loss, in f16 */
    uint64_t post_step_done;   /* evaluation and checkpoint are done up to this step */
    bool evaluation_due;       /* an evaluation of the present step is due, and not completed */
    bool repeat_post_step; /* evaluation and checkpoint of the present step are to be repeated */
    int64_t writers;       /* ranks that have written the checkpoint in progress */
    bool leaving;          /* all ranks leave the round after this step */
    bool stopping;         /* ranks hold shards, and have agreed to stop after this step */
    struct ct_config_interval save_every; /* rank 0's checkpoint.every */
    bool has_last;                        /* `last` is the result of the present step */
    struct ct_step_report last;

    /* carried into the next round */
    uint64_t lineage; /* the last round in which all had this state; 0: it has none */
    uint64_t digest;  /* of its state */
    struct ct_snapshot
        carry; /* its state, while the executor's may change; no tensors: that is it */

    struct ct_run_dir run_dir;

    /* rank 0's alone */
    uint64_t rounds_before; /* of earlier jobs on the same run; told to the others as they save */
    struct ct_publication publication;
    struct ct_report report;
};

/* Return the group in which steps communicate. */
static inline struct ct_group *ct_worker_step_group(const struct ct_worker *worker)
{
    return worker->device_group != NULL ? worker->device_group : worker->group;
}

/* Return whether this job was started before, so that files in its folders are its own. */
static inline bool ct_worker_restarted(const struct ct_worker *worker)
{
    return worker->me->restart_count > 0 || worker->queued_again;
}

#endif
