/* Orders on the page: the mark is that of another implementation (Python's hmac), and what a
 * stranger may send is refused. */
#include "rendezvous/page/order.h"
#include "rendezvous/service/admin.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define NONCE "000102030405060708090a0b0c0d0e0f-1000"
#define ORDER \
    "ctrun page order 2 7b314b4f305f97a5\n" NONCE "\n7\ncordon\nnight\nnode3\nada\nits fan"
/* python3 -c 'import hmac; h = lambda k, t: hmac.new(k, t, "sha256"); ...' with the key 0 to 31 */
#define MARK "f0fd01e84c8126e615988a26bc6809e62731d7c55d971ee798563c1914224010"

static struct ct_page_orders orders;
static struct ct_page_order order;
static struct ct_key_ring *ring;
static struct ct_error err;

static void set_up(void)
{
    unsigned char random[16];
    struct ct_key key = {.kind = CT_KEY_SECRET};

    for (unsigned i = 0; i < sizeof random; i++)
        random[i] = (unsigned char)i;
    for (unsigned i = 0; i < CT_KEY_BYTES; i++)
        key.secret[i] = (unsigned char)i;
    ct_page_orders_init(&orders, random);
    cr_assert_eq(ct_key_ring_of(&key, true, &ring, &err), 0, "%s", err.text);
    err = (struct ct_error){0};
}

TestSuite(page_order, .init = set_up);

static int take(uint64_t now_ms, const char *text)
{
    return ct_page_orders_take(&orders, now_ms, ring, text, strlen(text), -1, &order, &err);
}

Test(page_order, who_has_the_key_gives_it_once)
{
    char nonce[CT_PAGE_NONCE];

    ct_page_orders_nonce(&orders, 1000, nonce);
    cr_assert_str_eq(nonce, NONCE);
    cr_assert_eq(take(2000, ORDER "\n" MARK), 0, "%s", err.text);
    cr_assert_eq(order.verb, CT_ADMIN_CORDON);
    cr_assert_str_eq(order.job, "night");
    cr_assert_str_eq(order.host, "node3");
    cr_assert_str_eq(order.author, "ada");
    cr_assert_str_eq(order.reason, "its fan");
    cr_assert_eq(take(2000, ORDER "\n" MARK), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "was given before"));
}

Test(page_order, an_old_one_one_of_the_future_and_one_for_another_server_are_refused)
{
    cr_assert_eq(take(1000 + CT_PAGE_ORDER_MS + 1, ORDER "\n" MARK), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "more than a minute old"));
    cr_assert_eq(take(999, ORDER "\n" MARK), CT_EAUTH);
    ct_page_orders_init(&orders, (const unsigned char *)"another server..");
    cr_assert_eq(take(1000, ORDER "\n" MARK), CT_EAUTH);
}

Test(page_order, without_the_key_nothing_of_it_counts)
{
    char text[] = ORDER "\n" MARK;

    for (size_t i = 0; i < sizeof text - 1; i++) { /* one bit is another one */
        text[i] ^= 1;
        cr_assert_neq(take(2000, text), 0, "byte %zu", i);
        text[i] ^= 1;
    }
    text[strlen("ctrun page order 2 ")] ^= 1;
    cr_assert_eq(take(2000, text), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "is none of this rendezvous"));
}

Test(page_order, of_the_keys_of_roles_an_operator_s_alone_gives_one)
{
    static const struct {
        const char *role, *id, *mark;
    } rows[] = {
        {"agent", "27d16855e2a29cb9",
         "0dd504b2a74115944752e31cbb72352efe04a85fc8e47773b323b3f055a74d96"},
        {"operator", "3e7433cc995cd346",
         "2823b05d712c768ec4a73f3aba1f10ae63ac2f399e0d50719cfe905512d8801a"},
        {"reader", "69d9a2b7171ab0a3",
         "f892858c2a60854b44fe49279fc02487d0b46e987c81416d0dfebf8dbff98029"},
        {"relay", "394651fc0c9420bb",
         "4405a4e969d4e0e084ba54f8e0f73b75a33224f1e8efff9187294944aeae6c31"},
    };
    char text[1024];

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        bool may = strcmp(rows[i].role, "operator") == 0;

        (void)snprintf(text, sizeof text, "ctrun page order 2 %s%s\n%s", rows[i].id,
                       &ORDER[strlen("ctrun page order 2 7b314b4f305f97a5")], rows[i].mark);
        cr_assert_eq(take(2000, text), may ? 0 : CT_EAUTH, "%s: %s", rows[i].role, err.text);
        cr_assert(may || strstr(err.text, "which may not give orders") != NULL, "%s", err.text);
    }
}

Test(page_order, what_is_no_order_is_refused)
{
    static const char *const texts[] = {
        "",
        "\n\n\n\n\n\n\n\n",
        ORDER,
        ORDER "\n" MARK "\n",
        "ctrun page order 1 7b314b4f305f97a5\nn\n7\ncordon\nnight\nnode3\nada\nits fan\n" MARK,
        "ctrun page order 2 7b314b4f305f97a5\nn\n7\nreboot\nnight\nnode3\nada\nits fan\n" MARK,
        "ctrun page order 2 7b314b4f305f97a5\nn\n7\ncordon\n\nnode3\nada\nits fan\n" MARK,
        "ctrun page order 2 7b314b4f305f97a5\nn\n7\ncordon\nnight\n\nada\nits fan\n" MARK,
        "ctrun page order 2 7b314b4f305f97a5\nn\n7\ncordon\nnight\nnode3\n\nits fan\n" MARK,
        "ctrun page order 2 7b314b4f305f97a5\nn\n7\ncordon\nnight\nnode3\nada\ti\n" MARK,
    };
    static char large[4096];

    for (size_t i = 0; i < CT_COUNT(texts); i++)
        cr_assert_eq(take(2000, texts[i]), CT_EDATA, "%zu", i);
    memset(large, 'x', sizeof large - 1);
    cr_assert_eq(take(2000, large), CT_EDATA);
}

Test(page_order, so_many_in_a_minute_and_no_more)
{
    for (size_t i = 0; i < CT_PAGE_ORDERS; i++) {
        (void)snprintf(orders.taken[i].mark, CT_PAGE_MARK, "mark %zu", i);
        orders.taken[i].ms = 2000;
    }
    cr_assert_eq(take(2000, ORDER "\n" MARK), CT_ELIMIT);
    orders.taken[5].ms = 0;
    cr_assert_eq(take(2000 + CT_PAGE_ORDER_MS - 1000, ORDER "\n" MARK), 0, "%s", err.text);
}

Test(page_order, where_munge_alone_counts_an_order_is_given_elsewhere)
{
    static const struct ct_key munge = {.kind = CT_KEY_MUNGE};

    ct_key_ring_unref(ring);
    cr_assert_eq(ct_key_ring_of(&munge, true, &ring, &err), 0, "%s", err.text);
    cr_assert_eq(take(2000, ORDER "\n" MARK), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "give the order with `ctrun cordon`"), "%s", err.text);
}
