/* The places of connections that have not proved themselves: whose first message has not come.
 *
 *   accepted --> TRUSTED    whose account proved itself before, or is this user's on loopback
 *          `---> STRANGER   all others
 *                   |
 *                   |  a hello that binds itself to the key (TLS), seen for the first time
 *                   v
 *                 BOUND --> first message: proven, no place any more
 *
 * A client of TLS waits for the server's answer before its first message, so when thousands connect
 * at once most of those that wait hold the key. They show it in the first thing that they send: a
 * MAC over their hello, by a key that follows from the job's. Only a copy of another's hello could
 * be a stranger's, and a hello counts once. So what a crowd of strangers does to each other is not
 * done to them.
 *
 * Here are the places alone; listen_uv.c decides who gets one and who must give it up. */
#ifndef CT_NET_PENDING_UV_H
#define CT_NET_PENDING_UV_H

#include "base/number/rng.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_conn;

enum { CT_HELLOS = 16384 /* that are remembered */ };

enum ct_place { CT_PLACE_NONE, CT_PLACE_TRUSTED, CT_PLACE_STRANGER, CT_PLACE_BOUND };

/* Its fields are read by listen_uv.c. */
struct ct_pending {
    struct ct_pending_list {
        struct ct_conn *oldest, *newest;
        uint32_t count;
    } trusted, bound;           /* by age */
    struct ct_conn **strangers; /* in any order: one of them is drawn */
    uint32_t stranger_count, most_strangers;
    uint64_t hellos[CT_HELLOS]; /* each at its own slot */
    struct ct_rng rng;
};

/* Make room for `most` strangers. 0 or CT_ENOMEM. */
int ct_pending_init(struct ct_pending *pending, uint32_t most, uint64_t seed);
void ct_pending_deinit(struct ct_pending *pending);

/* Give `conn`, which has none, a place; there is room for one more stranger. */
void ct_pending_enter(struct ct_pending *pending, struct ct_conn *conn, enum ct_place place);

/* Take its place from it, if it has one. */
void ct_pending_leave(struct ct_pending *pending, struct ct_conn *conn);

/* Return the number of trusted ones of `account` that have not ended; the oldest of them. */
uint32_t ct_pending_count_trusted(const struct ct_pending *pending, uint64_t account,
                                  struct ct_conn **ret_oldest);

/* Return the stranger that another of `account` displaces: NULL while there is room; one of its own
 * account when that has `most_of_one` places; any when there is none left. By chance: who comes in
 * numbers displaces mostly his own. */
struct ct_conn *ct_pending_displaced(struct ct_pending *pending, uint64_t account,
                                     uint32_t most_of_one);

/* Return whether `hello` has not been seen lately, and remember it. */
bool ct_pending_is_new(struct ct_pending *pending, uint64_t hello);

/* Return the number of all. */
uint32_t ct_pending_count(const struct ct_pending *pending);

#endif
