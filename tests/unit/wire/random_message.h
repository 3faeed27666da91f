/* Random messages of any kind, made by walking the shapes of wire.def. */
#ifndef TESTS_UNIT_WIRE_RANDOM_MESSAGE_H
#define TESTS_UNIT_WIRE_RANDOM_MESSAGE_H

#include "base/number/rng.h"
#include "wire/shape.h"

/* Sizes of strings, bytes and lists: none, random and small, or exactly the limit. */
enum random_size { RANDOM_EMPTY, RANDOM_SMALL, RANDOM_FULL };

/* The shapes of all messages, in the order of wire.def. */
size_t shape_count(void);
const struct ct_wire_shape *shape_at(size_t index);

/* Fill the struct at `body`; views point into `arena`. */
void random_fields(struct ct_rng *rng, const struct ct_wire_shape *shape, enum random_size size,
                   struct ct_arena *arena, void *body);

/* A message of `shape`. */
struct ct_message random_message(struct ct_rng *rng, const struct ct_wire_shape *shape,
                                 enum random_size size, struct ct_arena *arena);

/* The fields of a message, those of a record in place among them: their offsets are from its body.
 * Returns how many. */
enum { FIELDS_MAX = 64 };
size_t flat_fields(const struct ct_wire_shape *shape, struct ct_wire_field fields[FIELDS_MAX]);

/* Are the two structs equal, field by field, as wire.def sees them? */
int equal_fields(const struct ct_wire_shape *shape, const void *a, const void *b);

#endif
