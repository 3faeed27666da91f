/* Clients of a TCPStore: who may come, whose bytes are read, whose time is up; see tcpstore.h.
 *
 *      join --> silent --first bytes--> at ease <----> partial (inside a request)
 *                 |                                       |
 *                 | handshake_ms, or room is needed       | request_ms
 *                 v                                       v
 *               broken  <---------------- a rule broken ---'
 *
 * A client of PyTorch 1.9 to 2.0 has a second connection that stays silent: as many silent ones of
 * a host are left in peace as it has such clients. */
#include "rendezvous/tcpstore/state.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    FULL_BYTES = 1 << 20,  /* answers that pile up: the client is not served further */
    KEEP_BYTES = 64 << 10, /* a larger empty buffer is given back */
};

/* ---- the store ---- */

static void fill_limits(struct ct_tcpstore_limits *limits)
{
    if (limits->keys == 0)
        limits->keys = 1 << 20;
    if (limits->bytes == 0)
        limits->bytes = (size_t)1 << 30;
    if (limits->clients == 0)
        limits->clients = 16384;
    if (limits->silent == 0)
        limits->silent = CT_MAX(limits->clients / 2, 1);
    if (limits->handshake_ms == 0)
        limits->handshake_ms = 10000;
    if (limits->request_ms == 0)
        limits->request_ms = 60000;
}

struct ct_tcpstore *ct_tcpstore_new(const struct ct_tcpstore_limits *limits)
{
    struct ct_tcpstore *store = calloc(1, sizeof(*store));

    if (store == NULL)
        return NULL;
    if (limits != NULL)
        store->limits = *limits;
    fill_limits(&store->limits);
    store->budget.limit = store->limits.bytes;
    if (ct_tcpstore_keys_init(&store->keys, &store->limits) != 0) {
        free(store);
        return NULL;
    }
    return store;
}

/* No client of it is left, nor anything that one stored. */
static void free_peer(struct ct_tcpstore_peer **slot)
{
    struct ct_tcpstore_peer *peer = *slot;

    CT_ASSERT(peer != NULL && peer->clients == 0 && peer->share.used == 0);
    *slot = peer->next;
    free(peer);
}

void ct_tcpstore_free(struct ct_tcpstore *store)
{
    if (store == NULL)
        return;
    CT_ASSERT(store->clients == NULL);
    ct_tcpstore_keys_deinit(&store->keys);
    CT_ASSERT(store->budget.used == 0);
    for (size_t i = 0; i < CT_COUNT(store->peers); i++)
        while (store->peers[i] != NULL)
            free_peer(&store->peers[i]);
    free(store);
}

/* ---- hosts ---- */

static struct ct_tcpstore_peer **peer_slot(struct ct_tcpstore *store, const char *host)
{
    struct ct_tcpstore_peer **slot = &store->peers[ct_hash_str(host) % CT_TCPSTORE_PEERS];

    while (*slot != NULL && strcmp((*slot)->host, host) != 0)
        slot = &(*slot)->next;
    return slot;
}

/* No host may take all the places: an eighth is left to others. */
static bool host_is_full(struct ct_tcpstore *store, const char *host)
{
    char name[CT_TCPSTORE_HOST];

    (void)ct_str_copy(name, sizeof name, host);
    const struct ct_tcpstore_peer *peer = *peer_slot(store, name);
    return peer != NULL && peer->clients >= store->limits.clients - store->limits.clients / 8;
}

static struct ct_tcpstore_peer *demand_peer(struct ct_tcpstore *store, const char *host)
{
    char name[CT_TCPSTORE_HOST];

    (void)ct_str_copy(name, sizeof name, host);
    struct ct_tcpstore_peer **slot = peer_slot(store, name);
    if (*slot == NULL && (*slot = calloc(1, sizeof(**slot))) != NULL) {
        (void)ct_str_copy((*slot)->host, sizeof(*slot)->host, name);
        (*slot)->share = (struct ct_tcpstore_share){&store->budget, (*slot)->host, 0};
    }
    return *slot;
}

static void drop_peer(struct ct_tcpstore *store, const struct ct_tcpstore_peer *peer)
{
    if (peer->clients == 0 && peer->share.used == 0)
        free_peer(peer_slot(store, peer->host));
}

static void leave_peer(struct ct_tcpstore_client *client)
{
    struct ct_tcpstore_peer *peer = client->peer;

    peer->old -= client->reader.dialect == CT_TCPSTORE_OLD;
    peer->seconds -= client->is_second;
    peer->clients--;
    ct_tcpstore_refund(&peer->share, client->charged + sizeof(*client));
    drop_peer(client->store, peer);
}

/* ---- lists of clients ---- */

