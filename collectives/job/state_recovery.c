/* See state_recovery.h. */
#include "job/state_recovery.h"

int ct_state_recovery_base(const struct ct_holding *all, int world, uint64_t lineage)
{
    int base = -1;

    for (int rank = 0; rank < world; rank++)
        if (lineage > 0 && all[rank].lineage == lineage &&
            (base < 0 || all[rank].step > all[base].step))
            base = rank;
    return base;
}

int ct_state_recovery_diverged(const struct ct_holding *all, int world, int base)
{
    for (int rank = 0; rank < world; rank++)
        if (all[rank].lineage == all[base].lineage && all[rank].step == all[base].step &&
            all[rank].digest != all[base].digest)
            return rank;
    return -1;
}

bool ct_state_recovery_is_equal(const struct ct_holding *a, const struct ct_holding *b)
{
    return a->lineage > 0 && b->lineage > 0 && a->step == b->step && a->digest == b->digest;
}

bool ct_state_recovery_needed(const struct ct_holding *all, int world, int base)
{
    for (int rank = 0; rank < world; rank++)
        if (!ct_state_recovery_is_equal(&all[rank], &all[base]))
            return true;
    return false;
}
