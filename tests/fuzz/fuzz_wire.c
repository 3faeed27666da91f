/* Fuzz: the frame reader and the decoder on arbitrary bytes in arbitrary pieces.
 *
 * The first byte says who the peer is (bits 0 to 5) and how large the pieces are; the rest is the
 * stream. What decodes must encode to the same bytes, and print; of a peer whose HELLO said that it
 * is newer to the first of them, before its HELLO to more. */
#include "base/assert.h"
#include "message_print.h"
#include "wire/frame.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct ct_frame_reader *reader, const struct ct_frame *frame,
                  struct ct_arena *arena, struct ct_buf *out)
{
    struct ct_message message;

    if (ct_wire_decode(frame, arena, &message, NULL) != 0)
        return;
    ct_buf_clear(out);
    uint32_t protocol = frame->agreed ? frame->protocol : CT_WIRE_PROTOCOL;
    CT_ASSERT(ct_wire_encode_as(&message, protocol, frame->sequence, out, NULL) == 0);
    size_t again = out->size - CT_WIRE_HEADER;
    CT_ASSERT(again == frame->size || (again < frame->size && frame->newer) ||
              (again > frame->size && !frame->agreed));
    CT_ASSERT(memcmp(out->data + CT_WIRE_HEADER, frame->payload, CT_MIN(again, frame->size)) == 0);
    ct_frame_reader_note_received(reader, &message);
    ct_buf_clear(out);
    message_print(&message, out);
    CT_ASSERT(!out->failed && memchr(out->data, '\n', out->size) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_frame_reader reader;
    struct ct_frame frame;
    struct ct_arena arena;
    struct ct_buf out = {0};
    int code = 0;

    if (size == 0)
        return 0;
    size_t part = (size_t)1 << 4 * (data[0] >> 6);
    ct_frame_reader_init(&reader, data[0] & 63u, CT_WIRE_VALUE);
    ct_arena_init(&arena, 4 << 20);
    for (size_t at = 1; at < size && code >= 0; at += part) {
        (void)ct_frame_reader_push(&reader, data + at, CT_MIN(part, size - at));
        while ((code = ct_frame_reader_next(&reader, &frame, NULL)) == 1)
            check(&reader, &frame, &arena, &out);
    }
    ct_frame_reader_deinit(&reader);
    ct_arena_deinit(&arena);
    ct_buf_deinit(&out);
    return 0;
}
