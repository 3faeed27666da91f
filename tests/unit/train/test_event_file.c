/* TensorBoard's format: frames with known checksums, messages byte by byte. */
#include "train/event_file.h"

#include "base/number/hash.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(event_file, .timeout = 30);

Test(event_file, crc_masking_is_that_of_tfrecord)
{
    /* crc32c("123456789") = 0xe3069283; masked by rotation and a constant. */
    cr_assert_eq(ct_crc32c(0, "123456789", 9), 0xe3069283u);
    cr_assert_eq(ct_event_mask_crc(0xe3069283u), 0xc78ab0e5u);
    cr_assert_eq(ct_event_mask_crc(0), 0xa282ead8u);
}

/* Check the frame around the first record and return its message. */
static struct ct_buf unframe(struct ct_buf *file)
{
    struct ct_buf message;

    ct_buf_init(&message, 0);
    cr_assert_geq(file->size, 16);
    size_t size = ct_get_le64(file->data);
    cr_assert_leq(size + 16, file->size);
    cr_assert_eq(ct_get_le32(file->data + 8), ct_event_mask_crc(ct_crc32c(0, file->data, 8)));
    cr_assert_eq(ct_get_le32(file->data + 12 + size),
                 ct_event_mask_crc(ct_crc32c(0, file->data + 12, size)));
    cr_assert_eq(ct_buf_append(&message, file->data + 12, size), 0);
    ct_buf_consume(file, size + 16);
    return message;
}

Test(event_file, messages_are_the_protobuf_of_events)
{
    static const struct ct_event_scalar scalars[] = {{"train/loss", 0.5f}, {"train/lr", 1.0f}};
    /* 1.5 as a little-endian double, in field 1. */
    static const char version[] = "\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
                                  "brain.Event:2";
    static const char start[] = "\x09\0\0\0\0\0\0\xf8\x3f\x10\x81\x02\x3a\x02\x08\x01";
    static const char values[] = "\x09\0\0\0\0\0\0\xf8\x3f\x10\xac\x02\x2a\x24\x0a\x11\x0a\x0a"
                                 "train/loss\x15\0\0\0\x3f\x0a\x0f\x0a\x08"
                                 "train/lr\x15\0\0\x80\x3f";
    static const struct {
        const char *bytes;
        size_t size;
    } want[] = {
        {version, sizeof version - 1}, {start, sizeof start - 1}, {values, sizeof values - 1}};
    struct ct_buf file;

    ct_buf_init(&file, 0);
    cr_assert_eq(ct_event_version(&file, 1.5), 0);
    cr_assert_eq(ct_event_start(&file, 1.5, 257), 0);
    cr_assert_eq(ct_event_scalars(&file, 1.5, 300, scalars, 2), 0);
    for (size_t i = 0; i < 3; i++) {
        struct ct_buf message = unframe(&file);
        cr_assert_eq(message.size, want[i].size, "record %zu", i);
        cr_assert_eq(memcmp(message.data, want[i].bytes, message.size), 0, "record %zu", i);
        ct_buf_deinit(&message);
    }
    cr_assert_eq(file.size, 0);
    ct_buf_deinit(&file);
}
