/* The TLS engine without sockets: two engines, and a wire that the test holds in its hand. */
#include "net/tls.h"

#include "keys/psk.h"

#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ct_key key_a = {.secret = "0123456789abcdef0123456789abcdeA"};
static const struct ct_key key_b = {.secret = "0123456789abcdef0123456789abcdeB"};

static struct ct_tls *client, *server;
static struct ct_error client_err, server_err;
static struct ct_buf to_server, to_client;
static char plain[70000];

static void set_up(void)
{
    client_err = server_err = (struct ct_error){0};
    ct_buf_init(&to_server, 0);
    ct_buf_init(&to_client, 0);
}

static void tear_down(void)
{
    ct_tls_free(client);
    ct_tls_free(server);
    client = server = NULL;
    ct_buf_deinit(&to_server);
    ct_buf_deinit(&to_client);
}

TestSuite(tls, .init = set_up, .fini = tear_down, .timeout = 30);

/* A server that accepts the key and those of roles derived from it. */
static int accept_key(struct ct_tls **ret_tls, const struct ct_key *key, struct ct_error *err)
{
    struct ct_key_ring *ring = NULL;
    int code = ct_key_ring_of(key, true, &ring, err);

    if (code == 0)
        code = ct_tls_new_server(ret_tls, ring, err);
    ct_key_ring_unref(ring);
    return code;
}

static void make(const struct ct_key *client_key, const struct ct_key *server_key)
{
    cr_assert_eq(ct_tls_new_client(&client, client_key, "digits", &client_err), 0, "%s",
                 client_err.text);
    cr_assert_eq(accept_key(&server, server_key, &server_err), 0, "%s", server_err.text);
}

/* Carry what lies in `wire` to `tls`, `part` bytes at a time, and read; the last result. */
static long carry(struct ct_buf *wire, struct ct_tls *tls, size_t part, struct ct_error *err)
{
    long result = 0;

    while (wire->size > 0 && result >= 0) {
        size_t size = wire->size < part ? wire->size : part;
        cr_assert_eq(ct_tls_feed(tls, wire->data, size), 0);
        ct_buf_consume(wire, size);
        result = ct_tls_read(tls, plain, sizeof(plain), err);
    }
    return result;
}

/* The whole handshake in pieces; the results of the two last reads. */
static void shake(size_t part, long *ret_client, long *ret_server)
{
    *ret_server = 0;
    *ret_client = ct_tls_read(client, plain, sizeof(plain), &client_err);
    ct_tls_drain(client, &to_server);
    for (int turn = 0; turn < 4 && *ret_client == 0 && *ret_server == 0; turn++) {
        *ret_server = carry(&to_server, server, part, &server_err);
        ct_tls_drain(server, &to_client);
        *ret_client = carry(&to_client, client, part, &client_err);
        ct_tls_drain(client, &to_server);
    }
}

static void shake_well(void)
{
    long c, s;

    make(&key_a, &key_a);
    shake(SIZE_MAX, &c, &s);
    cr_assert(c == 0 && s == 0, "%s %s", client_err.text, server_err.text);
    cr_assert(ct_tls_ready(client) && ct_tls_ready(server));
}

Test(tls, the_same_key_opens_and_carries_text_both_ways)
{
    shake_well();
    cr_assert_eq(ct_tls_write(client, "hello", 5, &to_server, NULL), 0);
    cr_assert_null(memmem(to_server.data, to_server.size, "hello", 5));
    cr_assert_eq(carry(&to_server, server, SIZE_MAX, &server_err), 5);
    cr_assert_eq(memcmp(plain, "hello", 5), 0);
    cr_assert_eq(ct_tls_write(server, "world", 5, &to_client, NULL), 0);
    cr_assert_eq(carry(&to_client, client, SIZE_MAX, &client_err), 5);
    cr_assert_eq(memcmp(plain, "world", 5), 0);
}

Test(tls, the_handshake_may_come_byte_by_byte)
{
    long c, s;

    make(&key_a, &key_a);
    shake(1, &c, &s);
    cr_assert(c == 0 && s == 0 && ct_tls_ready(client) && ct_tls_ready(server));
}

Test(tls, half_a_first_record_costs_a_server_no_engine)
{
    enum { STRANGERS = 100, MOST = 2048 /* bytes each; an engine has ten times as many */ };
    const unsigned char half[50] = {0x16, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3};
    struct ct_tls *strangers[STRANGERS];
    struct ct_error err = {0};
    char text[16];

    struct ct_key_ring *ring = NULL;

    make(&key_a, &key_a); /* the library is there from here on */
    cr_assert_eq(ct_key_ring_of(&key_a, true, &ring, &err), 0);
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < STRANGERS; i++) {
        cr_assert_eq(ct_tls_new_server(&strangers[i], ring, &err), 0, "%s", err.text);
        cr_assert_eq(ct_tls_feed(strangers[i], half, sizeof half), 0);
        cr_assert_eq(ct_tls_read(strangers[i], text, sizeof text, &err), 0);
    }
    cr_assert_lt(mallinfo2().uordblks - before, STRANGERS * MOST);
    for (int i = 0; i < STRANGERS; i++)
        ct_tls_free(strangers[i]);
    ct_key_ring_unref(ring);
}

