/* Message -> frame: measure with every limit, reserve once, write. */
#include "wire/frame.h"
#include "wire/shape.h"

#include "base/assert.h"
#include "base/str.h"

#include <string.h>

static int too_big(const char *message, const struct ct_wire_field *field, size_t size,
                   struct ct_error *err)
{
    return ct_error_set(err, CT_ELIMIT, "message %s: field %s has %zu %s, at most %u go", message,
                        field->name, size, field->kind == CT_WIRE_KIND_list ? "records" : "bytes",
                        field->limit);
}

/* How many of the fields go to a peer that speaks `protocol`. */
static size_t known_fields(const struct ct_wire_shape *shape, uint32_t protocol)
{
    size_t count = 0;

    while (count < shape->field_count && !ct_wire_is_later(&shape->fields[count], protocol))
        count++;
    return count;
}

/* Add the encoded size of `body`, `count` fields of the message of this name or of a record in it,
 * to `*size`. */
static int measure(const char *message, const struct ct_wire_shape *shape, size_t count,
                   const void *body, size_t *size, struct ct_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct ct_wire_field *field = &shape->fields[i];
        size_t amount = 0;
        int code = 0;

        switch (field->kind) {
        case CT_WIRE_KIND_str:
            amount = strlen(ct_wire_get_str(field, body));
            *size += 2 + amount + 1;
            if (field->is_name && ct_str_has_control(ct_wire_get_str(field, body)))
                return ct_error_set(err, CT_EUSAGE,
                                    "message %s: field %s has control characters in it", message,
                                    field->name);
            break;
        case CT_WIRE_KIND_bytes:
            amount = ct_wire_get_bytes(field, body).size;
            *size += 4 + amount;
            break;
        case CT_WIRE_KIND_list:
            amount = ct_wire_get_list(field, body).count;
            *size += 4;
            break;
        case CT_WIRE_KIND_one:
            code = measure(message, field->record(), field->record()->field_count,
                           ct_wire_get_one(field, body), size, err);
            break;
        default:
            *size += ct_wire_width(field->kind);
        }
        if (amount > field->limit)
            return too_big(message, field, amount, err);
        if (field->kind == CT_WIRE_KIND_list) {
            const struct ct_wire_shape *record = field->record();
            const char *at = ct_wire_get_list(field, body).data;
            for (size_t k = 0; k < amount && code == 0; k++)
                code =
                    measure(message, record, record->field_count, at + k * record->size, size, err);
        }
        if (code != 0)
            return code;
    }
    return 0;
}

static unsigned char *put_blob(unsigned char *to, const void *data, size_t size)
{
    if (size > 0)
        memcpy(to, data, size);
    return to + size;
}

static unsigned char *put_number(unsigned char *to, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        to[i] = (unsigned char)(value >> (8 * i));
    return to + width;
}

/* Write what `measure` measured; returns the end. */
static unsigned char *put_fields(const struct ct_wire_shape *shape, size_t count, const void *body,
                                 unsigned char *to)
{
    for (size_t i = 0; i < count; i++) {
        const struct ct_wire_field *field = &shape->fields[i];

        switch (field->kind) {
        case CT_WIRE_KIND_str: {
            const char *text = ct_wire_get_str(field, body);
            size_t size = strlen(text);
            to = put_blob(put_number(to, size, 2), text, size + 1);
            break;
        }
        case CT_WIRE_KIND_bytes: {
            struct ct_bytes bytes = ct_wire_get_bytes(field, body);
            to = put_blob(put_number(to, bytes.size, 4), bytes.data, bytes.size);
            break;
        }
        case CT_WIRE_KIND_list: {
            const struct ct_wire_shape *record = field->record();
            struct ct_wire_any_list list = ct_wire_get_list(field, body);
            to = put_number(to, list.count, 4);
            for (uint32_t k = 0; k < list.count; k++)
                to = put_fields(record, record->field_count,
                                (const char *)list.data + k * record->size, to);
            break;
        }
        case CT_WIRE_KIND_one:
            to = put_fields(field->record(), field->record()->field_count,
                            ct_wire_get_one(field, body), to);
            break;
        case CT_WIRE_KIND_id: {
            const struct ct_id *id = (const void *)((const char *)body + field->offset);
            to = put_number(put_number(to, id->high, 8), id->low, 8);
            break;
        }
        case CT_WIRE_KIND_since:
            break;
        default:
            to = put_number(to, ct_wire_get_number(field, body), ct_wire_width(field->kind));
        }
    }
    return to;
}

int ct_wire_encode(const struct ct_message *message, uint32_t sequence, struct ct_buf *out,
                   struct ct_error *err)
{
    int code = ct_wire_encode_as(message, CT_WIRE_OLDEST, sequence, out, err);

    return code == CT_WIRE_NOT_THERE
               ? ct_error_set(err, CT_EPROTOCOL, "message %s is unknown in protocol %d",
                              ct_wire_name(message->type), CT_WIRE_OLDEST)
               : code;
}

int ct_wire_encode_as(const struct ct_message *message, uint32_t protocol, uint32_t sequence,
                      struct ct_buf *out, struct ct_error *err)
{
    const struct ct_wire_shape *shape = ct_wire_shape_of(message->type);
    size_t size = 0;

    CT_ASSERT(shape != NULL);
    size_t count = known_fields(shape, protocol);
    if (count == 0)
        return CT_WIRE_NOT_THERE;
    int code = measure(shape->name, shape, count, ct_wire_body(message), &size, err);
    if (code != 0)
        return code;
    if (size > shape->frame_limit)
        return ct_error_set(err, CT_ELIMIT, "message %s takes %zu bytes, at most %u go",
                            shape->name, size, shape->frame_limit);
    unsigned char *to = ct_buf_reserve(out, CT_WIRE_HEADER + size);
    if (to == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a message of %zu bytes", size);
    ct_put_le32(to, CT_WIRE_MAGIC);
    ct_put_le32(to + 4, (uint32_t)size);
    ct_put_le16(to + 8, (uint16_t)shape->number);
    ct_put_le16(to + 10, 0);
    ct_put_le32(to + 12, sequence);
    unsigned char *end = put_fields(shape, count, ct_wire_body(message), to + CT_WIRE_HEADER);
    CT_ASSERT(end == to + CT_WIRE_HEADER + size);
    out->size += CT_WIRE_HEADER + size;
    return 0;
}
