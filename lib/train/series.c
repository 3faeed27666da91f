/* See series.h. */
#include "train/series.h"

#include "base/assert.h"
#include "base/str.h"
#include "train/json_number.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[CT_SERIES_KINDS] = {"train", "eval"};

/* A record that has the metric. */
struct point {
    uint64_t step;
    double time, samples, value;
};

struct reader {
    const char *key;
    bool wanted[CT_SERIES_KINDS];
    struct ct_buf points[CT_SERIES_KINDS]; /* struct point */
    double first_time, samples_per_step;
};

const char *ct_series_x_text(enum ct_series_x x)
{
    static const char *const texts[CT_SERIES_XS] = {"step", "time", "samples"};

    return texts[x];
}

static double number(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The kind of a record, CT_SERIES_KINDS for what is none. */
static int kind_of(const json_t *root)
{
    const char *text = json_string_value(json_object_get(root, "kind"));
    int kind = 0;

    while (kind < CT_SERIES_KINDS && (text == NULL || strcmp(text, kinds[kind]) != 0))
        kind++;
    return kind;
}

/* Drop what a record of this kind and step replaces. */
static void rewind_to(struct reader *reader, int kind, uint64_t step)
{
    for (int k = 0; k < CT_SERIES_KINDS; k++) {
        struct ct_buf *points = &reader->points[k];
        struct point last;

        while (points->size > 0) {
            memcpy(&last, points->data + points->size - sizeof last, sizeof last);
            if (last.step < step || (last.step == step && k != kind))
                break;
            points->size -= sizeof last;
        }
    }
}

static void add_line(struct reader *reader, const char *line, size_t size)
{
    json_t *root = json_loadb(line, size, 0, NULL);
    int kind = kind_of(root);
    struct point point = {.time = number(root, "time"), .value = number(root, reader->key)};

    if (kind < CT_SERIES_KINDS && ct_json_whole(json_object_get(root, "step"), &point.step)) {
        rewind_to(reader, kind, point.step);
        if (isnan(reader->first_time))
            reader->first_time = point.time;
        point.samples = number(root, "samples");
        if (!isnan(point.samples) && point.step > 0)
            reader->samples_per_step = point.samples / (double)point.step;
        else
            point.samples = reader->samples_per_step * (double)point.step;
        if (reader->wanted[kind] && json_object_get(root, reader->key) != NULL)
            (void)ct_buf_append(&reader->points[kind], &point, sizeof point);
    }
    json_decref(root);
}

static FILE *open_metrics(const char *folder, struct ct_error *err, int *ret_code)
{
    char path[PATH_MAX];
    FILE *file = NULL;

    *ret_code = 0;
    if (snprintf(path, sizeof path, "%s/metrics.jsonl", folder) < (int)sizeof path)
        file = fopen(path, "re");
    else
        errno = ENAMETOOLONG;
    if (file == NULL && errno != ENOENT)
        *ret_code = ct_error_set(err, CT_EIO, "%s/metrics.jsonl: cannot be read: %s", folder,
                                 strerror(errno));
    return file;
}

static int copy(const struct reader *reader, int kind, enum ct_series_x x, struct ct_series *ret)
{
    const struct ct_buf *points = &reader->points[kind];
    size_t count = points->size / sizeof(struct point);
    struct point point;

    if (points->failed)
        return CT_ENOMEM;
    *ret = (struct ct_series){.x = calloc(count + 1, sizeof *ret->x),
                              .y = calloc(count + 1, sizeof *ret->y)};
    if (ret->x == NULL || ret->y == NULL)
        return CT_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        memcpy(&point, points->data + i * sizeof point, sizeof point);
        double at = x == CT_SERIES_STEP   ? (double)point.step
                    : x == CT_SERIES_TIME ? point.time - reader->first_time
                                          : point.samples;
        if (isnan(at))
            continue;
        ret->x[ret->count] = at;
        ret->y[ret->count++] = point.value;
    }
    return 0;
}

int ct_series_read(const char *folder, const char *metric, enum ct_series_x x,
                   struct ct_series ret[CT_SERIES_KINDS], struct ct_error *err)
{
    struct reader reader = {.key = metric, .first_time = NAN, .samples_per_step = NAN};
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    int code = 0;

    for (int k = 0; k < CT_SERIES_KINDS; k++) {
        ret[k] = (struct ct_series){.count = 0};
        ct_buf_init(&reader.points[k], 0);
        reader.wanted[k] = true;
    }
    for (int k = 0; k < CT_SERIES_KINDS; k++) {
        size_t length = strlen(kinds[k]);
        if (strncmp(metric, kinds[k], length) != 0 || metric[length] != '/')
            continue;
        reader.key = metric + length + 1;
        reader.wanted[!k] = false;
    }
    FILE *file = open_metrics(folder, err, &code);
    while (file != NULL && (size = getline(&line, &room, file)) > 0)
        if (line[size - 1] == '\n')
            add_line(&reader, line, (size_t)size);
    for (int k = 0; k < CT_SERIES_KINDS && code == 0; k++)
        if (copy(&reader, k, x, &ret[k]) != 0)
            code = ct_error_set(err, CT_ENOMEM, "out of memory for the metrics of %s", folder);
    for (int k = 0; k < CT_SERIES_KINDS; k++)
        ct_buf_deinit(&reader.points[k]);
    free(line);
    if (file != NULL)
        (void)fclose(file);
    return code;
}

void ct_series_deinit(struct ct_series series[CT_SERIES_KINDS])
{
    for (int k = 0; k < CT_SERIES_KINDS; k++) {
        free(series[k].x);
        free(series[k].y);
        series[k] = (struct ct_series){.count = 0};
    }
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Is `name` in a list "a, b, c"? */
static bool is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length) {
        bool begins = at == list || at[-1] == ' ';
        if (begins && (at[length] == '\0' || at[length] == ','))
            return true;
    }
    return false;
}

void ct_series_names(const char *folder, struct ct_buf *to)
{
    static const char *const own[] = {"v", "kind", "step", "epoch", "time"};
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    int code = 0;
    FILE *file = open_metrics(folder, NULL, &code);

    while (file != NULL && (size = getline(&line, &room, file)) > 0) {
        json_t *root = json_loadb(line, (size_t)size, 0, NULL), *value;
        const char *key;

        json_object_foreach(root, key, value)
        {
            bool counts = json_is_number(value) || json_is_null(value);
            for (size_t i = 0; i < CT_COUNT(own); i++)
                counts = counts && strcmp(key, own[i]) != 0;
            if (counts && !is_listed(ct_buf_str(to), key))
                (void)ct_buf_printf(to, "%s%s", to->size > 0 ? ", " : "", key);
        }
        json_decref(root);
    }
    free(line);
    if (file != NULL)
        (void)fclose(file);
}
