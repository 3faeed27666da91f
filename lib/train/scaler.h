/* Dynamic loss scaling for f16, so that small gradients do not vanish (Micikevicius et al.,
 * 1710.03740), by a power of two:
 *
 *     a step is left out (a gradient was not finite)    scale / 2
 *     `every` steps in a row were taken                 scale * 2
 *
 * Every rank skips the same steps, as norm and loss are those of the global batch, and so has the
 * same scale. It is kept with the parameters: in checkpoints and for ranks that join. Pure. */
#ifndef CT_TRAIN_SCALER_H
#define CT_TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

/* Words of 64 bits, without padding: it is sent and saved as it is. */
struct ct_scaler {
    double scale;   /* a power of two, 1 at least */
    uint64_t clean; /* steps in a row that were taken with it */
};

/* Initialise, before the first step. */
void ct_scaler_init(struct ct_scaler *scaler, double scale);

/* Observe the step with this scale: applied, or left out because of an overflow. */
void ct_scaler_observe(struct ct_scaler *scaler, uint64_t every, bool left_out);

#endif