void ct_tcpstore_make_ready(struct ct_tcpstore_client *client)
{
    struct ct_tcpstore *store = client->store;

    if (client->ready)
        return;
    client->ready = true;
    client->next_ready = NULL;
    if (store->ready_end != NULL)
        store->ready_end->next_ready = client;
    else
        store->ready = client;
    store->ready_end = client;
}

struct ct_tcpstore_client *ct_tcpstore_next_ready(struct ct_tcpstore *store)
{
    struct ct_tcpstore_client *client = store->ready;

    if (client == NULL)
        return NULL;
    store->ready = client->next_ready;
    if (store->ready == NULL)
        store->ready_end = NULL;
    client->ready = false;
    return client;
}

static void drop_ready(struct ct_tcpstore_client *client)
{
    struct ct_tcpstore_client **at = &client->store->ready;
    struct ct_tcpstore_client *before = NULL;

    if (!client->ready)
        return;
    while (*at != client) {
        before = *at;
        at = &before->next_ready;
    }
    *at = client->next_ready;
    if (client->store->ready_end == client)
        client->store->ready_end = before;
}

static void clear_debt(struct ct_tcpstore_client *client)
{
    struct ct_tcpstore_debtors *list = client->debt;

    if (list == NULL)
        return;
    if (client->prev_debtor != NULL)
        client->prev_debtor->next_debtor = client->next_debtor;
    else
        list->first = client->next_debtor;
    if (client->next_debtor != NULL)
        client->next_debtor->prev_debtor = client->prev_debtor;
    else
        list->last = client->prev_debtor;
    list->count--;
    client->debt = NULL;
}

static void owe(struct ct_tcpstore_client *client, struct ct_tcpstore_debtors *list,
                uint64_t now_ms)
{
    clear_debt(client);
    client->debt = list;
    client->since_ms = now_ms;
    client->next_debtor = NULL;
    client->prev_debtor = list->last;
    if (list->last != NULL)
        list->last->next_debtor = client;
    else
        list->first = client;
    list->last = client;
    list->count++;
}

/* ---- breaking ---- */

void ct_tcpstore_break(struct ct_tcpstore_client *client, const struct ct_error *why)
{
    if (client->broken.code != 0)
        return;
    client->broken = *why;
    clear_debt(client);
    ct_tcpstore_give_up(client);
    ct_tcpstore_make_ready(client);
}

const struct ct_error *ct_tcpstore_broken(const struct ct_tcpstore_client *client)
{
    return client->broken.code != 0 ? &client->broken : NULL;
}

/* A silent connection that must not stay: it is the second one of an old client, or broken. */
static void push_out(struct ct_tcpstore_client *client, const char *reason)
{
    struct ct_tcpstore_peer *peer = client->peer;
    struct ct_error why = {0};

    if (client->reader.size == 0 && peer->seconds < peer->old) {
        peer->seconds++;
        client->is_second = true;
        clear_debt(client);
        return;
    }
    ct_error_set(&why, CT_ETIMEOUT, "%s", reason);
    ct_tcpstore_break(client, &why);
}

/* ---- coming and going ---- */

uint64_t ct_tcpstore_admit(struct ct_tcpstore *store, uint64_t now_ms)
{
    struct ct_tcpstore_client *oldest = store->silent.first;

    if (store->silent.count < store->limits.silent)
        return 0;
    CT_ASSERT(oldest != NULL);
    uint64_t age_ms = now_ms - oldest->since_ms;
    if (age_ms < CT_TCPSTORE_PATIENCE_MS)
        return CT_TCPSTORE_PATIENCE_MS - age_ms;
    push_out(oldest, "it sent nothing, and others wanted its place");
    return 0;
}

/* Charged to its host. */
static struct ct_tcpstore_client *new_client(struct ct_tcpstore *store, const char *host,
                                             struct ct_error *err)
{
    struct ct_tcpstore_peer *peer = demand_peer(store, host);
    struct ct_tcpstore_client *client = peer != NULL ? calloc(1, sizeof(*client)) : NULL;

    if (client == NULL) {
        ct_error_set(err, CT_ENOMEM, "out of memory for a client of the store");
    } else if (ct_tcpstore_charge(&peer->share, sizeof(*client), err) == 0) {
        client->peer = peer;
        peer->clients++;
        return client;
    }
    if (peer != NULL)
        drop_peer(store, peer);
    free(client);
    return NULL;
}

struct ct_tcpstore_client *ct_tcpstore_join(struct ct_tcpstore *store, uint64_t now_ms,
                                            const char *host, void *user, struct ct_error *err)
{
    struct ct_tcpstore_client *client;

    if (store->client_count >= store->limits.clients) {
        ct_error_set(err, CT_ELIMIT, "the store has %u clients already, as many as it may have",
                     store->client_count);
        return NULL;
    }
    if (host_is_full(store, host)) {
        ct_error_set(err, CT_ELIMIT, "the store has as many clients of %s as a host may have",
                     host);
        return NULL;
    }
    client = new_client(store, host, err);
    if (client == NULL)
        return NULL;
    client->store = store;
    client->user = user;
    client->next = store->clients;
    if (client->next != NULL)
        client->next->prev = client;
    store->clients = client;
    store->client_count++;
    owe(client, &store->silent, now_ms);
    return client;
}

