/* What is left of a failure: error files, torchrun's table, the log tree; and signals. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(failures, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

/* ---- error files ---------------------------------------------------------------------------- */

/* Writes what PyTorch's `record` writes, and ends. */
#define FAIL_WITH_FILE(message)                                                                   \
    "printf '{\"message\": {\"message\": \"" message "\", \"extraInfo\": {\"py_callstack\": "     \
    "\"Traceback (most recent call last):\\\\n  the line\\\\n" message "\\\\n\", \"timestamp\": " \
    "\"%s\"}}}' $(date +%s) > $TORCHELASTIC_ERROR_FILE.new\n"                                     \
    "mv $TORCHELASTIC_ERROR_FILE.new $TORCHELASTIC_ERROR_FILE\n"

Test(failures, an_error_file_becomes_the_root_cause_in_torchruns_table)
{
    struct proc run;
    const char *fail =
        e2e_script("fail", "#!/bin/sh\n[ $RANK = 1 ] || exec sleep 600\n" FAIL_WITH_FILE(
                               "ValueError: no such layer") "exit 3\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", "--log_dir=logs", fail, NULL), 3);
    e2e_wrote(&run, "exited with status 3\n  | ValueError: no such layer\n======");
    e2e_wrote(&run, "fail FAILED\n------");
    e2e_wrote(&run, "Failures:\n  <NO_OTHER_FAILURES>\n");
    e2e_wrote(&run, "Root Cause (first observed failure):\n[0]:\n  time      : 20");
    e2e_wrote(&run, "  rank      : 1 (local_rank: 1)\n  exitcode  : 3 (pid: ");
    e2e_wrote(&run, "/attempt_0_g1/1/error.json\n  traceback : Traceback (most recent call last):\n"
                    "    the line\n  ValueError: no such layer\n======");
    e2e_not_said(&run, "SIGTERM");
    proc_free(&run);
}

Test(failures, the_first_error_is_the_cause_although_its_worker_ends_last)
{
    struct proc run;
    const char *fail = e2e_script(
        "fail", "#!/bin/sh\nif [ $RANK = 1 ]; then\n" FAIL_WITH_FILE(
                    "ValueError: the cause") ": > failed\nwhile :; do sleep 0.05; done\nfi\n"
                                             "until [ -e failed ]; do sleep 0.02; "
                                             "done\n" FAIL_WITH_FILE(
                                                 "ConnectionError: an echo") "exit 4\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", fail, NULL), 1);
    e2e_said(&run, "ctrun: job failed: rank 1 ");
    e2e_said(&run, "  | ValueError: the cause\n");
    e2e_wrote(&run, "Failures:\n[1]:\n");
    e2e_wrote(&run, "  ConnectionError: an echo\n------");
    proc_free(&run);
}

Test(failures, the_table_has_the_failures_of_other_nodes)
{
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);
    const char *fail = e2e_script("fail", "#!/bin/sh\n: > here.$RANK\n"
                                          "until [ -e here.0 -a -e here.1 ]; do sleep 0.01; done\n"
                                          "echo rank $RANK says why >&2\nexit $((RANK + 3))\n");

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank",
                  i == 0 ? "0" : "1", "--join_timeout=20s", fail, NULL);
    for (int i = 0; i < 2; i++) {
        int status = proc_finish(&nodes[i], 30);
        bool is_cause = status == 3 + i;
        cr_assert(status == 3 || status == 4, "%s", ct_buf_str(&nodes[i].text));
        e2e_wrote(&nodes[i], "Failures:\n[1]:\n");
        e2e_wrote(&nodes[i], "  rank      : 0 (local_rank: 0)\n  exitcode  : 3 (pid: ");
        e2e_wrote(&nodes[i], "  rank      : 1 (local_rank: 0)\n  exitcode  : 4 (pid: ");
        /* The last words of the cause are quoted above the table, those of others in it. */
        if (is_cause)
            e2e_wrote(&nodes[i],
                      i == 0 ? "traceback : rank 1 says why" : "traceback : rank 0 says");
    }
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 10);
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    proc_free(&daemon);
}

