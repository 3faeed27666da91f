/* Checkpoints on their way to readers: what is published when, and what a failure leaves. Refusals
 * take a rendezvous: tests/unit/rdzv and tests/e2e/faults/test_survivors.c. */
#include "cmd/ctworker/trainer/loop.h"
#include "cmd/ctworker/trainer/worker/checkpoint_publish.h"
#include "harness.h"

#include "base/fs.h"
#include "train/checkpoint/checkpoint.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(publish, .init = harness_enter, .fini = harness_leave, .timeout = 60);

enum { STEPS = 20 }; /* of the harness: 35 rows in batches of 8, four epochs */

static bool exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0;
}

/* The newest published step of `dir`, 0: none. */
static int latest(const char *dir)
{
    char path[PATH_MAX];
    int step = 0;

    if (ct_ckpt_latest(dir, path, NULL) != 0 || !exists("ckpt/latest"))
        return 0;
    (void)sscanf(strstr(path, "step_"), "step_%d", &step);
    return step;
}

/* Save at the present step, take one more, and note what readers see in between. */
static int save_and_step(struct ct_worker *worker, struct ct_error *err)
{
    bool stopped = false;
    int code = ct_publish_save(worker, err);

    cr_assert(!exists("ckpt/latest"), "nobody has completed another step yet");
    worker->steps = worker->step + 1;
    return code == 0 ? ct_loop_run(worker, &stopped, err) : code;
}

Test(publish, a_checkpoint_is_seen_once_all_ranks_have_completed_its_step)
{
    struct training training = {.world = 2, .instead = save_and_step};

    (void)harness_train(&training);
    cr_assert(exists("ckpt/step_00000000"));
    cr_assert_eq(latest("ckpt"), 1);
    cr_assert_str_eq(training.checkpoint, "ckpt/step_00000001");
}

/* A file is where the folder has to be. */
static void block_folder(struct ct_worker *worker)
{
    FILE *file = fopen(worker->cfg->checkpoint.dir, "w");

    cr_assert_not_null(file);
    (void)fclose(file);
}

Test(publish, a_checkpoint_that_cannot_be_written_ends_the_training_at_its_end_alone)
{
    struct training training = {.world = 2, .tamper = block_folder};

    harness_run(&training);
    cr_assert_eq(training.code[0], CT_ECANTCREAT);
    cr_assert_eq(ct_exit_status(training.code[0]), 73);
    cr_assert_not_null(strstr(training.error[0].text, "ckpt"), "%s", training.error[0].text);
    cr_assert_eq(training.step[0], STEPS);
    cr_assert_eq(training.step[1], STEPS);
}

Test(publish, a_round_without_survivors_begins_with_exactly_what_is_on_record)
{
    struct training first = {.world = 2, .options = {"--checkpoint.every=5", "--log.dir=own"}};
    struct training again = {.world = 2,
                             .restart_count = 1,
                             .published_step = 10,
                             .options = {"--checkpoint.resume=none", "--log.dir=own"}};
    uint64_t digest = harness_train(&first);

    cr_assert_eq(latest("ckpt"), STEPS);
    cr_assert_eq(harness_train(&again), digest);
    cr_assert_eq(again.first_step[0], 10);
    cr_assert_eq(again.first_step[1], 10);
}

Test(publish, what_is_on_record_and_not_there_any_more_is_named)
{
    struct training training = {.world = 2, .restart_count = 1, .published_step = 7};

    harness_run(&training);
    cr_assert_eq(training.code[0], CT_ENOINPUT);
    cr_assert_eq(training.code[1], CT_ENOINPUT);
    cr_assert_not_null(strstr(training.error[0].text, "ckpt/step_00000007"), "%s",
                       training.error[0].text);
}
