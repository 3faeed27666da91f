/* See dataset.h. Rows: find the source, read them raw, split, normalise, hand over. Windows: open
 * the tokens, keep a range of them. */
#include "data/dataset.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/number/rng.h"
#include "data/sampler.h"
#include "data/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ct_source *const sources[] = {&ct_source_csv, &ct_source_idx};
static const struct ct_token_source *const token_sources[] = {&ct_source_text, &ct_source_tokens};

/* The key of the fixed shuffle behind a split: part of what a split means, never to change. */
enum { SPLIT_KEY = 0 };

int32_t ct_label_max(const struct ct_data_spec *spec)
{
    return spec->classes > 0 ? spec->classes - 1 : CT_DATA_MAX_LABEL;
}

static size_t row_bytes(const struct ct_rows *rows)
{
    return rows->width * sizeof *rows->features + sizeof *rows->labels;
}

int ct_rows_reserve(struct ct_rows *rows, size_t count, const char *name, struct ct_error *err)
{
    CT_ASSERT(rows->width > 0 && rows->width <= CT_DATA_MAX_WIDTH);
    size_t most = rows->limit_bytes / row_bytes(rows);
    size_t needed = rows->rows + count;

    if (needed <= rows->room)
        return 0;
    if (needed > most)
        return ct_error_set(err, CT_ELIMIT, "%s: needs more than the limit of %zu bytes in memory",
                            name, rows->limit_bytes);
    size_t room = CT_MIN(CT_MAX(needed, rows->room * 2), most);
    float *features = realloc(rows->features, room * rows->width * sizeof *features);
    if (features != NULL)
        rows->features = features;
    int32_t *labels = realloc(rows->labels, room * sizeof *labels);
    if (labels != NULL)
        rows->labels = labels;
    if (features == NULL || labels == NULL)
        return ct_error_set(err, CT_ENOMEM, "%s: out of memory at row %zu", name, rows->rows);
    rows->room = room;
    return 0;
}

void ct_rows_deinit(struct ct_rows *rows)
{
    free(rows->features);
    free(rows->labels);
    *rows = (struct ct_rows){.limit_bytes = rows->limit_bytes};
}

/* Replace `rows` by its part [first, end) in the order of the fixed shuffle. */
static int receive_part(struct ct_rows *rows, size_t first, size_t end, struct ct_error *err)
{
    struct ct_rows part = {.width = rows->width, .limit_bytes = rows->limit_bytes};
    int code = ct_rows_reserve(&part, end - first, "a split", err);

    if (code != 0) {
        ct_rows_deinit(&part);
        return code;
    }
    CT_ASSERT(part.features != NULL && part.labels != NULL && part.room >= end - first);
    for (size_t i = first; i < end; i++) {
        size_t from = (size_t)ct_permute(i, rows->rows, SPLIT_KEY);
        memcpy(part.features + part.rows * part.width, rows->features + from * rows->width,
               rows->width * sizeof *part.features);
        part.labels[part.rows++] = rows->labels[from];
    }
    ct_rows_deinit(rows);
    *rows = part;
    return 0;
}

/* The part of `rows` that the spec's split names. */
static int split_range(size_t rows, const struct ct_data_spec *spec, size_t *ret_first,
                       size_t *ret_end, struct ct_error *err)
{
    double lo = spec->split_lo;
    double hi = spec->split_lo == 0 && spec->split_hi == 0 ? 1 : spec->split_hi;

    if (!(lo >= 0 && hi <= 1 && lo < hi))
        return ct_error_set(err, CT_ECONFIG, "split [%g, %g] is not a range within 0 to 1", lo, hi);
    *ret_first = (size_t)llround(lo * (double)rows);
    *ret_end = (size_t)llround(hi * (double)rows);
    if (*ret_first == *ret_end)
        return ct_error_set(err, CT_ECONFIG, "split [%g, %g] of %zu rows holds no row", lo, hi,
                            rows);
    return 0;
}

static int split(struct ct_rows *rows, const struct ct_data_spec *spec, struct ct_error *err)
{
    size_t first = 0, end = 0;
    int code = split_range(rows->rows, spec, &first, &end, err);

    if (code != 0 || (first == 0 && end == rows->rows))
        return code;
    return receive_part(rows, first, end, err);
}

static int normalise(struct ct_rows *rows, const struct ct_data_spec *spec, struct ct_error *err)
{
    bool unset = spec->scale == 0 && spec->mean == 0 && spec->std == 0;

    if (unset || (spec->scale == 1 && spec->mean == 0 && spec->std == 1))
        return 0;
    if (spec->std == 0)
        return ct_error_set(err, CT_ECONFIG, "std is 0; a feature is divided by it");
    for (size_t i = 0; i < rows->rows * rows->width; i++) {
        double value = ((double)rows->features[i] * spec->scale - spec->mean) / spec->std;
        if (!isfinite((float)value))
            return ct_error_set(err, CT_ECONFIG,
                                "scale %g, mean %g, std %g turn the value %g into one that f32 "
                                "cannot hold",
                                spec->scale, spec->mean, spec->std, (double)rows->features[i]);
        rows->features[i] = (float)value;
    }
    return 0;
}