Test(failures, a_restart_says_what_the_error_was)
{
    struct proc run;
    const char *fail = e2e_script(
        "fail", "#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n" FAIL_WITH_FILE(
                    "MemoryError: too much") "exit 3\n");

    cr_assert_eq(e2e_run(&run, "--max_restarts=1", fail, NULL), 0);
    e2e_said(&run, " exited with status 3 (MemoryError: too much); restart 1 of 1 follows\n");
    proc_free(&run);
}

Test(failures, without_error_file_the_table_shows_how_each_worker_ended)
{
    struct proc run;
    const char *fail = e2e_script("fail", "#!/bin/sh\n[ $RANK = 1 ] && kill -SEGV $$\n"
                                          "exec sleep 600\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", "--log_dir=logs", fail, NULL),
                 128 + SIGSEGV);
    e2e_wrote(&run, "  exitcode  : -11 (pid: ");
    e2e_wrote(&run,
              ")  (SIGSEGV)\n  error_file: <N/A>\n  traceback : Signal 11 (SIGSEGV) received");
    proc_free(&run);
}

/* How many folders of error files lie in the test's own TMPDIR. */
static int leftovers(void)
{
    struct dirent *entry;
    int count = 0;
    DIR *folder = opendir("tmp");

    cr_assert_not_null(folder);
    while ((entry = readdir(folder)) != NULL)
        count += strncmp(entry->d_name, "ctrun-errors-", 13) == 0;
    (void)closedir(folder);
    return count;
}

Test(failures, without_logs_only_an_error_file_that_was_named_stays)
{
    struct proc run;
    const char *fail = e2e_script(
        "fail", "#!/bin/sh\n[ $1 = well ] && exit 0\n" FAIL_WITH_FILE("E: x") "exit 3\n");
    const char *const well[] = {proc_program("ctrun"), fail, "well", NULL};
    const char *const badly[] = {proc_program("ctrun"), fail, "badly", NULL};
    char tmp[4096];
    const char *const env[] = {tmp, NULL};

    (void)snprintf(tmp, sizeof tmp, "TMPDIR=%s", e2e_in_folder("tmp"));
    cr_assert_eq(mkdir("tmp", 0700), 0);
    cr_assert_eq(proc_run(&run, well, env, 20), 0);
    cr_assert_eq(leftovers(), 0);
    proc_free(&run);
    cr_assert_eq(proc_run(&run, badly, env, 20), 3);
    cr_assert_eq(leftovers(), 1);
    (void)e2e_glob("tmp/ctrun-errors-*/attempt_0_g1_0_error.json");
    proc_free(&run);
}

static bool nothing_is_left(void *context)
{
    (void)context;
    return leftovers() == 0;
}

Test(failures, a_killed_ctrun_leaves_no_folder)
{
    struct proc run;
    const char *nap = e2e_script("nap", "#!/bin/sh\necho > $TORCHELASTIC_ERROR_FILE\n"
                                        "echo $$ > pid\nexec sleep 600\n");
    const char *const argv[] = {proc_program("ctrun"), nap, NULL};
    char tmp[4096];
    const char *const env[] = {tmp, NULL};

    (void)snprintf(tmp, sizeof tmp, "TMPDIR=%s", e2e_in_folder("tmp"));
    cr_assert_eq(mkdir("tmp", 0700), 0);
    proc_start(&run, argv, env);
    pid_t worker = atoi(e2e_wait_file("pid", 20));
    cr_assert_eq(leftovers(), 1);
    cr_assert_eq(kill(run.pid, SIGKILL), 0);
    proc_until(nothing_is_left, NULL, 10, "an empty folder for temporary files");
    e2e_wait_gone(worker, 2);
    (void)proc_finish(&run, 5);
    proc_free(&run);
}

