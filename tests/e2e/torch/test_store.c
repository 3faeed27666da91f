/* PyTorch's store as ctrun serves it (--torch_store), seen by clients of our own
 * (tests/e2e/programs/store.c): one node, two agents, two hosts. Real PyTorch is in test_torch.c.
 */
#include "e2e.h"
#include "nodes/cluster.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static void leave(void)
{
    cluster_down();
    e2e_leave();
}

TestSuite(store, .init = e2e_enter, .fini = leave, .timeout = 180);

enum { SERVED = 2 };
static const char *const served[SERVED] = {"--torch_store=agent", "--torch_store=local"};

/* A shell script of this name in which `store` is the client. */
static const char *script(const char *name, const char *text)
{
    char whole[4096];

    (void)snprintf(whole, sizeof whole,
                   "#!/bin/sh\nset -e\nclient=\"%s\"\nstore() { \"$client\" \"$@\"; }\n%s",
                   proc_program("../tests/programs/store"), text);
    return e2e_script(name, whole);
}

/* What follows `label` in the text, up to the end of the line; static, two stay valid. */
static const char *after(const struct proc *proc, const char *label)
{
    static char values[2][256];
    static int next;
    char *value = values[next++ % 2];
    const char *at = strstr(ct_buf_str(&proc->text), label);

    cr_assert_not_null(at, "no \"%s\" in: %s", label, ct_buf_str(&proc->text));
    at += strlen(label);
    (void)snprintf(value, sizeof values[0], "%.*s", (int)strcspn(at, "\n"), at);
    return value;
}

/* Run two agents of a job on loopback, one with two workers and one with one, to their ends. */
static void run_two(struct proc nodes[2], const char *mode, const char *program)
{
    struct proc daemon;
    const char *endpoint = e2e_daemon(&daemon);

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint,
                  i == 0 ? "--node_rank=0" : "--node_rank=1",
                  i == 0 ? "--nproc_per_node=2" : "--nproc_per_node=1", "--max_restarts=1", mode,
                  "--join_timeout=20s", program, NULL);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&nodes[i], 60), 0, "%s", ct_buf_str(&nodes[i].text));
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 10);
    proc_free(&daemon);
}

static void free_two(struct proc nodes[2])
{
    proc_free(&nodes[0]);
    proc_free(&nodes[1]);
}

/* ---- one node -------------------------------------------------------------------------------- */

Test(store, the_agent_serves_one_store_to_all_workers)
{
    const char *meet = script(
        "meet", "echo served $TORCHELASTIC_USE_AGENT_STORE at $MASTER_ADDR ${USE_LIBUV-any}\n"
                "store set of$RANK $RANK get of0 get of1 get of2\n");

    for (int i = 0; i < SERVED; i++) {
        struct proc run;
        cr_assert_eq(e2e_run(&run, "--nproc_per_node=3", served[i], meet, NULL), 0, "%s",
                     ct_buf_str(&run.text));
        e2e_said(&run, "served True at 127.0.0.1 any");
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), "of2=2\n"), 3);
        proc_free(&run);
    }
}

Test(store, with_rank0_the_port_is_free_and_the_program_is_told_so)
{
    struct proc run;
    const char *show =
        script("show", "echo served $TORCHELASTIC_USE_AGENT_STORE, libuv $USE_LIBUV\n"
                       "! store keys 2>/dev/null\n");

    cr_assert_eq(e2e_run(&run, "--torch_store=rank0", show, NULL), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "served False, libuv 0");
    proc_free(&run);
}

