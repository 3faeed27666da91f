/* A hash table of keys. A key is there because it has a value, because somebody waits for it, or
 * both; when neither is left it goes.
 *
 *      bucket -> entry "addr/0"  value        no waiters
 *             -> entry "addr/1"  no value     waiter (client 3, request 17) -> waiter (client 5, 2)
 *
 * All waiters also stand in one list, for time-outs and for clients that go. */
#include "rendezvous/store/store.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_KEYS = 65536,
    DEFAULT_BYTES = 256 << 20,
    DEFAULT_WAITERS = 65536,
    FIRST_BUCKETS = 64,
};

struct entry;

struct waiter {
    struct waiter *next_here, *prev_here; /* of the same key, oldest first */
    struct waiter *next, *prev;           /* of all */
    struct entry *entry;
    uint64_t client;
    uint64_t request;
    uint64_t until_ms; /* UINT64_MAX: as long as the round lasts */
};

struct entry {
    struct entry *next;
    uint64_t hash;
    struct waiter *waiters, *last_waiter;
    unsigned char *value; /* NULL: none */
    size_t size;
    size_t key_size;
    char key[];
};

struct ct_store {
    struct ct_store_limits limits;
    ct_store_reply_fn reply;
    void *context;
    uint64_t generation;
    bool revoked;
    bool lost;
    struct entry **buckets;
    size_t bucket_count; /* a power of two */
    size_t keys;
    size_t bytes; /* keys and values */
    struct waiter *waiters;
    size_t waiter_count;
    uint64_t due_ms; /* no waiter's time is up before; a lower bound */
};

struct ct_store *ct_store_new(const struct ct_store_limits *limits, ct_store_reply_fn reply,
                              void *context)
{
    struct ct_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return NULL;
    if (limits != NULL)
        store->limits = *limits;
    if (store->limits.keys == 0)
        store->limits.keys = DEFAULT_KEYS;
    if (store->limits.bytes == 0)
        store->limits.bytes = DEFAULT_BYTES;
    if (store->limits.waiters == 0)
        store->limits.waiters = DEFAULT_WAITERS;
    store->reply = reply;
    store->context = context;
    store->due_ms = UINT64_MAX;
    store->bucket_count = FIRST_BUCKETS;
    store->buckets = calloc(store->bucket_count, sizeof(struct entry *));
    if (store->buckets == NULL) {
        free(store);
        return NULL;
    }
    return store;
}

/* ---- limits ---- */

/* Have the store so much larger; false: it is not. */
static bool charge(struct ct_store *store, ptrdiff_t places, ptrdiff_t bytes)
{
    return store->limits.charge == NULL || store->limits.charge(store->context, places, bytes);
}

/* ---- entries ---- */

static struct entry *find(const struct ct_store *store, const char *key)
{
    size_t size = strlen(key);
    uint64_t hash = ct_siphash64(store->limits.hash_key, key, size);
    struct entry *entry = store->buckets[hash & (store->bucket_count - 1)];
    while (entry != NULL &&
           (entry->hash != hash || entry->key_size != size || memcmp(entry->key, key, size) != 0))
        entry = entry->next;
    return entry;
}

static void resize_table(struct ct_store *store, size_t count)
{
    struct entry **buckets =
        count != store->bucket_count ? calloc(count, sizeof(struct entry *)) : NULL;
    if (buckets == NULL)
        return; /* longer chains, nothing worse */
    for (size_t i = 0; i < store->bucket_count; i++) {
        struct entry *entry = store->buckets[i];
        while (entry != NULL) {
            struct entry *next = entry->next;
            struct entry **bucket = &buckets[entry->hash & (count - 1)];
            entry->next = *bucket;
            *bucket = entry;
            entry = next;
        }
    }
    free(store->buckets);
    store->buckets = buckets;
    store->bucket_count = count;
}

/* The entry of `key`, made when there is none; NULL above a limit. */
static struct entry *demand(struct ct_store *store, const char *key)
{
    struct entry *entry = find(store, key);
    if (entry != NULL)
        return entry;
    size_t size = strlen(key);
    if (store->keys >= store->limits.keys || store->bytes + size > store->limits.bytes ||
        !charge(store, 1, (ptrdiff_t)size))
        return NULL;
    entry = calloc(1, sizeof(*entry) + size + 1);
    if (entry == NULL) {
        (void)charge(store, -1, -(ptrdiff_t)size);
        return NULL;
    }
    memcpy(entry->key, key, size);
    entry->key_size = size;
    entry->hash = ct_siphash64(store->limits.hash_key, key, size);
    if (store->keys >= store->bucket_count)
        resize_table(store, 2 * store->bucket_count);
    struct entry **bucket = &store->buckets[entry->hash & (store->bucket_count - 1)];
    entry->next = *bucket;
    *bucket = entry;
    store->keys++;
    store->bytes += size;
    return entry;
}

