/* CSV: numbers separated by commas, one row a line, one column of it the label.
 *
 * Blanks around a value, CRLF, a byte order mark and empty lines are accepted; quotes are not. The
 * first row fixes the number of columns. Reading is chunk by chunk: a line that a chunk cuts waits
 * in `pending` for its rest. Any bad value ends the reading with file, line, column and value. */
#include "data/source.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 * 1024, MAX_VALUE = 64 };

struct csv {
    struct ct_rows *rows;
    const struct ct_data_spec *spec;
    const char *name;
    struct ct_buf pending;
    size_t line;    /* number of the line at hand, from 1 */
    size_t columns; /* 0 before the first row */
    size_t label;   /* its column, from 0 */
    bool header_left;
};

/* A value within a line: [at, end), blanks around it removed. */
struct field {
    const char *at;
    const char *end;
    size_t column; /* from 0 */
};

/* `field` for a message: cut, with unprintable bytes replaced. */
static const char *show(const struct field *field, char text[MAX_VALUE])
{
    size_t length = CT_MIN((size_t)(field->end - field->at), (size_t)MAX_VALUE - 4);

    for (size_t i = 0; i < length; i++)
        text[i] = isprint((unsigned char)field->at[i]) ? field->at[i] : '?';
    (void)snprintf(text + length, MAX_VALUE - length, "%s",
                   field->at + length < field->end ? "..." : "");
    return text;
}

static int refuse(const struct csv *csv, const struct field *field, struct ct_error *err,
                  const char *what)
{
    char value[MAX_VALUE];

    return ct_error_set(err, CT_EDATA, "%s:%zu, column %zu: \"%s\" %s", csv->name, csv->line,
                        field->column + 1, show(field, value), what);
}

/* Digits only and few of them: exact in a double, and much faster than strtod. */
static bool parse_small_integer(const struct field *field, double *ret)
{
    uint32_t value = 0;

    if (field->end - field->at > 9)
        return false;
    for (const char *at = field->at; at < field->end; at++) {
        if (!isdigit((unsigned char)*at))
            return false;
        value = value * 10 + (uint32_t)(*at - '0');
    }
    *ret = value;
    return true;
}

static int parse_number(const struct csv *csv, const struct field *field, double *ret,
                        struct ct_error *err)
{
    char *end = NULL;

    if (field->at == field->end)
        return ct_error_set(err, CT_EDATA, "%s:%zu, column %zu: the value is missing", csv->name,
                            csv->line, field->column + 1);
    if (parse_small_integer(field, ret))
        return 0;
    double value = strtod(field->at, &end);
    size_t length = (size_t)(field->end - field->at);
    if (end != field->end || memchr(field->at, 'x', length) != NULL ||
        memchr(field->at, 'X', length) != NULL)
        return refuse(csv, field, err,
                      csv->rows->rows == 0 && !csv->spec->header
                          ? "is not a number (if this line names the columns, set header: true)"
                          : "is not a number");
    if (!isfinite((float)value))
        return refuse(csv, field, err, "is not a finite f32 number");
    *ret = value;
    return 0;
}

static int parse_label(const struct csv *csv, const struct field *field, int32_t *ret,
                       struct ct_error *err)
{
    double value = 0;
    int32_t max = ct_label_max(csv->spec);
    int code = parse_number(csv, field, &value, err);

    if (code != 0)
        return code;
    if (value != floor(value))
        return refuse(csv, field, err, "is not a whole number, as a label must be");
    if (value < 0 || value > max)
        return ct_error_set(err, CT_EDATA, "%s:%zu, column %zu: label %.0f is out of range 0..%d",
                            csv->name, csv->line, field->column + 1, value, max);
    *ret = (int32_t)value;
    return 0;
}

/* The field that starts at `at`, in a line that ends at `line_end`; *ret_next is behind its comma,
 * or NULL after the last. */
static struct field parse_field(const char *at, const char *line_end, const char **ret_next)
{
    const char *comma = memchr(at, ',', (size_t)(line_end - at));
    struct field field = {.at = at, .end = comma != NULL ? comma : line_end};

    *ret_next = comma != NULL ? comma + 1 : NULL;
    while (field.at < field.end && (*field.at == ' ' || *field.at == '\t'))
        field.at++;
    while (field.end > field.at && (field.end[-1] == ' ' || field.end[-1] == '\t'))
        field.end--;
    return field;
}

