/* The descriptors of wire.def; see shape.h.
 *
 * Each record, layout and message becomes one function, because only inside a function can its rows
 * name their struct (`self`) without repeating it in wire.def. A row whose type is not that of the
 * struct's member, as one of a layout may be, does not compile. */
#include "wire/shape.h"

#include "base/assert.h"

#include <string.h>

#define ROW(kind, name, limit, is_name, record) \
    {#name, CT_WIRE_KIND_##kind, offsetof(self, name), limit, is_name, record},
#define SINCE(protocol) {"since", CT_WIRE_KIND_since, 0, protocol, false, NULL},
#define LIMIT_OF(name, type, limit) _Generic(((self){0}).name, type : limit)
#define FIELD(kind, name) ROW(kind, name, LIMIT_OF(name, CT_WIRE_C_##kind, 0), false, NULL)
#define STR(name, limit) ROW(str, name, LIMIT_OF(name, const char *, limit), false, NULL)
#define NAME(name, limit) ROW(str, name, LIMIT_OF(name, const char *, limit), true, NULL)
#define BYTES(name, limit) ROW(bytes, name, limit, false, NULL)
#define LIST(record, name, limit) ROW(list, name, limit, false, record_##record)
#define ONE(record, name) ROW(one, name, 0, false, record_##record)
#define SHAPE(function, type, text, number, limit, from, ...)              \
    static const struct ct_wire_shape *function(void)                      \
    {                                                                      \
        typedef type self;                                                 \
        static const struct ct_wire_field rows[] = {__VA_ARGS__};          \
        static const struct ct_wire_shape shape = {                        \
            text, number, limit, from, sizeof(self), rows, CT_COUNT(rows), \
        };                                                                 \
        return &shape;                                                     \
    }
#define RECORD(name, fields) SHAPE(record_##name, struct ct_wire_##name, #name, 0, 0, 0, fields)
#define LAYOUT(name, record, fields) \
    SHAPE(record_##name, struct ct_wire_##record, #name, 0, 0, 0, fields)
#define MESSAGE(NAME, name, number, limit, from, fields) \
    SHAPE(message_##name, struct ct_msg_##name, #NAME, number, limit, from, fields)
#include "wire/wire.def"
#undef MESSAGE
#undef LAYOUT
#undef RECORD

#define RECORD(name, fields)
#define LAYOUT(name, record, fields)

const struct ct_wire_shape *ct_wire_shape_of(unsigned type)
{
    switch (type) {
#define MESSAGE(NAME, name, number, limit, from, fields) \
    case number:                                         \
        return message_##name();
#include "wire/wire.def"
#undef MESSAGE
    default:
        return NULL;
    }
}

uint32_t ct_wire_next_older(uint32_t protocol)
{
    return protocol > CT_WIRE_OLDEST ? protocol - 1 : CT_WIRE_PROTOCOL;
}

const char *ct_wire_name(unsigned type)
{
    const struct ct_wire_shape *shape = ct_wire_shape_of(type);

    return shape != NULL ? shape->name : "?";
}

size_t ct_wire_width(enum ct_wire_kind kind)
{
    static const unsigned char width[] = {
        [CT_WIRE_KIND_u8] = 1,  [CT_WIRE_KIND_u16] = 2, [CT_WIRE_KIND_u32] = 4,
        [CT_WIRE_KIND_u64] = 8, [CT_WIRE_KIND_i32] = 4, [CT_WIRE_KIND_i64] = 8,
        [CT_WIRE_KIND_f64] = 8, [CT_WIRE_KIND_id] = 16,
    };

    return kind < CT_COUNT(width) ? width[kind] : 0;
}

static const void *member(const struct ct_wire_field *field, const void *body)
{
    return (const char *)body + field->offset;
}

uint64_t ct_wire_get_number(const struct ct_wire_field *field, const void *body)
{
    const void *at = member(field, body);

    switch (ct_wire_width(field->kind)) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        return *(const uint16_t *)at;
    case 4:
        return *(const uint32_t *)at;
    default:
        CT_ASSERT(ct_wire_width(field->kind) == 8);
        uint64_t value;
        memcpy(&value, at, sizeof(value)); /* a double too */
        return value;
    }
}

const char *ct_wire_get_str(const struct ct_wire_field *field, const void *body)
{
    const char *text = *(const char *const *)member(field, body);

    return text != NULL ? text : "";
}

struct ct_bytes ct_wire_get_bytes(const struct ct_wire_field *field, const void *body)
{
    return *(const struct ct_bytes *)member(field, body);
}

const void *ct_wire_get_one(const struct ct_wire_field *field, const void *body)
{
    return member(field, body);
}

struct ct_wire_any_list ct_wire_get_list(const struct ct_wire_field *field, const void *body)
{
    struct ct_wire_any_list list;

    memcpy(&list, member(field, body), sizeof(list)); /* its own type differs in `data` */
    return list;
}
