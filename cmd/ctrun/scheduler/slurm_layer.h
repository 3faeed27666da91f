/* Slurm as a layer of the configuration: `srun ctrun train.yaml` needs no rendezvous options.
 *
 *      slurm_read      SLURM_* -> presets, the weakest layer above the defaults
 *      (ct_config_load)
 *      slurm_complete    do the user's settings contradict Slurm? the key that the nodes share
 *      (the job runs)
 *      slurm_end       the key is removed
 *
 * Where the cluster has munge, no key is made: the nodes run as one user, and munge says so.
 * Elsewhere the key is ~/.ctrun/job-JOB.STEP.key, or job-JOB.STEP-rN.key after N requeues, mode
 * 0600: Slurm has no secret for a job, so the home directory, which all nodes share, carries it.
 * Node 0 makes it, the others wait for it. */
#ifndef CT_CTRUN_SLURM_LAYER_H
#define CT_CTRUN_SLURM_LAYER_H

#include "base/arena.h"
#include "base/error.h"
#include "base/log/log.h"
#include "config/config.h"
#include "slurm/slurm.h"

#include <stdbool.h>

enum { SLURM_PRESETS = 5 };

struct slurm {
    struct ct_slurm allocation; /* its place is CT_SLURM_NONE outside of Slurm */
    struct ct_config_preset presets[SLURM_PRESETS];
    size_t preset_count;
    struct ct_arena arena;
    const char *key;      /* the key that slurm_end removes, or NULL */
    const char *left_key; /* that the job may have left before it was queued again, or NULL */
};

/* Read `env` (as environ). 0; CT_EUSAGE with a sentence that names the variable. `slurm` needs
 * slurm_end in any case. */
int slurm_read(struct slurm *slurm, char *const *env, struct ct_error *err);

/* Check the configuration that was loaded with the presets, and make the key, or on nodes other
 * than node 0 wait for it, at most launch.join_timeout; a wait is reported after a second. 0, or an
 * error with its sentence. */
int slurm_complete(struct slurm *slurm, struct ct_config *cfg, const struct ct_log *log,
                   struct ct_error *err);

void slurm_end(struct slurm *slurm);

/* slurm_munge.c: return the key_file that means the cluster's munge, NULL when it has none that
 * answers here. */
const char *slurm_munge(char *const *env, struct ct_arena *arena);

/* slurm_key.c: make the key unless a good one is there (of this step, when node 0's ctrun is
 * started in it again); wait until node 0, which is `host`, has made it. */
int slurm_key_make(const char *path, struct ct_error *err);
int slurm_key_await(const struct ct_log *log, const char *path, const char *host, int64_t limit_ms,
                    struct ct_error *err);

#endif
