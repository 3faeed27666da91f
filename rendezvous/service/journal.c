/* Records with checksums, and the walk through them. */
#include "rendezvous/service/journal.h"

#include "base/number/hash.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

enum {
    MAGIC = 0x314a5443, /* "CTJ1" */
    AT_LENGTH = 4,
    AT_SEQ = 8,
    AT_PREVIOUS = 16,
    AT_CRC = 20,
};

static uint32_t crc_of(const unsigned char *record, size_t payload_size)
{
    uint32_t crc = ct_crc32c(0, record, AT_CRC);
    return ct_crc32c(crc, record + CT_JOURNAL_HEADER, payload_size);
}

void ct_journal_frame(struct ct_journal_tail *tail, const void *payload, size_t size,
                      struct ct_buf *out)
{
    unsigned char *record = ct_buf_reserve(out, CT_JOURNAL_HEADER + size);
    if (record == NULL)
        return;
    tail->seq++;
    ct_put_le32(record, MAGIC);
    ct_put_le32(record + AT_LENGTH, (uint32_t)size);
    ct_put_le64(record + AT_SEQ, tail->seq);
    ct_put_le32(record + AT_PREVIOUS, tail->crc);
    memcpy(record + CT_JOURNAL_HEADER, payload, size);
    tail->crc = crc_of(record, size);
    ct_put_le32(record + AT_CRC, tail->crc);
    out->size += CT_JOURNAL_HEADER + size;
}

/* A whole and sound record at `at`? Its payload's size. */
static bool is_record(const unsigned char *at, size_t left, size_t *ret_size)
{
    if (left < CT_JOURNAL_HEADER || ct_get_le32(at) != MAGIC)
        return false;
    size_t size = ct_get_le32(at + AT_LENGTH);
    if (size > CT_JOURNAL_RECORD_LIMIT || size > left - CT_JOURNAL_HEADER ||
        crc_of(at, size) != ct_get_le32(at + AT_CRC))
        return false;
    *ret_size = size;
    return true;
}

/* Is there a sound record anywhere in the bytes? Then what is before it was not torn but damaged.
 */
static bool has_record(const unsigned char *at, size_t left)
{
    size_t size;
    for (; left >= CT_JOURNAL_HEADER; at++, left--)
        if (is_record(at, left, &size))
            return true;
    return false;
}

int ct_journal_scan(const void *data, size_t size, ct_journal_each_fn each, void *context,
                    struct ct_journal_tail *ret_tail, size_t *ret_valid, struct ct_error *err)
{
    const unsigned char *bytes = data;
    struct ct_journal_tail tail = {0};
    size_t at = 0;
    size_t payload_size;
    while (is_record(bytes + at, size - at, &payload_size)) {
        const unsigned char *record = bytes + at;
        uint64_t seq = ct_get_le64(record + AT_SEQ);
        bool chained =
            at == 0 || (seq == tail.seq + 1 && ct_get_le32(record + AT_PREVIOUS) == tail.crc);
        if (!chained)
            return ct_error_set(err, CT_EDATA,
                                "record %" PRIu64 " at byte %zu does not follow "
                                "record %" PRIu64 ": part of the journal is missing",
                                seq, at, tail.seq);
        int rc = each(context, record + CT_JOURNAL_HEADER, payload_size, err);
        if (rc != 0)
            return rc;
        tail = (struct ct_journal_tail){.seq = seq, .crc = ct_get_le32(record + AT_CRC)};
        at += CT_JOURNAL_HEADER + payload_size;
    }
    if (at < size && has_record(bytes + at + 1, size - at - 1))
        return ct_error_set(err, CT_EDATA,
                            "the journal is damaged at byte %zu, behind record "
                            "%" PRIu64 ", and goes on after that",
                            at, tail.seq);
    *ret_tail = tail;
    *ret_valid = at;
    return 0;
}
