/* What each request answers, byte by byte, and who is woken by what. */
#include "client.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(number) ((int64_t)(number))

static void set_up(void)
{
    rig_open(NULL);
}

TestSuite(tcpstore, .init = set_up, .fini = rig_close, .timeout = 30);

static void expect_byte(struct client *client, int value)
{
    cr_assert_eq(got_u8(client), value);
    cr_assert(got_nothing(client));
}

static void expect_number(struct client *client, int64_t value)
{
    int64_t number = got_i64(client);

    cr_assert_eq(number, value, "%lld instead of %lld", (long long)number, (long long)value);
    cr_assert(got_nothing(client));
}

static void expect_bytes(struct client *client, const char *value)
{
    cr_assert_str_eq(got_bytes(client), value);
    cr_assert(got_nothing(client));
}

static void expect_value(struct client *client, const char *key, const char *value)
{
    ask(client, GET, "b", key);
    expect_bytes(client, value);
}

/* ---- the handshake ---- */

Test(tcpstore, a_ping_is_echoed_and_says_who_it_is)
{
    struct client *a = join();

    ask(a, PING, "m", 0xfedcba98u);
    cr_assert_eq(got_u32(a), 0xfedcba98u);
    cr_assert(got_nothing(a));
    cr_assert_eq(ct_tcpstore_about(a->core).pid, 0xfedcba98u);
    cr_assert_eq(ct_tcpstore_about(a->core).dialect, CT_TCPSTORE_MODERN);
}

Test(tcpstore, a_second_handshake_must_be_right_too)
{
    struct client *a = join();

    ask(a, VALIDATE, "m", (unsigned)CT_TCPSTORE_MAGIC);
    cr_assert(got_nothing(a));
    ask(a, VALIDATE, "m", 0x3C85F7CFu);
    cr_assert_null(a->core);
    cr_assert_eq(a->why.code, CT_EPROTOCOL);
}

Test(tcpstore, the_first_exchange_of_a_real_client)
{
    static const char bytes[] = "\x00\xCE\xF7\x85\x3C\x0D\x2A\x00\x00\x00\x04\x05\x00\x00\x00\x00"
                                "\x00\x00\x00init/\x01\x00\x00\x00\x00\x00\x00\x00";
    struct client *a = join_silent("10.0.0.9");

    send_bytes(a, bytes, sizeof bytes - 1);
    cr_assert_eq(a->got.size, 12);
    cr_assert_eq(memcmp(a->got.data, "\x2A\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00", 12), 0);
    ct_buf_clear(&a->got);
}

/* ---- values ---- */

Test(tcpstore, a_value_comes_back_and_an_absent_key_has_no_bytes)
{
    struct client *a = join();

    expect_value(a, "/k", "");
    ask(a, SET, "bb", "/k", "v");
    cr_assert(got_nothing(a), "SET is not answered");
    expect_value(a, "/k", "v");
    ask(a, SET, "bb", "/k", "a longer value than before, which needs other room");
    expect_value(a, "/k", "a longer value than before, which needs other room");
    ask(a, SET, "bb", "/k", "");
    expect_value(a, "/k", "");
    expect_value(a, "/K", "");
}

Test(tcpstore, keys_and_values_are_bytes_not_text)
{
    static const char set[] = "\x01\x03\x00\x00\x00\x00\x00\x00\x00"
                              "a\x00z\x02\x00\x00\x00\x00\x00\x00\x00\x00\xff";
    static const char get[] = "\x03\x03\x00\x00\x00\x00\x00\x00\x00"
                              "a\x00z";
    struct client *a = join();

    send_bytes(a, set, sizeof set - 1);
    send_bytes(a, get, sizeof get - 1);
    cr_assert_eq(a->got.size, 10);
    cr_assert_eq(memcmp(a->got.data, "\x02\x00\x00\x00\x00\x00\x00\x00\x00\xff", 10), 0);
    ct_buf_clear(&a->got);
    expect_value(a, "a", "");
}

Test(tcpstore, compare_set_stores_only_over_what_is_expected)
{
    static const struct {
        const char *before, *expected, *answer, *after;
    } rows[] = {
        {NULL, "", "new", "new"},   {NULL, "x", "x", ""},      {"old", "old", "new", "new"},
        {"old", "x", "old", "old"}, {"old", "", "old", "old"}, {"", "", "new", "new"},
        {"", "x", "", ""},
    };
    struct client *a = join();

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        ask(a, DELETE_KEY, "b", "/k");
        (void)got_i64(a);
        if (rows[i].before != NULL)
            ask(a, SET, "bb", "/k", rows[i].before);
        ask(a, COMPARE_SET, "bbb", "/k", rows[i].expected, "new");
        cr_assert_str_eq(got_bytes(a), rows[i].answer, "row %zu", i);
        expect_value(a, "/k", rows[i].after);
    }
}

