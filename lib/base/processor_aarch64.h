/* See processor.h. `yield` does nothing on cores without hardware threads; `isb` empties the
 * pipeline, which takes about as long as x86's `pause`. The virtual counter is the generic timer's,
 * one for all cores, at 25 MHz to 1 GHz. */
#ifndef CT_BASE_PROCESSOR_AARCH64_H
#define CT_BASE_PROCESSOR_AARCH64_H

#include <stdint.h>

static inline void ct_relax(void)
{
    __asm__ volatile("isb" ::: "memory");
}

static inline uint64_t ct_processor_ticks(void)
{
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}

static inline void ct_stores_drain(void)
{
}

#endif
