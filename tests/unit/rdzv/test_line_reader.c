/* An operator's end of the stream of all workers' lines (line_reader.h), against a rendezvous and
 * nodes that answer as they are told to. */
#include "rendezvous/client/line_reader.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/error.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 8 << 20 };

static struct ct_line_reader *reader;
static struct ct_buf seen; /* "0:text " a line, "!host " for missed ones, "?host " for absent */
static uint64_t now_ms = 1000;

static void on_line(void *context, const struct ct_read_line *line)
{
    (void)context;
    (void)ct_buf_printf(&seen, "%u:%.*s ", line->rank, (int)line->size, line->text);
}

static void on_missed(void *context, const char *host, uint64_t count)
{
    (void)context;
    (void)ct_buf_printf(&seen, "!%s:%llu ", host, (unsigned long long)count);
}

static void on_absent(void *context, const char *host, const char *why)
{
    (void)context, (void)why;
    (void)ct_buf_printf(&seen, "?%s ", host);
}

static void begin(bool follow, int64_t rank, int64_t node)
{
    const struct ct_line_reader_options options = {.rank = rank,
                                                   .node = node,
                                                   .tail = 100,
                                                   .bytes = BYTES,
                                                   .follow = follow,
                                                   .on_line = on_line,
                                                   .on_missed = on_missed,
                                                   .on_absent = on_absent};
    ct_buf_init(&seen, 0);
    reader = ct_line_reader_new(&options);
    cr_assert_not_null(reader);
}

static void end(void)
{
    ct_line_reader_free(reader);
    ct_buf_deinit(&seen);
}

TestSuite(line_reader, .timeout = 20, .fini = end);

static bool receive(const struct ct_message *message)
{
    return ct_line_reader_receive(reader, now_ms, message);
}

/* A round of `count` nodes with two ranks each, whose agents are `first`, `first` + 1, ... */
static bool tell_round(uint64_t generation, uint64_t first, uint32_t count)
{
    struct ct_wire_node nodes[CT_WIRE_PART];
    static char hosts[CT_WIRE_PART][16];
    bool over = false;

    for (uint32_t at = 0; at < count; at += CT_WIRE_PART) {
        uint32_t part = CT_MIN(count - at, (uint32_t)CT_WIRE_PART);

        for (uint32_t i = 0; i < part; i++) {
            (void)snprintf(hosts[i], sizeof hosts[i], "h%u", (unsigned)(first + at + i));
            nodes[i] = (struct ct_wire_node){.index = at + i,
                                             .incarnation = {first + at + i, 1},
                                             .host = hosts[i],
                                             .address = "",
                                             .role = "",
                                             .slots = 2,
                                             .first_rank = 2 * (at + i)};
        }
        over = receive(&(struct ct_message){.type = CT_MSG_ROUND,
                                            .round = {.generation = generation,
                                                      .world = 2 * count,
                                                      .node_count = count,
                                                      .first = at,
                                                      .nodes = {nodes, part}}});
    }
    return over;
}

/* One line of an agent, or (NULL) none. */
static bool tell_line(uint64_t agent, struct ct_msg_lines lines, const char *text,
                      struct ct_wire_line line)
{
    if (text != NULL) {
        line.text = (struct ct_bytes){(const unsigned char *)text, strlen(text)};
        lines.lines.data = &line;
        lines.lines.count = 1;
    }
    lines.incarnation = (struct ct_id){agent, 1};
    return receive(&(struct ct_message){.type = CT_MSG_LINES, .lines = lines});
}

static struct ct_msg_lines_query next_query(void)
{
    struct ct_message message;

    cr_assert(ct_line_reader_next(reader, &message) && message.type == CT_MSG_LINES_QUERY);
    return message.lines_query;
}

static void assert_no_query(void)
{
    struct ct_message message;

    cr_assert_not(ct_line_reader_next(reader, &message));
}

static void assert_seen(const char *expected)
{
    cr_assert_str_eq(ct_buf_str(&seen), expected);
    ct_buf_clear(&seen);
}

