/* What each request does; see tcpstore.h. */
#include "rendezvous/tcpstore/state.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READY = 0, NOT_READY = 1, WAIT_CANCELED = 1 };

/* One request being served. */
struct call {
    struct ct_tcpstore *store;
    struct ct_tcpstore_client *client;
    const unsigned char *body;
    uint64_t now_ms;
    struct ct_error *err;
};

static struct ct_tcpstore_bytes value_of(const struct ct_tcpstore_key *key)
{
    if (key == NULL || key->value == NULL)
        return (struct ct_tcpstore_bytes){NULL, 0};
    return (struct ct_tcpstore_bytes){key->value, key->size};
}

static struct ct_tcpstore_share *share_of(const struct call *call)
{
    return &call->client->peer->share;
}

static int answer_byte(const struct call *call, uint8_t value)
{
    return ct_tcpstore_answer(call->client, &value, 1, call->err);
}

static int answer_number(const struct call *call, int64_t value)
{
    unsigned char bytes[8];

    ct_put_le64(bytes, (uint64_t)value);
    return ct_tcpstore_answer(call->client, bytes, sizeof bytes, call->err);
}

static int answer_bytes(const struct call *call, struct ct_tcpstore_bytes value)
{
    return ct_tcpstore_answer_bytes(call->client, value, call->err);
}

/* ---- storing ---- */

/* Store at `key`, which may be NULL when `name` is not there yet. */
static int put(const struct call *call, struct ct_tcpstore_key *key, struct ct_tcpstore_bytes name,
               struct ct_tcpstore_bytes value)
{
    struct ct_tcpstore_keys *keys = &call->store->keys;

    if (key == NULL)
        key = ct_tcpstore_demand(keys, share_of(call), name, call->err);
    if (key == NULL)
        return call->err->code;
    ct_tcpstore_notify(key, key->value != NULL ? CT_TCPSTORE_UPDATED : CT_TCPSTORE_CREATED,
                       value_of(key), value);
    int rc = ct_tcpstore_put(keys, share_of(call), key, value, call->err);
    if (rc != 0)
        ct_tcpstore_complete(keys, key);
    else
        ct_tcpstore_wake_all(key);
    return rc;
}

/* The number that a value begins with, as strtoll(3) reads it; an absent key is 0. */
static int number_of(const struct call *call, const struct ct_tcpstore_key *key, int64_t *ret)
{
    char text[64], *end;
    struct ct_tcpstore_bytes value = value_of(key);
    size_t size = CT_MIN(value.size, sizeof text - 1);

    *ret = 0;
    if (key == NULL || key->value == NULL)
        return 0;
    if (size > 0)
        memcpy(text, value.data, size);
    text[size] = '\0';
    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (end == text || errno != 0)
        return ct_error_set(call->err, CT_EPROTOCOL,
                            "a number was to be added to a key whose value is none");
    return 0;
}

/* Add to the number at `name`. */
static int add_to(const struct call *call, struct ct_tcpstore_bytes name, int64_t delta,
                  int64_t *ret_sum)
{
    struct ct_tcpstore_key *key = ct_tcpstore_find(&call->store->keys, name);
    char text[32];
    int rc = number_of(call, key, ret_sum);

    if (rc != 0)
        return rc;
    if (__builtin_add_overflow(*ret_sum, delta, ret_sum))
        return ct_error_set(call->err, CT_EPROTOCOL, "a sum leaves the range of 64 bits");
    int size = snprintf(text, sizeof text, "%" PRId64, *ret_sum);
    const struct ct_tcpstore_bytes value = {(const unsigned char *)text, (size_t)size};
    return put(call, key, name, value);
}

/* ---- one function a request ---- */

static int do_validate(struct call *call)
{
    if (ct_tcpstore_read_u32(&call->body) == CT_TCPSTORE_MAGIC)
        return 0;
    return ct_error_set(call->err, CT_EPROTOCOL, "the handshake has the wrong magic");
}

static int do_ping(struct call *call)
{
    unsigned char bytes[4];

    call->client->pid = ct_tcpstore_read_u32(&call->body);
    ct_put_le32(bytes, call->client->pid);
    return ct_tcpstore_answer(call->client, bytes, sizeof bytes, call->err);
}

