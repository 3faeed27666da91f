/* The best evaluation of a training, by which its checkpoint is kept (checkpoint.best).
 *
 * It belongs to the state, as the plateau does: it is in checkpoints and is sent to ranks that
 * join, so that a training that was rolled back knows no evaluation of the steps that it lost.
 * Pure; every rank sees the same evaluations and so has the same best one. */
#ifndef CT_TRAIN_BEST_H
#define CT_TRAIN_BEST_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of checkpoint.best. */
enum ct_best_metric { CT_BEST_NONE, CT_BEST_LOSS, CT_BEST_ACCURACY };

/* Words of 64 bits, without padding: it is sent and saved as it is. */
struct ct_best {
    uint64_t metric; /* enum ct_best_metric */
    uint64_t step;   /* 0: none yet */
    double value;
};

/* Observe the evaluation after `step` steps; `value` is of best->metric. Returns whether it is the
 * best one, also when it is repeated. Equal ones leave the earlier, a NaN is never the best. */
bool ct_best_observe(struct ct_best *best, uint64_t step, double value);

#endif