Test(failures, a_launcher_of_launchers_reads_how_a_worker_of_a_worker_failed)
{
    struct proc run;
    const char *fail = e2e_script("fail", "#!/bin/sh\n" FAIL_WITH_FILE("E: deep down") "exit 5\n");
    const char *ctrun = proc_program("ctrun");

    cr_assert_eq(
        e2e_run(&run, "--log_dir=outer", "--no-python", ctrun, "--log_dir=inner", fail, NULL), 5);
    e2e_wrote(&run, "[0:0]   | E: deep down\n[0:0] ======");
    e2e_wrote(&run, "\n  | E: deep down\n======");
    cr_assert_not_null(
        strstr(e2e_read(e2e_glob("outer/none_*/attempt_0_g1/0/error.json")), "\"errorCode\": 5}}"));
    proc_free(&run);
}

Test(failures, a_failure_without_error_file_gets_one_in_the_log_folder)
{
    struct proc run;
    const char *fail = e2e_script("fail", "#!/bin/sh\necho last words >&2\nexit 6\n");

    cr_assert_eq(e2e_run(&run, "--log_dir=logs", fail, NULL), 6);
    const char *text = e2e_read(e2e_glob("logs/none_*/attempt_0_g1/0/error.json"));
    cr_assert_not_null(strstr(text, "{\"message\": {\"message\": \"last words\", \"extraInfo\": "));
    cr_assert_not_null(strstr(text, "\"errorCode\": 6}}"));
    proc_free(&run);
}

Test(failures, the_first_node_shows_the_error_file_of_another)
{
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);
    const char *fail =
        e2e_script("fail", "#!/bin/sh\n[ $RANK = 1 ] || exec sleep 600\n" FAIL_WITH_FILE(
                               "ValueError: far away") "exit 9\n");

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--log_dir=logs",
                  i == 0 ? "--node_rank=0" : "--node_rank=1", fail, NULL);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 9, "%s", ct_buf_str(&nodes[i].text));
        e2e_said(&nodes[i], "failed: rank 1 (node 1, host ");
        e2e_wrote(&nodes[i], "  rank      : 1 (local_rank: 0)\n  exitcode  : 9 (pid: ");
        e2e_wrote(&nodes[i], "/attempt_0_g1/0/error.json\n  traceback : Traceback (most recent");
        e2e_wrote(&nodes[i], "\n  ValueError: far away\n======");
        proc_free(&nodes[i]);
    }
    (void)e2e_glob("logs/none_*_*/attempt_0_g1/0/error.json");
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon, 10), 0);
    proc_free(&daemon);
}

/* ---- the log tree --------------------------------------------------------------------------- */

Test(failures, each_attempt_and_each_run_keeps_its_own_logs)
{
    struct proc run;
    const char *fail =
        e2e_script("fail", "#!/bin/sh\necho \"attempt $TORCHELASTIC_RESTART_COUNT\"\n"
                           "[ $TORCHELASTIC_RESTART_COUNT = 2 ]\n");

    for (int i = 0; i < 2; i++) {
        cr_assert_eq(e2e_run(&run, "--rdzv_id", i == 0 ? "a/b" : "c", "--max_restarts=2",
                             "--log_dir=logs", fail, NULL),
                     0);
        proc_free(&run);
    }
    cr_assert_str_eq(e2e_read(e2e_glob("logs/a_b_*/attempt_0_g1/0/stdout.log")), "attempt 0\n");
    cr_assert_str_eq(e2e_read(e2e_glob("logs/a_b_*/attempt_1_g2/0/stdout.log")), "attempt 1\n");
    cr_assert_str_eq(e2e_read(e2e_glob("logs/c_*/attempt_2_g3/0/stdout.log")), "attempt 2\n");
}

Test(failures, with_dev_null_as_log_folder_there_are_neither_logs_nor_error_files)
{
    struct proc run;
    const char *show = e2e_script("show", "#!/bin/sh\necho \"<$TORCHELASTIC_ERROR_FILE>\"\n"
                                          "echo hidden >&2\n");

    cr_assert_eq(e2e_run(&run, "--log_dir=/dev/null", "--redirects=2", show, NULL), 0);
    cr_assert_str_eq(ct_buf_str(&run.text), "[0:0] <>\n");
    proc_free(&run);
}

/* ---- signals -------------------------------------------------------------------------------- */

