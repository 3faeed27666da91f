/* See lines.h. */
#include "output/lines.h"

#include "base/assert.h"
#include "base/log/record.h"
#include "base/str.h"

#include <jansson.h>
#include <string.h>

void ct_lines_rename(struct ct_lines *lines, const struct ct_lines_origin *origin)
{
    (void)ct_str_copy(lines->prefix, sizeof lines->prefix, origin->prefix);
    lines->node = origin->node;
    lines->rank = origin->rank;
}

void ct_lines_init(struct ct_lines *lines, const struct ct_lines_origin *origin)
{
    *lines = (struct ct_lines){.returned = false};
    ct_lines_rename(lines, origin);
    ct_buf_init(&lines->line, CT_LINE_MAX);
    ct_buf_init(&lines->tail, 2 * CT_TAIL_BYTES);
    ct_buf_init(&lines->matched, 0);
}

void ct_lines_deinit(struct ct_lines *lines)
{
    if (lines == NULL)
        return;
    ct_buf_deinit(&lines->line);
    ct_buf_deinit(&lines->tail);
    ct_buf_deinit(&lines->matched);
}

void ct_lines_filter(struct ct_lines *lines, const struct ct_filter *filter)
{
    lines->filter = filter;
}

void ct_lines_record(struct ct_lines *lines, const char *stream, bool has_records)
{
    lines->stream = stream;
    lines->has_records = has_records;
}

/* Forget the oldest lines, so that CT_TAIL_BYTES stay at most. */
static void forget(struct ct_buf *tail)
{
    size_t cut = tail->size - CT_TAIL_BYTES;
    const char *newline = memchr(tail->data + cut, '\n', CT_TAIL_BYTES);

    CT_ASSERT(newline != NULL);
    ct_buf_consume(tail, (size_t)(newline - tail->data) + 1);
}

/* Keep `line`, or its end; the buffer holds twice what is wanted, so that it moves now and then. */
static void remember(struct ct_buf *tail, const char *line, size_t size)
{
    size_t kept = CT_MIN(size, (size_t)CT_TAIL_BYTES - 1);

    if (tail->size + kept + 1 > tail->limit)
        forget(tail);
    (void)ct_buf_append(tail, line + (size - kept), kept);
    (void)ct_buf_append(tail, "\n", 1);
}

static void put_line(const char *prefix, const char *line, size_t size, struct ct_buf *out)
{
    (void)ct_buf_puts(out, prefix);
    (void)ct_buf_append(out, line, size);
    (void)ct_buf_append(out, "\n", 1);
}

/* A whole object, as a log of ours writes one. */
static bool is_record(const char *line, size_t size)
{
    static const char start[] = "{\"time\":";

    if (size < sizeof start || memcmp(line, start, sizeof start - 1) != 0)
        return false;
    json_t *root = json_loadb(line, size, 0, NULL);
    bool is = json_is_object(root);
    json_decref(root);
    return is;
}

static void put_record(const struct ct_lines *lines, const char *line, size_t size,
                       struct ct_buf *out)
{
    if (lines->has_records && is_record(line, size)) {
        put_line("", line, size, out);
        return;
    }
    ct_record_line(out, lines->wall_ns,
                   &(struct ct_record_line){.node = lines->node,
                                            .rank = lines->rank,
                                            .stream = lines->stream,
                                            .text = line,
                                            .size = size});
}

static void emit(struct ct_lines *lines, const char *line, size_t size, struct ct_buf *out)
{
    remember(&lines->tail, line, size);
    if (lines->recent != NULL)
        ct_recent_put(lines->recent, (uint32_t)lines->rank, lines->recent_stream, line, size);
    if (out != NULL && lines->stream != NULL)
        put_record(lines, line, size, out);
    else if (out != NULL)
        put_line(lines->bare ? "" : lines->prefix, line, size, out);
    if (lines->filter != NULL && ct_filter_matches(lines->filter, line, size))
        put_line(lines->prefix, line, size, &lines->matched);
}

/* Add bytes without newline or carriage return to the line, cutting it at its limit. */
static void extend(struct ct_lines *lines, const char *data, size_t size, struct ct_buf *out)
{
    while (size > 0) {
        size_t part = CT_MIN(size, CT_LINE_MAX - lines->line.size);

        (void)ct_buf_append(&lines->line, data, part);
        data += part;
        size -= part;
        if (size > 0) {
            emit(lines, lines->line.data, lines->line.size, out);
            ct_buf_clear(&lines->line);
        }
    }
}

static void finish(struct ct_lines *lines, struct ct_buf *out)
{
    emit(lines, ct_buf_str(&lines->line), lines->line.size, out);
    ct_buf_clear(&lines->line);
}

/* The first newline or carriage return in data[0 .. size), or its end. */
static size_t plain_span(const char *data, size_t size)
{
    const char *newline = memchr(data, '\n', size);
    size_t span = newline != NULL ? (size_t)(newline - data) : size;
    const char *carriage = memchr(data, '\r', span);

    return carriage != NULL ? (size_t)(carriage - data) : span;
}

void ct_lines_feed(struct ct_lines *lines, const char *data, size_t size, struct ct_buf *out)
{
    while (size > 0) {
        if (lines->returned && *data != '\n' && *data != '\r')
            ct_buf_clear(&lines->line);
        lines->returned = *data == '\r';
        if (*data == '\n')
            finish(lines, out);
        if (*data == '\n' || *data == '\r') {
            data++;
            size--;
            continue;
        }
        size_t span = plain_span(data, size);
        extend(lines, data, span, out);
        data += span;
        size -= span;
    }
}

void ct_lines_end(struct ct_lines *lines, struct ct_buf *out)
{
    if (lines->line.size > 0)
        finish(lines, out);
    lines->returned = false;
}

const char *ct_lines_tail(const struct ct_lines *lines, size_t count, size_t *ret_size)
{
    const char *data = ct_buf_str(&lines->tail);
    size_t size = lines->tail.size;
    size_t start = size;

    while (start > 0 && count > 0) {
        const char *before = start > 1 ? memrchr(data, '\n', start - 1) : NULL;

        start = before != NULL ? (size_t)(before - data) + 1 : 0;
        count--;
    }
    *ret_size = size - start;
    return data + start;
}
