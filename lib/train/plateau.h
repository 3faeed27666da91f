/* Lowering the learning rate when evaluations stop getting better, as torch's ReduceLROnPlateau:
 *
 *   loss  |\
 *         | \__.__.      a loss is better when it is below best * (1 - threshold);
 *         |        \__   `patience` evaluations in a row may be no better,
 *   ratio |------.       the next one multiplies the ratio by `factor`, down to min_ratio
 *         |      '----
 *
 * The only schedule with a state, which is kept with the parameters: in checkpoints and for ranks
 * that join. Pure; every rank sees the same losses and so has the same state. */
#ifndef CT_TRAIN_PLATEAU_H
#define CT_TRAIN_PLATEAU_H

#include <stdint.h>

struct ct_plateau_rule {
    double factor;     /* in (0, 1) */
    double min_ratio;  /* the ratio does not fall below it */
    double threshold;  /* in [0, 1) */
    uint64_t patience; /* evaluations */
};

/* Words of 64 bits, without padding: it is sent and saved as it is. */
struct ct_plateau {
    double ratio;  /* of the scheduled rate */
    double best;   /* the lowest loss that counted; infinity before the first */
    uint64_t bad;  /* evaluations in a row that were no better */
    uint64_t step; /* of the last evaluation that was seen; 0: none */
};

/* Initialise, without evaluations: ratio 1. */
void ct_plateau_init(struct ct_plateau *plateau);

/* Observe the loss of the evaluation after `step` steps. A repeated evaluation changes nothing; a
 * NaN is no improvement. */
void ct_plateau_observe(struct ct_plateau *plateau, const struct ct_plateau_rule *rule,
                        uint64_t step, double loss);

#endif
