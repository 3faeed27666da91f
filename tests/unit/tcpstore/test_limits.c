/* Limits and clocks: what one client does hurts that client alone. */
#include "client.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(number) ((int64_t)(number))

TestSuite(limits, .fini = rig_close, .timeout = 30);

static void expect_broken(struct client *client, int code, const char *words)
{
    cr_assert_null(client->core);
    cr_assert_eq(client->why.code, code, "%s", client->why.text);
    cr_assert(strstr(client->why.text, words) != NULL, "%s", client->why.text);
}

Test(limits, keys_are_counted_with_those_that_are_only_waited_for)
{
    rig_open(&(struct ct_tcpstore_limits){.keys = 3});
    struct client *a = join(), *b = join(), *c = join();

    ask(a, SET, "bb", "1", "");
    ask(b, WAIT, "nb", N(1), "2");
    ask(a, QUEUE_PUSH, "bb", "3", "");
    ask(a, SET, "bb", "1", "again");
    ask(a, SET, "bb", "2", "what is waited for may come");
    cr_assert_eq(got_u8(b), 0);
    ask(a, ADD, "bn", "4", N(1));
    expect_broken(a, CT_ELIMIT, "3 keys");
    ask(b, WAIT, "nbb", N(2), "5", "6");
    expect_broken(b, CT_ELIMIT, "3 keys");
    ask(c, DELETE_KEY, "b", "1");
    cr_assert_eq(got_i64(c), 1);
    ask(c, SET, "bb", "7", "");
    cr_assert(got_nothing(c));
}

/* Store so much, in values of 64 KiB, until the client breaks. */
static size_t fill(struct client *client, int code, size_t most)
{
    char *large = malloc(65537);
    size_t stored = 0;

    memset(large, 'x', 65536);
    large[65536] = '\0';
    for (; client->core != NULL && stored < most; stored += 65536) {
        char name[32];
        (void)snprintf(name, sizeof name, "%zu", code == SET ? stored : 0);
        ask(client, code, "bb", name, large);
    }
    free(large);
    return stored;
}

Test(limits, bytes_are_bounded_whatever_they_are_stored_as)
{
    static const int codes[] = {SET, APPEND, QUEUE_PUSH};

    for (size_t i = 0; i < CT_COUNT(codes); i++) {
        rig_open(&(struct ct_tcpstore_limits){.bytes = 4 << 20});
        struct client *a = join(), *b = join();
        size_t stored = fill(a, codes[i], 8 << 20);
        expect_broken(a, CT_ELIMIT, "4194304 bytes");
        cr_assert_gt(stored, 1u << 20);
        cr_assert_leq(counts_of(rig.store).bytes, 4u << 20);
        ask(b, DELETE_KEY, "b", "0");
        (void)got_i64(b);
        ask(b, QUEUE_POP, "b", "0");
        cr_assert_not_null(b->core, "%s", b->why.text);
        ct_buf_clear(&b->got);
        ask(b, SET, "bb", "small", "value");
        cr_assert(got_nothing(b));
        if (i + 1 < CT_COUNT(codes))
            rig_close();
    }
}

Test(limits, a_request_on_its_way_counts)
{
    rig_open(&(struct ct_tcpstore_limits){.bytes = 1 << 20});
    struct client *a = join(), *b = join();
    struct ct_buf head = {0};
    char *large = calloc(1, 2 << 20);

    compose(&head, SET, "bn", "k", N(4 << 20));
    send_bytes(a, head.data, head.size);
    send_bytes(a, large, 2 << 20);
    expect_broken(a, CT_ELIMIT, "1048576 bytes");
    ask(b, SET, "bb", "k", "v");
    cr_assert(got_nothing(b));
    free(large);
    ct_buf_deinit(&head);
}

