/* PyTorch scripts (tests/e2e/torch), unchanged, run by ctrun and by torchrun with equal results.
 *
 * The interpreter is TEST_TORCH, or Debian's with python3-torch; the tests are skipped when it has
 * no PyTorch. ctrun serves the job's store in each of its three ways; torchrun is the same
 * PyTorch's own, through scripts/bench/torchrun.py. The scripts write what they found to a file,
 * and do their work in a function: a model that outlives its process group can hang PyTorch, and a
 * process group that outlives the interpreter can abort it. */
#include "e2e.h"
#include "nodes/cluster.h"
#include "speech.h"
#include "torch/interpreter.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORDS = 40, MODES = 3, SECONDS = 240 }; /* the last: for one run, on a busy machine */
static const char *const modes[MODES] = {"agent", "local", "rank0"};

static void leave(void)
{
    cluster_down();
    e2e_leave();
}

TestSuite(torch, .init = e2e_enter, .fini = leave, .timeout = 900);

/* Addresses that gloo and tensorpipe publish are those of `interface`. */
static const char *const *environment(const char *interface)
{
    static char words[3][300];
    static const char *list[] = {
        words[0], words[1], words[2], "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1", NULL};

    (void)snprintf(words[0], sizeof words[0], "PYTHON_EXEC=%s", torch_python());
    (void)snprintf(words[1], sizeof words[1], "GLOO_SOCKET_IFNAME=%s", interface);
    (void)snprintf(words[2], sizeof words[2], "TP_SOCKET_IFNAME=%s", interface);
    return list;
}

/* Put `first` and what follows it, up to NULL, behind the words that are there. */
static void add(const char *argv[WORDS], const char *first, va_list rest)
{
    size_t count = 0;

    while (argv[count] != NULL)
        count++;
    for (const char *word = first; word != NULL; word = va_arg(rest, const char *)) {
        cr_assert_lt(count + 1, WORDS);
        argv[count++] = word;
    }
    argv[count] = NULL;
}

static const char *script(const char *name)
{
    char path[64];

    (void)snprintf(path, sizeof path, "tests/e2e/torch/%s.py", name);
    return e2e_in_root(path);
}

/* Run options and a script with its arguments under ctrun, with the store in this mode. */
static void by_ctrun(struct proc *run, const char *mode, const char *first, ...)
{
    const char *argv[WORDS] = {proc_program("ctrun"), "--torch_store", mode};
    va_list rest;

    va_start(rest, first);
    add(argv, first, rest);
    va_end(rest);
    (void)proc_run(run, argv, environment("lo"), SECONDS);
}

/* The same under torchrun, which is told to look at its workers ten times a second. */
static void by_torchrun(struct proc *run, const char *first, ...)
{
    const char *argv[WORDS] = {torch_python(), e2e_in_root("scripts/bench/torchrun.py"),
                               "--standalone", "--monitor_interval", "0.1"};
    va_list rest;

    va_start(rest, first);
    add(argv, first, rest);
    va_end(rest);
    (void)proc_run(run, argv, environment("lo"), SECONDS);
}

static void succeeded(struct proc *run)
{
    cr_assert_eq(run->status, 0, "%s", ct_buf_str(&run->text));
    proc_free(run);
}

static void same_results(const char *one, const char *other)
{
    char *expected = strdup(e2e_read(one));

    cr_assert_not_null(expected);
    cr_assert_str_neq(expected, "", "%s is empty", one);
    cr_assert_str_eq(e2e_read(other), expected, "%s differs from %s", other, one);
    free(expected);
}

/* Nothing but the launchers differs. */
static void same_by_both(const char *mode, const char *workers, const char *name)
{
    struct proc run;

    by_ctrun(&run, mode, "--nproc_per_node", workers, script(name), "ours", NULL);
    succeeded(&run);
    by_torchrun(&run, "--nproc_per_node", workers, script(name), "theirs", NULL);
    succeeded(&run);
    same_results("theirs", "ours");
}

Test(torch, training_on_two_workers_gives_torchruns_bits)
{
    same_by_both("agent", "2", "ddp");
    cr_assert_geq(atof(strstr(e2e_read("ours"), "accuracy ") + strlen("accuracy ")), 0.95);
}

Test(torch, training_on_four_workers_gives_torchruns_bits)
{
    same_by_both("local", "4", "ddp");
}

Test(torch, sharded_training_gives_torchruns_losses)
{
    struct proc run;

    by_ctrun(&run, "agent", "--nproc_per_node", "2", script("fsdp"), "ours", NULL);
    succeeded(&run);
    if (strcmp(e2e_read("ours"), "not here\n") == 0)
        cr_skip_test("skipped: this PyTorch shards nothing on CPUs");
    by_torchrun(&run, "--nproc_per_node", "2", script("fsdp"), "theirs", NULL);
    succeeded(&run);
    same_results("theirs", "ours");
}

