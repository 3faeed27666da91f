/* checkpoint.best: the checkpoint of the best evaluation is kept, however the training goes on. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(best, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

#define CHECKPOINTS "run/checkpoints"
#define OF_BEST                                                                         \
    "--checkpoint.best=loss", "--checkpoint.keep=1", "--log.dir=run", "--optim.lr=0.1", \
        "--eval.every=1 epoch"

/* The step of the lowest loss of evaluations in the metrics, and how many followed it. */
static int best_of_metrics(int *ret_later)
{
    double lowest = INFINITY;
    int best = 0;

    *ret_later = 0;
    for (const char *at = e2e_read("run/metrics.jsonl");
         (at = strstr(at, "\"kind\":\"eval\",\"step\":")) != NULL; at++) {
        int step = atoi(at + sizeof "\"kind\":\"eval\",\"step\":" - 1);
        double loss = strtod(strstr(at, "\"loss\":") + sizeof "\"loss\":" - 1, NULL);

        ++*ret_later;
        if (loss < lowest) {
            lowest = loss;
            best = step;
            *ret_later = 0;
        }
    }
    return best;
}

/* Fail unless the checkpoint of the best evaluation in the metrics is the one that is kept. */
static int expect_best(void)
{
    char name[64], path[PATH_MAX];
    int later = 0, best = best_of_metrics(&later);

    (void)snprintf(name, sizeof name, "step_%08d\n", best);
    cr_assert_gt(best, 0);
    cr_assert_str_eq(e2e_read(CHECKPOINTS "/best"), name);
    (void)snprintf(path, sizeof path, CHECKPOINTS "/step_%08d/state.json", best);
    cr_assert(e2e_exists(path), "%s", path);
    return later;
}

Test(best, it_outlives_worse_evaluations_and_the_pruning_and_can_be_gone_on_from)
{
    struct proc run;
    char words[128];
    int later = 0;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", e2e_in_root("configs/digits_mlp.yaml"),
                         "--train.epochs=12", OF_BEST, "--checkpoint.every=0", NULL),
                 0, "%s", ct_buf_str(&run.text));
    cr_assert_geq(expect_best(), 2, "evaluations that are worse, and a checkpoint of the last");
    int best = best_of_metrics(&later);
    (void)snprintf(words, sizeof words, "\nbest        run/checkpoints/step_%08d: loss 0.", best);
    e2e_said(&run, words);
    proc_free(&run);
    cr_assert_str_eq(e2e_read(CHECKPOINTS "/latest"), "step_00000540\n");

    cr_assert_eq(e2e_run(&run, "resume", "run", "--train.epochs=13", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    (void)expect_best();
    proc_free(&run);
    cr_assert_eq(
        e2e_run(&run, "resume", "run", "--best", "--train.epochs=14", "--optim.lr=0.2", NULL), 0,
        "%s", ct_buf_str(&run.text));
    (void)snprintf(words, sizeof words, "ctrun: resuming run from step %d (", best);
    e2e_said(&run, words);
    (void)expect_best();
    proc_free(&run);
}

static int evaluations(void)
{
    return e2e_count(e2e_read("run/metrics.jsonl"), "\"kind\":\"eval\"");
}

static bool has_more(void *context)
{
    return evaluations() >= *(int *)context;
}

/* Also where each holds a shard of it. */
static void lose_workers(const char *strategy)
{
    struct proc run;
    pid_t workers[2];
    int wanted;

    e2e_start(&run, "--nproc_per_node=2", "--max_restarts=5",
              e2e_in_root("configs/digits_mlp.yaml"), "--train.epochs=1000000", OF_BEST, strategy,
              NULL);
    for (int rank = 0; rank < 2; rank++) {
        wanted = evaluations() + 4;
        proc_until(has_more, &wanted, 60, "evaluations");
        cr_assert_eq(e2e_workers(&run, workers, 2), 2);
        cr_assert_eq(kill(workers[rank], SIGKILL), 0);
    }
    wanted = evaluations() + 4;
    proc_until(has_more, &wanted, 60, "evaluations");
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 60), 128 + SIGINT, "%s", ct_buf_str(&run.text));
    (void)expect_best();
    proc_free(&run);
}

Test(best, it_is_known_to_survivors_and_newcomers)
{
    lose_workers("--parallel.strategy=ddp");
}

Test(best, it_is_known_after_a_restart_from_shards)
{
    lose_workers("--parallel.strategy=zero1");
}

Test(best, it_needs_held_out_samples_and_a_folder)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, e2e_in_root("configs/digits_mlp.yaml"), "--checkpoint.best=loss",
                         "--checkpoint.dir=", NULL),
                 2);
    e2e_said(&run, "checkpoint.best");
    e2e_said(&run, "there are no checkpoints to keep one of: set checkpoint.dir");
    proc_free(&run);
}