static int do_set(struct call *call)
{
    struct ct_tcpstore_bytes name = ct_tcpstore_read_bytes(&call->body);
    struct ct_tcpstore_bytes value = ct_tcpstore_read_bytes(&call->body);

    return put(call, NULL, name, value);
}

static int do_compare_set(struct call *call)
{
    struct ct_tcpstore_bytes name = ct_tcpstore_read_bytes(&call->body);
    struct ct_tcpstore_bytes expected = ct_tcpstore_read_bytes(&call->body);
    struct ct_tcpstore_bytes desired = ct_tcpstore_read_bytes(&call->body);
    struct ct_tcpstore_key *key = ct_tcpstore_find(&call->store->keys, name);
    struct ct_tcpstore_bytes now = value_of(key);
    bool here = key != NULL && key->value != NULL;

    /* PyTorch's clients rely on this: an absent key looks as if it held what was expected. */
    if (!here && expected.size > 0)
        return answer_bytes(call, expected);
    if (here && (now.size != expected.size ||
                 (now.size > 0 && memcmp(now.data, expected.data, now.size) != 0)))
        return answer_bytes(call, now);
    int rc = put(call, key, name, desired);
    return rc == 0 ? answer_bytes(call, desired) : rc;
}

static int do_get(struct call *call)
{
    const struct ct_tcpstore_key *key =
        ct_tcpstore_find(&call->store->keys, ct_tcpstore_read_bytes(&call->body));

    return answer_bytes(call, value_of(key));
}

static int do_add(struct call *call)
{
    struct ct_tcpstore_bytes name = ct_tcpstore_read_bytes(&call->body);
    int64_t sum;
    int rc = add_to(call, name, (int64_t)ct_tcpstore_read_u64(&call->body), &sum);

    return rc == 0 ? answer_number(call, sum) : rc;
}

/* How many of the keys in the body are absent. */
static size_t count_absent(const struct call *call, const unsigned char *body)
{
    uint64_t count = ct_tcpstore_read_u64(&body);
    size_t absent = 0;

    for (; count > 0; count--)
        absent += !ct_tcpstore_present(
            ct_tcpstore_find(&call->store->keys, ct_tcpstore_read_bytes(&body)));
    return absent;
}

static int do_check(struct call *call)
{
    uint8_t state = count_absent(call, call->body) == 0 ? READY : NOT_READY;

    return answer_byte(call, state);
}

static int do_wait(struct call *call)
{
    size_t absent = count_absent(call, call->body);
    uint64_t count = ct_tcpstore_read_u64(&call->body);

    if (absent == 0)
        return answer_byte(call, CT_TCPSTORE_STOP_WAITING);
    int rc = ct_tcpstore_begin_wait(call->client, absent, call->now_ms, call->err);
    for (; rc == 0 && count > 0; count--) {
        struct ct_tcpstore_key *key = ct_tcpstore_demand(
            &call->store->keys, share_of(call), ct_tcpstore_read_bytes(&call->body), call->err);
        if (key == NULL)
            rc = call->err->code;
        else if (!ct_tcpstore_present(key))
            ct_tcpstore_add_wait(call->client, key);
    }
    return rc;
}

static int do_cancel_wait(struct call *call)
{
    return answer_byte(call, WAIT_CANCELED);
}

static int do_barrier(struct call *call)
{
    struct ct_tcpstore_bytes name = ct_tcpstore_read_bytes(&call->body);
    int64_t world = (int64_t)ct_tcpstore_read_u64(&call->body);
    struct ct_tcpstore_key *key = ct_tcpstore_find(&call->store->keys, name);
    char text[32];
    int64_t count = 0;
    int rc = number_of(call, key, &count);

    if (rc != 0)
        return rc;
    if (__builtin_add_overflow(count, 1, &count))
        return ct_error_set(call->err, CT_EPROTOCOL, "a barrier's count leaves 64 bits");
    if (count >= world) {
        rc = add_to(call, name, 1, &count); /* wakes who came before */
        return rc == 0 ? answer_byte(call, CT_TCPSTORE_STOP_WAITING) : rc;
    }
    if (key == NULL)
        key = ct_tcpstore_demand(&call->store->keys, share_of(call), name, call->err);
    if (key == NULL)
        return call->err->code;
    int size = snprintf(text, sizeof text, "%" PRId64, count);
    rc =
        ct_tcpstore_put(&call->store->keys, share_of(call), key,
                        (struct ct_tcpstore_bytes){(unsigned char *)text, (size_t)size}, call->err);
    if (rc != 0)
        ct_tcpstore_complete(&call->store->keys, key);
    else if ((rc = ct_tcpstore_begin_wait(call->client, 1, call->now_ms, call->err)) == 0)
        ct_tcpstore_add_wait(call->client, key);
    return rc;
}

