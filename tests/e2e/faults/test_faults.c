/* Faults of workers and agents, on the real programs: rows of the fault table with their figures.
 *
 * Workers are scripts that sleep, so every round starts them anew; a test asks who is started when,
 * with which rank, and what the operator is told. Faults of networks and daemons are in
 * test_faults_network.c and test_faults_daemon.c. */
#include "drill.h"
#include "e2e.h"

#include "base/assert.h"
#include "cluster/procfs.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

TestSuite(faults, .init = drill_enter, .fini = drill_leave, .timeout = 60);

Test(faults, row_1_a_killed_worker_is_replaced_with_its_rank_and_the_last_one_is_named)
{
    static const struct drill_job job = {.nodes = "2", .lease = "2s", .restarts = 2};
    static const int signals[] = {SIGKILL, SIGSEGV, SIGABRT};
    double notice = 0;
    double round = 0;

    struct proc *daemon = drill_daemon(DRILL_HERE);
    for (int i = 0; i < 2; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    for (int i = 0; i < 3; i++) {
        char words[64];
        pid_t other = drill_worker(i + 1, 0, 8);
        pid_t victim = drill_worker(i + 1, 1, 8);
        double since = proc_now_s();
        cr_assert_eq(kill(victim, signals[i]), 0);
        if (i == 2)
            break;
        (void)snprintf(words, sizeof words, "round %d is being made (a worker failed)", i + 2);
        (void)proc_wait_text(daemon, words, 5);
        notice = CT_MAX(notice, drill_ms(since));
        (void)drill_worker(i + 2, 1, 10);
        (void)drill_worker(i + 2, 0, 10);
        round = CT_MAX(round, drill_ms(since));
        cr_assert_not(proc_alive(other), "a worker that cannot regroup is started anew");
    }
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(drill_proc(i), 10), 128 + SIGABRT);
    e2e_said(drill_proc(1), "rank 1");
    e2e_said(drill_proc(1), "SIGABRT");
    drill_figure(1, "daemon told after", notice, 20, "ms");
    drill_figure(1, "next round after", round, 2000, "ms");
}

Test(faults, row_2_a_worker_that_is_done_early_disturbs_nobody)
{
    static struct drill_job job = {.nodes = "2", .lease = "1s"};

    job.program = e2e_script("early", "#!/bin/sh\nat=pid.$CTRUN_GENERATION.$RANK\n"
                                      "echo $$ > $at.new && mv $at.new $at\n"
                                      "[ $RANK = 1 ] && exit 0\n"
                                      "while [ ! -e go ]; do sleep 0.02; done\n");
    (void)drill_daemon(DRILL_HERE);
    for (int i = 0; i < 2; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    pid_t stays = drill_worker(1, 0, 8);
    e2e_wait_gone(drill_worker(1, 1, 8), 5);
    drill_pass(1.2); /* a lease: nobody takes the node without workers for a lost one */
    cr_assert(proc_alive(stays));
    cr_assert(proc_alive(drill_proc(1)->pid), "the node waits for the others");
    drill_figure(2, "rounds", drill_metric("ctrun_generation") - 1, 0, "");
    double since = proc_now_s();
    (void)e2e_write("go", "");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(drill_proc(i), 10), 0, "%s", ct_buf_str(&drill_proc(i)->text));
    drill_figure(2, "all agents end after the last worker within", drill_ms(since), 2000, "ms");
}

