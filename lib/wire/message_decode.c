/* Payload -> message: a cursor over the bytes, every length judged before it is used. */
#include "wire/shape.h"

#include "base/assert.h"
#include "base/str.h"

#include <string.h>

struct cursor {
    const unsigned char *at;
    const unsigned char *end;
    struct ct_arena *arena;
    const struct ct_wire_shape *shape; /* the message, for its name */
    uint32_t protocol;                 /* that its sender speaks, ... */
    bool agreed;                       /* ... or an older one, if false */
    struct ct_error *err;
};

static size_t left(const struct cursor *in)
{
    return (size_t)(in->end - in->at);
}

static uint64_t read_number(struct cursor *in, size_t width)
{
    uint64_t value = 0;

    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)in->at[i] << (8 * i);
    in->at += width;
    return value;
}

static int cut_short(const struct cursor *in, const struct ct_wire_field *field)
{
    return ct_error_set(in->err, CT_EPROTOCOL, "message %s ends inside field %s", in->shape->name,
                        field->name);
}

static void store_number(void *at, size_t width, uint64_t value)
{
    switch (width) {
    case 1:
        *(uint8_t *)at = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)at = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)at = (uint32_t)value;
        break;
    default:
        memcpy(at, &value, sizeof(value));
    }
}

/* The length before a string (2 bytes), bytes or a list (4 bytes), within the field's limit. */
static int read_length(struct cursor *in, const struct ct_wire_field *field, size_t *ret_length)
{
    size_t width = field->kind == CT_WIRE_KIND_str ? 2 : 4;

    if (left(in) < width)
        return cut_short(in, field);
    *ret_length = (size_t)read_number(in, width);
    if (*ret_length > field->limit)
        return ct_error_set(in->err, CT_EPROTOCOL, "message %s: field %s announces %zu, limit %u",
                            in->shape->name, field->name, *ret_length, field->limit);
    return 0;
}

static int read_str(struct cursor *in, const struct ct_wire_field *field, const char **ret_text)
{
    size_t size = 0;
    int code = read_length(in, field, &size);

    if (code != 0)
        return code;
    if (left(in) < size + 1)
        return cut_short(in, field);
    if (memchr(in->at, '\0', size + 1) != in->at + size)
        return ct_error_set(in->err, CT_EPROTOCOL,
                            "message %s: field %s is not a string of its length", in->shape->name,
                            field->name);
    if (field->is_name && ct_str_has_control((const char *)in->at))
        return ct_error_set(in->err, CT_EPROTOCOL,
                            "message %s: field %s has control characters in it", in->shape->name,
                            field->name);
    *ret_text = (const char *)in->at;
    in->at += size + 1;
    return 0;
}

static int read_bytes(struct cursor *in, const struct ct_wire_field *field,
                      struct ct_bytes *ret_bytes)
{
    size_t size = 0;
    int code = read_length(in, field, &size);

    if (code != 0)
        return code;
    if (left(in) < size)
        return cut_short(in, field);
    *ret_bytes = (struct ct_bytes){in->at, size};
    in->at += size;
    return 0;
}

/* Bytes that the shortest record takes. */
static size_t least_bytes(const struct ct_wire_shape *record)
{
    size_t size = 0;

    for (size_t i = 0; i < record->field_count; i++) {
        const struct ct_wire_field *field = &record->fields[i];
        size_t width = ct_wire_width(field->kind);
        size += width != 0                        ? width
                : field->kind == CT_WIRE_KIND_one ? least_bytes(field->record())
                : field->kind == CT_WIRE_KIND_str ? 3
                                                  : 4;
    }
    return size;
}

static int read_fields(struct cursor *in, const struct ct_wire_shape *shape, void *body);

static int read_list(struct cursor *in, const struct ct_wire_field *field,
                     struct ct_wire_any_list *ret_list)
{
    const struct ct_wire_shape *record = field->record();
    size_t count = 0, least = least_bytes(record);
    int code = read_length(in, field, &count);

