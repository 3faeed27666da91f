/* Faults that a native training lives through on hosts of its own: the daemon cut off, replaced,
 * without disk, and clocks that jump. Slow cables pace the training; the daemon is on host 0. */
#include "cluster/relay.h"
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "nodes/cluster.h"
#include "preload/interpose.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
        cluster_restore(i + 1);
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
    cluster_restore(0);
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

/* A shared journal, and a second daemon that takes it over while the first does not move. */
Test(faults, row_20_a_daemon_that_another_host_has_replaced_is_fenced_when_it_wakes)
{
    struct drill_job job = {.nodes = "2", .lease = "1s"};
    char endpoints[64];
    struct proc old;
    pid_t workers[NODES];

    cluster_up(NODES + 2);
    (void)snprintf(endpoints, sizeof endpoints, "%s:29400,%s:29400", cluster_address(0),
                   cluster_address(NODES + 1));
    job.endpoints = endpoints;
    struct proc *daemon = drill_daemon(0);
    start_training(&job, workers);
    drill_signal(daemon, SIGSTOP);
    double since = proc_now_s();
    (void)drill_takeover(NODES + 1, &old);
    double serving = drill_ms(since);
    drill_wait_metric("ctrun_links", NODES, 15);
    double back = drill_ms(since);
    cr_assert_eq(drill_metric("ctrun_epoch"), 2);
    since = proc_now_s();
    cr_assert_eq(kill(old.pid, SIGCONT), 0);
    cr_assert_eq(proc_finish(&old, 10), 76, "%s", ct_buf_str(&old.text));
    double fenced = drill_ms(since);
    proc_free(&old);
    drill_pass(1.2); /* a lease */
    expect_same_workers(workers);
    cr_assert_eq(drill_metric("ctrun_links"), NODES);
    drill_figure(20, "rounds", drill_metric("ctrun_generation") - 1, 0, "");
    finish_training();
    drill_figure(20, "serving after", serving, 1000, "ms");
    drill_figure(20, "all agents with the new one after", back, 10000, "ms");
    drill_figure(20, "the old one ends with 76 after", fenced, 2000, "ms");
}

static bool is_degraded(void *context)
{
    (void)context;
    return strstr(drill_status(), "DEGRADED") != NULL;
}

/* ... or does a round after `context` run? */
static bool is_degraded_or_newer(void *context)
{
    return is_degraded(NULL) || (drill_metric("ctrun_generation") > *(const double *)context &&
                                 drill_metric("ctrun_running") == 1);
}

static bool is_in_order(void *context)
{
    return !is_degraded(context);
}

/* Write until nothing more fits. */
static void fill_disk(const char *path)
{
    static const char block[1024] = "full";
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    cr_assert_geq(fd, 0);
    while (write(fd, block, sizeof block) == (ssize_t)sizeof block)
        continue;
    cr_assert_eq(errno, ENOSPC);
    (void)close(fd);
}

