/* The keys of one TCPStore; see store_keys.h. */
#include "rendezvous/tcpstore/store_keys.h"

#include "rendezvous/tcpstore/tcpstore.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_BUCKETS = 64,
    SMALL_BYTES =
        64, /* of a value whose room is kept, however little is used: counters come back */
};

int ct_tcpstore_keys_init(struct ct_tcpstore_keys *keys, const struct ct_tcpstore_limits *limits)
{
    *keys = (struct ct_tcpstore_keys){
        .buckets = calloc(FIRST_BUCKETS, sizeof(struct ct_tcpstore_key *)),
        .bucket_count = FIRST_BUCKETS,
        .most = limits->keys,
    };
    memcpy(keys->hash_key, limits->hash_key, sizeof(keys->hash_key));
    return keys->buckets != NULL ? 0 : CT_ENOMEM;
}

/* Of what may be held: an eighth of the store is left to other hosts. */
static size_t share_limit(const struct ct_tcpstore_budget *budget)
{
    return budget->limit - budget->limit / 8;
}

int ct_tcpstore_check_room(const struct ct_tcpstore_share *share, size_t size, struct ct_error *err)
{
    const struct ct_tcpstore_budget *budget = share->budget;
    size_t most = share_limit(budget);

    if (size > most || share->used > most - size)
        return ct_error_set(err, CT_ELIMIT,
                            "the store is full for %s: of its %zu bytes a host may hold %zu",
                            share->host, budget->limit, most);
    if (size > budget->limit || budget->used > budget->limit - size)
        return ct_error_set(err, CT_ELIMIT, "the store is full: it may hold %zu bytes",
                            budget->limit);
    return 0;
}

int ct_tcpstore_charge(struct ct_tcpstore_share *share, size_t size, struct ct_error *err)
{
    int rc = ct_tcpstore_check_room(share, size, err);

    if (rc == 0)
        ct_tcpstore_book(share, size);
    return rc;
}

void ct_tcpstore_book(struct ct_tcpstore_share *share, size_t size)
{
    share->used += size;
    share->budget->used += size;
}

void ct_tcpstore_refund(struct ct_tcpstore_share *share, size_t size)
{
    CT_ASSERT(share->used >= size && share->budget->used >= size);
    share->used -= size;
    share->budget->used -= size;
}

/* ---- entries ---- */

static size_t cost_of(const struct ct_tcpstore_key *key)
{
    return sizeof(*key) + key->name_size;
}

static struct ct_tcpstore_key **bucket_of(const struct ct_tcpstore_keys *keys, uint64_t hash)
{
    return &keys->buckets[hash & (keys->bucket_count - 1)];
}

struct ct_tcpstore_key *ct_tcpstore_find(const struct ct_tcpstore_keys *keys,
                                         struct ct_tcpstore_bytes name)
{
    uint64_t hash = ct_siphash64(keys->hash_key, name.data, name.size);
    struct ct_tcpstore_key *key = *bucket_of(keys, hash);

    while (key != NULL && (key->hash != hash || key->name_size != name.size ||
                           memcmp(key->name, name.data, name.size) != 0))
        key = key->next;
    return key;
}

static void grow(struct ct_tcpstore_keys *keys)
{
    size_t count = keys->bucket_count;
    struct ct_tcpstore_key **old = keys->buckets;
    struct ct_tcpstore_key **buckets = calloc(2 * count, sizeof(struct ct_tcpstore_key *));

    if (buckets == NULL)
        return; /* longer chains, nothing worse */
    keys->buckets = buckets;
    keys->bucket_count = 2 * count;
    for (size_t i = 0; i < count; i++) {
        while (old[i] != NULL) {
            struct ct_tcpstore_key *key = old[i];
            struct ct_tcpstore_key **bucket = bucket_of(keys, key->hash);
            old[i] = key->next;
            key->next = *bucket;
            *bucket = key;
        }
    }
    free(old);
}

struct ct_tcpstore_key *ct_tcpstore_demand(struct ct_tcpstore_keys *keys,
                                           struct ct_tcpstore_share *share,
                                           struct ct_tcpstore_bytes name, struct ct_error *err)
{
    struct ct_tcpstore_key *key = ct_tcpstore_find(keys, name);

    if (key != NULL)
        return key;
    if (keys->entries >= keys->most) {
        ct_error_set(err, CT_ELIMIT, "the store is full: it may hold %zu keys", keys->most);
        return NULL;
    }
    if (ct_tcpstore_charge(share, sizeof(*key) + name.size, err) != 0)
        return NULL;
    key = calloc(1, sizeof(*key) + name.size);
    if (key == NULL) {
        ct_tcpstore_refund(share, sizeof(*key) + name.size);
        ct_error_set(err, CT_ENOMEM, "out of memory for a key of %zu bytes", name.size);
        return NULL;
    }
    key->share = share;
    memcpy(key->name, name.data, name.size);
    key->name_size = name.size;
    key->hash = ct_siphash64(keys->hash_key, name.data, name.size);
    if (keys->entries >= keys->bucket_count)
        grow(keys);
    struct ct_tcpstore_key **bucket = bucket_of(keys, key->hash);
    key->next = *bucket;
    *bucket = key;
    keys->entries++;
    return key;
}

static void free_key(struct ct_tcpstore_keys *keys, struct ct_tcpstore_key *key)
{
    ct_tcpstore_clear(keys, key);
    while (key->queue != NULL)
        free(ct_tcpstore_pop(key));
    ct_tcpstore_refund(key->share, cost_of(key));
    keys->entries--;
    free(key);
}

