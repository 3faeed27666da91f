/* See order.h. */
#include "rendezvous/page/order.h"

#include "keys/openssl.h"
#include "rendezvous/service/admin.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "ctrun page order 2 " /* and the key's id */
#define LABEL "ctrun/1 page orders"

enum { TEXT_BYTES = 2048 };

enum line {
    LINE_VERSION,
    LINE_NONCE,
    LINE_ID,
    LINE_VERB,
    LINE_JOB,
    LINE_HOST,
    LINE_AUTHOR,
    LINE_REASON,
    LINE_MARK,
    LINES
};

void ct_page_orders_init(struct ct_page_orders *orders, const unsigned char random[16])
{
    *orders = (struct ct_page_orders){.server = ""};
    ct_put_hex(random, 16, orders->server);
}

void ct_page_orders_nonce(const struct ct_page_orders *orders, uint64_t now_ms,
                          char ret_nonce[CT_PAGE_NONCE])
{
    (void)snprintf(ret_nonce, CT_PAGE_NONCE, "%s-%" PRIu64, orders->server, now_ms);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int refuse_text(struct ct_error *err)
{
    return ct_error_set(err, CT_EDATA, "this is no order of this version's page: load it again");
}

/* The key that the first line names, if it may give orders for the job. */
static int find_key(const struct ct_key_ring *ring, char *const lines[LINES],
                    const struct ct_grant **ret_grant, const struct ct_key **ret_key,
                    struct ct_error *err)
{
    const char *id = lines[LINE_VERSION] + strlen(VERSION);

    *ret_grant = ct_key_ring_find(ring, id, ret_key);
    if (*ret_grant == NULL && ct_key_ring_count(ring) == 0)
        return ct_error_set(err, CT_EAUTH,
                            "this rendezvous knows users by munge alone, of which a page has no "
                            "key: give the order with `ctrun %s`",
                            lines[LINE_VERB]);
    return *ret_grant != NULL
               ? 0
               : ct_error_set(err, CT_EAUTH,
                              "key %.16s is none of this rendezvous: choose the file that "
                              "--key_file names there, or one of its key ring",
                              id);
}

/* Split `text`, a copy, into its lines. */
static bool split(char *text, size_t size, char *lines[LINES])
{
    size_t count = 0;

    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < ' ' && text[i] != '\n')
            return false;
    for (char *line = text; line != NULL && count < LINES; line = strchr(line, '\n')) {
        if (count > 0)
            *line++ = '\0';
        lines[count++] = line;
    }
    return count == LINES && strchr(lines[LINES - 1], '\n') == NULL;
}

static bool read_order(char *const lines[LINES], struct ct_page_order *order)
{
    static const struct {
        const char *name;
        enum ct_admin_verb verb;
    } verbs[] = {
        {"drain", CT_ADMIN_DRAIN},
        {"cordon", CT_ADMIN_CORDON},
        {"uncordon", CT_ADMIN_UNCORDON},
    };
    bool is_known = false;

    for (size_t i = 0; i < CT_COUNT(verbs); i++)
        if (strcmp(lines[LINE_VERB], verbs[i].name) == 0) {
            order->verb = verbs[i].verb;
            is_known = true;
        }
    return is_known && lines[LINE_JOB][0] != '\0' && lines[LINE_HOST][0] != '\0' &&
           lines[LINE_AUTHOR][0] != '\0' &&
           ct_str_copy(order->job, sizeof order->job, lines[LINE_JOB]) &&
           ct_str_copy(order->host, sizeof order->host, lines[LINE_HOST]) &&
           ct_str_copy(order->author, sizeof order->author, lines[LINE_AUTHOR]) &&
           ct_str_copy(order->reason, sizeof order->reason, lines[LINE_REASON]);
}

/* ---- who gives it, and when ----------------------------------------------------------------- */

static int put_mark(const struct ct_key *key, const char *text, size_t size,
                    char ret_mark[CT_PAGE_MARK], struct ct_error *err)
{
    unsigned char derived[CT_HMAC_BYTES], mac[CT_HMAC_BYTES];
    const struct ct_openssl *ssl;
    int code = ct_openssl_get(&ssl, err);

    if (code != 0)
        return code;
    ct_openssl_hmac(ssl, key->secret, CT_KEY_BYTES, LABEL, sizeof LABEL - 1, derived);
    ct_openssl_hmac(ssl, derived, sizeof derived, text, size, mac);
    ct_put_hex(mac, sizeof mac, ret_mark);
    explicit_bzero(derived, sizeof derived);
    return 0;
}

static bool is_fresh(const struct ct_page_orders *orders, uint64_t now_ms, const char *nonce)
{
    size_t length = strlen(orders->server);
    char *end;

    if (strncmp(nonce, orders->server, length) != 0 || nonce[length] != '-')
        return false;
    uint64_t ms = strtoull(nonce + length + 1, &end, 10);
    return *end == '\0' && ms <= now_ms && now_ms - ms <= CT_PAGE_ORDER_MS;
}

/* Remember it. CT_EAUTH: it was taken before. */
static int remember(struct ct_page_orders *orders, uint64_t now_ms, const char *mark,
                    struct ct_error *err)
{
    size_t place = CT_PAGE_ORDERS;

    for (size_t i = 0; i < CT_PAGE_ORDERS; i++) {
        bool counts =
            orders->taken[i].mark[0] != '\0' && now_ms - orders->taken[i].ms <= CT_PAGE_ORDER_MS;
        if (counts && strcmp(orders->taken[i].mark, mark) == 0)
            return ct_error_set(err, CT_EAUTH, "this order was given before");
        if (!counts)
            place = i;
    }
    if (place == CT_PAGE_ORDERS)
        return ct_error_set(err, CT_ELIMIT,
                            "%d orders were given on this page within a minute: "
                            "wait a little",
                            CT_PAGE_ORDERS);
    (void)ct_str_copy(orders->taken[place].mark, CT_PAGE_MARK, mark);
    orders->taken[place].ms = now_ms;
    return 0;
}

int ct_page_orders_take(struct ct_page_orders *orders, uint64_t now_ms,
                        const struct ct_key_ring *ring, const char *text, size_t size, int64_t uid,
                        struct ct_page_order *ret_order, struct ct_error *err)
{
    const struct ct_key *key = NULL;
    char copy[TEXT_BYTES + 1], mark[CT_PAGE_MARK], *lines[LINES];

    if (size > TEXT_BYTES)
        return refuse_text(err);
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (!split(copy, size, lines) || !ct_starts_with(lines[LINE_VERSION], VERSION) ||
        !read_order(lines, ret_order))
        return refuse_text(err);
    int code = find_key(ring, lines, &ret_order->grant, &key, err);
    if (code == 0)
        code = put_mark(key, text, (size_t)(lines[LINE_MARK] - copy) - 1, mark, err);
    if (code != 0)
        return code;
    if (strlen(lines[LINE_MARK]) != CT_PAGE_MARK - 1 ||
        !ct_secret_equal(lines[LINE_MARK], mark, CT_PAGE_MARK - 1))
        return ct_error_set(err, CT_EAUTH, "the order was not made with key %s",
                            ret_order->grant->id);
    code = ct_grant_may(ret_order->grant, CT_RIGHT_ORDER, ret_order->job, uid, err);
    if (code != 0)
        return code;
    if (!is_fresh(orders, now_ms, lines[LINE_NONCE]))
        return ct_error_set(err, CT_EAUTH, "the order is more than a minute old: give it again");
    return remember(orders, now_ms, mark, err);
}
