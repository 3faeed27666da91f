/* Faults of networks and whole hosts: the cluster of cluster.h, real programs, measured figures.
 * The daemon lives on host 0, which has no node of the job unless a test says so. */
#include "drill.h"
#include "e2e.h"
#include "nodes/cluster.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

/* A daemon on host 0 and `nodes` nodes on the hosts after it, all at work in round 1. */
static struct proc *start_job(int nodes, const struct drill_job *job)
{
    cluster_up(nodes + 1);
    struct proc *daemon = drill_daemon(0);
    for (int i = 0; i < nodes; i++)
        (void)drill_node(i, i + 1, job);
    for (int i = 0; i < nodes; i++)
        (void)drill_worker(1, i, 6);
    return daemon;
}

Test(faults, row_8_a_host_that_loses_power_is_out_after_the_lease)
{
    static const struct drill_job job = {.nodes = "1:2", .lease = "700ms", .restarts = 1};
    struct proc *daemon = start_job(2, &job);

    double since = proc_now_s();
    cluster_cut(2);
    drill_signal(drill_proc(1), SIGKILL);
    (void)proc_wait_text(daemon, "node host2 is lost: not heard for", 10);
    double out = drill_ms(since);
    (void)drill_worker(2, 0, 8);
    drill_figure(8, "out after", out, drill_lease_bound(&job), "ms");
    drill_figure(8, "next round after", drill_ms(since), drill_lease_bound(&job) + 2000, "ms");
}

Test(faults, row_10_a_host_behind_a_cut_cable_is_left_out_and_heals_by_itself)
{
    static const struct drill_job job = {.nodes = "1:2", .lease = "700ms", .restarts = 1};
    struct proc *daemon = start_job(2, &job);
    pid_t isolated = drill_worker(1, 1, 1);

    double since = proc_now_s();
    cluster_cut(2);
    (void)proc_wait_text(daemon, "node host2 is lost: not heard for", 10);
    double out = drill_ms(since);
    (void)drill_worker(2, 0, 10);
    double round = drill_ms(since);
    cr_assert_eq(drill_metric("ctrun_world_size"), 1);
    cluster_restore(2);
    since = proc_now_s();
    e2e_wait_gone(isolated, 10);
    double stopped = drill_ms(since);
    drill_wait_metric("ctrun_world_size", 2, 20);
    pid_t joined = drill_worker((int)drill_metric("ctrun_generation"), 1, 5);
    cr_assert_neq(joined, isolated);
    cr_assert_eq(drill_metric("ctrun_restarts"), 1, "coming back costs nothing");
    drill_figure(10, "out after", out, drill_lease_bound(&job), "ms");
    drill_figure(10, "next round after", round, drill_lease_bound(&job) + 2000, "ms");
    drill_figure(10, "healed: its old worker gone after", stopped, 5000, "ms");
    drill_figure(10, "healed: at work after", drill_ms(since), 15000, "ms");
}

Test(faults, row_32_a_daemon_that_vanishes_without_a_word_is_noticed_and_found_again)
{
    static const struct drill_job job = {.nodes = "2", .lease = "1s"};
    pid_t workers[2];

    struct proc *daemon = start_job(2, &job);
    for (int i = 0; i < 2; i++)
        workers[i] = drill_worker(1, i, 1);
    double since = proc_now_s();
    cluster_cut(0);
    drill_signal(daemon, SIGKILL);
    for (int i = 0; i < 2; i++)
        (void)proc_wait_text(drill_proc(i), "is gone, the workers go on", 10);
    double notice = drill_ms(since);
    cluster_reboot(0);
    (void)drill_daemon(0);
    since = proc_now_s();
    drill_wait_metric("ctrun_links", 2, 15);
    double back = drill_ms(since);
    for (int i = 0; i < 2; i++)
        cr_assert(proc_alive(workers[i]), "no worker notices");
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    drill_figure(32, "noticed after", notice, drill_lease_bound(&job), "ms");
    drill_figure(32, "all agents back after it serves again", back, 5000, "ms");
}

/* The whole story of a host that is lost once a second: taken in again after the first loss, kept
 * out for 10 s after the second, and for an hour after the third. */
Test(faults, row_47_a_host_that_comes_and_goes_is_kept_out_of_rounds)
{
    static const struct drill_job job = {.nodes = "1:2", .lease = "2s", .restarts = 20};
    enum { COOL_DOWN_S = 10, COUNTED = 3 }; /* the losses that count are those out of a round */

    (void)start_job(2, &job);
    drill_signal(drill_proc(1), SIGKILL);
    drill_wait_metric("ctrun_world_size", 1, 10);
    (void)drill_node(1, 2, &job);
    drill_wait_metric("ctrun_world_size", 2, 10);
    drill_pass(1);
    drill_signal(drill_proc(1), SIGKILL);
    double since = proc_now_s();
    drill_wait_metric("ctrun_world_size", 1, 10);
    double before = drill_metric("ctrun_generation");
    (void)drill_node(1, 2, &job);
    (void)proc_wait_text(drill_proc(1), "lost several times within an hour and joins", 5);
    while (drill_ms(since) < 1e3 * (COOL_DOWN_S - 3)) {
        drill_pass(1);
        drill_signal(drill_proc(1), SIGKILL);
        (void)drill_node(1, 2, &job);
    }
    drill_figure(47, "rounds before the cool-down", before - 1, COUNTED, "");
    drill_figure(47, "rounds in 7 s of cool-down, a loss a second",
                 drill_metric("ctrun_generation") - before, 0, "");
    drill_wait_metric("ctrun_world_size", 2, 8);
    drill_signal(drill_proc(1), SIGKILL);
    drill_wait_metric("ctrun_world_size", 1, 10);
    double cooled_s = drill_ms(since) / 1e3;
    double after = drill_metric("ctrun_generation") - before;
    for (int loss = 0; loss < 2; loss++) {
        (void)drill_node(1, 2, &job);
        (void)proc_wait_text(drill_proc(1), "host host2 is cordoned for", 5);
        drill_signal(drill_proc(1), SIGKILL);
    }
    const char *report = drill_report(NULL);
    const char *why = "\"host\":\"host2\",\"reason\":\"lost 3 times within an hour\",\"left_s\":";
    cr_assert_not_null(strstr(report, why), "%s", report);
    double cordon_s = drill_reported("left_s");
    cr_assert_eq(drill_metric("ctrun_generation") - before, after);
    cr_assert_eq(drill_metric("ctrun_running"), 1, "the others go on");
    drill_figure(47, "rounds when it is over, up to the third loss", after, 2, "");
    drill_fact(47, "then the status: cordoned for %.0f s, lost 3 times within an hour", cordon_s);
    drill_figure(47, "rounds an hour from cool-down to end of cordon",
                 after / ((cooled_s + cordon_s) / 3600), 60, "");
    drill_figure(47, "restarts charged", drill_metric("ctrun_restarts"), COUNTED, "");
}
