/* Fair turns of the loop: an account (conn_inner_uv.h) has so much of a listener's work done in
 * each turn; what is more waits for the next one, and others are served meanwhile.
 *
 *   turn n     account a: read, read, [used up: its connections stop reading]   b: read   c: read
 *   turn n+1   account a: a few of those that waited go on, the rest wait        b: read   ...
 *
 * Work is counted in bytes: of input, of what is sent, at least so many for a message and for a
 * handshake of TLS, and a byte for each nanosecond where it took longer. It is a token bucket: a
 * turn's worth comes in with each turn, and what is not used is saved up to a burst, so that who
 * comes now and then (a handshake, a JOIN) does not wait at all. Who used more owes the rest to the
 * next turns. Of an account those that got nothing and those that were served go on by turns, and
 * so do accounts.
 *
 * A turn lasts a millisecond, of which an account can fill about an eighth: most of the time nobody
 * else has to wait for it at all. An account that is alone may have more, and again as soon as
 * the loop has looked at all others: thousands of nodes of one network that come at once to an idle
 * daemon are not kept waiting for nobody, and who comes meanwhile waits for about 16 ms. Nothing
 * is done for accounts that stay below. All on the loop's thread. */
#ifndef CT_NET_TURNS_UV_H
#define CT_NET_TURNS_UV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ct_conn;

enum {
    CT_TURN_BYTES = 128 << 10,     /* of an account: an eighth of a millisecond */
    CT_TURN_BURST = 1 << 20,       /* that an account can have saved: a millisecond */
    CT_TURN_ALONE = 16 << 20,      /* of one that is alone */
    CT_TURN_ALONE_MS = 2000,       /* two heartbeats: after them without another, one is alone */
    CT_TURN_HANDSHAKE = 128 << 10, /* as which a handshake counts */
    CT_TURN_MESSAGE = 4 << 10,     /* as which a message counts beside its bytes */
    CT_TURN_DEBT = 32,             /* turns after which it owes nothing */
    CT_TURN_RESUMED = 8,           /* connections of an account that go on in a turn */
    CT_TURN_ACCOUNTS = 16,         /* accounts of which some do */
    CT_TURN_BUCKETS = 1024,
    CT_TURN_HANDLES = 2,
};

struct ct_turn_account;

struct ct_turns {
    uv_loop_t *loop;
    uv_prepare_t prepare; /* before the loop waits for input: what the timer is for comes first */
    uv_timer_t timer;     /* somebody waits: until the next turn */
    uint64_t number, ms;  /* of the turn; when it began */
    uint64_t began_ns, charged; /* the work under way: since when, as how many bytes it counts */
    struct ct_turn_account *latest;       /* for which something was done last; NULL: it has gone */
    uint64_t mixed_ms;                    /* when that was another one than before */
    struct ct_turn_account *first, *last; /* those with connections that wait */
    struct ct_turn_account *buckets[CT_TURN_BUCKETS];
};

/* Begin, with CT_TURN_HANDLES handles of the loop. */
void ct_turns_init(struct ct_turns *turns, uv_loop_t *loop);

/* End, when no connection is left: `on_closed` is called for each of them, with `data` in it. */
void ct_turns_close(struct ct_turns *turns, void *data, uv_close_cb on_closed);

/* An accepted connection has its account, and is about to be freed. Without memory for its account
 * it is not limited. */
void ct_turns_enter(struct ct_turns *turns, struct ct_conn *conn);
void ct_turns_leave(struct ct_turns *turns, struct ct_conn *conn);

/* So much has been done for the connection, which may be a client's: then nothing is counted. */
void ct_turns_charge(struct ct_conn *conn, size_t bytes);

/* The loop begins to work for the connection, and has done some of it: what took longer than its
 * bytes say is charged as well. */
void ct_turns_begin(const struct ct_conn *conn);
void ct_turns_settle(struct ct_conn *conn);

/* So many bytes wait for the peer now, `before` there were so many: return how many wait for its
 * account; SIZE_MAX: that is not known. */
size_t ct_turns_queue(struct ct_conn *conn, size_t before, size_t now);

/* Return whether one account has been alone for so long that it is as good as not limited. */
bool ct_turns_is_alone(const struct ct_turns *turns);

/* Return whether its account has had its turn. */
bool ct_turns_is_over(struct ct_conn *conn);

/* Stop reading until a later turn, in which ct_conn_resume is called. `served`: something was read
 * in this one. */
void ct_turns_wait(struct ct_conn *conn, bool served);

#endif
