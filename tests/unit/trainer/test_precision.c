/* Trainings in 16-bit floats: E1, E9, E13 for the whole worker. */
#include "harness.h"

#include "base/assert.h"
#include "base/fs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(precision, .init = harness_enter, .fini = harness_leave, .timeout = 60);

static struct training training_of(int world, const char *precision, const char *dir)
{
    return (struct training){.world = world, .options = {precision, dir, "--optim.lr=5e-3"}};
}

static const char f16[] = "--train.precision=f16", bf16[] = "--train.precision=bf16";

Test(precision, worlds_give_the_same_bits_and_learn_what_f32_learns)
{
    struct training wide = training_of(1, "--train.precision=f32", "--checkpoint.dir=wide");
    static const char *const precisions[] = {bf16, f16};

    (void)harness_train(&wide);
    for (size_t i = 0; i < CT_COUNT(precisions); i++) {
        struct training one = training_of(1, precisions[i], "--checkpoint.dir=one");
        struct training four = training_of(4, precisions[i], "--checkpoint.dir=four");
        uint64_t bits = harness_train(&one);

        cr_assert_neq(bits, wide.digest[0]);
        cr_assert_eq(harness_train(&four), bits);
        cr_assert_float_eq(one.evaluation[0].loss, wide.evaluation[0].loss, 0.02);
        cr_assert_eq(ct_fs_remove_tree("one"), 0);
        cr_assert_eq(ct_fs_remove_tree("four"), 0);
    }
}

/* Two halvings in the first steps, and doublings every three: the checkpoint is in the middle. */
Test(precision, a_resumed_training_in_f16_has_the_scale_of_the_uninterrupted_one)
{
    struct training whole = training_of(2, f16, "--checkpoint.dir=whole");
    struct training rest = training_of(1, f16, "--checkpoint.dir=rest");

    whole.options[3] = rest.options[3] = "--train.loss_scale=1073741824";
    whole.options[4] = rest.options[4] = "--train.loss_scale_every=3";
    rest.options[5] = "--checkpoint.resume=whole/step_00000010";
    uint64_t bits = harness_train(&whole);
    struct ct_buf state = harness_read("whole/step_00000010/state.json");
    cr_assert_null(strstr(state.data, "\"skipped\": 0"), "%s", state.data);
    ct_buf_deinit(&state);
    cr_assert_lt(whole.loss_scale[0], 0x1p30);
    cr_assert_eq(harness_train(&rest), bits);
    cr_assert_eq(rest.loss_scale[0], whole.loss_scale[0]);
}

/* Its numbers follow from the update's: nothing of them lies in a checkpoint. */
Test(precision, rounding_by_chance_goes_on_from_a_checkpoint_in_another_layout)
{
    static const char rounding[] = "--train.rounding=stochastic";
    struct training nearest = training_of(1, bf16, "--checkpoint.dir=nearest");
    struct training whole = training_of(2, bf16, "--checkpoint.dir=whole");
    struct training rest = training_of(4, bf16, "--checkpoint.dir=rest");

    whole.options[3] = rest.options[3] = rounding;
    rest.options[4] = "--checkpoint.resume=whole/step_00000010";
    rest.options[5] = "--parallel.strategy=fsdp";
    uint64_t bits = harness_train(&whole);
    cr_assert_neq(harness_train(&nearest), bits);
    cr_assert_float_eq(whole.evaluation[0].loss, nearest.evaluation[0].loss, 0.02);
    cr_assert_eq(harness_train(&rest), bits);
}

/* On the last rank alone. */
static void spoil_rows(struct ct_worker *worker)
{
    for (size_t row = 0; row < 3; row++)
        worker->train.features[row * worker->train.width] = NAN;
}

Test(precision, an_overflow_on_one_rank_halves_the_scale_on_all)
{
    struct training training = {
        .world = 4, .options = {f16, "--train.skip_nonfinite=9"}, .tamper = spoil_rows};

    (void)harness_train(&training);
    struct ct_buf state = harness_read("ckpt/step_00000020/state.json");
    const char *skipped = strstr(state.data, "\"skipped\": ");
    cr_assert_not_null(skipped);
    int count = skipped[strlen("\"skipped\": ")] - '0';
    ct_buf_deinit(&state);
    cr_assert(count >= 1 && count <= 9, "%d", count);
    for (int rank = 0; rank < training.world; rank++)
        cr_assert_eq(training.loss_scale[rank], ldexp(65536, -count));
}
