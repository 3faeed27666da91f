/* Stops that go wrong: a worker that was told to end, and crashes, fails or hangs over it. Those
 * that go well are with what stops: test_launch.c, test_failures.c, test_training.c. */
#include "e2e.h"
#include "faults/drill.h"
#include "preload/interpose.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void leave(void)
{
    drill_start_by(NULL);
    e2e_leave();
}

TestSuite(stops, .init = e2e_enter, .fini = leave, .timeout = 120);

/* ---- scripts ----------------------------------------------------------------------------------*/

/* A script of which rank 1 does `last` at SIGTERM and SIGINT, the others end in order; `ready.RANK`
 * is there when it listens. */
static const char *ends_by(const char *last)
{
    char text[512];

    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\n[ $RANK = 1 ] && trap '%s' TERM INT || trap 'exit 0' TERM INT\n"
                   "echo $$ > ready.$RANK.new\nmv ready.$RANK.new ready.$RANK\n"
                   "while :; do sleep 0.02; done\n",
                   last);
    return e2e_script("ends", text);
}

/* Start two workers that do so, and send ctrun this signal; its exit status. */
static int stop_script(struct proc *run, const char *last, int signal)
{
    e2e_start(run, "--nproc_per_node=2", "--grace=5s", ends_by(last), NULL);
    (void)e2e_wait_file("ready.0", 20);
    (void)e2e_wait_file("ready.1", 20);
    cr_assert_eq(kill(run->pid, signal), 0);
    int status = proc_finish(run, 20);
    cr_assert(unlink("ready.0") == 0 && unlink("ready.1") == 0);
    return status;
}

Test(stops, a_script_that_crashes_over_the_signal_is_named_and_gives_the_status)
{
    struct proc run;

    cr_assert_eq(stop_script(&run, "echo giving up >&2; kill -SEGV $$", SIGTERM), 128 + SIGSEGV,
                 "%s", ct_buf_str(&run.text));
    e2e_said(&run, "stopped by SIGTERM; 2 workers ended");
    e2e_said(&run, "ctrun: job did not stop in order: rank 1 (");
    e2e_said(&run, "was killed by signal 11 (SIGSEGV)\n");
    e2e_said(&run, "\n  | giving up\n");
    e2e_said(&run, "ctrun: exit status 139\n");
    proc_free(&run);
}

Test(stops, a_status_after_sigterm_is_a_failure_and_after_control_c_it_is_not)
{
    struct proc run;

    cr_assert_eq(stop_script(&run, "echo disk is full >&2; exit 3", SIGTERM), 3, "%s",
                 ct_buf_str(&run.text));
    e2e_said(&run, "exited with status 3\n");
    e2e_said(&run, "\n  | disk is full\n");
    proc_free(&run);
    cr_assert_eq(stop_script(&run, "exit 1", SIGINT), 128 + SIGINT, "%s", ct_buf_str(&run.text));
    e2e_not_said(&run, "in order");
    proc_free(&run);
}

Test(stops, a_worker_that_outlasts_the_grace_is_counted)
{
    struct proc run;

    e2e_start(&run, "--nproc_per_node=2", "--grace=300ms", ends_by(": deaf"), NULL);
    (void)e2e_wait_file("ready.0", 20);
    (void)e2e_wait_file("ready.1", 20);
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&run, 20), 128 + SIGTERM, "%s", ct_buf_str(&run.text));
    e2e_said(&run, ", 1 of them killed after launch.grace");
    e2e_not_said(&run, "in order");
    proc_free(&run);
}

/* ---- several nodes ----------------------------------------------------------------------------*/

static void start_node(struct proc *node, const char *endpoint, const char *nodes, const char *rank,
                       const char *program)
{
    e2e_start(node, "--nnodes", nodes, "--rdzv_endpoint", endpoint, "--node_rank", rank,
              "--join_timeout=30s", "--last_call=20s", "--max_restarts=1", program, NULL);
}

/* Two nodes of one worker each, that of the second crashes when it is told to stop. */
static void start_two(struct proc *daemon, struct proc nodes[2], const char *count)
{
    const char *endpoint = e2e_daemon(daemon);
    const char *program = ends_by("kill -SEGV $$");

    start_node(&nodes[0], endpoint, count, "0", program);
    start_node(&nodes[1], endpoint, count, "1", program);
    (void)e2e_wait_file("ready.0", 20);
    (void)e2e_wait_file("ready.1", 20);
}

