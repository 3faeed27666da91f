/* The last lines of a node (recent.h), and a reader's way through them (line_feed.h). */
#include "output/line_feed.h"
#include "output/recent.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 1024, ALL = -1 };

static struct ct_recent *recent;

static void set_up(void)
{
    recent = ct_recent_new(RING);
    cr_assert_not_null(recent);
}

static void tear_down(void)
{
    ct_recent_free(recent);
}

TestSuite(recent, .timeout = 10, .init = set_up, .fini = tear_down);

static void put(uint32_t rank, const char *text)
{
    ct_recent_put(recent, rank, 0, text, strlen(text));
}

static void put_numbered(uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        char text[32];

        (void)snprintf(text, sizeof text, "line %u", i);
        put(i % 4, text);
    }
}

/* The cursor's line is this one. */
static void assert_next(struct ct_recent_cursor *cursor, uint64_t number, const char *text)
{
    struct ct_recent_line line;

    cr_assert(ct_recent_look(recent, cursor, &line));
    cr_assert_eq(line.number, number, "%llu", (unsigned long long)line.number);
    cr_assert(line.size == strlen(text) && memcmp(line.text, text, line.size) == 0, "%.*s",
              (int)line.size, line.text);
    ct_recent_next(cursor, &line);
}

static void assert_none(struct ct_recent_cursor *cursor)
{
    struct ct_recent_line line;

    cr_assert_not(ct_recent_look(recent, cursor, &line));
}

Test(recent, lines_come_in_order_and_a_reader_waits_for_the_next)
{
    struct ct_recent_cursor cursor = ct_recent_begin(recent, UINT64_MAX);

    assert_none(&cursor);
    put(3, "one");
    put(4, "");
    assert_next(&cursor, 0, "one");
    assert_next(&cursor, 1, "");
    assert_none(&cursor);
    put(3, "three");
    assert_next(&cursor, 2, "three");
    cr_assert_eq(cursor.missed, 0);
}

Test(recent, a_reader_may_begin_with_the_last_lines_only)
{
    put_numbered(0, 10);
    struct ct_recent_cursor cursor = ct_recent_begin(recent, 2);
    assert_next(&cursor, 8, "line 8");
    assert_next(&cursor, 9, "line 9");
    cursor = ct_recent_begin(recent, 0);
    assert_none(&cursor);
    put(0, "new");
    assert_next(&cursor, 10, "new");
    cr_assert_eq(cursor.missed, 0, "what he did not want is not missed");
}

Test(recent, what_is_overwritten_before_it_is_read_is_counted)
{
    struct ct_recent_cursor cursor = ct_recent_begin(recent, UINT64_MAX), again;
    struct ct_recent_line line;
    uint64_t read = 0;

    put_numbered(0, 5);
    assert_next(&cursor, 0, "line 0");
    put_numbered(5, 1000);
    for (; ct_recent_look(recent, &cursor, &line); read++)
        ct_recent_next(&cursor, &line);
    cr_assert_eq(cursor.missed + read, 1004);
    cr_assert(read > 10 && read < 100, "%llu", (unsigned long long)read);
    again = ct_recent_begin(recent, UINT64_MAX);
    for (read = 0; ct_recent_look(recent, &again, &line); read++)
        ct_recent_next(&again, &line);
    cr_assert_eq(cursor.missed + read, 1004, "the ring holds what he got");
}

/* Lines of all lengths, read by readers of all speeds, against a list of them. */
Test(recent, any_lines_come_whole_or_are_counted)
{
    enum { LINES = 20000, READERS = 3 };
    struct ct_recent_cursor cursors[READERS];
    uint64_t read[READERS] = {0};
    static unsigned char lengths[LINES];
    char text[700];

    srand(7);
    for (size_t i = 0; i < READERS; i++)
        cursors[i] = ct_recent_begin(recent, UINT64_MAX);
    for (uint32_t n = 0; n < LINES; n++) {
        size_t size = (size_t)rand() % (rand() % 10 == 0 ? 256 : 40);

        lengths[n] = (unsigned char)size;
        memset(text, 'a' + (int)(n % 26), size);
        ct_recent_put(recent, n % 5, (uint8_t)(n % 2), text, size);
        for (size_t i = 0; i < READERS; i++) {
            struct ct_recent_line line;

            for (int k = rand() % (int)(i + 2); k > 0 && ct_recent_look(recent, &cursors[i], &line);
                 k--) {
                cr_assert(line.size == lengths[line.number] && line.rank == line.number % 5 &&
                          line.stream == line.number % 2);
                for (size_t at = 0; at < line.size; at++)
                    cr_assert_eq(line.text[at], 'a' + (int)(line.number % 26));
                cr_assert_eq(line.number, read[i] + cursors[i].missed);
                read[i]++;
                ct_recent_next(&cursors[i], &line);
            }
        }
    }
    cr_assert(cursors[0].missed > 0 && read[0] > LINES / 10);
}

