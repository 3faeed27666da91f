/* See percentile.h. */
#include "base/number/percentile.h"

#include "base/assert.h"

uint32_t ct_percentile_99(const uint32_t *values, size_t count)
{
    enum { TOP = CT_PERCENTILE_VALUES / 100 + 1 }; /* it, and those above */
    uint32_t highest[TOP] = {0};                   /* descending */

    CT_ASSERT(count <= CT_PERCENTILE_VALUES);
    for (size_t i = 0; i < count; i++) {
        uint32_t value = values[i];

        for (int k = 0; k < TOP; k++) {
            if (value <= highest[k])
                continue;
            uint32_t lower = highest[k];
            highest[k] = value;
            value = lower;
        }
    }
    return highest[count / 100];
}
