/* Runs as a user meets them: trained, interrupted, gone on with, trained again, listed, compared.
 */
#include "e2e.h"
#include "speech.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(runs, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

#define LATEST "runs/digits_mlp/latest"

/* The folder that `latest` names now. */
static const char *latest(char folder[PATH_MAX])
{
    char name[256] = "";

    cr_assert_gt(readlink(LATEST, name, sizeof name - 1), 0);
    (void)snprintf(folder, PATH_MAX, "runs/digits_mlp/%s", name);
    return folder;
}

static void train(const char *option, const char *value)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", e2e_in_root("configs/digits_mlp.yaml"), option,
                         value, NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* A training that never ends. */
static void start_long(struct proc *run, const char *workers, const char *every)
{
    e2e_start(run, workers, e2e_in_root("configs/digits_mlp.yaml"), "--train.epochs=1000000", every,
              "--eval.every=0", NULL);
}

/* How often each step has a line of its own in metrics.jsonl: at most once. */
static void expect_each_step_once(const char *folder)
{
    char path[PATH_MAX + 16], words[64];
    int last = 0;

    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    const char *text = e2e_read(path);
    cr_assert_gt(strlen(text), 0, "%s", path);
    for (const char *at = text; (at = strstr(at, "\"kind\":\"train\",\"step\":")) != NULL; at++) {
        int step = atoi(at + sizeof "\"kind\":\"train\",\"step\":" - 1);
        cr_assert_gt(step, last, "steps rise");
        (void)snprintf(words, sizeof words, "\"kind\":\"train\",\"step\":%d,", step);
        last = step;
    }
    cr_assert_eq(e2e_count(text, words), 1);
}

/* The round that wrote the newest checkpoint, of those of all jobs on the run; 0: none yet. */
static int round_of_latest(void)
{
    char path[PATH_MAX];
    int round = 0;

    if (!e2e_exists(LATEST "/checkpoints/latest"))
        return 0;
    (void)snprintf(path, sizeof path, LATEST "/checkpoints/%.*s/state.json",
                   (int)(sizeof "step_00000000" - 1), e2e_read(LATEST "/checkpoints/latest"));
    const char *at = e2e_exists(path) ? strstr(e2e_read(path), "\"generation\":") : NULL;
    return at != NULL && sscanf(at, "\"generation\": %d", &round) == 1 ? round : 0;
}

static bool second_round_saves(void *context)
{
    (void)context;
    return round_of_latest() == 2;
}

/* A job counts its rounds from 1, and the folder has checkpoints of the second round of another. */
Test(runs, a_run_that_was_restarted_once_goes_on_publishing_when_it_is_resumed)
{
    struct proc run;
    char first[PATH_MAX], steps[64], step[64];
    pid_t workers[2];

    e2e_start(&run, "--nproc_per_node=2", "--max_restarts=1",
              e2e_in_root("configs/digits_mlp.yaml"), "--train.epochs=1000000",
              "--checkpoint.every=20", "--eval.every=0", NULL);
    (void)e2e_wait_file(LATEST "/checkpoints/latest", 30);
    cr_assert_eq(e2e_workers(&run, workers, 2), 2);
    cr_assert_eq(kill(workers[1], SIGKILL), 0);
    proc_until(second_round_saves, NULL, 30, "a checkpoint of the second round");
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 30), 128 + SIGINT);
    int stopped = (int)proc_number_after(&run, "to continue from step");
    proc_free(&run);

    for (int more = 45; more <= 90; more += 45) {
        (void)snprintf(steps, sizeof steps, "--train.steps=%d", stopped + more);
        cr_assert_eq(e2e_run(&run, "resume", latest(first) + sizeof "runs", steps, NULL), 0, "%s",
                     ct_buf_str(&run.text));
        e2e_not_said(&run, "is not published");
        proc_free(&run);
        (void)snprintf(step, sizeof step, "step_%08d\n", stopped + more);
        cr_assert_str_eq(e2e_read(LATEST "/checkpoints/latest"), step);
        cr_assert_eq(round_of_latest(), 2 + more / 45);
    }
}

Test(runs, an_interrupted_training_goes_on_in_its_folder_and_others_have_theirs)
{
    struct proc run;
    char first[PATH_MAX], second[PATH_MAX], path[PATH_MAX + 64], steps[64], command[PATH_MAX];

    /* Interrupted: the last line says how to go on. */
    start_long(&run, "--nproc_per_node=2", "--checkpoint.every=20");
    (void)e2e_wait_file(LATEST "/checkpoints/latest", 30);
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 30), 128 + SIGINT);
    (void)latest(first);
    (void)snprintf(command, sizeof command, ": ctrun resume %.200s\n", first + sizeof "runs");
    e2e_said(&run, command);
    int stopped = (int)proc_number_after(&run, "to continue from step");
    cr_assert_gt(stopped, 0);
    proc_free(&run);

    /* Trained anew: nothing of the first is touched. */
    (void)snprintf(path, sizeof path, "%s/config.yaml", first);
    char *before = strdup(e2e_read(path));
    train("--train.epochs=5", "--optim.lr=0.02");
    cr_assert_str_neq(latest(second), first);
    cr_assert_str_eq(e2e_read(path), before);
    free(before);

    /* Gone on with, by name, for a few steps more. */
    (void)snprintf(steps, sizeof steps, "--train.steps=%d", stopped + 45);
    cr_assert_eq(e2e_run(&run, "resume", first + sizeof "runs", steps, NULL), 0, "%s",
                 ct_buf_str(&run.text));
    (void)snprintf(command, sizeof command, "ctrun: resuming %.200s from step %d (",
                   first + sizeof "runs", stopped);
    e2e_said(&run, command);
    e2e_said(&run, "45 steps on 2 workers");
    proc_free(&run);
    expect_each_step_once(first);
    (void)snprintf(path, sizeof path, "%s/checkpoints/step_%08d", first, stopped + 45);
    cr_assert(e2e_exists(path), "%s", path);
    cr_assert_str_eq(latest(path), second, "the newest is the one that began last");

    /* Listed, and compared. */
    cr_assert_eq(e2e_run(&run, "runs", NULL), 0);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), " finished\n"), 2, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "runs", first, "digits_mlp", NULL), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "\noptim.lr               0.01                         0.02\n");
    e2e_said(&run, "\nbest accuracy  ");
    proc_free(&run);
}

