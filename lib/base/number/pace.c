/* See pace.h. A leaky bucket of `burst` that runs out by `per_s` a second. */
#include "base/number/pace.h"

#include "base/assert.h"

uint64_t ct_pace_take(struct ct_pace *pace, uint64_t now_ms, uint32_t per_s, uint32_t burst)
{
    uint64_t burst_m = (uint64_t)burst * 1000;
    uint64_t run_out = (now_ms - pace->ms) * per_s;

    pace->used_m -= CT_MIN(run_out, pace->used_m);
    pace->ms = now_ms;
    if (pace->used_m + 1000 > burst_m)
        return (pace->used_m + 1000 - burst_m + per_s - 1) / per_s;
    pace->used_m += 1000;
    return 0;
}
