/* Time is injected: code that waits or stamps takes a clock, so that tests and the simulator can
 * use their own. */
#ifndef CT_BASE_CLOCK_H
#define CT_BASE_CLOCK_H

#include <stdint.h>

struct ct_clock {
    uint64_t (*mono_ns)(void *context); /* monotonic, from an arbitrary start */
    uint64_t (*wall_ns)(void *context); /* since 1970-01-01 UTC */
    void *context;
};

/* The machine's clocks (CLOCK_MONOTONIC, CLOCK_REALTIME). */
extern const struct ct_clock ct_clock_system;

static inline uint64_t ct_clock_mono_ns(const struct ct_clock *clock)
{
    return clock->mono_ns(clock->context);
}

static inline uint64_t ct_clock_mono_ms(const struct ct_clock *clock)
{
    return clock->mono_ns(clock->context) / 1000000u;
}

static inline uint64_t ct_clock_wall_ns(const struct ct_clock *clock)
{
    return clock->wall_ns(clock->context);
}

#endif