Test(store, after_a_restart_it_is_empty_and_on_another_port)
{
    /* The late rank of the second attempt must find nothing of the first. */
    const char *crash =
        script("crash", "echo \"attempt $TORCHELASTIC_RESTART_COUNT at $MASTER_PORT\"\n"
                        "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then\n"
                        "  store set of$RANK old get of0 get of1\n"
                        "  [ $RANK = 1 ] && exit 3\n"
                        "  store wait never\n"
                        "fi\n"
                        "[ $RANK = 0 ] && store keys set go 1\n"
                        "store wait go set of$RANK new get of0 get of1\n");

    for (int i = 0; i < SERVED; i++) {
        struct proc run;
        cr_assert_eq(
            e2e_run(&run, "--nproc_per_node=2", "--max_restarts=1", served[i], crash, NULL), 0,
            "%s", ct_buf_str(&run.text));
        e2e_said(&run, "keys=0\n");
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), "of1=new\n"), 2);
        cr_assert_str_neq(after(&run, "attempt 0 at "), after(&run, "attempt 1 at "));
        proc_free(&run);
    }
}

Test(store, status_and_log_say_who_waits_for_which_key)
{
    struct proc run, status;
    const char *late =
        script("late", "[ $RANK = 1 ] || exec \"$client\" wait /default_pg/0//cpu//0/1\n"
                       "while [ ! -e go ]; do sleep 0.05; done\n"
                       "store set /default_pg/0//cpu//0/1 x\n");
    double end = proc_now_s() + 30;

    e2e_start(&run, "--nproc_per_node=2", "--rdzv_id=waits", late, NULL);
    for (bool said = false; !said;) {
        cr_assert_lt(proc_now_s(), end, "status never names the key: %s", ct_buf_str(&status.text));
        said = e2e_run(&status, "status", "--rdzv_id=waits", NULL) == 0 &&
               strstr(ct_buf_str(&status.text), "for \"/default_pg/0//cpu//0/1\"\n") != NULL;
        if (said)
            e2e_said(&status, "  store      rank 0 (pid ");
        if (!said && proc_now_s() < end)
            proc_free(&status);
    }
    proc_free(&status);
    (void)e2e_write("go", "");
    cr_assert_eq(proc_finish(&run, 30), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* Wait until status says that somebody waits for `key` in the store of this job. */
static void wait_for_waiter(const char *id, const char *key)
{
    double end = proc_now_s() + 20;
    char option[64], words[64];
    bool said = false;

    (void)snprintf(option, sizeof option, "--rdzv_id=%s", id);
    (void)snprintf(words, sizeof words, "for \"%s\"", key);
    while (!said) {
        struct proc status;
        cr_assert_lt(proc_now_s(), end, "status never names %s", key);
        said = e2e_run(&status, "status", option, NULL) == 0 &&
               strstr(ct_buf_str(&status.text), words) != NULL;
        proc_free(&status);
    }
}

/* What its worker is, or was waiting for, nobody else knows: the process itself lives on. */
Test(store, a_connection_that_ends_in_the_middle_of_a_wait_is_told_while_its_worker_lives)
{
    struct proc run;
    const char *part = script("part", "\"$client\" set here 1 wait never & echo $! > client\n"
                                      "exec sleep 600\n");

    e2e_start(&run, "--rdzv_id=parts", part, NULL);
    pid_t client = atoi(e2e_wait_file("client", 20));
    wait_for_waiter("parts", "never");
    cr_assert_eq(kill(client, SIGKILL), 0);
    (void)proc_wait_text(&run, "left PyTorch's store in the middle of a wait", 20);
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 20), 130, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

Test(store, who_breaks_the_rules_is_closed_and_others_go_on)
{
    struct proc run;
    const char *odd = script(
        "odd", "if [ $RANK = 1 ]; then\n"
               "  store raw 474554202f20485454502f312e310d0a0d0a\n"         /* GET / HTTP/1.1 */
               "  store raw 00cef7853d03ffffffffffffffff\n"                 /* a wrong magic */
               "  store raw 00cef7853c03ffffffffffffffff\n"                 /* a giant key */
               "  store raw 00cef7853c0b0100000000000000ffffffffffffff7f\n" /* in a list, too */
               "  store raw 00cef7853c06ffffffffffffff00\n"                 /* so many keys */
               "  store raw 00cef7853cff\n"                                 /* no such request */
               "  store set done 1\n"
               "fi\n"
               "store add n 1 wait done add n 1\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", odd, NULL), 0, "%s", ct_buf_str(&run.text));
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "ended after 0 bytes\n"), 6, "%s",
                 ct_buf_str(&run.text));
    e2e_said(&run, "n=4\n");
    proc_free(&run);
}

