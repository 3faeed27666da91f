/* The output of a trainer without an agent, on standard output: lines for people, or with
 * log.format json the same records as ctrun's (base/record.h). */
#ifndef CT_WORKER_ALONE_H
#define CT_WORKER_ALONE_H

#include "ctrun.h"

struct ct_worker;

/* Print progress; an evaluation. */
void ct_alone_progress(struct ct_worker *worker, const struct ct_progress *progress);
void ct_alone_evaluation(const struct ct_worker *worker, const struct ct_job_evaluation *e);

/* Print the summary. `text`: lines with their ends. */
void ct_alone_summary(const struct ct_worker *worker, const char *text);

/* Return the decimals to print of a rate of samples: a large model takes seconds for one. */
int ct_alone_decimals(double rate);

#endif
