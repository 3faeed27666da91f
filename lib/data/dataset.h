/* A dataset: the rows of a file as f32 features and a label each, or as windows of tokens.
 *
 *   file(s) --stream--> source (csv | idx) --> rows --split--> normalise --> struct ct_dataset
 *   text ----stream--> tokenizer --> ids --\
 *   shards of ids, mapped ------------------> windows (tokens.h) --split--> struct ct_dataset
 *
 * Features are [rows, width], row-major, and labels [rows], each in 0 .. classes-1, whole in
 * memory. A value x of the file becomes (x * scale - mean) / std, computed in double and rounded
 * once.
 *
 * A window is a row of `width` i32 ids and as many labels, the ids that follow. It is copied when
 * it is used; ids are checked then, and a row with a bad one is masked.
 *
 * A split [lo, hi) takes its rows from a fixed shuffle of the file, which depends on the number of
 * rows only: adjacent splits share no row and together hold every row, and a file that is sorted by
 * class or by writer still splits fairly. [0, 1) is the whole file in its own order. Windows of
 * tokens are split in order, the first part from the front. */
#ifndef CT_DATA_DATASET_H
#define CT_DATA_DATASET_H

#include "base/error.h"
#include "data/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The default limit of a dataset's memory and of its unpacked files. A gzip file that exceeds it is
 * refused while it is read. */
#define CT_DATA_LIMIT_BYTES ((size_t)8 << 30)

/* Columns of a row; elements of one IDX item. */
#define CT_DATA_MAX_WIDTH ((size_t)1 << 20)

/* Where a dataset comes from; strings are borrowed for the call. */
struct ct_data_spec {
    const char *format; /* the name of a source: "csv", "idx", "text" or "tokens" */
    const char *path;   /* csv, text: the file, plain or gzip; tokens: files, * ? [ ] allowed */
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

    size_t context;                    /* text, tokens: ids in a window */
    const char *tokenizer;             /* text: "byte", "char" or "gpt2" */
    const char *merges;                /* text by gpt2: its file of merges, plain or gzip */
    const struct ct_tokenizer *shared; /* text: another dataset's tokenizer, instead of one of its
                                          own; it must live as long */
    enum ct_token_format ids;          /* tokens: how files are written */
};

struct ct_dataset {
    float *features;                /* [rows, width]; NULL for windows */
    int32_t *labels;                /* [rows]; NULL for windows */
    struct ct_tokens *tokens;       /* windows; NULL for features */
    uint64_t first_window;          /* the window that is row 0 */
    struct ct_tokenizer *tokenizer; /* of a text, unless it was shared */
    size_t rows;
    size_t width;          /* features or ids in a row */
    size_t labels_per_row; /* 1 with features, else width */
    int32_t classes;       /* spec.classes; or 1 + the largest label, or the tokenizer's size */
};

/* Load the dataset of `spec` into `ret`. On failure `ret` is untouched and `err` names the file,
 * for CSV also line, column and value. CT_ECONFIG (no such format, empty split, key missing),
 * CT_ENOINPUT (cannot be read), CT_EDATA (content), CT_ELIMIT, CT_ENOMEM. */
int ct_dataset_load(struct ct_dataset *ret, const struct ct_data_spec *spec, struct ct_error *err);

/* Load only the tokenizer of the text of `spec`: char reads the text at path, gpt2 the file of
 * merges. Errors as above. */
int ct_dataset_tokenizer(struct ct_tokenizer **ret, const struct ct_data_spec *spec,
                         struct ct_error *err);

/* Copy a row: x [width] f32 or i32, labels [labels_per_row]. False when the row holds a bad id; it
 * is zeros with labels -1 then, and ct_dataset_explain names it. Any thread. */
bool ct_dataset_row(const struct ct_dataset *dataset, uint64_t row, void *x, int32_t *labels);

/* Set the sentence about a bad row; returns CT_EDATA. */
int ct_dataset_explain(const struct ct_dataset *dataset, uint64_t row, struct ct_error *err);

/* Return a digest by which ranks compare their datasets: of all features, or ct_tokens_digest. */
uint64_t ct_dataset_digest(const struct ct_dataset *dataset);

/* Free the content; the dataset is empty afterwards. NULL is ignored. */
void ct_dataset_deinit(struct ct_dataset *dataset);

#endif
