/* See event_file.h. A message is built in a scratch buffer and framed into the caller's. */
#include "train/event_file.h"

#include "base/number/hash.h"

#include <string.h>

/* Field numbers of the protobuf messages, and their wire types. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7
};
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(struct ct_buf *buf, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;

    do {
        bytes[count] = (unsigned char)(value & 0x7f);
        value >>= 7;
        bytes[count] |= value != 0 ? 0x80 : 0;
        count++;
    } while (value != 0);
    (void)ct_buf_append(buf, bytes, count);
}

static void put_key(struct ct_buf *buf, unsigned field, unsigned type)
{
    put_varint(buf, field << 3 | type);
}

static void put_int(struct ct_buf *buf, unsigned field, uint64_t value)
{
    put_key(buf, field, VARINT);
    put_varint(buf, value);
}

static void put_double(struct ct_buf *buf, unsigned field, double value)
{
    uint64_t bits;
    char bytes[8];

    memcpy(&bits, &value, sizeof bits);
    ct_put_le64(bytes, bits);
    put_key(buf, field, FIXED64);
    (void)ct_buf_append(buf, bytes, sizeof bytes);
}

static void put_float(struct ct_buf *buf, unsigned field, float value)
{
    uint32_t bits;
    char bytes[4];

    memcpy(&bits, &value, sizeof bits);
    ct_put_le32(bytes, bits);
    put_key(buf, field, FIXED32);
    (void)ct_buf_append(buf, bytes, sizeof bytes);
}

static void put_bytes(struct ct_buf *buf, unsigned field, const void *data, size_t size)
{
    put_key(buf, field, BYTES);
    put_varint(buf, size);
    (void)ct_buf_append(buf, data, size);
}

uint32_t ct_event_mask_crc(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Frame `message` into `buf` and free it. */
static int put_record(struct ct_buf *buf, struct ct_buf *message)
{
    char head[12], tail[4];

    ct_put_le64(head, message->size);
    ct_put_le32(head + 8, ct_event_mask_crc(ct_crc32c(0, head, 8)));
    ct_put_le32(tail, ct_event_mask_crc(ct_crc32c(0, message->data, message->size)));
    (void)ct_buf_append(buf, head, sizeof head);
    (void)ct_buf_append(buf, message->data, message->size);
    (void)ct_buf_append(buf, tail, sizeof tail);
    bool failed = buf->failed || message->failed;
    ct_buf_deinit(message);
    return failed ? CT_ENOMEM : 0;
}

static void begin_event(struct ct_buf *event, double wall_s, uint64_t step)
{
    ct_buf_init(event, 0);
    put_double(event, EVENT_WALL_TIME, wall_s);
    if (step != 0)
        put_int(event, EVENT_STEP, step);
}

int ct_event_version(struct ct_buf *buf, double wall_s)
{
    static const char version[] = "brain.Event:2";
    struct ct_buf event;

    begin_event(&event, wall_s, 0);
    put_bytes(&event, EVENT_VERSION, version, sizeof version - 1);
    return put_record(buf, &event);
}

int ct_event_start(struct ct_buf *buf, double wall_s, uint64_t step)
{
    static const char session[] = {SESSION_STATUS << 3 | VARINT, SESSION_START};
    struct ct_buf event;

    begin_event(&event, wall_s, step);
    put_bytes(&event, EVENT_SESSION, session, sizeof session);
    return put_record(buf, &event);
}

int ct_event_scalars(struct ct_buf *buf, double wall_s, uint64_t step,
                     const struct ct_event_scalar *scalars, size_t count)
{
    struct ct_buf event, summary, value;

    ct_buf_init(&summary, 0);
    ct_buf_init(&value, 0);
    for (size_t i = 0; i < count; i++) {
        ct_buf_clear(&value);
        put_bytes(&value, VALUE_TAG, scalars[i].tag, strlen(scalars[i].tag));
        put_float(&value, VALUE_SIMPLE, scalars[i].value);
        put_bytes(&summary, SUMMARY_VALUE, value.data, value.size);
    }
    begin_event(&event, wall_s, step);
    put_bytes(&event, EVENT_SUMMARY, summary.data, summary.size);
    event.failed = event.failed || summary.failed || value.failed;
    ct_buf_deinit(&value);
    ct_buf_deinit(&summary);
    return put_record(buf, &event);
}
