/* Peers of other releases: which fields and messages pass between them, what else is refused. */
#include "random_message.h"
#include "wire/frame.h"

#include "base/assert.h"
#include "base/fs.h"
#include "chance.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct ct_rng rng;
static struct ct_arena arena, lists;
static struct ct_buf out;
static struct ct_frame_reader reader;
static struct ct_error err;

static void set_up(void)
{
    ct_rng_init(&rng, 12);
    ct_arena_init(&arena, 64 << 20);
    ct_arena_init(&lists, 64 << 20);
    ct_buf_init(&out, 0);
    ct_frame_reader_init(&reader, CT_FROM_NODE, CT_WIRE_CONTROL);
    err = (struct ct_error){0};
}

static void tear_down(void)
{
    ct_arena_deinit(&arena);
    ct_arena_deinit(&lists);
    ct_buf_deinit(&out);
    ct_frame_reader_deinit(&reader);
}

TestSuite(versions, .init = set_up, .fini = tear_down, .timeout = 30);

/* ---- fields ---------------------------------------------------------------------------------- */

static struct ct_frame frame_in(uint32_t protocol, bool newer)
{
    return (struct ct_frame){.type = ct_get_le16(out.data + 8),
                             .agreed = true,
                             .protocol = protocol,
                             .newer = newer,
                             .payload = (const unsigned char *)out.data + CT_WIRE_HEADER,
                             .size = out.size - CT_WIRE_HEADER};
}

/* What a peer that speaks `protocol` gets of `message`: all that came later is 0 or empty. */
static void leave_out(const struct ct_wire_shape *shape, uint32_t protocol,
                      struct ct_message *message)
{
    bool later = false;

    for (size_t i = 0; i < shape->field_count; i++) {
        const struct ct_wire_field *field = &shape->fields[i];
        char *at = (char *)&message->hello + field->offset;

        later = later || ct_wire_is_later(field, protocol);
        if (!later || field->kind == CT_WIRE_KIND_since)
            continue;
        CT_ASSERT(field->kind != CT_WIRE_KIND_one);
        size_t size = field->kind == CT_WIRE_KIND_str     ? sizeof(char *)
                      : field->kind == CT_WIRE_KIND_bytes ? sizeof(struct ct_bytes)
                      : field->kind == CT_WIRE_KIND_list  ? sizeof(struct ct_wire_any_list)
                                                          : ct_wire_width(field->kind);
        memset(at, 0, size);
    }
}

Test(versions, each_protocol_carries_the_fields_that_it_has_and_the_others_come_as_nothing)
{
    size_t passed = 0;

    for (uint32_t protocol = CT_WIRE_OLDEST; protocol <= CT_WIRE_PROTOCOL; protocol++)
        for (size_t i = 0; i < shape_count() * 20; i++) {
            const struct ct_wire_shape *shape = shape_at(i % shape_count());
            struct ct_message sent = random_message(&rng, shape, RANDOM_SMALL, &arena), got;
            bool is_there = !ct_wire_is_later(&shape->fields[0], protocol);
            int code;

            ct_buf_clear(&out);
            code = ct_wire_encode_as(&sent, protocol, 0, &out, &err);
            cr_assert_eq(code, is_there ? 0 : CT_WIRE_NOT_THERE, "%s: %s", shape->name, err.text);
            cr_assert_eq(out.size > 0, is_there);
            if (!is_there)
                continue;
            struct ct_frame frame = frame_in(protocol, false);
            cr_assert_eq(ct_wire_decode(&frame, &lists, &got, &err), 0, "%s", err.text);
            leave_out(shape, protocol, &sent);
            cr_assert(equal_fields(shape, ct_wire_body(&sent), ct_wire_body(&got)), "%s in %u",
                      shape->name, protocol);
            passed++;
        }
    cr_assert_geq(passed, 20 * 40);
}

