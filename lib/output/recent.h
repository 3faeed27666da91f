/* The last lines of a node's workers, in a ring, for those who ask for them later.
 *
 *      put  ------------------------------------------------> the newest replaces the oldest
 *      | size rank stream text | size rank stream text | ...
 *                     ^ a cursor: which line it reads next; of one that is overtaken the lines
 *                       that it has missed are counted
 *
 * A line has a number, from 0 on, that never comes again. Putting costs the copying of the line.
 * Pure; one thread. */
#ifndef CT_OUTPUT_RECENT_H
#define CT_OUTPUT_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_recent;

struct ct_recent_line {
    uint64_t number;
    uint32_t rank;
    uint8_t stream;   /* enum ct_console_stream */
    const char *text; /* without newline; valid until the next line is put */
    size_t size;
};

/* What one reader has read. */
struct ct_recent_cursor {
    uint64_t at;     /* bytes ever put before its next line */
    uint64_t number; /* of its next line */
    uint64_t missed; /* lines that were overwritten before it read them */
};

/* Create for `bytes` (a power of two) of lines. NULL without memory. */
struct ct_recent *ct_recent_new(size_t bytes);
void ct_recent_free(struct ct_recent *recent);

/* Put a line; of one longer than half of the ring the rest is left out. */
void ct_recent_put(struct ct_recent *recent, uint32_t rank, uint8_t stream, const char *text,
                   size_t size);

/* Return a cursor in front of the last `lines` lines that are kept. */
struct ct_recent_cursor ct_recent_begin(const struct ct_recent *recent, uint64_t lines);

/* Return the line of the cursor in `*ret_line`; false: there is none yet. */
bool ct_recent_look(const struct ct_recent *recent, struct ct_recent_cursor *cursor,
                    struct ct_recent_line *ret_line);

/* Return how many lines the cursor has before it, those that are overwritten included. */
uint64_t ct_recent_behind(const struct ct_recent *recent, const struct ct_recent_cursor *cursor);

/* Go on to the line behind the one that ct_recent_look has just returned. */
void ct_recent_next(struct ct_recent_cursor *cursor, const struct ct_recent_line *line);

#endif
