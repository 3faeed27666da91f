/* IDX, the format of MNIST: a big-endian header, then the elements.
 *
 *   00 00 | type | dimensions D | D x u32 sizes | elements, row-major
 *
 * Two files: items (any dimensions, flattened to a row) and labels (one integer each). A header is
 * never believed: memory grows with the bytes that really come, and the file must end where the
 * header says. */
#include "data/source.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <math.h>
#include <string.h>

enum { MAX_DIMS = 8, CHUNK = 64 * 1024 };

struct type {
    unsigned char code;
    unsigned char size;
    const char *name;
    double (*get)(const unsigned char *at);
};

static double get_u8(const unsigned char *at)
{
    return at[0];
}

static double get_i8(const unsigned char *at)
{
    return (int8_t)at[0];
}

static double get_i16(const unsigned char *at)
{
    return (int16_t)(uint16_t)(at[0] << 8 | at[1]);
}

static double get_i32(const unsigned char *at)
{
    return (int32_t)ct_get_be32(at);
}

static double get_f32(const unsigned char *at)
{
    uint32_t bits = ct_get_be32(at);
    float value;

    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double get_f64(const unsigned char *at)
{
    uint64_t bits = (uint64_t)ct_get_be32(at) << 32 | ct_get_be32(at + 4);
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static const struct type types[] = {
    {0x08, 1, "u8", get_u8},   {0x09, 1, "i8", get_i8},   {0x0B, 2, "i16", get_i16},
    {0x0C, 4, "i32", get_i32}, {0x0D, 4, "f32", get_f32}, {0x0E, 8, "f64", get_f64},
};

struct header {
    const struct type *type;
    size_t items; /* the first dimension */
    size_t width; /* the product of the others */
};

/* Exactly `size` bytes; a shorter file is truncated. `header` is what it promised, or NULL. */
static int read_exactly(struct ct_stream *stream, const struct header *header, void *to,
                        size_t size, struct ct_error *err)
{
    for (size_t have = 0, got = 0; have < size; have += got) {
        int code = ct_stream_read(stream, (char *)to + have, size - have, &got, err);
        if (code != 0)
            return code;
        if (got == 0 && header == NULL)
            return ct_error_set(err, CT_EDATA, "%s: truncated within its header, after %zu bytes",
                                stream->name, stream->given);
        if (got == 0)
            return ct_error_set(err, CT_EDATA,
                                "%s: truncated: its header promises %zu items of %zu %s, but the "
                                "file ends after %zu bytes",
                                stream->name, header->items, header->width, header->type->name,
                                stream->given);
    }
    return 0;
}

static int read_header(struct ct_stream *stream, struct header *ret, struct ct_error *err)
{
    unsigned char magic[4];
    unsigned char sizes[4 * MAX_DIMS];
    struct header header = {.width = 1};
    int code = read_exactly(stream, NULL, magic, sizeof magic, err);

    if (code != 0)
        return code;
    for (size_t i = 0; i < CT_COUNT(types); i++)
        if (types[i].code == magic[2])
            header.type = &types[i];
    if (magic[0] != 0 || magic[1] != 0 || header.type == NULL || magic[3] == 0 ||
        magic[3] > MAX_DIMS)
        return ct_error_set(err, CT_EDATA,
                            "%s: not an IDX file: it starts with %02x %02x %02x %02x, not with "
                            "00 00, a type (08..0e) and 1 to %d dimensions",
                            stream->name, magic[0], magic[1], magic[2], magic[3], MAX_DIMS);
    code = read_exactly(stream, NULL, sizes, (size_t)4 * magic[3], err);
    if (code != 0)
        return code;
    header.items = ct_get_be32(sizes);
    for (size_t i = 1; i < magic[3]; i++) {
        size_t size = ct_get_be32(sizes + 4 * i);
        if (size == 0 || size > CT_DATA_MAX_WIDTH / header.width)
            return ct_error_set(err, CT_EDATA,
                                "%s: dimension %zu is %zu; an item may have 1 to %zu elements",
                                stream->name, i + 1, size, CT_DATA_MAX_WIDTH);
        header.width *= size;
    }
    if (header.items == 0)
        return ct_error_set(err, CT_EDATA, "%s: holds no item", stream->name);
    *ret = header;
    return 0;
}

static int expect_end(struct ct_stream *stream, struct ct_error *err)
{
    char byte;
    size_t got = 0;
    int code = ct_stream_read(stream, &byte, 1, &got, err);

    if (code == 0 && got != 0)
        code =
            ct_error_set(err, CT_EDATA, "%s: holds more bytes than its header says", stream->name);
    return code;
}

static int read_items(struct ct_rows *rows, struct ct_stream *stream, const struct header *header,
                      struct ct_error *err)
{
    unsigned char chunk[CHUNK];
    const struct type *type = header->type;
    size_t elements = header->items * header->width;

    for (size_t done = 0; done < elements;) {
        size_t count = CT_MIN(elements - done, (size_t)CHUNK / type->size);
        size_t rows_after = (done + count + header->width - 1) / header->width;
        int code = read_exactly(stream, header, chunk, count * type->size, err);
        if (code == 0)
            code = ct_rows_reserve(rows, rows_after, stream->name, err);
        if (code != 0)
            return code;
        for (size_t i = 0; i < count; i++) {
            float value = (float)type->get(chunk + i * type->size);
            if (!isfinite(value))
                return ct_error_set(
                    err, CT_EDATA, "%s: item %zu, element %zu is not a finite f32 number",
                    stream->name, (done + i) / header->width, (done + i) % header->width);
            rows->features[done + i] = value;
        }
        done += count;
    }
    return 0;
}

static int read_labels(struct ct_rows *rows, struct ct_stream *stream, const struct header *header,
                       int32_t max, struct ct_error *err)
{
    unsigned char chunk[CHUNK];
    const struct type *type = header->type;

    for (size_t done = 0; done < header->items;) {
        size_t count = CT_MIN(header->items - done, (size_t)CHUNK / type->size);
        int code = read_exactly(stream, header, chunk, count * type->size, err);
        if (code != 0)
            return code;
        for (size_t i = 0; i < count; i++) {
            double value = type->get(chunk + i * type->size);
            if (!(value >= 0 && value <= max && value == floor(value)))
                return ct_error_set(err, CT_EDATA, "%s: item %zu: label %g is out of range 0..%d",
                                    stream->name, done + i, value, max);
            rows->labels[done + i] = (int32_t)value;
        }
        done += count;
    }
    return 0;
}

int ct_idx_read(struct ct_rows *rows, struct ct_stream *images, struct ct_stream *labels,
                const struct ct_data_spec *spec, struct ct_error *err)
{
    struct header items, tags;
    int code = read_header(images, &items, err);

    if (code == 0)
        code = read_header(labels, &tags, err);
    if (code != 0)
        return code;
    if (tags.width != 1)
        return ct_error_set(err, CT_EDATA, "%s: a label has %zu elements, not one", labels->name,
                            tags.width);
    if (items.items != tags.items)
        return ct_error_set(err, CT_EDATA, "%s holds %zu items, but %s holds %zu labels",
                            images->name, items.items, labels->name, tags.items);
    rows->width = items.width;
    code = read_items(rows, images, &items, err);
    if (code == 0)
        code = expect_end(images, err);
    if (code == 0)
        code = read_labels(rows, labels, &tags, ct_label_max(spec), err);
    if (code == 0)
        code = expect_end(labels, err);
    if (code == 0)
        rows->rows = items.items;
    return code;
}

static int load(struct ct_rows *rows, const struct ct_data_spec *spec, struct ct_error *err)
{
    struct ct_stream images, labels;

    if (spec->images == NULL || spec->images[0] == '\0' || spec->labels == NULL ||
        spec->labels[0] == '\0')
        return ct_error_set(err, CT_ECONFIG, "idx data needs images and labels");
    int code = ct_stream_open(&images, spec->images, rows->limit_bytes, err);
    if (code != 0)
        return code;
    code = ct_stream_open(&labels, spec->labels, rows->limit_bytes, err);
    if (code == 0) {
        code = ct_idx_read(rows, &images, &labels, spec, err);
        ct_stream_close(&labels);
    }
    ct_stream_close(&images);
    return code;
}

const struct ct_source ct_source_idx = {.name = "idx", .load = load};
