/* A dataset: the rows of a file, whole in memory, as f32 features and i32 labels.
 *
 *   file(s) --stream--> source (csv | idx) --> rows --split--> normalise --> struct ct_dataset
 *
 * features is [rows, width], row-major; labels is [rows], each in 0 .. classes-1. A value x of the
 * file becomes (x * scale - mean) / std, computed in double and rounded once.
 *
 * A split [lo, hi) takes its rows from a fixed shuffle of the file, which depends on the number of
 * rows alone: splits that meet share no row and together hold every row, and a file that is sorted
 * by class or by writer still splits fairly. [0, 1) is the whole file in its own order. */
#ifndef CT_DATA_DATASET_H
#define CT_DATA_DATASET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a dataset may hold in memory, and what its files may unpack to, unless the spec says
 * otherwise. A gzip file that grows beyond it is refused while it is read. */
#define CT_DATA_LIMIT_BYTES ((size_t)8 << 30)

/* Columns of a row; elements of one IDX item. */
#define CT_DATA_MAX_WIDTH ((size_t)1 << 20)

/* Where a dataset comes from; strings are borrowed for the call. */
struct ct_data_spec {
    const char *format; /* the name of a source: "csv" or "idx" */
    const char *path;   /* csv: the file, plain or gzip */
    const char *images; /* idx: items of any number of dimensions, plain or gzip */
    const char *labels; /* idx: one integer an item, plain or gzip */
    int label;          /* csv: column of the label; negative counts from the last (-1) */
    bool header;        /* csv: the first line names the columns */
    int32_t classes;    /* labels must lie in 0 .. classes-1; 0 takes the largest found */
    double scale;       /* see above; 0 in all three means 1, 0, 1 */
    double mean;
    double std;
    double split_lo, split_hi; /* fractions of the rows; 0 in both means [0, 1) */
    size_t limit_bytes;        /* 0 means CT_DATA_LIMIT_BYTES */
};

struct ct_dataset {
    float *features;
    int32_t *labels;
    size_t rows;
    size_t width;
    int32_t classes; /* spec.classes, or 1 + the largest label */
};

/* Read what `spec` names into `ret`. On failure `ret` is untouched and `err` says where: the file,
 * for CSV also line, column and the value. CT_ECONFIG (no such format, empty split), CT_ENOINPUT
 * (cannot be read), CT_EDATA (content), CT_ELIMIT, CT_ENOMEM. */
int ct_dataset_load(struct ct_dataset *ret, const struct ct_data_spec *spec, struct ct_error *err);

/* Free what the dataset holds; it is empty afterwards. NULL is fine. */
void ct_dataset_deinit(struct ct_dataset *dataset);

/* The formats there are: a name, or NULL at the end of the table. */
const char *ct_data_format(size_t index);

#endif
