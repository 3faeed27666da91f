/* Shared by tcpstore.c (clients, time), ops.c (requests) and answers.c (answers, waits). */
#ifndef CT_RENDEZVOUS_TCPSTORE_STATE_H
#define CT_RENDEZVOUS_TCPSTORE_STATE_H

#include "rendezvous/tcpstore/store_keys.h"
#include "rendezvous/tcpstore/tcpstore.h"

/* A host with clients. It goes with the last of them, or with the store when something is left of
 * them there. */
struct ct_tcpstore_peer {
    struct ct_tcpstore_peer *next;
    struct ct_tcpstore_share share;
    uint32_t clients;
    uint32_t old; /* clients of the old dialect: each has a second connection, which is silent */
    uint32_t seconds; /* such connections */
    char host[CT_TCPSTORE_HOST];
};

/* Clients that owe bytes, in the order of since_ms. */
struct ct_tcpstore_debtors {
    struct ct_tcpstore_client *first, *last;
    uint32_t count;
};

struct ct_tcpstore_client {
    struct ct_tcpstore *store;
    struct ct_tcpstore_peer *peer;
    struct ct_tcpstore_client *next, *prev; /* of all */
    void *user;
    struct ct_tcpstore_reader reader;
    struct ct_buf out;
    size_t out_sent; /* bytes of `out` that are on their way */
    size_t held;     /* bytes that its owner keeps for it */
    size_t charged;  /* of both buffers, and of these */
    uint32_t pid;
    bool is_second; /* the silent connection of an old client */
    struct ct_error broken;

    bool ready;
    struct ct_tcpstore_client *next_ready;

    struct ct_tcpstore_debtors *debt; /* silent, partial or NULL */
    struct ct_tcpstore_client *next_debtor, *prev_debtor;
    uint64_t since_ms;

    /* WAIT and BARRIER: one tie a key that was absent, `missing` of them still tied. */
    struct ct_tcpstore_tie *waits;
    size_t wait_count, missing;
    uint64_t waits_since_ms;
    struct ct_tcpstore_tie *watches;
};

enum { CT_TCPSTORE_PEERS = 256 };

struct ct_tcpstore {
    struct ct_tcpstore_limits limits;
    struct ct_tcpstore_budget budget;
    struct ct_tcpstore_keys keys;
    struct ct_tcpstore_client *clients;
    uint32_t client_count, waiting;
    struct ct_tcpstore_client *ready, *ready_end;
    struct ct_tcpstore_debtors silent;  /* sent nothing, or not enough to know the dialect */
    struct ct_tcpstore_debtors partial; /* stand inside a request */
    struct ct_tcpstore_peer *peers[CT_TCPSTORE_PEERS];
};

/* ---- ops.c ---- */

/* Serve one request of `client`. 0, or an error that breaks the client. */
int ct_tcpstore_serve(struct ct_tcpstore_client *client, uint64_t now_ms,
                      const struct ct_tcpstore_request *request, struct ct_error *err);

/* ---- answers.c ---- */

/* Bytes that stand for a state on the wire. */
enum { CT_TCPSTORE_STOP_WAITING = 0 };
enum ct_tcpstore_event {
    CT_TCPSTORE_UPDATED = 0,
    CT_TCPSTORE_CREATED = 1,
    CT_TCPSTORE_DELETED = 2,
    CT_TCPSTORE_REGISTERED = 3,
};

/* Reserve room for an answer of `size` bytes, charged at once; append bytes, or bytes after their
 * length. 0, CT_ELIMIT or CT_ENOMEM. */
int ct_tcpstore_make_room(struct ct_tcpstore_client *client, size_t size, struct ct_error *err);
int ct_tcpstore_answer(struct ct_tcpstore_client *client, const void *data, size_t size,
                       struct ct_error *err);
int ct_tcpstore_answer_bytes(struct ct_tcpstore_client *client, struct ct_tcpstore_bytes value,
                             struct ct_error *err);

/* Begin a wait of an idle client for `count` keys, then add each key. 0, CT_ELIMIT or CT_ENOMEM. */
int ct_tcpstore_begin_wait(struct ct_tcpstore_client *client, size_t count, uint64_t now_ms,
                           struct ct_error *err);
void ct_tcpstore_add_wait(struct ct_tcpstore_client *client, struct ct_tcpstore_key *key);

/* Wake all waiters of `key`; wake one: the oldest whose last missing key it is. */
void ct_tcpstore_wake_all(struct ct_tcpstore_key *key);
void ct_tcpstore_wake_one(struct ct_tcpstore_key *key);

/* Notify the clients that watch `key`. Frees no entry. */
void ct_tcpstore_notify(const struct ct_tcpstore_key *key, enum ct_tcpstore_event event,
                        struct ct_tcpstore_bytes old, struct ct_tcpstore_bytes new);

/* Cancel the client's waits; cancel its watches. */
void ct_tcpstore_give_up(struct ct_tcpstore_client *client);
void ct_tcpstore_unwatch(struct ct_tcpstore_client *client);

/* ---- tcpstore.c ---- */

/* Mark a client that has output. */
void ct_tcpstore_make_ready(struct ct_tcpstore_client *client);

/* Break a client: its connection must end; its waits are cancelled. */
void ct_tcpstore_break(struct ct_tcpstore_client *client, const struct ct_error *why);

#endif