Test(tcpstore, add_keeps_decimal_text_and_creates_the_key_even_for_zero)
{
    struct client *a = join();

    ask(a, ADD, "bn", "/n", N(0));
    expect_number(a, 0);
    ask(a, GETNUMKEYS, "");
    expect_number(a, 1);
    expect_value(a, "/n", "0");
    ask(a, ADD, "bn", "/n", N(41));
    expect_number(a, 41);
    ask(a, ADD, "bn", "/n", N(-50));
    expect_number(a, -9);
    expect_value(a, "/n", "-9");
    ask(a, SET, "bb", "/n", "9223372036854775806");
    ask(a, ADD, "bn", "/n", N(1));
    expect_number(a, INT64_MAX);
    ask(a, SET, "bb", "/n", " 12 monkeys");
    ask(a, ADD, "bn", "/n", N(1));
    expect_number(a, 13);
}

Test(tcpstore, add_to_what_is_no_number_breaks_the_client_and_leaves_the_value)
{
    static const char *const values[] = {"", "x1", "-", "99999999999999999999"};
    struct client *b = join();

    for (size_t i = 0; i < CT_COUNT(values); i++) {
        struct client *a = join();
        ask(a, SET, "bb", "/n", values[i]);
        ask(a, ADD, "bn", "/n", N(1));
        cr_assert_null(a->core, "%s", values[i]);
        cr_assert_eq(a->why.code, CT_EPROTOCOL);
        expect_value(b, "/n", values[i]);
    }
    struct client *a = join();
    ask(a, SET, "bb", "/n", "9223372036854775807");
    ask(a, ADD, "bn", "/n", N(1));
    cr_assert_null(a->core, "no sum wraps round");
}

Test(tcpstore, append_creates_and_extends)
{
    struct client *a = join();

    for (int i = 0; i < 100; i++)
        ask(a, APPEND, "bb", "/log", i % 2 == 0 ? "ab" : "");
    ask(a, GET, "b", "/log");
    const char *text = got_bytes(a);
    cr_assert_eq(strlen(text), 100);
    cr_assert_eq(strspn(text, "ab"), 100);
    ask(a, APPEND, "bb", "/empty", "");
    ask(a, GETNUMKEYS, "");
    expect_number(a, 2);
}

Test(tcpstore, many_are_set_and_got_at_once_in_order)
{
    struct client *a = join();

    ask(a, MULTI_SET, "nbbbbbb", N(3), "/a", "1", "/b", "2", "/a", "3");
    cr_assert(got_nothing(a), "MULTI_SET is not answered");
    ask(a, MULTI_GET, "nbbbb", N(4), "/b", "/none", "/a", "/b");
    cr_assert_str_eq(got_bytes(a), "2");
    cr_assert_str_eq(got_bytes(a), "");
    cr_assert_str_eq(got_bytes(a), "3");
    expect_bytes(a, "2");
    ask(a, MULTI_GET, "n", N(0));
    cr_assert(got_nothing(a));
}

Test(tcpstore, delete_says_whether_there_was_something)
{
    struct client *a = join();

    ask(a, DELETE_KEY, "b", "/k");
    expect_number(a, 0);
    ask(a, SET, "bb", "/k", "v");
    ask(a, DELETE_KEY, "b", "/k");
    expect_number(a, 1);
    ask(a, DELETE_KEY, "b", "/k");
    expect_number(a, 0);
    ask(a, GETNUMKEYS, "");
    expect_number(a, 0);
}

Test(tcpstore, all_names_are_listed_and_queues_are_none)
{
    struct client *a = join();
    char seen[4] = "";

    ask(a, SET, "bb", "a", "1");
    ask(a, APPEND, "bb", "b", "1");
    ask(a, MULTI_SET, "nbb", N(1), "c", "1");
    ask(a, QUEUE_PUSH, "bb", "q", "1");
    ask(a, GETNUMKEYS, "");
    expect_number(a, 3);
    ask(a, LIST_KEYS, "");
    cr_assert_eq(got_i64(a), 3);
    for (int i = 0; i < 3; i++)
        seen[(got_bytes(a)[0] - 'a') % 3]++;
    cr_assert(got_nothing(a));
    cr_assert(seen[0] == 1 && seen[1] == 1 && seen[2] == 1);
}