Test(faults, row_5_a_killed_agent_takes_its_workers_along_and_the_others_go_on)
{
    static const struct drill_job job = {
        .nodes = "2:3", .lease = "2s", .restarts = 1, .workers = 2};

    struct proc *daemon = drill_daemon(DRILL_HERE);
    for (int i = 0; i < 3; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    pid_t orphans[] = {drill_worker(1, 2, 8), drill_worker(1, 3, 15)};
    double since = proc_now_s();
    cr_assert_eq(kill(drill_proc(1)->pid, SIGKILL), 0);
    (void)proc_wait_text(daemon, "is lost: its connection closed", 5);
    double notice = drill_ms(since);
    for (int i = 0; i < 2; i++)
        e2e_wait_gone(orphans[i], 2);
    double gone = drill_ms(since);
    for (int rank = 0; rank < 4; rank++)
        (void)drill_worker(2, rank, 10);
    double round = drill_ms(since);
    cr_assert_eq(drill_metric("ctrun_world_size"), 4);
    drill_figure(5, "noticed after", notice, 250, "ms");
    drill_figure(5, "its workers gone after", gone, 250, "ms");
    drill_figure(5, "next round after", round, 3000, "ms");
}

Test(faults, row_6_an_agent_that_stops_for_less_than_the_lease_loses_nothing)
{
    static const struct drill_job job = {.nodes = "2", .lease = "1500ms"};
    pid_t workers[2];

    (void)drill_daemon(DRILL_HERE);
    for (int i = 0; i < 2; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    for (int i = 0; i < 2; i++)
        workers[i] = drill_worker(1, i, 8);
    drill_signal(drill_proc(1), SIGSTOP);
    drill_pass(0.6);
    drill_signal(drill_proc(1), SIGCONT);
    drill_pass(1.6); /* a lease from now on */
    for (int i = 0; i < 2; i++)
        cr_assert(proc_alive(workers[i]));
    cr_assert_eq(drill_metric("ctrun_members"), 2);
    drill_figure(6, "rounds in 0.6 s of a lease of 1.5 s", drill_metric("ctrun_generation") - 1, 0,
                 "");
}

Test(faults, row_7_an_agent_that_stops_for_longer_is_left_out_and_comes_back)
{
    static const struct drill_job job = {.nodes = "2", .lease = "500ms", .restarts = 1};

    struct proc *daemon = drill_daemon(DRILL_HERE);
    for (int i = 0; i < 2; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    pid_t old = drill_worker(1, 1, 8);
    (void)drill_worker(1, 0, 8);
    double since = proc_now_s();
    drill_signal(drill_proc(1), SIGSTOP);
    (void)proc_wait_text(daemon, "is lost: not heard for", 10);
    double out = drill_ms(since);
    (void)proc_wait_text(daemon, "too few nodes are left", 5);
    drill_signal(drill_proc(1), SIGCONT);
    since = proc_now_s();
    drill_wait_metric("ctrun_running", 1, 10);
    pid_t anew = drill_worker((int)drill_metric("ctrun_generation"), 1, 5);
    double back = drill_ms(since);
    cr_assert_not(proc_alive(old), "the worker of the round that is over is gone");
    cr_assert_neq(anew, old);
    cr_assert_eq(drill_metric("ctrun_restarts"), 1);
    drill_figure(7, "out after", out, drill_lease_bound(&job), "ms");
    drill_figure(7, "back after it wakes", back, 15000, "ms");
}

/* Seconds of processor time that a process has used. */
static double cpu_seconds(pid_t pid)
{
    struct procfs_stat stat;

    cr_assert(procfs_stat(pid, &stat));
    return stat.cpu_s;
}

Test(faults, row_43_a_flood_of_output_disturbs_neither_the_other_worker_nor_the_daemon)
{
    static struct drill_job job = {.nodes = "1", .lease = "1s", .workers = 3};
    enum { FLOOD_MIB = 24 };

    job.program =
        e2e_script("flood", "#!/bin/sh\n"
                            "case $RANK in\n"
                            "0) yes 0123456789012345678901234567890123456789 |"
                            " head -c 24M; : > done.0 ;;\n"
                            "1) while [ ! -e done.0 ]; do echo tick; sleep 0.05; done ;;\n"
                            "2) exec >&- 2>&-; while [ ! -e done.0 ]; do sleep 0.05; done;"
                            " : > done.2 ;;\n"
                            "esac\n");
    struct proc *daemon = drill_daemon(DRILL_HERE);
    struct proc *node = drill_node(0, DRILL_HERE, &job);
    double since = proc_now_s();
    cr_assert_eq(proc_finish(node, 40), 0);
    double seconds = drill_ms(since) / 1e3;
    cr_assert(e2e_exists("done.2"), "a worker without output goes on");
    cr_assert_gt(e2e_count(ct_buf_str(&node->text), "tick\n"), 0);
    cr_assert_geq(node->text.size, (size_t)FLOOD_MIB << 20, "no line of the flood is lost");
    drill_fact(43, "%d MiB in %.2f s (%.0f MiB/s), 0 lines lost", FLOOD_MIB, seconds,
               FLOOD_MIB / seconds);
    drill_figure(43, "share of a core that the daemon uses",
                 100 * cpu_seconds(daemon->pid) / seconds, 5, "%");
}

Test(faults, row_44_stray_grandchildren_end_with_the_job)
{
    static struct drill_job job = {.nodes = "1", .lease = "1s", .workers = 2};
    pid_t strays[2];

    job.program = e2e_script(
        "stray", "#!/bin/sh\n"
                 "sh -c 'echo $$ > stray.'$RANK'.new; mv stray.'$RANK'.new stray.'$RANK'; "
                 "trap \"\" TERM; while :; do sleep 600; done' &\n"
                 "while [ ! -e go ]; do sleep 0.02; done\n"
                 "[ $RANK = 1 ] && exit 3\nexec sleep 600\n");
    (void)drill_daemon(DRILL_HERE);
    struct proc *node = drill_node(0, DRILL_HERE, &job);
    strays[0] = atoi(e2e_wait_file("stray.0", 8));
    strays[1] = atoi(e2e_wait_file("stray.1", 8));
    double since = proc_now_s();
    (void)e2e_write("go", "");
    cr_assert_eq(proc_finish(node, 8), 3);
    double ended = drill_ms(since);
    drill_figure(44, "left when ctrun ends", proc_alive(strays[0]) + proc_alive(strays[1]), 0, "");
    drill_figure(44, "ended after (grace 2 s)", ended, 3000, "ms");
}

Test(faults, row_48_many_nodes_lost_at_once_cost_one_restart_and_few_rounds)
{
    static const struct drill_job job = {.nodes = "3:6", .lease = "2s", .restarts = 1};

    (void)drill_daemon(DRILL_HERE);
    for (int i = 0; i < 6; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    for (int i = 0; i < 6; i++)
        (void)drill_worker(1, i, 8);
    double since = proc_now_s();
    cr_assert_eq(kill(drill_proc(2)->pid, SIGKILL), 0);
    cr_assert_eq(kill(drill_proc(4)->pid, SIGKILL), 0);
    drill_wait_metric("ctrun_members", 4, 10);
    drill_wait_metric("ctrun_running", 1, 10);
    drill_wait_metric("ctrun_world_size", 4, 10);
    double round = drill_ms(since);
    int rounds = (int)drill_metric("ctrun_generation") - 1;
    drill_figure(48, "generations", rounds, 3, "");
    drill_figure(48, "restarts charged", drill_metric("ctrun_restarts"), 1, "");
    drill_figure(48, "next round after", round, 3000, "ms");
}