/* Free an entry that neither holds a value nor is waited for. */
static void free_unused(struct ct_store *store, struct entry *entry)
{
    if (entry->value != NULL || entry->waiters != NULL)
        return;
    struct entry **at = &store->buckets[entry->hash & (store->bucket_count - 1)];
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    store->keys--;
    store->bytes -= entry->key_size;
    (void)charge(store, -1, -(ptrdiff_t)entry->key_size);
    free(entry);
    if (store->bucket_count > FIRST_BUCKETS && 8 * store->keys < store->bucket_count)
        resize_table(store, store->bucket_count / 2);
}

static void clear_value(struct ct_store *store, struct entry *entry)
{
    store->bytes -= entry->size;
    (void)charge(store, 0, -(ptrdiff_t)entry->size);
    free(entry->value);
    entry->value = NULL;
    entry->size = 0;
}

/* ---- answers and waiters ---- */

static void answer(struct ct_store *store, uint64_t client, const struct ct_msg_store_reply *reply)
{
    store->reply(store->context, client, reply);
}

static void answer_code(struct ct_store *store, uint64_t client, uint64_t request, int code)
{
    struct ct_msg_store_reply reply = {
        .request = request, .generation = store->generation, .code = code};
    answer(store, client, &reply);
}

static void answer_value(struct ct_store *store, uint64_t client, uint64_t request,
                         const struct entry *entry)
{
    struct ct_msg_store_reply reply = {.request = request, .generation = store->generation};
    if (entry != NULL && entry->value != NULL)
        reply.value = (struct ct_bytes){entry->value, entry->size};
    answer(store, client, &reply);
}

static void unlink_waiter(struct ct_store *store, struct waiter *waiter)
{
    struct entry *entry = waiter->entry;
    if (waiter->prev_here != NULL)
        waiter->prev_here->next_here = waiter->next_here;
    else
        entry->waiters = waiter->next_here;
    if (waiter->next_here != NULL)
        waiter->next_here->prev_here = waiter->prev_here;
    else
        entry->last_waiter = waiter->prev_here;
    if (waiter->prev != NULL)
        waiter->prev->next = waiter->next;
    else
        store->waiters = waiter->next;
    if (waiter->next != NULL)
        waiter->next->prev = waiter->prev;
    store->waiter_count--;
    (void)charge(store, -1, 0);
}

/* The value came: everybody who waits for it gets it, in the order in which they asked. */
static void wake(struct ct_store *store, struct entry *entry)
{
    for (struct waiter *waiter = entry->waiters, *next; waiter != NULL; waiter = next) {
        next = waiter->next_here;
        unlink_waiter(store, waiter);
        answer_value(store, waiter->client, waiter->request, entry);
        free(waiter);
    }
}

/* 0 or CT_ELIMIT. Keeps the old value on failure. */
static int put(struct ct_store *store, const char *key, const void *data, size_t size)
{
    struct entry *entry = demand(store, key);
    if (entry == NULL)
        return CT_ELIMIT;
    ptrdiff_t more = (ptrdiff_t)size - (ptrdiff_t)entry->size;
    bool fits = store->bytes - entry->size + size <= store->limits.bytes &&
                (more <= 0 || charge(store, 0, more));
    unsigned char *value = fits ? malloc(size > 0 ? size : 1) : NULL;
    if (value == NULL) {
        if (fits && more > 0)
            (void)charge(store, 0, -more);
        free_unused(store, entry);
        return CT_ELIMIT;
    }
    if (size > 0)
        memcpy(value, data, size);
    if (more < 0)
        (void)charge(store, 0, more);
    free(entry->value);
    entry->value = value;
    store->bytes += size - entry->size; /* modulo 2^64, as sizes are */
    entry->size = size;
    wake(store, entry);
    return 0;
}

/* ---- the operations ---- */

static void do_set(struct ct_store *store, uint64_t client, const struct ct_msg_store_set *op)
{
    answer_code(store, client, op->request, put(store, op->key, op->value.data, op->value.size));
}