static int load_rows(struct ct_dataset *ret, const struct ct_source *source,
                     const struct ct_data_spec *spec, size_t limit_bytes, struct ct_error *err)
{
    struct ct_rows rows = {.limit_bytes = limit_bytes};
    int32_t classes = spec->classes;
    int code = source->load(&rows, spec, err);

    for (size_t i = 0; code == 0 && spec->classes == 0 && i < rows.rows; i++)
        classes = CT_MAX(classes, rows.labels[i] + 1);
    if (code == 0)
        code = split(&rows, spec, err);
    if (code == 0)
        code = normalise(&rows, spec, err);
    if (code != 0) {
        ct_rows_deinit(&rows);
        return code;
    }
    *ret = (struct ct_dataset){.features = rows.features,
                               .labels = rows.labels,
                               .rows = rows.rows,
                               .width = rows.width,
                               .labels_per_row = 1,
                               .classes = classes};
    return 0;
}

static int load_windows(struct ct_dataset *ret, const struct ct_token_source *source,
                        const struct ct_data_spec *spec, size_t limit_bytes, struct ct_error *err)
{
    struct ct_dataset made = {.width = spec->context, .labels_per_row = spec->context};
    size_t end = 0;

    if (spec->context == 0 || spec->context > CT_TOKENS_MAX_CONTEXT)
        return ct_error_set(err, CT_ECONFIG,
                            "windows of tokens need a model with a context of 1 to %zu, not %zu",
                            CT_TOKENS_MAX_CONTEXT, spec->context);
    int code = source->load(&made, spec, limit_bytes, err);
    if (code == 0)
        code = split_range((size_t)ct_tokens_windows(made.tokens), spec, &made.rows, &end, err);
    if (code != 0) {
        ct_dataset_deinit(&made);
        return code;
    }
    made.first_window = made.rows;
    made.rows = end - made.rows;
    *ret = made;
    return 0;
}

int ct_dataset_load(struct ct_dataset *ret, const struct ct_data_spec *spec, struct ct_error *err)
{
    const char *format = spec->format != NULL ? spec->format : "";
    size_t limit = spec->limit_bytes != 0 ? spec->limit_bytes : CT_DATA_LIMIT_BYTES;

    for (size_t i = 0; i < CT_COUNT(sources); i++)
        if (strcmp(sources[i]->name, format) == 0)
            return load_rows(ret, sources[i], spec, limit, err);
    for (size_t i = 0; i < CT_COUNT(token_sources); i++)
        if (strcmp(token_sources[i]->name, format) == 0)
            return load_windows(ret, token_sources[i], spec, limit, err);
    return ct_error_set(err, CT_ECONFIG,
                        "data format \"%.32s\" is unknown; there are csv, idx, text, tokens",
                        format);
}

/* ---- use -------------------------------------------------------------------------------------*/

bool ct_dataset_row(const struct ct_dataset *dataset, uint64_t row, void *x, int32_t *labels)
{
    CT_ASSERT(row < dataset->rows);
    if (dataset->tokens != NULL)
        return ct_tokens_window(dataset->tokens, dataset->first_window + row, dataset->classes, x,
                                labels);
    memcpy(x, dataset->features + row * dataset->width, dataset->width * sizeof *dataset->features);
    *labels = dataset->labels[row];
    return true;
}

int ct_dataset_explain(const struct ct_dataset *dataset, uint64_t row, struct ct_error *err)
{
    CT_ASSERT(dataset->tokens != NULL && row < dataset->rows);
    return ct_tokens_explain(dataset->tokens, dataset->first_window + row, dataset->classes, err);
}

uint64_t ct_dataset_digest(const struct ct_dataset *dataset)
{
    uint64_t seed = ct_mix64(dataset->rows) ^ dataset->width;

    if (dataset->tokens != NULL)
        return ct_mix64(seed ^ ct_tokens_digest(dataset->tokens) ^ dataset->first_window);
    seed = ct_hash64(dataset->features, dataset->rows * dataset->width * sizeof(float), seed);
    return ct_hash64(dataset->labels, dataset->rows * sizeof(int32_t), seed);
}

void ct_dataset_deinit(struct ct_dataset *dataset)
{
    if (dataset == NULL)
        return;
    free(dataset->features);
    free(dataset->labels);
    ct_tokens_free(dataset->tokens);
    ct_tokenizer_free(dataset->tokenizer);
    *dataset = (struct ct_dataset){0};
}
