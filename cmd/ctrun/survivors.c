/* See survivors.h. */
#include "survivors.h"

#include <stddef.h>

bool survivors_any(const struct survivor *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (all[i].able)
            return true;
    return false;
}

const struct survivor *survivors_best(const struct survivor *all, uint32_t count)
{
    const struct survivor *best = NULL;

    for (uint32_t i = 0; i < count; i++) {
        const struct survivor *one = &all[i];

        if (!one->ready || one->lineage == 0)
            continue;
        if (best == NULL || one->lineage > best->lineage ||
            (one->lineage == best->lineage && one->step > best->step))
            best = one;
    }
    return best;
}

bool survivors_untouched(const struct survivor *all, uint32_t count, uint64_t generation)
{
    for (uint32_t i = 0; i < count; i++)
        if (all[i].ready && all[i].lineage < generation)
            return true;
    return false;
}