Test(tls, a_large_text_arrives_whole)
{
    size_t size = 3 << 20, got = 0;
    char *text = malloc(size);
    struct ct_rng rng;

    ct_rng_init(&rng, 1);
    for (size_t i = 0; i < size; i++)
        text[i] = (char)ct_rng_next(&rng);
    shake_well();
    cr_assert_eq(ct_tls_write(client, text, size, &to_server, NULL), 0);
    for (size_t at = 0; at < to_server.size; at += 50000) {
        size_t part = to_server.size - at < 50000 ? to_server.size - at : 50000;
        cr_assert_eq(ct_tls_feed(server, to_server.data + at, part), 0);
        long count;
        while ((count = ct_tls_read(server, plain, sizeof(plain), &server_err)) > 0) {
            cr_assert_eq(memcmp(plain, text + got, (size_t)count), 0);
            got += (size_t)count;
        }
        cr_assert_eq(count, 0, "%s", server_err.text);
    }
    cr_assert_eq(got, size);
    free(text);
}

Test(tls, another_key_is_refused_and_both_ends_say_so)
{
    long c, s;
    char tag[CT_PSK_TAG * 4];

    make(&key_b, &key_a);
    shake(SIZE_MAX, &c, &s);
    cr_assert_eq(s, CT_EAUTH);
    cr_assert_eq(c, CT_EAUTH);
    cr_assert(strstr(server_err.text, "the peer has another key (tag ") != NULL, "%s",
              server_err.text);
    cr_assert(strstr(client_err.text, "the peer did not accept this side's key (tag ") != NULL,
              "%s", client_err.text);
    /* The client's tag is the one that the server complains about. */
    cr_assert_eq(sscanf(strstr(client_err.text, "tag "), "tag %16[0-9a-f]", tag), 1);
    cr_assert(strstr(server_err.text, tag) != NULL);
    cr_assert_not(ct_tls_ready(client) || ct_tls_ready(server));
}

Test(tls, a_client_is_for_its_own_job_alone)
{
    shake_well();
    cr_assert(ct_tls_is_for(server, "digits"));
    cr_assert_not(ct_tls_is_for(server, "digit"));
    cr_assert_not(ct_tls_is_for(server, ""));
}

Test(tls, a_flipped_bit_anywhere_in_the_stream_is_found)
{
    for (size_t at = 0; at < 27; at++) { /* 5 header, 5 text, 1 type, 16 tag */
        shake_well();
        cr_assert_eq(ct_tls_write(client, "hello", 5, &to_server, NULL), 0);
        cr_assert_eq(to_server.size, 27);
        to_server.data[at] ^= 1;
        long count = carry(&to_server, server, SIZE_MAX, &server_err);
        cr_assert(count == CT_EPROTOCOL || (count == 0 && at < 5), "byte %zu: %ld", at, count);
        tear_down();
        set_up();
    }
}

Test(tls, a_replayed_record_is_found)
{
    shake_well();
    cr_assert_eq(ct_tls_write(client, "hello", 5, &to_server, NULL), 0);
    cr_assert_eq(ct_tls_feed(server, to_server.data, to_server.size), 0);
    cr_assert_eq(ct_tls_read(server, plain, sizeof(plain), &server_err), 5);
    cr_assert_eq(ct_tls_feed(server, to_server.data, to_server.size), 0);
    cr_assert_eq(ct_tls_read(server, plain, sizeof(plain), &server_err), CT_EPROTOCOL);
}

Test(tls, a_peer_in_clear_is_recognised_and_told)
{
    make(&key_a, &key_a);
    cr_assert_eq(ct_tls_feed(server, "CTR\x01", 4), 0);
    cr_assert_eq(ct_tls_read(server, plain, sizeof(plain), &server_err), CT_EAUTH);
    cr_assert_str_eq(server_err.text,
                     "the peer speaks in clear: it has no key file, this side has one");
    cr_assert_eq(ct_tls_drain(server, &to_client), 0);
    cr_assert_eq(to_client.size, CT_TLS_ALERT);
    cr_assert_eq(memcmp(to_client.data, ct_tls_alert, CT_TLS_ALERT), 0);
}

Test(tls, a_stranger_is_no_peer_in_clear)
{
    make(&key_a, &key_a);
    cr_assert_eq(ct_tls_feed(server, "GET / HTTP/1.1\r\n", 16), 0);
    cr_assert_eq(ct_tls_read(server, plain, sizeof(plain), &server_err), CT_EPROTOCOL);
    cr_assert_str_eq(server_err.text, "the peer opened with the byte 47: it speaks HTTP, no TLS");
}

