/* Strategy dp: one worker whose replicas are threads trains as ddp does. Rows E1 and E10. */
#include "base/assert.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(dp, .init = harness_enter, .fini = harness_leave, .timeout = 60);

static void expect_equal_files(const char *a, const char *b)
{
    struct ct_buf first = harness_read(a), second = harness_read(b);

    cr_assert_gt(first.size, 0);
    cr_assert_eq(first.size, second.size);
    cr_assert_eq(memcmp(first.data, second.data, first.size), 0, "%s and %s differ", a, b);
    ct_buf_deinit(&first);
    ct_buf_deinit(&second);
}

Test(dp, replicas_as_threads_make_the_checkpoints_of_as_many_workers)
{
    static const char *const reduces[] = {"--parallel.reduce=reproducible",
                                          "--parallel.reduce=invariant"};

    for (size_t i = 0; i < CT_COUNT(reduces); i++) {
        char dirs[2][40], a[80], b[80];
        (void)snprintf(dirs[0], sizeof dirs[0], "--checkpoint.dir=ddp%zu", i);
        (void)snprintf(dirs[1], sizeof dirs[1], "--checkpoint.dir=dp%zu", i);
        struct training ddp = {.world = 2, .options = {reduces[i], dirs[0]}};
        struct training dp = {
            .world = 1,
            .options = {reduces[i], dirs[1], "--parallel.strategy=dp", "--parallel.replicate=2"}};
        cr_assert_eq(harness_train(&dp), harness_train(&ddp));
        cr_assert_eq(dp.evaluation[0].correct, ddp.evaluation[0].correct);
        for (int step = 5; step <= 20; step += 5)
            for (int file = 0; file < 2; file++) {
                const char *name = file == 0 ? "model" : "optim";
                (void)snprintf(a, sizeof a, "ddp%zu/step_%08d/%s.safetensors", i, step, name);
                (void)snprintf(b, sizeof b, "dp%zu/step_%08d/%s.safetensors", i, step, name);
                expect_equal_files(a, b);
            }
    }
}

Test(dp, one_replica_is_one_process)
{
    struct training alone = {.world = 1, .options = {"--checkpoint.dir=alone"}};
    struct training dp = {.world = 1, .options = {"--checkpoint.dir=dp", "--parallel.strategy=dp"}};

    cr_assert_eq(harness_train(&dp), harness_train(&alone));
}

Test(dp, several_workers_are_refused_in_one_sentence)
{
    struct training dp = {.world = 2,
                          .options = {"--parallel.strategy=dp", "--parallel.replicate=2"}};

    harness_run(&dp);
    for (int rank = 0; rank < 2; rank++) {
        cr_assert_eq(dp.code[rank], CT_ECONFIG);
        cr_assert_not_null(strstr(dp.error[rank].text, "this job has 2 workers"), "%s",
                           dp.error[rank].text);
    }
}