/* Two workers that note each signal; `ready.RANK` is there when they listen. */
static void start_listeners(struct proc *run, const char *option)
{
    const char *listen = e2e_script(
        "listen", "#!/bin/sh\nfor s in HUP INT QUIT TERM; do\n"
                  "  trap \"echo got $s; echo $s > ended.$RANK; exit 0\" $s\ndone\n"
                  "for s in USR1 USR2; do trap \"echo got $s; echo $s >> passed.$RANK\" $s; done\n"
                  "echo $$ > ready.$RANK.new\nmv ready.$RANK.new ready.$RANK\n"
                  "while :; do sleep 0.02; done\n");

    e2e_start(run, "--nproc_per_node=2", "--grace=5s", option, listen, NULL);
    (void)e2e_wait_file("ready.0", 20);
    (void)e2e_wait_file("ready.1", 20);
}

Test(failures, workers_end_by_the_signal_that_ctrun_got)
{
    static const struct {
        int signal;
        const char *name;
    } rows[] = {{SIGHUP, "HUP\n"}, {SIGTERM, "TERM\n"}, {SIGQUIT, "QUIT\n"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct proc run;
        start_listeners(&run, "--grace=5s");
        cr_assert_eq(kill(run.pid, rows[i].signal), 0);
        cr_assert_eq(proc_finish(&run, 10), 128 + rows[i].signal);
        cr_assert_str_eq(e2e_read("ended.0"), rows[i].name);
        cr_assert_str_eq(e2e_read("ended.1"), rows[i].name);
        for (int rank = 0; rank < 2; rank++)
            (void)unlink(rank == 0 ? "ready.0" : "ready.1");
        proc_free(&run);
    }
}

Test(failures, user_signals_reach_every_worker_and_the_job_goes_on)
{
    struct proc run;

    start_listeners(&run, "--grace=5s");
    cr_assert_eq(kill(run.pid, SIGUSR1), 0);
    cr_assert_str_eq(e2e_wait_file("passed.0", 10), "USR1\n");
    cr_assert_str_eq(e2e_wait_file("passed.1", 10), "USR1\n");
    cr_assert_eq(kill(run.pid, SIGUSR2), 0);
    (void)proc_wait_text(&run, "[0:0] got USR2", 10);
    (void)proc_wait_text(&run, "[0:1] got USR2", 10);
    cr_assert_not(e2e_exists("ended.0") || e2e_exists("ended.1"));
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&run, 10), 128 + SIGTERM);
    proc_free(&run);
}

Test(failures, the_lists_of_signals_are_the_users)
{
    struct proc run;

    start_listeners(&run, "--signals-to-handle=SIGUSR1,SIGTERM");
    cr_assert_eq(kill(run.pid, SIGUSR2), 0);
    (void)proc_wait_text(&run, "[0:1] got USR2", 10);
    cr_assert_eq(kill(run.pid, SIGUSR1), 0);
    (void)proc_wait_text(&run, "[0:1] got USR1", 10);
    /* They do not end by it: the grace does. */
    cr_assert_eq(proc_finish(&run, 15), 128 + SIGUSR1);
    proc_free(&run);
}

Test(failures, sigterm_gives_workers_their_grace)
{
    struct proc run;
    const char *save =
        e2e_script("save", "#!/bin/sh\ntrap 'sleep 0.7; echo saved > saved; exit 0' TERM\n"
                           ": > listens\necho x > ready\nwhile :; do sleep 0.02; done\n");

    e2e_start(&run, "--grace=20s", save, NULL);
    (void)e2e_wait_file("ready", 20);
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&run, 15), 128 + SIGTERM);
    cr_assert_str_eq(e2e_read("saved"), "saved\n");
    proc_free(&run);
}

/* ---- orphans -------------------------------------------------------------------------------- */

/* A worker with two helpers: one in its process group, one that left it for a session of its own
 * once the worker was in a control group (or after a while). Their pids are in files. */
