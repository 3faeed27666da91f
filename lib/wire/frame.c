/* Frames out of a byte stream; see frame.h. */
#include "wire/frame.h"

#include "base/assert.h"
#include "wire/shape.h"

#include <string.h>

enum {
    MAGIC_BYTES = 4,
    UNREAD_LIMIT = 1 << 20,          /* bytes that may pile up behind the frame in progress */
    SKIPPED_LIMIT = CT_WIRE_CONTROL, /* of a message that is passed over */
    KEEP_BYTES = 256 << 10,          /* a larger empty buffer is given back */
};

void ct_frame_reader_init(struct ct_frame_reader *reader, unsigned from, uint32_t limit)
{
    *reader = (struct ct_frame_reader){.from = from, .limit = limit, .protocol = CT_WIRE_OLDEST};
}

void ct_frame_reader_deinit(struct ct_frame_reader *reader)
{
    if (reader != NULL)
        ct_buf_deinit(&reader->buf);
}

int ct_frame_reader_push(struct ct_frame_reader *reader, const void *data, size_t size)
{
    struct ct_buf *buf = &reader->buf;

    if (reader->failed != 0)
        return reader->failed;
    ct_buf_consume(buf, reader->start);
    reader->start = 0;
    if (buf->size == 0 && buf->room > KEEP_BYTES)
        ct_buf_deinit(buf);
    if (buf->size > (size_t)CT_WIRE_HEADER + reader->limit + UNREAD_LIMIT)
        return reader->failed = CT_ELIMIT;
    return ct_buf_append(buf, data, size);
}

/* The peer's bytes are not ours: what is it? */
static int refuse_stranger(const unsigned char *bytes, struct ct_error *err)
{
    const char *guess = "it is not ctrun";
    int code = CT_EPROTOCOL;

    if ((bytes[0] == 0x16 || bytes[0] == 0x15) && bytes[1] == 3) {
        guess = "it speaks TLS: it has a key file, this side has none";
        code = CT_EAUTH;
    } else if (memcmp(bytes, "GET ", 4) == 0 || memcmp(bytes, "POST", 4) == 0 ||
               memcmp(bytes, "HTTP", 4) == 0) {
        guess = "it speaks HTTP";
    } else if (memcmp(bytes, "CTR", 3) == 0) {
        guess = "it is another version of ctrun";
    }
    return ct_error_set(err, code, "the peer sent %02x %02x %02x %02x instead of a frame: %s",
                        bytes[0], bytes[1], bytes[2], bytes[3], guess);
}

/* May a frame with this header, whose magic is right, follow? */
static int judge(const struct ct_frame_reader *reader, const unsigned char *header,
                 struct ct_error *err)
{
    uint32_t length = ct_get_le32(header + 4);
    unsigned type = ct_get_le16(header + 8);
    uint32_t sequence = ct_get_le32(header + 12);
    const struct ct_wire_shape *shape = ct_wire_shape_of(type);

    if (ct_get_le16(header + 10) != 0)
        return ct_error_set(err, CT_EPROTOCOL, "a frame has the unknown flags 0x%x",
                            ct_get_le16(header + 10));
    if (shape == NULL && !reader->newer)
        return ct_error_set(err, CT_EPROTOCOL, "message type %u is unknown", type);
    if (shape != NULL && (shape->from & reader->from) == 0)
        return ct_error_set(err, CT_EPROTOCOL, "message %s must not come from this peer",
                            shape->name);
    uint32_t limit = CT_MIN(shape != NULL ? shape->frame_limit : SKIPPED_LIMIT, reader->limit);
    if (length > limit)
        return ct_error_set(err, CT_ELIMIT, "message %s announces %u bytes, at most %u may come",
                            ct_wire_name(type), length, limit);
    if (sequence != reader->next_sequence)
        return ct_error_set(err, CT_EPROTOCOL, "frame %u came where frame %u was due", sequence,
                            reader->next_sequence);
    return 0;
}

/* The next whole frame, of a known type or not. */
static int next_frame(struct ct_frame_reader *reader, struct ct_frame *ret_frame,
                      struct ct_error *err)
{
    size_t size = reader->buf.size - reader->start;

    if (size < MAGIC_BYTES)
        return 0;
    const unsigned char *at = (const unsigned char *)reader->buf.data + reader->start;
    if (ct_get_le32(at) != CT_WIRE_MAGIC)
        return reader->failed = refuse_stranger(at, err);
    if (size < CT_WIRE_HEADER)
        return 0;
    reader->failed = judge(reader, at, err);
    if (reader->failed != 0)
        return reader->failed;
    size_t length = ct_get_le32(at + 4);
    if (size - CT_WIRE_HEADER < length)
        return 0;
    *ret_frame = (struct ct_frame){
        .type = ct_get_le16(at + 8),
        .sequence = reader->next_sequence++,
        .protocol = reader->protocol,
        .newer = reader->newer,
        .agreed = reader->agreed,
        .payload = at + CT_WIRE_HEADER,
        .size = length,
    };
    reader->start += CT_WIRE_HEADER + length;
    return 1;
}

int ct_frame_reader_next(struct ct_frame_reader *reader, struct ct_frame *ret_frame,
                         struct ct_error *err)
{
    struct ct_frame frame = {.type = 0};
    int code;

    if (reader->failed != 0)
        return ct_error_set(err, reader->failed, "the stream of frames is broken");
    while ((code = next_frame(reader, &frame, err)) == 1) {
        if (ct_wire_shape_of(frame.type) != NULL) {
            *ret_frame = frame;
            break;
        }
        if (reader->skipped == 0)
            reader->skipped = frame.type;
    }
    return code;
}

void ct_frame_reader_note_sent(struct ct_frame_reader *reader, const struct ct_message *message)
{
    if (message->type == CT_MSG_HELLO)
        reader->protocol = CT_MIN(message->hello.protocol, (uint32_t)CT_WIRE_PROTOCOL);
}

void ct_frame_reader_note_received(struct ct_frame_reader *reader, const struct ct_message *message)
{
    if (message->type == CT_MSG_HELLO) {
        reader->protocol = CT_MIN(message->hello.protocol, (uint32_t)CT_WIRE_PROTOCOL);
        reader->newer = message->hello.protocol > CT_WIRE_PROTOCOL;
        reader->agreed = true;
    } else if (message->type == CT_MSG_WELCOME) {
        reader->protocol = CT_MIN(message->welcome.protocol, reader->protocol);
        reader->agreed = true;
    }
}

bool ct_frame_reader_inside(const struct ct_frame_reader *reader)
{
    return reader->buf.size > reader->start;
}