    if (code != 0)
        return code;
    CT_ASSERT(least > 0);
    if (left(in) / least < count)
        return cut_short(in, field);
    char *records = ct_arena_array(in->arena, count, record->size);
    if (records == NULL && count > 0)
        return ct_error_set(in->err, CT_ENOMEM, "no room for the %zu records of %s", count,
                            field->name);
    for (size_t i = 0; i < count && code == 0; i++)
        code = read_fields(in, record, records + i * record->size);
    *ret_list = (struct ct_wire_any_list){count > 0 ? records : NULL, (uint32_t)count};
    return code;
}

/* What the sender's protocol lacks: all is 0 already, but a string is never NULL. */
static void empty_fields(const struct ct_wire_shape *shape, size_t from, void *body)
{
    for (size_t i = from; i < shape->field_count; i++) {
        const struct ct_wire_field *field = &shape->fields[i];
        void *at = (char *)body + field->offset;

        if (field->kind == CT_WIRE_KIND_str)
            *(const char **)at = "";
        else if (field->kind == CT_WIRE_KIND_one)
            empty_fields(field->record(), 0, at);
    }
}

static int read_fields(struct cursor *in, const struct ct_wire_shape *shape, void *body)
{
    int code = 0;

    for (size_t i = 0; i < shape->field_count && code == 0; i++) {
        const struct ct_wire_field *field = &shape->fields[i];
        void *at = (char *)body + field->offset;
        size_t width = ct_wire_width(field->kind);

        bool may_end = field->kind == CT_WIRE_KIND_since && !in->agreed && i > 0 && left(in) == 0;

        if (may_end || ct_wire_is_later(field, in->protocol)) {
            empty_fields(shape, i, body);
            break;
        }

        if (field->kind == CT_WIRE_KIND_since)
            continue;
        if (field->kind == CT_WIRE_KIND_str) {
            code = read_str(in, field, at);
        } else if (field->kind == CT_WIRE_KIND_bytes) {
            code = read_bytes(in, field, at);
        } else if (field->kind == CT_WIRE_KIND_list) {
            struct ct_wire_any_list list;
            code = read_list(in, field, &list);
            if (code == 0)
                memcpy(at, &list, sizeof(list));
        } else if (field->kind == CT_WIRE_KIND_one) {
            memset(at, 0,
                   field->record()->size); /* what a layout leaves out is 0, as in the arena */
            code = read_fields(in, field->record(), at);
        } else if (left(in) < width) {
            code = cut_short(in, field);
        } else if (field->kind == CT_WIRE_KIND_id) {
            struct ct_id *id = at;
            id->high = read_number(in, 8);
            id->low = read_number(in, 8);
        } else {
            store_number(at, width, read_number(in, width));
        }
    }
    return code;
}

int ct_wire_decode(const struct ct_frame *frame, struct ct_arena *arena,
                   struct ct_message *ret_message, struct ct_error *err)
{
    const struct ct_wire_shape *shape = ct_wire_shape_of(frame->type);

    if (shape == NULL)
        return ct_error_set(err, CT_EPROTOCOL, "message type %u is unknown", frame->type);
    struct ct_message message = {.type = frame->type};
    struct cursor in = {
        .at = frame->payload,
        .end = frame->payload + frame->size,
        .arena = arena,
        .shape = shape,
        .protocol = frame->agreed ? frame->protocol : CT_WIRE_PROTOCOL,
        .agreed = frame->agreed,
        .err = err,
    };
    if (ct_wire_is_later(&shape->fields[0], in.protocol))
        return ct_error_set(err, CT_EPROTOCOL,
                            "message %s is unknown in protocol %u, which its "
                            "sender speaks",
                            shape->name, in.protocol);
    int code = read_fields(&in, shape, &message.hello);
    if (code != 0)
        return code;
    if (left(&in) > 0 && !frame->newer)
        return ct_error_set(err, CT_EPROTOCOL, "message %s has %zu bytes behind its last field",
                            shape->name, left(&in));
    *ret_message = message;
    return 0;
}
