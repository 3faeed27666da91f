/* So many a second in the long run, and so many at once. Pure. */
#ifndef CT_BASE_PACE_H
#define CT_BASE_PACE_H

#include <stdint.h>

/* Zeroed at first. */
struct ct_pace {
    uint64_t used_m, ms; /* taken lately, in thousandths, and when that was so */
};

/* Take one of `per_s` a second, `burst` at once. Returns 0, or the milliseconds until there is one;
 * then nothing is taken. */
uint64_t ct_pace_take(struct ct_pace *pace, uint64_t now_ms, uint32_t per_s, uint32_t burst);

#endif
