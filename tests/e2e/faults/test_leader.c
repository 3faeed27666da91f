/* The node that hosts the rendezvous dies, as any node may: the others go on. There is no daemon
 * and no journal: the ctrun of host 0 serves at the endpoint. */
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "nodes/cluster.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

TestSuite(leader, .init = drill_enter, .fini = drill_leave, .timeout = 120);

enum { STEPS = 2500, NODES = 3, MOST = 5 };

static const char *const debug[] = {"--log.level=debug", NULL};
static const struct fleet run = {.name = "run", .steps = STEPS, .words = debug};
/* The same with a batch that five nodes can divide. */
static const struct fleet of_five = {.name = "run", .steps = STEPS, .batch = 60, .words = debug};

/* `nodes` nodes are at work in round 1, and hold the record. */
static void start_nodes(int nodes, struct drill_job *job, pid_t workers[MOST])
{
    char held[64];

    if (job->endpoints == NULL)
        job->endpoints = "10.78.0.1:29400";
    fleet_job(nodes == MOST ? &of_five : &run, job);
    fleet_disk_slow();
    for (int i = 0; i < nodes; i++)
        (void)drill_node(i, i, job);
    fleet_wait_step(&run, 60, 30);
    /* Who may die follows from who holds the record. */
    (void)snprintf(held, sizeof held, "is held by %d hosts", nodes);
    (void)proc_wait_text(drill_proc(0), held, 20);
    for (int i = 0; i < nodes; i++)
        workers[i] = fleet_worker_now(i);
}

static void start_training(int nodes, struct drill_job *job, pid_t workers[MOST])
{
    cluster_up(nodes);
    start_nodes(nodes, job, workers);
}

/* SIGKILL of the host; milliseconds until the next step is done. */
static double kill_host(void)
{
    double since = proc_now_s();

    drill_signal(drill_proc(0), SIGKILL);
    fleet_wait_step(&run, fleet_step(&run) + 2, 20);
    return drill_ms(since);
}

static void expect_same_workers(const pid_t workers[MOST], int nodes)
{
    for (int i = 1; i < nodes; i++)
        cr_assert_eq(fleet_worker_now(i), workers[i], "the worker of node %d was restarted", i);
}

static void finish(int first, int nodes)
{
    fleet_disk_fast();
    for (int i = first; i < nodes; i++)
        cr_assert_eq(fleet_finish(i, 60), 0, "%s", ct_buf_str(&drill_proc(i)->text));
    fleet_expect_samples(nodes == MOST ? &of_five : &run);
}

Test(leader, two_of_three_nodes_go_on_when_the_host_of_the_rendezvous_is_killed)
{
    struct drill_job job = {.nodes = "2:3", .lease = "5s", .restarts = 3};
    pid_t workers[MOST];

    start_training(NODES, &job, workers);
    double next = kill_host();
    expect_same_workers(workers, NODES);
    finish(1, NODES);
    e2e_said(drill_proc(1), "is gone, the workers go on as long as the node there does");
    cr_log_info("next step after %.0f ms", next);
    cr_assert_lt(next, 2000, "the next step came after %.0f ms", next);
}

static bool all_have_workers(void *context)
{
    const int *nodes = context;

    for (int i = 0; i < *nodes; i++)
        if (fleet_worker_now(i) == 0)
            return false;
    return true;
}

/* The host of the rendezvous is killed and started again: it must not found the job a second time.
 */
static void kill_and_return(int nodes, const char *count, double seconds)
{
    struct drill_job job = {.nodes = count, .lease = "5s", .restarts = 3, .last_call = "300ms"};
    pid_t workers[MOST];

    start_training(nodes, &job, workers);
    drill_signal(drill_proc(0), SIGKILL);
    drill_pass(seconds);
    (void)drill_node(0, 0, &job);
    double since = proc_now_s();
    proc_until(all_have_workers, &nodes, 20, "a worker on each node");
    cr_log_info("back after %.0f ms", drill_ms(since));
    expect_same_workers(workers, nodes);
    fleet_wait_step(&run, fleet_step(&run) + 20, 20);
    finish(0, nodes);
}

