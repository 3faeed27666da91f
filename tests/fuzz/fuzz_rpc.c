/* Fuzz: remote calls and the parameter server's heads in them, from bytes off a connection.
 *
 * The first byte says which end the peer is (bit 0) and how large the pieces are; the rest is the
 * stream. A body is read as each kind of head: what is read must be written to the same bytes. */
#include "base/assert.h"
#include "collectives/ps/protocol.h"
#include "wire/frame.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_body(struct ct_bytes body)
{
    for (int kind = 0; kind < CT_PS_HEAD_COUNT; kind++) {
        unsigned char head[CT_PS_HEAD_BYTES], bytes[CT_PS_HEAD_BYTES];
        struct ct_bytes rest;
        if (ct_ps_get((enum ct_ps_head)kind, body, head, &rest, NULL) != 0)
            continue;
        size_t size = ct_ps_put((enum ct_ps_head)kind, head, bytes);
        CT_ASSERT(size + rest.size == body.size && rest.data == body.data + size);
        CT_ASSERT(memcmp(bytes, body.data, size) == 0);
    }
}

static void check(const struct ct_frame *frame, struct ct_arena *arena)
{
    struct ct_message message;

    if (ct_wire_decode(frame, arena, &message, NULL) != 0)
        return;
    if (message.type == CT_MSG_CALL) {
        CT_ASSERT(ct_ps_method_name(message.call.method) != NULL);
        check_body(message.call.body);
    } else {
        CT_ASSERT(message.type == CT_MSG_ANSWER);
        check_body(message.answer.body);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_frame_reader reader;
    struct ct_frame frame;
    struct ct_arena arena;
    int code = 0;

    if (size == 0)
        return 0;
    size_t part = (size_t)1 << 4 * (data[0] >> 6);
    ct_frame_reader_init(&reader, data[0] & 1 ? CT_FROM_CALLER : CT_FROM_CALLEE, CT_WIRE_VALUE);
    ct_arena_init(&arena, 1 << 20);
    for (size_t at = 1; at < size && code >= 0; at += part) {
        (void)ct_frame_reader_push(&reader, data + at, CT_MIN(part, size - at));
        while ((code = ct_frame_reader_next(&reader, &frame, NULL)) == 1)
            check(&frame, &arena);
    }
    ct_frame_reader_deinit(&reader);
    ct_arena_deinit(&arena);
    return 0;
}