Test(limits, an_answer_that_would_burst_the_store_is_not_made)
{
    rig_open(&(struct ct_tcpstore_limits){.bytes = 4 << 20});
    struct client *a = join(), *b = join();
    struct ct_buf request = {0};

    cr_assert_eq(fill(a, SET, 64 << 10), 64 << 10);
    compose(&request, MULTI_GET, "n", N(100));
    for (int i = 0; i < 100; i++) {
        compose(&request, 1, "");
        request.size--;
        struct ct_buf key = {0};
        compose(&key, 0, "b", "0");
        cr_assert_eq(ct_buf_append(&request, key.data + 1, key.size - 1), 0);
        ct_buf_deinit(&key);
    }
    send_bytes(b, request.data, request.size);
    expect_broken(b, CT_ELIMIT, "4194304 bytes");
    ask(a, GETNUMKEYS, "");
    cr_assert_eq(got_i64(a), 1);
    ct_buf_deinit(&request);
}

/* What is stored stays its host's when the client has gone, whatever it is stored as. */
Test(limits, no_host_takes_all_the_memory)
{
    static const int codes[] = {SET, APPEND, QUEUE_PUSH};

    for (size_t i = 0; i < CT_COUNT(codes); i++) {
        rig_open(&(struct ct_tcpstore_limits){.bytes = 4 << 20});
        struct client *greedy = join_from("10.0.0.1");
        size_t stored = fill(greedy, codes[i], 8 << 20);
        expect_broken(greedy, CT_ELIMIT,
                      "full for 10.0.0.1: of its 4194304 bytes a host may hold 3670016");
        cr_assert_gt(stored, 1u << 20);
        leave(greedy);
        cr_assert_leq(counts_of(rig.store).bytes, 3670016);
        struct client *again = join_from("10.0.0.1");
        (void)fill(again, codes[i], 8 << 20);
        expect_broken(again, CT_ELIMIT, "full for 10.0.0.1");
        struct client *other = join_from("10.0.0.2");
        ask(other, SET, "bb", "other", "value");
        ask(other, GET, "b", "other");
        cr_assert_str_eq(got_bytes(other), "value");
        cr_assert_not_null(other->core, "%s", other->why.text);
        if (i + 1 < CT_COUNT(codes))
            rig_close();
    }
}

Test(limits, who_stores_over_the_value_of_another_host_pays_for_it)
{
    static const int codes[] = {SET, APPEND};

    for (size_t i = 0; i < CT_COUNT(codes); i++) {
        rig_open(&(struct ct_tcpstore_limits){.bytes = 4 << 20});
        struct client *a = join_from("10.0.0.1"), *b = join_from("10.0.0.2");
        ask(a, SET, "bb", "0", "small");
        cr_assert_lt(fill(b, codes[i], 8 << 20), 4u << 20);
        expect_broken(b, CT_ELIMIT, "full for 10.0.0.2");
        ask(a, SET, "bb", "1 of the first", "value");
        ask(a, DELETE_KEY, "b", "0");
        cr_assert_eq(got_i64(a), 1);
        if (i + 1 < CT_COUNT(codes))
            rig_close();
    }
}

Test(limits, what_is_kept_for_a_client_elsewhere_counts)
{
    rig_open(&(struct ct_tcpstore_limits){.bytes = 1 << 20});
    struct client *a = join(), *b = join();
    size_t before = counts_of(rig.store).bytes;

    ct_tcpstore_hold(a->core, 512 << 10);
    cr_assert_eq(counts_of(rig.store).bytes, before + (512 << 10));
    ct_tcpstore_hold(b->core, 512 << 10);
    rig_collect();
    expect_broken(b, CT_ELIMIT, "1048576 bytes");
    cr_assert_not_null(a->core);
    ct_tcpstore_hold(a->core, 0);
    ask(a, SET, "bb", "k", "v");
    cr_assert(got_nothing(a));
}

