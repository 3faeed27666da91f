/* Who gives way when all places of an HTTP server are taken. Pure.
 *
 *      places of accounts   A A A A A B          a newcomer of B: the oldest of A gives way
 *                           A A A B B B          of either: nobody, unless one keeps silent
 *
 * An account is a user of this machine, or a host (ct_address_peer_account). So who takes all
 * places for himself loses one to each that comes; among equals, who has asked for nothing within
 * CT_WEB_PATIENCE_MS. The caller owns the places; they are linked while they are taken. */
#ifndef CT_NET_WEB_PLACES_H
#define CT_NET_WEB_PLACES_H

#include <stdbool.h>
#include <stdint.h>

enum { CT_WEB_PATIENCE_MS = 250 };

struct ct_web_place {
    uint64_t account;
    uint64_t since_ms;
    bool asked;  /* its request is there */
    void *owner; /* the caller's */
    struct ct_web_place *next, **link;
};

struct ct_web_places {
    struct ct_web_place *newest;
    uint32_t count;
};

/* Take a place; its first fields are filled in. */
void ct_web_places_enter(struct ct_web_places *places, struct ct_web_place *place);

/* Leave it; nothing happens if it is not taken. */
void ct_web_places_leave(struct ct_web_places *places, struct ct_web_place *place);

/* Return the place that gives way to a newcomer of `account`; NULL: none does. */
struct ct_web_place *ct_web_places_displaced(const struct ct_web_places *places, uint64_t account,
                                             uint64_t now_ms);

#endif
