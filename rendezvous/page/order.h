/* Orders that are given on the page: who gives one proves that he has a key of the rendezvous,
 * which never travels.
 *
 *   GET  /orders   a nonce: this server and now
 *   POST /orders   the order's text, and its mark:
 *
 *        ctrun page order 2 KEY \n NONCE \n ID \n VERB \n JOB \n HOST \n AUTHOR \n REASON \n MARK
 *
 *   KEY is the id of one that may give orders for the job (key_ring.h).
 *   MARK = HMAC(HMAC(key, "ctrun/1 page orders"), all before its line end), SHA-256, in hexadecimal
 *
 * An order counts once, and for a minute after its nonce was made. Pure but for libssl, which is
 * loaded at the first order. RFC 2104. */
#ifndef CT_RENDEZVOUS_PAGE_ORDER_H
#define CT_RENDEZVOUS_PAGE_ORDER_H

#include "base/error.h"
#include "keys/key_ring.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CT_PAGE_ORDER_MS = 60 * 1000,
    CT_PAGE_ORDERS = 64, /* that are remembered, so many in a minute */
    CT_PAGE_SERVER = 33, /* text of a server's number */
    CT_PAGE_NONCE = 56,
    CT_PAGE_MARK = 65,
};

/* Which orders were taken lately. Its fields are private. */
struct ct_page_orders {
    char server[CT_PAGE_SERVER]; /* random, of this process */
    struct {
        char mark[CT_PAGE_MARK]; /* "": none */
        uint64_t ms;
    } taken[CT_PAGE_ORDERS];
};

/* One that may be carried out; the texts are without control characters. */
struct ct_page_order {
    unsigned verb; /* CT_ADMIN_DRAIN, CT_ADMIN_CORDON or CT_ADMIN_UNCORDON */
    char job[129], host[256], author[200], reason[1001];
    const struct ct_grant *grant; /* of whose key gave it; the ring's */
};

/* Begin, with 16 random bytes. */
void ct_page_orders_init(struct ct_page_orders *orders, const unsigned char random[16]);

/* Write the nonce of now. */
void ct_page_orders_nonce(const struct ct_page_orders *orders, uint64_t now_ms,
                          char ret_nonce[CT_PAGE_NONCE]);

/* Read and check one: `size` bytes of a stranger, who runs as `uid` on this machine (-1: not
 * known). 0; CT_EDATA for what is no order, CT_EAUTH for one without a key that may give it, or too
 * old, CT_ELIMIT when too many were taken, CT_EUNSUPPORTED without libssl; with the sentence. */
int ct_page_orders_take(struct ct_page_orders *orders, uint64_t now_ms,
                        const struct ct_key_ring *ring, const char *text, size_t size, int64_t uid,
                        struct ct_page_order *ret_order, struct ct_error *err);

#endif
