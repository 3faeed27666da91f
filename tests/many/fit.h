/* Straight lines through figures over the number of ranks: how something grows. */
#ifndef TESTS_MANY_FIT_H
#define TESTS_MANY_FIT_H

#include <stddef.h>

/* y = at_zero + slope * x, by least squares. */
struct fit {
    double at_zero, slope;
    double worst; /* the largest distance of a point from the line */
};

/* Fit `count` points, two at least with different x. */
struct fit fit_line(const double *x, const double *y, size_t count);

/* The p of y ~ x^p: the slope of log y over log x; all values above 0. It is 1 for what grows with
 * x, 2 with its square; for what grows with log x it is small, and falls as x grows. */
double fit_power(const double *x, const double *y, size_t count);

#endif
