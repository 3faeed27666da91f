/* Shapes: wire.def as data, for code that treats all messages alike (the codec, the printer,
 * tests). */
#ifndef CT_WIRE_SHAPE_H
#define CT_WIRE_SHAPE_H

#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_wire_kind {
    CT_WIRE_KIND_u8,
    CT_WIRE_KIND_u16,
    CT_WIRE_KIND_u32,
    CT_WIRE_KIND_u64,
    CT_WIRE_KIND_i32,
    CT_WIRE_KIND_i64,
    CT_WIRE_KIND_f64,
    CT_WIRE_KIND_id,
    CT_WIRE_KIND_str,
    CT_WIRE_KIND_bytes,
    CT_WIRE_KIND_list,
    CT_WIRE_KIND_one,
    CT_WIRE_KIND_since, /* no field: those behind it came with protocol `limit` */
};

struct ct_wire_shape;

struct ct_wire_field {
    const char *name;
    enum ct_wire_kind kind;
    size_t offset;                               /* in the struct */
    uint32_t limit;                              /* bytes of a string or bytes, records of a list */
    bool is_name;                                /* of a string: no control characters in it */
    const struct ct_wire_shape *(*record)(void); /* of a list, of one record */
};

/* A message, or a record or layout (number 0). */
struct ct_wire_shape {
    const char *name;
    unsigned number;
    uint32_t frame_limit; /* payload bytes */
    unsigned from;        /* CT_FROM_... */
    size_t size;          /* of the struct */
    const struct ct_wire_field *fields;
    size_t field_count;
};

/* The member LIST makes in a struct, whatever its record. */
struct ct_wire_any_list {
    const void *data;
    uint32_t count;
};

/* Return the shape of a message type, NULL when it is none. */
const struct ct_wire_shape *ct_wire_shape_of(unsigned type);

/* Where the fields of a message start (all members of its union start there). */
static inline const void *ct_wire_body(const struct ct_message *message)
{
    return &message->hello;
}

/* Get or set a number, string, bytes, list or record of a struct. */
uint64_t ct_wire_get_number(const struct ct_wire_field *field, const void *body);
const char *ct_wire_get_str(const struct ct_wire_field *field, const void *body); /* never NULL */
struct ct_bytes ct_wire_get_bytes(const struct ct_wire_field *field, const void *body);
struct ct_wire_any_list ct_wire_get_list(const struct ct_wire_field *field, const void *body);
const void *ct_wire_get_one(const struct ct_wire_field *field, const void *body);

/* Return whether `field` ends what a peer that speaks `protocol` knows of its message. */
static inline bool ct_wire_is_later(const struct ct_wire_field *field, uint32_t protocol)
{
    return field->kind == CT_WIRE_KIND_since && field->limit > protocol;
}

/* Return the bytes of a number on the wire; 16 for an id, 0 for a kind without a fixed width. */
size_t ct_wire_width(enum ct_wire_kind kind);

#endif