Test(tcpstore, check_wants_every_key)
{
    struct client *a = join();

    ask(a, SET, "bb", "a", "");
    ask(a, QUEUE_PUSH, "bb", "q", "x");
    ask(a, CHECK, "nb", N(1), "a");
    expect_byte(a, 0);
    ask(a, CHECK, "nbb", N(2), "a", "b");
    expect_byte(a, 1);
    ask(a, CHECK, "nbb", N(2), "a", "q");
    expect_byte(a, 0);
    ask(a, CHECK, "n", N(0));
    expect_byte(a, 0);
    ask(a, QUEUE_POP, "b", "q");
    (void)got_i64(a);
    expect_bytes(a, "x");
    ask(a, CHECK, "nb", N(1), "q");
    expect_byte(a, 1);
}

/* ---- waiting ---- */

Test(tcpstore, a_wait_ends_when_the_last_key_has_come)
{
    struct client *a = join(), *b = join();

    ask(b, SET, "bb", "here", "");
    ask(a, WAIT, "nbbbb", N(4), "x", "here", "y", "x");
    cr_assert(got_nothing(a));
    cr_assert(ct_tcpstore_about(a->core).waits);
    cr_assert_eq(counts_of(rig.store).waiting, 1);
    ask(b, SET, "bb", "x", "1");
    ask(b, SET, "bb", "x", "2");
    ask(b, SET, "bb", "here", "2");
    cr_assert(got_nothing(a), "a key counts once");
    ask(b, SET, "bb", "y", "1");
    expect_byte(a, 0);
    cr_assert(!ct_tcpstore_about(a->core).waits);
    ask(b, SET, "bb", "y", "2");
    cr_assert(got_nothing(a), "answered once");
    ask(a, WAIT, "nbb", N(2), "x", "y");
    expect_byte(a, 0);
    ask(a, WAIT, "n", N(0));
    expect_byte(a, 0);
}

Test(tcpstore, everything_that_stores_wakes)
{
    struct client *a = join(), *b = join();

    for (int i = 0; i < 5; i++) {
        ask(a, WAIT, "nb", N(1), "k");
        cr_assert(got_nothing(a));
        if (i == 0)
            ask(b, SET, "bb", "k", "v");
        else if (i == 1)
            ask(b, ADD, "bn", "k", N(1));
        else if (i == 2)
            ask(b, COMPARE_SET, "bbb", "k", "", "v");
        else if (i == 3)
            ask(b, APPEND, "bb", "k", "v");
        else
            ask(b, MULTI_SET, "nbb", N(1), "k", "v");
        expect_byte(a, 0);
        ct_buf_clear(&b->got);
        ask(b, DELETE_KEY, "b", "k");
        expect_number(b, 1);
    }
    ask(a, WAIT, "nb", N(1), "k");
    ask(b, COMPARE_SET, "bbb", "k", "x", "y");
    cr_assert_str_eq(got_bytes(b), "x");
    cr_assert(got_nothing(a), "nothing was stored");
}

Test(tcpstore, all_who_wait_for_a_key_are_answered)
{
    struct client *waiting[4], *b = join();

    for (size_t i = 0; i < CT_COUNT(waiting); i++) {
        waiting[i] = join();
        ask(waiting[i], WAIT, "nb", N(1), "k");
    }
    leave(waiting[2]);
    ask(b, SET, "bb", "k", "v");
    for (size_t i = 0; i < CT_COUNT(waiting); i++)
        if (i != 2)
            expect_byte(waiting[i], 0);
    cr_assert_eq(counts_of(rig.store).waiting, 0);
}

Test(tcpstore, a_cancelled_wait_is_answered_one_and_forgotten)
{
    struct client *a = join(), *b = join();

    ask(a, WAIT, "nbb", N(2), "x", "y");
    ask(b, SET, "bb", "x", "1");
    ask(a, CANCEL_WAIT, "");
    expect_byte(a, 1);
    ask(b, SET, "bb", "y", "1");
    cr_assert(got_nothing(a));
}

