/* See curve.h. */
#include "train/curve.h"

#include "base/assert.h"

#include <math.h>

void ct_curve_add(struct ct_curve *curve, double value)
{
    if (curve->stride == 0)
        curve->stride = 1;
    if (curve->count == CT_CURVE_COLUMNS * curve->stride) {
        for (size_t i = 0; i < CT_CURVE_COLUMNS; i++)
            curve->sums[i] =
                2 * i < CT_CURVE_COLUMNS ? curve->sums[2 * i] + curve->sums[2 * i + 1] : 0;
        curve->stride *= 2;
    }
    curve->sums[curve->count / curve->stride] += value;
    curve->count++;
}

/* The means; returns how many columns there are. */
static size_t find_means(const struct ct_curve *curve, double means[CT_CURVE_COLUMNS])
{
    size_t columns = 0;

    for (uint64_t at = 0; at < curve->count; at += curve->stride) {
        uint64_t values = CT_MIN(curve->stride, curve->count - at);
        means[columns] = curve->sums[columns] / (double)values;
        columns++;
    }
    return columns;
}

void ct_curve_print(const struct ct_curve *curve, struct ct_buf *to)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double means[CT_CURVE_COLUMNS], low = INFINITY, high = -INFINITY;
    size_t columns = find_means(curve, means);

    if (columns < CT_CURVE_LEAST)
        return;
    for (size_t i = 0; i < columns; i++)
        if (isfinite(means[i])) {
            low = fmin(low, means[i]);
            high = fmax(high, means[i]);
        }
    for (size_t i = 0; i < columns; i++) {
        double height = high > low ? (means[i] - low) / (high - low) : 0;
        (void)ct_buf_puts(to, !isfinite(means[i])
                                  ? " "
                                  : blocks[CT_MIN((size_t)(height * 8), CT_COUNT(blocks) - 1)]);
    }
    (void)ct_buf_printf(to, "  %.4g to %.4g", means[0], means[columns - 1]);
}
