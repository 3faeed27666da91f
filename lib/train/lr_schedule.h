/* The learning rate as a pure function of the step.
 *
 *   lr |    ____            warm-up: lr * (step + 1) / warmup, for step < warmup
 *      |   /    \__         then the type's shape, in parts of lr
 *      |  /        \___
 *      +---------------- step
 *
 *   constant   1
 *   linear     down to min_ratio, which the last step (steps - 1) has
 *   cosine     likewise, as half a cosine: SGDR (Loshchilov and Hutter, 2017) without restarts
 *   wsd        1, and over the last `decay` steps linearly down to min_ratio: warm-up, stable,
 *              decay (Hu et al., 2404.06395); where to stop need not be known before the decay
 *   step       factor^n after n * `every` steps, counted from the start: torch's StepLR
 *   onecycle   the warm-up is half a cosine from start_ratio up to 1 (its step warmup - 1), then
 *              the same down to min_ratio: torch's OneCycleLR with pct_start = warmup / steps
 *   plateau    1; train/plateau.h lowers it by evaluations, the only schedule with a state */
#ifndef CT_TRAIN_LR_SCHEDULE_H
#define CT_TRAIN_LR_SCHEDULE_H

#include <stdint.h>

enum ct_schedule_type {
    CT_SCHEDULE_CONSTANT,
    CT_SCHEDULE_LINEAR,
    CT_SCHEDULE_COSINE,
    CT_SCHEDULE_WSD,
    CT_SCHEDULE_STEP,
    CT_SCHEDULE_ONECYCLE,
    CT_SCHEDULE_PLATEAU,
    CT_SCHEDULE_COUNT
};

struct ct_schedule {
    enum ct_schedule_type type;
    double lr;          /* the peak */
    double min_ratio;   /* of the peak, at the last step; linear, cosine, wsd, onecycle */
    double start_ratio; /* onecycle: of the peak, at the first step */
    double factor;      /* step */
    uint64_t warmup;    /* steps; onecycle: 0 is three tenths of all */
    uint64_t steps;     /* of the whole training, warm-up included */
    uint64_t decay;     /* wsd: steps; 0 is a fifth of all */
    uint64_t every;     /* step: > 0 */
};

/* Return the learning rate of `step`, counted from 0. Steps after the last keep its rate, except
 * for type step, which has no end. */
double ct_schedule_lr(const struct ct_schedule *schedule, uint64_t step);

#endif
