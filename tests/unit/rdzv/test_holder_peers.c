/* The holders of three ctrund with peers, in virtual time: messages take a millisecond, a process
 * that starts again reads what it kept. */
#include "rendezvous/holder/holder.h"

#include "base/assert.h"
#include "wire/frame.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS = 3, FLIGHTS = 1024, LEASE_MS = 4000 };

/* A connection's other end: what came there. */
struct client {
    struct ct_holder_conn conn;
    char refusal[512];
    int code;
    uint64_t epoch;
    uint32_t count;
    char first[CT_REPLICA_ADDRESS_BYTES];
    bool closed;
};

struct peer {
    struct cluster *cluster;
    size_t index;
    bool alive;
    struct ct_peers peers;
    struct ct_holder holder;
    struct client from[PEERS]; /* connections of the others */
    bool is_open[PEERS];
    struct ct_buf disk;
    char log[4096];
};

struct flight {
    uint64_t at_ms;
    size_t from, to;
    struct ct_buf frame;
};

struct cluster {
    uint64_t now_ms;
    struct peer list[PEERS];
    struct flight flights[FLIGHTS];
    size_t first, end;
};

static struct cluster *cluster;

static const char *const addresses[PEERS] = {"h0:29400", "h1:29400", "h2:29400"};

/* ---- actions -------------------------------------------------------------------------------- */

static void io_send(void *context, void *to, const struct ct_message *message)
{
    struct client *client = to;

    (void)context;
    if (message->type == CT_MSG_REFUSE) {
        client->code = message->refuse.code;
        snprintf(client->refusal, sizeof client->refusal, "%s", message->refuse.text);
    }
    if (message->type == CT_MSG_VOTERS) {
        client->epoch = message->voters.epoch;
        client->count = message->voters.servers.count;
        snprintf(client->first, sizeof client->first, "%s",
                 message->voters.servers.data[0].address);
    }
}

static void io_close(void *context, void *to, int code, const char *sentence)
{
    (void)context, (void)code, (void)sentence;
    ((struct client *)to)->closed = true;
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    (void)context, (void)job, (void)sentence;
}

static void io_admit(void *context, void *to)
{
    (void)context, (void)to;
}

static void io_send_replica(void *context, uint64_t id, const char *address,
                            const struct ct_message *message)
{
    struct peer *from = context;
    struct flight *flight = &cluster->flights[cluster->end++ % FLIGHTS];

    (void)id;
    CT_ASSERT(cluster->end - cluster->first < FLIGHTS);
    *flight = (struct flight){.at_ms = cluster->now_ms + 1, .from = from->index};
    while (strcmp(addresses[flight->to], address) != 0)
        flight->to++;
    ct_buf_init(&flight->frame, 0);
    CT_ASSERT(ct_wire_encode(message, 0, &flight->frame, NULL) == 0);
}

static void io_want(void *context, const struct ct_replica_server *list, size_t count)
{
    (void)context, (void)list;
    cr_assert_eq(count, PEERS - 1);
}

static bool io_dial_endpoint(void *context)
{
    (void)context;
    cr_assert_fail("the endpoint of one job is none of theirs");
    return false;
}

static int io_keep(void *context, const void *record, size_t size)
{
    struct peer *peer = context;
    unsigned char head[4];

    ct_put_le32(head, (uint32_t)size);
    (void)ct_buf_append(&peer->disk, head, sizeof head);
    return ct_buf_append(&peer->disk, record, size);
}

static void io_log(void *context, enum ct_log_level level, const char *sentence)
{
    struct peer *peer = context;
    size_t used = strlen(peer->log);

    (void)level;
    snprintf(peer->log + used, sizeof peer->log - used, "%s\n", sentence);
}

/* ---- peers ---------------------------------------------------------------------------------- */

