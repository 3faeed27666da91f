/* A native training on four hosts whose nodes come and go, and whose daemon dies: no surviving
 * process is restarted, no sample is lost or repeated, the losses are those of an undisturbed run
 * with the same global batch.
 *
 * Hosts are namespaces; their slow cables pace the training (a step takes some milliseconds), so
 * that there is time to break something in the middle of it. The daemon is on host 0. */
#include "cluster.h"
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "preload/interpose.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(elastic, .init = drill_enter, .fini = drill_leave, .timeout = 120);

enum { NODES = 4 };

static const char rate[] = "20mbit";

/* Relative difference of losses between runs whose worlds add in another order. */
static const double tolerance = 1e-4;

/* A daemon on host 0, and hosts 1 to 4 for nodes. */
static struct proc *start_cluster(void)
{
    cluster_up(NODES + 1);
    for (int i = 0; i < NODES; i++)
        cluster_slow(i + 1, rate);
    return drill_daemon(0);
}

static void start_nodes(int from, int to, const struct drill_job *job)
{
    for (int i = from; i < to; i++)
        (void)drill_node(i, i + 1, job);
}

/* A round of so many ranks runs, and has made some steps. */
static void wait_world(const struct fleet *run, int world)
{
    drill_wait_metric("ctrun_world_size", world, 20);
    drill_wait_metric("ctrun_running", 1, 10);
    fleet_wait_step(run, fleet_step(run) + 12, 20);
}

static void note_workers(pid_t workers[NODES])
{
    for (int i = 0; i < NODES; i++)
        workers[i] = drill_proc(i)->pid > 0 ? fleet_worker_now(i) : 0;
}

/* All but those of node `but` (-1: none) have the worker they had. */
static void expect_same_workers(const pid_t workers[NODES], int but)
{
    for (int i = 0; i < NODES; i++)
        if (i != but && workers[i] != 0)
            cr_assert_eq(fleet_worker_now(i), workers[i], "the worker of node %d was restarted", i);
}

static void finish_all(void)
{
    for (int i = 0; i < NODES; i++)
        cr_assert_eq(fleet_finish(i, 60), 0, "%s", ct_buf_str(&drill_proc(i)->text));
}

static void expect_losses_of(const struct fleet *run, const struct fleet *alone)
{
    double difference = fleet_loss_difference(run, alone);

    cr_log_info("losses differ by %.1e from those of one process", difference);
    cr_assert_lt(difference, tolerance);
}

Test(elastic, a_training_goes_from_2_to_4_to_3_to_4_nodes_without_restarting_anybody)
{
    static const struct fleet run = {.name = "run", .steps = 500};
    static const struct fleet alone = {.name = "alone", .steps = 500};
    struct drill_job job = {.nodes = "2:4", .lease = "2s", .last_call = "0"};
    pid_t workers[NODES];

    fleet_run_alone(&alone);
    fleet_job(&run, &job);
    (void)start_cluster();
    start_nodes(0, 2, &job);
    wait_world(&run, 2);
    note_workers(workers);
    start_nodes(2, 4, &job);
    wait_world(&run, 4);
    expect_same_workers(workers, -1);
    note_workers(workers);
    drill_signal(drill_proc(3), SIGTERM);
    cr_assert_eq(fleet_finish(3, 10), 128 + SIGTERM, "%s", ct_buf_str(&drill_proc(3)->text));
    wait_world(&run, 3);
    expect_same_workers(workers, 3);
    start_nodes(3, 4, &job);
    wait_world(&run, 4);
    expect_same_workers(workers, 3);
    finish_all();
    fleet_expect_samples(&run);
    expect_losses_of(&run, &alone);
}

/* Each kind of loss takes another node, and ends with four nodes at work again. */
Test(elastic, a_node_lost_by_a_kill_a_cut_or_a_stop_comes_back_and_the_others_keep_their_processes)
{
    static const struct fleet run = {.name = "run", .steps = 700};
    static const struct fleet alone = {.name = "alone", .steps = 700};
    struct drill_job job = {.nodes = "2:4", .lease = "1500ms", .restarts = 3};
    pid_t workers[NODES];

    fleet_run_alone(&alone);
    fleet_job(&run, &job);
    struct proc *daemon = start_cluster();
    start_nodes(0, 4, &job);
    wait_world(&run, 4);

    note_workers(workers);
    drill_signal(drill_proc(3), SIGKILL);
    wait_world(&run, 3);
    expect_same_workers(workers, 3);
    start_nodes(3, 4, &job);
    wait_world(&run, 4);
    expect_same_workers(workers, 3);

    note_workers(workers);
    cluster_cut(3);
    (void)proc_wait_text(daemon, "node host3 is lost: not heard for", 10);
    wait_world(&run, 3);
    expect_same_workers(workers, 2);
    cluster_heal(3);
    wait_world(&run, 4);
    expect_same_workers(workers, 2);

    note_workers(workers);
    drill_signal(drill_proc(1), SIGSTOP);
    (void)proc_wait_text(daemon, "node host2 is lost: not heard for", 10);
    wait_world(&run, 3);
    expect_same_workers(workers, 1);
    drill_signal(drill_proc(1), SIGCONT);
    wait_world(&run, 4);
    expect_same_workers(workers, 1);

    cr_assert_eq(drill_metric("ctrun_restarts"), 3, "losses are charged, returns are not");
    finish_all();
    fleet_expect_samples(&run);
    expect_losses_of(&run, &alone);
}

