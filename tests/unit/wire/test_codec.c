/* The codec: one encoding of every message, and nothing else is taken for one. */
#include "random_message.h"
#include "wire/wire.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

static struct ct_rng rng;
static struct ct_arena arena; /* of the message under test */
static struct ct_arena lists; /* of the decoder */
static struct ct_buf out;

static void set_up(void)
{
    ct_rng_init(&rng, 7);
    ct_arena_init(&arena, 64 << 20);
    ct_arena_init(&lists, 64 << 20);
    ct_buf_init(&out, 0);
}

static void tear_down(void)
{
    ct_arena_deinit(&arena);
    ct_arena_deinit(&lists);
    ct_buf_deinit(&out);
}

TestSuite(codec, .init = set_up, .fini = tear_down, .timeout = 30);

static struct ct_frame frame_of(const struct ct_buf *buf)
{
    return (struct ct_frame){
        .type = ct_get_le16(buf->data + 8),
        .sequence = ct_get_le32(buf->data + 12),
        .agreed = true,
        .protocol = CT_WIRE_PROTOCOL,
        .payload = (const unsigned char *)buf->data + CT_WIRE_HEADER,
        .size = buf->size - CT_WIRE_HEADER,
    };
}

/* In the newest protocol, with all fields. */
static int encode(const struct ct_message *message, uint32_t sequence, struct ct_buf *to,
                  struct ct_error *err)
{
    return ct_wire_encode_as(message, CT_WIRE_PROTOCOL, sequence, to, err);
}

/* Every message of wire.def in turn: for (shape of each...). */
#define EACH_SHAPE(shape)      \
    size_t shape##_i = 0;      \
    shape##_i < shape_count(); \
    shape##_i++

Test(codec, every_message_comes_back_as_it_was)
{
    struct ct_error err = {0};

    for (int round = 0; round < 200; round++) {
        for (EACH_SHAPE(shape)) {
            const struct ct_wire_shape *shape = shape_at(shape_i);
            struct ct_message sent =
                random_message(&rng, shape, round == 0 ? RANDOM_EMPTY : RANDOM_SMALL, &arena);
            struct ct_message got;
            ct_buf_clear(&out);
            cr_assert_eq(encode(&sent, 42, &out, &err), 0, "%s", err.text);
            struct ct_frame frame = frame_of(&out);
            cr_assert_eq(frame.sequence, 42);
            cr_assert_eq(ct_get_le32(out.data + 4), frame.size);
            cr_assert_eq(ct_wire_decode(&frame, &lists, &got, &err), 0, "%s", err.text);
            cr_assert_eq(got.type, sent.type);
            cr_assert(equal_fields(shape, ct_wire_body(&sent), ct_wire_body(&got)), "%s",
                      shape->name);
        }
        ct_arena_deinit(&arena);
        ct_arena_deinit(&lists);
    }
}

Test(codec, the_bytes_of_a_frame_are_these)
{
    static const unsigned char expected[] = {
        'C', 'T', 'R', 1,   26,  0,   0,   0,   33,  0,
        0,   0,   9,   0,   0,   0,                     /* header, STORE_GET is 33 */
        5,   0,   0,   0,   0,   0,   0,   0,           /* request */
        3,   1,   0,   0,   0,   0,   0,   0,           /* generation 259 */
        7,   0,   'r', 'a', 'n', 'k', '/', '0', '1', 0, /* key */
    };
    struct ct_message message = {.type = CT_MSG_STORE_GET,
                                 .store_get = {.request = 5, .generation = 259, .key = "rank/01"}};

    cr_assert_eq(ct_wire_encode(&message, 9, &out, NULL), 0);
    cr_assert_eq(out.size, sizeof(expected));
    cr_assert_eq(memcmp(out.data, expected, sizeof(expected)), 0);
}

