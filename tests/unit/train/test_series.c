/* Metrics of a run: each step once, whatever was written when. */
#include "train/series.h"

#include "base/fs.h"
#include "folder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(series, .init = folder_make, .fini = folder_remove, .timeout = 30);

static void write(const char *text)
{
    cr_assert_eq(ct_fs_replace(folder_path("metrics.jsonl"), text, strlen(text), NULL), 0);
}

static void expect(const struct ct_series *series, size_t count, const double *x, const double *y)
{
    cr_assert_eq(series->count, count, "%zu", series->count);
    for (size_t i = 0; i < count; i++) {
        cr_expect(fabs(series->x[i] - x[i]) < 1e-9, "%zu: %g", i, series->x[i]);
        cr_expect(isnan(y[i]) ? isnan(series->y[i]) : series->y[i] == y[i], "%zu", i);
    }
}

#define TRAIN(step, time, samples, loss)                                                      \
    "{\"v\":1,\"kind\":\"train\",\"step\":" #step ",\"time\":" #time ",\"samples\":" #samples \
    ",\"loss\":" #loss "}\n"
#define EVAL(step, time, loss)                                                         \
    "{\"v\":1,\"kind\":\"eval\",\"step\":" #step ",\"time\":" #time ",\"loss\":" #loss \
    ",\"accuracy\":0.5}\n"

Test(series, each_step_counts_once_and_the_line_that_is_being_written_not_yet)
{
    struct ct_series series[CT_SERIES_KINDS];

    write(TRAIN(10, 1000.0, 80, 4) EVAL(15, 1001.0, 3.5) TRAIN(20, 1002.0, 160, null)
              TRAIN(30, 1003.0, 240, 2) EVAL(30, 1003.5, 2.5)
          /* rolled back to 20, and its file not cut */
          "no record\n" TRAIN(30, 1010.0, 240, 2.25)
              EVAL(30, 1011.0,
                   2.75) "{\"v\":1,\"kind\":\"train\",\"step\":40,\"time\":1012.0,\"loss\":1}");
    cr_assert_eq(ct_series_read(folder_path(""), "loss", CT_SERIES_STEP, series, NULL), 0);
    expect(&series[CT_SERIES_TRAIN], 3, (const double[]){10, 20, 30},
           (const double[]){4, NAN, 2.25});
    expect(&series[CT_SERIES_EVAL], 2, (const double[]){15, 30}, (const double[]){3.5, 2.75});
    ct_series_deinit(series);
    cr_assert_eq(ct_series_read(folder_path(""), "eval/loss", CT_SERIES_TIME, series, NULL), 0);
    expect(&series[CT_SERIES_TRAIN], 0, NULL, NULL);
    expect(&series[CT_SERIES_EVAL], 2, (const double[]){1, 11}, (const double[]){3.5, 2.75});
    ct_series_deinit(series);
    cr_assert_eq(ct_series_read(folder_path(""), "loss", CT_SERIES_SAMPLES, series, NULL), 0);
    expect(&series[CT_SERIES_TRAIN], 3, (const double[]){80, 160, 240},
           (const double[]){4, NAN, 2.25});
    expect(&series[CT_SERIES_EVAL], 2, (const double[]){120, 240}, (const double[]){3.5, 2.75});
    ct_series_deinit(series);
}

Test(series, the_names_of_all_metrics_are_known_once_each)
{
    struct ct_buf names;

    write(TRAIN(10, 1000.0, 80, 4) EVAL(15, 1001.0, 3.5) TRAIN(20, 1002.0, 160, 3));
    ct_buf_init(&names, 0);
    ct_series_names(folder_path(""), &names);
    ct_series_names(folder_path(""), &names);
    cr_assert_str_eq(ct_buf_str(&names), "samples, loss, accuracy");
    ct_buf_deinit(&names);
}

Test(series, a_folder_without_metrics_has_none)
{
    struct ct_series series[CT_SERIES_KINDS];

    cr_assert_eq(ct_series_read(folder_path("nothing"), "loss", CT_SERIES_STEP, series, NULL), 0);
    cr_assert_eq(series[CT_SERIES_TRAIN].count + series[CT_SERIES_EVAL].count, 0);
    ct_series_deinit(series);
}