static void start_with_helpers(struct proc *run)
{
    const char *helpers = e2e_script(
        "helpers", "#!/bin/sh\nsleep 600 >/dev/null 2>&1 &\necho $! > near.new\nmv near.new near\n"
                   "i=0\nuntil grep -q ctrun- /proc/$$/cgroup || [ $i = 100 ]; do\n"
                   "  i=$((i + 1)); sleep 0.02\ndone\n"
                   "setsid sh -c 'echo $$ > far.new; mv far.new far; exec sleep 600' "
                   ">/dev/null 2>&1 &\n"
                   "cp /proc/$$/cgroup group\nexec sleep 600\n");

    e2e_start(run, helpers, NULL);
    (void)e2e_wait_file("near", 20);
    (void)e2e_wait_file("far", 20);
}

Test(failures, nothing_that_a_worker_started_outlives_a_killed_ctrun)
{
    struct proc run;

    start_with_helpers(&run);
    pid_t near = atoi(e2e_read("near")), far = atoi(e2e_read("far"));
    (void)e2e_wait_file("group", 20);
    cr_assert(proc_alive(near) && proc_alive(far));
    cr_assert_eq(kill(run.pid, SIGKILL), 0);
    e2e_wait_gone(near, 2);
    e2e_wait_gone(far, 2);
    cr_assert_eq(proc_finish(&run, 5), 128 + SIGKILL);
    proc_free(&run);
}

/* A worker whose helper leaves for a session of its own at once, before there can be a control
 * group, and has a child that lost its parent. Pids: `helper`, `orphan`. */
static const char *stray_script(void)
{
    return e2e_script("strays",
                      "#!/bin/sh\nsetsid sh -c '(setsid sh -c \"echo \\$\\$ > orphan.new; "
                      "mv orphan.new orphan; exec sleep 600\" &)\n"
                      "echo $$ > helper.new; mv helper.new helper; exec sleep 600' "
                      ">/dev/null 2>&1 &\n"
                      "until [ -e helper ] && [ -e orphan ] && [ \"$1\" != on ]; do sleep 0.02; "
                      "done\n");
}

/* They die within a second. */
static void kill_with_strays(const char *const *argv)
{
    struct proc run;

    proc_start(&run, argv, NULL);
    pid_t helper = atoi(e2e_wait_file("helper", 20)), orphan = atoi(e2e_wait_file("orphan", 20));
    cr_assert(proc_alive(helper) && proc_alive(orphan));
    cr_assert_eq(kill(run.pid, SIGKILL), 0);
    e2e_wait_gone(helper, 1);
    e2e_wait_gone(orphan, 1);
    (void)proc_finish(&run, 5);
    proc_free(&run);
}

Test(failures, what_left_its_workers_session_dies_with_a_killed_ctrun_without_a_control_group)
{
    const char *const argv[] = {proc_program("ctrun"), stray_script(), "on", NULL};

    kill_with_strays(argv);
}

Test(failures, what_left_its_workers_session_dies_with_a_killed_ctrun_of_an_ordinary_user)
{
    const char *const argv[] = {"setpriv",
                                "--reuid=65534",
                                "--regid=65534",
                                "--clear-groups",
                                proc_program("ctrun"),
                                stray_script(),
                                "on",
                                NULL};

    const char *const may[] = {"setpriv",
                               "--reuid=65534",
                               "--regid=65534",
                               "--clear-groups",
                               proc_program("ctrun"),
                               "--version",
                               NULL};
    struct proc run;

    if (getuid() != 0 || proc_run(&run, may, NULL, 20) != 0)
        cr_skip_test("skipped: only root can be another user, where that one may read ctrun");
    proc_free(&run);
    cr_assert_eq(chown(e2e_in_folder("."), 65534, 65534), 0);
    kill_with_strays(argv);
}

Test(failures, what_left_its_workers_session_dies_with_a_ctrun_that_ends_by_itself)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, stray_script(), NULL), 0);
    e2e_wait_gone(atoi(e2e_read("helper")), 1);
    e2e_wait_gone(atoi(e2e_read("orphan")), 1);
    proc_free(&run);
}

/* ---- the guard beside the workers ----------------------------------------------------------- */

