/* Several agents of one job on loopback, meeting at a ctrund or at node 0: formation, order,
 * failures of nodes. What operators get wrong is in test_operators.c. */
#include "e2e.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(nodes, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

static const char *show_script(void)
{
    return e2e_script("show",
                      "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE on node $GROUP_RANK\"\n");
}

static const char *nap_script(void)
{
    return e2e_script("nap", "#!/bin/sh\necho $$ > pid.$RANK.new\nmv pid.$RANK.new pid.$RANK\n"
                             "exec sleep 600\n");
}

/* Start the agent of one node; `node` and `nproc` are its options, "" leaves the rank open. */
static void start_node(struct proc *node, const char *endpoint, const char *nodes, const char *rank,
                       const char *program)
{
    e2e_start(node, "--nnodes", nodes, "--rdzv_endpoint", endpoint, "--nproc_per_node",
              rank[0] == '0' ? "2" : "1", "--node_rank", rank, "--join_timeout=20s", program, NULL);
}

static void stop_daemon(struct proc *daemon)
{
    cr_assert_eq(kill(daemon->pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(daemon, 10), 0, "%s", ct_buf_str(&daemon->text));
    proc_free(daemon);
}

Test(nodes, three_uneven_nodes_form_one_world_in_the_order_of_their_ranks)
{
    struct proc daemon;
    struct proc nodes[3];
    const char *endpoint = e2e_daemon(&daemon);
    const char *show = show_script();
    static const char *const ranks[] = {"2", "0", "1"};

    for (int i = 0; i < 3; i++)
        start_node(&nodes[i], endpoint, "3", ranks[i], show);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
    e2e_said(&nodes[1], "rank 0 of 4 on node 0\n");
    e2e_said(&nodes[1], "rank 1 of 4 on node 0\n");
    e2e_said(&nodes[2], "rank 2 of 4 on node 1\n");
    e2e_said(&nodes[0], "rank 3 of 4 on node 2\n");
    for (int i = 0; i < 3; i++)
        proc_free(&nodes[i]);
    stop_daemon(&daemon);
}

Test(nodes, a_failure_on_one_node_ends_the_job_on_all_with_its_status)
{
    struct proc daemon;
    struct proc nodes[2];
    const char *endpoint = e2e_daemon(&daemon);
    const char *fail =
        e2e_script("fail", "#!/bin/sh\n[ \"$RANK\" = 2 ] && { sleep 0.2; exit 23; }\n"
                           "exec sleep 600\n");

    start_node(&nodes[0], endpoint, "2", "0", fail);
    start_node(&nodes[1], endpoint, "2", "1", fail);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 23, "%s", ct_buf_str(&nodes[i].text));
        e2e_said(&nodes[i], "rank 2");
        proc_free(&nodes[i]);
    }
    stop_daemon(&daemon);
}

Test(nodes, a_worker_failure_restarts_the_whole_job_once)
{
    struct proc daemon;
    struct proc nodes[2];
    const char *endpoint = e2e_daemon(&daemon);
    const char *once =
        e2e_script("once", "#!/bin/sh\nif [ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ]; then\n"
                           "  [ \"$RANK\" = 1 ] && exit 3\n  exec sleep 600\nfi\n"
                           "echo \"second try of $RANK\"\n");

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank",
                  i == 0 ? "0" : "1", "--max_restarts=1", once, NULL);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
    e2e_said(&nodes[0], "second try of 0\n");
    e2e_said(&nodes[1], "second try of 1\n");
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    stop_daemon(&daemon);
}

Test(nodes, min_nodes_start_after_the_last_call)
{
    struct proc daemon;
    struct proc nodes[2];
    const char *endpoint = e2e_daemon(&daemon);
    const char *show = show_script();

    start_node(&nodes[0], endpoint, "2:4", "0", show);
    start_node(&nodes[1], endpoint, "2:4", "1", show);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        cr_assert_lt(nodes[i].seconds, 5, "no thirty seconds of waiting");
    }
    e2e_said(&nodes[1], "rank 2 of 3 on node 1\n");
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    stop_daemon(&daemon);
}