Test(leader, a_host_that_starts_again_joins_the_three_that_live)
{
    kill_and_return(NODES, "2:3", 0.5);
}

Test(leader, a_host_that_starts_again_and_could_run_alone_joins_the_one_that_lives)
{
    kill_and_return(2, "1:2", 0.5);
}

Test(leader, a_host_that_starts_again_at_once_joins_the_one_that_lives)
{
    kill_and_return(2, "1:2", 0.0);
}

Test(leader, with_a_list_of_endpoints_nodes_find_the_job_without_its_first_host)
{
    struct drill_job job = {.nodes = "2:3",
                            .lease = "5s",
                            .restarts = 5,
                            .last_call = "300ms",
                            .endpoints = "10.78.0.1:29400,10.78.0.2:29400,10.78.0.3:29400"};
    int nodes = NODES;
    pid_t workers[MOST];

    start_training(NODES, &job, workers);
    (void)kill_host();
    drill_signal(drill_proc(2), SIGKILL);
    (void)drill_node(2, 2, &job);
    fleet_wait_step(&run, fleet_step(&run) + 20, 20);
    cr_assert_eq(fleet_worker_now(1), workers[1]);
    (void)drill_node(0, 0, &job);
    proc_until(all_have_workers, &nodes, 20, "a worker on each node");
    cr_assert_eq(fleet_worker_now(1), workers[1]);
    finish(0, NODES);
    e2e_not_said(drill_proc(0), "in term 1");
}

Test(leader, two_of_five_holders_that_die_at_once_are_survived)
{
    struct drill_job job = {.nodes = "2:5", .lease = "5s", .restarts = 3};
    pid_t workers[MOST];

    start_training(MOST, &job, workers);
    double since = proc_now_s();
    cr_assert_eq(kill(drill_proc(1)->pid, SIGKILL), 0);
    drill_signal(drill_proc(0), SIGKILL);
    fleet_wait_step(&run, fleet_step(&run) + 2, 20);
    cr_log_info("next step after %.0f ms", drill_ms(since));
    for (int i = 2; i < MOST; i++)
        cr_assert_eq(fleet_worker_now(i), workers[i], "the worker of node %d was restarted", i);
    finish(2, MOST);
}

Test(leader, a_host_that_does_not_move_for_3_s_costs_no_worker)
{
    struct drill_job job = {.nodes = "3", .lease = "5s"};
    pid_t workers[MOST];

    start_training(NODES, &job, workers);
    drill_signal(drill_proc(0), SIGSTOP);
    drill_pass(3);
    drill_signal(drill_proc(0), SIGCONT);
    fleet_wait_step(&run, fleet_step(&run) + 20, 20);
    expect_same_workers(workers, NODES);
    cr_assert_eq(fleet_worker_now(0), workers[0]);
    finish(0, NODES);
}

Test(leader, a_host_that_is_cut_off_from_the_majority_takes_no_step_and_joins_it_when_it_can)
{
    struct drill_job job = {.nodes = "2:3", .lease = "2s", .restarts = 3};
    int nodes = NODES;
    pid_t workers[MOST];

    start_training(NODES, &job, workers);
    double since = proc_now_s();
    cluster_cut(0);
    int step = fleet_step(&run);
    fleet_wait_step(&run, step + 10, 20);
    cr_log_info("next steps after %.0f ms", drill_ms(since));
    expect_same_workers(workers, NODES);
    (void)proc_wait_text(drill_proc(0), "must hear each other", 10);
    cluster_restore(0);
    (void)proc_wait_text(drill_proc(0), "continue from step", 20);
    proc_until(all_have_workers, &nodes, 20, "a worker on each node");
    expect_same_workers(workers, NODES);
    finish(0, NODES);
}

