/* What tells runs apart: the differences of their configurations, or else their names.
 *
 *     optim.lr 0.01, batch.global 64
 *     optim.lr 0.02, batch.global 64
 *     digits/2026-11-23_20-15-04             the run of a script, which has no configuration */
#ifndef CT_CTRUN_RUN_LABELS_H
#define CT_CTRUN_RUN_LABELS_H

#include "base/error.h"

#include <limits.h>
#include <stddef.h>

enum { RUN_LABEL_SIZE = 256, RUN_LABELS_MAX = 64 };

/* Write a label, one line without control characters, for each of `count` runs' folders (at most
 * RUN_LABELS_MAX). No two of different folders are equal. CT_ECONFIG, CT_ENOMEM. */
int run_labels(char (*folders)[PATH_MAX], size_t count, char (*ret_labels)[RUN_LABEL_SIZE],
               struct ct_error *err);

#endif
