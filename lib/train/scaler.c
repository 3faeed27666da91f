/* See scaler.h. */
#include "train/scaler.h"

#include "base/assert.h"

/* Nothing is that small: gradients that bear more are zero. */
static const double most = 0x1p64;

void ct_scaler_init(struct ct_scaler *scaler, double scale)
{
    CT_ASSERT(scale >= 1);
    *scaler = (struct ct_scaler){.scale = scale};
}

void ct_scaler_observe(struct ct_scaler *scaler, uint64_t every, bool left_out)
{
    if (left_out) {
        scaler->scale = CT_MAX(scaler->scale / 2, 1);
        scaler->clean = 0;
    } else if (++scaler->clean >= every) {
        scaler->scale = CT_MIN(scaler->scale * 2, most);
        scaler->clean = 0;
    }
}