static int do_getnumkeys(struct call *call)
{
    return answer_number(call, call->store->keys.values);
}

static int do_delete_key(struct call *call)
{
    struct ct_tcpstore_keys *keys = &call->store->keys;
    struct ct_tcpstore_key *key = ct_tcpstore_find(keys, ct_tcpstore_read_bytes(&call->body));
    bool here = key != NULL && key->value != NULL;

    if (here) {
        ct_tcpstore_notify(key, CT_TCPSTORE_DELETED, value_of(key),
                           (struct ct_tcpstore_bytes){NULL, 0});
        ct_tcpstore_clear(keys, key);
        ct_tcpstore_complete(keys, key);
    }
    return answer_number(call, here);
}

static int do_append(struct call *call)
{
    struct ct_tcpstore_keys *keys = &call->store->keys;
    struct ct_tcpstore_bytes name = ct_tcpstore_read_bytes(&call->body);
    struct ct_tcpstore_bytes more = ct_tcpstore_read_bytes(&call->body);
    struct ct_tcpstore_key *key = ct_tcpstore_demand(keys, share_of(call), name, call->err);

    if (key == NULL)
        return call->err->code;
    bool here = key->value != NULL;
    size_t before = key->size;
    int rc = ct_tcpstore_extend(keys, share_of(call), key, more, call->err);
    if (rc != 0) {
        ct_tcpstore_complete(keys, key);
        return rc;
    }
    ct_tcpstore_notify(key, here ? CT_TCPSTORE_UPDATED : CT_TCPSTORE_CREATED,
                       (struct ct_tcpstore_bytes){key->value, before}, value_of(key));
    ct_tcpstore_wake_all(key);
    return 0;
}

static int do_multi_get(struct call *call)
{
    struct ct_tcpstore_keys *keys = &call->store->keys;
    uint64_t count = ct_tcpstore_read_u64(&call->body);
    const unsigned char *body = call->body;
    size_t size = 0;

    for (uint64_t i = 0; i < count; i++)
        size += 8 + value_of(ct_tcpstore_find(keys, ct_tcpstore_read_bytes(&body))).size;
    int rc = ct_tcpstore_make_room(call->client, size, call->err);
    for (; rc == 0 && count > 0; count--)
        rc = answer_bytes(call,
                          value_of(ct_tcpstore_find(keys, ct_tcpstore_read_bytes(&call->body))));
    return rc;
}

static int do_multi_set(struct call *call)
{
    uint64_t count = ct_tcpstore_read_u64(&call->body);
    int rc = 0;

    for (; rc == 0 && count > 0; count--)
        rc = do_set(call);
    return rc;
}

static int do_queue_push(struct call *call)
{
    struct ct_tcpstore_keys *keys = &call->store->keys;
    struct ct_tcpstore_bytes name = ct_tcpstore_read_bytes(&call->body);
    struct ct_tcpstore_key *key = ct_tcpstore_demand(keys, share_of(call), name, call->err);

    if (key == NULL)
        return call->err->code;
    int rc = ct_tcpstore_push(share_of(call), key, ct_tcpstore_read_bytes(&call->body), call->err);
    if (rc != 0)
        ct_tcpstore_complete(keys, key);
    else
        ct_tcpstore_wake_one(key);
    return rc;
}

static int do_queue_pop(struct call *call)
{
    struct ct_tcpstore_keys *keys = &call->store->keys;
    struct ct_tcpstore_key *key = ct_tcpstore_find(keys, ct_tcpstore_read_bytes(&call->body));

    if (key == NULL || key->queued == 0)
        return answer_number(call, 0);
    int rc = answer_number(call, key->queued);
    struct ct_tcpstore_item *item = ct_tcpstore_pop(key);
    if (rc == 0) /* its room is free: a full store can be emptied */
        rc = answer_bytes(call, (struct ct_tcpstore_bytes){item->data, item->size});
    free(item);
    ct_tcpstore_complete(keys, key);
    return rc;
}

