/* The number of groups of each name that a process has made in its round. Members make the same
 * groups in the same order, so each counts alike without communication. Any thread. */
#ifndef CT_COLL_JOB_NAMES_H
#define CT_COLL_JOB_NAMES_H

#include <stdint.h>

struct ct_job_names;

/* Make the counters. NULL without memory. */
struct ct_job_names *ct_job_names_new(void);
void ct_job_names_free(struct ct_job_names *names);

/* Reset all to 0, for another round. */
void ct_job_names_reset(struct ct_job_names *names);

/* Count one more of this name. Return their number, this one included; 0 without memory. */
uint64_t ct_job_names_count(struct ct_job_names *names, const char *name);

#endif