Test(leader, of_two_nodes_the_host_goes_on_after_a_lease_of_silence_and_the_other_one_waits)
{
    struct drill_job job = {.nodes = "1:2", .lease = "2s", .restarts = 3};
    int nodes = 2;
    pid_t workers[MOST];

    start_training(2, &job, workers);
    double since = proc_now_s();
    cluster_cut(1);
    fleet_wait_step(&run, fleet_step(&run) + 10, 20);
    cr_log_info("next steps after %.0f ms", drill_ms(since));
    cr_assert_eq(fleet_worker_now(0), workers[0]);
    (void)proc_wait_text(drill_proc(1), "which is silent", 20);
    cluster_restore(1);
    (void)proc_wait_text(drill_proc(1), "continue from step", 20);
    proc_until(all_have_workers, &nodes, 20, "a worker on each node");
    cr_assert_eq(fleet_worker_now(0), workers[0]);
    finish(0, 2);
}

Test(leader, one_of_two_nodes_goes_on_when_the_host_of_the_rendezvous_is_killed)
{
    struct drill_job job = {.nodes = "1:2", .lease = "5s", .restarts = 3};
    pid_t workers[MOST];

    start_training(2, &job, workers);
    double next = kill_host();
    expect_same_workers(workers, 2);
    finish(1, 2);
    cr_log_info("next step after %.0f ms", next);
    cr_assert_lt(next, 2000, "the next step came after %.0f ms", next);
}

/* ---- the one that leads leaves -------------------------------------------------------------- */

static void drain_host(void)
{
    const char *const argv[] = {
        proc_program("ctrun"), "drain", "host0", "--rdzv_endpoint", "10.78.0.1:29400", "--key_file",
        e2e_in_folder("key"),  NULL};
    struct proc order;

    cluster_start(&order, 0, argv);
    cr_assert_eq(proc_finish(&order, 20), 0, "%s", ct_buf_str(&order.text));
    proc_free(&order);
}

/* The host of the rendezvous ends after its drain, and the others go on with one round more. */
static void leave_and_go_on(int nodes, const char *count, bool by_order)
{
    struct drill_job job = {.nodes = count, .lease = "5s"};
    pid_t workers[MOST];
    start_training(nodes, &job, workers);
    if (by_order) {
        drain_host();
    } else {
        cr_assert_eq(kill(drill_proc(0)->pid, SIGTERM), 0);
    }
    double since = proc_now_s();
    cr_assert_eq(fleet_finish(0, 20), by_order ? 0 : 128 + SIGTERM, "%s",
                 ct_buf_str(&drill_proc(0)->text));
    cr_log_info("the host ended after %.0f ms", drill_ms(since));
    e2e_said(drill_proc(0), "host host0 asks another one to lead the rendezvous");
    e2e_said(drill_proc(0), "this node left, the job continues");
    e2e_not_said(drill_proc(0), "stays as the rendezvous");
    fleet_wait_step(&run, fleet_step(&run) + 20, 20);
    expect_same_workers(workers, nodes);
    finish(1, nodes);
    for (int i = 1; i < nodes; i++)
        e2e_not_said(drill_proc(i), " g3");
}

Test(leader, a_host_of_three_that_is_drained_hands_the_rendezvous_over_and_ends)
{
    leave_and_go_on(NODES, "2:3", true);
}

Test(leader, a_host_of_two_that_is_told_to_end_hands_the_rendezvous_over)
{
    leave_and_go_on(2, "1:2", false);
}

/* ---- no majority is left -------------------------------------------------------------------- */