Test(tcpstore, a_cancel_that_comes_too_late_is_answered_after_the_wait)
{
    struct client *a = join(), *b = join();

    ask(a, WAIT, "nb", N(1), "x");
    ask(b, SET, "bb", "x", "1");
    ask(a, CANCEL_WAIT, "");
    cr_assert_eq(got_u8(a), 0);
    expect_byte(a, 1);
    ask(a, CANCEL_WAIT, "");
    expect_byte(a, 1);
}

Test(tcpstore, who_asks_on_while_waiting_has_given_the_wait_up)
{
    struct client *a = join(), *b = join();

    ask(a, WAIT, "nb", N(1), "x");
    ask(a, GETNUMKEYS, "");
    expect_number(a, 0);
    ask(b, SET, "bb", "x", "1");
    cr_assert(got_nothing(a), "the late answer would be taken for another's");
}

Test(tcpstore, a_deleted_key_neither_ends_nor_restarts_a_wait)
{
    struct client *a = join(), *b = join();

    ask(a, WAIT, "nbb", N(2), "x", "y");
    ask(b, SET, "bb", "x", "1");
    ask(b, DELETE_KEY, "b", "x");
    expect_number(b, 1);
    ask(b, DELETE_KEY, "b", "y");
    expect_number(b, 0);
    cr_assert(got_nothing(a));
    ask(b, SET, "bb", "y", "1");
    expect_byte(a, 0);
}

Test(tcpstore, a_key_that_is_only_waited_for_is_not_there)
{
    struct client *a = join(), *b = join();

    ask(a, WAIT, "nb", N(1), "x");
    ask(b, GETNUMKEYS, "");
    expect_number(b, 0);
    ask(b, LIST_KEYS, "");
    expect_number(b, 0);
    ask(b, CHECK, "nb", N(1), "x");
    expect_byte(b, 1);
    ask(b, QUEUE_LEN, "b", "x");
    expect_number(b, 0);
    expect_value(b, "x", "");
}

static void put_letter(void *context, const struct ct_tcpstore_about *about, struct ct_buf *to)
{
    cr_assert(about->waits);
    cr_assert_eq(ct_buf_puts(to, context), 0);
}

Test(tcpstore, waits_are_told_to_people)
{
    struct client *a = join(), *b = join(), *c = join();
    struct ct_buf text = {0};
    char letter[] = "Z";

    ask(a, PING, "m", 77u);
    (void)got_u32(a);
    rig.now_ms = 1000;
    ask(a, WAIT, "nbb", N(2), "/default_pg/0//cpu//0/3", "\x01");
    ask(b, WAIT, "nb", N(1), "\"");
    rig.now_ms = 4000;
    ask(c, WAIT, "nb", N(1), "late");
    struct ct_tcpstore_waits how = {.now_ms = 4500, .at_least_ms = 3500};
    cr_assert_eq(ct_tcpstore_print_waits(rig.store, &how, &text), 2u);
    cr_assert_str_eq(ct_buf_str(&text),
                     "10.0.0.1 waits 3.5 s for \"\\x22\"\n"
                     "10.0.0.1 (pid 77) waits 3.5 s for \"/default_pg/0//cpu//0/3\" and "
                     "1 more keys\n");
    how = (struct ct_tcpstore_waits){
        .now_ms = 4500, .most = 1, .put_name = put_letter, .context = letter};
    ct_buf_clear(&text);
    cr_assert_eq(ct_tcpstore_print_waits(rig.store, &how, &text), 3u);
    cr_assert_str_eq(ct_buf_str(&text), "Z waits 0.5 s for \"late\"\nand 2 more\n");
    ct_buf_deinit(&text);
}

/* ---- queues and barriers ---- */

Test(tcpstore, a_queue_is_first_in_first_out_and_apart_from_the_key)
{
    struct client *a = join();

    ask(a, SET, "bb", "q", "value");
    ask(a, QUEUE_PUSH, "bb", "q", "1");
    ask(a, QUEUE_PUSH, "bb", "q", "");
    ask(a, QUEUE_LEN, "b", "q");
    expect_number(a, 2);
    ask(a, DELETE_KEY, "b", "q");
    expect_number(a, 1);
    ask(a, QUEUE_POP, "b", "q");
    cr_assert_eq(got_i64(a), 2);
    expect_bytes(a, "1");
    ask(a, QUEUE_POP, "b", "q");
    cr_assert_eq(got_i64(a), 1);
    expect_bytes(a, "");
    ask(a, QUEUE_POP, "b", "q");
    expect_number(a, 0);
}

