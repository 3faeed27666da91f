/* A native training on four hosts whose nodes come and go, and whose daemon dies: no surviving
 * process is restarted, no sample is lost or repeated, the losses are those of an undisturbed run
 * with the same global batch.
 *
 * Hosts are namespaces; their slow cables pace the training (a step takes some milliseconds), so
 * that there is time to break something in the middle of it. The daemon is on host 0. */
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "nodes/cluster.h"
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

/* Difference of losses, which fall from 2.3, between runs whose worlds add in another order. */
static const double tolerance = 1e-5;

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

/* The rest at full speed. */
static void finish_all(void)
{
    for (int i = 0; i < NODES; i++)
        cluster_restore(i + 1);
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
    static const struct fleet run = {.name = "run", .steps = 1000};
    static const struct fleet alone = {.name = "alone", .steps = 1000};
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
    static const struct fleet run = {.name = "run", .steps = 1200};
    static const struct fleet alone = {.name = "alone", .steps = 1200};
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
    cluster_restore(3);
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
    static const struct fleet run = {.name = "run", .steps = 800, .batch = 32};
    static const struct fleet alone = {.name = "alone", .steps = 800, .batch = 32};
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

static bool is_replaced(void *context)
{
    const pid_t *before = context;

    return fleet_worker_now(2) != 0 && fleet_worker_now(2) != *before;
}

/* Three ranks do not divide the batch, so the loss of one makes a spare of another. Its process,
 * which lives on, is stopped then: it holds nobody up for longer than one that hangs in a step. */
Test(elastic, a_spare_whose_worker_was_stopped_is_found_out_when_it_is_needed)
{
    static const char *const words[] = {"--hang_timeout=3s", NULL};
    static const struct fleet run = {.name = "run", .steps = 1000, .batch = 32, .words = words};
    static const struct fleet alone = {.name = "alone", .steps = 1000, .batch = 32};
    struct drill_job job = {.nodes = "2:4", .lease = "2s", .restarts = 2};
    pid_t workers[NODES];

    fleet_run_alone(&alone);
    fleet_job(&run, &job);
    (void)start_cluster();
    start_nodes(0, 4, &job);
    wait_world(&run, 4);
    note_workers(workers);
    drill_signal(drill_proc(3), SIGKILL);
    wait_world(&run, 2);
    expect_same_workers(workers, 3);
    cr_assert_eq(kill(workers[2], SIGSTOP), 0);
    start_nodes(3, 4, &job);
    (void)proc_wait_text(drill_proc(2), "hung and was killed by ctrun", 3 + 10);
    proc_until(is_replaced, &workers[2], 15, "a new worker");
    workers[3] = fleet_worker(3, 10);
    wait_world(&run, 4);
    expect_same_workers(workers, 2);
    finish_all();
    fleet_expect_samples(&run);
    cr_assert(fleet_same_result(&run, &alone), "parameters or moments differ");
}

/* ---- the daemon dies ------------------------------------------------------------------------ */

enum phase { LAST_CALL, PREPARE, COMMIT, RECOVER, RUNNING, PHASES };

/* As GET /status words them. */
static const char *const text_of[PHASES] = {
    [LAST_CALL] = "starts in a moment", [PREPARE] = "prepares round", [COMMIT] = "commits round",
    [RECOVER] = "recovers round",       [RUNNING] = "runs round",
};

/* When the daemon dies, seen from the moment when a worker is killed. */
struct point {
    int sync;           /* at that write of its journal: 1 reserves the round, 2 commits it; or 0 */
    bool before;        /* the data are not on the disk yet */
    bool when_recovers; /* as soon as its status says so */
    double after_ms;    /* neither: by time */
};

static bool is_in(void *context)
{
    return strstr(drill_status(), text_of[*(const enum phase *)context]) != NULL;
}

static enum phase phase_now(void)
{
    const char *status = drill_status();
    enum phase phase = LAST_CALL;

    while (phase + 1 < PHASES && strstr(status, text_of[phase]) == NULL)
        phase++;
    return phase;
}

/* The supervisor of the daemon: it has died, or dies now; start it again. */
static void revive(struct proc *daemon, bool by_itself)
{
    if (!by_itself)
        cr_assert_eq(kill(daemon->pid, SIGKILL), 0);
    cr_assert_eq(proc_finish(daemon, 10), 128 + SIGKILL, "%s", ct_buf_str(&daemon->text));
    (void)drill_daemon(0);
}

/* Kill a worker, and the daemon at `point` of what follows; the phase in which it died. */
static enum phase kill_both(const struct point *point, struct interpose_page *page,
                            struct proc *daemon, pid_t worker)
{
    enum phase phase = point->sync == 1 ? PREPARE : COMMIT, recovers = RECOVER;

    page->die_before = point->before;
    page->die_at = point->sync > 0 ? page->syncs + point->sync : 0;
    cr_assert_eq(kill(worker, SIGKILL), 0);
    if (point->when_recovers)
        proc_until(is_in, &recovers, 10, "the phase RECOVER");
    else if (point->sync == 0)
        drill_pass(point->after_ms * 1e-3);
    if (point->sync == 0)
        phase = phase_now();
    revive(daemon, point->sync > 0);
    page->die_at = 0;
    return phase;
}

static const struct point points[] = {
    {.sync = 1, .before = true},
    {.sync = 1},
    {.sync = 2, .before = true},
    {.sync = 2},
    {.when_recovers = true},
    {.after_ms = 0},
    {.after_ms = 2},
    {.after_ms = 8},
    {.after_ms = 20},
    {.after_ms = 60},
};

Test(elastic, a_daemon_that_dies_in_any_phase_costs_no_process_and_no_bit)
{
    static const struct fleet run = {.name = "run", .steps = 1000, .batch = 32};
    static const struct fleet alone = {.name = "alone", .steps = 1000, .batch = 32};
    enum { KILLS = 2 * CT_COUNT(points) };
    struct drill_job job = {.nodes = "2:4", .lease = "2s", .restarts = KILLS};
    int died_in[PHASES] = {[LAST_CALL] = 1, [RUNNING] = 1};
    enum phase last_call = LAST_CALL;
    pid_t workers[NODES];
    double longest = 0;

    fleet_run_alone(&alone);
    fleet_job(&run, &job);
    struct proc *daemon = start_cluster();
    start_nodes(0, 2, &job);
    proc_until(is_in, &last_call, 10, "the phase LAST_CALL");
    revive(daemon, false); /* nothing is on the disk yet */
    start_nodes(2, 4, &job);
    wait_world(&run, 4);
    struct interpose_page *page = drill_interpose();
    revive(daemon, false); /* from here on its writes are counted */
    for (int i = 0; i < (int)KILLS; i++) {
        int victim = i % NODES;
        note_workers(workers);
        double since = proc_now_s();
        died_in[kill_both(&points[(size_t)i % CT_COUNT(points)], page, daemon, workers[victim])]++;
        drill_wait_metric("ctrun_running", 1, 10);
        wait_world(&run, 4);
        longest = CT_MAX(longest, drill_ms(since));
        expect_same_workers(workers, victim);
    }
    drill_figure(18, "restarts charged for as many workers", drill_metric("ctrun_restarts"), KILLS,
                 "");
    finish_all();
    fleet_expect_samples(&run);
    cr_assert(fleet_same_result(&run, &alone), "parameters or moments differ");
    drill_fact(18, "last call %d, prepare %d, commit %d, heal %d, running %d: the same bits",
               died_in[LAST_CALL], died_in[PREPARE], died_in[COMMIT], died_in[RECOVER],
               died_in[RUNNING]);
    drill_figure(18, "four ranks have made 12 steps again after", longest, 5000, "ms");
}
