/* One reader's way through a node's last lines (recent.h): what it wants, and how much it takes.
 *
 *      reader: "so much has come, my window is so large" --> granted        sent <= granted, always
 *      recent lines ---------- take ----> its next lines, as far as the grant goes
 *
 * As in TCP, what is under way never exceeds the reader's window, however slow it is; what is
 * overwritten meanwhile counts as missed. A line longer than half of the window goes in parts.
 * Pure. */
#ifndef CT_OUTPUT_LINE_FEED_H
#define CT_OUTPUT_LINE_FEED_H

#include "output/recent.h"

enum { CT_LINE_FEED_COST = 16 }; /* bytes that a line counts beside its text */

struct ct_line_feed {
    struct ct_recent_cursor cursor;
    size_t offset;          /* of the cursor's line, bytes that have gone already */
    uint64_t granted, sent; /* bytes since the beginning: of text, and CT_LINE_FEED_COST a line */
    uint32_t window;
    int64_t rank; /* whose lines are wanted; -1: those of all */
};

struct ct_fed_line {
    struct ct_recent_line line; /* or a part of it */
    bool more;                  /* another part follows */
};

/* Begin in front of the last `lines` lines, without a grant. */
struct ct_line_feed ct_line_feed_begin(const struct ct_recent *recent, uint64_t lines,
                                       int64_t rank);

/* The reader has received what had been sent when `sent` was `received`. */
void ct_line_feed_grant(struct ct_line_feed *feed, uint64_t received, uint32_t window);

/* Take the next lines, `max` at most and no more than `bytes` of text but for the first; returns
 * how many. `*ret_caught_up`: nothing is left that waits for the reader. */
uint32_t ct_line_feed_take(struct ct_line_feed *feed, const struct ct_recent *recent,
                           struct ct_fed_line *lines, uint32_t max, size_t bytes,
                           bool *ret_caught_up);

#endif