Test(torch, groups_objects_and_barriers_work_whoever_serves_the_store)
{
    struct proc run;

    by_torchrun(&run, "--nproc_per_node", "3", script("groups"), "theirs", NULL);
    succeeded(&run);
    for (int i = 0; i < MODES; i++) {
        by_ctrun(&run, modes[i], "--nproc_per_node", "3", script("groups"), modes[i], NULL);
        succeeded(&run);
        same_results("theirs", modes[i]);
    }
}

Test(torch, remote_procedure_calls_meet_over_the_store)
{
    same_by_both("local", "2", "rpc");
}

Test(torch, a_store_of_the_script_is_another_one_than_the_jobs)
{
    same_by_both("agent", "2", "own_store");
}

/* torchrun of 2.5 to 2.15 fails here: the first attempt's addresses are still in its store. */
Test(torch, a_rank_that_is_late_after_a_restart_meets_the_others)
{
    struct proc run;

    for (int i = 0; i < MODES; i++) {
        by_ctrun(&run, modes[i], "--nproc_per_node", "2", "--max_restarts", "1",
                 script("late_rank"), modes[i], NULL);
        e2e_said(&run, "restart 1 of 1 follows");
        succeeded(&run);
        cr_assert_str_eq(e2e_read(modes[i]), "sum 2.0\n");
    }
}

