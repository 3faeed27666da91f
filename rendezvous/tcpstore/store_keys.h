/* The keys of one TCPStore: values, queues, and the waiters of each key.
 *
 *      bucket -> "/a"  value "12"   queue -            waits -
 *             -> "/b"  no value     queue "x" -> "y"   waits tie -> tie
 *
 * A key and the queue of the same name are separate. An entry exists because it has a value, its
 * queue is not empty, or a client waits for it or watches it; otherwise it is removed
 * (ct_tcpstore_complete). All memory is charged to a budget, in the share of the host whose request
 * took it. */
#ifndef CT_RENDEZVOUS_TCPSTORE_STORE_KEYS_H
#define CT_RENDEZVOUS_TCPSTORE_STORE_KEYS_H

#include "base/error.h"
#include "base/number/siphash.h"
#include "rendezvous/tcpstore/store_request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_tcpstore_client;
struct ct_tcpstore_key;

struct ct_tcpstore_budget {
    size_t used, limit; /* bytes */
};

/* One host's share of the budget. */
struct ct_tcpstore_share {
    struct ct_tcpstore_budget *budget;
    const char *host;
    size_t used; /* bytes, at most seven eighths of the limit */
};

/* One client's interest in one key. */
struct ct_tcpstore_tie {
    struct ct_tcpstore_tie *next, *prev; /* of the same key, oldest first */
    struct ct_tcpstore_tie *next_own;    /* watches only: the client's next */
    struct ct_tcpstore_key *key;         /* NULL: untied */
    struct ct_tcpstore_client *client;
};

struct ct_tcpstore_ties {
    struct ct_tcpstore_tie *first, *last;
};

struct ct_tcpstore_item {
    struct ct_tcpstore_item *next;
    struct ct_tcpstore_share *share;
    size_t size;
    unsigned char data[];
};

struct ct_tcpstore_key {
    struct ct_tcpstore_key *next;
    uint64_t hash;
    struct ct_tcpstore_ties waits, watches;
    struct ct_tcpstore_item *queue, *queue_end;
    int64_t queued;
    unsigned char *value; /* NULL: none */
    size_t size, room;
    struct ct_tcpstore_share *share;       /* of who asked for the name first */
    struct ct_tcpstore_share *value_share; /* of who made the value's room */
    size_t name_size;
    unsigned char name[];
};

struct ct_tcpstore_limits;

struct ct_tcpstore_keys {
    struct ct_tcpstore_key **buckets;
    size_t bucket_count; /* a power of two */
    size_t entries;      /* in all, at most `most` */
    size_t most;
    int64_t values; /* entries with a value */
    unsigned char hash_key[CT_SIPHASH_KEY];
};

/* Initialise. 0 or CT_ENOMEM. */
int ct_tcpstore_keys_init(struct ct_tcpstore_keys *keys, const struct ct_tcpstore_limits *limits);
void ct_tcpstore_keys_deinit(struct ct_tcpstore_keys *keys);

/* Check room for `size` more bytes. 0, or CT_ELIMIT with the sentence: too many for the store, or
 * for one host. */
int ct_tcpstore_check_room(const struct ct_tcpstore_share *share, size_t size,
                           struct ct_error *err);

/* Charge `size` bytes: 0, or CT_ELIMIT and nothing is charged. Charge what is held already. Give
 * bytes back. */
int ct_tcpstore_charge(struct ct_tcpstore_share *share, size_t size, struct ct_error *err);
void ct_tcpstore_book(struct ct_tcpstore_share *share, size_t size);
void ct_tcpstore_refund(struct ct_tcpstore_share *share, size_t size);

/* Return the entry of `name`, or NULL. */
struct ct_tcpstore_key *ct_tcpstore_find(const struct ct_tcpstore_keys *keys,
                                         struct ct_tcpstore_bytes name);

/* Find the key or create it, charged to `share`; NULL above a limit or without memory, with the
 * sentence. */
struct ct_tcpstore_key *ct_tcpstore_demand(struct ct_tcpstore_keys *keys,
                                           struct ct_tcpstore_share *share,
                                           struct ct_tcpstore_bytes name, struct ct_error *err);

/* Free an entry that is not needed any more. */
void ct_tcpstore_complete(struct ct_tcpstore_keys *keys, struct ct_tcpstore_key *key);

static inline bool ct_tcpstore_present(const struct ct_tcpstore_key *key)
{
    return key != NULL && (key->value != NULL || key->queued > 0);
}

/* Replace the value; put `more` behind it (it may be absent); remove it. The first two return 0,
 * CT_ELIMIT or CT_ENOMEM, and then the old value stays. */
int ct_tcpstore_put(struct ct_tcpstore_keys *keys, struct ct_tcpstore_share *share,
                    struct ct_tcpstore_key *key, struct ct_tcpstore_bytes value,
                    struct ct_error *err);
int ct_tcpstore_extend(struct ct_tcpstore_keys *keys, struct ct_tcpstore_share *share,
                       struct ct_tcpstore_key *key, struct ct_tcpstore_bytes more,
                       struct ct_error *err);
void ct_tcpstore_clear(struct ct_tcpstore_keys *keys, struct ct_tcpstore_key *key);

/* Put at the end of the queue (errors as above); take its first item (there must be one), which is
 * the caller's to free and no longer charged. */
int ct_tcpstore_push(struct ct_tcpstore_share *share, struct ct_tcpstore_key *key,
                     struct ct_tcpstore_bytes value, struct ct_error *err);
struct ct_tcpstore_item *ct_tcpstore_pop(struct ct_tcpstore_key *key);

/* Put `tie` at the end of `ties`, which are the waits or the watches of `key`; take it out. */
void ct_tcpstore_tie(struct ct_tcpstore_ties *ties, struct ct_tcpstore_tie *tie,
                     struct ct_tcpstore_key *key);
void ct_tcpstore_untie(struct ct_tcpstore_ties *ties, struct ct_tcpstore_tie *tie);

#endif