/* A child has its agent's name until it gives itself one. */
static bool is_guard(void *path)
{
    return strcmp(e2e_read(path), "ctrun-guard\n") == 0;
}

/* ctrun-guard: the first child of the agent. */
static pid_t guard_of(const struct proc *agent)
{
    char path[96];
    int pid = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)agent->pid,
                   (int)agent->pid);
    cr_assert_eq(sscanf(e2e_read(path), "%d", &pid), 1);
    (void)snprintf(path, sizeof path, "/proc/%d/comm", pid);
    proc_until(is_guard, path, 10, "ctrun-guard");
    return pid;
}

Test(failures, who_has_a_workers_environment_but_another_parent_outlives_ctrun)
{
    const char *script = e2e_script("marked", "#!/bin/sh\necho \"CTRUN_MARKS=$CTRUN_MARKS\" > new\n"
                                              "mv new marks\nexec sleep 600\n");
    const char *const argv[] = {"sleep", "600", NULL};
    struct proc run, queued;
    char marks[512];

    e2e_start(&run, script, NULL);
    const char *env[] = {marks, NULL};
    (void)snprintf(marks, sizeof marks, "%s", e2e_wait_file("marks", 20));
    marks[strcspn(marks, "\n")] = '\0';
    cr_assert_geq(strlen(marks), sizeof "CTRUN_MARKS=" - 1 + 32);
    proc_start(&queued, argv, env);
    pid_t guard = guard_of(&run);
    cr_assert_eq(kill(run.pid, SIGKILL), 0);
    (void)proc_finish(&run, 5);
    proc_free(&run);
    e2e_wait_gone(guard, 5);
    cr_assert(proc_alive(queued.pid));
    cr_assert_eq(kill(queued.pid, SIGKILL), 0);
    (void)proc_finish(&queued, 5);
    proc_free(&queued);
}

Test(failures, a_guard_that_is_killed_is_told_with_what_is_lost_and_the_job_goes_on)
{
    const char *script = e2e_script("waits", "#!/bin/sh\n"
                                             "echo ready\n"
                                             "while [ ! -e go ]; do sleep 0.02; done\n");
    struct proc run;

    e2e_start(&run, "--nproc_per_node", "1", "--no-python", script, NULL);
    (void)proc_wait_text(&run, "ready", 20);
    pid_t guard = guard_of(&run);
    cr_assert_eq(kill(guard, SIGKILL), 0);
    (void)proc_wait_text(&run, "ctrun-guard, the process beside the workers, has ended by SIGKILL",
                         20);
    cr_assert_not(proc_alive(guard));
    (void)e2e_write("go", "1");
    cr_assert_eq(proc_finish(&run, 20), 0);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "ctrun-guard"), 1);
    e2e_said(&run, "what they have started lives on");
    proc_free(&run);
}

Test(failures, the_same_failure_again_and_again_ends_the_job_with_93_whatever_restarts_are_left)
{
    struct proc run;
    const char *name = e2e_write("loop.py", "import os\n"
                                            "def step():\n"
                                            "    raise ValueError(os.getpid())\n"
                                            "if os.environ['RANK'] == '1':\n"
                                            "    step()\n"
                                            "import signal\n"
                                            "signal.pause()\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", "--max_restarts=50",
                         "--same_failure_restarts=2", name, NULL),
                 93, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "restart 2 of 50 follows");
    e2e_not_said(&run, "restart 3 of 50");
    e2e_said(&run, "rank 1 has failed at the same place 3 times in a row without progress");
    e2e_said(&run, "/loop.py:3 (ValueError)");
    e2e_wrote(&run,
              "not restarted after 2 restarts, as it fails at the same place again and again; "
              "exit status 93");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", "--max_restarts=4",
                         "--same_failure_restarts=0", name, NULL),
                 1, "%s", ct_buf_str(&run.text));
    e2e_wrote(&run, "4 of 4 restarts were used; exit status 1");
    proc_free(&run);
}

Test(failures, an_orderly_end_says_nothing_of_the_guard)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", "--no-python", "/bin/true", NULL), 0);
    e2e_not_said(&run, "guard");
    proc_free(&run);
}
