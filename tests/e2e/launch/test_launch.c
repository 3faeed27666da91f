/* Launching programs on one node: environment, output, statuses, signals, restarts.
 *
 * The programs are small shell scripts, so that each test shows what a worker saw or did. */
#include "e2e.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(launch, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

Test(launch, eight_workers_of_true_end_with_zero_and_say_nothing)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "8", "--no-python", "/bin/true", NULL), 0);
    cr_assert_str_eq(ct_buf_str(&run.text), "");
    proc_free(&run);
}

Test(launch, each_worker_gets_torchelastics_environment)
{
    struct proc run;
    const char *show =
        e2e_script("show", "#!/bin/sh\necho \"rank=$RANK local=$LOCAL_RANK world=$WORLD_SIZE "
                           "lworld=$LOCAL_WORLD_SIZE group=$GROUP_RANK/$GROUP_WORLD_SIZE "
                           "role=$ROLE_NAME:$ROLE_RANK/$ROLE_WORLD_SIZE "
                           "restarts=$TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS "
                           "id=$TORCHELASTIC_RUN_ID at=$MASTER_ADDR\"\n");

    cr_assert_eq(
        e2e_run(&run, "--nproc-per-node=3", "--max-restarts=2", "--rdzv-id=night", show, NULL), 0);
    for (int rank = 0; rank < 3; rank++) {
        char line[256];
        (void)snprintf(line, sizeof line,
                       "[0:%d] rank=%d local=%d world=3 lworld=3 group=0/1 role=default:%d/3 "
                       "restarts=0/2 id=night at=127.0.0.1\n",
                       rank, rank, rank, rank);
        e2e_said(&run, line);
    }
    proc_free(&run);
}

Test(launch, arguments_reach_the_program_untouched)
{
    struct proc run;
    const char *show = e2e_script("show", "#!/bin/sh\nfor w in \"$@\"; do echo \"<$w>\"; done\n");

    cr_assert_eq(e2e_run(&run, show, "--nnodes", "9", "a b", "", "--seed=x", "-h", NULL), 0);
    e2e_said(&run, "<--nnodes>\n");
    e2e_said(&run, "<a b>\n");
    e2e_said(&run, "<>\n");
    e2e_said(&run, "<--seed=x>\n");
    e2e_said(&run, "<-h>\n");
    proc_free(&run);
}

Test(launch, the_status_of_a_failed_worker_is_the_status_of_ctrun)
{
    struct proc run;
    const char *fail = e2e_script("fail", "#!/bin/sh\n[ \"$RANK\" = 1 ] || exec sleep 600\n"
                                          "echo last words >&2\nexit 37\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "3", fail, NULL), 37);
    cr_assert_lt(run.seconds, 5, "the others are ended at once");
    e2e_said(&run, "rank 1");
    e2e_said(&run, "37");
    e2e_said(&run, "last words");
    proc_free(&run);
}

Test(launch, a_signal_becomes_128_plus_its_number_and_is_named)
{
    struct proc run;
    const char *fail = e2e_script("fail", "#!/bin/sh\nkill -SEGV $$\n");

    cr_assert_eq(e2e_run(&run, fail, NULL), 128 + SIGSEGV);
    e2e_said(&run, "SIGSEGV");
    proc_free(&run);
}

Test(launch, a_failure_within_the_budget_restarts_every_worker)
{
    struct proc run;
    const char *once =
        e2e_script("once", "#!/bin/sh\necho \"attempt $TORCHELASTIC_RESTART_COUNT\"\n"
                           "if [ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ]; then\n"
                           "  [ \"$RANK\" = 1 ] && exit 3\n  exec sleep 600\nfi\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", "--max_restarts", "1", once, NULL), 0);
    e2e_said(&run, "[0:0] attempt 1\n");
    e2e_said(&run, "[0:1] attempt 1\n");
    proc_free(&run);
}

Test(launch, beyond_the_budget_the_job_ends_with_the_workers_status)
{
    struct proc run;
    const char *fail =
        e2e_script("fail", "#!/bin/sh\necho \"attempt $TORCHELASTIC_RESTART_COUNT\"\n"
                           "exit 9\n");

    cr_assert_eq(e2e_run(&run, "--max_restarts", "2", fail, NULL), 9);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "[0:0] attempt 2\n"), 1);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "[0:0] attempt 3\n"), 0);
    proc_free(&run);
}

