/* See message_print.h. */
#include "message_print.h"

#include "wire/shape.h"

#include <inttypes.h>
#include <string.h>

enum { PRINT_TEXT = 200, PRINT_BYTES = 16, PRINT_RECORDS = 16 };

static void print_text(const unsigned char *text, size_t size, size_t most, struct ct_buf *out)
{
    ct_buf_puts(out, "\"");
    for (size_t i = 0; i < size && i < most; i++) {
        if (text[i] == '\n')
            ct_buf_puts(out, "\\n");
        else if (text[i] == '"' || text[i] == '\\')
            ct_buf_printf(out, "\\%c", text[i]);
        else if (text[i] < 0x20 || text[i] >= 0x7f)
            ct_buf_printf(out, "\\x%02x", text[i]);
        else
            ct_buf_append(out, &text[i], 1);
    }
    ct_buf_puts(out, size > most ? "\"..." : "\"");
}

static void print_number(const struct ct_wire_field *field, const void *body, struct ct_buf *out)
{
    uint64_t value = ct_wire_get_number(field, body);
    double real;

    switch (field->kind) {
    case CT_WIRE_KIND_i32:
        ct_buf_printf(out, "%" PRId32, (int32_t)value);
        break;
    case CT_WIRE_KIND_i64:
        ct_buf_printf(out, "%" PRId64, (int64_t)value);
        break;
    case CT_WIRE_KIND_f64:
        memcpy(&real, &value, sizeof(real));
        ct_buf_printf(out, "%.9g", real);
        break;
    default:
        ct_buf_printf(out, "%" PRIu64, value);
    }
}

static void print_fields(const struct ct_wire_shape *shape, const void *body, const char *before,
                         struct ct_buf *out);

static void print_list(const struct ct_wire_field *field, const void *body, struct ct_buf *out)
{
    const struct ct_wire_shape *record = field->record();
    struct ct_wire_any_list list = ct_wire_get_list(field, body);

    ct_buf_puts(out, "[");
    for (uint32_t i = 0; i < list.count && i < PRINT_RECORDS; i++) {
        ct_buf_puts(out, i > 0 ? " {" : "{");
        print_fields(record, (const char *)list.data + i * record->size, "", out);
        ct_buf_puts(out, "}");
    }
    if (list.count > PRINT_RECORDS)
        ct_buf_printf(out, " ... %" PRIu32 " in all", list.count);
    ct_buf_puts(out, "]");
}

/* `before` stands in front of the first field; a blank in front of the others. */
static void print_fields(const struct ct_wire_shape *shape, const void *body, const char *before,
                         struct ct_buf *out)
{
    for (size_t i = 0; i < shape->field_count; i++) {
        const struct ct_wire_field *field = &shape->fields[i];

        if (field->kind == CT_WIRE_KIND_since)
            continue;
        ct_buf_printf(out, "%s%s=", i > 0 ? " " : before, field->name);
        if (field->kind == CT_WIRE_KIND_str) {
            const char *text = ct_wire_get_str(field, body);
            print_text((const unsigned char *)text, strlen(text), PRINT_TEXT, out);
        } else if (field->kind == CT_WIRE_KIND_bytes) {
            struct ct_bytes bytes = ct_wire_get_bytes(field, body);
            ct_buf_printf(out, "(%zu)", bytes.size);
            print_text(bytes.data, bytes.size, PRINT_BYTES, out);
        } else if (field->kind == CT_WIRE_KIND_list) {
            print_list(field, body, out);
        } else if (field->kind == CT_WIRE_KIND_one) {
            ct_buf_puts(out, "{");
            print_fields(field->record(), ct_wire_get_one(field, body), "", out);
            ct_buf_puts(out, "}");
        } else if (field->kind == CT_WIRE_KIND_id) {
            const struct ct_id *id = (const void *)((const char *)body + field->offset);
            ct_buf_printf(out, "%016" PRIx64 "%016" PRIx64, id->high, id->low);
        } else {
            print_number(field, body, out);
        }
    }
}

void message_print(const struct ct_message *message, struct ct_buf *out)
{
    const struct ct_wire_shape *shape = ct_wire_shape_of(message->type);

    ct_buf_puts(out, ct_wire_name(message->type));
    if (shape != NULL)
        print_fields(shape, ct_wire_body(message), " ", out);
}