Test(leader, the_last_of_three_goes_on_when_the_host_and_another_are_killed_at_once)
{
    struct drill_job job = {.nodes = "1:3", .lease = "5s", .restarts = 3};
    pid_t workers[MOST];

    start_training(NODES, &job, workers);
    cr_assert_eq(kill(drill_proc(1)->pid, SIGKILL), 0);
    double next = kill_host();
    cr_log_info("next step after %.0f ms", next);
    cr_assert_eq(fleet_worker_now(2), workers[2]);
    finish(2, NODES);
}

/* The fourth node, which came last, holds no record. */
Test(leader, a_node_that_is_left_brings_the_job_to_the_host_that_is_started_again)
{
    struct drill_job job = {.nodes = "1:4", .lease = "5s", .restarts = 3, .last_call = "300ms"};
    const int left = NODES;
    pid_t workers[MOST];
    int nodes = left + 1;

    cluster_up(nodes);
    start_nodes(NODES, &job, workers);
    (void)drill_node(left, left, &job);
    proc_until(all_have_workers, &nodes, 20, "a worker on each node");
    fleet_wait_step(&run, fleet_step(&run) + 20, 20);
    workers[left] = fleet_worker_now(left);
    for (int i = 0; i < left; i++)
        drill_signal(drill_proc(i), SIGKILL);
    int step = fleet_step(&run);
    (void)proc_wait_text(drill_proc(left), "are dead; it goes on when ctrun is started again", 20);
    (void)drill_node(0, 0, &job);
    fleet_wait_step(&run, step + 20, 20);
    cr_assert_eq(fleet_worker_now(left), workers[left]);
    fleet_disk_fast();
    cr_assert_eq(fleet_finish(0, 60), 0, "%s", ct_buf_str(&drill_proc(0)->text));
    cr_assert_eq(fleet_finish(left, 60), 0, "%s", ct_buf_str(&drill_proc(left)->text));
    fleet_expect_samples(&run);
}

/* The host went on alone when node 1 was cut off, maybe with others: node 1 hears that it is dead,
 * and goes on when somebody is there again where the nodes meet. */
Test(leader, of_two_nodes_one_cut_off_when_the_host_died_brings_the_job_to_the_host_that_is_started)
{
    struct drill_job job = {.nodes = "1:2", .lease = "2s", .restarts = 3, .last_call = "300ms"};
    int nodes = 2;
    pid_t workers[MOST];

    start_training(2, &job, workers);
    cluster_cut(1);
    (void)proc_wait_text(drill_proc(0), "holds the rendezvous alone", 20);
    fleet_wait_step(&run, fleet_step(&run) + 10, 20);
    drill_signal(drill_proc(0), SIGKILL);
    cluster_restore(1);
    (void)proc_wait_text(drill_proc(1), "are dead, but had not heard it for a lease", 20);
    (void)drill_node(0, 0, &job);
    proc_until(all_have_workers, &nodes, 30, "a worker on each node");
    expect_same_workers(workers, 2);
    finish(0, 2);
}

Test(leader, of_two_nodes_the_one_that_waits_goes_on_when_an_operator_says_that_the_host_is_gone)
{
    struct drill_job job = {.nodes = "1:2", .lease = "2s", .restarts = 3};
    pid_t workers[MOST];
    struct proc order;
    const char *ctrun = proc_program("ctrun");

    start_training(2, &job, workers);
    cr_assert_neq(e2e_run(&order, ctrun, "takeover", NULL), 0);
    e2e_said(&order, "nothing is to be taken over");
    proc_free(&order);
    cluster_cut(0);
    drill_signal(drill_proc(0), SIGKILL);
    (void)proc_wait_text(drill_proc(1), "or with `ctrun takeover` here", 20);
    int step = fleet_step(&run);
    cr_assert_eq(e2e_run(&order, ctrun, "takeover", "--reason", "node 0 is gone", NULL), 0);
    e2e_said(&order, "is at host host1 now");
    fleet_wait_step(&run, step + 20, 20);
    cr_assert_eq(fleet_worker_now(1), workers[1]);
    finish(1, 2);
    proc_free(&order);
}
