/* Several agents of one job on loopback, meeting at a ctrund or at node 0: formation, order,
 * failures of nodes, and what operators get wrong. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

Test(nodes, a_join_that_nobody_completes_names_who_is_missing)
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

Test(nodes, a_rendezvous_nobody_answers_is_named_with_its_address)
{
    struct proc node;
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    char endpoint[64];

    /* bound and not listening: the port stays ours and refuses */
    cr_assert_eq(bind(probe, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(getsockname(probe, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", ntohs(address.sin_port));
    int status = e2e_run(&node, "--nnodes=2", "--node_rank=1", "--rdzv_endpoint", endpoint,
                         "--join_timeout=1200ms", "/bin/true", NULL);
    cr_assert(status == 69 || status == 75, "status %d", status);
    e2e_said(&node, endpoint);
    e2e_said(&node, "refused");
    proc_free(&node);
    (void)close(probe);
}

Test(nodes, a_port_in_use_is_named)
{
    struct proc daemon;
    struct proc second;
    const char *endpoint = e2e_daemon(&daemon);
    const char *const argv[] = {proc_program("ctrund"), "--listen", endpoint, NULL};

    cr_assert_eq(proc_run(&second, argv, NULL, 10), 69);
    e2e_said(&second, endpoint);
    e2e_said(&second, "in use");
    proc_free(&second);
    stop_daemon(&daemon);
}

static bool one_has_ended(void *context)
{
    struct proc **both = context;

    return !proc_alive(both[0]->pid) || !proc_alive(both[1]->pid);
}

Test(nodes, two_nodes_with_one_rank_are_refused)
{
    struct proc daemon;
    struct proc first;
    struct proc second;
    const char *endpoint = e2e_daemon(&daemon);
    const char *nap = nap_script();

    start_node(&first, endpoint, "2:3", "1", nap);
    start_node(&second, endpoint, "2:3", "1", nap);
    struct proc *both[] = {&first, &second};
    proc_until(one_has_ended, both, 10, "the refusal of a second rank 1");
    struct proc *refused = proc_alive(first.pid) ? &second : &first;
    cr_assert_eq(proc_finish(refused, 5), 2, "%s", ct_buf_str(&refused->text));
    e2e_said(refused, "rank 1");
    proc_free(&first);
    proc_free(&second);
    stop_daemon(&daemon);
}

Test(nodes, jobs_of_different_names_do_not_meet)
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

Test(nodes, nodes_with_different_configurations_are_told_so)
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
    int status_a = proc_finish(&a, 20);
    int status_b = proc_finish(&b, 20);
    cr_assert(status_a == 2 || status_b == 2, "%d %d\n%s%s", status_a, status_b,
              ct_buf_str(&a.text), ct_buf_str(&b.text));
    e2e_said(status_a == 2 ? &a : &b, "configuration");
    proc_free(&a);
    proc_free(&b);
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
    (void)proc_wait_text(&node, "waits for nodes: 1 of 2", 10);
    cr_assert_eq(kill(node.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&node, 5), 130);
    proc_free(&node);
    stop_daemon(&daemon);
}