Test(runs, a_run_without_a_checkpoint_says_that_it_cannot_go_on)
{
    struct proc run;
    pid_t worker;

    start_long(&run, "--nproc_per_node=1", "--checkpoint.every=0");
    (void)e2e_wait_file(LATEST "/metrics.jsonl", 30);
    cr_assert_eq(e2e_workers(&run, &worker, 1), 1);
    cr_assert_eq(kill(worker, SIGKILL), 0);
    cr_assert_eq(proc_finish(&run, 30), 128 + SIGKILL);
    e2e_said(&run, " cannot be resumed: it has no checkpoint yet\n");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "runs", "--json", NULL), 0);
    e2e_said(&run, "\"how\":\"failed\"");
    e2e_said(&run, "\"status\":137");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "resume", "digits_mlp", NULL), 66);
    e2e_said(&run, "ctrun resume: error: digits_mlp/");
    e2e_said(&run, " has no checkpoint yet");
    proc_free(&run);
}

Test(runs, a_run_whose_launcher_was_killed_is_lost_and_can_be_resumed)
{
    struct proc run;

    start_long(&run, "--nproc_per_node=2", "--checkpoint.every=20");
    (void)e2e_wait_file(LATEST "/checkpoints/latest", 30);
    cr_assert_eq(kill(run.pid, SIGKILL), 0);
    (void)proc_finish(&run, 30);
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "runs", NULL), 0);
    e2e_said(&run, " lost\n");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "resume", "--train.steps=60", "--checkpoint.every=0", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    e2e_said(&run, "ctrun: resuming digits_mlp/");
    proc_free(&run);
}

Test(runs, what_is_no_run_is_said_with_what_to_write)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "runs", NULL), 0);
    cr_assert_str_eq(ct_buf_str(&run.text), "no runs in runs/\n");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "resume", "digits", NULL), 66);
    cr_assert_str_eq(ct_buf_str(&run.text), "ctrun resume: error: there is no run \"digits\"; "
                                            "`ctrun runs` lists them\n");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "runs", "a", "b", NULL), 66);
    proc_free(&run);
}

Test(runs, a_named_folder_that_holds_a_run_is_overwritten_only_when_told)
{
    static const char *const name = "configs/digits_mlp.yaml";
    struct proc run;

    train("--log.dir=mine", "--train.steps=40");
    char *before = strdup(e2e_read("mine/run.json"));
    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", e2e_in_root(name), "--log.dir=mine", NULL), 73,
                 "%s", ct_buf_str(&run.text));
    e2e_said(&run, "log.dir: mine holds another run; name another folder, go on with ctrun resume "
                   "mine, or replace that run with --log.overwrite yes\n");
    if (!speech_is_json()) /* where the failure's record has its text */
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), "holds another run"), 1, "said once");
    e2e_not_said(&run, "DEAD");
    proc_free(&run);
    cr_assert_str_eq(e2e_read("mine/run.json"), before, "nothing of it is touched");
    free(before);
    train("--log.dir=mine", "--log.overwrite=yes");
    cr_assert_eq(e2e_run(&run, "resume", "mine", "--train.epochs=40", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    proc_free(&run);
}

Test(runs, the_best_evaluation_is_remembered_when_a_run_goes_on)
{
    struct proc run;
    char best[64], last[64];
    const char *at;

    /* The rate is so high that what follows is worse. */
    train("--train.steps=400", "--eval.every=100");
    cr_assert_eq(e2e_run(&run, "resume", "digits_mlp", "--train.steps=420", "--optim.lr=50",
                         "--eval.every=20", "--train.skip_nonfinite=100", NULL),
                 0, "%s", ct_buf_str(&run.text));
    cr_assert_not_null(at = strstr(ct_buf_str(&run.text), "eval  step 420  loss "));
    cr_assert_eq(sscanf(at, "eval  step 420  loss %63s", last), 1);
    cr_assert_not_null(at = strstr(at, "best "));
    cr_assert_eq(sscanf(at, "best %63s", best), 1);
    cr_assert_lt(strtod(best, NULL), strtod(last, NULL), "%s", ct_buf_str(&run.text));
    cr_assert_null(strstr(strchr(at, 'a'), "at step 420\n"), "%s", ct_buf_str(&run.text));
    proc_free(&run);
}