Test(limits, a_wait_for_many_keys_counts)
{
    rig_open(&(struct ct_tcpstore_limits){.bytes = 64 << 10});
    struct client *a = join();
    struct ct_buf request = {0};

    compose(&request, WAIT, "n", N(2000));
    for (int i = 0; i < 2000; i++)
        cr_assert_eq(ct_buf_append(&request, "\x00\x00\x00\x00\x00\x00\x00\x00", 8), 0);
    send_bytes(a, request.data, request.size);
    expect_broken(a, CT_ELIMIT, "65536 bytes");
    ct_buf_deinit(&request);
}

Test(limits, who_does_not_take_his_answers_is_not_served_on)
{
    rig_open(NULL);
    struct client *a = join();
    struct ct_buf requests = {0};
    size_t total = 0;

    cr_assert_eq(fill(a, SET, 64 << 10), 64 << 10);
    for (int i = 0; i < 64; i++)
        compose(&requests, GET, "b", "0");
    ct_tcpstore_input(a->core, 0, requests.data, requests.size);
    cr_assert(ct_tcpstore_is_full(a->core));
    struct ct_tcpstore_bytes out = ct_tcpstore_output(a->core);
    cr_assert_lt(out.size, 2u << 20, "about a megabyte, not 64 answers");
    while ((out = ct_tcpstore_output(a->core)).size > 0) {
        size_t taken = CT_MIN(out.size, (size_t)100000);
        total += taken;
        ct_tcpstore_sent(a->core, 0, taken);
    }
    cr_assert_eq(total, 64u * (8 + 65536), "all are served in the end");
    cr_assert(!ct_tcpstore_is_full(a->core));
    ct_buf_deinit(&requests);
}

Test(limits, a_watcher_that_does_not_read_breaks_alone)
{
    rig_open(NULL);
    struct client *watcher = join_silent("10.0.0.2"), *a = join();
    char *large = malloc(1 << 20);

    memset(large, 'x', 1 << 20);
    large[(1 << 20) - 1] = '\0';
    ask(watcher, OLD_WATCH_KEY, "b", "k");
    for (int i = 0; i < 20; i++) {
        /* Nobody takes what the watcher is sent: only `a` is asked after. */
        struct ct_buf request = {0};
        compose(&request, SET, "bb", "k", large);
        ct_tcpstore_input(a->core, 0, request.data, request.size);
        ct_buf_deinit(&request);
    }
    cr_assert_not_null(ct_tcpstore_broken(watcher->core));
    cr_assert_null(ct_tcpstore_broken(a->core));
    rig_collect();
    expect_broken(watcher, CT_ELIMIT, "news");
    free(large);
}

/* ---- clocks ---- */

static void pass(uint64_t ms)
{
    rig.now_ms += ms;
    ct_tcpstore_tick(rig.store, rig.now_ms);
    rig_collect();
}

Test(limits, who_says_nothing_is_broken_after_the_handshake_time)
{
    rig_open(&(struct ct_tcpstore_limits){.handshake_ms = 1000, .request_ms = 5000});
    struct client *silent = join_silent("10.0.0.3");
    struct client *half = join_silent("10.0.0.3");
    struct client *good = join();

    send_bytes(half, "\x00\xCE\xF7", 3);
    cr_assert_eq(ct_tcpstore_deadline(rig.store), 1000);
    pass(999);
    cr_assert_not_null(silent->core);
    pass(1);
    expect_broken(silent, CT_ETIMEOUT, "no request");
    expect_broken(half, CT_ETIMEOUT, "no request");
    cr_assert_eq(ct_tcpstore_deadline(rig.store), UINT64_MAX);
    pass(1000000);
    cr_assert_not_null(good->core, "between requests there is no hurry");
}

Test(limits, a_request_once_begun_must_end)
{
    rig_open(&(struct ct_tcpstore_limits){.handshake_ms = 1000, .request_ms = 5000});
    struct client *slow = join(), *waiting = join();
    struct ct_buf set = {0};

    ask(waiting, WAIT, "nb", N(1), "never");
    compose(&set, SET, "bb", "key", "value");
    for (size_t i = 0; i + 1 < set.size && slow->core != NULL; i++) {
        send_bytes(slow, set.data + i, 1); /* a byte in 300 ms: it moves, and is too slow */
        pass(300);
    }
    expect_broken(slow, CT_ETIMEOUT, "began SET");
    cr_assert_not_null(waiting->core, "who waits owes nothing");
    ct_buf_deinit(&set);
}

