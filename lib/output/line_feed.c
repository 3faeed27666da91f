/* See line_feed.h. */
#include "output/line_feed.h"

#include "base/assert.h"

struct ct_line_feed ct_line_feed_begin(const struct ct_recent *recent, uint64_t lines, int64_t rank)
{
    return (struct ct_line_feed){.cursor = ct_recent_begin(recent, lines), .rank = rank};
}

void ct_line_feed_grant(struct ct_line_feed *feed, uint64_t received, uint32_t window)
{
    feed->window = window;
    feed->sent = CT_MAX(feed->sent, received); /* a feed that was begun anew counts on */
    feed->granted = CT_MAX(feed->granted, received + window);
}

/* How much of `size` more bytes of a line may go now; a short line goes whole or not yet. 0: none;
 * `*ret_none` tells it from an empty line. */
static size_t allowed(const struct ct_line_feed *feed, size_t size, bool *ret_none)
{
    uint64_t left = feed->granted > feed->sent ? feed->granted - feed->sent : 0;
    uint64_t half = CT_MAX((uint64_t)feed->window / 2, (uint64_t)CT_LINE_FEED_COST + 1);

    *ret_none = false;
    if (size + CT_LINE_FEED_COST <= left)
        return size;
    if (size + CT_LINE_FEED_COST > half && left >= half)
        return (size_t)left - CT_LINE_FEED_COST;
    *ret_none = true;
    return 0;
}

/* The next line that is wanted. */
static bool look(struct ct_line_feed *feed, const struct ct_recent *recent,
                 struct ct_recent_line *ret_line)
{
    uint64_t number = feed->cursor.number;

    while (ct_recent_look(recent, &feed->cursor, ret_line)) {
        if (feed->cursor.number != number)
            feed->offset = 0; /* the line whose parts were under way is overwritten */
        if (feed->rank < 0 || feed->rank == (int64_t)ret_line->rank)
            return true;
        ct_recent_next(&feed->cursor, ret_line);
        number = feed->cursor.number;
    }
    return false;
}

uint32_t ct_line_feed_take(struct ct_line_feed *feed, const struct ct_recent *recent,
                           struct ct_fed_line *lines, uint32_t max, size_t bytes,
                           bool *ret_caught_up)
{
    uint32_t count = 0;
    size_t taken = 0;
    struct ct_recent_line line;

    *ret_caught_up = false;
    while (count < max && taken < bytes) {
        bool none;

        if (!look(feed, recent, &line)) {
            *ret_caught_up = true;
            break;
        }
        size_t part = allowed(feed, line.size - feed->offset, &none);
        if (none)
            break;
        bool more = feed->offset + part < line.size;
        lines[count] = (struct ct_fed_line){.line = line, .more = more};
        lines[count].line.text += feed->offset;
        lines[count++].line.size = part;
        feed->sent += part + CT_LINE_FEED_COST;
        taken += part + CT_LINE_FEED_COST;
        feed->offset = more ? feed->offset + part : 0;
        if (!more)
            ct_recent_next(&feed->cursor, &line);
    }
    return count;
}
