/* Orders on the page: the mark is that of another implementation (Python's hmac), and what a
 * stranger may send is refused. */
#include "rendezvous/page/order.h"
#include "rendezvous/service/admin.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define NONCE "000102030405060708090a0b0c0d0e0f-1000"
#define ORDER "ctrun page order 1\n" NONCE "\n7\ncordon\nnight\nnode3\nada\nits fan"
/* python3 -c 'import hmac; h = lambda k, t: hmac.new(k, t, "sha256"); ...' with the key 0 to 31 */
#define MARK "73dfcf69005f8e2a961ce02fbb842a5f938ca7cff2188c4879aee7e373f1a71b"

static struct ct_page_orders orders;
static struct ct_page_order order;
static struct ct_key key;
static struct ct_error err;

static void set_up(void)
{
    unsigned char random[16];

    for (unsigned i = 0; i < sizeof random; i++)
        random[i] = (unsigned char)i;
    for (unsigned i = 0; i < CT_KEY_BYTES; i++)
        key.secret[i] = (unsigned char)i;
    ct_page_orders_init(&orders, random);
    err = (struct ct_error){0};
}

TestSuite(page_order, .init = set_up);

static int take(uint64_t now_ms, const char *text)
{
    return ct_page_orders_take(&orders, now_ms, &key, text, strlen(text), &order, &err);
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
    key.secret[31] ^= 1;
    cr_assert_eq(take(2000, text), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "not the key of this rendezvous"));
}

Test(page_order, what_is_no_order_is_refused)
{
    static const char *const texts[] = {
        "",
        "\n\n\n\n\n\n\n\n",
        ORDER,
        ORDER "\n" MARK "\n",
        "ctrun page order 2\nn\n7\ncordon\nnight\nnode3\nada\nits fan\n" MARK,
        "ctrun page order 1\nn\n7\nreboot\nnight\nnode3\nada\nits fan\n" MARK,
        "ctrun page order 1\nn\n7\ncordon\n\nnode3\nada\nits fan\n" MARK,
        "ctrun page order 1\nn\n7\ncordon\nnight\n\nada\nits fan\n" MARK,
        "ctrun page order 1\nn\n7\ncordon\nnight\nnode3\n\nits fan\n" MARK,
        "ctrun page order 1\nn\n7\ncordon\nnight\nnode3\nada\ti\n" MARK,
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
