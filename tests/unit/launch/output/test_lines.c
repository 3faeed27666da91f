/* Lines of a worker's output. */
#include "output/lines.h"

#include "base/assert.h"

#include "base/str.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static struct ct_lines lines;
static struct ct_buf out;

static void set_up(void)
{
    ct_lines_init(&lines, &(struct ct_lines_origin){.prefix = "[0:3] ", .node = 0, .rank = 3});
    ct_buf_init(&out, 0);
}

static void tear_down(void)
{
    ct_lines_deinit(&lines);
    ct_buf_deinit(&out);
}

TestSuite(lines, .timeout = 10, .init = set_up, .fini = tear_down);

static void feed(const char *text)
{
    ct_lines_feed(&lines, text, strlen(text), &out);
}

static void assert_tail(size_t count, const char *expected)
{
    size_t size;
    const char *tail = ct_lines_tail(&lines, count, &size);

    cr_assert_eq(size, strlen(expected), "%zu bytes: %.*s", size, (int)size, tail);
    cr_assert_eq(memcmp(tail, expected, size), 0, "%.*s", (int)size, tail);
}

Test(lines, whole_lines_go_out_with_the_prefix)
{
    feed("a\nbc\n\n");
    cr_assert_str_eq(ct_buf_str(&out), "[0:3] a\n[0:3] bc\n[0:3] \n");
}

Test(lines, lines_that_match_are_kept_with_the_prefix)
{
    static const char *const texts[] = {"b"};
    static const struct ct_filter filter = {texts, 1};

    ct_lines_filter(&lines, &filter);
    lines.bare = true;
    feed("a\nabc\nB\nb");
    cr_assert_str_eq(ct_buf_str(&out), "a\nabc\nB\n");
    cr_assert_str_eq(ct_buf_str(&lines.matched), "[0:3] abc\n");
    ct_lines_end(&lines, NULL);
    cr_assert_str_eq(ct_buf_str(&lines.matched), "[0:3] abc\n[0:3] b\n");
}

Test(lines, a_line_in_pieces_goes_out_once)
{
    static const char text[] = "first line\nsecond \xc3\xa9 line\n";

    for (size_t i = 0; i + 1 < sizeof text; i++)
        ct_lines_feed(&lines, text + i, 1, &out);
    cr_assert_str_eq(ct_buf_str(&out), "[0:3] first line\n[0:3] second \xc3\xa9 line\n");
}

Test(lines, an_unfinished_line_is_finished_at_the_end)
{
    feed("done\nhalf");
    cr_assert_str_eq(ct_buf_str(&out), "[0:3] done\n");
    ct_lines_end(&lines, &out);
    cr_assert_str_eq(ct_buf_str(&out), "[0:3] done\n[0:3] half\n");
    ct_lines_end(&lines, &out);
    cr_assert_str_eq(ct_buf_str(&out), "[0:3] done\n[0:3] half\n", "the end comes once");
}

Test(lines, a_carriage_return_starts_the_line_over)
{
    feed("10%\r20%\r");
    feed("100%\n");
    feed("dos\r\nunix\n");
    feed("kept until something follows\r");
    ct_lines_end(&lines, &out);
    cr_assert_str_eq(ct_buf_str(&out), "[0:3] 100%\n[0:3] dos\n[0:3] unix\n"
                                       "[0:3] kept until something follows\n");
}

Test(lines, a_carriage_return_and_its_newline_may_come_apart)
{
    feed("dos\r");
    feed("\n");
    feed("x\r\r\n");
    cr_assert_str_eq(ct_buf_str(&out), "[0:3] dos\n[0:3] x\n");
}

Test(lines, bytes_that_are_no_text_pass)
{
    ct_lines_feed(&lines, "\0\xff\x1b\n", 4, &out);
    cr_assert_eq(out.size, 6u + 4u);
    cr_assert_eq(memcmp(out.data + 6, "\0\xff\x1b\n", 4), 0);
}

Test(lines, a_line_above_the_limit_goes_out_in_pieces)
{
    char chunk[1000];
    size_t sent = 0;

    memset(chunk, 'x', sizeof chunk);
    for (int i = 0; i < 70; i++, sent += sizeof chunk)
        ct_lines_feed(&lines, chunk, sizeof chunk, &out);
    feed("\n");
    size_t parts = 0;
    for (const char *at = out.data; at < out.data + out.size; parts++) {
        const char *newline = strchr(at, '\n');
        cr_assert_leq(newline - at, CT_LINE_MAX + 6);
        at = newline + 1;
    }
    cr_assert_eq(parts, (sent + CT_LINE_MAX - 1) / CT_LINE_MAX);
    cr_assert_eq(out.size, sent + parts * 7);
}

