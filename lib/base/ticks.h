/* A clock that costs a few nanoseconds, for stamps that are converted later: the processor's
 * counter where there is one (processor.h), else CLOCK_MONOTONIC. The reader determines its unit
 * from two pairs of both clocks (ct_ticks_to_ns). */
#ifndef CT_BASE_TICKS_H
#define CT_BASE_TICKS_H

#include "base/clock.h"
#include "base/processor.h"

static inline uint64_t ct_ticks(void)
{
    return ct_processor_ticks();
}

/* Return how many ticks have passed since `before`. Processors may read their counter out of the
 * order of the program: never less than 0. */
static inline uint64_t ct_ticks_since(uint64_t before)
{
    uint64_t now = ct_ticks();

    return now > before ? now - before : 0;
}

/* One moment on both clocks. */
struct ct_ticks_pair {
    uint64_t ns, ticks;
};

static inline struct ct_ticks_pair ct_ticks_now(void)
{
    struct ct_ticks_pair now = {ct_clock_mono_ns(&ct_clock_system), ct_ticks()};
    return now;
}

/* Convert `ticks` to nanoseconds of CLOCK_MONOTONIC, on the line through `base` and `now`, which
 * are at least a millisecond apart. The result is never later than `now`. */
static inline uint64_t ct_ticks_to_ns(struct ct_ticks_pair base, struct ct_ticks_pair now,
                                      uint64_t ticks)
{
    if (ticks >= now.ticks || now.ticks <= base.ticks || now.ns <= base.ns)
        return now.ns;
    double age =
        (double)(now.ticks - ticks) * (double)(now.ns - base.ns) / (double)(now.ticks - base.ticks);
    return age >= (double)now.ns ? 0 : now.ns - (uint64_t)age;
}

#endif