static void start(size_t index)
{
    struct peer *peer = &cluster->list[index];
    const struct ct_holder_io io = {.context = peer,
                                    .send = io_send,
                                    .close = io_close,
                                    .announce = io_announce,
                                    .turn_away = io_close,
                                    .admit = io_admit,
                                    .send_replica = io_send_replica,
                                    .want = io_want,
                                    .dial_endpoint = io_dial_endpoint,
                                    .keep = io_keep,
                                    .log = io_log};
    const struct ct_service_limits limits = {.jobs = 0};
    const struct ct_holder_options options = {.limits = &limits,
                                              .host = addresses[index],
                                              .address = addresses[index],
                                              .at_endpoint = true,
                                              .lease_ms = LEASE_MS,
                                              .seed = index + 1,
                                              .now_ms = cluster->now_ms,
                                              .io = &io,
                                              .peers = &peer->peers};
    struct ct_error err = {0};

    peer->cluster = cluster;
    peer->index = index;
    peer->alive = true;
    cr_assert_eq(ct_peers_read(&peer->peers, "h0,h1,h2", &addresses[index], 1, &err), 0);
    cr_assert_eq(ct_holder_init(&peer->holder, &options, &err), 0, "%s", err.text);
    for (size_t at = 0; at < peer->disk.size;) {
        size_t size = ct_get_le32(peer->disk.data + at);

        cr_assert_eq(ct_holder_restore(&peer->holder, peer->disk.data + at + 4, size, &err), 0,
                     "%s", err.text);
        at += 4 + size;
    }
    ct_buf_clear(&peer->disk);
    cr_assert_eq(ct_holder_emit(&peer->holder, io_keep, peer), 0);
    ct_holder_begin(&peer->holder, cluster->now_ms);
}

static void end(size_t index)
{
    struct peer *peer = &cluster->list[index];

    ct_holder_deinit(&peer->holder);
    peer->alive = false;
    memset(peer->is_open, 0, sizeof peer->is_open);
    for (size_t i = 0; i < PEERS; i++)
        if (cluster->list[i].is_open[index]) {
            ct_holder_closed(&cluster->list[i].holder, cluster->now_ms,
                             &cluster->list[i].from[index].conn, false);
            cluster->list[i].is_open[index] = false;
        }
}

static void open_client(struct peer *to, struct client *client, struct ct_message hello)
{
    *client = (struct client){.code = 0};
    cr_assert(ct_holder_opened(&to->holder, cluster->now_ms, &client->conn, client));
    ct_holder_message(&to->holder, cluster->now_ms, &client->conn, &hello);
}

static void arrive(const struct flight *flight)
{
    struct peer *from = &cluster->list[flight->from], *to = &cluster->list[flight->to];
    const struct ct_frame frame = {.type = ct_get_le16(flight->frame.data + 8),
                                   .payload = (unsigned char *)flight->frame.data + CT_WIRE_HEADER,
                                   .size = (uint32_t)(flight->frame.size - CT_WIRE_HEADER)};
    struct ct_message message;
    struct ct_arena arena;

    if (!from->alive || !to->alive)
        return;
    if (!to->is_open[from->index]) {
        const struct ct_id id = {.low = from->peers.list[from->peers.own].id};

        to->is_open[from->index] = true;
        open_client(to, &to->from[from->index],
                    ct_holder_hello(from->peers.name, addresses[from->index], id));
    }
    ct_arena_init(&arena, 1 << 20);
    CT_ASSERT(ct_wire_decode(&frame, &arena, &message, NULL) == 0);
    ct_holder_message(&to->holder, cluster->now_ms, &to->from[from->index].conn, &message);
    ct_arena_deinit(&arena);
}

static void run_ms(uint64_t ms)
{
    for (uint64_t until_ms = cluster->now_ms + ms; cluster->now_ms < until_ms;) {
        cluster->now_ms++;
        while (cluster->first < cluster->end &&
               cluster->flights[cluster->first % FLIGHTS].at_ms <= cluster->now_ms) {
            struct flight flight = cluster->flights[cluster->first++ % FLIGHTS];

            arrive(&flight);
            ct_buf_deinit(&flight.frame);
        }
        for (size_t i = 0; i < PEERS; i++) {
            struct peer *peer = &cluster->list[i];

            if (peer->alive && ct_holder_deadline(&peer->holder) <= cluster->now_ms)
                ct_holder_tick(&peer->holder, cluster->now_ms);
        }
    }
}

static int leader_now(void)
{
    int leader = -1;

    for (int i = 0; i < PEERS; i++)
        if (cluster->list[i].alive && ct_holder_leads(&cluster->list[i].holder))
            leader = leader < 0 ? i : -2;
    return leader;
}

