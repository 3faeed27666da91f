/* The key-value store of one round: pure, with waiters.
 *
 * Workers bootstrap over it: addresses, unique ids, small flags. It belongs to one generation: when
 * the next round is committed the store is empty again and every waiter of the old one is answered
 * CT_EREVOKED. Values are bytes; ADD keeps its counter as decimal text, as PyTorch's store does.
 *
 *      STORE_SET k v       -> 0                      wakes the waiters of k
 *      STORE_GET k         -> 0 + value | CT_ENOTFOUND
 *      STORE_ADD k n       -> 0 + number (the sum) | CT_EPROTOCOL when k holds no number
 *      STORE_CAS k e d     -> 0 + the value now (d where k held e, or was absent as expected)
 *      STORE_WAIT k t      -> 0 + value, as soon as there is one | CT_ETIMEOUT
 *      STORE_DELETE k      -> 0 | CT_ENOTFOUND
 *
 * Requests and replies are the messages of wire.def. Everything is limited; above a limit the
 * answer is CT_ELIMIT and nothing changes. A waiter is answered exactly once. One thread at a time.
 */
#ifndef CT_RENDEZVOUS_STORE_H
#define CT_RENDEZVOUS_STORE_H

#include "base/number/siphash.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The store is about to have so many more places (keys, and those who wait for one) and bytes:
 * true, or false to have what needs them refused. Fewer are never refused. */
typedef bool (*ct_store_charge_fn)(void *context, ptrdiff_t places, ptrdiff_t bytes);

struct ct_store_limits {
    size_t keys;                            /* 0: 65536 */
    size_t bytes;                           /* keys and values together; 0: 256 MiB */
    size_t waiters;                         /* in all; 0: 65536 */
    ct_store_charge_fn charge;              /* with the context of `reply`; NULL: nobody's */
    unsigned char hash_key[CT_SIPHASH_KEY]; /* random, of the hash table: see siphash.h */
};

/* Called with each answer, in order. `reply->value` lives until the call returns. It must not call
 * the store. */
typedef void (*ct_store_reply_fn)(void *context, uint64_t client,
                                  const struct ct_msg_store_reply *reply);

struct ct_store;

/* Create an empty store of generation 0, or NULL without memory. */
struct ct_store *ct_store_new(const struct ct_store_limits *limits, ct_store_reply_fn reply,
                              void *context);

/* Frees everything; open waiters are not answered. */
void ct_store_free(struct ct_store *store);

/* Return whether it is one of the six requests; return its number and its generation. */
bool ct_store_is_request(const struct ct_message *op);
uint64_t ct_store_request_number(const struct ct_message *op);
uint64_t ct_store_request_generation(const struct ct_message *op);

/* Begin the key space of `generation`: all keys go, all waiters are answered CT_EREVOKED. */
void ct_store_begin(struct ct_store *store, uint64_t generation);

/* Answer all waiters CT_EREVOKED, and every later request of this generation too. */
void ct_store_revoke(struct ct_store *store);

/* Mark the key space of `generation` as lost (the daemon restarted): every request of it is
 * answered CT_ECLOSED until the next begins. */
void ct_store_lose(struct ct_store *store, uint64_t generation);

/* Handle one request (a STORE_... message) of `client`, the caller's number for the requester. It
 * is answered by `reply`, now or later, exactly once, unless the client is forgotten first. A
 * request of another generation than the store's is answered CT_EREVOKED. */
void ct_store_request(struct ct_store *store, uint64_t now_ms, uint64_t client,
                      const struct ct_message *op);

/* Remove a client and its waiters without an answer. */
void ct_store_forget(struct ct_store *store, uint64_t client);

/* Answer the waiters whose timeout has passed. */
void ct_store_tick(struct ct_store *store, uint64_t now_ms);

/* Return the time at which ct_store_tick is due, in ms; UINT64_MAX if never. */
uint64_t ct_store_deadline(const struct ct_store *store);

/* Return the number of bytes of its keys and values. */
size_t ct_store_bytes(const struct ct_store *store);

/* Return the number of its keys, and of those who wait for one. */
size_t ct_store_places(const struct ct_store *store);

#endif
