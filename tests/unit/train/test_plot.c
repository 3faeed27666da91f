/* Plots: axes with round ticks, thinning that keeps the picture, text and SVG. */
#include "train/plot/plot.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(plot, .timeout = 30);

/* ---- axes ----------------------------------------------------------------------------------- */

static const struct {
    double low, high;
    bool log;
    const char *texts;
} axes[] = {
    {0, 1000, false, "0 200 400 600 800 1000"},
    {0.12, 0.48, false, "0.2 0.3 0.4"},
    {-3, 3, false, "-3 -2 -1 0 1 2 3"},
    {12000, 61000, false, "20k 30k 40k 50k 60k"},
    {0, 4.1e6, false, "0 1M 2M 3M 4M"},
    {1e-5, 6e-5, false, "1e-05 2e-05 3e-05 4e-05 5e-05 6e-05"},
    {0.0005, 2, true, "0.001 0.01 0.1 1"},
    {0.5, 30, true, "0.5 1 2 5 10 20"},
    {1e-9, 1e9, true, "1e-09 1e-06 0.001 1 1000 1e+06 1e+09"},
    {3.0, 3.4, true, "3.0 3.1 3.2 3.3 3.4"},
};

Test(plot, ticks_are_round_and_tell_neighbours_apart)
{
    for (size_t i = 0; i < CT_COUNT(axes); i++) {
        const struct ct_plot_axis axis = {axes[i].low, axes[i].high, axes[i].log};
        struct ct_plot_ticks ticks;
        char texts[256] = "";

        ct_plot_ticks(&axis, 7, &ticks);
        for (int k = 0; k < ticks.count; k++) {
            (void)snprintf(texts + strlen(texts), sizeof texts - strlen(texts), "%s%s",
                           k > 0 ? " " : "", ticks.text[k]);
            cr_expect(ticks.place[k] >= 0 && ticks.place[k] <= 1, "%g", ticks.place[k]);
            cr_expect(k == 0 || ticks.place[k] > ticks.place[k - 1]);
        }
        cr_expect_str_eq(texts, axes[i].texts, "%g to %g: %s", axes[i].low, axes[i].high, texts);
    }
}

Test(plot, the_largest_and_the_smallest_numbers_have_axes)
{
    static const double values[] = {DBL_MAX, -DBL_MAX, DBL_MIN, 5e-324, 0, 1e300, -1e-300};

    for (size_t a = 0; a < CT_COUNT(values); a++)
        for (size_t b = 0; b < CT_COUNT(values); b++)
            for (int log = 0; log < 2; log++) {
                const double x[] = {0, 1}, y[] = {values[a], values[b]};
                const struct ct_plot_curve curve = {.x = x, .y = y, .count = 2};
                const struct ct_plot plot = {
                    .title = "y", .x_name = "x", .log = log == 1, .curves = &curve, .count = 1};
                const struct ct_plot_style style = {.width = 60, .rows = 6};
                struct ct_buf text;

                ct_buf_init(&text, 0);
                cr_expect_eq(ct_plot_text(&plot, NULL, 1, &style, &text), 0);
                cr_expect_eq(ct_plot_svg(&plot, 1, (const char *const[]){"run"}, 1, &text), 0);
                ct_buf_deinit(&text);
            }
}

/* ---- thinning ------------------------------------------------------------------------------- */

enum { LONG = 100000, COLUMNS = 100 };

/* A curve with noise, from a generator of its own. */
static void make_noise(double *x, double *y, size_t count)
{
    uint32_t state = 7;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (double)i;
        y[i] = 3 * exp(-(double)i / 20000) + (double)(state >> 8) / (1 << 24);
    }
}