/* The journal lies on a file system of 64 KiB, which only the daemon sees. */
Test(faults, row_22_with_a_full_disk_no_round_begins_and_training_goes_on)
{
    struct drill_job job = {.nodes = "2", .lease = "2s", .restarts = 40};
    char journal[PATH_MAX], filler[PATH_MAX + 32];
    const char *const small[] = {
        "sh", "-c", "mount -t tmpfs -o size=64k none \"$0\" && exec \"$@\"", journal, NULL};
    pid_t workers[NODES];

    cluster_up(NODES + 1);
    (void)snprintf(journal, sizeof journal, "%s", e2e_in_folder("journal"));
    cr_assert_eq(mkdir(journal, 0700), 0);
    drill_start_by(small);
    struct proc *daemon = drill_daemon(0);
    drill_start_by(NULL);
    start_training(&job, workers);
    (void)snprintf(filler, sizeof filler, "/proc/%d/root%s/filler", (int)daemon->pid, journal);
    fill_disk(filler);
    fleet_wait_step(&run, fleet_step(&run) + 30, 10);
    while (!is_degraded(NULL)) { /* the last block of the journal has room for some more records */
        double round = drill_metric("ctrun_generation");
        cr_assert_eq(kill(fleet_worker(1, 10), SIGKILL), 0);
        proc_until(is_degraded_or_newer, &round, 10, "a round, or DEGRADED in the status");
    }
    double rounds = drill_metric("ctrun_generation");
    drill_pass(1);
    cr_assert(proc_alive(daemon->pid));
    drill_figure(22, "rounds in 1 s with the disk full", drill_metric("ctrun_generation") - rounds,
                 0, "");
    cr_assert_eq(fleet_worker_now(0), workers[0], "the other worker waits, it is not restarted");
    double since = proc_now_s();
    cr_assert_eq(unlink(filler), 0);
    drill_wait_metric("ctrun_running", 1, 15);
    double recovered = drill_ms(since);
    proc_until(is_in_order, NULL, 5, "the end of DEGRADED");
    cr_assert_eq(fleet_worker_now(0), workers[0]);
    finish_training();
    drill_fact(22, "30 steps with the disk full, status DEGRADED");
    drill_figure(22, "next round after there is room again", recovered, 5000, "ms");
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

/* 200 ms each way by a relay on a host of its own; 5 % of what passes between it and the daemon is
 * lost, and 64 kbit/s is all that the daemon may say. */
Test(faults, row_15_a_slow_lossy_link_to_the_daemon_excludes_nobody)
{
    struct drill_job job = {.nodes = "2", .lease = "3s"}; /* as long as three losses in a row */
    enum { RELAY = NODES + 1, DELAY_MS = 200, LOST = 5 };
    pid_t workers[NODES];

    cluster_up(NODES + 2);
    (void)drill_daemon(0);
    job.endpoints = relay_start(cluster_hosts(), RELAY, 0, DELAY_MS);
    cr_assert_not_null(job.endpoints);
    start_training(&job, workers);
    cluster_slow(0, "64kbit");
    cluster_lose(0, HOSTS_OUT, LOST);
    cluster_lose(0, HOSTS_IN, LOST);
    int step = fleet_step(&run);
    double since = proc_now_s();
    (void)drill_report(job.endpoints);
    double asked = drill_ms(since);
    cr_assert_gt(asked, 2 * DELAY_MS, "a question takes %g ms", asked);
    cr_assert_eq(drill_reported("world"), NODES);
    drill_pass(4 - asked * 1e-3); /* a lease, and more */
    int steps = fleet_step(&run) - step;
    expect_same_workers(workers);
    drill_figure(15, "rounds in 4 s (lease 3 s)", drill_metric("ctrun_generation") - 1, 0, "");
    drill_figure(15, "nodes lost", NODES - drill_metric("ctrun_members"), 0, "");
    cr_assert_gt(steps, 30, "training goes on: %d steps", steps);
    cr_assert_lt(fleet_step(&run), STEPS, "it had more time than steps");
    cluster_restore(0);
    finish_training();
    drill_fact(15, "200 ms each way, 5 %% lost, 64 kbit/s: `ctrun status` takes %.0f ms", asked);
    drill_fact(15, "%d steps meanwhile, the same bits at the end", steps);
}

static const struct fleet cold = {.name = "run",
                                  .steps = STEPS,
                                  .batch = 32,
                                  .words = (const char *const[]){"--checkpoint.every=40", NULL}};

Test(faults, row_49_a_job_without_nodes_waits_and_new_ones_go_on_from_what_is_published)
{
    struct drill_job job = {.nodes = "2", .lease = "1s", .restarts = 1};
    enum { EVERY = 40 };
    char words[64];

    cluster_up(NODES + 1);
    (void)drill_daemon(0);
    fleet_run_alone(&alone);
    fleet_job(&cold, &job);
    for (int i = 0; i < NODES; i++) {
        cluster_slow(i + 1, "20mbit");
        (void)drill_node(i, i + 1, &job);
    }
    fleet_wait_step(&cold, 3 * EVERY + EVERY / 2, 30);
    for (int i = 0; i < NODES; i++)
        drill_signal(drill_proc(i), SIGKILL);
    drill_wait_metric("ctrun_members", 0, 5);
    cr_assert_eq(drill_metric("ctrun_running"), 0);
    int last = fleet_step(&cold);
    (void)drill_report(NULL);
    int published = (int)drill_reported("published_step");
    cr_assert_geq(published, 2 * EVERY);
    cr_assert_eq(published % EVERY, 0);

    double since = proc_now_s();
    for (int i = 0; i < NODES; i++)
        (void)drill_node(i, i + 1, &job);
    (void)snprintf(words, sizeof words, "step_%08d, step %d of %d", published, published, STEPS);
    (void)proc_wait_text(drill_proc(0), words, 10);
    drill_wait_metric("ctrun_running", 1, 5);
    double back = drill_ms(since);
    cr_assert_eq(e2e_count(ct_buf_str(&drill_proc(0)->text), "going on from"), 1);
    drill_figure(49, "two new ones at work after", back, 8000, "ms");
    drill_fact(49, "lost at step %d, published %d: they continue from step %d", last, published,
               published);
    drill_figure(49, "steps done again (a checkpoint each 40)", last - published, 2 * EVERY, "");
    cr_assert_gt(drill_metric("ctrun_generation"), 1, "a generation is never used again");
    finish_training();
}