static void begin_two_nodes(bool follow)
{
    begin(follow, -1, -1);
    cr_assert_eq(next_query().generation, 0);
    assert_no_query();
    cr_assert_not(tell_round(3, 10, 2));
    struct ct_msg_lines_query query = next_query();
    cr_assert(query.generation == 3 && query.first == 0 && query.count == 2 && query.tail == 100 &&
              query.received == 0 && query.window == CT_LINE_READER_WINDOW && query.rank == -1);
    assert_no_query();
}

Test(line_reader, without_follow_it_ends_when_every_node_has_sent_what_it_has)
{
    begin_two_nodes(false);
    cr_assert_not(tell_line(10, (struct ct_msg_lines){.generation = 3, .sent = 17}, "a",
                            (struct ct_wire_line){.rank = 1}));
    cr_assert_not(
        tell_line(11, (struct ct_msg_lines){.caught_up = 1}, NULL, (struct ct_wire_line){0}));
    cr_assert(tell_line(10, (struct ct_msg_lines){.sent = 34, .caught_up = 1}, "b",
                        (struct ct_wire_line){.number = 1}));
    assert_seen("1:a 0:b ");
}

Test(line_reader, a_node_is_told_what_has_come_when_half_of_its_window_has)
{
    begin_two_nodes(true);
    uint64_t half = CT_LINE_READER_WINDOW / 2;
    (void)tell_line(11, (struct ct_msg_lines){.sent = half - 1}, "a", (struct ct_wire_line){0});
    assert_no_query();
    (void)tell_line(11, (struct ct_msg_lines){.sent = half}, "b",
                    (struct ct_wire_line){.number = 1});
    struct ct_msg_lines_query query = next_query();
    cr_assert(query.first == 1 && query.count == 1 && query.received == half);
    assert_no_query();
}

Test(line_reader, all_windows_together_are_bounded)
{
    begin(true, -1, -1);
    (void)next_query();
    (void)tell_round(1, 0, 10000);
    uint64_t all = (uint64_t)next_query().window * 10000;
    cr_assert(all > BYTES / 2 && all <= BYTES);
}

Test(line_reader, missed_lines_and_absent_nodes_are_told)
{
    begin_two_nodes(false);
    (void)tell_line(10, (struct ct_msg_lines){.missed = 5}, "a",
                    (struct ct_wire_line){.number = 5});
    (void)tell_line(10, (struct ct_msg_lines){.missed = 5, .caught_up = 1}, "b",
                    (struct ct_wire_line){.number = 6});
    cr_assert(tell_line(11, (struct ct_msg_lines){.code = CT_EUNAVAILABLE}, NULL,
                        (struct ct_wire_line){0}));
    assert_seen("!h10:5 0:a 0:b ?h11 ");
}

Test(line_reader, what_a_node_had_not_sent_at_the_end_of_the_job_is_missed)
{
    begin_two_nodes(true);
    (void)tell_line(10, (struct ct_msg_lines){.behind = 3}, "a", (struct ct_wire_line){0});
    (void)tell_line(11, (struct ct_msg_lines){.behind = 2}, "b", (struct ct_wire_line){.rank = 2});
    (void)tell_line(11, (struct ct_msg_lines){.caught_up = 1}, NULL, (struct ct_wire_line){0});
    ct_line_reader_end(reader);
    assert_seen("0:a 2:b !h10:3 ");
}

Test(line_reader, a_node_that_says_nothing_is_waited_for_three_seconds)
{
    begin_two_nodes(false);
    (void)tell_line(10, (struct ct_msg_lines){.caught_up = 1}, "a", (struct ct_wire_line){0});
    now_ms += CT_LINE_READER_ANSWER_MS - 1;
    cr_assert_not(receive(NULL));
    now_ms += 1;
    cr_assert(receive(NULL));
    assert_seen("0:a ?h11 ");
}

Test(line_reader, the_parts_of_a_line_are_one_and_what_is_cut_off_is_dropped)
{
    begin_two_nodes(true);
    (void)tell_line(10, (struct ct_msg_lines){0}, "one ", (struct ct_wire_line){.more = 1});
    (void)tell_line(11, (struct ct_msg_lines){0}, "other", (struct ct_wire_line){.rank = 2});
    (void)tell_line(10, (struct ct_msg_lines){0}, "two", (struct ct_wire_line){0});
    (void)tell_line(10, (struct ct_msg_lines){0}, "begun",
                    (struct ct_wire_line){.number = 1, .more = 1});
    (void)tell_line(10, (struct ct_msg_lines){.missed = 8}, "next",
                    (struct ct_wire_line){.number = 9});
    assert_seen("2:other 0:one two !h10:8 0:next ");
}

