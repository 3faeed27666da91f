/* PyTorch's TCPStore as a pure core: bytes of clients in, bytes for clients out.
 *
 *      join -> input -> next_ready -> output, sent -> ... -> leave
 *                           |
 *                           `-> broken: close the connection, then leave
 *
 * It knows no socket and no clock. One store is the key space of one generation: the next has its
 * own, and its own port. Clients of both numberings (store_request.h) may share it.
 *
 *      SET k v           -              stores
 *      GET k             value          never waits; of an absent key: no bytes
 *      COMPARE_SET k e d value          e is stored over by d; absent and e empty: d is stored;
 *                                       absent otherwise: nothing is stored, the answer is e
 *      ADD k n           i64, the sum   decimal text; absent counts as 0
 *      CHECK keys        u8             0 all there, 1 not
 *      WAIT keys         u8 0           as soon as each of them was there once
 *      CANCEL_WAIT       u8 1           always, whatever was answered before
 *      GETNUMKEYS        i64            values, not queues
 *      DELETE_KEY k      i64            0 or 1; waiters go on waiting
 *      APPEND k v        -
 *      MULTI_SET pairs   -
 *      MULTI_GET keys    a value a key
 *      QUEUE_PUSH k v    -              wakes one waiter
 *      QUEUE_POP k       i64            the length before; then its first item when there was one
 *      QUEUE_LEN k       i64
 *      LIST_KEYS         i64            then a name each
 *      BARRIER k n       u8 0           counts callers at k; the n-th releases all
 *      PING nonce        u32            the same
 *      VALIDATE magic    -
 *      WATCH_KEY k       u8 3           then u8 event, k, old, new at each change
 *
 * A request that stores (SET, ADD, COMPARE_SET, APPEND, MULTI_SET) wakes the waiters of its key;
 * WAIT and CHECK count a queue that is not empty as present. A request from a client that waits
 * gives the wait up: PyTorch's clients send one only after an interrupt, and would read the late
 * answer as that of the new request.
 *
 * Waiting for a client is bounded: `handshake_ms` for the first bytes, `request_ms` for a request
 * once begun. All memory is charged to `bytes`. A client that breaks a rule is broken, with a
 * sentence; no other client notices. One thread at a time. */
#ifndef CT_RENDEZVOUS_TCPSTORE_TCPSTORE_H
#define CT_RENDEZVOUS_TCPSTORE_TCPSTORE_H

#include "base/error.h"
#include "base/number/siphash.h"
#include "rendezvous/tcpstore/store_request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_TCPSTORE_HOST = 64,         /* room for a client's host */
    CT_TCPSTORE_PATIENCE_MS = 250, /* a silent client this old may have to make room */
};

/* Zero in a number means its default. */
struct ct_tcpstore_limits {
    size_t keys;           /* 1048576, with those that are only waited for */
    size_t bytes;          /* 1 GiB: keys, values, queues, waits, and what is on its way; of one
                            * host: all but an eighth */
    uint32_t clients;      /* 16384; of one host: all but an eighth */
    uint32_t silent;       /* clients of which nothing has come yet: half of `clients` */
    uint64_t handshake_ms; /* 10000 */
    uint64_t request_ms;   /* 60000 */
    unsigned char hash_key[CT_SIPHASH_KEY]; /* random, of the hash table: see siphash.h */
};

struct ct_tcpstore;
struct ct_tcpstore_client;

/* Create an empty store, or NULL without memory. All clients must have left before it is freed. */
struct ct_tcpstore *ct_tcpstore_new(const struct ct_tcpstore_limits *limits);
void ct_tcpstore_free(struct ct_tcpstore *store);

/* Return whether a client may join now: 0, or the milliseconds after which to retry. The longest
 * silent client may be broken to make room. */
uint64_t ct_tcpstore_admit(struct ct_tcpstore *store, uint64_t now_ms);

/* Add a client from `host` (its address in digits); `user` is the caller's. NULL with a sentence:
 * too many, or no memory. */
struct ct_tcpstore_client *ct_tcpstore_join(struct ct_tcpstore *store, uint64_t now_ms,
                                            const char *host, void *user, struct ct_error *err);

/* Remove and free a client: its waits are cancelled, its values stay. */
void ct_tcpstore_leave(struct ct_tcpstore_client *client);

/* Feed bytes of the client. May make this and other clients ready. */
void ct_tcpstore_input(struct ct_tcpstore_client *client, uint64_t now_ms, const void *data,
                       size_t size);

/* Return the next client that has output or is broken, each once; NULL if none is left. */
struct ct_tcpstore_client *ct_tcpstore_next_ready(struct ct_tcpstore *store);

/* Return the bytes to be sent; a view until the next call on the store. */
struct ct_tcpstore_bytes ct_tcpstore_output(const struct ct_tcpstore_client *client);

/* Remove `size` sent bytes from the output. A client that was paused because of its unread answers
 * is served again. */
void ct_tcpstore_sent(struct ct_tcpstore_client *client, uint64_t now_ms, size_t size);

/* Charge `size` bytes that are kept for the client outside of the store. Breaks it above its
 * limit. */
void ct_tcpstore_hold(struct ct_tcpstore_client *client, size_t size);

/* Return whether its bytes should stay in the socket until it has read its answers. */
bool ct_tcpstore_is_full(const struct ct_tcpstore_client *client);

/* Return why the connection must be closed, or NULL. */
const struct ct_error *ct_tcpstore_broken(const struct ct_tcpstore_client *client);

/* Break the clients whose deadline has passed; return the next deadline in ms, UINT64_MAX if
 * none. */
void ct_tcpstore_tick(struct ct_tcpstore *store, uint64_t now_ms);
uint64_t ct_tcpstore_deadline(const struct ct_tcpstore *store);

/* The facts about a client. */
struct ct_tcpstore_about {
    void *user;
    const char *host;
    enum ct_tcpstore_dialect dialect;
    uint32_t pid; /* as its PING says, PyTorch 2.5 and later; 0: not said */
    bool waits;   /* in WAIT or BARRIER */
    uint64_t waits_since_ms;
};
struct ct_tcpstore_about ct_tcpstore_about(const struct ct_tcpstore_client *client);

/* Options of ct_tcpstore_print_waits. */
struct ct_tcpstore_waits {
    uint64_t now_ms;
    uint64_t at_least_ms; /* only those who wait so long */
    size_t most;          /* lines; 0: any number */
    /* Append the client's name; NULL: its host and its pid. */
    void (*put_name)(void *context, const struct ct_tcpstore_about *about, struct ct_buf *to);
    void *context;
};

/* Append a line for each waiting client: name, duration and keys; at the end the number that was
 * left out. Returns the number of waiting clients. */
size_t ct_tcpstore_print_waits(const struct ct_tcpstore *store, const struct ct_tcpstore_waits *how,
                               struct ct_buf *to);

#endif