Test(recent, of_a_line_longer_than_half_of_the_ring_the_begin_is_kept)
{
    char text[2 * RING];
    struct ct_recent_cursor cursor = ct_recent_begin(recent, UINT64_MAX);
    struct ct_recent_line line;

    memset(text, 'x', sizeof text);
    for (int i = 0; i < 5; i++)
        ct_recent_put(recent, 0, 0, text, sizeof text);
    cr_assert(ct_recent_look(recent, &cursor, &line));
    cr_assert(line.size > RING / 3 && line.size < RING / 2);
}

/* ---- feeds ---------------------------------------------------------------------------------- */

/* What it takes, as "0:line 0 1:line 1", with "+" behind a part. */
static const char *take(struct ct_line_feed *feed, size_t bytes, bool *ret_caught_up)
{
    static char text[4096];
    struct ct_fed_line lines[64];
    size_t used = 0;
    uint32_t count = ct_line_feed_take(feed, recent, lines, 64, bytes, ret_caught_up);

    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%u:%.*s%s", i > 0 ? " " : "",
                                 (unsigned)lines[i].line.number, (int)lines[i].line.size,
                                 lines[i].line.text, lines[i].more ? "+" : "");
    return text;
}

Test(recent, a_feed_sends_no_more_than_its_window)
{
    struct ct_line_feed feed = ct_line_feed_begin(recent, UINT64_MAX, ALL);
    bool caught_up;

    put_numbered(0, 5);
    cr_assert_str_eq(take(&feed, RING, &caught_up), "");
    cr_assert_not(caught_up);
    ct_line_feed_grant(&feed, 0, 50); /* two lines of 6 + 16 bytes */
    cr_assert_str_eq(take(&feed, RING, &caught_up), "0:line 0 1:line 1");
    cr_assert_str_eq(take(&feed, RING, &caught_up), "");
    ct_line_feed_grant(&feed, 22, 50); /* the first has come */
    cr_assert_str_eq(take(&feed, RING, &caught_up), "2:line 2");
    ct_line_feed_grant(&feed, 0, 50); /* an old word changes nothing */
    cr_assert_str_eq(take(&feed, RING, &caught_up), "");
    ct_line_feed_grant(&feed, 66, 50);
    cr_assert_str_eq(take(&feed, RING, &caught_up), "3:line 3 4:line 4");
    cr_assert_str_eq(take(&feed, RING, &caught_up), "");
    cr_assert(caught_up);
}

Test(recent, a_feed_takes_a_message_at_a_time_and_one_rank_alone_if_that_is_wanted)
{
    struct ct_line_feed feed = ct_line_feed_begin(recent, UINT64_MAX, 1);
    bool caught_up;

    put_numbered(0, 16);
    ct_line_feed_grant(&feed, 0, 4096);
    cr_assert_str_eq(take(&feed, 40, &caught_up), "1:line 1 5:line 5");
    cr_assert_not(caught_up);
    cr_assert_str_eq(take(&feed, 400, &caught_up), "9:line 9 13:line 13");
    cr_assert(caught_up);
}

Test(recent, a_line_longer_than_the_window_goes_in_parts_and_a_short_one_waits)
{
    struct ct_line_feed feed = ct_line_feed_begin(recent, UINT64_MAX, ALL);
    bool caught_up;

    put(0, "abc");
    put(0, "0123456789012345678901234567890123456789"); /* 56 bytes with its cost */
    ct_line_feed_grant(&feed, 0, 40);
    cr_assert_str_eq(take(&feed, RING, &caught_up), "0:abc 1:01234+");
    cr_assert_eq(feed.sent, 40);
    ct_line_feed_grant(&feed, 40, 40);
    cr_assert_str_eq(take(&feed, RING, &caught_up), "1:567890123456789012345678+");
    ct_line_feed_grant(&feed, 80, 40);
    cr_assert_str_eq(take(&feed, RING, &caught_up), "1:90123456789");
    put(0, "a line of twenty, ok");
    cr_assert_str_eq(take(&feed, RING, &caught_up), "", "it fits the window, but not now");
    ct_line_feed_grant(&feed, feed.sent, 80);
    cr_assert_str_eq(take(&feed, RING, &caught_up), "2:a line of twenty, ok");
}

Test(recent, a_feed_that_was_forgotten_counts_on_from_what_its_reader_has)
{
    struct ct_line_feed feed = ct_line_feed_begin(recent, UINT64_MAX, ALL);
    bool caught_up;

    put_numbered(0, 40);
    ct_line_feed_grant(&feed, 1000000, 50);
    cr_assert_str_eq(take(&feed, RING, &caught_up), "8:line 8 9:line 9");
    cr_assert_str_eq(take(&feed, RING, &caught_up), "");
}