void ct_tcpstore_leave(struct ct_tcpstore_client *client)
{
    struct ct_tcpstore *store = client->store;

    ct_tcpstore_give_up(client);
    ct_tcpstore_unwatch(client);
    clear_debt(client);
    drop_ready(client);
    if (client->prev != NULL)
        client->prev->next = client->next;
    else
        store->clients = client->next;
    if (client->next != NULL)
        client->next->prev = client->prev;
    store->client_count--;
    leave_peer(client);
    ct_tcpstore_reader_deinit(&client->reader);
    ct_buf_deinit(&client->out);
    free(client->waits);
    free(client);
}

/* ---- bytes ---- */

static size_t waiting_to_go(const struct ct_tcpstore_client *client)
{
    return client->out.size - client->out_sent;
}

bool ct_tcpstore_is_full(const struct ct_tcpstore_client *client)
{
    return waiting_to_go(client) >= FULL_BYTES;
}

/* Charge what the buffers hold now. CT_ELIMIT when they have grown above the limit. */
static int recharge(struct ct_tcpstore_client *client, struct ct_error *err)
{
    struct ct_tcpstore_share *share = &client->peer->share;
    size_t before = client->charged;

    ct_tcpstore_refund(share, before);
    client->charged = client->reader.kept.room + client->out.room + client->held;
    ct_tcpstore_book(share, client->charged);
    return client->charged <= before ? 0 : ct_tcpstore_check_room(share, 0, err);
}

/* The first bytes told the dialect. */
static void greet(struct ct_tcpstore_client *client)
{
    clear_debt(client);
    client->peer->seconds -= client->is_second;
    client->is_second = false;
    client->peer->old += client->reader.dialect == CT_TCPSTORE_OLD;
}

/* Serve what has come, as far as there is room for the answers. */
static void run(struct ct_tcpstore_client *client, uint64_t now_ms)
{
    struct ct_tcpstore_reader *reader = &client->reader;
    enum ct_tcpstore_dialect known = reader->dialect;
    struct ct_tcpstore_request request;
    struct ct_error why = {0};
    bool served = false;
    int rc = 1;

    while (rc == 1 && client->broken.code == 0 && !ct_tcpstore_is_full(client)) {
        rc = ct_tcpstore_reader_next(reader, &request, &why);
        if (reader->dialect != known) {
            known = reader->dialect;
            greet(client);
        }
        if (rc != 1)
            break;
        served = true;
        int failed = ct_tcpstore_serve(client, now_ms, &request, &why);
        rc = failed != 0 ? failed : 1;
    }
    if (client->broken.code != 0)
        return; /* by what it watches itself */
    if (rc >= 0)
        rc = ct_tcpstore_reader_hold(reader);
    if (rc >= 0)
        rc = recharge(client, &why);
    if (rc < 0) {
        if (why.code == 0)
            ct_error_set(&why, rc, "out of memory for a request");
        ct_tcpstore_break(client, &why);
    } else if (known == CT_TCPSTORE_UNKNOWN) {
        return; /* it goes on owing us its first bytes */
    } else if (ct_tcpstore_reader_inside(reader) == 0 || ct_tcpstore_is_full(client)) {
        clear_debt(client);
    } else if (served || client->debt == NULL) {
        owe(client, &client->store->partial, now_ms);
    }
}

void ct_tcpstore_input(struct ct_tcpstore_client *client, uint64_t now_ms, const void *data,
                       size_t size)
{
    struct ct_error why = {0};

    if (client->broken.code != 0)
        return;
    int rc = ct_tcpstore_reader_push(&client->reader, data, size);
    if (rc != 0) {
        ct_error_set(&why, rc, "out of memory for a request");
        ct_tcpstore_break(client, &why);
        return;
    }
    run(client, now_ms);
}

struct ct_tcpstore_bytes ct_tcpstore_output(const struct ct_tcpstore_client *client)
{
    const char *data = ct_buf_str(&client->out);

    return (struct ct_tcpstore_bytes){(const unsigned char *)data + client->out_sent,
                                      waiting_to_go(client)};
}

