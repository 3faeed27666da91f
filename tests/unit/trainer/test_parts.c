/* Ranks that hold parts (zero1, fsdp, stages): the same checkpoints, evaluations and bits as ddp;
 * row E10.
 */
#include "base/assert.h"
#include "base/fs.h"
#include "cmd/ctworker/trainer/worker/parts.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(parts, .init = harness_enter, .fini = harness_leave, .timeout = 60);

/* Without clipping: the norm is the one sum whose order depends on who holds what. */
#define BARE "--optim.clip=0"

static const struct {
    int world;
    const char *strategy, *detail;
} layouts[] = {
    {1, "--parallel.strategy=ddp", BARE},
    {2, "--parallel.strategy=zero1", BARE},
    {4, "--parallel.strategy=fsdp", BARE},
    {2, "--parallel.strategy=fsdp", "--parallel.shard=grad"},
    {4, "--parallel.strategy=fsdp", "--parallel.replicate=2"},
    {4, "--parallel.strategy=zero1", "--parallel.overlap=false"},
    {2, "--parallel.strategy=fsdp", "--parallel.prefetch=2"},
    {2, "--parallel.strategy=fsdp", "--parallel.shard=none"},
    {2, "--parallel.pipeline=2", "--parallel.schedule=gpipe"},
    {4, "--parallel.pipeline=2", "--parallel.strategy=zero1"},
};

static struct training training_of(size_t layout, const char *dir)
{
    return (struct training){
        .world = layouts[layout].world,
        .options = {layouts[layout].strategy, layouts[layout].detail, BARE, dir}};
}

Test(parts, checkpoints_do_not_know_who_held_what)
{
    struct training whole = training_of(0, "--checkpoint.dir=whole");
    uint64_t bits = harness_train(&whole);

    for (size_t i = 1; i < CT_COUNT(layouts); i++) {
        char dir[40], a[80], b[80];
        (void)snprintf(dir, sizeof dir, "--checkpoint.dir=parts%zu", i);
        struct training training = training_of(i, dir);
        cr_assert_eq(harness_train(&training), bits, "layout %zu", i);
        cr_assert_eq(training.evaluation[0].correct, whole.evaluation[0].correct);
        for (int step = 5; step <= 20; step += 5)
            for (int file = 0; file < 2; file++) {
                const char *name = file == 0 ? "model" : "optim";
                (void)snprintf(a, sizeof a, "whole/step_%08d/%s.safetensors", step, name);
                (void)snprintf(b, sizeof b, "parts%zu/step_%08d/%s.safetensors", i, step, name);
                harness_expect_equal_files(a, b);
            }
    }
}

Test(parts, groups_averages_and_frozen_parameters_have_the_bits_of_ddp)
{
    static const char *const more[] = {"--optim.ema=0.9", "--optim.freeze=layers.0.bias",
                                       "--optim.no_decay=layers.1.bias",
                                       "--optim.weight_decay=0.1"};
    uint64_t bits = 0;

    for (size_t i = 0; i < 4; i++) {
        struct training training = training_of(i, "--checkpoint.resume=none");
        for (size_t k = 0; k < CT_COUNT(more); k++)
            training.options[4 + k] = more[k];
        uint64_t got = harness_train(&training);
        bits = i == 0 ? got : bits;
        cr_assert_eq(got, bits, "layout %zu", i);
    }
}

Test(parts, any_layout_goes_on_from_the_checkpoint_of_any_other)
{
    struct training whole = training_of(0, "--checkpoint.dir=whole");
    uint64_t bits = harness_train(&whole);

    for (size_t i = 0; i < CT_COUNT(layouts); i++) {
        struct training first = training_of(i, "--checkpoint.dir=cut");
        struct training rest = training_of((i + 1) % CT_COUNT(layouts), "--checkpoint.dir=rest");
        first.options[4] = "--checkpoint.resume=none";
        (void)harness_train(&first);
        rest.options[4] = "--checkpoint.resume=cut/step_00000010";
        cr_assert_eq(harness_train(&rest), bits, "from layout %zu", i);
        for (int rank = 0; rank < rest.world; rank++) {
            cr_assert_eq(rest.first_step[0], 10);
            cr_assert_eq(rest.position[rank], whole.position[0]);
        }
    }
}

Test(parts, a_stop_is_agreed_saved_and_gone_on_from)
{
    struct training whole = training_of(0, "--checkpoint.dir=whole");
    uint64_t bits = harness_train(&whole);

    for (size_t i = 1; i <= 2; i++) {
        struct training stopped = training_of(i, "--checkpoint.dir=stop");
        struct training rest = training_of(0, "--checkpoint.dir=stop");
        stopped.stop_step = 7;
        stopped.options[4] = "--checkpoint.resume=none";
        (void)harness_train(&stopped);
        cr_assert(stopped.step[0] == 7 || stopped.step[0] == 8, "%llu",
                  (unsigned long long)stopped.step[0]);
        for (int rank = 0; rank < stopped.world; rank++)
            cr_assert(stopped.stopped[rank]);
        cr_assert_not_null(strstr(stopped.checkpoint, "stop/step_0000000"));
        cr_assert_eq(harness_train(&rest), bits);
        cr_assert_eq(rest.first_step[0], stopped.step[0]);
        cr_assert_eq(ct_fs_remove_tree("stop"), 0);
    }
}

Test(parts, rank_0_says_when_checkpoints_are_due)
{
    struct training training = training_of(2, "--checkpoint.dir=few");
    struct stat info;

    training.options[4] = "--checkpoint.every=15";
    training.odd_option = "--checkpoint.every=3"; /* of the last rank */
    (void)harness_train(&training);
    cr_assert_eq(stat("few/step_00000015/state.json", &info), 0);
    cr_assert_neq(stat("few/step_00000003/state.json", &info), 0);
}

Test(parts, copies_that_do_not_divide_the_workers_are_refused_with_the_key)
{
    struct training training = training_of(1, "--parallel.replicate=3");

    harness_run(&training);
    for (int rank = 0; rank < training.world; rank++) {
        cr_assert_eq(training.code[rank], CT_ECONFIG);
        cr_assert_str_eq(training.error[rank].text,
                         "parallel.replicate is 3, must divide the 2 workers");
    }
}