Test(tcpstore, a_push_wakes_one_who_waits_the_oldest)
{
    struct client *a = join(), *b = join(), *c = join(), *d = join();

    ask(a, WAIT, "nbb", N(2), "q", "other");
    ask(b, WAIT, "nb", N(1), "q");
    ask(c, WAIT, "nb", N(1), "q");
    ask(d, QUEUE_PUSH, "bb", "q", "1");
    cr_assert(got_nothing(a), "it waits for another key too");
    expect_byte(b, 0);
    cr_assert(got_nothing(c));
    ask(d, QUEUE_PUSH, "bb", "q", "2");
    expect_byte(c, 0);
    ask(d, QUEUE_PUSH, "bb", "q", "3");
    ask(d, SET, "bb", "other", "1");
    expect_byte(a, 0);
}

Test(tcpstore, the_last_at_a_barrier_releases_all_and_later_ones_pass)
{
    struct client *a = join(), *b = join(), *c = join(), *d = join();

    ask(a, BARRIER, "bn", "bar", N(3));
    ask(b, BARRIER, "bn", "bar", N(3));
    cr_assert(got_nothing(a) && got_nothing(b));
    expect_value(d, "bar", "2");
    ask(c, BARRIER, "bn", "bar", N(3));
    expect_byte(a, 0);
    expect_byte(b, 0);
    expect_byte(c, 0);
    ask(d, BARRIER, "bn", "bar", N(3));
    expect_byte(d, 0);
    expect_value(d, "bar", "4");
    ask(d, BARRIER, "bn", "other", N(1));
    expect_byte(d, 0);
}

Test(tcpstore, a_barrier_can_be_cancelled_and_keeps_its_count)
{
    struct client *a = join(), *b = join();

    ask(a, BARRIER, "bn", "bar", N(2));
    ask(a, CANCEL_WAIT, "");
    expect_byte(a, 1);
    ask(b, BARRIER, "bn", "bar", N(2));
    expect_byte(b, 0);
    cr_assert(got_nothing(a));
}

Test(tcpstore, a_barrier_at_what_is_no_number_breaks_the_client)
{
    struct client *a = join();

    ask(a, SET, "bb", "bar", "x");
    ask(a, BARRIER, "bn", "bar", N(2));
    cr_assert_null(a->core);
}

/* ---- PyTorch 1.9 to 2.0 ---- */

Test(tcpstore, an_old_client_is_served_with_its_numbers)
{
    struct client *a = join_old(), *b = join();

    ask(a, OLD_SET, "bb", "/k", "v");
    ask(a, OLD_GET, "b", "/k");
    expect_bytes(a, "v");
    ask(a, OLD_COMPARE_SET, "bbb", "/k", "v", "w");
    expect_bytes(a, "w");
    ask(a, OLD_CHECK, "nb", N(1), "/k");
    expect_byte(a, 0);
    ask(a, OLD_GETNUMKEYS, "");
    expect_number(a, 2);
    ask(a, OLD_WAIT, "nb", N(1), "/late");
    cr_assert(got_nothing(a));
    ask(b, SET, "bb", "/late", "");
    expect_byte(a, 0);
    ask(a, OLD_DELETE_KEY, "b", "/k");
    expect_number(a, 1);
    cr_assert_eq(ct_tcpstore_about(a->core).dialect, CT_TCPSTORE_OLD);
}

static void expect_news(struct client *client, int event, const char *old, const char *new)
{
    cr_assert_eq(got_u8(client), event);
    cr_assert_str_eq(got_bytes(client), "k");
    cr_assert_str_eq(got_bytes(client), old);
    expect_bytes(client, new);
}

Test(tcpstore, who_watches_a_key_is_told_of_every_change)
{
    struct client *watcher = join_silent("10.0.0.2"), *a = join(), *b = join();

    ask(watcher, OLD_WATCH_KEY, "b", "k");
    expect_byte(watcher, 3);
    ask(a, SET, "bb", "k", "1");
    expect_news(watcher, 1, "", "1");
    ask(a, ADD, "bn", "k", N(4));
    expect_news(watcher, 0, "1", "5");
    ask(a, APPEND, "bb", "k", "!");
    expect_news(watcher, 0, "5", "5!");
    ask(a, COMPARE_SET, "bbb", "k", "x", "y");
    cr_assert(got_nothing(watcher), "nothing changed");
    ask(a, DELETE_KEY, "b", "k");
    expect_news(watcher, 2, "5!", "");
    leave(watcher);
    ask(b, SET, "bb", "k", "2");
    expect_value(b, "k", "2");
}
