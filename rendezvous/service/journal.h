/* The journal as bytes: consecutive records, each with a checksum and chained to the one before.
 *
 *      +-------+--------+-----+----------+--------+---------+
 *      | magic | length | seq | previous | CRC32C | payload |  magic ... CRC: 24 bytes, LE
 *      |  u32  |  u32   | u64 | CRC  u32 |  u32   |         |  CRC over all but itself
 *      +-------+--------+-----+----------+--------+---------+
 *
 * A crash may leave the last record torn: its effect was never sent, so it is truncated. A bad
 * record with good ones behind it is damage, and is refused. Pure; journal_file.h has the file. */
#ifndef CT_RENDEZVOUS_SERVICE_JOURNAL_H
#define CT_RENDEZVOUS_SERVICE_JOURNAL_H

#include "base/bytes.h"
#include "base/error.h"

enum { CT_JOURNAL_HEADER = 24, CT_JOURNAL_RECORD_LIMIT = 16 << 20 };

/* The state that the next record continues; zeroed for an empty journal. */
struct ct_journal_tail {
    uint64_t seq;
    uint32_t crc;
};

/* Append `payload` as a record to `out` and advance `tail`. Sets `out->failed` without memory. */
void ct_journal_frame(struct ct_journal_tail *tail, const void *payload, size_t size,
                      struct ct_buf *out);

/* Called with each payload in order; an error ends the scan. */
typedef int (*ct_journal_each_fn)(void *context, const void *payload, size_t size,
                                  struct ct_error *err);

/* Scan `size` bytes. 0 with `ret_valid`, the bytes of whole records (the rest is a torn tail), and
 * the tail that the next record continues; CT_EDATA with the sentence for damage; or the error of
 * `each`. */
int ct_journal_scan(const void *data, size_t size, ct_journal_each_fn each, void *context,
                    struct ct_journal_tail *ret_tail, size_t *ret_valid, struct ct_error *err);

#endif
