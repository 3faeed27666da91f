/* See plateau.h. */
#include "train/plateau.h"

#include "base/assert.h"

#include <math.h>

void ct_plateau_init(struct ct_plateau *plateau)
{
    *plateau = (struct ct_plateau){.ratio = 1, .best = INFINITY};
}

void ct_plateau_observe(struct ct_plateau *plateau, const struct ct_plateau_rule *rule,
                        uint64_t step, double loss)
{
    CT_ASSERT(rule->factor > 0 && rule->factor < 1);
    if (step <= plateau->step)
        return;
    plateau->step = step;
    if (loss < plateau->best * (1 - rule->threshold)) {
        plateau->best = loss;
        plateau->bad = 0;
        return;
    }
    if (++plateau->bad <= rule->patience)
        return;
    plateau->bad = 0;
    plateau->ratio = CT_MIN(plateau->ratio, CT_MAX(plateau->ratio * rule->factor, rule->min_ratio));
}
