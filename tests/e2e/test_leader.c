/* The node that hosts the rendezvous dies, as any node may: the others go on. No daemon, no journal:
 * the ctrun of host 0 serves at the endpoint. */
#include "cluster.h"
#include "drill.h"
#include "e2e.h"
#include "fleet.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

TestSuite(leader, .init = drill_enter, .fini = drill_leave, .timeout = 120);

enum { STEPS = 1500, NODES = 3 };

static const struct fleet run = {.name = "run", .steps = STEPS};

/* `nodes` nodes on hosts of their own are at work in round 1. */
static void start_training(int nodes, struct drill_job *job, pid_t workers[NODES])
{
    cluster_up(nodes);
    job->endpoints = "10.78.0.1:29400";
    fleet_job(&run, job);
    for (int i = 0; i < nodes; i++) {
        cluster_slow(i, "20mbit");
        (void)drill_node(i, i, job);
    }
    fleet_wait_step(&run, 60, 30);
    for (int i = 0; i < nodes; i++)
        workers[i] = fleet_worker_now(i);
}

/* SIGKILL of the host; milliseconds until the next step is done. */
static double kill_host(void)
{
    double since = proc_now_s();

    drill_signal(drill_proc(0), SIGKILL);
    fleet_wait_step(&run, fleet_step(&run) + 2, 20);
    return drill_ms(since);
}

static void expect_same_workers(const pid_t workers[NODES], int nodes)
{
    for (int i = 1; i < nodes; i++)
        cr_assert_eq(fleet_worker_now(i), workers[i], "the worker of node %d was restarted", i);
}

static void finish(int first, int nodes)
{
    for (int i = 0; i < nodes; i++)
        cluster_heal(i);
    for (int i = first; i < nodes; i++)
        cr_assert_eq(fleet_finish(i, 60), 0, "%s", ct_buf_str(&drill_proc(i)->text));
    fleet_expect_samples(&run);
}

Test(leader, two_of_three_nodes_go_on_when_the_host_of_the_rendezvous_is_killed)
{
    struct drill_job job = {.nodes = "2:3", .lease = "5s", .restarts = 3};
    pid_t workers[NODES];

    start_training(NODES, &job, workers);
    double next = kill_host();
    expect_same_workers(workers, NODES);
    finish(1, NODES);
    cr_log_warn("next step after %.0f ms", next);
    cr_assert_lt(next, 2000, "the next step came after %.0f ms", next);
}

Test(leader, one_of_two_nodes_goes_on_when_the_host_of_the_rendezvous_is_killed)
{
    struct drill_job job = {.nodes = "1:2", .lease = "5s", .restarts = 3};
    pid_t workers[NODES];

    start_training(2, &job, workers);
    double next = kill_host();
    expect_same_workers(workers, 2);
    finish(1, 2);
    cr_log_warn("next step after %.0f ms", next);
    cr_assert_lt(next, 2000, "the next step came after %.0f ms", next);
}
