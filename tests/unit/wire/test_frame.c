/* The frame reader: any pieces in, the same frames out; what must not be ends at its header. */
#include "random_message.h"
#include "wire/frame.h"

#include "base/assert.h"
#include "chance.h"

#include <criterion/criterion.h>
#include <string.h>

static struct ct_frame_reader reader;
static struct ct_buf out;
static struct ct_error err;

static void set_up(void)
{
    ct_frame_reader_init(&reader, CT_FROM_NODE, CT_WIRE_VALUE);
    ct_buf_init(&out, 0);
    err = (struct ct_error){0};
}

static void tear_down(void)
{
    ct_frame_reader_deinit(&reader);
    ct_buf_deinit(&out);
}

TestSuite(frame, .init = set_up, .fini = tear_down, .timeout = 30);

/* `count` heartbeats with steps 0, 1, 2, ... in `out`. */
static void put_heartbeats(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ct_message message = {.type = CT_MSG_HEARTBEAT, .heartbeat = {.step = i}};
        cr_assert_eq(ct_wire_encode(&message, i, &out, NULL), 0);
    }
}

/* Read every frame that is whole; the steps must follow on `*next_step`. */
static void receive_heartbeats(uint64_t *next_step)
{
    struct ct_frame frame;
    struct ct_message message;
    int code;

    while ((code = ct_frame_reader_next(&reader, &frame, &err)) == 1) {
        cr_assert_eq(ct_wire_decode(&frame, NULL, &message, &err), 0, "%s", err.text);
        cr_assert_eq(message.type, CT_MSG_HEARTBEAT);
        cr_assert_eq(message.heartbeat.step, *next_step);
        cr_assert_eq(frame.sequence, *next_step);
        (*next_step)++;
    }
    cr_assert_eq(code, 0, "%s", err.text);
}

Test(frame, a_stream_cut_into_pieces_of_any_one_size_gives_the_same_frames)
{
    put_heartbeats(5);
    for (size_t part = 1; part <= out.size; part++) {
        uint64_t steps = 0;
        ct_frame_reader_deinit(&reader);
        ct_frame_reader_init(&reader, CT_FROM_NODE, CT_WIRE_VALUE);
        for (size_t at = 0; at < out.size; at += part) {
            size_t size = CT_MIN(part, out.size - at);
            cr_assert_eq(ct_frame_reader_push(&reader, out.data + at, size), 0);
            receive_heartbeats(&steps);
        }
        cr_assert_eq(steps, 5);
        cr_assert_not(ct_frame_reader_inside(&reader));
    }
}

Test(frame, pieces_of_random_sizes_give_the_same_frames)
{
    struct ct_rng rng;
    uint64_t steps = 0;

    ct_rng_init(&rng, 11);
    put_heartbeats(500);
    for (size_t at = 0; at < out.size;) {
        size_t wanted = ct_rng_below(&rng, 300);
        size_t size = CT_MIN(wanted, out.size - at);
        cr_assert_eq(ct_frame_reader_push(&reader, out.data + at, size), 0);
        at += size;
        if (rng_chance(&rng, 500))
            receive_heartbeats(&steps);
    }
    receive_heartbeats(&steps);
    cr_assert_eq(steps, 500);
}

Test(frame, the_reader_knows_whether_it_stands_inside_a_frame)
{
    uint64_t steps = 0;

    put_heartbeats(1);
    cr_assert_not(ct_frame_reader_inside(&reader));
    ct_frame_reader_push(&reader, out.data, 1);
    receive_heartbeats(&steps);
    cr_assert(ct_frame_reader_inside(&reader));
    ct_frame_reader_push(&reader, out.data + 1, out.size - 1);
    receive_heartbeats(&steps);
    cr_assert_not(ct_frame_reader_inside(&reader));
}

/* Push one heartbeat's header after `at` was set to the little-endian value; what does next say? */
static int next_with(size_t at, uint32_t value, size_t width)
{
    struct ct_frame frame;

    put_heartbeats(1);
    memcpy(out.data + at,
           (unsigned char[4]){(unsigned char)value, (unsigned char)(value >> 8),
                              (unsigned char)(value >> 16), (unsigned char)(value >> 24)},
           width);
    cr_assert_eq(ct_frame_reader_push(&reader, out.data, CT_WIRE_HEADER), 0);
    return ct_frame_reader_next(&reader, &frame, &err);
}

Test(frame, an_unknown_type_is_refused_at_the_header)
{
    cr_assert_eq(next_with(8, 999, 2), CT_EPROTOCOL);
    cr_assert_str_eq(err.text, "message type 999 is unknown");
}