Test(versions, a_newer_peer_may_send_fields_behind_the_last_one_and_nobody_else)
{
    for (size_t i = 0; i < shape_count() * 10; i++) {
        const struct ct_wire_shape *shape = shape_at(i % shape_count());
        struct ct_message sent = random_message(&rng, shape, RANDOM_SMALL, &arena), got;
        char news[40];

        for (size_t k = 0; k < sizeof news; k++)
            news[k] = (char)ct_rng_next(&rng);
        ct_buf_clear(&out);
        cr_assert_eq(ct_wire_encode_as(&sent, CT_WIRE_PROTOCOL, 0, &out, NULL), 0);
        ct_buf_append(&out, news, 1 + ct_rng_below(&rng, sizeof news));
        struct ct_frame frame = frame_in(CT_WIRE_PROTOCOL, true);
        cr_assert_eq(ct_wire_decode(&frame, &lists, &got, &err), 0, "%s", err.text);
        cr_assert(equal_fields(shape, ct_wire_body(&sent), ct_wire_body(&got)), "%s", shape->name);
        frame.newer = false;
        cr_assert_eq(ct_wire_decode(&frame, &lists, &got, &err), CT_EPROTOCOL);
        cr_assert_not_null(strstr(err.text, "behind its last field"), "%s", err.text);
        ct_arena_deinit(&lists);
    }
}

/* Whoever dials has no answer yet, and a worker never says what it speaks. */
Test(versions, while_nothing_is_agreed_a_message_may_end_where_an_older_protocol_does)
{
    for (size_t i = 0; i < shape_count() * 10; i++) {
        const struct ct_wire_shape *shape = shape_at(i % shape_count());
        struct ct_message sent = random_message(&rng, shape, RANDOM_SMALL, &arena), got;

        ct_buf_clear(&out);
        if (ct_wire_encode_as(&sent, CT_WIRE_OLDEST, 0, &out, NULL) == CT_WIRE_NOT_THERE)
            continue;
        struct ct_frame frame = frame_in(CT_WIRE_PROTOCOL, false);
        frame.agreed = false;
        cr_assert_eq(ct_wire_decode(&frame, &lists, &got, &err), 0, "%s", err.text);
        leave_out(shape, CT_WIRE_OLDEST, &sent);
        cr_assert(equal_fields(shape, ct_wire_body(&sent), ct_wire_body(&got)), "%s", shape->name);
        if (frame.size == 0)
            continue;
        frame.size--;
        cr_assert_eq(ct_wire_decode(&frame, &lists, &got, NULL), CT_EPROTOCOL);
    }
}

