/* The trials of a sweep (train/sweep.h) as processes: each is a `ctrun` of its own, with a folder
 * below that of the sweep, and trains with as many workers as any training.
 *
 *     SWEEP/sweep.json        what is swept: another sweep does not go on in this folder
 *     SWEEP/results.jsonl     a line for each trial, whenever one begins or ends
 *     SWEEP/trial_00/         a run: config.yaml, metrics.jsonl, checkpoints/; and its console's
 *                             output.log
 *
 * What a trial has done is read from its folder, so a sweep that was interrupted goes on. */
#ifndef CT_CTRUN_SWEEP_TRIALS_H
#define CT_CTRUN_SWEEP_TRIALS_H

#include "base/bytes.h"
#include "base/error.h"
#include "hardware/affinity.h"
#include "train/sweep.h"

#include <limits.h>
#include <sys/types.h>

enum { SWEEP_SEATS = 64, SWEEP_LABEL = 192 };

/* What is known of a trial besides what decides about it. */
struct sweep_trial {
    char folder[PATH_MAX];
    char label[SWEEP_LABEL]; /* "optim.lr 0.001, seed 2" */
    pid_t pid;               /* 0: it does not run */
    int seat;
    int status; /* exit status of its last process */
    off_t read; /* of metrics.jsonl */
    uint64_t steps, step;
    uint64_t evaluations, best_step;
    double best, last; /* values of evaluations */
};

struct sweep {
    struct ct_sweep rules;
    struct ct_sweep_axis axes[CT_SWEEP_AXES];
    int axis_count;
    const char *metric; /* "loss", "accuracy" */
    char folder[PATH_MAX];
    const char *file; /* the YAML file */
    char **words;     /* options of run, for every trial */
    int word_count;
    int workers; /* of a trial */
    bool gpus;   /* each seat has GPUs of its own */
    bool bound[SWEEP_SEATS];
    struct ct_cpus cpus[SWEEP_SEATS]; /* of each seat, where it is bound */
    struct ct_sweep_trial trials[CT_SWEEP_TRIALS];
    struct ct_sweep_decision decisions[CT_SWEEP_TRIALS];
    struct sweep_trial facts[CT_SWEEP_TRIALS];
};

enum { SWEEP_OWN_WORDS = 9 }; /* besides `words` and one for each axis */

/* Write the words that start trial `trial` in seat `seat` (-1: wherever) to `argv`, NULL at the
 * end; those that are made are in `buf`. Returns how many. */
int sweep_words(const struct sweep *sweep, int trial, int seat, struct ct_buf *buf, char **argv);

/* Read what all trials have done. */
void sweep_read(struct sweep *sweep);

/* Run trials until nothing is left, or until a signal stops them all in order. Returns 0, or the
 * signal; or a negative code: CT_EOS, CT_ECANTCREAT, CT_EIO. */
int sweep_run(struct sweep *sweep, struct ct_error *err);

#endif