static void set_up(void)
{
    cluster = calloc(1, sizeof *cluster);
    cluster->now_ms = 1000;
    for (size_t i = 0; i < PEERS; i++)
        start(i);
    run_ms(5000);
    cr_assert_geq(leader_now(), 0);
}

static void tear_down(void)
{
    for (size_t i = 0; i < PEERS; i++) {
        if (cluster->list[i].alive)
            ct_holder_deinit(&cluster->list[i].holder);
        ct_buf_deinit(&cluster->list[i].disk);
    }
    while (cluster->first < cluster->end)
        ct_buf_deinit(&cluster->flights[cluster->first++ % FLIGHTS].frame);
    free(cluster);
}

TestSuite(holder_peers, .init = set_up, .fini = tear_down, .timeout = 60);

static struct ct_message hello_as(const char *role)
{
    return (struct ct_message){.type = CT_MSG_HELLO,
                               .hello = {.protocol = CT_WIRE_PROTOCOL,
                                         .job = "job",
                                         .host = "host",
                                         .incarnation = {1, 2},
                                         .role = role}};
}

Test(holder_peers, one_that_follows_sends_nodes_and_operators_to_the_one_that_leads)
{
    int leader = leader_now();
    struct peer *follower = &cluster->list[(leader + 1) % PEERS];
    static const char *const roles[] = {"agent", "admin"};

    cr_assert_not_null(strstr(follower->log, "follows the one at"), "%s", follower->log);
    for (size_t i = 0; i < CT_COUNT(roles); i++) {
        struct client client;

        open_client(follower, &client, hello_as(roles[i]));
        cr_assert_eq(client.code, CT_EUNAVAILABLE);
        cr_assert_not_null(strstr(client.refusal, addresses[leader]), "%s", client.refusal);
        cr_assert_eq(client.count, PEERS);
        cr_assert_str_eq(client.first, addresses[leader]);
        cr_assert_eq(client.epoch, 0, "it would offer to hold the record");
        cr_assert(client.closed);
        ct_holder_closed(&follower->holder, cluster->now_ms, &client.conn, false);
    }
}

Test(holder_peers, one_alone_leads_nobody_and_names_those_that_it_does_not_hear)
{
    int leader = leader_now();
    struct peer *peer = &cluster->list[leader];
    struct ct_buf text;

    for (size_t i = 0; i < PEERS; i++)
        if ((int)i != leader)
            end(i);
    run_ms(20000);
    cr_assert_eq(leader_now(), -1);
    ct_buf_init(&text, 0);
    ct_holder_describe(&peer->holder, &text);
    cr_assert_not_null(strstr(ct_buf_str(&text), "2 of the 3 peers must hear each other"), "%s",
                       ct_buf_str(&text));
    for (size_t i = 0; i < PEERS; i++)
        cr_assert_not_null(strstr(ct_buf_str(&text), addresses[i]));
    const char *first = strstr(peer->log, "must hear each other");
    cr_assert_not_null(first, "%s", peer->log);
    cr_assert_null(strstr(first + 1, "must hear each other"), "it says so once");
    ct_buf_deinit(&text);
    start((size_t)(leader + 1) % PEERS);
    run_ms(8000);
    cr_assert_geq(leader_now(), 0);
}

Test(holder_peers, the_epoch_grows_with_each_leader_across_a_power_cut)
{
    uint64_t term = ct_replica_term(cluster->list[leader_now()].holder.replica);

    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < PEERS; i++)
            end(i);
        for (size_t i = 0; i < PEERS; i++)
            start(i);
        run_ms(8000);
        cr_assert_geq(leader_now(), 0);
        const struct ct_replica *replica = cluster->list[leader_now()].holder.replica;
        cr_assert_gt(ct_replica_term(replica), term);
        cr_assert_eq(ct_replica_era(replica), cluster->list[0].peers.era);
        term = ct_replica_term(replica);
    }
}

