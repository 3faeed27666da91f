/* Rank 0's reports: progress to the agent (or the terminal), metrics to files, a summary at the
 * end. On other ranks the functions do nothing. */
#ifndef CT_CTWORKER_TRAINER_TRAINING_REPORT_H
#define CT_CTWORKER_TRAINER_TRAINING_REPORT_H

#include "base/error.h"
#include "ctrun.h"
#include "train/curve.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_worker;
struct ct_metrics;

/* The result of one evaluation. */
struct ct_evaluation {
    uint64_t step; /* after which it was made */
    uint64_t rows;
    uint64_t correct;
    double loss; /* mean over the rows */
};

/* The result of one step. */
struct ct_step_report {
    uint64_t samples; /* of this step */
    double loss;
    double grad_norm;
    double lr;
    bool logged; /* it goes to the metrics */
};

struct ct_report {
    bool active; /* rank 0 */
    bool alone;  /* no agent: lines go to the terminal */
    struct ct_metrics *metrics;
    uint64_t started_ns, first_step;
    uint64_t round_ns;           /* when the loop of this round began */
    uint64_t saving_ns;          /* in this round: steps waited for a checkpoint */
    uint64_t left_ns;            /* when the last step was completed */
    uint64_t paused_ns;          /* in total: evaluations, checkpoints, between rounds */
    uint64_t metrics_step;       /* the last one in the metrics */
    uint64_t metrics_evaluation; /* that of the last evaluation in them */
    uint64_t samples;            /* since the start */
    uint64_t shown_ns;           /* the last progress */
    struct ct_progress shown;    /* its values, without an agent */
    uint64_t logged_ns;          /* the last of a step that log.every names */
    uint64_t mark_ns;            /* where the speed is measured from */
    uint64_t mark_samples;
    double samples_per_s; /* over the last window */
    double loss;          /* of the last step */
    bool evaluated;
    struct ct_evaluation evaluation; /* the last one */
    bool has_best;
    double best_loss; /* the lowest of the run's evaluations, also of those before it was resumed */
    uint64_t best_step;
    struct ct_curve curve;     /* losses of steps */
    char checkpoint[PATH_MAX]; /* the last one, "" when none */
    uint64_t checkpoint_step;
    char best_checkpoint[PATH_MAX]; /* that of checkpoint.best, "" when none */
};

/* Open the metrics on rank 0, at the start of a round, truncated behind the step that it continues
 * from, unless they are open. A step that survivors completed without rank 0's knowledge is
 * reported now, from worker->last. 0, or a code with its sentence. */
int ct_report_open(struct ct_worker *worker, struct ct_error *err);
void ct_report_close(struct ct_worker *worker);

/* Resume the time of steps after an evaluation or a checkpoint. */
void ct_report_resume(struct ct_worker *worker);

/* Report a completed step. 0, or CT_EIO when metrics cannot be written. */
int ct_report_step(struct ct_worker *worker, const struct ct_step_report *step,
                   struct ct_error *err);

/* Report the progress of an evaluation: `done` of `rows`. */
void ct_report_evaluating(struct ct_worker *worker, uint64_t done, uint64_t rows);

/* Report an evaluation. */
int ct_report_evaluation(struct ct_worker *worker, const struct ct_evaluation *evaluation,
                         struct ct_error *err);

/* Report what the model wrote after the present step. Errors as above. */
int ct_report_sample(struct ct_worker *worker, const char *prompt, const char *text,
                     struct ct_error *err);

/* Print the summary; `stopped` when the training was requested to end early. */
void ct_report_summary(struct ct_worker *worker, bool stopped);

#endif
