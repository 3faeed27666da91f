/* See dataset.h. Load: find the source, read raw rows, split, normalise, hand over. */
#include "data/dataset.h"

#include "base/assert.h"
#include "data/sampler.h"
#include "data/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ct_source *const sources[] = {&ct_source_csv, &ct_source_idx};

/* The key of the fixed shuffle behind a split: part of what a split means, never to change. */
enum { SPLIT_KEY = 0 };

const char *ct_data_format(size_t index)
{
    return index < CT_COUNT(sources) ? sources[index]->name : NULL;
}

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
static int take_part(struct ct_rows *rows, size_t first, size_t end, struct ct_error *err)
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

static int split(struct ct_rows *rows, const struct ct_data_spec *spec, struct ct_error *err)
{
    double lo = spec->split_lo;
    double hi = spec->split_lo == 0 && spec->split_hi == 0 ? 1 : spec->split_hi;

    if (!(lo >= 0 && hi <= 1 && lo < hi))
        return ct_error_set(err, CT_ECONFIG, "split [%g, %g] is not a range within 0 to 1", lo, hi);
    if (lo == 0 && hi == 1)
        return 0;
    size_t first = (size_t)llround(lo * (double)rows->rows);
    size_t end = (size_t)llround(hi * (double)rows->rows);
    if (first == end)
        return ct_error_set(err, CT_ECONFIG, "split [%g, %g] of %zu rows holds no row", lo, hi,
                            rows->rows);
    return take_part(rows, first, end, err);
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

static const struct ct_source *find_source(const char *format)
{
    for (size_t i = 0; format != NULL && i < CT_COUNT(sources); i++)
        if (strcmp(sources[i]->name, format) == 0)
            return sources[i];
    return NULL;
}

int ct_dataset_load(struct ct_dataset *ret, const struct ct_data_spec *spec, struct ct_error *err)
{
    const struct ct_source *source = find_source(spec->format);
    struct ct_rows rows = {.limit_bytes =
                               spec->limit_bytes != 0 ? spec->limit_bytes : CT_DATA_LIMIT_BYTES};
    int32_t classes = spec->classes;

    if (source == NULL)
        return ct_error_set(err, CT_ECONFIG, "data format \"%.32s\" is unknown; there are csv, idx",
                            spec->format != NULL ? spec->format : "");
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
                               .classes = classes};
    return 0;
}

void ct_dataset_deinit(struct ct_dataset *dataset)
{
    if (dataset == NULL)
        return;
    free(dataset->features);
    free(dataset->labels);
    *dataset = (struct ct_dataset){0};
}
