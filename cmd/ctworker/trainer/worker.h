/* The trainer: one rank of a job that trains what a YAML file describes.
 *
 *   main      config, job                       one sentence and a documented status at the end
 *   setup     data, batch, plan, group, executor
 *   resume    rank 0 looks for a checkpoint and gives its state to all
 *   loop      step, report, check, evaluate, save ... until the last step or a stop
 *   report    progress, metrics, summary (rank 0)
 *
 * struct ct_worker is the whole state; each part fills its own fields and none is global. */
#ifndef CT_WORKER_H
#define CT_WORKER_H

#include "base/log.h"
#include "collectives/exec/exec.h"
#include "config/config.h"
#include "ctrun.h"
#include "data/prefetch.h"
#include "report.h"
#include "run_dir.h"
#include "snapshot.h"
#include "stop.h"
#include "train/batch.h"
#include "train/schedule.h"

/* Who prints an error: every rank has its own; all ranks of a node have the same; all ranks of the
 * job have the same. */
enum ct_worker_scope { CT_SCOPE_RANK, CT_SCOPE_NODE, CT_SCOPE_JOB };

struct ct_worker {
    const struct ct_config *cfg;
    const struct ct_log *log;
    const struct ct_clock *clock;
    struct ct_job *job;
    const struct ct_assignment *me; /* rank, world, ... */
    struct ct_stop *stop;
    enum ct_worker_scope scope; /* of the errors of the phase at hand */

    /* setup */
    struct ct_dataset train, eval; /* eval.rows is 0 when there is no evaluation */
    struct ct_batch_plan batch;
    struct ct_sampler sampler, eval_sampler;
    struct ct_share share, eval_share;
    struct ct_batch_buffer eval_buffer;
    struct ct_schedule schedule;
    struct ct_plan plan;
    struct ct_device *device;
    struct ct_group *group; /* NULL in a world of one */
    struct ct_exec *exec;

    /* where the training stands */
    uint64_t steps;    /* of the whole training */
    uint64_t step;     /* completed */
    uint64_t position; /* samples consumed */

    /* rank 0's alone */
    struct ct_run_dir run_dir;
    struct ct_snapshot snapshot;
    struct ct_report report;
};

/* Number of the epoch that the training is in, from 1, and of all epochs. */
uint64_t ct_worker_epoch(const struct ct_worker *worker);
uint64_t ct_worker_epochs(const struct ct_worker *worker);

#endif