static void do_get(struct ct_store *store, uint64_t client, const struct ct_msg_store_get *op)
{
    const struct entry *entry = find(store, op->key);
    if (entry == NULL || entry->value == NULL)
        answer_code(store, client, op->request, CT_ENOTFOUND);
    else
        answer_value(store, client, op->request, entry);
}

/* The number that a value is; false when it is none. */
static bool counter_of(const struct entry *entry, int64_t *ret_number)
{
    char text[32];
    if (entry == NULL || entry->value == NULL) {
        *ret_number = 0;
        return true;
    }
    if (entry->size >= sizeof(text))
        return false;
    memcpy(text, entry->value, entry->size);
    text[entry->size] = '\0';
    return ct_parse_i64(text, ret_number) == 0;
}

static void do_add(struct ct_store *store, uint64_t client, const struct ct_msg_store_add *op)
{
    struct ct_msg_store_reply reply = {.request = op->request, .generation = store->generation};
    int64_t number = 0;
    char text[32];
    if (!counter_of(find(store, op->key), &number) ||
        __builtin_add_overflow(number, op->delta, &number)) {
        reply.code = CT_EPROTOCOL;
    } else {
        int size = snprintf(text, sizeof(text), "%" PRId64, number);
        reply.code = put(store, op->key, text, (size_t)size);
        reply.number = reply.code == 0 ? number : 0;
    }
    answer(store, client, &reply);
}

static void do_cas(struct ct_store *store, uint64_t client, const struct ct_msg_store_cas *op)
{
    const struct entry *entry = find(store, op->key);
    bool here = entry != NULL && entry->value != NULL;
    bool matches =
        op->absent != 0
            ? !here
            : here && entry->size == op->expected.size &&
                  (entry->size == 0 || memcmp(entry->value, op->expected.data, entry->size) == 0);
    int code = 0;
    if (matches)
        code = put(store, op->key, op->desired.data, op->desired.size);
    if (code != 0)
        answer_code(store, client, op->request, code);
    else
        answer_value(store, client, op->request, find(store, op->key));
}

static void do_wait(struct ct_store *store, uint64_t now_ms, uint64_t client,
                    const struct ct_msg_store_wait *op)
{
    struct entry *entry = find(store, op->key);
    if (entry != NULL && entry->value != NULL) {
        answer_value(store, client, op->request, entry);
        return;
    }
    if (store->waiter_count < store->limits.waiters)
        entry = demand(store, op->key);
    else
        entry = NULL;
    bool fits = entry != NULL && charge(store, 1, 0);
    struct waiter *waiter = fits ? calloc(1, sizeof(*waiter)) : NULL;
    if (waiter == NULL) {
        if (fits)
            (void)charge(store, -1, 0);
        if (entry != NULL)
            free_unused(store, entry);
        answer_code(store, client, op->request, CT_ELIMIT);
        return;
    }
    *waiter = (struct waiter){
        .next = store->waiters,
        .prev_here = entry->last_waiter,
        .entry = entry,
        .client = client,
        .request = op->request,
        .until_ms = UINT64_MAX,
    };
    if (op->timeout_ms > 0 && op->timeout_ms < UINT64_MAX - now_ms)
        waiter->until_ms = now_ms + op->timeout_ms;
    if (entry->last_waiter != NULL)
        entry->last_waiter->next_here = waiter;
    else
        entry->waiters = waiter;
    entry->last_waiter = waiter;
    if (store->waiters != NULL)
        store->waiters->prev = waiter;
    store->waiters = waiter;
    store->waiter_count++;
    if (waiter->until_ms < store->due_ms)
        store->due_ms = waiter->until_ms;
}

static void do_delete(struct ct_store *store, uint64_t client, const struct ct_msg_store_delete *op)
{
    struct entry *entry = find(store, op->key);
    bool here = entry != NULL && entry->value != NULL;
    if (here) {
        clear_value(store, entry);
        free_unused(store, entry);
    }
    answer_code(store, client, op->request, here ? 0 : CT_ENOTFOUND);
}