Test(plot, a_thinned_curve_keeps_the_extremes_and_the_ends_of_every_column)
{
    double *x = calloc(LONG, sizeof *x), *y = calloc(LONG, sizeof *y);
    double low[COLUMNS], high[COLUMNS], thin_low[COLUMNS], thin_high[COLUMNS];
    struct ct_plot_point *points = NULL;
    struct ct_plot_axis ax, ay;
    size_t count = 0;

    make_noise(x, y, LONG);
    const struct ct_plot_curve curve = {.x = x, .y = y, .count = LONG};
    const struct ct_plot plot = {.curves = &curve, .count = 1};
    cr_assert(ct_plot_axes(&plot, &ax, &ay));
    cr_assert_eq(ct_plot_thin(&curve, &ax, &ay, COLUMNS, &points, &count), 0);
    cr_assert(count <= 4 * COLUMNS && count > 3 * COLUMNS, "%zu", count);
    for (int c = 0; c < COLUMNS; c++) {
        low[c] = thin_low[c] = 2;
        high[c] = thin_high[c] = -1;
    }
    for (size_t i = 0; i < LONG; i++) {
        int c = (int)fmin(ct_plot_place(&ax, x[i]) * COLUMNS, COLUMNS - 1);
        low[c] = fmin(low[c], ct_plot_place(&ay, y[i]));
        high[c] = fmax(high[c], ct_plot_place(&ay, y[i]));
    }
    for (size_t i = 0; i < count; i++) {
        int c = (int)fmin(points[i].x * COLUMNS, COLUMNS - 1);
        thin_low[c] = fmin(thin_low[c], points[i].y);
        thin_high[c] = fmax(thin_high[c], points[i].y);
        cr_assert_eq(points[i].after_gap, i == 0);
        cr_assert(i == 0 || points[i].x >= points[i - 1].x);
    }
    cr_assert_eq(memcmp(low, thin_low, sizeof low), 0);
    cr_assert_eq(memcmp(high, thin_high, sizeof high), 0);
    cr_assert_eq(points[0].x, 0);
    cr_assert_eq(points[count - 1].x, 1);
    free(points);
    free(x);
    free(y);
}

Test(plot, a_clock_that_goes_back_and_forth_does_not_make_more_points)
{
    double *x = calloc(LONG, sizeof *x), *y = calloc(LONG, sizeof *y);
    struct ct_plot_point *points = NULL;
    struct ct_plot_axis ax, ay;
    size_t count = 0;

    make_noise(x, y, LONG);
    for (size_t i = 0; i < LONG; i++)
        x[i] = (double)(i * 7919 % LONG);
    const struct ct_plot_curve curve = {.x = x, .y = y, .count = LONG};
    const struct ct_plot plot = {.curves = &curve, .count = 1};
    cr_assert(ct_plot_axes(&plot, &ax, &ay));
    cr_assert_eq(ct_plot_thin(&curve, &ax, &ay, COLUMNS, &points, &count), 0);
    cr_assert_leq(count, 4 * COLUMNS);
    free(points);
    free(x);
    free(y);
}

Test(plot, what_has_no_place_is_a_gap_and_is_counted)
{
    const double x[] = {0, 1, 2, 3, 4, 5}, y[] = {1, NAN, 3, -INFINITY, -1, 4};
    const struct ct_plot_curve curve = {.x = x, .y = y, .count = 6};
    const struct ct_plot plot = {.curves = &curve, .count = 1};
    struct ct_plot_point *points = NULL;
    struct ct_plot_axis ax, ay;
    size_t count = 0;

    cr_assert(ct_plot_axes(&plot, &ax, &ay));
    cr_assert_eq(ay.low, -1);
    cr_assert_eq(ct_plot_thin(&curve, &ax, &ay, 10, &points, &count), 0);
    cr_assert_eq(count, 4);
    const bool gaps[] = {true, true, true, false};
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(points[i].after_gap, gaps[i], "%zu", i);
    cr_assert_eq(ct_plot_gaps(&curve, false), 2);
    cr_assert_eq(ct_plot_gaps(&curve, true), 3);
    free(points);
}

/* ---- pictures ------------------------------------------------------------------------------- */

static const double steps[] = {0, 10, 20, 30}, falling[] = {4, 2, 1, 0}, flat[] = {3, 3, 3, 3};

