/* The output of a trainer without an agent, on standard output: lines for people, or with
 * log.format json the records that ctrun makes of the same (base/record.h). */
#ifndef CT_WORKER_ALONE_H
#define CT_WORKER_ALONE_H

#include "ctrun.h"

struct ct_worker;

void ct_alone_progress(struct ct_worker *worker, const struct ct_progress *progress);
void ct_alone_evaluation(const struct ct_worker *worker, const struct ct_job_evaluation *e);

/* `text`: lines with their ends. */
void ct_alone_summary(const struct ct_worker *worker, const char *text);

/* Digits behind the point that a rate of samples is worth: a large model takes seconds for one. */
int ct_alone_decimals(double rate);

#endif
