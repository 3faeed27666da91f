/* A real ctrund and a real agent before peers of other releases, which are sockets of ours. */
#include "e2e.h"

#include "base/bytes.h"
#include "wire/link.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(protocols, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

static void stop_daemon(struct proc *daemon)
{
    cr_assert_eq(kill(daemon->pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(daemon, 10), 0, "%s", ct_buf_str(&daemon->text));
    proc_free(daemon);
}

static void receive(struct ct_link *link, struct ct_arena *arena, struct ct_message *message)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_link_receive(link, 10000, arena, message, &err), 0, "%s", err.text);
}

static void send_message(struct ct_link *link, const struct ct_message *message)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_link_send(link, message, 10000, &err), 0, "%s", err.text);
}

/* An agent of ours, whose newest protocol is this one, at a daemon. */
struct agent {
    struct proc daemon;
    struct ct_link link;
    struct ct_arena arena;
    struct ct_message answer;
    int fd;
};

static void dial(struct agent *agent, uint32_t protocol)
{
    int ignored;
    const char *endpoint = e2e_daemon(&agent->daemon);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    agent->fd = e2e_loopback_socket(&ignored);
    to.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
    cr_assert_eq(connect(agent->fd, (struct sockaddr *)&to, sizeof to), 0);
    ct_link_init(&agent->link, agent->fd, CT_FROM_SERVER);
    ct_arena_init(&agent->arena, 1 << 16);
    send_message(&agent->link, &(struct ct_message){.type = CT_MSG_HELLO,
                                                    .hello = {.protocol = protocol,
                                                              .job = "none",
                                                              .host = "another",
                                                              .role = "agent",
                                                              .incarnation = {1, 2}}});
}

static void hang_up(struct agent *agent)
{
    ct_arena_deinit(&agent->arena);
    ct_link_deinit(&agent->link);
    (void)close(agent->fd);
}

Test(protocols, an_agent_that_is_too_old_is_refused_with_both_versions)
{
    struct agent agent;
    char words[64];

    dial(&agent, CT_WIRE_OLDEST - 1);
    receive(&agent.link, &agent.arena, &agent.answer);
    cr_assert_eq(agent.answer.type, CT_MSG_REFUSE);
    cr_assert_eq(agent.answer.refuse.code, CT_EPROTOCOL);
    cr_assert_eq(agent.answer.refuse.retry_ms, 0, "trying again is of no use");
    const char *text = agent.answer.refuse.text;
    (void)snprintf(words, sizeof words, "protocol %d, here %d to", CT_WIRE_OLDEST - 1,
                   CT_WIRE_OLDEST);
    cr_assert_not_null(strstr(text, "host another"), "%s", text);
    cr_assert_not_null(strstr(text, words), "%s", text);
    hang_up(&agent);
    stop_daemon(&agent.daemon);
}

/* What a later release may send: a message that is unknown here, then a JOIN with a field more. */
Test(protocols, an_agent_of_a_later_release_is_let_in_and_told_what_is_spoken)
{
    static const struct ct_message join = {.type = CT_MSG_JOIN,
                                           .join = {.seq = 1,
                                                    .incarnation = {1, 2},
                                                    .slots = 1,
                                                    .node_rank = -1,
                                                    .slurm_node = -1,
                                                    .nodes_min = 2,
                                                    .nodes_max = 2,
                                                    .host = "another",
                                                    .join_timeout_ms = 60000,
                                                    .last_call_ms = 1,
                                                    .lease_ms = 60000,
                                                    .prepare_ms = 30000,
                                                    .grow_ms = 100,
                                                    .autonomy_ms = 600000}};
    static const char news[] = "news";
    struct agent agent;
    struct ct_buf frames = {0};
    size_t at;

    dial(&agent, CT_WIRE_PROTOCOL + 2);
    cr_assert_eq(ct_wire_encode(&join, 1, &frames, NULL), 0);
    ct_put_le16(frames.data + 8, 1999); /* the same bytes as a message of no name */
    at = frames.size;
    cr_assert_eq(ct_wire_encode(&join, 2, &frames, NULL), 0);
    cr_assert_eq(ct_buf_append(&frames, news, sizeof news), 0);
    ct_put_le32(frames.data + at + 4, (uint32_t)(frames.size - at - CT_WIRE_HEADER));
    cr_assert_eq(send(agent.fd, frames.data, frames.size, MSG_NOSIGNAL), (ssize_t)frames.size);
    receive(&agent.link, &agent.arena, &agent.answer);
    cr_assert_eq(agent.answer.type, CT_MSG_WELCOME, "%d", agent.answer.type);
    cr_assert_eq(agent.answer.welcome.protocol, CT_WIRE_PROTOCOL);
    (void)proc_wait_text(&agent.daemon, "sends message 1999, which this release does not know", 10);
    hang_up(&agent);
    ct_buf_deinit(&frames);
    stop_daemon(&agent.daemon);
}

Test(protocols, a_rendezvous_of_another_version_ends_the_agent_with_its_sentence_and_76)
{
    static const char sentence[] =
        "host here speaks protocol 1, this rendezvous speaks 99: install "
        "the same version of ctrun on all nodes";
    struct proc node;
    struct ct_link link;
    struct ct_arena arena;
    struct ct_message hello;
    char endpoint[64];
    int port, listener = e2e_loopback_socket(&port);

    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    cr_assert_eq(listen(listener, 1), 0);
    e2e_start(&node, "--nnodes=2", "--node_rank=1", "--rdzv_endpoint", endpoint, "/bin/true", NULL);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    cr_assert_geq(fd, 0);
    ct_link_init(&link, fd, CT_FROM_NODE);
    ct_arena_init(&arena, 1 << 16);
    receive(&link, &arena, &hello);
    cr_assert_eq(hello.type, CT_MSG_HELLO);
    cr_assert_eq(hello.hello.protocol, CT_WIRE_PROTOCOL);
    send_message(&link, &(struct ct_message){.type = CT_MSG_REFUSE,
                                             .refuse = {.code = CT_EPROTOCOL, .text = sentence}});
    cr_assert_eq(proc_finish(&node, 10), 76, "%s", ct_buf_str(&node.text));
    e2e_said(&node, sentence);
    proc_free(&node);
    ct_arena_deinit(&arena);
    ct_link_deinit(&link);
    (void)close(fd);
    (void)close(listener);
}
