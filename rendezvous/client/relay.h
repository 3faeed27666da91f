/* Store operations of a node's workers in flight to the rendezvous: kept until answered.
 *
 * When the connection breaks, SET, GET and WAIT are retransmitted on the next one; an ADD, CAS or
 * DELETE, which may or may not have been done, is answered CT_ECLOSED. The service knows a SET that
 * it has done (service_store.c). One thread at a time. */
#ifndef CT_RENDEZVOUS_CLIENT_RELAY_H
#define CT_RENDEZVOUS_CLIENT_RELAY_H

#include "wire/wire.h"

#include <stdbool.h>

enum {
    CT_RELAY_REQUESTS = 8000,  /* open at a time; the server takes a few more from one link */
    CT_RELAY_BYTES = 64 << 20, /* their keys and values */
};

struct ct_relay_request;

struct ct_relay {
    struct ct_relay_request *first, *last; /* in order of asking */
    size_t count;
    size_t bytes;
};

/* Answers one request of the caller's. It may add requests. */
typedef void (*ct_relay_reply_fn)(void *context, const struct ct_msg_store_reply *reply);
typedef void (*ct_relay_send_fn)(void *context, const struct ct_message *message);

void ct_relay_init(struct ct_relay *relay);

/* Free all requests without an answer. */
void ct_relay_deinit(struct ct_relay *relay);

/* Keep a copy of `op` under the number `request`, to be sent. 0, CT_ELIMIT, CT_ENOMEM; CT_EPROTOCOL
 * when it is no store request. */
int ct_relay_add(struct ct_relay *relay, uint64_t request, const struct ct_message *op);

/* Forward a reply to its requester. False when no request waits for it any more. */
bool ct_relay_answer(struct ct_relay *relay, const struct ct_msg_store_reply *reply,
                     ct_relay_reply_fn answer, void *context);

/* Answer CT_EREVOKED to all requests of generations up to `generation`. */
void ct_relay_revoke(struct ct_relay *relay, uint64_t generation, ct_relay_reply_fn answer,
                     void *context);

/* Handle a lost connection: answer CT_ECLOSED to requests that must not be repeated. */
void ct_relay_broken(struct ct_relay *relay, ct_relay_reply_fn answer, void *context);

/* Send the requests that were not sent on this connection yet. */
void ct_relay_flush(struct ct_relay *relay, ct_relay_send_fn send, void *context);

#endif