static int do_queue_len(struct call *call)
{
    const struct ct_tcpstore_key *key =
        ct_tcpstore_find(&call->store->keys, ct_tcpstore_read_bytes(&call->body));

    return answer_number(call, key != NULL ? key->queued : 0);
}

static int do_list_keys(struct call *call)
{
    const struct ct_tcpstore_keys *keys = &call->store->keys;
    size_t size = 8;

    for (size_t i = 0; i < keys->bucket_count; i++)
        for (const struct ct_tcpstore_key *key = keys->buckets[i]; key != NULL; key = key->next)
            size += key->value != NULL ? 8 + key->name_size : 0;
    int rc = ct_tcpstore_make_room(call->client, size, call->err);
    if (rc == 0)
        rc = answer_number(call, keys->values);
    for (size_t i = 0; rc == 0 && i < keys->bucket_count; i++)
        for (const struct ct_tcpstore_key *key = keys->buckets[i]; key != NULL && rc == 0;
             key = key->next)
            if (key->value != NULL)
                rc = answer_bytes(call, (struct ct_tcpstore_bytes){key->name, key->name_size});
    return rc;
}

static int do_watch_key(struct call *call)
{
    struct ct_tcpstore *store = call->store;
    struct ct_tcpstore_bytes name = ct_tcpstore_read_bytes(&call->body);
    struct ct_tcpstore_tie *tie;
    int rc = ct_tcpstore_charge(share_of(call), sizeof(*tie), call->err);

    if (rc != 0)
        return rc;
    tie = calloc(1, sizeof(*tie));
    struct ct_tcpstore_key *key =
        tie != NULL ? ct_tcpstore_demand(&store->keys, share_of(call), name, call->err) : NULL;
    if (key == NULL) {
        ct_tcpstore_refund(share_of(call), sizeof(*tie));
        free(tie);
        return call->err->code != 0 ? call->err->code
                                    : ct_error_set(call->err, CT_ENOMEM, "out of memory to watch");
    }
    tie->client = call->client;
    tie->next_own = call->client->watches;
    call->client->watches = tie;
    ct_tcpstore_tie(&key->watches, tie, key);
    return answer_byte(call, CT_TCPSTORE_REGISTERED);
}

static int (*const handlers[CT_TCPSTORE_OPS])(struct call *call) = {
    [CT_TCPSTORE_VALIDATE] = do_validate,
    [CT_TCPSTORE_SET] = do_set,
    [CT_TCPSTORE_COMPARE_SET] = do_compare_set,
    [CT_TCPSTORE_GET] = do_get,
    [CT_TCPSTORE_ADD] = do_add,
    [CT_TCPSTORE_CHECK] = do_check,
    [CT_TCPSTORE_WAIT] = do_wait,
    [CT_TCPSTORE_GETNUMKEYS] = do_getnumkeys,
    [CT_TCPSTORE_DELETE_KEY] = do_delete_key,
    [CT_TCPSTORE_APPEND] = do_append,
    [CT_TCPSTORE_MULTI_GET] = do_multi_get,
    [CT_TCPSTORE_MULTI_SET] = do_multi_set,
    [CT_TCPSTORE_CANCEL_WAIT] = do_cancel_wait,
    [CT_TCPSTORE_PING] = do_ping,
    [CT_TCPSTORE_QUEUE_PUSH] = do_queue_push,
    [CT_TCPSTORE_QUEUE_POP] = do_queue_pop,
    [CT_TCPSTORE_QUEUE_LEN] = do_queue_len,
    [CT_TCPSTORE_LIST_KEYS] = do_list_keys,
    [CT_TCPSTORE_BARRIER] = do_barrier,
    [CT_TCPSTORE_WATCH_KEY] = do_watch_key,
};

int ct_tcpstore_serve(struct ct_tcpstore_client *client, uint64_t now_ms,
                      const struct ct_tcpstore_request *request, struct ct_error *err)
{
    struct call call = {client->store, client, request->body, now_ms, err};

    ct_tcpstore_give_up(client);
    CT_ASSERT(handlers[request->op] != NULL);
    return handlers[request->op](&call);
}