Test(tls, an_alert_in_clear_tells_a_client_that_its_key_is_not_taken)
{
    make(&key_a, &key_a);
    cr_assert_eq(ct_tls_read(client, plain, sizeof(plain), &client_err), 0);
    cr_assert_eq(ct_tls_feed(client, ct_tls_alert, CT_TLS_ALERT), 0);
    cr_assert_eq(ct_tls_read(client, plain, sizeof(plain), &client_err), CT_EAUTH);
    cr_assert(strstr(client_err.text, "it has another key file, or none") != NULL, "%s",
              client_err.text);
}

Test(tls, an_orderly_end_is_told_from_a_cut)
{
    shake_well();
    ct_tls_close(client);
    cr_assert_eq(ct_tls_drain(client, &to_server), 0);
    cr_assert_eq(carry(&to_server, server, SIZE_MAX, &server_err), CT_ECLOSED);
}

Test(tls, garbage_that_looks_like_tls_ends_the_handshake)
{
    struct ct_rng rng;
    char garbage[600];

    ct_rng_init(&rng, 5);
    for (int round = 0; round < 50; round++) {
        make(&key_a, &key_a);
        for (size_t i = 0; i < sizeof(garbage); i++)
            garbage[i] = (char)ct_rng_next(&rng);
        memcpy(garbage, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9);
        cr_assert_eq(ct_tls_feed(server, garbage, sizeof(garbage)), 0);
        cr_assert_lt(ct_tls_read(server, plain, sizeof(plain), &server_err), 0);
        cr_assert_not(ct_tls_ready(server));
        tear_down();
        set_up();
    }
}

Test(tls, the_first_flight_of_a_client_replayed_to_another_server_opens_nothing)
{
    long c, s;
    struct ct_buf recorded = {0};

    make(&key_a, &key_a);
    cr_assert_eq(ct_tls_read(client, plain, sizeof(plain), &client_err), 0);
    ct_tls_drain(client, &recorded);
    ct_buf_append(&to_server, recorded.data, recorded.size);
    s = carry(&to_server, server, SIZE_MAX, &server_err);
    ct_tls_drain(server, &to_client);
    c = carry(&to_client, client, SIZE_MAX, &client_err);
    ct_tls_drain(client, &to_server);
    ct_buf_append(&recorded, to_server.data, to_server.size); /* all that the client ever said */
    cr_assert(s == 0 && c == 0 && ct_tls_ready(client));

    ct_tls_free(server);
    cr_assert_eq(accept_key(&server, &key_a, &server_err), 0);
    s = carry(&recorded, server, SIZE_MAX, &server_err);
    cr_assert_lt(s, 0);
    cr_assert_not(ct_tls_ready(server));
    ct_buf_deinit(&recorded);
}

Test(tls, a_hello_shows_who_holds_the_key_before_the_handshake_is_over)
{
    uint64_t hello[2] = {0};

    make(&key_a, &key_a);
    cr_assert_eq(ct_tls_read(client, plain, sizeof(plain), &client_err), 0);
    ct_tls_drain(client, &to_server);
    cr_assert_not(ct_tls_is_bound(server, &hello[0]), "nothing has come");
    cr_assert_eq(ct_tls_feed(server, to_server.data, to_server.size), 0);
    cr_assert_eq(ct_tls_read(server, plain, sizeof(plain), &server_err), 0, "%s", server_err.text);
    cr_assert_not(ct_tls_ready(server));
    cr_assert(ct_tls_is_bound(server, &hello[0]));
    cr_assert_not(ct_tls_is_bound(client, &hello[1]), "a server's hello is no client's");
    ct_tls_free(server); /* another server sees the same in a copy */
    cr_assert_eq(accept_key(&server, &key_a, &server_err), 0);
    cr_assert_eq(carry(&to_server, server, SIZE_MAX, &server_err), 0);
    cr_assert(ct_tls_is_bound(server, &hello[1]));
    cr_assert_eq(hello[0], hello[1]);
}

Test(tls, a_hello_of_another_key_or_changed_on_its_way_shows_nothing)
{
    enum { RANDOM_AT = 11, LAST = 1 }; /* in the first record; the binder is its end */
    const struct ct_key *const keys[] = {&key_b, &key_a, &key_a};
    uint64_t hello = 0;

    for (int i = 0; i < 3; i++) {
        make(keys[i], &key_a);
        cr_assert_eq(ct_tls_read(client, plain, sizeof(plain), &client_err), 0);
        ct_tls_drain(client, &to_server);
        to_server.data[i == 1 ? RANDOM_AT : to_server.size - LAST] ^= (char)(i > 0);
        cr_assert_lt(carry(&to_server, server, SIZE_MAX, &server_err), 0, "%d", i);
        cr_assert_not(ct_tls_is_bound(server, &hello), "%d", i);
        tear_down();
        set_up();
    }
}
