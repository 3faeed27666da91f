/* Lines of a worker's output stream: whole lines with a prefix, and the last of them kept.
 *
 *   pipe bytes:   "epo" "ch 1\nepoch 2\n" "half a li"           <end of stream>
 *   out:                "[0:3] epoch 1\n[0:3] epoch 2\n"        "[0:3] half a li\n"
 *
 * A line longer than CT_LINE_MAX is written in parts, each a line of its own. A carriage return not
 * followed by a newline starts the line over, as it does on a terminal: of a progress bar the last
 * state remains. Bytes are passed on as they are, or each line as a record of the JSON log
 * (base/record.h). Pure; one instance a stream. */
#ifndef CT_OUTPUT_LINES_H
#define CT_OUTPUT_LINES_H

#include "base/bytes.h"
#include "output/filter.h"
#include "output/recent.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_LINE_MAX = 32 * 1024, /* bytes of a line, without prefix and newline */
    CT_LINE_PREFIX = 256,    /* room for the prefix */
    CT_TAIL_BYTES = 4096,    /* of the last lines that are kept */
};

/* The origin of the lines. */
struct ct_lines_origin {
    const char *prefix; /* goes in front of every line; cut to CT_LINE_PREFIX - 1 bytes */
    int node, rank;
};

struct ct_lines {
    char prefix[CT_LINE_PREFIX];
    int node, rank;
    const char *stream; /* lines are records, of the stream of this name; NULL: text */
    bool has_records;   /* a line that is a record already goes out as it is */
    uint64_t wall_ns;   /* the time that records tell; the user sets it */
    struct ct_buf line; /* the line so far */
    struct ct_buf tail; /* whole lines, without prefix */
    bool returned;      /* the last byte was a carriage return */
    bool bare;          /* lines go out without the prefix */

    struct ct_recent *recent; /* gets whole lines without prefix as well; NULL: none */
    uint8_t recent_stream;    /* what they are of */

    const struct ct_filter *filter; /* of lines that are wanted twice; NULL: none */
    struct ct_buf matched;          /* those, with prefix; the user empties it */
};

void ct_lines_init(struct ct_lines *lines, const struct ct_lines_origin *origin);

/* Change the origin of the lines from now on. */
void ct_lines_rename(struct ct_lines *lines, const struct ct_lines_origin *origin);

/* Write lines as records of `stream` ("stdout", a literal). With `has_records` the stream is that
 * of a program of ours, whose own records are forwarded. Files of a filter stay text. */
void ct_lines_record(struct ct_lines *lines, const char *stream, bool has_records);
void ct_lines_deinit(struct ct_lines *lines);

/* Append lines that match `filter` (which must live as long) to `matched` as well, always with the
 * prefix. */
void ct_lines_filter(struct ct_lines *lines, const struct ct_filter *filter);

/* Take `size` bytes of the stream and append the lines that are complete to `out`, or only remember
 * them when `out` is NULL. Without memory, output is lost and `out->failed` is set. */
void ct_lines_feed(struct ct_lines *lines, const char *data, size_t size, struct ct_buf *out);

/* End the stream: an unfinished line is completed. */
void ct_lines_end(struct ct_lines *lines, struct ct_buf *out);

/* Return the last `count` complete lines (fewer when CT_TAIL_BYTES held fewer), each with its
 * newline; a view until the next call. */
const char *ct_lines_tail(const struct ct_lines *lines, size_t count, size_t *ret_size);

#endif
