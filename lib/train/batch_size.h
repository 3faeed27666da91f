/* Batch arithmetic: global = world * accumulation * micro, exactly.
 *
 * `batch.global` is the truth of a training; the world may change and the accumulation follows. */
#ifndef CT_TRAIN_BATCH_SIZE_H
#define CT_TRAIN_BATCH_SIZE_H

#include "base/error.h"

#include <stdint.h>

struct ct_batch_plan {
    uint32_t global;       /* samples a step, over all ranks */
    uint32_t micro;        /* samples a rank computes at once */
    uint32_t accumulation; /* micro-batches a rank adds up in a step */
};

/* Split `global` > 0 over `world` > 0 ranks in micro-batches of `micro` (0: as large as can be, one
 * a step). CT_ECONFIG when it does not divide; the sentence lists the nearest values that do. */
int ct_batch_plan(struct ct_batch_plan *ret, uint32_t global, uint32_t micro, uint32_t world,
                  struct ct_error *err);

#endif