/* Start two workers that write their pids and wait for ever; returns the pids. */
static void start_sleepers(struct proc *run, pid_t pids[2])
{
    const char *nap = e2e_script("nap", "#!/bin/sh\necho $$ > pid.$RANK.new\n"
                                        "mv pid.$RANK.new pid.$RANK\nexec sleep 600\n");

    e2e_start(run, "--nproc_per_node", "2", nap, NULL);
    pids[0] = atoi(e2e_wait_file("pid.0", 20));
    pids[1] = atoi(e2e_wait_file("pid.1", 20));
    cr_assert(pids[0] > 0 && pids[1] > 0);
}

Test(launch, no_worker_outlives_a_killed_ctrun_by_a_second)
{
    struct proc run;
    pid_t pids[2];

    start_sleepers(&run, pids);
    cr_assert_eq(kill(run.pid, SIGKILL), 0);
    e2e_wait_gone(pids[0], 1);
    e2e_wait_gone(pids[1], 1);
    cr_assert_eq(proc_finish(&run, 5), 128 + SIGKILL);
    proc_free(&run);
}

Test(launch, control_c_stops_cleanly_with_one_line)
{
    struct proc run;
    pid_t pids[2];

    start_sleepers(&run, pids);
    double start = proc_now_s();
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 5), 130);
    cr_assert_lt(proc_now_s() - start, 2);
    cr_assert_not(proc_alive(pids[0]) || proc_alive(pids[1]));
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n"), 1, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

Test(launch, sigterm_ends_with_143)
{
    struct proc run;
    pid_t pids[2];

    start_sleepers(&run, pids);
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&run, 5), 143);
    cr_assert_not(proc_alive(pids[0]) || proc_alive(pids[1]));
    proc_free(&run);
}

Test(launch, a_killed_worker_is_reported_with_its_rank_pid_and_signal)
{
    struct proc run;
    pid_t pids[2];
    char words[32];

    start_sleepers(&run, pids);
    cr_assert_eq(kill(pids[1], SIGKILL), 0);
    cr_assert_eq(proc_finish(&run, 10), 128 + SIGKILL);
    (void)snprintf(words, sizeof words, "%d", (int)pids[1]);
    e2e_said(&run, words);
    e2e_said(&run, "rank 1");
    e2e_said(&run, "SIGKILL");
    cr_assert_not(proc_alive(pids[0]));
    proc_free(&run);
}

Test(launch, a_worker_deaf_to_sigterm_is_killed_after_the_grace)
{
    struct proc run;
    const char *deaf = e2e_script("deaf", "#!/bin/sh\n[ \"$RANK\" = 1 ] && {\n"
                                          "  while [ ! -e ready ]; do sleep 0.01; done; exit 4; }\n"
                                          "trap '' TERM\n: > ready\n"
                                          "while :; do sleep 0.05; done\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", "--grace", "300ms", deaf, NULL), 4);
    cr_assert_lt(run.seconds, 5);
    proc_free(&run);
}

Test(launch, grandchildren_do_not_outlive_the_job)
{
    struct proc run;
    const char *fork =
        e2e_script("fork", "#!/bin/sh\nsleep 600 >/dev/null 2>&1 &\necho $! > pid\n");

    cr_assert_eq(e2e_run(&run, fork, NULL), 0);
    e2e_wait_gone(atoi(e2e_read("pid")), 2);
    proc_free(&run);
}

Test(launch, lines_of_many_workers_are_never_mixed)
{
    struct proc run;
    const char *talk = e2e_script("talk", "#!/bin/sh\ni=0\nwhile [ $i -lt 400 ]; do\n"
                                          "  printf 'part one of %d, ' $i\n"
                                          "  echo \"part two of $i\"\n  i=$((i + 1))\ndone\n");
    int whole = 0;
    int lines = 0;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "4", talk, NULL), 0);
    char *text = run.text.data;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        int rank;
        int first;
        int second;
        int used = -1;
        lines++;
        if (sscanf(line, "[0:%d] part one of %d, part two of %d%n", &rank, &first, &second,
                   &used) == 3 &&
            first == second && used == (int)strlen(line))
            whole++;
    }
    cr_assert_eq(lines, 1600);
    cr_assert_eq(whole, 1600);
    proc_free(&run);
}

Test(launch, a_flood_of_one_worker_does_not_hold_back_another)
{
    struct proc run;
    const char *flood = e2e_script("flood", "#!/bin/sh\nif [ \"$RANK\" = 0 ]; then\n"
                                            "  yes flooding | head -n 300000\nelse\n"
                                            "  echo a calm word\nfi\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", flood, NULL), 0);
    e2e_said(&run, "[0:1] a calm word\n");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "[0:0] flooding\n"), 300000);
    proc_free(&run);
}

Test(launch, a_line_without_an_end_is_still_shown)
{
    struct proc run;
    const char *half = e2e_script("half", "#!/bin/sh\nprintf 'no newline'\n");

    cr_assert_eq(e2e_run(&run, half, NULL), 0);
    e2e_said(&run, "[0:0] no newline\n");
    proc_free(&run);
}

