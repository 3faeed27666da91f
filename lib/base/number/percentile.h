/* A high percentile of a few numbers. Pure. */
#ifndef CT_BASE_PERCENTILE_H
#define CT_BASE_PERCENTILE_H

#include <stddef.h>
#include <stdint.h>

enum { CT_PERCENTILE_VALUES = 200 };

/* Return the value that 99 of 100 do not exceed; 0 without any. At most CT_PERCENTILE_VALUES. */
uint32_t ct_percentile_99(const uint32_t *values, size_t count);

#endif
