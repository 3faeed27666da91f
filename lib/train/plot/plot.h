/* A plot of some curves, as text for a terminal or as an SVG file. Pure: bytes into a buffer.
 *
 *     loss                                          rows of cells, of 2 x 4 dots in braille
 *     4.0 |.
 *         | '.                                      each curve in its run's colour; without colours
 *     2.0 |   '..__                                 several curves are letters
 *         +-+-------+-----
 *           0      100   step
 *
 * Values go to places from 0 to 1 on an axis, linear or logarithmic; what has no place (NaN, an
 * infinity, on a logarithmic axis what is not above 0) is a gap in its curve. Long curves are
 * thinned by column: of the points in a column of the picture the first, the lowest, the highest
 * and the last are kept (M4: Jugel et al., VLDB 2014), which leaves the picture as it would be. */
#ifndef CT_TRAIN_PLOT_H
#define CT_TRAIN_PLOT_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* SVG_BYTES: of a file. TICKS: on an axis. */
enum { CT_PLOT_RUNS = 64, CT_PLOT_SVG_BYTES = 150000, CT_PLOT_TICKS = 12 };

struct ct_plot_curve {
    int run;    /* 0 ..: its colour and letter */
    bool marks; /* evaluations beside a curve of training: points in text, dashes in SVG */
    const double *x, *y;
    size_t count;
};

struct ct_plot {
    const char *title;  /* "loss" */
    const char *x_name; /* "step" */
    bool log;           /* the axis of values */
    const struct ct_plot_curve *curves;
    size_t count;
};

/* ---- axes and thinning (plot_axis.c, plot_thin.c) -------------------------------------------- */

struct ct_plot_axis {
    double low, high; /* low < high */
    bool log;
};

struct ct_plot_ticks {
    int count;
    double place[CT_PLOT_TICKS];
    char text[CT_PLOT_TICKS][16];
};

/* Find the axes that show all values. Returns false when no value has a place. */
bool ct_plot_axes(const struct ct_plot *plot, struct ct_plot_axis *ret_x,
                  struct ct_plot_axis *ret_y);

/* Return the place of a value, NaN if it has none. */
double ct_plot_place(const struct ct_plot_axis *axis, double value);

/* Return the number of a curve's values without a place. */
size_t ct_plot_gaps(const struct ct_plot_curve *curve, bool log);

/* Find at most `most` (2 .. CT_PLOT_TICKS) round values: 1, 2 or 5 times a power of ten apart; of a
 * logarithmic axis powers of ten, with 2 and 5 times where they are few. */
void ct_plot_ticks(const struct ct_plot_axis *axis, int most, struct ct_plot_ticks *ret);

struct ct_plot_point {
    double x, y;    /* places */
    bool after_gap; /* no line leads here */
};

/* Return the points that show `curve` in `columns` columns: all where they are no more than 4 a
 * column. The caller frees *ret. CT_ENOMEM. */
int ct_plot_thin(const struct ct_plot_curve *curve, const struct ct_plot_axis *x,
                 const struct ct_plot_axis *y, size_t columns, struct ct_plot_point **ret,
                 size_t *ret_count);

/* ---- pictures -------------------------------------------------------------------------------- */

struct ct_plot_style {
    int width;    /* columns of the terminal */
    int rows;     /* of the picture alone */
    bool unicode; /* braille; else ASCII */
    bool colours;
};

/* Append the plot as text. `labels`: of the runs, a legend below it; NULL: no legend. CT_ENOMEM. */
int ct_plot_text(const struct ct_plot *plot, const char *const *labels, int runs,
                 const struct ct_plot_style *style, struct ct_buf *to);

/* Append an SVG document with the plots below each other, and the runs' legend. It follows the
 * reader's light or dark scheme, and has at most CT_PLOT_SVG_BYTES: with more curves there are
 * fewer columns. CT_ELIMIT: too many curves for that; CT_ENOMEM. */
int ct_plot_svg(const struct ct_plot *plots, size_t count, const char *const *labels, int runs,
                struct ct_buf *to);

#endif
