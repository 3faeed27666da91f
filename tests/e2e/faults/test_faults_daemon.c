/* Faults of the daemon and mistakes of its operators. */
#include "drill.h"
#include "e2e.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>

/* Two nodes at work in round 1. */
static void start_pair(const struct drill_job *job, pid_t workers[2])
{
    for (int i = 0; i < 2; i++)
        (void)drill_node(i, DRILL_HERE, job);
    for (int i = 0; i < 2; i++)
        workers[i] = drill_worker(1, i, 8);
}

Test(faults, row_17_a_daemon_that_is_killed_and_started_again_disturbs_nobody)
{
    static const struct drill_job job = {.nodes = "2", .lease = "1s"};
    pid_t workers[2];

    struct proc *daemon = drill_daemon(DRILL_HERE);
    start_pair(&job, workers);
    cr_assert_eq(drill_metric("ctrun_epoch"), 1);
    drill_signal(daemon, SIGKILL);
    double since = proc_now_s();
    (void)drill_daemon(DRILL_HERE);
    double serving = drill_ms(since);
    drill_wait_metric("ctrun_links", 2, 10);
    double back = drill_ms(since);
    cr_assert_eq(drill_metric("ctrun_epoch"), 2);
    drill_pass(1.2); /* a lease */
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    cr_assert_eq(drill_metric("ctrun_members"), 2);
    drill_figure(17, "serving after", serving, 1000, "ms");
    drill_figure(17, "all agents back after", back, 5000, "ms");
    drill_figure(17, "workers restarted", !proc_alive(workers[0]) + !proc_alive(workers[1]), 0, "");
}

Test(faults, row_18_a_daemon_killed_while_a_round_is_made_never_uses_its_number_twice)
{
    static const struct drill_job job = {.nodes = "2", .lease = "1s", .restarts = 6};
    enum { KILLS = 4 };
    pid_t workers[2];
    int generation = 1;

    struct proc *daemon = drill_daemon(DRILL_HERE);
    start_pair(&job, workers);
    for (int i = 0; i < KILLS; i++) {
        char words[48];
        (void)snprintf(words, sizeof words, "round %d is being made", generation + 1);
        cr_assert_eq(kill(workers[1], SIGKILL), 0);
        (void)proc_wait_text(daemon, words, 5);
        drill_pass(i * 0.004); /* another phase each time */
        drill_signal(daemon, SIGKILL);
        daemon = drill_daemon(DRILL_HERE);
        drill_wait_metric("ctrun_links", 2, 10);
        drill_wait_metric("ctrun_running", 1, 8);
        int now = (int)drill_metric("ctrun_generation");
        cr_assert_gt(now, generation);
        generation = now;
        for (int rank = 0; rank < 2; rank++)
            workers[rank] = drill_worker(generation, rank, 10);
    }
    for (int i = 0; i < 2; i++)
        cr_assert(proc_alive(workers[i]));
    drill_fact(18, "restarted workers: %d kills, round %d at the end", KILLS, generation);
}

Test(faults, row_19_a_daemon_that_stops_excludes_nobody_for_its_own_absence)
{
    static const struct drill_job job = {.nodes = "2", .lease = "600ms"};
    pid_t workers[2];

    struct proc *daemon = drill_daemon(DRILL_HERE);
    start_pair(&job, workers);
    drill_signal(daemon, SIGSTOP);
    drill_pass(2); /* more than three leases */
    drill_signal(daemon, SIGCONT);
    double since = proc_now_s();
    drill_wait_metric("ctrun_links", 2, 10);
    double back = drill_ms(since);
    drill_pass(0.8); /* a lease */
    for (int i = 0; i < 2; i++)
        cr_assert(proc_alive(workers[i]));
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    drill_figure(19, "exclusions in 2 s (lease 600 ms)", 2 - drill_metric("ctrun_members"), 0, "");
    drill_figure(19, "all agents there after", back, 5000, "ms");
}

Test(faults, row_28_a_daemon_takes_its_port_back_at_once)
{
    static const struct drill_job job = {.nodes = "2", .lease = "1s"};
    enum { TIMES = 3 };

    struct proc *daemon = drill_daemon(DRILL_HERE);
    (void)drill_node(1, DRILL_HERE, &job); /* waits for node 0, and never binds the port itself */
    drill_wait_metric("ctrun_links", 1, 8);
    for (int i = 0; i < TIMES; i++) {
        drill_signal(daemon, SIGTERM); /* it closes first: its side has TIME_WAIT */
        cr_assert_eq(proc_finish(daemon, 10), 0, "%s", ct_buf_str(&daemon->text));
        daemon = drill_daemon(DRILL_HERE);
        drill_wait_metric("ctrun_links", 1, 8);
    }
    drill_fact(28, "taken back %d times of %d", TIMES, TIMES);
}

Test(faults, row_39_a_second_daemon_for_the_same_journal_is_refused)
{
    static const struct drill_job job = {.nodes = "2", .lease = "1s"};
    struct proc second;
    pid_t workers[2];

    (void)drill_daemon(DRILL_HERE);
    start_pair(&job, workers);
    const char *const argv[] = {proc_program("ctrund"),   "--listen", "127.0.0.1:0", "--journal",
                                e2e_in_folder("journal"), NULL};
    int status = proc_run(&second, argv, NULL, 10);
    cr_assert_eq(status, 76, "%s", ct_buf_str(&second.text));
    e2e_said(&second, "journal");
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    for (int i = 0; i < 2; i++)
        cr_assert(proc_alive(workers[i]));
    drill_fact(39, "exit status %d, 0 rounds", status);
    drill_figure(39, "refused after", second.seconds * 1e3, 1000, "ms");
    proc_free(&second);
}

Test(faults, row_40_a_second_node_with_a_rank_that_is_taken_is_refused_and_disturbs_nobody)
{
    static const struct drill_job job = {.nodes = "2", .lease = "1s"};
    pid_t workers[2];

    (void)drill_daemon(DRILL_HERE);
    start_pair(&job, workers);
    struct proc *second = drill_node_as(2, 1, DRILL_HERE, &job);
    cr_assert_eq(proc_finish(second, 10), 2, "%s", ct_buf_str(&second->text));
    e2e_said(second, "node rank 1");
    e2e_said(second, "already taken");
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    cr_assert_eq(drill_metric("ctrun_members"), 2);
    for (int i = 0; i < 2; i++)
        cr_assert(proc_alive(workers[i]));
    drill_fact(40, "exit status 2, 0 rounds");
    drill_figure(40, "refused after", second->seconds * 1e3, drill_lease_bound(&job), "ms");
}
