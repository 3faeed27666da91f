/* A metric over a run: the values of one key in metrics.jsonl, of training and of evaluations.
 *
 * Each step counts once: a record whose step is not above earlier ones (a run that was rolled back,
 * and whose file nobody has cut) replaces them. A line without an end is still being written and is
 * left out. A value that is not finite is NaN. */
#ifndef CT_TRAIN_SERIES_H
#define CT_TRAIN_SERIES_H

#include "base/bytes.h"
#include "base/error.h"

#include <stddef.h>

enum ct_series_x {
    CT_SERIES_STEP,
    CT_SERIES_TIME,    /* seconds since the first record of the run */
    CT_SERIES_SAMPLES, /* consumed; of an evaluation those of its step */
    CT_SERIES_XS
};

enum { CT_SERIES_TRAIN, CT_SERIES_EVAL, CT_SERIES_KINDS };

struct ct_series {
    double *x, *y;
    size_t count;
};

/* "step", "time", "samples". */
const char *ct_series_x_text(enum ct_series_x x);

/* Read the values of `metric` ("loss"), or with "train/" or "eval/" in front of one kind alone, in
 * FOLDER/metrics.jsonl. A missing file or key has none. CT_EIO, CT_ENOMEM. `ret` needs
 * ct_series_deinit in any case. */
int ct_series_read(const char *folder, const char *metric, enum ct_series_x x,
                   struct ct_series ret[CT_SERIES_KINDS], struct ct_error *err);
void ct_series_deinit(struct ct_series series[CT_SERIES_KINDS]);

/* Append the names of the metrics in FOLDER/metrics.jsonl that `to` lacks, with commas between. */
void ct_series_names(const char *folder, struct ct_buf *to);

#endif
