/* What clients are told: answers, the end of a wait, news of a watched key; see state.h. */
#include "rendezvous/tcpstore/state.h"

#include "base/assert.h"

#include <stdlib.h>

enum {
    LENGTH = 8,             /* bytes of a length on the wire */
    WATCH_BYTES = 16 << 20, /* news that may pile up for a client that watches */
};

/* ---- answers ---- */

int ct_tcpstore_make_room(struct ct_tcpstore_client *client, size_t size, struct ct_error *err)
{
    struct ct_buf *out = &client->out;
    struct ct_tcpstore_share *share = &client->peer->share;
    size_t before = out->room;

    if (out->room - out->size > size)
        return 0;
    int rc = ct_tcpstore_check_room(share, size, err);
    if (rc != 0)
        return rc;
    if (ct_buf_reserve(out, size) == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for an answer of %zu bytes", size);
    ct_tcpstore_book(share, out->room - before);
    client->charged += out->room - before;
    return 0;
}

int ct_tcpstore_answer(struct ct_tcpstore_client *client, const void *data, size_t size,
                       struct ct_error *err)
{
    int rc = ct_tcpstore_make_room(client, size, err);

    if (rc == 0)
        rc = ct_buf_append(&client->out, data, size);
    ct_tcpstore_make_ready(client);
    return rc;
}

static int answer_byte(struct ct_tcpstore_client *client, uint8_t value, struct ct_error *err)
{
    return ct_tcpstore_answer(client, &value, 1, err);
}

int ct_tcpstore_answer_bytes(struct ct_tcpstore_client *client, struct ct_tcpstore_bytes value,
                             struct ct_error *err)
{
    unsigned char length[LENGTH];

    ct_put_le64(length, value.size);
    int rc = ct_tcpstore_make_room(client, LENGTH + value.size, err);
    if (rc == 0)
        rc = ct_tcpstore_answer(client, length, LENGTH, err);
    return rc == 0 ? ct_tcpstore_answer(client, value.data, value.size, err) : rc;
}

/* ---- waiting ---- */

static void untie_all(struct ct_tcpstore_client *client)
{
    for (size_t i = 0; i < client->wait_count; i++) {
        struct ct_tcpstore_key *key = client->waits[i].key;
        if (key == NULL)
            continue;
        ct_tcpstore_untie(&key->waits, &client->waits[i]);
        ct_tcpstore_complete(&client->store->keys, key);
    }
}

void ct_tcpstore_give_up(struct ct_tcpstore_client *client)
{
    if (client->waits == NULL)
        return;
    untie_all(client);
    ct_tcpstore_refund(&client->peer->share, client->wait_count * sizeof(*client->waits));
    client->store->waiting--;
    free(client->waits);
    client->waits = NULL;
    client->wait_count = client->missing = 0;
}

void ct_tcpstore_unwatch(struct ct_tcpstore_client *client)
{
    while (client->watches != NULL) {
        struct ct_tcpstore_tie *tie = client->watches;
        struct ct_tcpstore_key *key = tie->key;
        client->watches = tie->next_own;
        ct_tcpstore_untie(&key->watches, tie);
        ct_tcpstore_complete(&client->store->keys, key);
        ct_tcpstore_refund(&client->peer->share, sizeof(*tie));
        free(tie);
    }
}

int ct_tcpstore_begin_wait(struct ct_tcpstore_client *client, size_t count, uint64_t now_ms,
                           struct ct_error *err)
{
    struct ct_tcpstore *store = client->store;
    size_t cost = count * sizeof(*client->waits);
    int rc = ct_tcpstore_charge(&client->peer->share, cost, err);

    CT_ASSERT(client->waits == NULL);
    if (rc != 0)
        return rc;
    client->waits = calloc(count, sizeof(*client->waits));
    if (client->waits == NULL) {
        ct_tcpstore_refund(&client->peer->share, cost);
        return ct_error_set(err, CT_ENOMEM, "out of memory to wait for %zu keys", count);
    }
    client->wait_count = count;
    client->missing = 0;
    client->waits_since_ms = now_ms;
    store->waiting++;
    return 0;
}

void ct_tcpstore_add_wait(struct ct_tcpstore_client *client, struct ct_tcpstore_key *key)
{
    struct ct_tcpstore_tie *tie = &client->waits[client->missing++];

    CT_ASSERT(client->missing <= client->wait_count);
    tie->client = client;
    ct_tcpstore_tie(&key->waits, tie, key);
}

/* What `tie` waits for has come; was it the last that its client waits for? */
static bool fulfil(struct ct_tcpstore_key *key, struct ct_tcpstore_tie *tie)
{
    struct ct_tcpstore_client *client = tie->client;
    struct ct_error why = {0};

    ct_tcpstore_untie(&key->waits, tie);
    if (--client->missing > 0)
        return false;
    ct_tcpstore_give_up(client);
    if (answer_byte(client, CT_TCPSTORE_STOP_WAITING, &why) != 0)
        ct_tcpstore_break(client, &why);
    return true;
}

void ct_tcpstore_wake_all(struct ct_tcpstore_key *key)
{
    while (key->waits.first != NULL)
        (void)fulfil(key, key->waits.first);
}

void ct_tcpstore_wake_one(struct ct_tcpstore_key *key)
{
    while (key->waits.first != NULL)
        if (fulfil(key, key->waits.first))
            return;
}

/* ---- watching ---- */

/* Tell one watching client; its own failure is its own. */
static void notify_one(struct ct_tcpstore_client *client, const struct ct_tcpstore_key *key,
                       enum ct_tcpstore_event event, struct ct_tcpstore_bytes old,
                       struct ct_tcpstore_bytes new)
{
    struct ct_error why = {0};
    int rc = 0;

    if (client->out.size - client->out_sent > WATCH_BYTES)
        rc = ct_error_set(&why, CT_ELIMIT, "it watches a key and does not read its news");
    if (rc == 0)
        rc = answer_byte(client, (uint8_t)event, &why);
    if (rc == 0)
        rc = ct_tcpstore_answer_bytes(client, (struct ct_tcpstore_bytes){key->name, key->name_size},
                                      &why);
    if (rc == 0)
        rc = ct_tcpstore_answer_bytes(client, old, &why);
    if (rc == 0)
        rc = ct_tcpstore_answer_bytes(client, new, &why);
    if (rc != 0)
        ct_tcpstore_break(client, &why);
}

void ct_tcpstore_notify(const struct ct_tcpstore_key *key, enum ct_tcpstore_event event,
                        struct ct_tcpstore_bytes old, struct ct_tcpstore_bytes new)
{
    for (const struct ct_tcpstore_tie *tie = key->watches.first; tie != NULL; tie = tie->next)
        if (ct_tcpstore_broken(tie->client) == NULL)
            notify_one(tie->client, key, event, old, new);
}