Test(store, five_thousand_idle_connections_keep_nobody_out)
{
    struct proc run;
    struct rlimit files;
    const char *crowd =
        script("crowd", "if [ $RANK = 1 ]; then store idle 5000 set up 1 wait over\n"
                        "else store wait up; store add n 1; store add n 1\n"
                        "  store get up set over 1; fi\n");

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max < 6000)
        cr_skip_test("skipped: 5,000 connections need a hard limit of 6,000 descriptors");
    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", crowd, NULL), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "idle 5000\n");
    e2e_said(&run, "n=2\n");
    proc_free(&run);
}

Test(store, who_drips_bytes_keeps_nobody_waiting_and_is_closed)
{
    /* Connections that do not end their handshake are closed after 10 s; others come, are served
     * and go long before that. */
    struct proc run;
    const char *slow = script(
        "slow", "if [ $RANK = 1 ]; then store drip 1000 set up 1; echo \"honest: $(cat n)\"\n"
                "else store wait up\n"
                "  for i in $(seq 20); do store add n 1; done | tail -n 1 > n\n"
                "  store add n 1; fi\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", slow, NULL), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "dripped 1000\n");
    e2e_said(&run, "honest: n=20\n");
    e2e_said(&run, "n=21\n");
    proc_free(&run);
}

Test(store, workers_have_as_many_descriptors_as_ctrun_was_given)
{
    struct proc run;
    char words[PATH_MAX + 100];
    const char *show = script("show", "echo \"files $(ulimit -Sn)\"\n");

    (void)snprintf(words, sizeof words, "ulimit -Sn 500; exec %s %s", proc_program("ctrun"), show);
    const char *const argv[] = {"sh", "-c", words, NULL};
    cr_assert_eq(proc_run(&run, argv, NULL, 30), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "files 500\n");
    proc_free(&run);
}

/* ---- two agents ------------------------------------------------------------------------------ */

Test(store, workers_of_two_agents_share_a_store_that_is_new_after_a_restart)
{
    const char *crash = script(
        "crash", "echo \"attempt $TORCHELASTIC_RESTART_COUNT at $MASTER_ADDR:$MASTER_PORT\"\n"
                 "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then\n"
                 "  store set of$RANK old get of0 get of1 get of2\n"
                 "  [ $RANK = 2 ] && exit 3\n"
                 "  store wait never\n"
                 "fi\n"
                 "[ $RANK = 0 ] && store keys set go 1\n"
                 "store wait go set of$RANK new get of0 get of1 get of2\n");

    for (int i = 0; i < SERVED; i++) {
        struct proc nodes[2];
        run_two(nodes, served[i], crash);
        e2e_said(&nodes[0], "keys=0\n");
        cr_assert_eq(e2e_count(ct_buf_str(&nodes[0].text), "of2=new\n"), 2);
        cr_assert_eq(e2e_count(ct_buf_str(&nodes[1].text), "of0=new\n"), 1);
        for (int node = 0; node < 2; node++)
            cr_assert_str_neq(after(&nodes[node], "attempt 0 at "),
                              after(&nodes[node], "attempt 1 at "));
        bool same =
            strcmp(after(&nodes[0], "attempt 0 at "), after(&nodes[1], "attempt 0 at ")) == 0;
        cr_assert_eq(same, i == 0, "with local each node has a door of its own");
        free_two(nodes);
    }
}