void ct_tcpstore_complete(struct ct_tcpstore_keys *keys, struct ct_tcpstore_key *key)
{
    struct ct_tcpstore_key **at = bucket_of(keys, key->hash);

    if (ct_tcpstore_present(key) || key->waits.first != NULL || key->watches.first != NULL)
        return;
    while (*at != key)
        at = &(*at)->next;
    *at = key->next;
    free_key(keys, key);
}

void ct_tcpstore_keys_deinit(struct ct_tcpstore_keys *keys)
{
    for (size_t i = 0; keys->buckets != NULL && i < keys->bucket_count; i++) {
        while (keys->buckets[i] != NULL) {
            struct ct_tcpstore_key *key = keys->buckets[i];
            CT_ASSERT(key->waits.first == NULL && key->watches.first == NULL);
            keys->buckets[i] = key->next;
            free_key(keys, key);
        }
    }
    CT_ASSERT(keys->entries == 0 && keys->values == 0);
    free(keys->buckets);
    keys->buckets = NULL;
}

/* ---- values ---- */

int ct_tcpstore_put(struct ct_tcpstore_keys *keys, struct ct_tcpstore_share *share,
                    struct ct_tcpstore_key *key, struct ct_tcpstore_bytes value,
                    struct ct_error *err)
{
    bool wasteful = key->room > SMALL_BYTES && value.size < key->room / 2;

    if (key->value == NULL || value.size > key->room || wasteful) {
        size_t room = CT_MAX(value.size, (size_t)16);
        int rc = ct_tcpstore_charge(share, room, err);
        if (rc != 0)
            return rc;
        unsigned char *data = malloc(room);
        if (data == NULL) {
            ct_tcpstore_refund(share, room);
            return ct_error_set(err, CT_ENOMEM, "out of memory for a value of %zu bytes",
                                value.size);
        }
        ct_tcpstore_clear(keys, key);
        key->value = data;
        key->room = room;
        key->value_share = share;
        keys->values++;
    }
    if (value.size > 0)
        memcpy(key->value, value.data, value.size);
    key->size = value.size;
    return 0;
}

int ct_tcpstore_extend(struct ct_tcpstore_keys *keys, struct ct_tcpstore_share *share,
                       struct ct_tcpstore_key *key, struct ct_tcpstore_bytes more,
                       struct ct_error *err)
{
    size_t size = key->size + more.size;

    if (key->value == NULL)
        return ct_tcpstore_put(keys, share, key, more, err);
    if (size > key->room) {
        size_t room = CT_MAX(size, 2 * key->room);
        size_t paid = share == key->value_share ? key->room : 0;
        int rc = ct_tcpstore_charge(share, room - paid, err);
        if (rc != 0)
            return rc;
        unsigned char *data = realloc(key->value, room);
        if (data == NULL) {
            ct_tcpstore_refund(share, room - paid);
            return ct_error_set(err, CT_ENOMEM, "out of memory for a value of %zu bytes", size);
        }
        ct_tcpstore_refund(key->value_share, key->room - paid); /* another host's until now */
        key->value_share = share;
        key->value = data;
        key->room = room;
    }
    if (more.size > 0)
        memcpy(key->value + key->size, more.data, more.size);
    key->size = size;
    return 0;
}

void ct_tcpstore_clear(struct ct_tcpstore_keys *keys, struct ct_tcpstore_key *key)
{
    if (key->value == NULL)
        return;
    ct_tcpstore_refund(key->value_share, key->room);
    keys->values--;
    free(key->value);
    key->value = NULL;
    key->size = key->room = 0;
}

/* ---- queues ---- */

int ct_tcpstore_push(struct ct_tcpstore_share *share, struct ct_tcpstore_key *key,
                     struct ct_tcpstore_bytes value, struct ct_error *err)
{
    struct ct_tcpstore_item *item;
    size_t cost = sizeof(*item) + value.size;
    int rc = ct_tcpstore_charge(share, cost, err);

    if (rc != 0)
        return rc;
    item = malloc(cost);
    if (item == NULL) {
        ct_tcpstore_refund(share, cost);
        return ct_error_set(err, CT_ENOMEM, "out of memory for an item of %zu bytes", value.size);
    }
    item->next = NULL;
    item->share = share;
    item->size = value.size;
    if (value.size > 0)
        memcpy(item->data, value.data, value.size);
    if (key->queue_end != NULL)
        key->queue_end->next = item;
    else
        key->queue = item;
    key->queue_end = item;
    key->queued++;
    return 0;
}

struct ct_tcpstore_item *ct_tcpstore_pop(struct ct_tcpstore_key *key)
{
    struct ct_tcpstore_item *item = key->queue;

    CT_ASSERT(key->queued > 0);
    key->queue = item->next;
    if (key->queue == NULL)
        key->queue_end = NULL;
    key->queued--;
    ct_tcpstore_refund(item->share, sizeof(*item) + item->size);
    return item;
}

/* ---- ties ---- */

void ct_tcpstore_tie(struct ct_tcpstore_ties *ties, struct ct_tcpstore_tie *tie,
                     struct ct_tcpstore_key *key)
{
    tie->key = key;
    tie->next = NULL;
    tie->prev = ties->last;
    if (ties->last != NULL)
        ties->last->next = tie;
    else
        ties->first = tie;
    ties->last = tie;
}

void ct_tcpstore_untie(struct ct_tcpstore_ties *ties, struct ct_tcpstore_tie *tie)
{
    CT_ASSERT(tie->key != NULL);
    if (tie->prev != NULL)
        tie->prev->next = tie->next;
    else
        ties->first = tie->next;
    if (tie->next != NULL)
        tie->next->prev = tie->prev;
    else
        ties->last = tie->prev;
    tie->key = NULL;
}
