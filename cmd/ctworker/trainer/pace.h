/* Pace: the ranks compare how long each waited for the others, and rank 0 reports stragglers to its
 * agent (train/straggler.h decides). Every few steps one small all_gather. */
#ifndef CT_WORKER_PACE_H
#define CT_WORKER_PACE_H

#include "base/error.h"
#include "train/straggler.h"

struct ct_worker;

struct ct_pace {
    struct ct_straggler_sample *samples; /* [world], of the steps since the last exchange */
    float *room;                         /* [world] */
    float took_us[CT_STRAGGLER_BATCH];
    uint64_t waited_ns;           /* altogether, when the step began */
    uint64_t ended_ns;            /* the step before */
    uint64_t starved_ns, read_ns; /* for a core, altogether; when that was read */
    struct ct_straggler straggler;
};

/* A round's steps begin. 0 or CT_ENOMEM. A world of one compares nothing. */
int ct_pace_open(struct ct_worker *worker, struct ct_error *err);
void ct_pace_close(struct ct_worker *worker);

/* A step begins. */
void ct_pace_begin(struct ct_worker *worker);

/* It is completed: worker->step is its number. A collective, like the step itself. */
int ct_pace_end(struct ct_worker *worker, struct ct_error *err);

#endif
