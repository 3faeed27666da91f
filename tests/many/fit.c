/* See fit.h. */
#include "fit.h"

#include "base/assert.h"

#include <math.h>

enum { POINTS = 64 };

struct fit fit_line(const double *x, const double *y, size_t count)
{
    double sx = 0, sy = 0, sxx = 0, sxy = 0, n = (double)count;
    struct fit fit = {0};

    CT_ASSERT(count >= 2);
    for (size_t i = 0; i < count; i++) {
        sx += x[i];
        sy += y[i];
        sxx += x[i] * x[i];
        sxy += x[i] * y[i];
    }
    CT_ASSERT(n * sxx - sx * sx > 0);
    fit.slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
    fit.at_zero = (sy - fit.slope * sx) / n;
    for (size_t i = 0; i < count; i++)
        fit.worst = fmax(fit.worst, fabs(y[i] - fit.at_zero - fit.slope * x[i]));
    return fit;
}

double fit_power(const double *x, const double *y, size_t count)
{
    double log_x[POINTS], log_y[POINTS];

    CT_ASSERT(count <= POINTS);
    for (size_t i = 0; i < count; i++) {
        log_x[i] = log(x[i]);
        log_y[i] = log(y[i]);
    }
    return fit_line(log_x, log_y, count).slope;
}