Test(launch, a_worker_that_closes_its_output_goes_on)
{
    struct proc run;
    const char *quiet = e2e_script("quiet", "#!/bin/sh\nexec >&- 2>&-\necho $RANK > done.$RANK\n");

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", quiet, NULL), 0);
    cr_assert(e2e_exists("done.0") && e2e_exists("done.1"));
    proc_free(&run);
}

Test(launch, logs_go_to_a_file_per_rank_on_request)
{
    struct proc run;
    const char *talk = e2e_script("talk", "#!/bin/sh\necho out $RANK\necho err $RANK >&2\n");

    cr_assert_eq(
        e2e_run(&run, "--nproc_per_node", "2", "--log_dir", "logs", "--redirects", "3", talk, NULL),
        0);
    e2e_not_said(&run, "out 1");
    cr_assert_str_eq(e2e_read(e2e_glob("logs/none_*/attempt_0_g1/0/stdout.log")), "out 0\n");
    cr_assert_str_eq(e2e_read(e2e_glob("logs/none_*/attempt_0_g1/1/stderr.log")), "err 1\n");
    proc_free(&run);
}

Test(launch, threads_a_worker_are_its_share_of_the_cores_unless_set)
{
    struct proc run;
    const char *show = e2e_script("show", "#!/bin/sh\necho \"threads $OMP_NUM_THREADS\"\n");
    const char *const argv[] = {proc_program("ctrun"), "--nproc_per_node", "64", show, NULL};
    const char *const env[] = {"OMP_NUM_THREADS=7", NULL};

    (void)unsetenv("OMP_NUM_THREADS");
    cr_assert_eq(proc_run(&run, argv, NULL, 30), 0);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "threads 1\n"), 64);
    proc_free(&run);
    cr_assert_eq(proc_run(&run, argv, env, 30), 0);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "threads 7\n"), 64);
    proc_free(&run);
}

Test(launch, a_python_script_runs_unbuffered_with_its_arguments)
{
    struct proc run;
    const char *script =
        e2e_write("train.py", "import os, sys\n"
                              "print('python', os.environ['RANK'], sys.argv[1:])\n");

    if (access("/usr/bin/python3", X_OK) != 0)
        cr_skip_test("skipped: no python3 on this machine");
    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", script, "--lr", "3e-4", NULL), 0);
    e2e_said(&run, "[0:0] python 0 ['--lr', '3e-4']\n");
    e2e_said(&run, "[0:1] python 1 ['--lr', '3e-4']\n");
    proc_free(&run);
}

Test(launch, help_and_version_are_there)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--help", NULL), 0);
    e2e_said(&run, "--nproc_per_node");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--version", NULL), 0);
    e2e_said(&run, "ctrun ");
    proc_free(&run);
}

Test(launch, a_misspelt_subcommand_is_told_what_may_be_meant)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "staus", NULL), 66);
    e2e_said(&run, "the program staus was not found");
    e2e_said(&run, "did you mean ctrun status?");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "sort", NULL), 2, "in PATH, and not run");
    e2e_said(&run, "write: ctrun -- sort (or --no_python sort)");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "./staus", NULL), 66);
    e2e_not_said(&run, "did you mean");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "help", "plna", NULL), 2);
    e2e_said(&run, "did you mean plan?");
    proc_free(&run);
}

Test(launch, nothing_of_path_runs_unless_told_to_and_a_file_here_needs_no_slash)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "hostname", NULL), 2, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "hostname is neither a subcommand nor an executable file here; to run ");
    e2e_said(&run, "/hostname, write: ctrun -- hostname (or --no_python hostname)\n");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--", "printf", "ran", NULL), 0);
    e2e_said(&run, "[0:0] ran");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--no-python", "printf", "ran", NULL), 0);
    e2e_said(&run, "[0:0] ran");
    proc_free(&run);
    (void)e2e_script("x.sh", "#!/bin/sh\necho here $*\n");
    cr_assert_eq(e2e_run(&run, "x.sh", "1", NULL), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "[0:0] here 1");
    proc_free(&run);
}

/* Words of whose program, with nowhere to go. */
static void expect_74(const char *program, const char *words)
{
    const char *argv[] = {"/bin/sh", "-c", NULL, proc_program(program), NULL};
    char line[200];
    struct proc run;

    (void)snprintf(line, sizeof line, "exec \"$0\" %s > /dev/full", words);
    argv[2] = line;
    int status = proc_run(&run, argv, NULL, 30);
    cr_expect_eq(status, 74, "%s %s: %d\n%s", program, words, status, ct_buf_str(&run.text));
    proc_free(&run);
}