Test(limits, each_request_has_its_own_time)
{
    rig_open(&(struct ct_tcpstore_limits){.request_ms = 5000});
    struct client *a = join();
    struct ct_buf two = {0};

    compose(&two, SET, "bb", "k", "v");
    size_t one = two.size;
    compose(&two, SET, "bb", "k", "w");
    send_bytes(a, two.data, one - 1);
    for (int i = 0; i < 5; i++) {
        pass(4000);
        send_bytes(a, two.data + one - 1, one); /* the end of one and most of the next */
    }
    cr_assert_not_null(a->core);
    ct_buf_deinit(&two);
}

Test(limits, the_silent_second_connection_of_an_old_client_is_left_in_peace)
{
    rig_open(&(struct ct_tcpstore_limits){.handshake_ms = 1000});
    struct client *second = join_silent("10.0.0.2");
    struct client *first = join_old();
    struct client *third = join_silent("10.0.0.2");
    struct client *stranger = join_silent("10.0.0.3");

    pass(1000);
    cr_assert_not_null(second->core, "it is the old client's");
    expect_broken(third, CT_ETIMEOUT, "no request");
    expect_broken(stranger, CT_ETIMEOUT, "no request");
    ask(second, OLD_WATCH_KEY, "b", "k");
    cr_assert_eq(got_u8(second), 3);
    leave(first);
    leave(second);
}

Test(limits, the_longest_silent_makes_room_once_it_had_its_chance)
{
    rig_open(&(struct ct_tcpstore_limits){.silent = 2});
    struct client *a = join_silent("10.0.0.3"), *b;

    cr_assert_eq(ct_tcpstore_admit(rig.store, rig.now_ms), 0);
    rig.now_ms = 100;
    b = join_silent("10.0.0.3");
    rig.now_ms = 200;
    cr_assert_eq(ct_tcpstore_admit(rig.store, rig.now_ms), 50, "not before it is 250 ms old");
    rig.now_ms = 250;
    cr_assert_eq(ct_tcpstore_admit(rig.store, rig.now_ms), 0);
    rig_collect();
    expect_broken(a, CT_ETIMEOUT, "wanted its place");
    cr_assert_not_null(b->core);
    ask(b, OLD_GETNUMKEYS, "");
    cr_assert_eq(counts_of(rig.store).silent, 0);
}

Test(limits, no_more_clients_than_there_may_be)
{
    rig_open(&(struct ct_tcpstore_limits){.clients = 2});
    struct ct_error err = {0};

    (void)join();
    struct client *b = join();
    cr_assert_null(ct_tcpstore_join(rig.store, 0, "10.0.0.1", NULL, &err));
    cr_assert_eq(err.code, CT_ELIMIT, "%s", err.text);
    leave(b);
    (void)join();
}

Test(limits, no_host_takes_all_the_places)
{
    rig_open(&(struct ct_tcpstore_limits){.clients = 16});
    struct ct_tcpstore_client *greedy[14], *other;
    struct ct_error err = {0};

    for (size_t i = 0; i < 14; i++)
        cr_assert_not_null(greedy[i] = ct_tcpstore_join(rig.store, 0, "10.0.0.1", NULL, &err));
    cr_assert_null(ct_tcpstore_join(rig.store, 0, "10.0.0.1", NULL, &err));
    cr_assert_eq(err.code, CT_ELIMIT);
    cr_assert_str_eq(err.text, "the store has as many clients of 10.0.0.1 as a host may have");
    cr_assert_not_null(other = ct_tcpstore_join(rig.store, 0, "10.0.0.2", NULL, &err));
    ct_tcpstore_leave(other);
    for (size_t i = 0; i < 14; i++)
        ct_tcpstore_leave(greedy[i]);
}
