/* Parameter servers on another node than the workers: two hosts of cluster.h, all between them
 * under TLS, and the servers' node is lost. */
#include "e2e.h"
#include "nodes/cluster.h"
#include "written.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 1200 };

static void leave(void)
{
    cluster_down();
    e2e_leave();
}

TestSuite(served_nodes, .init = e2e_enter, .fini = leave, .timeout = 180);

/* What both trainings have in common; their outputs lie in `name`. */
static int words_of(const char *argv[], int argc, const char *name)
{
    static char dirs[2][PATH_MAX], steps[32];

    (void)snprintf(steps, sizeof steps, "--train.steps=%d", STEPS);
    (void)snprintf(dirs[0], sizeof dirs[0], "--log.dir=%s/log", e2e_in_folder(name));
    (void)snprintf(dirs[1], sizeof dirs[1], "--checkpoint.dir=%s/ckpt", e2e_in_folder(name));
    const char *const words[] = {"--batch.micro=4",
                                 "--parallel.reduce=invariant",
                                 "--log.every=1",
                                 "--checkpoint.every=1 epoch",
                                 "--eval.every=5 epochs",
                                 e2e_in_root("configs/digits_ps.yaml"),
                                 steps,
                                 dirs[0],
                                 dirs[1]};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        argv[argc++] = words[i];
    argv[argc] = NULL;
    return argc;
}

/* Ranks 0 and 1 train on host 0, 2 and 3 serve on host 1. */
static void start_node(struct proc *node, int host, const char *key)
{
    static char key_file[PATH_MAX]; /* the same for both */
    const char *argv[40] = {proc_program("ctrun"),
                            "--nnodes=2",
                            "--nproc_per_node=2",
                            host == 0 ? "--node_rank=0" : "--node_rank=1",
                            "--rdzv_endpoint=10.78.0.1:29400",
                            key_file,
                            "--join_timeout=30s",
                            "--lease=1s",
                            "--max_restarts=3",
                            "--parallel.servers=2"};

    (void)snprintf(key_file, sizeof key_file, "--key_file=%s", key);
    (void)words_of(argv, 10, "run");
    cluster_start(node, host, argv);
}

static const char *new_key(void)
{
    static char path[PATH_MAX]; /* outlives the results of e2e_in_folder */
    struct proc run;

    (void)snprintf(path, sizeof path, "%s", e2e_in_folder("key"));
    cr_assert_eq(e2e_run(&run, "key", "new", path, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    return path;
}

static void train_by_ddp(void)
{
    const char *argv[40] = {proc_program("ctrun"), "--nproc_per_node=2"};
    struct proc run;

    int argc = words_of(argv, 2, "whole");
    argv[argc++] = "--parallel.strategy=ddp";
    argv[argc] = NULL;
    cr_assert_eq(proc_run(&run, argv, NULL, 90), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

static void finish(struct proc nodes[2])
{
    for (int i = 1; i >= 0; i--) {
        cr_assert_eq(proc_finish(&nodes[i], 90), 0, "%s", ct_buf_str(&nodes[i].text));
        proc_free(&nodes[i]);
    }
    written_each_once("run", STEPS);
    written_equal("whole", "run", STEPS);
}

Test(served_nodes, servers_on_another_node_give_the_bits_of_ddp_also_when_that_node_is_lost)
{
    struct proc nodes[2];

    cluster_up(2);
    const char *key = new_key();
    train_by_ddp();
    for (int i = 0; i < 2; i++)
        start_node(&nodes[i], i, key);
    written_wait("run", STEPS, 200);
    cr_assert_eq(kill(nodes[1].pid, SIGKILL), 0);
    (void)proc_finish(&nodes[1], 10);
    proc_free(&nodes[1]);
    start_node(&nodes[1], 1, key);
    finish(nodes);
}

Test(served_nodes, a_cable_that_is_cut_for_longer_than_the_lease_costs_no_bit)
{
    struct proc nodes[2];

    cluster_up(2);
    const char *key = new_key();
    train_by_ddp();
    for (int i = 0; i < 2; i++)
        start_node(&nodes[i], i, key);
    written_wait("run", STEPS, 200);
    cluster_cut(1);
    (void)proc_wait_text(&nodes[0], "waiting for 1 more node", 30); /* the lease is over */
    cluster_restore(1);
    finish(nodes);
}
