#include "frames.h"

#include "base/assert.h"
#include "wire/shape.h"

#include <stdlib.h>
#include <string.h>

uint8_t input_byte(struct input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

const uint8_t *input_bytes(struct input *input, size_t size, size_t *ret_size)
{
    const uint8_t *at = input->data;

    *ret_size = CT_MIN(size, input->size);
    input->data += *ret_size;
    input->size -= *ret_size;
    return at;
}

/* ---- other values ---- */

/* A small number, a neighbour of the true one, an edge of the width, or any. */
static uint64_t other_number(struct input *input, uint64_t now)
{
    uint8_t how = input_byte(input);
    uint64_t word = 0;
    size_t size;

    if (how < 64)
        return how;
    if (how < 128)
        return now + (uint64_t)how - 96;
    if (how < 192)
        return UINT64_MAX >> (how & 63);
    const uint8_t *bytes = input_bytes(input, 8, &size);
    if (size > 0)
        memcpy(&word, bytes, size);
    return word;
}

/* Up to a field's limit: a few bytes, all that may be, one more, or the input's own. */
static char *other_bytes(struct input *input, const struct ct_wire_field *field,
                         struct ct_arena *arena, size_t *ret_size)
{
    uint8_t how = input_byte(input);
    size_t size = how & 7u, own = 0;
    const uint8_t *bytes = NULL;

    if (how >= 192)
        bytes = input_bytes(input, how - 192, &own);
    if (how >= 64 && how < 192)
        size = (size_t)field->limit - (how < 128 ? how & 3u : 0) + (how >= 160);
    size = bytes != NULL ? own : CT_MIN(size, (size_t)64 << 10);
    char *text = ct_arena_alloc(arena, size + 1);
    if (text == NULL)
        return NULL;
    if (own > 0)
        memcpy(text, bytes, own);
    else
        memset(text, 'a' + how % 3, size);
    *ret_size = size;
    return text;
}

static void change(struct input *input, const struct ct_wire_field *field, struct ct_arena *arena,
                   char *at)
{
    size_t size = 0;

    if (field->kind == CT_WIRE_KIND_one) {
        const struct ct_wire_shape *record = field->record();
        field = &record->fields[input_byte(input) % record->field_count];
        at += field->offset;
    }
    if (field->kind == CT_WIRE_KIND_list) {
        uint32_t count = input_byte(input) % 8;
        const struct ct_wire_shape *record = field->record();
        char *records = ct_arena_array(arena, count, record->size);
        for (uint32_t k = 0; records != NULL && k < count; k++)
            for (size_t i = 0; i < record->field_count; i++)
                if (record->fields[i].kind != CT_WIRE_KIND_list)
                    change(input, &record->fields[i], arena,
                           records + k * record->size + record->fields[i].offset);
        struct ct_wire_any_list list = {records, records != NULL ? count : 0};
        memcpy(at, &list, sizeof(list));
    } else if (field->kind == CT_WIRE_KIND_str || field->kind == CT_WIRE_KIND_bytes) {
        char *text = other_bytes(input, field, arena, &size);
        const struct ct_bytes bytes = {(const unsigned char *)text, size};
        if (text != NULL && field->kind == CT_WIRE_KIND_bytes)
            memcpy(at, &bytes, sizeof(bytes));
        else if (text != NULL)
            memcpy(at, &text, sizeof(text));
    } else {
        size_t width = ct_wire_width(field->kind);
        uint64_t word = 0;
        memcpy(&word, at, CT_MIN(width, sizeof(word)));
        word = other_number(input, word);
        memcpy(at, &word, CT_MIN(width, sizeof(word)));
    }
}

void change_fields(struct input *input, struct ct_arena *arena, struct ct_message *message)
{
    const struct ct_wire_shape *shape = ct_wire_shape_of(message->type);

    for (int left = input_byte(input) & 3; left > 0; left--) {
        const struct ct_wire_field *field = &shape->fields[input_byte(input) % shape->field_count];
        change(input, field, arena, (char *)&message->hello + field->offset);
    }
}

/* ---- frames ---- */

void frames_init(struct frames *frames, unsigned from, uint32_t limit)
{
    *frames = (struct frames){.sequence = 0};
    ct_frame_reader_init(&frames->reader, from, limit);
}

void frames_deinit(struct frames *frames)
{
    ct_frame_reader_deinit(&frames->reader);
}

bool frames_push(struct frames *frames, const void *data, size_t size, frames_fn each,
                 void *context)
{
    struct ct_frame frame;
    struct ct_arena arena;
    int rc = ct_frame_reader_push(&frames->reader, data, size);

    ct_arena_init(&arena, 4 << 20);
    while (rc == 0 && (rc = ct_frame_reader_next(&frames->reader, &frame, NULL)) == 1) {
        struct ct_message message;
        rc = ct_wire_decode(&frame, &arena, &message, NULL);
        frames->sequence = frame.sequence + 1;
        if (rc == 0) {
            ct_frame_reader_note_received(&frames->reader, &message);
            each(context, &message);
        }
        ct_arena_deinit(&arena);
    }
    ct_arena_deinit(&arena);
    return rc == 0;
}

bool frames_send(struct frames *frames, const struct ct_message *message, frames_fn each,
                 void *context)
{
    struct ct_buf bytes = {0};
    bool lives = true;

    if (ct_wire_encode_as(message, frames->reader.protocol, frames->sequence, &bytes, NULL) == 0) {
        size_t half = bytes.size / 2;
        char *copy = malloc(bytes.size); /* reading beyond it is seen */
        CT_ASSERT(copy != NULL);
        memcpy(copy, bytes.data, bytes.size);
        lives = frames_push(frames, copy, half, each, context) &&
                frames_push(frames, copy + half, bytes.size - half, each, context);
        free(copy);
    }
    ct_buf_deinit(&bytes);
    return lives;
}

void frames_check(const struct ct_message *message)
{
    struct ct_buf bytes = {0};

    CT_ASSERT(ct_wire_encode(message, 0, &bytes, NULL) == 0);
    ct_buf_deinit(&bytes);
}
