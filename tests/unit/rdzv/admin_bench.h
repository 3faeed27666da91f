/* A service with a job of some nodes and an operator, shared by test_admin.c and
 * test_node_queries.c. */
#ifndef TESTS_UNIT_RDZV_ADMIN_BENCH_H
#define TESTS_UNIT_RDZV_ADMIN_BENCH_H

#include "rendezvous/service/admin.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer {
    uint64_t link;
    bool has_key;
    int closed;
    int code;
    unsigned drains;
    unsigned rounds;                         /* ROUND, of any number of nodes */
    uint32_t nodes;                          /* in the last one */
    struct ct_msg_flight_query flight_query; /* the last FLIGHT_QUERY */
    unsigned queries, replies;               /* how many */
    struct ct_msg_flight_reply flight_reply; /* the last FLIGHT_REPLY, without its bytes */
    size_t traces;                           /* of which it had so many */
    struct ct_msg_lines_query lines_query;   /* the last LINES_QUERY */
    unsigned line_queries, lines;            /* how many, and LINES */
    struct ct_msg_lines last_lines;          /* the last of them, without its list */
    bool watched;                            /* as the last HEARTBEAT_ACK says */
    char *text;                              /* of the last ADMIN_REPLY */
};

static uint32_t restarts_allowed; /* of the jobs that are joined */
static uint32_t followers; /* of the nodes that join: who asks to be told of events, a bit each */

struct bench {
    struct ct_service *service;
    struct peer *nodes;
    uint32_t count;
    struct peer operator;
};

static inline void io_send(void *context, void *to, const struct ct_message *message)
{
    struct peer *peer = to;
    (void)context;
    peer->drains += message->type == CT_MSG_DRAIN;
    if (message->type == CT_MSG_HEARTBEAT_ACK)
        peer->watched = message->heartbeat_ack.watched != 0;
    if (message->type == CT_MSG_ROUND) {
        peer->rounds++;
        peer->nodes = message->round.nodes.count;
    } else if (message->type == CT_MSG_FLIGHT_QUERY) {
        peer->queries++;
        peer->flight_query = message->flight_query;
    } else if (message->type == CT_MSG_FLIGHT_REPLY) {
        peer->replies++;
        peer->flight_reply = message->flight_reply;
        peer->traces = message->flight_reply.traces.size;
    } else if (message->type == CT_MSG_LINES_QUERY) {
        peer->line_queries++;
        peer->lines_query = message->lines_query;
    } else if (message->type == CT_MSG_LINES) {
        peer->lines++;
        peer->last_lines = message->lines;
    }
    if (message->type != CT_MSG_ADMIN_REPLY)
        return;
    const struct ct_bytes *text = &message->admin_reply.text;
    free(peer->text);
    peer->text = strndup((const char *)text->data, text->size);
    peer->code = message->admin_reply.code;
}

static inline void io_close(void *context, void *of, int code, const char *sentence)
{
    (void)context, (void)sentence;
    ((struct peer *)of)->closed = code;
}

static inline int io_may(void *context, void *of, enum ct_right right, const char *job,
                         struct ct_error *err)
{
    (void)context, (void)right, (void)job;
    return ((struct peer *)of)->has_key ? 0 : ct_error_set(err, CT_EAUTH, "no key for this job");
}

static inline void io_announce(void *context, const char *job, const char *sentence)
{
    (void)context, (void)job, (void)sentence;
}

static inline void send_message(struct bench *b, const struct peer *peer,
                                const struct ct_message *message)
{
    ct_service_message(b->service, 1000, peer->link, message);
}

static inline void hello(struct bench *b, struct peer *peer, const char *job, const char *role)
{
    struct ct_message m = {.type = CT_MSG_HELLO,
                           .hello = {.protocol = CT_WIRE_PROTOCOL,
                                     .job = job,
                                     .host = "h",
                                     .incarnation = {peer->link, 1},
                                     .role = role}};
    *peer = (struct peer){.has_key = true, .link = peer->link};
    peer->link = ct_service_open(b->service, peer);
    m.hello.incarnation.high = peer->link;
    send_message(b, peer, &m);
}

static inline void follow(struct bench *b, const struct peer *peer, uint64_t after)
{
    const struct ct_message m = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_FOLLOW, .host = "", .author = "", .reason = "", .after = after}};

    send_message(b, peer, &m);
}

static inline void join(struct bench *b, uint32_t index, const char *job, uint32_t nodes_max)
{
    struct peer *peer = &b->nodes[index];
    char host[32];
    (void)snprintf(host, sizeof(host), "node%u", index);
    hello(b, peer, job, "agent");
    if (index < 32 && (followers >> index & 1) != 0)
        follow(b, peer, 0);
    struct ct_message m = {.type = CT_MSG_JOIN,
                           .join = {.seq = 1,
                                    .incarnation = {peer->link, 1},
                                    .slots = 2,
                                    .max_restarts = restarts_allowed,
                                    .node_rank = -1,
                                    .slurm_node = -1,
                                    .nodes_min = CT_MAX(nodes_max / 2, 1u),
                                    .nodes_max = nodes_max,
                                    .host = host,
                                    .address = "10.0.0.1",
                                    .role = "default",
                                    .settings = "",
                                    .join_timeout_ms = 60000,
                                    .last_call_ms = 1,
                                    .lease_ms = CT_MAX(1000u, nodes_max),
                                    .prepare_ms = CT_MAX(1000u, nodes_max),
                                    .grow_ms = 100,
                                    .autonomy_ms = 600000}};
    send_message(b, peer, &m);
}

/* A job of `count` nodes in its first round. */
static inline void begin(struct bench *b, uint32_t count)
{
    const struct ct_service_io io = {
        .context = b, .send = io_send, .close = io_close, .may = io_may, .announce = io_announce};
    *b = (struct bench){.count = count, .nodes = calloc(count, sizeof(*b->nodes))};
    b->service = ct_service_new(NULL, &io, 7);
    for (uint32_t i = 0; i < count; i++)
        join(b, i, "digits", count);
    for (uint32_t i = 0; i < count; i++)
        send_message(
            b, &b->nodes[i],
            &(struct ct_message){.type = CT_MSG_PREPARED, .prepared = {.generation = 1, .seq = 2}});
    for (uint32_t i = 0; i < count; i++)
        send_message(b, &b->nodes[i],
                     &(struct ct_message){
                         .type = CT_MSG_HEARTBEAT,
                         .heartbeat = {.generation = 1, .seq = 3, .acting = 1, .recovered = 1}});
}

static inline void end(struct bench *b)
{
    for (uint32_t i = 0; i < b->count; i++)
        free(b->nodes[i].text);
    free(b->operator.text);
    ct_service_free(b->service);
    free(b->nodes);
}

static inline const char *ask(struct bench *b, const char *job, const struct ct_msg_admin *question)
{
    struct ct_message m = {.type = CT_MSG_ADMIN, .admin = *question};
    m.admin.host = question->host != NULL ? question->host : ""; /* the codec leaves no NULL */
    m.admin.author = question->author != NULL ? question->author : "";
    m.admin.reason = question->reason != NULL ? question->reason : "";
    free(b->operator.text);
    hello(b, &b->operator, job, "admin");
    send_message(b, &b->operator, & m);
    cr_assert_not_null(b->operator.text);
    return b->operator.text;
}

static inline const char *status(struct bench *b, const char *job, bool json)
{
    return ask(b, job, &(struct ct_msg_admin){.verb = CT_ADMIN_STATUS, .json = json});
}

static inline bool contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

#endif
