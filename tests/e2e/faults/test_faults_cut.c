/* Hosts cut off from a native training in one way or another: who is left goes on with the process
 * it has, nobody who was left out adds a step, and the result has the bits of the undisturbed run.
 *
 * Rank 0, which writes metrics and checkpoints, is among the victims where others can be left: a
 * fork would show as a step that is there twice. The daemon is on host 0; node i on host i + 1. */
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "nodes/cluster.h"

#include <criterion/criterion.h>
#include <signal.h>

enum { STEPS = 800, NODES = 4 };

static const struct fleet run = {.name = "run", .steps = STEPS, .batch = 32};
static const struct fleet alone = {.name = "alone", .steps = STEPS, .batch = 32};

/* A daemon and `nodes` nodes at work; slow cables pace them. `workers` may be NULL. */
static struct proc *start_training(int nodes, struct drill_job *job, pid_t workers[NODES])
{
    cluster_up(nodes + 1);
    fleet_run_alone(&alone);
    fleet_job(&run, job);
    struct proc *daemon = drill_daemon(0);
    for (int i = 0; i < nodes; i++) {
        cluster_slow(i + 1, "20mbit");
        (void)drill_node(i, i + 1, job);
    }
    fleet_wait_step(&run, 20, 20);
    for (int i = 0; workers != NULL && i < nodes; i++)
        workers[i] = fleet_worker_now(i);
    return daemon;
}

/* Nodes `from` to `to` - 1 end the training at full speed; none has started a worker again. */
static void finish_training(int from, int to)
{
    for (int i = from; i < to; i++)
        cluster_restore(i + 1);
    for (int i = from; i < to; i++) {
        cr_assert_eq(fleet_finish(i, 40), 0, "%s", ct_buf_str(&drill_proc(i)->text));
        e2e_not_said(drill_proc(i), "follows"); /* "restart 1 of 1 follows" */
    }
    fleet_expect_samples(&run);
    cr_assert(fleet_same_result(&run, &alone), "parameters or moments differ");
}

Test(faults, row_9_a_host_that_starts_again_within_its_old_lease_takes_its_old_place)
{
    struct drill_job job = {.nodes = "2", .lease = "1500ms", .restarts = 1};
    pid_t workers[NODES];
    struct proc *daemon = start_training(2, &job, workers);

    cluster_cut(2);
    drill_signal(drill_proc(1), SIGKILL);
    cluster_reboot(2);
    drill_pass(0.8); /* so long at least takes a start: two heartbeats of 300 ms were missed */
    double since = proc_now_s();
    (void)drill_node(1, 2, &job);
    (void)proc_wait_text(daemon, "node host2 is lost", 10);
    fleet_wait_step(&run, fleet_step(&run) + 1, 15);
    double back = drill_ms(since);
    cr_assert_eq(fleet_worker_now(0), workers[0], "the other keeps its process");
    cr_assert_eq(drill_metric("ctrun_restarts"), 1);
    finish_training(0, 2);
    drill_figure(9, "a step again after its agent started", back, 15000, "ms");
}

/* Host 1 is lost to the daemon; what follows, with figures of the row. */
static void expect_host_1_out(int row, struct proc *daemon, double bound_ms)
{
    double since = proc_now_s();

    (void)proc_wait_text(daemon, "node host1 is lost: not heard for", 20);
    drill_figure(row, "out after", drill_ms(since), bound_ms, "ms");
    drill_wait_metric("ctrun_world_size", 1, 10);
    drill_figure(row, "next round after", drill_ms(since), bound_ms + 2000, "ms");
}

Test(faults, row_11_lost_heartbeats_exclude_a_host_that_still_hears)
{
    struct drill_job job = {.nodes = "1:2", .lease = "700ms", .restarts = 1};
    struct proc *daemon = start_training(2, &job, NULL);

    cluster_lose(1, HOSTS_OUT, 100);
    expect_host_1_out(11, daemon, drill_lease_bound(&job));
    finish_training(1, 2);
    drill_fact(11, "the other keeps its process, the same bits at the end");
}

Test(faults, row_12_a_host_that_hears_nothing_is_replaced)
{
    struct drill_job job = {.nodes = "1:2", .lease = "500ms", .restarts = 1};
    struct proc *daemon = start_training(2, &job, NULL);

    double since = proc_now_s();
    cluster_lose(1, HOSTS_IN, 100);
    (void)proc_wait_text(daemon, "node host1 is lost", 20);
    drill_figure(12, "out after (4 leases)", drill_ms(since), 2000, "ms");
    drill_wait_metric("ctrun_world_size", 1, 10);
    finish_training(1, 2);
    drill_fact(12, "the other keeps its process, the same bits at the end");
}

Test(faults, row_14_of_a_split_fleet_the_half_with_the_daemon_goes_on)
{
    struct drill_job job = {.nodes = "2:4", .lease = "700ms", .restarts = 1};
    pid_t workers[NODES];
    struct proc *daemon = start_training(NODES, &job, workers);

    double since = proc_now_s();
    cluster_cut(1);
    cluster_cut(2);
    (void)proc_wait_text(daemon, "node host1 is lost: not heard for", 10);
    (void)proc_wait_text(daemon, "node host2 is lost: not heard for", 10);
    drill_wait_metric("ctrun_world_size", 2, 10);
    drill_figure(14, "the half with the daemon at work after", drill_ms(since),
                 drill_lease_bound(&job) + 2000, "ms");
    drill_figure(14, "restarts charged", drill_metric("ctrun_restarts"), 1, "");
    fleet_wait_step(&run, fleet_step(&run) + 20, 10);
    cluster_restore(1);
    cluster_restore(2);
    since = proc_now_s();
    drill_wait_metric("ctrun_world_size", 4, 15);
    drill_figure(14, "healed: the other half at work again after", drill_ms(since), 15000, "ms");
    for (int i = 0; i < NODES; i++)
        cr_assert_eq(fleet_worker(i, 5), workers[i], "node %d keeps its process", i);
    cr_assert_lt(fleet_step(&run), STEPS, "it had more time than steps");
    finish_training(0, NODES);
    drill_fact(14, "one lineage: each step once, the same bits at the end");
}
