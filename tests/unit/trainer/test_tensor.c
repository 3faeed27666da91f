/* Workers that compute layers together (parallel.tensor): they learn what one learns, and their
 * checkpoints are everybody's; row E10. */
#include "base/assert.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

TestSuite(tensor, .init = harness_enter, .fini = harness_leave, .timeout = 60);

static const struct {
    int world;
    const char *strategy, *detail;
} layouts[] = {
    {1, "--parallel.strategy=ddp", "--parallel.tensor=1"},
    {2, "--parallel.strategy=ddp", "--parallel.tensor=2"},
    {4, "--parallel.strategy=ddp", "--parallel.tensor=2"},
    {4, "--parallel.strategy=fsdp", "--parallel.tensor=2"},
    {4, "--parallel.strategy=zero1", "--parallel.tensor=2"},
};

static struct training training_of(size_t layout, const char *dir, const char *resume)
{
    return (struct training){.world = layouts[layout].world,
                             .options = {layouts[layout].strategy, layouts[layout].detail, dir,
                                         resume, "--train.steps=10"}};
}

Test(tensor, learn_what_one_worker_learns)
{
    struct training one = training_of(0, "--checkpoint.dir=one", "--checkpoint.resume=none");

    (void)harness_train(&one);
    for (size_t i = 1; i < CT_COUNT(layouts); i++) {
        struct training some = training_of(i, "--checkpoint.dir=some", "--checkpoint.resume=none");
        (void)harness_train(&some);
        cr_assert_eq(some.evaluation[0].correct, one.evaluation[0].correct, "layout %zu", i);
        cr_assert_lt(fabs(some.evaluation[0].loss - one.evaluation[0].loss), 1e-4);
        for (int rank = 0; rank < some.world; rank++)
            cr_assert_eq(some.position[rank], one.position[0]);
    }
}

/* The state that a layout takes from a checkpoint, or leaves in one, is the same to the bit. */
Test(tensor, take_and_leave_the_checkpoints_of_any_layout)
{
    struct training one = training_of(0, "--checkpoint.dir=one", "--checkpoint.resume=none");
    uint64_t bits = harness_train(&one);

    for (size_t i = 1; i < CT_COUNT(layouts); i++) {
        char dir[48], resume[64];
        struct training taken =
            training_of(i, "--checkpoint.dir=", "--checkpoint.resume=one/step_00000010");
        cr_assert_eq(harness_train(&taken), bits, "layout %zu", i);
        (void)snprintf(dir, sizeof dir, "--checkpoint.dir=left%zu", i);
        (void)snprintf(resume, sizeof resume, "--checkpoint.resume=left%zu/step_00000010", i);
        struct training left = training_of(i, dir, "--checkpoint.resume=none");
        uint64_t own = harness_train(&left);
        struct training back = training_of(0, "--checkpoint.dir=", resume);
        cr_assert_eq(harness_train(&back), own, "layout %zu", i);
    }
}

Test(tensor, what_does_not_divide_is_told_by_every_worker)
{
    struct training some = training_of(1, "--checkpoint.dir=", "--checkpoint.resume=none");

    some.options[5] = "--model.hidden=[9]";
    harness_run(&some);
    for (int rank = 0; rank < some.world; rank++) {
        cr_assert_eq(some.code[rank], CT_ECONFIG);
        cr_assert_str_eq(some.error[rank].text,
                         "parallel.tensor is 2, must divide the 9 rows of layers.0.weight");
    }
}
