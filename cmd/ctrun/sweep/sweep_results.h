/* The results of a sweep: a file of records, and a table. */
#ifndef CT_CTRUN_SWEEP_RESULTS_H
#define CT_CTRUN_SWEEP_RESULTS_H

#include "cmd/ctrun/sweep/sweep_trials.h"

/* Write SWEEP/results.jsonl, a line for each trial: its number, run, settings, how it ended, steps
 * and values. CT_ECANTCREAT, CT_EIO. */
int sweep_results_write(const struct sweep *sweep, struct ct_error *err);

/* Print the results as a table, the best first. */
void sweep_results_print(const struct sweep *sweep);

#endif