/* The record `failure` and its two layouts, as older nodes and daemons write and read them. */
Test(codec, the_bytes_of_a_failure_are_these)
{
    static const unsigned char failed[] = {
        1,    0,    0,    0,    0, 0, 0, 0,   2,    0,    0,    0,    0, 0, 0, 0, 3, 0, 0,   0,
        4,    0,    0,    0,    5, 0, 0, 0,                           /* rank, local_rank, pid */
        0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0,   0xf9, 0xff, 0xff, 0xff, /* status, signal, code */
        1,    1,    0,    'h',  0, 1, 0, 't', 0,                      /* fatal, host, text */
        10,   0,    0,    0,    0, 0, 0, 0,   11,   0,    0,    0,    0, 0, 0, 0, 1, 0, 'e', 0,
    };
    static const unsigned char closed[] = {
        1, 0, 0, 0, 0,   0, 0, 0, 2,   0,   0,   0, 0xfd, 0xff, 0xff, 0xff, 4,  0, 0,   0,   5, 0,
        0, 0, 6, 0, 0,   0, 7, 0, 0,   0, /* 4 restarts */
        8, 0, 0, 0, 9,   0, 0, 0, 1,   0,   'h', 0, 1,    0,    't',  0,    10, 0, 0,   0,   0, 0,
        0, 0, 1, 0, 'e', 0, 1, 0, 0,   0, /* one other */
        1, 0, 0, 0, 2,   0, 0, 0, 3,   0,   0,   0, 4,    0,    0,    0,    5,  0, 0,   0,   6, 0,
        0, 0, 0, 0, 0,   0, 2, 0, 'o', 'h', 0,   2, 0,    'o',  't',  0,    2,  0, 'o', 'e', 0,
    };
    const struct ct_wire_failure other = {.rank = 1,
                                          .local_rank = 2,
                                          .pid = 3,
                                          .status = 4,
                                          .signal = 5,
                                          .time_ms = 6,
                                          .host = "oh",
                                          .text = "ot",
                                          .error_file = "oe"};
    struct ct_message message = {.type = CT_MSG_FAILURE,
                                 .failure = {.generation = 1,
                                             .seq = 2,
                                             .failure = {.rank = 3,
                                                         .local_rank = 4,
                                                         .pid = 5,
                                                         .status = -1,
                                                         .signal = 9,
                                                         .code = -7,
                                                         .fatal = 1,
                                                         .host = "h",
                                                         .text = "t",
                                                         .time_ms = 10,
                                                         .age_ms = 11,
                                                         .error_file = "e"}}};

    cr_assert_eq(ct_wire_encode(&message, 0, &out, NULL), 0);
    cr_assert_eq(out.size, CT_WIRE_HEADER + sizeof(failed));
    cr_assert_eq(memcmp(out.data + CT_WIRE_HEADER, failed, sizeof(failed)), 0);
    message = (struct ct_message){.type = CT_MSG_CLOSE,
                                  .close = {.generation = 1,
                                            .status = 2,
                                            .code = -3,
                                            .restart_count = 4,
                                            .cause = {.rank = 5,
                                                      .local_rank = 6,
                                                      .pid = 7,
                                                      .status = 8,
                                                      .signal = 9,
                                                      .host = "h",
                                                      .text = "t",
                                                      .time_ms = 10,
                                                      .error_file = "e"},
                                            .others = {.data = &other, .count = 1}}};
    ct_buf_clear(&out);
    cr_assert_eq(ct_wire_encode(&message, 0, &out, NULL), 0);
    cr_assert_eq(out.size, CT_WIRE_HEADER + sizeof(closed));
    cr_assert_eq(memcmp(out.data + CT_WIRE_HEADER, closed, sizeof(closed)), 0);
}