/* The first row tells the number of columns, and so which one is the label. */
static int fix_columns(struct csv *csv, const char *at, const char *end, struct ct_error *err)
{
    size_t columns = 1;
    int label = csv->spec->label;

    for (const char *p = at; p < end; p++)
        columns += *p == ',';
    if (columns < 2 || columns - 1 > CT_DATA_MAX_WIDTH)
        return ct_error_set(err, CT_EDATA,
                            "%s:%zu: %zu columns, but a row has a label and 1 to %zu features",
                            csv->name, csv->line, columns, CT_DATA_MAX_WIDTH);
    if (label >= (int64_t)columns || label < -(int64_t)columns)
        return ct_error_set(err, CT_ECONFIG, "%s: label column %d, but a row has %zu columns",
                            csv->name, label, columns);
    csv->label = (size_t)(label < 0 ? label + (int64_t)columns : label);
    csv->columns = columns;
    csv->rows->width = columns - 1;
    return 0;
}

static int parse_fields(struct csv *csv, const char *at, const char *end, struct ct_error *err)
{
    struct ct_rows *rows = csv->rows;
    float *features = rows->features + rows->rows * rows->width;
    size_t column = 0;

    for (; at != NULL; column++) {
        struct field field = parse_field(at, end, &at);
        double value = 0;
        field.column = column;
        if (column >= csv->columns)
            continue; /* too many: only count them */
        int code = column == csv->label ? parse_label(csv, &field, &rows->labels[rows->rows], err)
                                        : parse_number(csv, &field, &value, err);
        if (code != 0)
            return code;
        if (column != csv->label)
            features[column - (column > csv->label)] = (float)value;
    }
    if (column != csv->columns)
        return ct_error_set(err, CT_EDATA, "%s:%zu: %zu columns, but the rows before have %zu",
                            csv->name, csv->line, column, csv->columns);
    return 0;
}

/* One line without its end. */
static int parse_line(struct csv *csv, const char *at, const char *end, struct ct_error *err)
{
    csv->line++;
    if (csv->line == 1 && end - at >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0)
        at += 3;
    while (end > at && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (at == end)
        return 0;
    if (csv->header_left) {
        csv->header_left = false;
        return 0;
    }
    int code = csv->columns == 0 ? fix_columns(csv, at, end, err) : 0;
    if (code == 0)
        code = ct_rows_reserve(csv->rows, 1, csv->name, err);
    if (code == 0)
        code = parse_fields(csv, at, end, err);
    if (code == 0)
        csv->rows->rows++;
    return code;
}

/* Every whole line of `pending`; at the end of the file also the last one without a newline. */
static int parse_lines(struct csv *csv, bool at_end, struct ct_error *err)
{
    const char *at = csv->pending.data;
    const char *end = at + csv->pending.size;
    int code = 0;

    while (code == 0 && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL && !at_end)
            break;
        code = parse_line(csv, at, newline != NULL ? newline : end, err);
        at = newline != NULL ? newline + 1 : end;
    }
    ct_buf_consume(&csv->pending, (size_t)(at - csv->pending.data));
    return code;
}

static int read_chunks(struct csv *csv, struct ct_stream *stream, struct ct_error *err)
{
    for (;;) {
        size_t got = 0;
        char *at = ct_buf_reserve(&csv->pending, CHUNK);
        if (at == NULL)
            return ct_error_set(err, CT_ELIMIT, "%s:%zu: the line is longer than %zu bytes",
                                csv->name, csv->line + 1, csv->pending.limit);
        int code = ct_stream_read(stream, at, CHUNK, &got, err);
        if (code != 0)
            return code;
        csv->pending.size += got;
        at[got] = '\0';
        code = parse_lines(csv, got == 0, err);
        if (code != 0 || got == 0)
            return code;
    }
}

int ct_csv_read(struct ct_rows *rows, struct ct_stream *stream, const struct ct_data_spec *spec,
                struct ct_error *err)
{
    struct csv csv = {
        .rows = rows, .spec = spec, .name = stream->name, .header_left = spec->header};

    ct_buf_init(&csv.pending, CT_DATA_MAX_WIDTH * 32);
    int code = read_chunks(&csv, stream, err);
    ct_buf_deinit(&csv.pending);
    if (code == 0 && rows->rows == 0)
        code = ct_error_set(err, CT_EDATA, "%s: holds no row", stream->name);
    return code;
}

static int load(struct ct_rows *rows, const struct ct_data_spec *spec, struct ct_error *err)
{
    struct ct_stream stream;

    if (spec->path == NULL || spec->path[0] == '\0')
        return ct_error_set(err, CT_ECONFIG, "csv data needs a path");
    int code = ct_stream_open(&stream, spec->path, rows->limit_bytes, err);
    if (code != 0)
        return code;
    code = ct_csv_read(rows, &stream, spec, err);
    ct_stream_close(&stream);
    return code;
}

const struct ct_source ct_source_csv = {.name = "csv", .load = load};