Test(holder_peers, one_with_a_new_journal_elects_nobody_who_may_lack_what_was_confirmed)
{
    size_t leader = (size_t)leader_now(), anew = (leader + 1) % PEERS, other = (leader + 2) % PEERS;
    struct ct_buf text;

    end(leader);
    end(anew);
    ct_buf_clear(&cluster->list[anew].disk);
    start(anew);
    run_ms(20000);
    cr_assert_eq(leader_now(), -1);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == leader)
            continue;
        ct_buf_init(&text, 0);
        ct_holder_describe(&cluster->list[i].holder, &text);
        cr_assert_not_null(strstr(ct_buf_str(&text), "has a new journal"), "%s", ct_buf_str(&text));
        cr_assert_not_null(strstr(ct_buf_str(&text), addresses[leader]), "%s", ct_buf_str(&text));
        ct_buf_deinit(&text);
    }
    start(leader);
    run_ms(8000);
    cr_assert(leader_now() == (int)leader || leader_now() == (int)other);
    cr_assert(!ct_replica_is_new(cluster->list[anew].holder.replica));
}

Test(holder_peers, a_leader_that_dies_is_replaced_at_once_and_may_come_back)
{
    int leader = leader_now();
    uint64_t id = cluster->list[leader].holder.id;

    end((size_t)leader);
    for (int i = 0; i < PEERS; i++)
        if (i != leader)
            ct_holder_died(&cluster->list[i].holder, cluster->now_ms, id);
    run_ms(300);
    cr_assert_geq(leader_now(), 0);
    start((size_t)leader);
    run_ms(3000);
    cr_assert_eq(ct_replica_leader(cluster->list[leader].holder.replica),
                 cluster->list[leader_now()].holder.id);
}

Test(holder_peers, a_peer_of_a_newer_release_is_one_of_them)
{
    struct peer *peer = &cluster->list[0];
    struct ct_message hello = ct_holder_hello(peer->peers.name, "other", (struct ct_id){1, 2});
    struct client client;

    hello.hello.protocol = CT_WIRE_PROTOCOL + 1;
    open_client(peer, &client, hello);
    cr_assert_eq(client.code, 0, "%s", client.refusal);
    cr_assert_not(client.closed);
    ct_holder_closed(&peer->holder, cluster->now_ms, &client.conn, false);
}

/* What a newer leader has put on record: this release would serve the jobs without it, and begin
 * anew what runs. One that can read it is asked to lead, as often as it takes. */
Test(holder_peers, one_that_cannot_read_what_is_on_record_serves_nobody_and_asks_another_to_lead)
{
    static const unsigned char record[] = {200, 3, 0, 'j', 'o', 'b', 'n', 'e', 'w', 's'};
    int leader = leader_now();
    struct client client;
    uint64_t term;

    cr_assert_eq(ct_replica_put(cluster->list[leader].holder.replica, cluster->now_ms, 77, "job/99",
                                record, sizeof record),
                 0);
    run_ms(1000);
    end((size_t)leader);
    run_ms(8000);
    leader = leader_now();
    cr_assert_geq(leader, 0);
    struct peer *peer = &cluster->list[leader];
    cr_assert_not_null(strstr(peer->log, "a newer release of ctrund wrote it"), "%s", peer->log);
    cr_assert_not_null(strstr(peer->log, "; this one does not lead"), "%s", peer->log);
    cr_assert_null(peer->holder.service);
    open_client(peer, &client, hello_as("agent"));
    cr_assert_eq(client.code, CT_EUNAVAILABLE);
    ct_holder_closed(&peer->holder, cluster->now_ms, &client.conn, false);
    term = ct_replica_term(peer->holder.replica);
    run_ms(8000);
    cr_assert_gt(ct_replica_term(peer->holder.replica), term, "nobody else was asked");
}

Test(holder_peers, a_replica_of_another_list_or_version_is_told_why)
{
    struct peer *peer = &cluster->list[0];
    struct ct_message hello =
        ct_holder_hello("peers 0123456789abcdef", "other", (struct ct_id){1, 2});
    struct client client;

    open_client(peer, &client, hello);
    cr_assert_eq(client.code, CT_EUSAGE);
    cr_assert_not_null(strstr(client.refusal, "different lists of --peers"), "%s", client.refusal);
    cr_assert(client.closed);
    ct_holder_closed(&peer->holder, cluster->now_ms, &client.conn, false);
    hello.hello.job = peer->peers.name;
    hello.hello.protocol = CT_WIRE_OLDEST - 1;
    open_client(peer, &client, hello);
    cr_assert_not_null(strstr(client.refusal, "is too old for the one at"), "%s", client.refusal);
    ct_holder_closed(&peer->holder, cluster->now_ms, &client.conn, false);
}
