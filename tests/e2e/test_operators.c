/* What operators get wrong when several nodes are to meet: each mistake has its sentence and its
 * exit status, and disturbs nobody else. */
#include "e2e.h"

#include "base/arena.h"
#include "wire/link.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(operators, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

static const char *show_script(void)
{
    return e2e_script("show",
                      "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE on node $GROUP_RANK\"\n");
}

static const char *nap_script(void)
{
    return e2e_script("nap", "#!/bin/sh\nexec sleep 600\n");
}

static void stop_daemon(struct proc *daemon)
{
    cr_assert_eq(kill(daemon->pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(daemon, 10), 0, "%s", ct_buf_str(&daemon->text));
    proc_free(daemon);
}

/* A stream socket on a loopback port of its own; *ret_port is its number. */
static int loopback_socket(int *ret_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

/* ---- who is missing, who is too many --------------------------------------------------------- */

Test(operators, a_join_that_nobody_completes_names_who_is_missing)
{
    struct proc daemon;
    struct proc node;
    const char *endpoint = e2e_daemon(&daemon);

    cr_assert_eq(e2e_run(&node, "--nnodes=3", "--rdzv_endpoint", endpoint, "--node_rank=1",
                         "--join_timeout=1500ms", "/bin/true", NULL),
                 75);
    e2e_said(&node, "1 of 3");
    cr_assert(strstr(ct_buf_str(&node.text), "0 and 2") != NULL ||
                  strstr(ct_buf_str(&node.text), "0, 2") != NULL,
              "who is missing:\n%s", ct_buf_str(&node.text));
    proc_free(&node);
    stop_daemon(&daemon);
}

static bool one_has_ended(void *context)
{
    struct proc **both = context;

    return !proc_alive(both[0]->pid) || !proc_alive(both[1]->pid);
}

Test(operators, two_nodes_with_one_rank_are_refused)
{
    struct proc daemon;
    struct proc first;
    struct proc second;
    const char *endpoint = e2e_daemon(&daemon);
    const char *nap = nap_script();

    e2e_start(&first, "--nnodes=2:3", "--rdzv_endpoint", endpoint, "--node_rank=1", nap, NULL);
    e2e_start(&second, "--nnodes=2:3", "--rdzv_endpoint", endpoint, "--node_rank=1", nap, NULL);
    struct proc *both[] = {&first, &second};
    proc_until(one_has_ended, both, 10, "the refusal of a second rank 1");
    struct proc *refused = proc_alive(first.pid) ? &second : &first;
    cr_assert_eq(proc_finish(refused, 5), 2, "%s", ct_buf_str(&refused->text));
    e2e_said(refused, "rank 1");
    proc_free(&first);
    proc_free(&second);
    stop_daemon(&daemon);
}

/* ---- the wrong job --------------------------------------------------------------------------- */

Test(operators, jobs_of_different_names_do_not_meet)
{
    struct proc daemon;
    struct proc a;
    struct proc b;
    const char *endpoint = e2e_daemon(&daemon);
    const char *show = show_script();

    e2e_start(&a, "--nnodes=1", "--rdzv_endpoint", endpoint, "--rdzv_id=a", show, NULL);
    e2e_start(&b, "--nnodes=1", "--rdzv_endpoint", endpoint, "--rdzv_id=b", show, NULL);
    cr_assert_eq(proc_finish(&a, 20), 0, "%s", ct_buf_str(&a.text));
    cr_assert_eq(proc_finish(&b, 20), 0, "%s", ct_buf_str(&b.text));
    e2e_said(&a, "rank 0 of 1");
    e2e_said(&b, "rank 0 of 1");
    proc_free(&a);
    proc_free(&b);
    stop_daemon(&daemon);
}

/* A port that nobody has now; a node that hosts the rendezvous cannot bind port 0. */
static int free_port(void)
{
    int port, fd = loopback_socket(&port);

    (void)close(fd);
    return port;
}

Test(operators, a_node_that_names_another_job_than_its_host_serves_is_told_both_names)
{
    struct proc host, stranger;
    char endpoint[64];
    int port = free_port();

    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    e2e_start(&host, "--nnodes=2", "--node_rank=0", "--rdzv_endpoint", endpoint, "--rdzv_id=right",
              nap_script(), NULL);
    (void)proc_wait_text(&host, "waits for nodes: 1 of 2", 10);
    cr_assert_eq(e2e_run(&stranger, "--nnodes=2", "--node_rank=1", "--rdzv_endpoint", endpoint,
                         "--rdzv_id=wrong", "/bin/true", NULL),
                 2, "%s", ct_buf_str(&stranger.text));
    e2e_said(&stranger, "serves job right alone");
    e2e_said(&stranger, "asks for job wrong");
    cr_assert(proc_alive(host.pid), "the host still waits for its own second node");
    proc_free(&stranger);
    proc_free(&host);
}

Test(operators, nodes_with_different_configurations_are_told_so)
{
    struct proc daemon;
    struct proc a;
    struct proc b;
    const char *endpoint = e2e_daemon(&daemon);
    const char *config = e2e_in_root("configs/digits_mlp.yaml");

    e2e_start(&a, "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank=0", "--seed=1",
              "--join_timeout=3s", config, NULL);
    e2e_start(&b, "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank=1", "--seed=2",
              "--join_timeout=3s", config, NULL);
    struct proc *both[] = {&a, &b};
    proc_until(one_has_ended, both, 10, "the refusal of another configuration");
    struct proc *refused = proc_alive(a.pid) ? &b : &a;
    cr_assert_eq(proc_finish(refused, 5), 2, "%s", ct_buf_str(&refused->text));
    e2e_said(refused, "--seed ");
    proc_free(&a);
    proc_free(&b);
    stop_daemon(&daemon);
}

/* ---- the wrong place ------------------------------------------------------------------------- */

Test(operators, a_rendezvous_nobody_answers_is_named_with_its_address)
{
    struct proc node;
    char endpoint[64];
    int port, probe = loopback_socket(&port); /* bound and not listening: ours, and it refuses */

    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    int status = e2e_run(&node, "--nnodes=2", "--node_rank=1", "--rdzv_endpoint", endpoint,
                         "--join_timeout=1200ms", "/bin/true", NULL);
    cr_assert(status == 69 || status == 75, "status %d", status);
    e2e_said(&node, endpoint);
    e2e_said(&node, "refused");
    proc_free(&node);
    (void)close(probe);
}

Test(operators, a_port_in_use_is_named)
{
    struct proc daemon;
    struct proc second;
    const char *endpoint = e2e_daemon(&daemon);
    const char *const argv[] = {proc_program("ctrund"), "--listen", endpoint, NULL};

    cr_assert_eq(proc_run(&second, argv, NULL, 10), 76, "%s", ct_buf_str(&second.text));
    e2e_said(&second, endpoint);
    e2e_said(&second, "in use");
    proc_free(&second);
    stop_daemon(&daemon);
}

Test(operators, a_second_daemon_with_the_same_journal_ends_with_76)
{
    struct proc first, second;
    const char *port_file = e2e_in_folder("port");
    const char *const argv[] = {proc_program("ctrund"),   "--listen",    "127.0.0.1:0", "--journal",
                                e2e_in_folder("journal"), "--port_file", port_file,     NULL};

    proc_start(&first, argv, NULL);
    (void)e2e_wait_file(port_file, 10);
    cr_assert_eq(proc_run(&second, argv, NULL, 10), 76, "%s", ct_buf_str(&second.text));
    e2e_said(&second, "another ctrund works with the journal in");
    proc_free(&second);
    stop_daemon(&first);
}

/* ---- the wrong version ----------------------------------------------------------------------- */

enum { ANOTHER_PROTOCOL = 99 };

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

Test(operators, an_agent_of_another_version_is_refused_with_both_versions)
{
    struct proc daemon;
    struct ct_link link;
    struct ct_arena arena;
    struct ct_message answer;
    int ignored, fd = loopback_socket(&ignored);
    const char *endpoint = e2e_daemon(&daemon);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    to.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    ct_link_init(&link, fd, CT_FROM_SERVER);
    ct_arena_init(&arena, 1 << 16);
    send_message(&link, &(struct ct_message){.type = CT_MSG_HELLO,
                                             .hello = {.protocol = ANOTHER_PROTOCOL,
                                                       .job = "none",
                                                       .host = "newer",
                                                       .role = "agent",
                                                       .incarnation = {1, 2}}});
    receive(&link, &arena, &answer);
    cr_assert_eq(answer.type, CT_MSG_REFUSE);
    cr_assert_eq(answer.refuse.code, CT_EPROTOCOL);
    cr_assert_eq(answer.refuse.retry_ms, 0, "trying again is of no use");
    cr_assert_not_null(strstr(answer.refuse.text, "host newer"), "%s", answer.refuse.text);
    cr_assert_not_null(strstr(answer.refuse.text, "protocol 99, here"), "%s", answer.refuse.text);
    ct_arena_deinit(&arena);
    ct_link_deinit(&link);
    (void)close(fd);
    stop_daemon(&daemon);
}

Test(operators, a_rendezvous_of_another_version_ends_the_agent_with_its_sentence_and_76)
{
    static const char sentence[] =
        "host here speaks protocol 1, this rendezvous speaks 99: install "
        "the same version of ctrun on all nodes";
    struct proc node;
    struct ct_link link;
    struct ct_arena arena;
    struct ct_message hello;
    char endpoint[64];
    int port, listener = loopback_socket(&port);

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
