#include "random_message.h"

#include "base/assert.h"
#include "chance.h"

#include <string.h>

static const unsigned types[] = {
#define RECORD(name, fields)
#define LAYOUT(name, record, fields)
#define MESSAGE(NAME, name, number, limit, from, fields) number,
#include "wire/wire.def"
#undef MESSAGE
#undef LAYOUT
#undef RECORD
};

size_t shape_count(void)
{
    return CT_COUNT(types);
}

const struct ct_wire_shape *shape_at(size_t index)
{
    CT_ASSERT(index < CT_COUNT(types));
    return ct_wire_shape_of(types[index]);
}

static size_t draw_size(struct ct_rng *rng, enum random_size size, size_t limit)
{
    if (size == RANDOM_EMPTY)
        return 0;
    if (size == RANDOM_FULL)
        return limit;
    return (size_t)ct_rng_below(rng, CT_MIN(limit, (size_t)20) + 1);
}

/* All ones and zero often: the edges of every width. */
static uint64_t draw_word(struct ct_rng *rng)
{
    if (rng_chance(rng, 400))
        return rng_chance(rng, 500) ? UINT64_MAX : 0;
    return ct_rng_next(rng);
}

static void random_number(struct ct_rng *rng, size_t width, void *at)
{
    for (size_t i = 0; i < width; i += 8) {
        uint64_t word = draw_word(rng);
        memcpy((char *)at + i, &word, CT_MIN(width, (size_t)8));
    }
}

void random_fields(struct ct_rng *rng, const struct ct_wire_shape *shape, enum random_size size,
                   struct ct_arena *arena, void *body)
{
    for (size_t i = 0; i < shape->field_count; i++) {
        const struct ct_wire_field *field = &shape->fields[i];
        void *at = (char *)body + field->offset;
        size_t count = field->limit > 0 ? draw_size(rng, size, field->limit) : 0;

        if (field->kind == CT_WIRE_KIND_since)
            continue;
        if (field->kind == CT_WIRE_KIND_list) {
            const struct ct_wire_shape *record = field->record();
            char *records = ct_arena_array(arena, count, record->size);
            CT_ASSERT(records != NULL || count == 0);
            for (size_t k = 0; k < count; k++)
                random_fields(rng, record, RANDOM_SMALL, arena, records + k * record->size);
            struct ct_wire_any_list list = {records, (uint32_t)count};
            memcpy(at, &list, sizeof(list));
        } else if (field->kind == CT_WIRE_KIND_str || field->kind == CT_WIRE_KIND_bytes) {
            char *text = ct_arena_alloc(arena, count + 1);
            CT_ASSERT(text != NULL);
            for (size_t k = 0; k < count; k++)
                text[k] = (char)(field->is_name ? 0x20 + ct_rng_below(rng, 0x5f)
                                                : 1 + ct_rng_below(rng, 255));
            if (field->kind == CT_WIRE_KIND_str)
                memcpy(at, &text, sizeof(text));
            else
                *(struct ct_bytes *)at = (struct ct_bytes){(unsigned char *)text, count};
        } else if (field->kind == CT_WIRE_KIND_one) {
            random_fields(rng, field->record(), size, arena, at);
        } else {
            random_number(rng, ct_wire_width(field->kind), at);
        }
    }
}

struct ct_message random_message(struct ct_rng *rng, const struct ct_wire_shape *shape,
                                 enum random_size size, struct ct_arena *arena)
{
    struct ct_message message = {.type = shape->number};

    random_fields(rng, shape, size, arena, &message.hello);
    return message;
}

static int equal_bytes(struct ct_bytes a, struct ct_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

int equal_fields(const struct ct_wire_shape *shape, const void *a, const void *b)
{
    for (size_t i = 0; i < shape->field_count; i++) {
        const struct ct_wire_field *field = &shape->fields[i];
        int same = 1;

        if (field->kind == CT_WIRE_KIND_since)
            continue;
        if (field->kind == CT_WIRE_KIND_str) {
            same = strcmp(ct_wire_get_str(field, a), ct_wire_get_str(field, b)) == 0;
        } else if (field->kind == CT_WIRE_KIND_bytes) {
            same = equal_bytes(ct_wire_get_bytes(field, a), ct_wire_get_bytes(field, b));
        } else if (field->kind == CT_WIRE_KIND_list) {
            const struct ct_wire_shape *record = field->record();
            struct ct_wire_any_list x = ct_wire_get_list(field, a), y = ct_wire_get_list(field, b);
            same = x.count == y.count;
            for (uint32_t k = 0; same && k < x.count; k++)
                same = equal_fields(record, (const char *)x.data + k * record->size,
                                    (const char *)y.data + k * record->size);
        } else if (field->kind == CT_WIRE_KIND_one) {
            same =
                equal_fields(field->record(), ct_wire_get_one(field, a), ct_wire_get_one(field, b));
        } else {
            same = memcmp((const char *)a + field->offset, (const char *)b + field->offset,
                          ct_wire_width(field->kind)) == 0;
        }
        if (!same)
            return 0;
    }
    return 1;
}

static size_t flatten(const struct ct_wire_shape *shape, size_t offset,
                      struct ct_wire_field fields[FIELDS_MAX], size_t count)
{
    for (size_t i = 0; i < shape->field_count; i++) {
        struct ct_wire_field field = shape->fields[i];

        field.offset += offset;
        if (field.kind == CT_WIRE_KIND_since)
            continue;
        if (field.kind == CT_WIRE_KIND_one) {
            count = flatten(field.record(), field.offset, fields, count);
            continue;
        }
        CT_ASSERT(count < FIELDS_MAX);
        fields[count++] = field;
    }
    return count;
}

size_t flat_fields(const struct ct_wire_shape *shape, struct ct_wire_field fields[FIELDS_MAX])
{
    return flatten(shape, 0, fields, 0);
}