static const char *draw(const struct ct_plot *plot, int runs, bool unicode, struct ct_buf *text)
{
    static const char *const labels[] = {"optim.lr 0.1", "optim.lr 0.2"};
    const struct ct_plot_style style = {.width = 24, .rows = 5, .unicode = unicode};

    ct_buf_clear(text);
    cr_assert_eq(ct_plot_text(plot, labels, runs, &style, text), 0);
    return ct_buf_str(text);
}

Test(plot, text_is_braille_for_one_run_and_letters_for_several_or_in_ascii)
{
    const struct ct_plot_curve curves[] = {{.run = 0, .x = steps, .y = falling, .count = 4},
                                           {.run = 1, .x = steps, .y = flat, .count = 4}};
    struct ct_plot plot = {.title = "loss", .x_name = "step", .curves = curves, .count = 1};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    cr_expect_str_eq(draw(&plot, 1, true, &text),
                     "loss\n"
                     "4 ┤⠑⠢⡀\n"
                     "  │  ⠈⠑⠤⡀\n"
                     "2 ┤     ⠈⠒⠤⣀⡀\n"
                     "  │         ⠈⠉⠑⠒⠤⢄⣀\n"
                     "0 ┤                ⠉⠒⠢⠤⣀\n"
                     "  └┬────────────┬───────\n"
                     "   0            20  step\n"
                     "  ━  optim.lr 0.1\n",
                     "%s", ct_buf_str(&text));
    plot.count = 2;
    cr_expect_str_eq(draw(&plot, 2, false, &text),
                     "loss\n"
                     "4 +aa\n"
                     "  |bbbbbbbbbbbbbbbbbbbbb\n"
                     "2 +      aaaa\n"
                     "  |          aaaaaaa\n"
                     "0 +                 aaaa\n"
                     "  ++------------+-------\n"
                     "   0            20  step\n"
                     "  a  optim.lr 0.1\n"
                     "  b  optim.lr 0.2\n",
                     "%s", ct_buf_str(&text));
    ct_buf_deinit(&text);
}

Test(plot, an_svg_stays_below_its_limit_however_long_the_curves_are)
{
    double *x = calloc(LONG, sizeof *x), *y = calloc(LONG, sizeof *y);
    struct ct_plot_curve curves[2 * CT_PLOT_RUNS];
    const char *labels[CT_PLOT_RUNS];
    struct ct_buf text;

    make_noise(x, y, LONG);
    for (int i = 0; i < CT_PLOT_RUNS; i++)
        labels[i] = "optim.lr <0.1> & \"a\" \xff";
    for (int i = 0; i < 2 * CT_PLOT_RUNS; i++)
        curves[i] = (struct ct_plot_curve){
            .run = i / 2, .marks = i % 2 == 1, .x = x, .y = y, .count = LONG};
    for (int runs = 1; runs <= 32; runs *= 2) {
        const struct ct_plot plot = {
            .title = "loss", .x_name = "step", .curves = curves, .count = 2 * (size_t)runs};

        ct_buf_init(&text, 0);
        cr_assert_eq(ct_plot_svg(&plot, 1, labels, runs, &text), 0);
        cr_expect(text.size <= CT_PLOT_SVG_BYTES, "%d runs: %zu bytes", runs, text.size);
        cr_expect(text.size > 20000, "%d runs: %zu bytes", runs, text.size);
        cr_expect_not_null(strstr(text.data, "optim.lr &#60;0.1&#62; &#38; &#34;a&#34; ?</text>"));
        cr_expect_not_null(strstr(text.data, "prefers-color-scheme:dark"));
        ct_buf_deinit(&text);
    }
    struct ct_plot many[8];
    for (int i = 0; i < 8; i++)
        many[i] = (struct ct_plot){
            .title = "loss", .x_name = "step", .curves = curves, .count = 2 * CT_PLOT_RUNS};
    ct_buf_init(&text, 0);
    cr_assert_eq(ct_plot_svg(many, 8, labels, CT_PLOT_RUNS, &text), CT_ELIMIT);
    ct_buf_deinit(&text);
    free(x);
    free(y);
}