Test(codec, no_payload_cut_anywhere_is_taken)
{
    for (EACH_SHAPE(shape)) {
        const struct ct_wire_shape *shape = shape_at(shape_i);
        struct ct_message sent = random_message(&rng, shape, RANDOM_SMALL, &arena), got;
        ct_buf_clear(&out);
        cr_assert_eq(encode(&sent, 0, &out, NULL), 0);
        struct ct_frame whole = frame_of(&out);
        for (size_t size = 0; size < whole.size; size++) {
            /* The cut payload lies at the end of its own block, so that ASan sees a read beyond. */
            unsigned char *cut = malloc(size > 0 ? size : 1);
            memcpy(cut, whole.payload, size);
            struct ct_frame frame = {.type = whole.type,
                                     .agreed = true,
                                     .protocol = CT_WIRE_PROTOCOL,
                                     .payload = cut,
                                     .size = size};
            int code = ct_wire_decode(&frame, &lists, &got, NULL);
            free(cut);
            cr_assert_eq(code, CT_EPROTOCOL, "%s cut to %zu bytes", shape->name, size);
            /* And once with the rest still behind it: it must not be looked at. */
            frame.payload = whole.payload;
            code = ct_wire_decode(&frame, &lists, &got, NULL);
            cr_assert_eq(code, CT_EPROTOCOL, "%s cut to %zu bytes", shape->name, size);
        }
        ct_arena_deinit(&lists);
    }
}

Test(codec, nothing_may_follow_the_last_field)
{
    for (EACH_SHAPE(shape)) {
        struct ct_message sent = random_message(&rng, shape_at(shape_i), RANDOM_SMALL, &arena);
        struct ct_message got;
        ct_buf_clear(&out);
        cr_assert_eq(encode(&sent, 0, &out, NULL), 0);
        ct_buf_append(&out, "", 1);
        struct ct_frame frame = frame_of(&out);
        cr_assert_eq(ct_wire_decode(&frame, &lists, &got, NULL), CT_EPROTOCOL);
    }
}

Test(codec, what_is_decoded_from_damaged_bytes_encodes_to_the_same_bytes)
{
    struct ct_buf again;
    unsigned taken = 0;

    ct_buf_init(&again, 0);
    for (int round = 0; round < 100; round++) {
        for (EACH_SHAPE(shape)) {
            struct ct_message sent = random_message(&rng, shape_at(shape_i), RANDOM_SMALL, &arena);
            struct ct_message got;
            ct_buf_clear(&out);
            cr_assert_eq(encode(&sent, 0, &out, NULL), 0);
            for (int hits = 0; hits < 3; hits++) {
                size_t at = CT_WIRE_HEADER + ct_rng_below(&rng, out.size - CT_WIRE_HEADER);
                out.data[at] = (char)ct_rng_next(&rng);
            }
            struct ct_frame frame = frame_of(&out);
            if (ct_wire_decode(&frame, &lists, &got, NULL) != 0)
                continue;
            taken++;
            ct_buf_clear(&again);
            cr_assert_eq(encode(&got, 0, &again, NULL), 0);
            cr_assert_eq(again.size, out.size);
            cr_assert_eq(memcmp(again.data, out.data, out.size), 0);
        }
        ct_arena_deinit(&arena);
        ct_arena_deinit(&lists);
    }
    cr_assert_gt(taken, 100);
    ct_buf_deinit(&again);
}

/* A message whose field `field` holds `count` bytes or records, all else being empty. */
static struct ct_message with_count(const struct ct_wire_shape *shape,
                                    const struct ct_wire_field *field, size_t count)
{
    struct ct_message message = random_message(&rng, shape, RANDOM_EMPTY, &arena);
    void *at = (char *)&message.hello + field->offset;

    if (field->kind == CT_WIRE_KIND_list) {
        struct ct_wire_any_list list = {ct_arena_array(&arena, count, field->record()->size),
                                        (uint32_t)count};
        memcpy(at, &list, sizeof(list));
        return message;
    }
    char *text = ct_arena_alloc(&arena, count + 1);
    memset(text, 'x', count);
    if (field->kind == CT_WIRE_KIND_str)
        memcpy(at, &text, sizeof(text));
    else
        *(struct ct_bytes *)at = (struct ct_bytes){(unsigned char *)text, count};
    return message;
}

