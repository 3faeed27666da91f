/* A node whose certificate has expired: it comes back to its job, and begins nothing new. */
#include "rendezvous/service/service.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(expired, .timeout = 30);

struct peer {
    uint64_t link;
    struct ct_id id;
    bool expired;
    int refused;
    char text[256];
    unsigned welcomes, rounds, replies;
};

static void io_send(void *context, void *to, const struct ct_message *message)
{
    struct peer *peer = to;

    (void)context;
    peer->welcomes += message->type == CT_MSG_WELCOME;
    peer->rounds += message->type == CT_MSG_ROUND;
    peer->replies += message->type == CT_MSG_ADMIN_REPLY;
    if (message->type != CT_MSG_REFUSE)
        return;
    peer->refused = message->refuse.code;
    (void)snprintf(peer->text, sizeof peer->text, "%s", message->refuse.text);
}

static void io_close(void *context, void *of, int code, const char *sentence)
{
    (void)context, (void)of, (void)code, (void)sentence;
}

/* As ct_conn_may of an agent's certificate. */
static int io_may(void *context, void *of, enum ct_right right, const char *job,
                  struct ct_error *err)
{
    const struct ct_grant grant = {.name = "ada",
                                   .role = CT_ROLE_AGENT,
                                   .jobs = "*",
                                   .by = CT_KEY_CERTIFICATE,
                                   .expired = ((const struct peer *)of)->expired};

    (void)context;
    return ct_grant_may(&grant, right, job, -1, err);
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    (void)context, (void)job, (void)sentence;
}

static struct ct_service *service;

static void begin(void)
{
    const struct ct_service_io io = {
        .send = io_send, .close = io_close, .may = io_may, .announce = io_announce};

    service = ct_service_new(NULL, &io, 1);
    cr_assert_not_null(service);
}

static void hello(struct peer *peer, const char *role)
{
    const struct ct_message m = {.type = CT_MSG_HELLO,
                                 .hello = {.protocol = CT_WIRE_PROTOCOL,
                                           .job = "j",
                                           .host = "h",
                                           .incarnation = peer->id,
                                           .role = role}};

    peer->link = ct_service_open(service, peer);
    ct_service_message(service, 0, peer->link, &m);
}

/* Join as a node that was last in round `generation`; 0: none. */
static void join(struct peer *peer, uint64_t generation)
{
    static uint64_t seq;
    const struct ct_message m = {.type = CT_MSG_JOIN,
                                 .join = {.seq = ++seq,
                                          .incarnation = peer->id,
                                          .generation = generation,
                                          .slots = 1,
                                          .node_rank = -1,
                                          .slurm_node = -1,
                                          .nodes_min = 1,
                                          .nodes_max = 2,
                                          .host = "h",
                                          .address = "",
                                          .role = "default",
                                          .settings = "",
                                          .join_timeout_ms = 60000,
                                          .last_call_ms = 1,
                                          .lease_ms = 1000,
                                          .prepare_ms = 1000,
                                          .grow_ms = 100,
                                          .autonomy_ms = 600000}};

    hello(peer, "agent");
    if (peer->refused == 0)
        ct_service_message(service, 0, peer->link, &m);
}

Test(expired, a_node_comes_back_to_its_job)
{
    struct peer before = {.id = {1, 1}}, after = {.id = {1, 1}, .expired = true};

    begin();
    join(&before, 0);
    cr_assert_eq(before.welcomes, 1);
    ct_service_closed(service, 0, before.link, false);
    join(&after, 0);
    cr_assert_eq(after.refused, 0, "%s", after.text);
    cr_assert_eq(after.welcomes, 1);
    ct_service_free(service);
}

Test(expired, neither_a_job_nor_another_node_of_one_begins)
{
    struct peer first = {.id = {1, 1}, .expired = true}, good = {.id = {2, 1}};

    begin();
    for (uint64_t generation = 0; generation < 2; generation++) {
        join(&first, generation);
        cr_assert_eq(first.refused, CT_EAUTH);
        cr_assert_not_null(strstr(first.text, "host h: certificate ada has expired: it may come "
                                              "back to a job that it is in"),
                           "%s", first.text);
        cr_assert_eq(ct_service_jobs(service), 0);
        first.refused = 0;
    }
    join(&good, 0);
    cr_assert_eq(good.welcomes, 1);
    for (uint64_t generation = 0; generation < 2; generation++) {
        join(&first, generation);
        cr_assert_eq(first.refused, CT_EAUTH);
        first.refused = 0;
    }
    cr_assert_eq(first.welcomes, 0);
    ct_service_free(service);
}

Test(expired, where_the_record_is_made_anew_one_that_was_in_a_round_is_believed)
{
    struct peer fresh = {.id = {1, 1}, .expired = true}, known = {.id = {2, 1}, .expired = true};

    begin();
    ct_service_set_rebuild(service, CT_RDZV_REBUILD_OF_ALL);
    join(&fresh, 0);
    cr_assert_eq(fresh.refused, CT_EAUTH);
    join(&known, 3);
    cr_assert_eq(known.refused, 0, "%s", known.text);
    cr_assert_eq(ct_service_jobs(service), 1);
    ct_service_free(service);
}

Test(expired, an_operator_is_refused_at_once)
{
    struct peer peer = {.id = {1, 1}, .expired = true};

    begin();
    hello(&peer, "admin");
    cr_assert_eq(peer.refused, CT_EAUTH);
    peer = (struct peer){.id = {1, 1}};
    hello(&peer, "admin");
    cr_assert_eq(peer.refused, 0, "%s", peer.text);
    ct_service_free(service);
}
