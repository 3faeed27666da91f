/* The folder of a run: log.dir, or runs/<name of the YAML file>.
 *
 *   config.yaml      the effective configuration, each value with its origin
 *   run              one line that names this run; a restart of the job keeps it
 *   trace/rank<R>.json       every rank's own (trace.h)
 *   metrics.jsonl, events.out.tfevents.*      (lib/train/metrics.h)
 *
 * The run's name goes into its checkpoints, so that a restart can tell its own from older ones that
 * lie in the same folder. */
#ifndef CT_WORKER_RUN_DIR_H
#define CT_WORKER_RUN_DIR_H

#include "base/clock.h"
#include "config/config.h"

#include <limits.h>
#include <stdbool.h>

struct ct_run_dir {
    char path[PATH_MAX];
    char run[128]; /* "<run id>/<16 hex digits>" */
};

/* Where `name` of the run's folder is, for any rank. CT_ECANTCREAT when the path is too long. */
int ct_run_dir_path(const struct ct_config *cfg, const char *name, char path[PATH_MAX],
                    struct ct_error *err);

/* Make the folder, write the configuration, and name the run: anew, or, with `restarted`, as the
 * line in `run` says. CT_ECANTCREAT or CT_EIO. */
int ct_run_dir_open(struct ct_run_dir *ret, const struct ct_config *cfg, const char *run_id,
                    bool restarted, struct ct_error *err);

#endif
