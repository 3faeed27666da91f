/* The service and nodes of other releases: who is let in, and what is spoken with whom. */
#include "rendezvous/service/service.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(protocols, .timeout = 30);

struct peer {
    uint64_t link;
    uint32_t spoken; /* of its WELCOME; 0: none came */
    unsigned prepares, rounds;
    struct ct_error refused;
};

static void io_send(void *context, void *to, const struct ct_message *message)
{
    struct peer *peer = to;

    (void)context;
    peer->prepares += message->type == CT_MSG_PREPARE;
    peer->rounds += message->type == CT_MSG_ROUND;
    if (message->type == CT_MSG_WELCOME)
        peer->spoken = message->welcome.protocol;
    if (message->type == CT_MSG_REFUSE)
        (void)ct_error_set(&peer->refused, message->refuse.code, "%s", message->refuse.text);
}

static void io_close(void *context, void *of, int code, const char *sentence)
{
    (void)context, (void)of, (void)code, (void)sentence;
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    (void)context, (void)job, (void)sentence;
}

static struct ct_service *begin(void)
{
    const struct ct_service_io io = {.send = io_send, .close = io_close, .announce = io_announce};
    struct ct_service *service = ct_service_new(NULL, &io, 1);

    cr_assert_not_null(service);
    return service;
}

/* As node `index` of `nodes`, whose newest protocol is this one. */
static void join(struct ct_service *service, struct peer *peer, uint32_t protocol, uint32_t index,
                 uint32_t nodes)
{
    struct ct_message hello = {.type = CT_MSG_HELLO,
                               .hello = {.protocol = protocol,
                                         .job = "j",
                                         .host = "h",
                                         .incarnation = {index + 1, 1},
                                         .role = "agent"}};
    struct ct_message offer = {.type = CT_MSG_JOIN,
                               .join = {.seq = 1,
                                        .incarnation = {index + 1, 1},
                                        .slots = 1,
                                        .node_rank = -1,
                                        .slurm_node = -1,
                                        .nodes_min = nodes,
                                        .nodes_max = nodes,
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

    peer->link = ct_service_open(service, peer);
    ct_service_message(service, 0, peer->link, &hello);
    if (peer->refused.code == 0)
        ct_service_message(service, 0, peer->link, &offer);
}

Test(protocols, a_node_that_is_too_old_is_told_which_are_spoken)
{
    struct ct_service *service = begin();
    struct peer peer = {.link = 0};
    char words[128];

    join(service, &peer, CT_WIRE_OLDEST - 1, 0, 1);
    cr_assert_eq(peer.refused.code, CT_EPROTOCOL);
    (void)snprintf(words, sizeof words,
                   "too old for this rendezvous (protocol %d, here %d to %d): ", CT_WIRE_OLDEST - 1,
                   CT_WIRE_OLDEST, CT_WIRE_PROTOCOL);
    cr_assert_not_null(strstr(peer.refused.text, words), "%s", peer.refused.text);
    ct_service_free(service);
}

/* The next release's node is in a round with one of this and one of the oldest release. */
Test(protocols, nodes_of_several_releases_are_in_one_round_and_each_is_told_what_is_spoken)
{
    static const uint32_t newest[] = {CT_WIRE_PROTOCOL + 1, CT_WIRE_PROTOCOL, CT_WIRE_OLDEST};
    enum { NODES = 3 };
    struct ct_service *service = begin();
    struct peer peers[NODES] = {{.link = 0}};

    for (uint32_t i = 0; i < NODES; i++) {
        join(service, &peers[i], newest[i], i, NODES);
        cr_assert_eq(peers[i].refused.code, 0, "%s", peers[i].refused.text);
        cr_assert_eq(peers[i].spoken, CT_MIN(newest[i], (uint32_t)CT_WIRE_PROTOCOL));
    }
    ct_service_tick(service, 1);
    for (size_t i = 0; i < NODES; i++) {
        const struct ct_message promise = {.type = CT_MSG_PREPARED,
                                           .prepared = {.generation = 1, .seq = 2}};

        cr_assert_eq(peers[i].prepares, 1);
        ct_service_message(service, 1, peers[i].link, &promise);
    }
    for (size_t i = 0; i < NODES; i++)
        cr_assert_eq(peers[i].rounds, 1);
    ct_service_free(service);
}