Test(launch, help_that_cannot_be_written_ends_with_74)
{
    static const char *const words[] = {
        "help",          "version",      "--help",        "bench --help",  "config --schema",
        "config --help", "config --man", "plan --help",   "key --help",    "sample --help",
        "export --help", "slurm --help", "status --help", "flight --help", "gpus --help",
    };

    for (size_t i = 0; i < CT_COUNT(words); i++)
        expect_74("ctrun", words[i]);
    expect_74("ctworker", "--help");
    expect_74("ctrund", "--help");
}

Test(launch, figures_that_cannot_be_written_end_with_74)
{
    expect_74("ctrun", "bench collectives --nproc_per_node=1 --max=8 --iters=1");
    expect_74("ctrun", "bench collectives --nproc_per_node=2 --max=8 --iters=1");
}

Test(launch, output_that_a_full_disk_does_not_take_is_told_once_and_the_job_goes_on)
{
    const char *argv[] = {"/bin/sh", "-c",
                          "\"$0\" --nproc_per_node 2 /bin/sh -c 'echo one; echo two' > /dev/full",
                          proc_program("ctrun"), NULL};
    struct proc run;

    cr_assert_eq(proc_run(&run, argv, NULL, 20), 0);
    e2e_said(&run, "standard output cannot be written: No space left on device");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "cannot be written"), 1);
    proc_free(&run);
}

/* ---- a reader that leaves ------------------------------------------------------------------- */

/* Run `line` in a shell; it ends by printing the status of ctrun, "$0". */
static void run_piped(struct proc *run, const char *line)
{
    const char *argv[] = {"/bin/bash", "-c", line, proc_program("ctrun"), NULL};

    cr_assert_eq(proc_run(run, argv, NULL, 30), 0, "%s", ct_buf_str(&run->text));
}

Test(launch, a_program_ends_with_the_reader_of_its_output_as_it_would_without_ctrun)
{
    static const char *const lines[] = {
        "\"$0\" -- yes | head -1; echo status ${PIPESTATUS[0]}",
        ("\"$0\" --nproc_per_node 3 --max_restarts 2 -- yes | (sleep 0.3; head -c 10); "
         "echo status ${PIPESTATUS[0]}"),
        "\"$0\" -- yes 2>&1 | head -1; echo status ${PIPESTATUS[0]}",
    };
    struct proc run;

    for (size_t i = 0; i < CT_COUNT(lines); i++) {
        run_piped(&run, lines[i]);
        e2e_said(&run, "status 141");
        e2e_not_said(&run, "ctrun:");
        proc_free(&run);
    }
}

Test(launch, what_is_kept_in_a_file_goes_on_without_the_reader_of_the_console)
{
    struct proc run;

    run_piped(&run, "\"$0\" --log_dir logs --no_python sh -c "
                    "'for i in 1 2 3 4 5 6 7 8 9; do seq 10000; done; echo the last' | head -1; "
                    "echo status ${PIPESTATUS[0]}");
    e2e_said(&run, "status 0");
    proc_free(&run);
    cr_assert_not_null(strstr(e2e_read(e2e_glob("logs/none_*/*/0/stdout.log")), "the last"));
}

Test(launch, a_training_outlives_the_reader_of_its_output_and_says_once_that_it_is_gone)
{
    char line[4096];
    struct proc run;

    (void)snprintf(line, sizeof line,
                   "\"$0\" --train.epochs 1 --log.every '5 steps' '%s' | true; "
                   "echo status ${PIPESTATUS[0]}",
                   e2e_in_root("configs/digits_mlp.yaml"));
    run_piped(&run, line);
    e2e_said(&run, "status 0");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "standard output cannot be written: Broken pipe"),
                 1);
    proc_free(&run);
}

/* ---- log files that a full disk does not take ----------------------------------------------- */

Test(launch, a_log_file_that_cannot_be_written_is_named_at_once_and_at_the_end)
{
    struct proc run;

    /* EFBIG stands for ENOSPC: no file may be larger than 4 MiB. */
    run_piped(&run, "trap '' XFSZ; ulimit -f 4096; \"$0\" --nproc_per_node 1 --log_dir logs "
                    "--no_python sh -c 'seq 1000000; echo the last' > /dev/null; echo status $?");
    e2e_said(&run, "status 0");
    e2e_said(&run, "/0/stdout.log of local rank 0 is given up, the job goes on: File too large");
    e2e_said(&run, "1 log file is incomplete: ");
    e2e_said(&run, "/0/stdout.log: File too large");
    proc_free(&run);
}
