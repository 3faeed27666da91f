/* The folder of a run: log.dir, or a new one, runs/<name of the YAML file>/<date and time>
 * (train/runs.h).
 *
 *   config.yaml      the effective configuration, each value with its origin
 *   run.json         its command, its place, and its outcome; a restart of the job keeps its name
 *   checkpoints/     with checkpoint.dir: auto
 *   trace/rank<R>.json       every rank's own (trace.h)
 *   metrics.jsonl, events.out.tfevents.*      (lib/train/metrics.h)
 *
 * The run's name is in its checkpoints, so that a restart can distinguish its own from older ones
 * in the same folder.
 *
 *   a rank knows the folder  <- from an earlier round, or from its agent
 *     | none does: rank 0 finds that of this job, which was requeued, or makes a new one
 *   all receive it           -> and report it to their agents */
#ifndef CT_WORKER_RUN_DIR_H
#define CT_WORKER_RUN_DIR_H

#include "config/config.h"

#include <limits.h>
#include <stdbool.h>

struct ct_worker;

struct ct_run_dir {
    char path[PATH_MAX];        /* "" until it is known */
    char checkpoints[PATH_MAX]; /* "": none are kept */
    char run[128];              /* rank 0: "<run id>/<16 hex digits>" */
};

/* Agree on the folder with all ranks of the group; rank 0 makes it, writes the configuration, and
 * names the run: anew, or, where the job was started before or continues from a checkpoint in it,
 * as its run.json says. Collective. 0, CT_ECANTCREAT, CT_EIO, or the code of the group. */
int ct_run_dir_open(struct ct_worker *worker, struct ct_error *err);

/* Write the path of `name` in the run's folder. 0, or CT_ECANTCREAT when it is too long. */
int ct_run_dir_path(const struct ct_run_dir *dir, const char *name, char path[PATH_MAX],
                    struct ct_error *err);

#endif
