/* The results of a run's metrics: its best and its last loss, of evaluations where it has any, else
 * of training. */
#ifndef CT_TRAIN_RUN_VALUES_H
#define CT_TRAIN_RUN_VALUES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_run_values {
    bool any;       /* there is a loss */
    bool evaluated; /* it is that of evaluations */
    uint64_t step;  /* of the last record */
    uint64_t best_step;
    double best_loss, last_loss;
    double best_accuracy, last_accuracy; /* NaN: none */
    double time;                         /* of the last record, seconds since 1970; 0: none */
};

/* Add one line of metrics.jsonl; an invalid record is ignored. `to` begins as zero. */
void ct_run_values_add(struct ct_run_values *to, const char *line, size_t size);

/* Read all lines of FOLDER/metrics.jsonl; a missing file has none. */
void ct_run_values_read(const char *folder, struct ct_run_values *ret);

/* Read the evaluations alone. The lines of training steps, of which a long run has millions, are
 * passed over without being parsed: for a worker that begins to write while others wait. */
void ct_run_values_read_evaluations(const char *folder, struct ct_run_values *ret);

#endif
