/* Axes: ranges, places, round ticks; see plot.h. */
#include "train/plot/plot.h"

#include "base/assert.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_place(double value, bool log)
{
    return isfinite(value) && (!log || value > 0);
}

/* So that a single value has an axis, too. */
static void widen(struct ct_plot_axis *axis)
{
    if (axis->low < axis->high)
        return;
    double by = axis->low == 0 ? 1 : fabs(axis->low) / 10;
    axis->low = axis->log ? fmax(axis->low / 2, DBL_MIN) : axis->low - by;
    axis->high = fmin(axis->log ? axis->high * 2 : axis->high + by, DBL_MAX);
}

bool ct_plot_axes(const struct ct_plot *plot, struct ct_plot_axis *ret_x,
                  struct ct_plot_axis *ret_y)
{
    *ret_x = (struct ct_plot_axis){.low = INFINITY, .high = -INFINITY};
    *ret_y = (struct ct_plot_axis){.low = INFINITY, .high = -INFINITY, .log = plot->log};
    for (size_t i = 0; i < plot->count; i++) {
        const struct ct_plot_curve *curve = &plot->curves[i];

        for (size_t k = 0; k < curve->count; k++) {
            if (!has_place(curve->y[k], plot->log) || !isfinite(curve->x[k]))
                continue;
            ret_x->low = fmin(ret_x->low, curve->x[k]);
            ret_x->high = fmax(ret_x->high, curve->x[k]);
            ret_y->low = fmin(ret_y->low, curve->y[k]);
            ret_y->high = fmax(ret_y->high, curve->y[k]);
        }
    }
    if (ret_x->low > ret_x->high)
        return false;
    widen(ret_x);
    widen(ret_y);
    return true;
}

double ct_plot_place(const struct ct_plot_axis *axis, double value)
{
    if (!has_place(value, axis->log))
        return NAN;
    if (axis->log)
        return (log(value) - log(axis->low)) / (log(axis->high) - log(axis->low));
    /* halves: the difference of two huge values may be none */
    return (value / 2 - axis->low / 2) / (axis->high / 2 - axis->low / 2);
}

size_t ct_plot_gaps(const struct ct_plot_curve *curve, bool log)
{
    size_t gaps = 0;

    for (size_t i = 0; i < curve->count; i++)
        gaps += !has_place(curve->y[i], log);
    return gaps;
}

/* ---- ticks ---------------------------------------------------------------------------------- */

/* The smallest of 1, 2, 5 times a power of ten that is not below `least`. */
static double round_step(double least)
{
    double power = pow(10, floor(log10(least)));
    double ratio = least / power;
    const double slack = 1 + 1e-9;

    return power * (ratio <= slack ? 1 : ratio <= 2 * slack ? 2 : ratio <= 5 * slack ? 5 : 10);
}

/* "2000", "50k", "0.25", "2e-05": with the digits that tell neighbours `step` apart. */
static void put_text(double value, double step, double largest, char text[16])
{
    int decimals = (int)CT_MAX(0.0, -floor(log10(step) + 1e-9));
    int digits = (int)CT_MAX(1.0, floor(log10(largest / step) + 1e-9) + 1);
    double scale = largest >= 1e9 ? 1e9 : largest >= 1e6 ? 1e6 : 1e3;

    if (value == 0)
        (void)snprintf(text, 16, "0");
    else if (largest >= 1e4 && largest < 1e13)
        (void)snprintf(text, 16, "%.*g%s", digits + 3, value / scale,
                       scale >= 1e9   ? "G"
                       : scale >= 1e6 ? "M"
                                      : "k");
    else if (decimals > 4 || largest >= 1e13)
        (void)snprintf(text, 16, "%.*g", CT_MIN(digits, 7), value);
    else
        (void)snprintf(text, 16, "%.*f", decimals, value);
}

static void add_tick(const struct ct_plot_axis *axis, double value, struct ct_plot_ticks *ret)
{
    double place = ct_plot_place(axis, value);

    if (ret->count < CT_PLOT_TICKS && place > -1e-6 && place < 1 + 1e-6)
        ret->place[ret->count++] = fmin(fmax(place, 0), 1);
}

static void linear_ticks(const struct ct_plot_axis *axis, int most, struct ct_plot_ticks *ret)
{
    double step = round_step(axis->high / (most - 1) - axis->low / (most - 1));
    double largest = fmax(fabs(axis->low), fabs(axis->high));
    double first = ceil(axis->low / step - 1e-6);

    if (!isfinite(first)) /* the smallest numbers that there are */
        return;
    for (int i = 0; i <= most && ret->count < most; i++) {
        double value = (first + i) * step;
        int before = ret->count;

        add_tick(axis, value, ret);
        if (ret->count > before)
            put_text(value, step, largest, ret->text[before]);
    }
}

/* Powers of ten; all of them, or every n-th. */
static void power_ticks(const struct ct_plot_axis *axis, int most, const double *times, int count,
                        struct ct_plot_ticks *ret)
{
    int first = (int)floor(log10(axis->low)), last = (int)ceil(log10(axis->high));
    int every = CT_MAX((last - first + most - 1) / most, 1);

    for (int power = first; power <= last; power += every)
        for (int i = 0; i < count && ret->count < most; i++) {
            double value = times[i] * pow(10, power);
            int before = ret->count;

            add_tick(axis, value, ret);
            if (ret->count > before)
                (void)snprintf(ret->text[before], sizeof ret->text[before], "%g", value);
        }
}

void ct_plot_ticks(const struct ct_plot_axis *axis, int most, struct ct_plot_ticks *ret)
{
    static const double times[] = {1, 2, 5};
    double decades = axis->log ? log10(axis->high) - log10(axis->low) : 0;

    CT_ASSERT(most >= 2 && most <= CT_PLOT_TICKS);
    *ret = (struct ct_plot_ticks){.count = 0};
    if (axis->log && decades >= 1)
        power_ticks(axis, most, times, decades * 3 <= most ? 3 : 1, ret);
    if (ret->count < 2) {
        ret->count = 0;
        linear_ticks(axis, most, ret);
    }
}