Test(store, nodes_that_disagree_on_who_serves_do_not_meet)
{
    struct proc nodes[2], daemon;
    const char *endpoint = e2e_daemon(&daemon);
    const char *show = script("show", "store keys\n");

    e2e_start(&nodes[0], "--nnodes=2", "--rdzv_endpoint", endpoint, "--torch_store=agent",
              "--join_timeout=20s", show, NULL);
    (void)proc_wait_text(&nodes[0], "waiting for 1 more node (1 of 2", 20);
    cr_assert_eq(e2e_run(&nodes[1], "--nnodes=2", "--rdzv_endpoint", endpoint,
                         "--torch_store=local", "--join_timeout=20s", show, NULL),
                 2, "%s", ct_buf_str(&nodes[1].text));
    e2e_said(&nodes[1], "--torch_store local here, agent on the nodes before");
    e2e_said(&nodes[1], "all nodes must be started alike");
    cr_assert_eq(kill(nodes[0].pid, SIGINT), 0);
    (void)proc_finish(&nodes[0], 20);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 10);
    free_two(nodes);
    proc_free(&daemon);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* Start a node of two on its own host; the rendezvous is on host 0. */
static void start_host(struct proc *proc, int host, const char *mode, const char *key,
                       const char *program)
{
    static char words[2][2][PATH_MAX];
    const char *const argv[] = {proc_program("ctrun"),
                                "--nnodes=2",
                                host == 0 ? "--node_rank=0" : "--node_rank=1",
                                words[host][0],
                                words[host][1],
                                "--join_timeout=20s",
                                mode,
                                program,
                                NULL};

    (void)snprintf(words[host][0], PATH_MAX, "--rdzv_endpoint=%s:29400", cluster_address(0));
    (void)snprintf(words[host][1], PATH_MAX, "--key_file=%s", key);
    cluster_start(proc, host, argv);
}

/* Two hosts exchange values; while they wait, host 2 asks for the keys at each port that listens on
 * host 0 (of which the test knows nothing but /proc/net/tcp). */
static void expect_members_only(const char *mode)
{
    const char *key = e2e_in_folder("key");
    const char *meet =
        script("meet", "store set of$RANK $RANK get of0 get of1\n"
                       "[ $RANK = 0 ] && cat /proc/net/tcp > tcp.new && mv tcp.new tcp\n"
                       "store wait go\n");
    /* Addresses are in hex, reversed: host 0's ends in 00; column 4 is 0A for a socket that
     * listens. */
    const char *probe = script(
        "probe", "for port in $(awk '$4 == \"0A\" {split($2, a, \":\"); print a[2]}' tcp); do\n"
                 "  export MASTER_PORT=$((0x$port)) MASTER_ADDR=$1\n"
                 "  store raw 00cef7853c07 2>/dev/null || true\n" /* how many keys? */
                 "done\necho probed\n");
    struct proc hosts[2], made, stranger;

    cr_assert_eq(e2e_run(&made, "key", "new", key, NULL), 0);
    proc_free(&made);
    for (int i = 0; i < 2; i++)
        start_host(&hosts[i], i, mode, key, meet);
    (void)e2e_wait_file("tcp", 30);
    const char *const argv[] = {probe, cluster_address(0), NULL};
    cluster_start(&stranger, 2, argv);
    cr_assert_eq(proc_finish(&stranger, 60), 0, "%s", ct_buf_str(&stranger.text));
    e2e_said(&stranger, "probed");
    e2e_not_said(&stranger, "ended after 8 bytes");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(kill(hosts[i].pid, SIGINT), 0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&hosts[i], 30), 130, "%s", ct_buf_str(&hosts[i].text));
        e2e_said(&hosts[i], "of0=0\n");
        e2e_said(&hosts[i], "of1=1\n");
    }
    if (strcmp(mode, served[0]) == 0)
        e2e_said(&hosts[0], "which is no node of this round, and refused");
    free_two(hosts);
    proc_free(&stranger);
}