Test(line_reader, in_another_round_the_nodes_that_stay_go_on_and_new_ones_begin)
{
    begin_two_nodes(true);
    (void)tell_line(11, (struct ct_msg_lines){.generation = 3, .sent = 400}, "a",
                    (struct ct_wire_line){.number = 7, .rank = 2});
    (void)tell_line(11, (struct ct_msg_lines){.generation = 4, .sent = 420}, "b",
                    (struct ct_wire_line){.number = 8, .rank = 0});
    cr_assert_eq(next_query().generation, 0, "a node speaks of a round that is not known");
    (void)tell_round(4, 11, 2);
    struct ct_msg_lines_query query = next_query();
    cr_assert(query.generation == 4 && query.count == 2 && query.received == 0);
    query = next_query();
    cr_assert(query.first == 0 && query.count == 1 && query.received == 420);
    assert_no_query();
    (void)tell_line(10, (struct ct_msg_lines){.generation = 3}, "late",
                    (struct ct_wire_line){.number = 1});
    assert_seen("2:a 0:b ");
}

Test(line_reader, over_a_new_connection_no_line_comes_twice)
{
    begin_two_nodes(true);
    (void)tell_line(10, (struct ct_msg_lines){.sent = 900000}, "a",
                    (struct ct_wire_line){.number = 4});
    ct_line_reader_again(reader);
    cr_assert_eq(next_query().generation, 0);
    (void)tell_round(3, 10, 2);
    cr_assert_eq(next_query().received, 0);
    assert_no_query(); /* the node counts anew */
    (void)tell_line(10, (struct ct_msg_lines){.sent = 17}, "a", (struct ct_wire_line){.number = 4});
    (void)tell_line(10, (struct ct_msg_lines){.sent = 34}, "b", (struct ct_wire_line){.number = 5});
    assert_seen("0:a 0:b ");
}

Test(line_reader, it_asks_for_a_new_round_each_second_and_gives_nodes_a_sign_of_life_every_ten)
{
    begin_two_nodes(true);
    (void)tell_line(10, (struct ct_msg_lines){0}, "a", (struct ct_wire_line){0});
    now_ms += CT_LINE_READER_PING_MS - 1;
    (void)receive(NULL);
    assert_no_query();
    now_ms += 1;
    (void)receive(NULL);
    cr_assert_eq(next_query().count, 0, "whether there is another round");
    assert_no_query();
    now_ms += CT_LINE_READER_ALIVE_MS - CT_LINE_READER_PING_MS;
    (void)receive(NULL);
    struct ct_msg_lines_query query = next_query();
    cr_assert(query.count == 2 && query.received == 0);
    cr_assert_eq(next_query().count, 0);
    assert_no_query();
}

Test(line_reader, who_is_told_of_rounds_asks_for_none)
{
    begin(true, -1, -1);
    ct_line_reader_round(reader, now_ms, 5, 4, 2);
    ct_line_reader_node(reader, (struct ct_id){10, 1}, "h10");
    assert_no_query();
    ct_line_reader_node(reader, (struct ct_id){11, 1}, "h11");
    struct ct_msg_lines_query query = next_query();
    cr_assert(query.generation == 5 && query.count == 2);
    now_ms += CT_LINE_READER_PING_MS;
    (void)receive(NULL);
    assert_no_query();
}

Test(line_reader, one_node_alone_and_a_node_that_there_is_not)
{
    begin(false, -1, 1);
    (void)next_query();
    (void)tell_round(3, 10, 2);
    struct ct_msg_lines_query query = next_query();
    cr_assert(query.first == 1 && query.count == 1);
    cr_assert(tell_line(11, (struct ct_msg_lines){.caught_up = 1}, "a", (struct ct_wire_line){0}));
    end();
    begin(false, -1, 2);
    (void)next_query();
    cr_assert(tell_round(3, 10, 2));
    cr_assert_eq(ct_line_reader_code(reader), CT_ENOTFOUND);
}