Test(versions, what_a_newer_peer_cuts_short_is_refused_all_the_same)
{
    for (size_t i = 0; i < shape_count(); i++) {
        struct ct_message sent = random_message(&rng, shape_at(i), RANDOM_SMALL, &arena), got;

        ct_buf_clear(&out);
        cr_assert_eq(ct_wire_encode_as(&sent, CT_WIRE_PROTOCOL, 0, &out, NULL), 0);
        struct ct_frame frame = frame_in(CT_WIRE_PROTOCOL, true);
        for (frame.size--; frame.size > 0; frame.size--)
            cr_assert_eq(ct_wire_decode(&frame, &lists, &got, NULL), CT_EPROTOCOL, "%s",
                         shape_at(i)->name);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint32_t sequence;

static void push(const struct ct_message *message)
{
    ct_buf_clear(&out);
    cr_assert_eq(ct_wire_encode_as(message, CT_WIRE_PROTOCOL, sequence++, &out, NULL), 0);
    cr_assert_eq(ct_frame_reader_push(&reader, out.data, out.size), 0);
}

/* A message that no release has yet. */
static void push_news(uint32_t size)
{
    ct_buf_clear(&out);
    cr_assert_not_null(ct_buf_reserve(&out, CT_WIRE_HEADER + size));
    memset(out.data, 0xa5, CT_WIRE_HEADER + size);
    ct_put_le32(out.data, CT_WIRE_MAGIC);
    ct_put_le32(out.data + 4, size);
    ct_put_le16(out.data + 8, 999);
    ct_put_le16(out.data + 10, 0);
    ct_put_le32(out.data + 12, sequence++);
    cr_assert_eq(ct_frame_reader_push(&reader, out.data, CT_WIRE_HEADER + size), 0);
}

/* As a connection does. */
static int receive(struct ct_message *ret)
{
    struct ct_frame frame;
    int code = ct_frame_reader_next(&reader, &frame, &err);

    if (code <= 0)
        return code;
    code = ct_wire_decode(&frame, &lists, ret, &err);
    if (code == 0)
        ct_frame_reader_note_received(&reader, ret);
    return code == 0 ? 1 : code;
}

static void push_hello(uint32_t protocol)
{
    const struct ct_message hello = {.type = CT_MSG_HELLO, .hello = {.protocol = protocol}};
    struct ct_message got;

    push(&hello);
    cr_assert_eq(receive(&got), 1, "%s", err.text);
    cr_assert_eq(got.type, CT_MSG_HELLO);
}

Test(versions, an_unknown_message_of_a_newer_peer_is_passed_over)
{
    const struct ct_message heartbeat = {.type = CT_MSG_HEARTBEAT, .heartbeat = {.step = 5}};
    struct ct_message got;

    push_hello(CT_WIRE_PROTOCOL + 1);
    cr_assert_eq(reader.skipped, 0);
    push_news(100);
    push_news(0);
    push(&heartbeat);
    cr_assert_eq(receive(&got), 1, "%s", err.text);
    cr_assert_eq(got.type, CT_MSG_HEARTBEAT);
    cr_assert_eq(got.heartbeat.step, 5);
    cr_assert_eq(reader.skipped, 999);
    cr_assert_eq(receive(&got), 0);
}

Test(versions, an_unknown_message_of_a_peer_that_is_not_newer_is_refused)
{
    struct ct_message got;

    push_hello(CT_WIRE_PROTOCOL);
    push_news(100);
    cr_assert_eq(receive(&got), CT_EPROTOCOL);
    cr_assert_str_eq(err.text, "message type 999 is unknown");
}

Test(versions, an_unknown_message_before_hello_is_refused)
{
    struct ct_message got;

    push_news(8);
    cr_assert_eq(receive(&got), CT_EPROTOCOL);
}

Test(versions, an_unknown_message_is_as_long_as_a_control_message_at_most)
{
    struct ct_message got;

    reader.limit = CT_WIRE_VALUE;
    push_hello(CT_WIRE_PROTOCOL + 1);
    push_news(CT_WIRE_CONTROL);
    cr_assert_eq(receive(&got), 0);
    push_news(CT_WIRE_CONTROL + 1);
    cr_assert_eq(receive(&got), CT_ELIMIT);
}

/* ---- which protocol -------------------------------------------------------------------------- */

static uint32_t agree(uint32_t dialled, uint32_t welcomed)
{
    const struct ct_message hello = {.type = CT_MSG_HELLO, .hello = {.protocol = dialled}};
    const struct ct_message welcome = {.type = CT_MSG_WELCOME, .welcome = {.protocol = welcomed}};
    struct ct_frame_reader other;

    ct_frame_reader_init(&other, CT_FROM_SERVER, CT_WIRE_CONTROL);
    cr_assert_eq(other.protocol, CT_WIRE_OLDEST);
    cr_assert_not(other.agreed);
    ct_frame_reader_note_sent(&other, &hello);
    cr_assert_eq(other.protocol, CT_MIN(dialled, (uint32_t)CT_WIRE_PROTOCOL));
    if (welcomed > 0)
        ct_frame_reader_note_received(&other, &welcome);
    cr_assert_not(other.newer);
    cr_assert_eq(other.agreed, welcomed > 0);
    return other.protocol;
}

Test(versions, both_ends_speak_the_lower_of_their_newest_protocols)
{
    cr_assert_eq(agree(CT_WIRE_PROTOCOL, 0), CT_WIRE_PROTOCOL);
    cr_assert_eq(agree(CT_WIRE_PROTOCOL, CT_WIRE_PROTOCOL + 5), CT_WIRE_PROTOCOL);
    cr_assert_eq(agree(CT_WIRE_PROTOCOL, CT_WIRE_OLDEST), CT_WIRE_OLDEST);
    cr_assert_eq(agree(CT_WIRE_OLDEST, CT_WIRE_PROTOCOL), CT_WIRE_OLDEST);
    push_hello(CT_WIRE_PROTOCOL + 7);
    cr_assert_eq(reader.protocol, CT_WIRE_PROTOCOL);
    cr_assert(reader.newer);
    push_hello(CT_WIRE_OLDEST);
    cr_assert_eq(reader.protocol, CT_WIRE_OLDEST);
    cr_assert_not(reader.newer);
}

Test(versions, a_refused_protocol_is_followed_by_all_older_ones_and_then_by_the_newest)
{
    uint32_t protocol = CT_WIRE_PROTOCOL;

    for (uint32_t next = CT_WIRE_PROTOCOL; next > CT_WIRE_OLDEST; next--)
        cr_assert_eq(protocol = ct_wire_next_older(protocol), next - 1);
    cr_assert_eq(ct_wire_next_older(protocol), CT_WIRE_PROTOCOL);
}

/* ---- what protocol 12 is --------------------------------------------------------------------- */

static void put_shape(const struct ct_wire_shape *shape, const char *indent, struct ct_buf *to)
{
    static const char *const kinds[] = {"u8",  "u16", "u32", "u64",   "i32",  "i64",
                                        "f64", "id",  "str", "bytes", "list", "one"};

    for (size_t i = 0; i < shape->field_count; i++) {
        const struct ct_wire_field *field = &shape->fields[i];
        char deeper[32];

        if (ct_wire_is_later(field, 12))
            return;
        if (field->kind == CT_WIRE_KIND_since)
            continue;
        (void)ct_buf_printf(to, "%s%s %s", indent, field->is_name ? "name" : kinds[field->kind],
                            field->name);
        if (field->limit > 0)
            (void)ct_buf_printf(to, " %u", field->limit);
        (void)ct_buf_puts(to, "\n");
        (void)snprintf(deeper, sizeof deeper, "%s    ", indent);
        if (field->record != NULL)
            put_shape(field->record(), deeper, to);
    }
}

/* Protocol 12 is spoken by what is installed: none of its messages may ever change. What is new
 * stands behind a SINCE. While 12 is understood, this table stays as it is. */
Test(versions, protocol_12_is_what_it_was)
{
    struct ct_buf table = {0}, golden = {0};
    const char *line, *was;
    char there[200] = "";

    cr_assert_leq(CT_WIRE_OLDEST, 12);
    for (unsigned number = 1; number < 1000; number++) {
        const struct ct_wire_shape *shape = ct_wire_shape_of(number);

        if (shape == NULL || ct_wire_is_later(&shape->fields[0], 12))
            continue;
        (void)ct_buf_printf(&table, "%s %u from %u up to %u\n", shape->name, number, shape->from,
                            shape->frame_limit);
        put_shape(shape, "    ", &table);
    }
    cr_assert_eq(ct_fs_read("tests/golden/wire_12.txt", 1 << 20, &golden, &err), 0, "%s", err.text);
    line = ct_buf_str(&table);
    was = ct_buf_str(&golden);
    for (size_t i = 0; line[i] != '\0' && line[i] == was[i]; i++)
        if (line[i] == '\n')
            (void)snprintf(there, sizeof there, "%.*s", (int)strcspn(line + i + 1, "\n"),
                           line + i + 1);
    cr_assert_str_eq(line, was, "at \"%s\": what is new belongs behind a SINCE", there);
    ct_buf_deinit(&table);
    ct_buf_deinit(&golden);
}
