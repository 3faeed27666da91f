/* A batch script for Slurm: the text that `ctrun slurm` writes. Pure.
 *
 *      #!/bin/bash
 *      #SBATCH --nodes=2 ...              directives
 *      key=$HOME/.ctrun/job-ID.key        several nodes: the key they share, for this job alone
 *      srun ctrun WORDS                   in the background when signals are waited for
 *      scontrol requeue                   when it ended with 75, if that is wanted */
#ifndef CT_SLURM_BATCH_SCRIPT_H
#define CT_SLURM_BATCH_SCRIPT_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_batch {
    const char *ctrun;         /* the program, as all nodes find it */
    const char *name;          /* of the job */
    int64_t nodes;             /* at most */
    bool elastic;              /* goes on with fewer */
    bool own_key;              /* the nodes have no key yet */
    bool requeue;              /* is queued again when its time is up */
    uint32_t cpus;             /* a node; 0: not said */
    const char *const *sbatch; /* more directives, "--time=1:00:00", each in place of one from here
                                * with the same name */
    size_t sbatch_count;
    const char *const *arguments; /* of ctrun, after its name, NULL-terminated */
};

/* Append the script. */
void ct_batch_print(const struct ct_batch *batch, struct ct_buf *to);

/* Append `word` so that a shell reads it as it is. */
void ct_batch_quote(const char *word, struct ct_buf *to);

#endif