/* The number and the generation stand first in every STORE_ message. */
#define STANDS_FIRST(name)                                                    \
    _Static_assert(offsetof(struct ct_msg_store_##name, request) == 0 &&      \
                       offsetof(struct ct_msg_store_##name, generation) == 8, \
                   "request and generation of STORE_" #name)
STANDS_FIRST(set);
STANDS_FIRST(get);
STANDS_FIRST(add);
STANDS_FIRST(cas);
STANDS_FIRST(wait);
STANDS_FIRST(delete);
#undef STANDS_FIRST

bool ct_store_is_request(const struct ct_message *op)
{
    return op->type >= CT_MSG_STORE_SET && op->type <= CT_MSG_STORE_DELETE;
}

uint64_t ct_store_request_number(const struct ct_message *op)
{
    CT_ASSERT(ct_store_is_request(op));
    return op->store_get.request;
}

uint64_t ct_store_request_generation(const struct ct_message *op)
{
    CT_ASSERT(ct_store_is_request(op));
    return op->store_get.generation;
}

void ct_store_request(struct ct_store *store, uint64_t now_ms, uint64_t client,
                      const struct ct_message *op)
{
    uint64_t request = ct_store_request_number(op);
    if (store->revoked || ct_store_request_generation(op) != store->generation) {
        answer_code(store, client, request, CT_EREVOKED);
        return;
    }
    if (store->lost) {
        answer_code(store, client, request, CT_ECLOSED);
        return;
    }
    switch (op->type) {
    case CT_MSG_STORE_SET:
        do_set(store, client, &op->store_set);
        break;
    case CT_MSG_STORE_GET:
        do_get(store, client, &op->store_get);
        break;
    case CT_MSG_STORE_ADD:
        do_add(store, client, &op->store_add);
        break;
    case CT_MSG_STORE_CAS:
        do_cas(store, client, &op->store_cas);
        break;
    case CT_MSG_STORE_WAIT:
        do_wait(store, now_ms, client, &op->store_wait);
        break;
    default:
        do_delete(store, client, &op->store_delete);
        break;
    }
}

/* ---- rounds, clients, time ---- */

void ct_store_revoke(struct ct_store *store)
{
    store->revoked = true;
    while (store->waiters != NULL) {
        struct waiter *waiter = store->waiters;
        struct entry *entry = waiter->entry;
        unlink_waiter(store, waiter);
        answer_code(store, waiter->client, waiter->request, CT_EREVOKED);
        free(waiter);
        free_unused(store, entry);
    }
    store->due_ms = UINT64_MAX;
}

static void clear(struct ct_store *store)
{
    CT_ASSERT(store->waiters == NULL);
    for (size_t i = 0; i < store->bucket_count; i++) {
        while (store->buckets[i] != NULL) {
            struct entry *entry = store->buckets[i];
            store->buckets[i] = entry->next;
            free(entry->value);
            free(entry);
        }
    }
    (void)charge(store, -(ptrdiff_t)store->keys, -(ptrdiff_t)store->bytes);
    store->keys = 0;
    store->bytes = 0;
    resize_table(store, FIRST_BUCKETS);
}

void ct_store_begin(struct ct_store *store, uint64_t generation)
{
    ct_store_revoke(store);
    clear(store);
    store->generation = generation;
    store->revoked = false;
    store->lost = false;
}

void ct_store_lose(struct ct_store *store, uint64_t generation)
{
    ct_store_begin(store, generation);
    store->lost = true;
}

void ct_store_free(struct ct_store *store)
{
    if (store == NULL)
        return;
    while (store->waiters != NULL) {
        struct waiter *waiter = store->waiters;
        unlink_waiter(store, waiter);
        free(waiter);
    }
    clear(store);
    free(store->buckets);
    free(store);
}

void ct_store_forget(struct ct_store *store, uint64_t client)
{
    for (struct waiter *waiter = store->waiters, *next; waiter != NULL; waiter = next) {
        next = waiter->next;
        if (waiter->client != client)
            continue;
        struct entry *entry = waiter->entry;
        unlink_waiter(store, waiter);
        free(waiter);
        free_unused(store, entry);
    }
}

void ct_store_tick(struct ct_store *store, uint64_t now_ms)
{
    if (now_ms < store->due_ms)
        return;
    store->due_ms = UINT64_MAX;
    for (struct waiter *waiter = store->waiters, *next; waiter != NULL; waiter = next) {
        next = waiter->next;
        if (waiter->until_ms > now_ms) {
            if (waiter->until_ms < store->due_ms)
                store->due_ms = waiter->until_ms;
            continue;
        }
        struct entry *entry = waiter->entry;
        unlink_waiter(store, waiter);
        answer_code(store, waiter->client, waiter->request, CT_ETIMEOUT);
        free(waiter);
        free_unused(store, entry);
    }
}

uint64_t ct_store_deadline(const struct ct_store *store)
{
    return store->due_ms;
}

size_t ct_store_bytes(const struct ct_store *store)
{
    return store->bytes;
}

size_t ct_store_places(const struct ct_store *store)
{
    return store->keys + store->waiter_count;
}