Test(nodes, a_lost_node_ends_the_job_when_nothing_replaces_it)
{
    struct proc daemon;
    struct proc nodes[2];
    const char *endpoint = e2e_daemon(&daemon);
    const char *nap = nap_script();

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank",
                  i == 0 ? "0" : "1", "--join_timeout=2s", nap, NULL);
    pid_t survivor = atoi(e2e_wait_file("pid.0", 20));
    pid_t lost = atoi(e2e_wait_file("pid.1", 20));
    cr_assert_eq(kill(nodes[1].pid, SIGKILL), 0);
    e2e_wait_gone(lost, 2);
    int status = proc_finish(&nodes[0], 20);
    cr_assert_eq(status, 79, "status %d\n%s", status, ct_buf_str(&nodes[0].text));
    cr_assert_not(proc_alive(survivor));
    (void)proc_finish(&nodes[1], 5);
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    stop_daemon(&daemon);
}

Test(nodes, a_lost_node_within_the_budget_is_replaced_by_a_newcomer)
{
    struct proc daemon;
    struct proc nodes[3];
    const char *endpoint = e2e_daemon(&daemon);
    const char *work =
        e2e_script("work", "#!/bin/sh\nif [ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ]; then\n"
                           "  echo $$ > pid.$RANK.new; mv pid.$RANK.new pid.$RANK\n"
                           "  exec sleep 600\nfi\necho \"again rank $RANK\"\n");

    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            (void)e2e_wait_file("pid.0", 20);
            (void)e2e_wait_file("pid.1", 20);
            cr_assert_eq(kill(nodes[1].pid, SIGKILL), 0);
        }
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--max_restarts=1",
                  "--node_rank", i == 0 ? "0" : "1", "--join_timeout=20s", work, NULL);
    }
    cr_assert_eq(proc_finish(&nodes[0], 30), 0, "%s", ct_buf_str(&nodes[0].text));
    cr_assert_eq(proc_finish(&nodes[2], 30), 0, "%s", ct_buf_str(&nodes[2].text));
    e2e_said(&nodes[0], "again rank 0\n");
    e2e_said(&nodes[2], "again rank 1\n");
    (void)proc_finish(&nodes[1], 5);
    for (int i = 0; i < 3; i++)
        proc_free(&nodes[i]);
    stop_daemon(&daemon);
}

Test(nodes, a_wait_of_more_than_a_second_says_what_it_waits_for)
{
    struct proc daemon;
    struct proc node;
    const char *endpoint = e2e_daemon(&daemon);

    start_node(&node, endpoint, "2", "0", "/bin/true");
    (void)proc_wait_text(&node, "waiting for 1 more node (1 of 2", 10);
    cr_assert_eq(kill(node.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&node, 5), 130);
    proc_free(&node);
    stop_daemon(&daemon);
}

/* Listen on a free port; the endpoint is for `ctrun`. */
static int listen_anywhere(char *endpoint, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int at = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(at, 0);
    cr_assert_eq(bind(at, (const struct sockaddr *)&address, length), 0);
    cr_assert_eq(listen(at, 64), 0);
    cr_assert_eq(getsockname(at, (struct sockaddr *)&address, &length), 0);
    (void)snprintf(endpoint, size, "127.0.0.1:%d", ntohs(address.sin_port));
    return at;
}

/* A process that refuses whatever it is asked, as a web server does. */
static pid_t serve_http(int listener)
{
    static const char refusal[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        char heard[4096];
        int caller = accept(listener, NULL, NULL);
        if (caller < 0)
            _exit(1);
        (void)recv(caller, heard, sizeof heard, 0);
        (void)send(caller, refusal, sizeof refusal - 1, MSG_NOSIGNAL);
        (void)close(caller);
    }
}

enum { MUTE, HTTP, SERVERS };

/* The words about the server at `endpoint`. */
static void name_server(char *words, size_t size, const char *endpoint, const char *detail)
{
    (void)snprintf(words, size,
                   "%s accepts connections but does not answer as a ctrun rendezvous%s: another "
                   "program may hold the port; check --rdzv_endpoint\n",
                   endpoint, detail);
}