static void end_two(struct proc *daemon, struct proc nodes[2])
{
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    cr_assert_eq(kill(daemon->pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(daemon, 10), 0, "%s", ct_buf_str(&daemon->text));
    proc_free(daemon);
}

Test(stops, each_node_answers_for_its_own_workers)
{
    struct proc daemon, nodes[2];

    start_two(&daemon, nodes, "2");
    cr_assert_eq(kill(nodes[0].pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&nodes[0], 20), 128 + SIGTERM, "%s", ct_buf_str(&nodes[0].text));
    cr_assert_eq(proc_finish(&nodes[1], 20), 128 + SIGSEGV, "%s", ct_buf_str(&nodes[1].text));
    e2e_not_said(&nodes[0], "in order");
    e2e_said(&nodes[1], "did not stop in order: rank 1 (");
    end_two(&daemon, nodes);
}

Test(stops, a_crash_on_a_node_that_leaves_is_told_and_the_job_goes_on)
{
    struct proc daemon, nodes[2];

    start_two(&daemon, nodes, "1:2");
    cr_assert(unlink("ready.0") == 0);
    cr_assert_eq(kill(nodes[1].pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&nodes[1], 20), 128 + SIGSEGV, "%s", ct_buf_str(&nodes[1].text));
    e2e_said(&nodes[1], "this node left, the job continues");
    e2e_said(&nodes[1], "did not stop in order: rank 1 (");
    (void)e2e_wait_file("ready.0", 20); /* of the round of one node */
    cr_assert_eq(kill(nodes[0].pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&nodes[0], 20), 128 + SIGTERM, "%s", ct_buf_str(&nodes[0].text));
    e2e_said(&nodes[0], "this node left, no other node was working");
    e2e_not_said(&nodes[0], "the job continues");
    end_two(&daemon, nodes);
}

/* ---- trainings --------------------------------------------------------------------------------*/

/* A training that saves at its end alone, and before that when it is stopped. */
static const char config[] = "model: {type: mlp, hidden: [32, 24], classes: 10}\n"
                             "data:\n"
                             "  train: {format: csv, path: digits.csv.gz, scale: 0.0625}\n"
                             "optim: {type: adamw, lr: 3e-3}\n"
                             "batch: {global: 24, micro: 3}\n"
                             "checkpoint: {every: 100000000 steps, dir: saved, resume: auto}\n"
                             "log: {every: 1 step}\n";

static const char *prepare(void)
{
    char command[PATH_MAX + 64];

    (void)snprintf(command, sizeof command, "cp '%s' digits.csv.gz",
                   e2e_in_root("configs/data/digits.csv.gz"));
    cr_assert_eq(system(command), 0);
    return e2e_write("saves.yaml", config);
}

/* 10 steps of it, and their checkpoint. */
static void train_ten(const char *strategy)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", "--train.steps=10", "--log.dir=first",
                         strategy, "saves.yaml", NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert(e2e_exists("saved/step_00000010/state.json"));
}

/* Go on from there, in steps without end. */
static void go_on(struct proc *run, const char *strategy)
{
    e2e_start(run, "--nproc_per_node=2", "--train.steps=100000000", "--log.dir=second", strategy,
              "saves.yaml", NULL);
    (void)e2e_wait_file("second/metrics.jsonl", 60);
}

/* What ctrun starts goes through this library, before a sanitizer's own. */
static void preload(const char *library)
{
    const char *given = getenv("ASAN_OPTIONS");
    char options[256];

    (void)snprintf(options, sizeof options, "%s:verify_asan_link_order=0",
                   given == NULL ? "" : given);
    cr_assert(setenv("LD_PRELOAD", library, 1) == 0 && setenv("ASAN_OPTIONS", options, 1) == 0);
}

/* No fault of the library's own programs is in the way of SIGKILL: it is what the kernel sends when
 * memory is short, which is when a state is copied. */
static void kill_while_saving(const char *strategy)
{
    char library[PATH_MAX + 16];
    struct proc run;

    (void)prepare();
    train_ten(strategy);
    struct interpose_page *page = drill_interpose();
    (void)snprintf(library, sizeof library, "%s", proc_program("../tests/interpose.so"));
    preload(library);
    cr_assert_eq(setenv(INTERPOSE_PAGE, e2e_in_folder("interpose"), 1), 0);
    go_on(&run, strategy);
    page->die_saving = 1;
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&run, 30), 128 + SIGKILL, "%s", ct_buf_str(&run.text));
    cr_assert_eq(page->die_saving, 0);
    e2e_said(&run, "did not stop in order: rank ");
    e2e_said(&run, "was killed by signal 9 (SIGKILL)");
    e2e_said(&run, "ctrun: the newest checkpoint is that of step 10, saved/step_00000010; exit "
                   "status 137\n");
    proc_free(&run);
}

Test(stops, a_worker_that_dies_while_it_saves_is_named_with_the_checkpoint_that_counts)
{
    kill_while_saving("--parallel.strategy=ddp");
}

Test(stops, so_is_one_that_saves_its_part_of_the_state)
{
    kill_while_saving("--parallel.strategy=fsdp");
}

Test(stops, a_checkpoint_that_cannot_be_written_at_a_stop_is_a_failure)
{
    struct proc run;

    (void)prepare();
    e2e_start(&run, "--nproc_per_node=2", "--train.steps=100000000", "--log.dir=first",
              "saves.yaml", NULL);
    (void)e2e_wait_file("first/metrics.jsonl", 60);
    cr_assert_eq(system("rm -rf saved && : > saved"), 0);
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    int status = proc_finish(&run, 30);
    cr_assert(status == 73 || status == 74, "%d: %s", status, ct_buf_str(&run.text));
    e2e_said(&run, "did not stop in order: rank 0 (");
    e2e_said(&run, "ctrun: there is no whole checkpoint in saved; exit status");
    proc_free(&run);
}
