/* See processor.h. */
#ifndef CT_BASE_PROCESSOR_ANY_H
#define CT_BASE_PROCESSOR_ANY_H

#include "base/clock.h"

static inline void ct_relax(void)
{
}

static inline uint64_t ct_processor_ticks(void)
{
    return ct_clock_mono_ns(&ct_clock_system);
}

static inline void ct_stores_drain(void)
{
}

#endif