Test(lines, a_line_of_exactly_the_limit_is_one)
{
    char chunk[CT_LINE_MAX];

    memset(chunk, 'x', sizeof chunk);
    ct_lines_feed(&lines, chunk, sizeof chunk, &out);
    feed("\nnext\n");
    cr_assert_eq(out.size, 6u + CT_LINE_MAX + 1u + strlen("[0:3] next\n"));
}

Test(lines, the_last_lines_are_kept_without_prefix)
{
    assert_tail(3, "");
    feed("1\n2\n3\n4\nunfinished");
    assert_tail(2, "3\n4\n");
    assert_tail(0, "");
    assert_tail(99, "1\n2\n3\n4\n");
    ct_lines_end(&lines, &out);
    assert_tail(1, "unfinished\n");
}

Test(lines, lines_that_go_nowhere_are_still_kept)
{
    ct_lines_feed(&lines, "seen\n", 5, NULL);
    assert_tail(5, "seen\n");
}

Test(lines, the_tail_stays_small_and_begins_with_a_whole_line)
{
    char line[64];

    for (int i = 0; i < 5000; i++) {
        (void)snprintf(line, sizeof line, "line %04d\n", i);
        feed(line);
        ct_buf_clear(&out);
        cr_assert_leq(lines.tail.size, 2u * CT_TAIL_BYTES);
    }
    assert_tail(2, "line 4998\nline 4999\n");
    size_t size;
    const char *all = ct_lines_tail(&lines, SIZE_MAX, &size);
    cr_assert_eq(size % 10, 0u);
    cr_assert_geq(size, CT_TAIL_BYTES - 20u);
    cr_assert_eq(memcmp(all, "line ", 5), 0);
}

Test(lines, a_line_that_fits_but_for_its_newline_is_kept_whole)
{
    for (int i = 0; i < 2 * CT_TAIL_BYTES / 8 - 1; i++)
        feed("seven 7\n");
    feed("exactly8\nnext\n");
    assert_tail(2, "exactly8\nnext\n");
}

Test(lines, of_a_giant_line_the_end_is_kept)
{
    char chunk[3 * CT_TAIL_BYTES];

    memset(chunk, 'x', sizeof chunk);
    for (int i = 0; i < 5; i++) {
        ct_lines_feed(&lines, chunk, sizeof chunk, &out);
        feed("end\n");
    }
    size_t size;
    const char *tail = ct_lines_tail(&lines, 1, &size);
    cr_assert_eq(size, (size_t)CT_TAIL_BYTES);
    cr_assert_eq(memcmp(tail + size - 4, "end\n", 4), 0);
}

/* ---- records -------------------------------------------------------------------------------- */

Test(lines, with_records_each_line_is_one_object_with_node_rank_and_stream)
{
    ct_lines_record(&lines, "stdout", false);
    lines.wall_ns = 1700000000123000000u;
    feed("say \"hi\"\nhalf");
    ct_lines_end(&lines, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "{\"time\":\"2023-11-14T22:13:20.123Z\",\"kind\":\"output\",\"node\":0,"
                     "\"rank\":3,\"stream\":\"stdout\",\"text\":\"say \\\"hi\\\"\"}\n"
                     "{\"time\":\"2023-11-14T22:13:20.123Z\",\"kind\":\"output\",\"node\":0,"
                     "\"rank\":3,\"stream\":\"stdout\",\"text\":\"half\"}\n");
}

Test(lines, what_is_no_utf8_is_still_json_as_a_record)
{
    static const char bytes[] = "a\xff\0\xc3\xa9\xe2\x82\x1b[31m\x7f\xf0\x9f\x98\x80\n";
    json_t *root, *text;

    ct_lines_record(&lines, "stderr", false);
    ct_lines_feed(&lines, bytes, sizeof bytes - 1, &out);
    root = json_loadb(out.data, out.size, 0, NULL);
    text = json_object_get(root, "text");
    cr_assert_str_eq(json_string_value(text),
                     "a\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"
                     "\x1b[31m\x7f\xf0\x9f\x98\x80");
    json_decref(root);
}

Test(lines, a_record_of_our_own_program_goes_out_as_it_is_and_no_other_does)
{
    static const char record[] = "{\"time\":\"t\",\"kind\":\"log\",\"message\":\"m\"}\n";

    ct_lines_record(&lines, "stderr", true);
    feed(record);
    cr_assert_str_eq(ct_buf_str(&out), record);
    ct_buf_clear(&out);
    feed("{\"time\":broken}\n");
    cr_assert(ct_starts_with(ct_buf_str(&out), "{\"time\":\"1970"), "%s", ct_buf_str(&out));
    ct_buf_clear(&out);
    ct_lines_record(&lines, "stderr", false);
    feed(record);
    cr_assert_not_null(strstr(ct_buf_str(&out), "\"kind\":\"output\""));
}