Test(codec, every_field_goes_at_its_limit_and_not_above)
{
    struct ct_wire_field fields[FIELDS_MAX];
    struct ct_error err = {0};

    for (EACH_SHAPE(shape)) {
        const struct ct_wire_shape *shape = shape_at(shape_i);
        size_t count = flat_fields(shape, fields);
        for (size_t i = 0; i < count; i++) {
            const struct ct_wire_field *field = &fields[i];
            if (field->limit == 0)
                continue;
            struct ct_message message = with_count(shape, field, field->limit), got;
            ct_buf_clear(&out);
            cr_assert_eq(encode(&message, 0, &out, &err), 0, "%s", err.text);
            struct ct_frame frame = frame_of(&out);
            cr_assert_eq(ct_wire_decode(&frame, &lists, &got, &err), 0, "%s", err.text);

            size_t before = out.size;
            message = with_count(shape, field, (size_t)field->limit + 1);
            cr_assert_eq(encode(&message, 0, &out, &err), CT_ELIMIT);
            cr_assert(strstr(err.text, field->name) != NULL, "%s", err.text);
            cr_assert_eq(out.size, before, "a refused message leaves the buffer alone");
            ct_arena_deinit(&arena);
            ct_arena_deinit(&lists);
        }
    }
}

Test(codec, a_message_above_its_frame_limit_is_not_sent)
{
    struct ct_message message = {.type = CT_MSG_STORE_CAS};
    unsigned char *value = ct_arena_alloc(&arena, CT_WIRE_VALUE_BYTES);
    struct ct_error err = {0};

    message.store_cas.expected = (struct ct_bytes){value, CT_WIRE_VALUE_BYTES};
    message.store_cas.desired = (struct ct_bytes){value, CT_WIRE_VALUE_BYTES};
    cr_assert_eq(encode(&message, 0, &out, &err), CT_ELIMIT);
    cr_assert(strstr(err.text, "STORE_CAS takes") != NULL, "%s", err.text);
    cr_assert_eq(out.size, 0);
}

Test(codec, announced_lengths_are_judged_before_anything_is_allocated)
{
    static const uint32_t lies[] = {UINT32_MAX, 0x7fffffff, CT_WIRE_NODES + 1, CT_WIRE_NODES, 100};
    struct ct_message sent =
        random_message(&rng, ct_wire_shape_of(CT_MSG_ASSIGN), RANDOM_EMPTY, &arena);
    struct ct_message got;

    cr_assert_eq(encode(&sent, 0, &out, NULL), 0);
    for (size_t i = 0; i < CT_COUNT(lies); i++) {
        ct_put_le32(out.data + out.size - 4, lies[i]); /* the count of the last field, a list */
        struct ct_frame frame = frame_of(&out);
        cr_assert_eq(ct_wire_decode(&frame, &lists, &got, NULL), CT_EPROTOCOL);
        cr_assert_eq(lists.used_bytes, 0);
    }
}

Test(codec, a_string_has_no_nul_inside_and_one_behind)
{
    struct ct_message sent = {.type = CT_MSG_SUMMARY, .summary = {.text = "abc"}}, got;

    cr_assert_eq(ct_wire_encode(&sent, 0, &out, NULL), 0);
    struct ct_frame frame = frame_of(&out);
    frame.protocol = CT_WIRE_OLDEST; /* in which the text is the last field */
    out.data[out.size - 3] = '\0';
    cr_assert_eq(ct_wire_decode(&frame, &lists, &got, NULL), CT_EPROTOCOL);
    out.data[out.size - 3] = 'b';
    cr_assert_eq(ct_wire_decode(&frame, &lists, &got, NULL), 0);
    cr_assert_str_eq(got.summary.text, "abc");
    out.data[out.size - 1] = 'x';
    cr_assert_eq(ct_wire_decode(&frame, &lists, &got, NULL), CT_EPROTOCOL);
}

