/* The endpoints that an agent tries in turn: those it was given, and those where the record of its
 * job is held, as the last leader, or another holder, has told.
 *
 *      given:  a  b        each once and at once after the one before, until one opens; then the
 *                          next turn when the member asks again, with its jitter
 *      told:   a  b | x y  the same, from x on
 *      own:    a  b | x y | h   this host has a holder, too: it may lead, or know who does, when
 *                               those told are of long ago
 *
 * Two that do not lead may send an agent to and fro: after a few such words those given are next.
 *
 * A single one is tried for as long as the member waits. Of several each is tried for a second, or
 * for half a millisecond for each node of the last round: when the leader is gone all of them come
 * at once, and a server takes about a quarter of one for each. When no endpoint has opened in a
 * whole turn, they are tried for twice as long in the next: who hangs up just before it would have
 * been answered comes again, and so the crowd never gets smaller.
 *
 * Whoever held the record is where the rendezvous may be when the leader is gone. Pure: the caller
 * dials. */
#ifndef CT_RENDEZVOUS_CLIENT_ENDPOINTS_H
#define CT_RENDEZVOUS_CLIENT_ENDPOINTS_H

#include "net/endpoint.h"
#include "wire/wire.h"

enum {
    CT_ENDPOINTS_GIVEN = 8,
    CT_ENDPOINTS_ALL = CT_ENDPOINTS_GIVEN + 16 + 1, /* with those of VOTERS, and its own */
    CT_ENDPOINTS_SENT_ON = 4,                       /* times, by some that do not lead, at most */
    CT_ENDPOINTS_TURN_MS = 1000,    /* with several: how long one is tried at first */
    CT_ENDPOINTS_LONGEST_MS = 8000, /* ... and at last */
};

/* Its fields are private. */
struct ct_endpoints {
    struct ct_endpoint list[CT_ENDPOINTS_ALL]; /* those given, those told, its own */
    struct ct_endpoint own;
    bool has_own;
    size_t given;
    size_t count;
    size_t next;
    size_t tried;        /* since ct_endpoints_begin */
    uint32_t sent_on;    /* how often by one that does not lead, since those given were next */
    uint32_t turn_ms;    /* for so long is each tried */
    uint64_t give_up_ms; /* when the member has waited long enough */
};

/* One try. */
struct ct_endpoint_try {
    const struct ct_endpoint *endpoint; /* valid until the endpoints change */
    uint32_t connect_ms;                /* for so long, at least 1 */
    bool once;                          /* a refusal ends it: others are tried instead */
};

/* Read a list, "a:29400,b:29400". 0 or CT_EUSAGE with the sentence. */
int ct_endpoints_init(struct ct_endpoints *endpoints, const char *list, struct ct_error *err);

/* VOTERS came: these take the place of the ones told before, and the first of them is next. What
 * cannot be read is left out. */
void ct_endpoints_learn(struct ct_endpoints *endpoints, const struct ct_msg_voters *voters);

/* This host has a holder, which listens there. Ignored when it cannot be read. */
void ct_endpoints_set_own(struct ct_endpoints *endpoints, const char *address);

/* The member, one of `nodes` in its last round (0: none yet), asks for a connection within
 * `give_up_ms`: ct_endpoints_next has the first try. */
void ct_endpoints_begin(struct ct_endpoints *endpoints, uint64_t now_ms, uint64_t give_up_ms,
                        uint32_t nodes);

/* One of them has answered: the next turn is a short one again. */
void ct_endpoints_opened(struct ct_endpoints *endpoints);

/* Take the next endpoint in turn. */
struct ct_endpoint_try ct_endpoints_next(struct ct_endpoints *endpoints, uint64_t now_ms);

/* A connection ended; `was_open`: after it had opened. Is the next one tried at once, before the
 * member hears of it? */
bool ct_endpoints_go_on(const struct ct_endpoints *endpoints, bool was_open);

#endif
