/* A list of copied requests, oldest first. The copy of a message and of what it points to lie in
 * one block. */
#include "rendezvous/client/relay.h"

#include "base/assert.h"
#include "rendezvous/store/store.h"

#include <stdlib.h>
#include <string.h>

struct ct_relay_request {
    struct ct_relay_request *next, *prev;
    bool sent;   /* all after one that is not sent are not sent either */
    size_t size; /* of `data` */
    struct ct_message message;
    unsigned char data[];
};

void ct_relay_init(struct ct_relay *relay)
{
    *relay = (struct ct_relay){0};
}

static void drop(struct ct_relay *relay, struct ct_relay_request *request)
{
    if (request->prev != NULL)
        request->prev->next = request->next;
    else
        relay->first = request->next;
    if (request->next != NULL)
        request->next->prev = request->prev;
    else
        relay->last = request->prev;
    relay->count--;
    relay->bytes -= request->size;
    free(request);
}

void ct_relay_deinit(struct ct_relay *relay)
{
    for (struct ct_relay_request *request = relay->first, *next; request != NULL; request = next) {
        next = request->next;
        free(request);
    }
    *relay = (struct ct_relay){0};
}

/* ---- copying ---- */

/* The pointers inside a store request: its key, and up to two values. */
struct parts {
    const char **key;
    struct ct_bytes *values[2];
};

static struct parts parts_of(struct ct_message *m)
{
    switch (m->type) {
    case CT_MSG_STORE_SET:
        return (struct parts){&m->store_set.key, {&m->store_set.value}};
    case CT_MSG_STORE_GET:
        return (struct parts){&m->store_get.key, {NULL}};
    case CT_MSG_STORE_ADD:
        return (struct parts){&m->store_add.key, {NULL}};
    case CT_MSG_STORE_CAS:
        return (struct parts){&m->store_cas.key, {&m->store_cas.expected, &m->store_cas.desired}};
    case CT_MSG_STORE_WAIT:
        return (struct parts){&m->store_wait.key, {NULL}};
    default:
        return (struct parts){&m->store_delete.key, {NULL}};
    }
}

static size_t size_of(const struct parts *parts)
{
    size_t size = strlen(*parts->key) + 1;
    for (size_t i = 0; i < CT_COUNT(parts->values); i++)
        size += parts->values[i] != NULL ? parts->values[i]->size : 0;
    return size;
}

/* Move what the message points to into `to`. */
static void adopt(struct parts *parts, unsigned char *to)
{
    size_t size = strlen(*parts->key) + 1;
    memcpy(to, *parts->key, size);
    *parts->key = (const char *)to;
    for (size_t i = 0; i < CT_COUNT(parts->values); i++) {
        struct ct_bytes *value = parts->values[i];
        to += size;
        size = value != NULL ? value->size : 0;
        if (size > 0)
            memcpy(to, value->data, size);
        if (value != NULL)
            value->data = to;
    }
}

int ct_relay_add(struct ct_relay *relay, uint64_t request, const struct ct_message *op)
{
    if (!ct_store_is_request(op))
        return CT_EPROTOCOL;
    struct ct_message message = *op;
    struct parts parts = parts_of(&message);
    size_t size = size_of(&parts);
    if (relay->count >= CT_RELAY_REQUESTS || relay->bytes + size > CT_RELAY_BYTES)
        return CT_ELIMIT;
    struct ct_relay_request *copy = malloc(sizeof(*copy) + size);
    if (copy == NULL)
        return CT_ENOMEM;
    *copy = (struct ct_relay_request){.prev = relay->last, .size = size, .message = message};
    copy->message.store_get.request = request;
    parts = parts_of(&copy->message);
    adopt(&parts, copy->data);
    if (relay->last != NULL)
        relay->last->next = copy;
    else
        relay->first = copy;
    relay->last = copy;
    relay->count++;
    relay->bytes += size;
    return 0;
}

/* ---- answering ---- */

bool ct_relay_answer(struct ct_relay *relay, const struct ct_msg_store_reply *reply,
                     ct_relay_reply_fn answer, void *context)
{
    struct ct_relay_request *request = relay->first;
    while (request != NULL && ct_store_request_number(&request->message) != reply->request)
        request = request->next;
    if (request == NULL)
        return false;
    drop(relay, request);
    answer(context, reply);
    return true;
}

static void give_up(struct ct_relay *relay, struct ct_relay_request *request, int code,
                    ct_relay_reply_fn answer, void *context)
{
    struct ct_msg_store_reply reply = {
        .request = ct_store_request_number(&request->message),
        .generation = ct_store_request_generation(&request->message),
        .code = code,
    };
    drop(relay, request);
    answer(context, &reply);
}

void ct_relay_revoke(struct ct_relay *relay, uint64_t generation, ct_relay_reply_fn answer,
                     void *context)
{
    for (struct ct_relay_request *request = relay->first, *next; request != NULL; request = next) {
        next = request->next;
        if (ct_store_request_generation(&request->message) <= generation)
            give_up(relay, request, CT_EREVOKED, answer, context);
    }
}

void ct_relay_broken(struct ct_relay *relay, ct_relay_reply_fn answer, void *context)
{
    for (struct ct_relay_request *request = relay->first, *next; request != NULL; request = next) {
        next = request->next;
        enum ct_message_type type = request->message.type;
        bool once =
            type == CT_MSG_STORE_ADD || type == CT_MSG_STORE_CAS || type == CT_MSG_STORE_DELETE;
        if (once && request->sent)
            give_up(relay, request, CT_ECLOSED, answer, context);
        else
            request->sent = false;
    }
}

void ct_relay_flush(struct ct_relay *relay, ct_relay_send_fn send, void *context)
{
    struct ct_relay_request *request = relay->last;
    if (request == NULL || request->sent)
        return;
    while (request->prev != NULL && !request->prev->sent)
        request = request->prev;
    for (; request != NULL; request = request->next) {
        request->sent = true;
        send(context, &request->message);
    }
}
