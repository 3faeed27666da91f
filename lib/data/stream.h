/* A stream of bytes with a name and a limit: a file (gzip or plain, by its content) or memory.
 *
 * Sources read through this, so that tests and fuzzers give them bytes without a file
 * (tests/lib/memory_stream.h). */
#ifndef CT_DATA_STREAM_H
#define CT_DATA_STREAM_H

#include "base/bytes.h"
#include "base/error.h"

#include <stddef.h>

struct ct_stream {
    const char *name; /* for messages; borrowed */
    size_t limit;     /* unpacked bytes it may give */
    size_t given;
    void *gz;           /* a file, owned */
    const char *memory; /* or bytes, borrowed */
    size_t memory_size;
};

/* Open a regular file, plain or gzip. CT_ENOINPUT with the reason. */
int ct_stream_open(struct ct_stream *stream, const char *path, size_t limit, struct ct_error *err);

void ct_stream_close(struct ct_stream *stream);

/* Read up to `room` bytes into `to`; fewer only at the end, where *ret_size may be 0. CT_EDATA for
 * a damaged or cut gzip stream, CT_ENOINPUT for a file that cannot be read, CT_ELIMIT. */
int ct_stream_read(struct ct_stream *stream, void *to, size_t room, size_t *ret_size,
                   struct ct_error *err);

/* Append the rest of the stream to `into`; the errors above, or CT_ENOMEM. */
int ct_stream_read_all(struct ct_stream *stream, struct ct_buf *into, struct ct_error *err);

#endif