void ct_tcpstore_sent(struct ct_tcpstore_client *client, uint64_t now_ms, size_t size)
{
    bool was_full = ct_tcpstore_is_full(client);
    struct ct_error why = {0};

    CT_ASSERT(size <= waiting_to_go(client));
    client->out_sent += size;
    if (client->out_sent == client->out.size || client->out_sent > FULL_BYTES) {
        ct_buf_consume(&client->out, client->out_sent);
        client->out_sent = 0;
    }
    if (client->out.size == 0 && client->out.room > KEEP_BYTES)
        ct_buf_deinit(&client->out);
    if (client->broken.code != 0)
        return;
    if (was_full && !ct_tcpstore_is_full(client))
        run(client, now_ms);
    else if (recharge(client, &why) != 0)
        ct_tcpstore_break(client, &why);
}

void ct_tcpstore_hold(struct ct_tcpstore_client *client, size_t size)
{
    struct ct_error why = {0};

    client->held = size;
    if (recharge(client, &why) != 0)
        ct_tcpstore_break(client, &why);
}

/* ---- time ---- */

static uint64_t due_ms(const struct ct_tcpstore_debtors *list, uint64_t patience_ms)
{
    return list->first != NULL ? list->first->since_ms + patience_ms : UINT64_MAX;
}

uint64_t ct_tcpstore_deadline(const struct ct_tcpstore *store)
{
    uint64_t silent_ms = due_ms(&store->silent, store->limits.handshake_ms);
    uint64_t partial_ms = due_ms(&store->partial, store->limits.request_ms);

    return CT_MIN(silent_ms, partial_ms);
}

void ct_tcpstore_tick(struct ct_tcpstore *store, uint64_t now_ms)
{
    struct ct_error why = {0};

    while (due_ms(&store->silent, store->limits.handshake_ms) <= now_ms)
        push_out(store->silent.first, "it sent no request");
    while (due_ms(&store->partial, store->limits.request_ms) <= now_ms) {
        struct ct_tcpstore_client *client = store->partial.first;
        ct_error_set(&why, CT_ETIMEOUT, "it began %s and did not end it within %" PRIu64 " ms",
                     ct_tcpstore_op_name(client->reader.op), store->limits.request_ms);
        ct_tcpstore_break(client, &why);
    }
}

/* ---- what is known ---- */

struct ct_tcpstore_about ct_tcpstore_about(const struct ct_tcpstore_client *client)
{
    return (struct ct_tcpstore_about){
        .user = client->user,
        .host = client->peer->host,
        .dialect = client->reader.dialect,
        .pid = client->pid,
        .waits = client->missing > 0,
        .waits_since_ms = client->waits_since_ms,
    };
}

/* A name as it is, but what cannot be printed as \xNN, and at most so long. */
static void print_name(const struct ct_tcpstore_key *key, struct ct_buf *to)
{
    enum { LONGEST = 120 };

    (void)ct_buf_puts(to, "\"");
    for (size_t i = 0; i < key->name_size && i < LONGEST; i++) {
        unsigned char byte = key->name[i];
        if (byte >= ' ' && byte < 0x7f && byte != '"' && byte != '\\')
            (void)ct_buf_append(to, &byte, 1);
        else
            (void)ct_buf_printf(to, "\\x%02x", byte);
    }
    (void)ct_buf_puts(to, key->name_size > LONGEST ? "...\"" : "\"");
}

static void print_wait(const struct ct_tcpstore_client *client, uint64_t waited_ms,
                       const struct ct_tcpstore_waits *how, struct ct_buf *to)
{
    const struct ct_tcpstore_about about = ct_tcpstore_about(client);
    size_t i = 0;

    while (client->waits[i].key == NULL)
        i++;
    if (how->put_name != NULL)
        how->put_name(how->context, &about, to);
    else if (about.pid != 0)
        (void)ct_buf_printf(to, "%s (pid %u)", about.host, about.pid);
    else
        (void)ct_buf_puts(to, about.host);
    (void)ct_buf_printf(to, " waits %.1f s for ", (double)waited_ms / 1e3);
    print_name(client->waits[i].key, to);
    if (client->missing > 1)
        (void)ct_buf_printf(to, " and %zu more keys", client->missing - 1);
    (void)ct_buf_puts(to, "\n");
}

size_t ct_tcpstore_print_waits(const struct ct_tcpstore *store, const struct ct_tcpstore_waits *how,
                               struct ct_buf *to)
{
    size_t most = how->most != 0 ? how->most : SIZE_MAX, count = 0;

    if (store->waiting == 0)
        return 0;
    for (const struct ct_tcpstore_client *client = store->clients; client != NULL;
         client = client->next) {
        uint64_t waited_ms = how->now_ms - CT_MIN(client->waits_since_ms, how->now_ms);
        if (client->missing == 0 || waited_ms < how->at_least_ms)
            continue;
        if (count++ < most)
            print_wait(client, waited_ms, how, to);
    }
    if (count > most)
        (void)ct_buf_printf(to, "and %zu more\n", count - most);
    return count;
}