Test(store, on_two_hosts_only_they_may_come_to_the_agent)
{
    cluster_up(3);
    expect_members_only(served[0]);
}

Test(store, with_local_no_other_host_reaches_the_store)
{
    cluster_up(3);
    expect_members_only(served[1]);
}

/* The tunnel between the agents breaks while one client waits and another one comes. */
Test(store, with_local_a_broken_tunnel_is_made_anew_and_nobody_is_lost)
{
    const char *key = e2e_in_folder("key");
    const char *meet = script("meet", "if [ $RANK = 0 ]; then store wait poke set go 1; exit; fi\n"
                                      "store set here 1 wait go get go set after 1 get after &\n"
                                      "store wait here set ready 1\necho so > ready\n"
                                      "until [ -e cut ]; do sleep 0.02; done\n"
                                      "store set poke 1\nwait $!\n");
    struct proc hosts[2], made;

    cluster_up(2);
    cr_assert_eq(e2e_run(&made, "key", "new", key, NULL), 0);
    proc_free(&made);
    for (int i = 0; i < 2; i++)
        start_host(&hosts[i], i, served[1], key, meet);
    (void)e2e_wait_file("ready", 30);
    cluster_reset(1, 29400);
    (void)e2e_write("cut", "");
    (void)proc_wait_text(&hosts[1], "broke and is made anew", 20);
    cluster_restore(1);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&hosts[i], 30), 0, "%s", ct_buf_str(&hosts[i].text));
    e2e_said(&hosts[1], "go=1\n");
    e2e_said(&hosts[1], "after=1\n");
    e2e_not_said(&hosts[1], "have lost PyTorch's store");
    free_two(hosts);
}

/* A node learns it from the store at once, its agent from the worker's end alone. */
Test(store, a_worker_of_another_node_that_left_its_wait_is_named)
{
    const char *key = e2e_in_folder("key");
    const char *part = script("part", "[ $RANK = 0 ] && exec sleep 600\n"
                                      "\"$client\" wait key-of-a-lost-one & echo $! > client\n"
                                      "exec sleep 600\n");
    struct proc hosts[2], made;

    cluster_up(2);
    cr_assert_eq(e2e_run(&made, "key", "new", key, NULL), 0);
    proc_free(&made);
    for (int i = 0; i < 2; i++)
        start_host(&hosts[i], i, served[0], key, part);
    pid_t client = atoi(e2e_wait_file("client", 30));
    wait_for_waiter("none", "key-of-a-lost-one");
    cr_assert_eq(kill(client, SIGKILL), 0);
    (void)proc_wait_text(&hosts[0], "node 1 (host1, pid ", 20);
    (void)proc_wait_text(&hosts[0], "left PyTorch's store in the middle of a wait", 20);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(kill(hosts[i].pid, SIGINT), 0);
    for (int i = 0; i < 2; i++)
        (void)proc_finish(&hosts[i], 30);
    free_two(hosts);
}

/* Whoever asks for the store in clear beside a key is told so, and nobody else. */
Test(store, a_store_in_clear_beside_a_key_is_a_warning)
{
    static const char *const modes[] = {"--torch_store=agent", "--torch_store=auto"};
    const char *show = e2e_script("say", "#!/bin/sh\necho here\n");
    const char *key = e2e_in_folder("clear.key");
    struct proc run;

    cr_assert_eq(e2e_run(&run, "key", "new", key, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    for (int i = 0; i < 4; i++) {
        bool keyed = i < 2;
        int status =
            e2e_run(&run, "--nnodes=1:2", "--rdzv_endpoint=127.0.0.1:0", modes[i % 2],
                    keyed ? "--key_file" : "--last_call", keyed ? key : "10ms", show, NULL);
        cr_assert_eq(status, 0, "%s", ct_buf_str(&run.text));
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), "PyTorch's store is served in clear"), i == 0,
                     "%s", ct_buf_str(&run.text));
        proc_free(&run);
    }
}