/* Worlds of 2 and 4 add in the same order when their batches are powers of two. */
Test(elastic, losing_half_of_four_nodes_and_gaining_them_again_changes_no_bit)
{
    static const struct fleet run = {.name = "run", .steps = 400, .batch = 32};
    static const struct fleet alone = {.name = "alone", .steps = 400, .batch = 32};
    struct drill_job job = {.nodes = "2:4", .lease = "2s", .restarts = 1};
    pid_t workers[NODES];

    fleet_run_alone(&alone);
    fleet_job(&run, &job);
    (void)start_cluster();
    start_nodes(0, 4, &job);
    wait_world(&run, 4);
    note_workers(workers);
    cr_assert_eq(kill(drill_proc(1)->pid, SIGKILL), 0);
    drill_signal(drill_proc(3), SIGKILL);
    (void)fleet_finish(1, 5);
    workers[1] = workers[3] = 0;
    wait_world(&run, 2);
    expect_same_workers(workers, -1);
    start_nodes(1, 2, &job);
    start_nodes(3, 4, &job);
    wait_world(&run, 4);
    expect_same_workers(workers, -1);
    finish_all();
    fleet_expect_samples(&run);
    cr_assert(fleet_same_result(&run, &alone), "parameters or moments differ");
}

/* ---- the daemon dies --------------------------------------------------------------------------
 */

/* A daemon under supervision: it has died, or is ended now; start it again. */
static void revive(struct proc *daemon, bool by_itself)
{
    if (!by_itself)
        cr_assert_eq(kill(daemon->pid, SIGKILL), 0);
    cr_assert_eq(proc_finish(daemon, 10), 128 + SIGKILL, "%s", ct_buf_str(&daemon->text));
    (void)drill_daemon(0);
}

/* When the daemon dies, seen from the moment when a worker is killed. */
struct point {
    int sync;     /* at that write of its journal: 1 reserves the round, 2 commits it; 0: by time */
    bool before;  /* the data are not on the disk yet */
    int after_ms; /* by time */
};

static void kill_daemon_at(const struct point *point, struct interpose_page *page,
                           struct proc *daemon, pid_t victim)
{
    page->die_before = point->before;
    page->die_at = point->sync > 0 ? page->syncs + point->sync : 0;
    cr_assert_eq(kill(victim, SIGKILL), 0);
    if (point->sync == 0)
        drill_pass(point->after_ms * 1e-3);
    revive(daemon, point->sync > 0);
    page->die_at = 0;
}

Test(elastic, a_daemon_that_dies_at_any_point_of_a_round_costs_no_process_and_no_bit)
{
    static const struct fleet run = {.name = "run", .steps = 1000, .batch = 32};
    static const struct fleet alone = {.name = "alone", .steps = 1000, .batch = 32};
    static const struct point points[] = {
        {.sync = 1, .before = true},
        {.sync = 1},
        {.sync = 2, .before = true},
        {.sync = 2},
        {.after_ms = 0},
        {.after_ms = 1},
        {.after_ms = 2},
        {.after_ms = 3},
        {.after_ms = 5},
        {.after_ms = 8},
        {.after_ms = 13},
        {.after_ms = 21},
        {.after_ms = 34},
        {.after_ms = 55},
    };
    enum { KILLS = 24 };
    struct drill_job job = {.nodes = "2:4", .lease = "2s", .restarts = 3 * KILLS};
    pid_t workers[NODES];
    double longest = 0;

    fleet_run_alone(&alone);
    fleet_job(&run, &job);
    struct interpose_page *page = drill_interpose();
    struct proc *daemon = start_cluster();
    start_nodes(0, 2, &job);
    drill_wait_metric("ctrun_links", 2, 10);
    revive(daemon, false); /* in LAST_CALL: nothing is on the disk yet */
    drill_start_by(NULL);
    start_nodes(2, 4, &job);
    wait_world(&run, 4);
    for (int i = 0; i < KILLS; i++) {
        int victim = i % NODES;
        note_workers(workers);
        drill_interpose();
        double since = proc_now_s();
        kill_daemon_at(&points[(size_t)i % CT_COUNT(points)], page, daemon, workers[victim]);
        drill_wait_metric("ctrun_running", 1, 10);
        wait_world(&run, 4);
        longest = CT_MAX(longest, drill_ms(since));
        expect_same_workers(workers, victim);
    }
    for (int i = 0; i < NODES; i++)
        cluster_heal(i + 1);
    finish_all();
    fleet_expect_samples(&run);
    cr_assert(fleet_same_result(&run, &alone), "parameters or moments differ");
    drill_fact(18, "native training: %d kills, the same bits", KILLS + 1);
    drill_figure(18, "four ranks have made 12 steps again after", longest, 10000, "ms");
}
