/* The learning rate as a pure function of the step.
 *
 *   lr |    ____            warm-up: lr * (step + 1) / warmup, for step < warmup
 *      |   /    \__         then constant, linear or cosine down to lr * min_ratio,
 *      |  /        \___     which the last step (steps - 1) has
 *      +---------------- step
 *
 * Cosine is that of SGDR (Loshchilov and Hutter, 2017) without restarts. */
#ifndef CT_TRAIN_SCHEDULE_H
#define CT_TRAIN_SCHEDULE_H

#include <stdint.h>

enum ct_schedule_type {
    CT_SCHEDULE_CONSTANT,
    CT_SCHEDULE_LINEAR,
    CT_SCHEDULE_COSINE,
    CT_SCHEDULE_COUNT
};

struct ct_schedule {
    enum ct_schedule_type type;
    double lr;        /* the peak */
    double min_ratio; /* of the peak, at the last step; unused by CONSTANT */
    uint64_t warmup;  /* steps */
    uint64_t steps;   /* of the whole training, warm-up included */
};

/* The type called `name` ("constant", "linear", "cosine"), or -1. */
int ct_schedule_find(const char *name);

/* The learning rate of `step`, counted from 0. Steps behind the last keep the last one's rate. */
double ct_schedule_lr(const struct ct_schedule *schedule, uint64_t step);

#endif
