/* What differs between processors and is needed between two polls of a flag, or for a time stamp: a
 * file an architecture, each with the same three functions.
 *
 *     ct_relax()            rest between two polls of a line that another core will write: some
 *                           tens of cycles, in which the line is left to the writer
 *     ct_processor_ticks()  a counter that costs a few nanoseconds, runs at one rate, and is the
 *                           same on all cores (ticks.h); a read may be made somewhat before what
 *                           stands in front of it
 *     ct_stores_drain()     stores past the caches (reduce/reduce_kernels.h) are seen by others
 *                           before what is stored after this; nothing to do where there are none */
#ifndef CT_BASE_PROCESSOR_H
#define CT_BASE_PROCESSOR_H

#if defined(__x86_64__)
#include "base/processor_x86_64.h"
#elif defined(__aarch64__)
#include "base/processor_aarch64.h"
#else
#include "base/processor_any.h"
#endif

#endif
