/* log.wandb: the metrics of a run go to the user's wandb, beside the training. With the package
 * itself where TEST_WANDB names an interpreter that has it; what happens when it is absent, fails
 * or hangs is seen everywhere, with packages that do. */
#include "cluster/procfs.h"
#include "e2e.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(wandb, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

/* The digits for `steps` steps, with the metrics in "run". */
#define TRAINING(steps)                                                               \
    e2e_in_root("configs/digits_mlp.yaml"), "--nproc_per_node=1", "--log.dir=run",    \
        "--log.tensorboard=false", "--log.wandb=offline", "--checkpoint.every=20000", \
        "--eval.every=20000", "--max_restarts=3", "--log.every=100", "--train.steps=" steps, NULL

/* An interpreter that sees the packages of the test's folder "packages" and no others. */
static void use_bare_python(void)
{
    cr_assert_eq(setenv("PYTHON_EXEC",
                        e2e_script("python", "#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n"), 1),
                 0);
    cr_assert_eq(setenv("PYTHONPATH", e2e_in_folder("packages"), 1), 0);
}

/* A package wandb with this text. */
static void make_package(const char *text)
{
    use_bare_python();
    cr_assert_eq(system("mkdir -p packages/wandb"), 0);
    (void)e2e_write("packages/wandb/__init__.py", text);
}

Test(wandb, without_the_package_the_job_is_refused_with_the_remedy)
{
    struct proc proc;

    use_bare_python();
    cr_assert_eq(system("mkdir wandb"), 0); /* what wandb leaves where it ran is no package */
    int status = e2e_run(&proc, TRAINING("50"));
    cr_assert_eq(status, 2, "%d: %s", status, ct_buf_str(&proc.text));
    e2e_said(&proc, "has no package wandb; install it");
    e2e_said(&proc, "PYTHON_EXEC");
    cr_assert_not(e2e_exists("run"));
    proc_free(&proc);
}

Test(wandb, without_metrics_jsonl_there_is_nothing_to_hand_over)
{
    struct proc proc;

    cr_assert_eq(e2e_run(&proc, e2e_in_root("configs/digits_mlp.yaml"), "--log.wandb=offline",
                         "--log.jsonl=false", NULL),
                 2);
    e2e_said(&proc, "log.jsonl: false leaves out");
    proc_free(&proc);
}

Test(wandb, one_that_fails_is_told_once_and_costs_the_training_nothing)
{
    struct proc proc;

    make_package("raise RuntimeError('no wandb today')\n");
    int status = e2e_run(&proc, TRAINING("50"));
    cr_assert_eq(status, 0, "%d: %s", status, ct_buf_str(&proc.text));
    e2e_said(&proc, "RuntimeError: no wandb today");
    cr_assert_eq(e2e_count(ct_buf_str(&proc.text), "wandb: nothing more is handed over"), 1);
    e2e_said(&proc, "accuracy");
    proc_free(&proc);
}

Test(wandb, one_that_hangs_is_waited_for_until_a_second_signal_and_then_told)
{
    struct proc proc;

    make_package("import signal\nwhile True:\n    signal.pause()\n");
    e2e_start(&proc, TRAINING("50"));
    (void)proc_wait_text(&proc, "waiting for wandb", 60);
    cr_assert_eq(kill(proc.pid, SIGTERM), 0);
    cr_assert_eq(kill(proc.pid, SIGINT), 0);
    (void)proc_finish(&proc, 15);
    e2e_said(&proc, "wandb: it was not done in time");
    proc_free(&proc);
}

static bool has_checkpoint(void *context)
{
    glob_t found;
    bool is_there = glob("run/checkpoints/step_*", 0, NULL, &found) == 0;

    (void)context;
    globfree(&found);
    return is_there;
}

/* The last "step": N of a file. */
static long last_step(const char *path)
{
    const char *text = e2e_read(path), *last = NULL;

    for (const char *at = text; (at = strstr(at, "\"step\":")) != NULL; at++)
        last = at;
    return last != NULL ? strtol(last + strlen("\"step\":"), NULL, 10) : -1;
}

/* Has wandb rows of steps that were not there before the restart? */
static bool is_beyond(void *context)
{
    long before = last_step("earlier.jsonl");

    (void)context;
    return last_step("run/wandb/ctrun.json") > before;
}

Test(wandb, a_killed_worker_a_stop_and_a_resume_are_one_run_and_each_step_stands_once)
{
    const char *python = getenv("TEST_WANDB");
    const char *const read[] = {python, e2e_in_root("tests/e2e/training/read_wandb.py"), "run",
                                "earlier.jsonl", NULL};
    struct proc proc;
    pid_t worker;
    char steps[64];

    if (python == NULL)
        cr_skip_test("skipped: TEST_WANDB names no interpreter with wandb");
    cr_assert_eq(setenv("PYTHON_EXEC", python, 1), 0);
    e2e_start(&proc, TRAINING("4000000"));
    (void)e2e_wait_file("run/wandb/ctrun.json", 60);
    proc_until(has_checkpoint, NULL, 60, "there is a checkpoint");
    cr_assert_eq(e2e_workers(&proc, &worker, 1), 1);
    cr_assert_eq(kill(worker, SIGSTOP), 0); /* what it wrote is kept: the next one cuts it */
    proc_until(procfs_is_stopped, &worker, 20, "the worker stops");
    cr_assert_eq(system("cp run/metrics.jsonl earlier.jsonl"), 0);
    cr_assert_eq(kill(worker, SIGKILL), 0);
    (void)proc_wait_text(&proc, "going on from", 60);
    proc_until(is_beyond, NULL, 60, "it is beyond where it was");
    cr_assert_eq(kill(proc.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&proc, 60), 128 + SIGTERM);
    e2e_said(&proc, "of project ctrun");
    (void)snprintf(steps, sizeof steps, "--train.steps=%.0f",
                   proc_number_after(&proc, "stopped after step") + 500);
    proc_free(&proc);

    int status = e2e_run(&proc, "resume", "run", steps, NULL);
    cr_assert_eq(status, 0, "%d: %s", status, ct_buf_str(&proc.text));
    proc_free(&proc);

    cr_assert_eq(proc_run(&proc, read, NULL, 60), 0, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "files 2, ids 1, project ctrun, exits [143, 0]");
    e2e_said(&proc, "ascending True, missing 0, wrong 0");
    e2e_said(&proc, "seed 1, hidden [64], command yes");
    e2e_said(&proc, "summary True");
    proc_free(&proc);
}
