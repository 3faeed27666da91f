/* Sweeps: several trainings side by side, the worst half stopped early, started again after a kill.
 */
#include "e2e.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sweep, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

enum { TRIALS = 4 };

/* What the results say of a trial. */
struct result {
    char ended[16];
    double best, worst_half_at; /* 0: it was not among the worst half */
    int step;
};

static void read_results(const char *folder, struct result *results)
{
    char path[256];
    int count = 0;

    (void)snprintf(path, sizeof path, "%s/results.jsonl", folder);
    for (const char *line = e2e_read(path); *line != '\0';
         line += strcspn(line, "\n") + 1, count++) {
        json_t *root = json_loadb(line, strcspn(line, "\n"), 0, NULL);

        cr_assert(count < TRIALS && root != NULL, "%s", line);
        cr_assert_eq(json_integer_value(json_object_get(root, "trial")), count);
        (void)snprintf(results[count].ended, sizeof results[count].ended, "%s",
                       json_string_value(json_object_get(root, "ended")));
        results[count].best = json_number_value(json_object_get(root, "best"));
        results[count].worst_half_at = json_number_value(json_object_get(root, "worst_half_at"));
        results[count].step = (int)json_integer_value(json_object_get(root, "step"));
        json_decref(root);
    }
    cr_assert_eq(count, TRIALS);
}

#define OF_SWEEP                                                                       \
    e2e_in_root("configs/digits_mlp.yaml"), "--sweep", "optim.lr=0.3,0.01", "--sweep", \
        "optim.weight_decay=0.1,0", "--nproc_per_node=2", "--sweep_slots=4", "--train.epochs=16"

Test(sweep, the_worst_half_is_stopped_and_one_that_was_killed_goes_on_to_the_same_results)
{
    struct result whole[TRIALS], again[TRIALS];
    struct proc run;
    int kept = 0;

    cr_assert_eq(e2e_run(&run, OF_SWEEP, "--sweep_dir=whole", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    e2e_said(&run, "4 trials in whole, 2 side by side with 2 workers each");
    e2e_wrote(&run, "\nTRIAL         STEP");
    e2e_said(&run, " after 1/4 of the steps is among the worst half");
    proc_free(&run);
    read_results("whole", whole);
    for (int i = 0; i < TRIALS; i++) {
        kept += whole[i].worst_half_at == 0;
        cr_expect(whole[i].worst_half_at != 0 || strcmp(whole[i].ended, "finished") == 0);
        for (int k = 0; k < TRIALS; k++)
            cr_expect(whole[i].worst_half_at != 0.25 || whole[k].worst_half_at == 0.25 ||
                          whole[k].best <= whole[i].best,
                      "%d is out at 1/4, and not better than %d", i, k);
    }
    cr_assert_eq(kept, 1, "of 4 trials 2 go on, then 1");

    e2e_start(&run, OF_SWEEP, "--sweep_dir=killed", NULL);
    (void)e2e_wait_file("killed/trial_00/metrics.jsonl", 30);
    cr_assert_eq(kill(run.pid, SIGKILL), 0);
    (void)proc_finish(&run, 30);
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, OF_SWEEP, "--sweep_dir=killed", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    proc_free(&run);
    read_results("killed", again);
    for (int i = 0; i < TRIALS; i++) {
        cr_expect_eq(again[i].worst_half_at, whole[i].worst_half_at, "trial %d", i);
        cr_expect(again[i].worst_half_at != 0 || again[i].best == whole[i].best, "trial %d", i);
    }

    /* Nothing is left: it starts nothing, and says the same. */
    cr_assert_eq(e2e_run(&run, OF_SWEEP, "--sweep_dir=killed", NULL), 0);
    e2e_not_said(&run, " starts: ");
    e2e_said(&run, " finished  optim.lr 0.01, optim.weight_decay ");
    proc_free(&run);
    cr_assert_eq(setenv("LC_ALL", "C", 1), 0);
    cr_assert_eq(
        e2e_run(&run, "plot", "whole/trial_00", "whole/trial_02", "whole/results.jsonl", NULL), 0,
        "%s", ct_buf_str(&run.text));
    e2e_said(&run, "  a  optim.lr 0.3\n  b  optim.lr 0.01\n");
    proc_free(&run);
}

Test(sweep, a_stop_saves_all_trials_and_wrong_words_start_nothing)
{
    static const struct {
        const char *word, *said;
    } wrong[] = {
        {"--sweep=optim.lr", "--sweep optim.lr: it is KEY=VALUE,VALUE"},
        {"--sweep=optim.lr=1,x", "--optim.lr"},
        {"--sweep=optim.nothing=1,2", "optim.nothing"},
        {"--sweep=seed=1,2", "runs on one node"},
    };
    struct proc run;
    struct result results[TRIALS];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(e2e_run(&run, e2e_in_root("configs/digits_mlp.yaml"), wrong[i].word,
                             "--nnodes", i == 3 ? "2" : "1", "--rdzv_endpoint=127.0.0.1:29999",
                             NULL),
                     2, "%s", ct_buf_str(&run.text));
        e2e_said(&run, wrong[i].said);
        proc_free(&run);
    }
    cr_assert(!e2e_exists("runs"));

    e2e_start(&run, OF_SWEEP, "--train.epochs=1000000", "--sweep_dir=stopped", "--sweep_all", NULL);
    (void)e2e_wait_file("stopped/trial_00/metrics.jsonl", 30);
    (void)e2e_wait_file("stopped/trial_01/metrics.jsonl", 30);
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 30), 128 + SIGINT, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "stopped; the same command goes on with what is left");
    proc_free(&run);
    read_results("stopped", results);
    for (int i = 0; i < TRIALS; i++) {
        cr_expect_str_eq(results[i].ended, "waiting");
        cr_expect_eq(results[i].step > 0, i < 2);
    }
    cr_assert(e2e_exists("stopped/trial_01/checkpoints/latest"));
    cr_assert_eq(e2e_run(&run, OF_SWEEP, "--sweep_dir=stopped", NULL), 73);
    e2e_said(&run, "stopped holds another sweep");
    proc_free(&run);
}
