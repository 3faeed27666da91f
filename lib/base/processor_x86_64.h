/* See processor.h. The time-stamp counter is constant, and synchronised across cores, on every
 * machine of the last decade. */
#ifndef CT_BASE_PROCESSOR_X86_64_H
#define CT_BASE_PROCESSOR_X86_64_H

#include <stdint.h>

static inline void ct_relax(void)
{
    __builtin_ia32_pause();
}

static inline uint64_t ct_processor_ticks(void)
{
    return __builtin_ia32_rdtsc();
}

static inline void ct_stores_drain(void)
{
    __builtin_ia32_sfence();
}

#endif