Test(frame, a_message_of_the_other_direction_is_refused_at_the_header)
{
    cr_assert_eq(next_with(8, CT_MSG_WELCOME, 2), CT_EPROTOCOL);
    cr_assert_str_eq(err.text, "message WELCOME must not come from this peer");
}

Test(frame, flags_are_refused)
{
    cr_assert_eq(next_with(10, 0x8000, 2), CT_EPROTOCOL);
    cr_assert_str_eq(err.text, "a frame has the unknown flags 0x8000");
}

Test(frame, a_frame_out_of_sequence_is_refused)
{
    cr_assert_eq(next_with(12, 1, 4), CT_EPROTOCOL);
    cr_assert_str_eq(err.text, "frame 1 came where frame 0 was due");
}

Test(frame, a_giant_length_is_refused_without_memory)
{
    cr_assert_eq(next_with(4, UINT32_MAX, 4), CT_ELIMIT);
    cr_assert_str_eq(err.text,
                     "message HEARTBEAT announces 4294967295 bytes, at most 65536 may come");
    cr_assert_leq(reader.buf.room, 64);
}

Test(frame, a_length_above_the_message_limit_is_refused)
{
    cr_assert_eq(next_with(4, CT_WIRE_CONTROL + 1, 4), CT_ELIMIT);
}

Test(frame, a_length_at_the_message_limit_may_come)
{
    cr_assert_eq(next_with(4, CT_WIRE_CONTROL, 4), 0);
    cr_assert_leq(reader.buf.room, 64, "announced, not arrived");
}

Test(frame, the_readers_own_limit_holds_too)
{
    reader.limit = 8;
    cr_assert_eq(next_with(4, 9, 4), CT_ELIMIT);
}

Test(frame, a_broken_stream_stays_broken)
{
    struct ct_frame frame;

    cr_assert_eq(next_with(8, 999, 2), CT_EPROTOCOL);
    cr_assert_eq(ct_frame_reader_push(&reader, "x", 1), CT_EPROTOCOL);
    cr_assert_eq(ct_frame_reader_next(&reader, &frame, &err), CT_EPROTOCOL);
}

Test(frame, strangers_are_recognised)
{
    static const struct {
        const char *bytes, *sentence;
        int code;
    } strangers[] = {
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00", "it speaks TLS",
         CT_EAUTH},
        {"GET / HTTP/1.1\r\n", "it speaks HTTP", CT_EPROTOCOL},
        {"CTR\x02\x10\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00", "another version",
         CT_EPROTOCOL},
        {"SSH-2.0-OpenSSH_", "it is not ctrun", CT_EPROTOCOL},
    };
    struct ct_frame frame;

    for (size_t i = 0; i < CT_COUNT(strangers); i++) {
        ct_frame_reader_deinit(&reader);
        ct_frame_reader_init(&reader, CT_FROM_NODE, CT_WIRE_VALUE);
        ct_frame_reader_push(&reader, strangers[i].bytes, CT_WIRE_HEADER);
        cr_assert_eq(ct_frame_reader_next(&reader, &frame, &err), strangers[i].code);
        cr_assert(strstr(err.text, strangers[i].sentence) != NULL, "%s", err.text);
    }
}

Test(frame, frames_that_nobody_reads_have_a_bound)
{
    char chunk[65536] = {0};
    int code = 0;
    size_t pushed = 0;

    reader.limit = 1000;
    for (; code == 0 && pushed < 64u << 20; pushed += sizeof(chunk))
        code = ct_frame_reader_push(&reader, chunk, sizeof(chunk));
    cr_assert_eq(code, CT_ELIMIT);
    cr_assert_leq(pushed, 2u << 20);
}

Test(frame, memory_is_given_back_after_a_large_frame)
{
    unsigned char *value = calloc(1, 4 << 20);
    struct ct_message message = {.type = CT_MSG_STORE_SET,
                                 .store_set = {.key = "k", .value = {value, 4 << 20}}};
    struct ct_frame frame;

    cr_assert_eq(ct_wire_encode(&message, 0, &out, NULL), 0);
    for (size_t at = 0; at < out.size; at += 65536)
        cr_assert_eq(ct_frame_reader_push(&reader, out.data + at, CT_MIN(out.size - at, 65536u)),
                     0);
    cr_assert_eq(ct_frame_reader_next(&reader, &frame, &err), 1, "%s", err.text);
    cr_assert_eq(ct_frame_reader_push(&reader, "C", 1), 0);
    cr_assert_leq(reader.buf.room, 64);
    free(value);
}
