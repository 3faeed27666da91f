/* The inside of ct_dataset_load: sources fill raw rows, dataset.c does the rest.
 *
 * Raw features are the file's values as f32, before scale, mean and std. */
#ifndef CT_DATA_SOURCE_H
#define CT_DATA_SOURCE_H

#include "data/dataset.h"
#include "data/stream.h"

/* Rows under construction, grown by appending; `width` is set once, before the first row. */
struct ct_rows {
    float *features;
    int32_t *labels;
    size_t rows;
    size_t width;
    size_t room;        /* rows allocated */
    size_t limit_bytes; /* for features and labels together */
};

struct ct_source {
    const char *name;
    /* Append every row of the spec's file(s). Labels are checked against spec->classes, or against
     * 0 .. CT_DATA_MAX_LABEL when that is 0. */
    int (*load)(struct ct_rows *rows, const struct ct_data_spec *spec, struct ct_error *err);
};

/* Windows of tokens instead of rows: fill tokens, tokenizer and classes of `ret`. */
struct ct_token_source {
    const char *name;
    int (*load)(struct ct_dataset *ret, const struct ct_data_spec *spec, size_t limit_bytes,
                struct ct_error *err);
};

extern const struct ct_source ct_source_csv;
extern const struct ct_source ct_source_idx;
extern const struct ct_token_source ct_source_text;
extern const struct ct_token_source ct_source_tokens;

/* The largest label where the spec names no number of classes. */
#define CT_DATA_MAX_LABEL 65535

/* Reserve room for `count` more rows; 0, CT_ELIMIT (the sentence names `name`) or CT_ENOMEM. */
int ct_rows_reserve(struct ct_rows *rows, size_t count, const char *name, struct ct_error *err);

void ct_rows_deinit(struct ct_rows *rows);

/* Return the largest label that `spec` allows. */
int32_t ct_label_max(const struct ct_data_spec *spec);

/* The parsers on streams, for fuzzers and tests too. */
int ct_csv_read(struct ct_rows *rows, struct ct_stream *stream, const struct ct_data_spec *spec,
                struct ct_error *err);
int ct_idx_read(struct ct_rows *rows, struct ct_stream *images, struct ct_stream *labels,
                const struct ct_data_spec *spec, struct ct_error *err);

#endif
