/* The course of a value over a training in a few columns: "█▅▃▂▂▁▁▁".
 *
 * Each column is the mean of as many values as every other; when the columns are used up, each two
 * become one. Pure. */
#ifndef CT_TRAIN_CURVE_H
#define CT_TRAIN_CURVE_H

#include "base/bytes.h"

#include <stdint.h>

enum { CT_CURVE_COLUMNS = 40, CT_CURVE_LEAST = 8 };

/* Begins as zero. */
struct ct_curve {
    double sums[CT_CURVE_COLUMNS];
    uint64_t stride; /* values of a column */
    uint64_t count;  /* values altogether */
};

void ct_curve_add(struct ct_curve *curve, double value);

/* Append the columns (UTF-8), then the means of the first and the last: "█▅▂▁ 4.408 to 2.529".
 * Appends nothing for fewer columns than LEAST. A value that is not finite is a blank. */
void ct_curve_print(const struct ct_curve *curve, struct ct_buf *to);

#endif