static void name_servers_to(const char *key_option, const char *key, const char *http_detail)
{
    struct proc nodes[SERVERS];
    char endpoints[SERVERS][32];
    int listeners[SERVERS];

    for (int i = 0; i < SERVERS; i++)
        listeners[i] = listen_anywhere(endpoints[i], sizeof endpoints[i]);
    pid_t server = serve_http(listeners[HTTP]);
    for (int i = 0; i < SERVERS; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoints[i], "--node_rank=1",
                  "--join_timeout=20s", key_option, key, "/bin/true", NULL);
    for (int i = 0; i < SERVERS; i++) {
        char words[400];
        name_server(words, sizeof words, endpoints[i], i == HTTP ? http_detail : "");
        (void)proc_wait_text(&nodes[i], words, 4.5); /* a handshake's limit is 5 s */
        cr_assert_eq(kill(nodes[i].pid, SIGINT), 0);
        cr_assert_eq(proc_finish(&nodes[i], 10), 130, "%s", ct_buf_str(&nodes[i].text));
        cr_assert_eq(e2e_count(ct_buf_str(&nodes[i].text), words), 1, "said once: %s",
                     ct_buf_str(&nodes[i].text));
        proc_free(&nodes[i]);
        (void)close(listeners[i]);
    }
    cr_assert_eq(kill(server, SIGKILL), 0);
    cr_assert_eq(waitpid(server, NULL, 0), server);
}

Test(nodes, another_program_on_the_endpoint_is_named_whether_it_is_mute_or_speaks_http)
{
    name_servers_to("--local_addr", "127.0.0.1",
                    " (the peer sent 48 54 54 50 instead of a frame: it speaks HTTP)");
}

static const char *make_key(void)
{
    static char path[512];
    struct proc run;

    (void)snprintf(path, sizeof path, "%s", e2e_in_folder("key"));
    cr_assert_eq(e2e_run(&run, "key", "new", path, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    return path;
}

Test(nodes, another_program_on_the_endpoint_is_named_as_soon_where_a_key_is_given)
{
    name_servers_to("--key_file", make_key(),
                    " (the peer opened with the byte 48: it speaks HTTP, no TLS)");
}

Test(nodes, a_server_that_accepts_and_never_answers_is_waited_for_as_long_as_to_join)
{
    struct proc nodes[2];
    char endpoint[32], words[400];
    int listener = listen_anywhere(endpoint, sizeof endpoint);
    const char *const key[] = {"--key_file", make_key(), "--local_addr", "127.0.0.1"};

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank=1",
                  "--join_timeout=3s", key[2 * i], key[2 * i + 1], "/bin/true", NULL);
    name_server(words, sizeof words, endpoint, "");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 4.5), 75, "%s", ct_buf_str(&nodes[i].text));
        cr_assert_eq(e2e_count(ct_buf_str(&nodes[i].text), words), 2,
                     "as it waits and at the end: %s", ct_buf_str(&nodes[i].text));
        proc_free(&nodes[i]);
    }
    (void)close(listener);
}

static void start_slices(struct proc *node, const char *endpoint)
{
    e2e_start(node, "--nnodes=1:2", "--nproc_per_node=2", "--max_restarts=3", "--rdzv_endpoint",
              endpoint, "--last_call=20s", "--parallel.tensor=2",
              e2e_in_root("configs/digits_mlp.yaml"), "--train.steps=2000", "--checkpoint.every=50",
              "--log.dir=log", "--checkpoint.dir=ckpt", NULL);
}

/* Each node's two workers hold the model together: of two copies one is lost with its node. */
Test(nodes, slices_go_on_from_the_checkpoint_on_the_nodes_that_are_left)
{
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);

    for (int i = 0; i < 2; i++)
        start_slices(&nodes[i], endpoint);
    (void)e2e_wait_file(e2e_in_folder("ckpt/latest"), 60);
    cr_assert_eq(kill(nodes[1].pid, SIGKILL), 0);
    cr_assert_eq(proc_finish(&nodes[1], 10), 128 + SIGKILL);
    cr_assert_eq(proc_finish(&nodes[0], 90), 0, "%s", ct_buf_str(&nodes[0].text));
    e2e_said(&nodes[0], "parallel.tensor keeps one state over all workers");
    e2e_not_said(&nodes[0], "begins anew");
    cr_assert(e2e_exists(e2e_in_folder("ckpt/step_00002000/state.json")));
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    stop_daemon(&daemon);
}
