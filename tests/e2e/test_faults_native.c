/* Faults that a native training lives through on hosts of its own: the daemon cut off, replaced,
 * without disk, and clocks that jump. Slow cables pace the training; the daemon is on host 0. */
#include "cluster.h"
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "preload/interpose.h"

#include "base/assert.h"

#include <criterion/criterion.h>

enum { NODES = 2, STEPS = 1000, DAY = 86400 };

static const struct fleet run = {.name = "run", .steps = STEPS, .batch = 32};
static const struct fleet alone = {.name = "alone", .steps = STEPS, .batch = 32};

/* Two nodes on hosts 1 and 2 are at work in round 1; the training alone lies in "alone". */
static void start_training(struct drill_job *job, pid_t workers[NODES])
{
    fleet_run_alone(&alone);
    fleet_job(&run, job);
    for (int i = 0; i < NODES; i++) {
        cluster_slow(i + 1, "20mbit");
        (void)drill_node(i, i + 1, job);
    }
    fleet_wait_step(&run, 20, 20);
    for (int i = 0; i < NODES; i++)
        workers[i] = fleet_worker_now(i);
}

static void expect_same_workers(const pid_t workers[NODES])
{
    for (int i = 0; i < NODES; i++)
        cr_assert_eq(fleet_worker_now(i), workers[i], "the worker of node %d was restarted", i);
}

/* The rest at full speed, and the bits of the undisturbed run. */
static void finish_training(void)
{
    for (int i = 0; i < NODES; i++)
        cluster_heal(i + 1);
    for (int i = 0; i < NODES; i++)
        cr_assert_eq(fleet_finish(i, 40), 0, "%s", ct_buf_str(&drill_proc(i)->text));
    fleet_expect_samples(&run);
    cr_assert(fleet_same_result(&run, &alone), "parameters or moments differ");
}

Test(faults, row_13_a_daemon_cut_off_from_all_its_nodes_loses_none_and_training_goes_on)
{
    struct drill_job job = {.nodes = "1:2", .lease = "1s"};
    pid_t workers[NODES];

    cluster_up(NODES + 1);
    (void)drill_daemon(0);
    start_training(&job, workers);
    cluster_cut(0);
    int step = fleet_step(&run);
    for (int i = 0; i < NODES; i++)
        (void)proc_wait_text(drill_proc(i), "is gone, the workers go on meanwhile", 10);
    drill_pass(1.5); /* a lease and a half more */
    int steps = fleet_step(&run) - step;
    cr_assert_gt(steps, 30, "training goes on: %d steps", steps);
    cluster_heal(0);
    double since = proc_now_s();
    for (int i = 0; i < NODES; i++)
        (void)proc_wait_text(drill_proc(i), "the rendezvous is back", 15);
    double back = drill_ms(since);
    drill_pass(1.2); /* a lease */
    expect_same_workers(workers);
    drill_figure(13, "rounds", drill_metric("ctrun_generation") - 1, 0, "");
    drill_figure(13, "nodes lost", NODES - drill_metric("ctrun_members"), 0, "");
    finish_training();
    drill_fact(13, "%d steps meanwhile, 0 lost", steps);
    drill_figure(13, "all agents back after", back, 5000, "ms");
}

Test(faults, row_25_a_wall_clock_that_jumps_by_a_day_changes_nothing)
{
    struct drill_job job = {.nodes = "2", .lease = "1s"};
    static const int days[] = {1, -1, 0};
    pid_t workers[NODES];

    cluster_up(NODES + 1);
    struct interpose_page *page = drill_interpose();
    (void)drill_daemon(0);
    start_training(&job, workers);
    double before = fleet_last_time(&run);
    for (size_t i = 0; i < CT_COUNT(days); i++) {
        int step = fleet_step(&run);
        page->wall_offset_s = days[i] * DAY;
        fleet_wait_step(&run, step + 20, 10);
        double jumped = fleet_last_time(&run) - before;
        cr_assert_float_eq(jumped, days[i] * DAY, DAY / 10, "the programs see the jump: %g s",
                           jumped);
        drill_pass(1.2); /* a lease */
        expect_same_workers(workers);
    }
    drill_figure(25, "rounds (+1 day, -1 day, back)", drill_metric("ctrun_generation") - 1, 0, "");
    drill_figure(25, "nodes lost", NODES - drill_metric("ctrun_members"), 0, "");
    finish_training();
}
