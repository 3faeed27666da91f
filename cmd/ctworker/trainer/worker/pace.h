/* Straggler detection: the ranks compare how long each waited for the others, and rank 0 reports
 * stragglers to its agent (train/straggler.h decides). Every few steps one small all_gather. */
#ifndef CT_WORKER_PACE_H
#define CT_WORKER_PACE_H

#include "base/error.h"
#include "train/straggler.h"

struct ct_worker;

struct ct_pace {
    struct ct_straggler_sample *samples; /* [world], of the steps since the last exchange */
    float *room;                         /* [world] */
    float took_us[CT_STRAGGLER_BATCH];
    uint64_t waited_ns;           /* in total, when the step began */
    uint64_t ended_ns;            /* end of the step before */
    uint64_t starved_ns, read_ns; /* waiting for a core, in total; when that was read */
    struct ct_straggler straggler;
};

/* Begin a round's steps; a world of one compares nothing. 0 or CT_ENOMEM. */
int ct_pace_open(struct ct_worker *worker, struct ct_error *err);
void ct_pace_close(struct ct_worker *worker);

/* Begin a step. */
void ct_pace_begin(struct ct_worker *worker);

/* End a step, whose number is worker->step. Collective, like the step itself. 0, or the code of the
 * group. */
int ct_pace_end(struct ct_worker *worker, struct ct_error *err);

#endif