Test(codec, a_null_string_is_sent_as_an_empty_one)
{
    struct ct_message sent = {.type = CT_MSG_SUMMARY}, got;

    cr_assert_eq(encode(&sent, 0, &out, NULL), 0);
    struct ct_frame frame = frame_of(&out);
    cr_assert_eq(ct_wire_decode(&frame, &lists, &got, NULL), 0);
    cr_assert_str_eq(got.summary.text, "");
}

Test(codec, a_list_that_fits_no_arena_is_an_error_and_not_a_crash)
{
    struct ct_wire_run runs[50] = {{.nodes = 1}};
    const struct ct_message sent = {.type = CT_MSG_ASSIGN, .assign = {.runs = {runs, 50}}};
    struct ct_message got;
    struct ct_arena tiny;
    struct ct_error err = {0};

    ct_arena_init(&tiny, 64);
    cr_assert_eq(encode(&sent, 0, &out, NULL), 0);
    struct ct_frame frame = frame_of(&out);
    cr_assert_eq(ct_wire_decode(&frame, &tiny, &got, &err), CT_ENOMEM);
    ct_arena_deinit(&tiny);
}

/* Names go to logs and terminals: a newline or an escape sequence in one is refused by both ends.
 */
Test(codec, a_name_with_control_characters_is_neither_sent_nor_taken)
{
    static const char *const evils[] = {"abc\nd", "\x1b[2Jx", "abcd\x7f", "abcd\xc2\x9b", "abcd\t"};
    struct ct_error err = {0};
    size_t names = 0;
    struct ct_wire_field fields[FIELDS_MAX];

    for (EACH_SHAPE(shape)) {
        const struct ct_wire_shape *shape = shape_at(shape_i);
        size_t count = flat_fields(shape, fields);
        for (size_t i = 0; i < count; i++) {
            const struct ct_wire_field *field = &fields[i];
            if (!field->is_name)
                continue;
            names++;
            for (size_t k = 0; k < CT_COUNT(evils); k++) {
                size_t size = strlen(evils[k]);
                struct ct_message message = with_count(shape, field, size), got;
                ct_buf_clear(&out);
                cr_assert_eq(encode(&message, 0, &out, &err), 0, "%s", err.text);
                char *at = memmem(out.data, out.size, ct_wire_get_str(field, &message.hello), size);
                memcpy(at, evils[k], size);
                struct ct_frame frame = frame_of(&out);
                cr_assert_eq(ct_wire_decode(&frame, &lists, &got, &err), CT_EPROTOCOL);
                cr_assert_not_null(strstr(err.text, field->name), "%s", err.text);
                cr_assert_not_null(strstr(err.text, "control characters"), "%s", err.text);
                memcpy((char *)&message.hello + field->offset, &evils[k], sizeof(evils[k]));
                cr_assert_eq(encode(&message, 0, &out, &err), CT_EUSAGE);
            }
        }
    }
    cr_assert_geq(names, 10u);
}

Test(codec, the_table_fits_the_encoding)
{
    struct ct_wire_field fields[FIELDS_MAX];
    for (EACH_SHAPE(shape)) {
        const struct ct_wire_shape *shape = shape_at(shape_i);
        cr_assert(shape->number > 0 && shape->number <= UINT16_MAX, "%s", shape->name);
        cr_assert_eq(ct_wire_shape_of(shape->number), shape);
        cr_assert(shape->from != 0 && shape->frame_limit <= CT_WIRE_VALUE, "%s", shape->name);
        cr_assert_str_eq(ct_wire_name(shape->number), shape->name);
        size_t count = flat_fields(shape, fields);
        for (size_t i = 0; i < count; i++)
            if (fields[i].kind == CT_WIRE_KIND_str)
                cr_assert_leq(fields[i].limit, UINT16_MAX, "%s", fields[i].name);
    }
    cr_assert_null(ct_wire_shape_of(0));
    cr_assert_str_eq(ct_wire_name(0xffff), "?");
}