Test(torch, a_training_whose_worker_is_killed_goes_on_from_its_checkpoint_to_the_same_bits)
{
    struct proc run;
    const char *name = script("checkpoint");

    by_ctrun(&run, "agent", "--nproc_per_node", "2", name, "whole", "whole.pt", NULL);
    succeeded(&run);
    by_ctrun(&run, "agent", "--nproc_per_node", "2", "--max_restarts", "1", name, "ours", "ours.pt",
             "2", NULL);
    e2e_said(&run, "SIGKILL");
    succeeded(&run);
    /* With a store for all attempts, torchrun's second one may find the first one's addresses. */
    cr_assert_eq(setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1", 1), 0);
    by_torchrun(&run, "--nproc_per_node", "2", "--max_restarts", "1", name, "theirs", "theirs.pt",
                "2", NULL);
    succeeded(&run);
    same_results("theirs", "ours");
    const char *digest = strchr(e2e_read("whole"), '\n');
    cr_assert_not_null(digest);
    char *expected = strdup(digest);
    cr_assert_str_eq(e2e_read("ours") + strlen("found 2"), expected);
    free(expected);
}

/* ---- planted hangs -------------------------------------------------------------------------- */

/* A way to go wrong in planted.py, and what of the last rank is to be said. */
static const struct plant {
    const char *way, *workers;
    const char *place; /* the function in which the line is marked */
    const char *words;
} plants[] = {
    {"loop", "2", "(loop)", ", outside of any collective; rank 0 waits in all_reduce at "},
    {"stop", "2", "(stop)", "its process is stopped by a signal"},
    {"skip", "3", "(train)", "; 2 ranks wait in all_reduce at "},
    {"read", "2", "(read)", ", outside of any collective; rank 0 waits in all_reduce at "},
    {"loader", "2", "(train)",
     "; rank 0 waits in all_reduce at "}, /* after its child, with py-spy */
};

/* The line of planted.py that is marked with this way's name. */
static int marked_line(const char *way)
{
    char mark[32];
    int line = 1;

    (void)snprintf(mark, sizeof mark, "  # %s\n", way);
    const char *text = e2e_read(script("planted")), *found = strstr(text, mark);
    cr_assert_not_null(found, "no line of planted.py is marked with %s", way);
    for (; text < found; text++)
        line += *text == '\n';
    return line;
}

static void start_planted(struct proc *run, const struct plant *plant)
{
    const char *const argv[] = {proc_program("ctrun"),
                                "--nproc_per_node",
                                plant->workers,
                                "--hang_timeout=1s",
                                script("planted"),
                                plant->way,
                                NULL};

    proc_start(run, argv, environment("lo"));
}

static void is_named(struct proc *run, const struct plant *plant)
{
    char words[PATH_MAX + 64];

    cr_assert_eq(proc_finish(run, 120), 75, "%s: %s", plant->way, ct_buf_str(&run->text));
    (void)snprintf(words, sizeof words, "rank %d (host ", atoi(plant->workers) - 1);
    e2e_said(run, words);
    (void)snprintf(words, sizeof words, "/planted.py:%d %s", marked_line(plant->way), plant->place);
    const char *hangs = strstr(ct_buf_str(&run->text), " hangs");
    cr_assert(hangs != NULL && strstr(hangs, words) != NULL, "%s: no \"%s\" in %s", plant->way,
              words, ct_buf_str(&run->text));
    e2e_said(run, plant->words);
    proc_free(run);
}

Test(torch, planted_hangs_of_scripts_are_named_with_rank_file_line_and_collective)
{
    struct proc runs[CT_COUNT(plants)];

    (void)torch_python();
    cr_assert_eq(mkfifo("fifo", 0600), 0);
    cr_assert_eq(setenv("PLANTED_FIFO", e2e_in_folder("fifo"), 1), 0);
    for (size_t i = 0; i < CT_COUNT(plants); i++)
        start_planted(&runs[i], &plants[i]);
    for (size_t i = 0; i < CT_COUNT(plants); i++)
        is_named(&runs[i], &plants[i]);
}

Test(torch, a_rank_that_has_left_out_a_collective_is_named_by_pytorchs_flight_recorder)
{
    const struct plant plant = {
        "behind", "3", "(lag)",
        "; it has called 5 collectives of group default_pg (0), others 6; "};
    struct proc run;

    if (getenv("TEST_TORCH") == NULL)
        cr_skip_test("skipped: PyTorch 1.13 has no flight recorder (scripts/test-torch)");
    start_planted(&run, &plant);
    is_named(&run, &plant);
}

/* CI takes 300 steps; PATIENT_STEPS=10000 PATIENT_SECONDS=60 is the whole measure. */
Test(torch, steps_with_jitter_an_evaluation_and_a_checkpoint_twice_the_patience_are_no_hang)
{
    const char *steps = getenv("PATIENT_STEPS"), *seconds = getenv("PATIENT_SECONDS");
    char timeout[40], done[64];
    struct proc run;

    steps = steps != NULL ? steps : "300";
    seconds = seconds != NULL ? seconds : "4";
    (void)snprintf(timeout, sizeof timeout, "--hang_timeout=%ds", atoi(seconds) / 2);
    (void)snprintf(done, sizeof done, "done after %s steps", steps);
    const char *const argv[] = {proc_program("ctrun"),
                                "--nproc_per_node=2",
                                timeout,
                                script("patient"),
                                steps,
                                seconds,
                                NULL};
    cr_assert_eq(proc_run(&run, argv, environment("lo"), 800), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, done);
    e2e_not_said(&run, " hangs");
    proc_free(&run);
}

/* The error file that a launcher left, without the time in it and a last newline. */
static char *error_file(const char *path)
{
    char *text = strdup(e2e_read(path));

    cr_assert_not_null(text);
    char *at = strstr(text, "\"timestamp\": \"");
    cr_assert_not_null(at, "no time in %s: %s", path, text);
    at += strlen("\"timestamp\": \"");
    memset(at, '0', strspn(at, "0123456789"));
    text[strcspn(text, "\n")] = '\0'; /* JSON has none inside of texts */
    return text;
}

Test(torch, what_torchelastics_record_wrote_is_told_and_passed_on_as_torchrun_does)
{
    struct proc run;

    cr_assert_eq(setenv("TORCHELASTIC_ERROR_FILE", e2e_in_folder("ours.json"), 1), 0);
    by_ctrun(&run, "agent", "--nproc_per_node", "2", script("record"), NULL);
    cr_assert_eq(run.status, 1, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "ctrun: job failed: rank 1");
    e2e_said(&run, "\n  | ValueError: the learning rate is a banana\n");
    const char *table = strstr(ct_buf_str(&run.text), "Root Cause (first observed failure):");
    cr_assert(table != NULL || speech_is_json(), "%s", ct_buf_str(&run.text));
    e2e_wrote(&run, "rank      : 1 (local_rank: 1)");
    cr_assert(table == NULL || strstr(table, "raise ValueError(") != NULL, "%s", table);
    proc_free(&run);

    cr_assert_eq(setenv("TORCHELASTIC_ERROR_FILE", e2e_in_folder("theirs.json"), 1), 0);
    by_torchrun(&run, "--nproc_per_node", "2", script("record"), NULL);
    cr_assert_eq(run.status, 1, "%s", ct_buf_str(&run.text));
    char *ours = error_file("ours.json"), *theirs = error_file("theirs.json");
    cr_assert_str_eq(ours, theirs);
    free(ours);
    free(theirs);
    proc_free(&run);
}

/* Two hosts in namespaces with a worker each. */
static void on_two_hosts(const char *mode, const char *key)
{
    struct proc hosts[2];

    for (int i = 0; i < 2; i++) {
        const char *argv[WORDS] = {"env"};
        const char *const *list = environment("eth0");
        size_t count = 1;
        const char *const words[] = {proc_program("ctrun"),
                                     "--torch_store",
                                     mode,
                                     "--nnodes=2",
                                     i == 0 ? "--node_rank=0" : "--node_rank=1",
                                     "--rdzv_endpoint=10.78.0.1:29400",
                                     "--key_file",
                                     key,
                                     script("ddp"),
                                     mode,
                                     NULL};

        while (*list != NULL)
            argv[count++] = *list++;
        memcpy(argv + count, words, sizeof words);
        cluster_start(&hosts[i], i, argv);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&hosts[i], SECONDS), 0, "%s", ct_buf_str(&hosts[i].text));
        proc_free(&hosts[i]);
    }
}

Test(torch, two_hosts_train_to_the_bits_of_one)
{
    struct proc run;

    (void)torch_python();
    cluster_up(2);
    cr_assert_eq(e2e_run(&run, "key", "new", "key", NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    by_ctrun(&run, "agent", "--nproc_per_node", "2", script("ddp"), "one", NULL);
    succeeded(&run);
    for (int i = 0; i < MODES; i++) {
        on_two_hosts(modes[i], "key");
        same_results("one", modes[i]);
    }
}
