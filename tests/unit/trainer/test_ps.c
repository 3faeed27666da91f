/* Strategy ps: workers and parameter servers train as ddp does, in step; and without, nearly. */
#include "base/assert.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(ps, .init = harness_enter, .fini = harness_leave, .timeout = 60);

static const char ps[] = "--parallel.strategy=ps";

static void expect_well(const struct training *training)
{
    for (int rank = 0; rank < training->world; rank++)
        cr_assert_eq(training->code[rank], 0, "rank %d: %s", rank, training->error[rank].text);
}

static void run_well(struct training *training)
{
    harness_run(training);
    expect_well(training);
}

/* Checkpoints of `steps` steps, every 5th. */
static void expect_same_checkpoints(const char *a, const char *b, int from, int to)
{
    static const char *const files[] = {"model", "optim"};
    char first[80], second[80];

    for (int step = from; step <= to; step += 5)
        for (size_t i = 0; i < CT_COUNT(files); i++) {
            (void)snprintf(first, sizeof first, "%s/step_%08d/%s.safetensors", a, step, files[i]);
            (void)snprintf(second, sizeof second, "%s/step_%08d/%s.safetensors", b, step, files[i]);
            harness_expect_equal_files(first, second);
        }
}

/* Row E1 with servers: sums in rank order, or as a tree; moments of every kind. */
Test(ps, workers_in_step_make_the_checkpoints_of_ddp)
{
    static const char *const cases[][2] = {
        {"--parallel.reduce=reproducible", "--optim.type=adamw"},
        {"--parallel.reduce=invariant", "--optim.type=adamw"},
        {"--parallel.reduce=reproducible", "--optim.type=sgd"},
        {"--parallel.reduce=reproducible", "--optim.type=lion"},
    };

    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        char dirs[2][40];
        (void)snprintf(dirs[0], sizeof dirs[0], "--checkpoint.dir=ddp%zu", i);
        (void)snprintf(dirs[1], sizeof dirs[1], "--checkpoint.dir=ps%zu", i);
        struct training ddp = {.world = 2, .options = {cases[i][0], cases[i][1], dirs[0]}};
        struct training served = {.world = 3, .options = {cases[i][0], cases[i][1], dirs[1], ps}};
        harness_train(&ddp);
        run_well(&served);
        cr_assert_eq(served.evaluation[0].correct, ddp.evaluation[0].correct);
        cr_assert_eq(served.evaluation[0].loss, ddp.evaluation[0].loss);
        expect_same_checkpoints(strchr(dirs[0], '=') + 1, strchr(dirs[1], '=') + 1, 5, 20);
    }
}

Test(ps, several_servers_with_parts_make_the_checkpoints_of_ddp)
{
    static const char rule[] = "--optim.lr_factors=layers.1.*=0.5";
    struct training ddp = {.world = 2,
                           .options = {"--checkpoint.dir=ddp", "--optim.clip=0", rule,
                                       "--parallel.reduce=reproducible", "--optim.ema=0.9"}};
    struct training served = {.world = 4,
                              .options = {"--checkpoint.dir=ps", "--optim.clip=0", rule,
                                          "--parallel.reduce=reproducible", "--optim.ema=0.9", ps,
                                          "--parallel.servers=2"}};

    harness_train(&ddp);
    run_well(&served);
    expect_same_checkpoints("ddp", "ps", 5, 20);
}

Test(ps, one_worker_and_a_server_are_one_process)
{
    struct training alone = {.world = 1, .options = {"--checkpoint.dir=alone"}};
    struct training served = {.world = 2, .options = {"--checkpoint.dir=ps", ps}};

    harness_train(&alone);
    run_well(&served);
    expect_same_checkpoints("alone", "ps", 5, 20);
}

Test(ps, checkpoints_go_on_with_ddp_and_back)
{
    struct training whole = {.world = 2, .options = {"--checkpoint.dir=whole"}};
    struct training begin = {.world = 3, .options = {"--checkpoint.dir=turns", ps}};
    struct training second = {
        .world = 2, .options = {"--checkpoint.dir=ddp", "--checkpoint.resume=turns/step_00000010"}};
    struct training third = {.world = 4,
                             .options = {"--checkpoint.dir=back",
                                         "--checkpoint.resume=ddp/step_00000015", ps,
                                         "--parallel.servers=2"}};

    harness_train(&whole);
    run_well(&begin);
    harness_train(&second);
    cr_assert_eq(second.first_step[0], 10);
    run_well(&third);
    cr_assert_eq(third.first_step[0], 15);
    expect_same_checkpoints("whole", "ddp", 15, 20);
}

Test(ps, stale_workers_learn_as_much)
{
    struct training served = {.world = 4,
                              .options = {"--checkpoint.dir=ps", ps, "--parallel.staleness=2",
                                          "--parallel.servers=2", "--train.epochs=12"}};
    struct training ddp = {.world = 2, .options = {"--checkpoint.dir=ddp", "--train.epochs=12"}};

    harness_train(&ddp);
    run_well(&served);
    cr_assert_eq(served.step[0], 60);
    cr_assert_eq(served.step[1], 60);
    cr_assert_lt(served.evaluation[0].loss, 1.5 * ddp.evaluation[0].loss, "%f and %f",
                 served.evaluation[0].loss, ddp.evaluation[0].loss);
    cr_assert_eq(served.evaluation[0].correct, served.evaluation[1].correct);
}

Test(ps, a_job_of_servers_alone_is_refused_in_one_sentence)
{
    struct training served = {.world = 2, .options = {ps, "--parallel.servers=2"}};

    harness_run(&served);
    for (int rank = 0; rank < 2; rank++) {
        cr_assert_eq(served.code[rank], CT_ECONFIG);
        cr_assert_not_null(strstr(served.error[rank].text, "nobody is left to train"), "%s",
                           served.error[rank].text);
    }
}

Test(ps, a_worker_with_another_configuration_is_refused)
{
    struct training served = {
        .world = 2, .options = {ps}, .odd_option = "--optim.lr=0.5"}; /* the server */

    harness_run(&served);
    cr_assert_eq(served.code[0], CT_EMISMATCH, "%s", served.error[0].text);
    cr_assert_not_null(strstr(served.error[0].text, "another shared part of the configuration"));
}
