/* See best.h. */
#include "train/best.h"

bool ct_best_observe(struct ct_best *best, uint64_t step, double value)
{
    bool higher = best->metric == CT_BEST_ACCURACY;
    bool repeated = best->step == step && step > 0;
    bool first = best->step == 0 && value == value;

    if (best->metric == CT_BEST_NONE || step == 0)
        return false;
    if (!repeated && !first && !(higher ? value > best->value : value < best->value))
        return false;
    best->step = step;
    best->value = value;
    return true;
}
