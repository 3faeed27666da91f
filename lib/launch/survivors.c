/* See survivors.h. */
#include "launch/survivors.h"

#include <stddef.h>

bool ct_survivors_any(const struct ct_survivor *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (all[i].able)
            return true;
    return false;
}

const struct ct_survivor *ct_survivors_best(const struct ct_survivor *all, uint32_t count)
{
    const struct ct_survivor *best = NULL;

    for (uint32_t i = 0; i < count; i++) {
        const struct ct_survivor *one = &all[i];

        if (!one->ready || one->lineage == 0)
            continue;
        if (best == NULL || one->lineage > best->lineage ||
            (one->lineage == best->lineage && one->step > best->step))
            best = one;
    }
    return best;
}

bool ct_survivors_recovered(const struct ct_survivor *all, uint32_t count, uint64_t generation)
{
    for (uint32_t i = 0; i < count; i++)
        if (all[i].recovered < generation)
            return false;
    return true;
}

bool ct_survivors_untouched(const struct ct_survivor *all, uint32_t count, uint64_t generation)
{
    for (uint32_t i = 0; i < count; i++)
        if (all[i].idle || (all[i].ready && all[i].lineage < generation))
            return true;
    return false;
}
