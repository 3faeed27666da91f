/* What a training begins from when there is no checkpoint: model.init_from. */
#include "harness.h"

#include "base/assert.h"
#include "train/checkpoint/weights.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(begin, .init = harness_enter, .fini = harness_leave, .timeout = 60);

static char weights[PATH_MAX];

/* Each rank holds the values of the file, and moments of zero. */
static int compare_state(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_snapshot have = {0}, want = {0};
    int code = ct_snapshot_init(&have, &worker->plan, err);

    if (code == 0)
        code = ct_snapshot_init(&want, &worker->plan, err);
    CT_ASSERT(code == 0);
    ct_snapshot_take(&have, &worker->plan, worker->exec);
    code = ct_weights_load(weights, want.files[0].tensors, want.files[0].count, err);
    for (size_t i = 0; code == 0 && i < (size_t)worker->plan.tensor_count; i++) {
        size_t bytes = worker->plan.tensors[i].bytes;

        if (i >= want.files[0].count)
            memset(want.data[i], 0, bytes);
        if (memcmp(have.data[i], want.data[i], bytes) != 0)
            code = ct_error_set(err, CT_EDATA, "tensor %s is another one",
                                worker->plan.tensors[i].name);
    }
    ct_snapshot_deinit(&have);
    ct_snapshot_deinit(&want);
    return code;
}

Test(begin, parameters_are_those_of_the_file_on_every_rank)
{
    struct training first = {.world = 1, .options = {"--checkpoint.dir=first"}};
    char option[PATH_MAX + 64];

    (void)harness_train(&first);
    (void)snprintf(weights, sizeof weights, "%s", first.checkpoint);
    (void)snprintf(option, sizeof option, "--model.init_from=%s", weights);
    for (int world = 1; world <= 4; world *= 2) {
        struct training next = {.world = world,
                                .options = {"--checkpoint.resume=none", option, "--seed=9"},
                                .instead = compare_state};

        harness_run(&next);
        for (int rank = 0; rank < world; rank++) {
            cr_assert_eq(next.code[rank], 0, "rank %d: %s", rank, next.error[rank].text);
            cr_assert_eq(next.step[rank], 0, "the weights, not the place in the training");
        }
    }
}

Test(begin, ranks_that_hold_parts_begin_alike)
{
    struct training first = {.world = 1, .options = {"--checkpoint.dir=first"}};
    char option[PATH_MAX + 64];

    (void)harness_train(&first);
    (void)snprintf(option, sizeof option, "--model.init_from=%s", first.checkpoint);
    struct training whole = {.world = 2, .options = {option, "--optim.clip=0"}};
    struct training parts = {
        .world = 2,
        .options = {option, "--optim.clip=0", "--parallel.strategy=fsdp", "--checkpoint.dir=p"}};
    struct training other = {.world = 2, .options = {"--optim.clip=0", "--checkpoint.dir=o"}};
    uint64_t bits = harness_train(&whole);

    cr_assert_eq(harness_train(&parts), bits);
    cr_assert_neq(harness_train(&other), bits, "from the seed");
}

Test(begin, a_checkpoint_of_the_run_goes_before)
{
    struct training first = {.world = 1, .options = {"--checkpoint.dir=same"}};
    struct training again = {
        .world = 2, .options = {"--checkpoint.dir=same", "--model.init_from=nowhere.safetensors"}};
    uint64_t bits = harness_train(&first);

    cr_assert_eq(harness_train(&again), bits);
    cr_assert_eq(again.first_step[0], 20);
}

Test(begin, a_file_that_does_not_fit_ends_every_rank)
{
    struct training bad = {.world = 2, .options = {"--model.init_from=absent.safetensors"}};
    struct training other = {.world = 1, .options = {"--checkpoint.dir=small", "--model.hidden=7"}};
    char option[PATH_MAX + 64];

    harness_run(&bad);
    cr_assert_eq(bad.code[0], CT_ENOINPUT);
    cr_assert_eq(bad.code[1], CT_ENOINPUT);
    cr_assert_str_eq(bad.error[0].text, "model.init_from: absent.safetensors: cannot be read: No "
                                        "such file or directory");
    (void)harness_train(&other);
    (void)snprintf(option, sizeof option, "--model.init_from=%s/model.safetensors",
                   other.checkpoint);
    bad.options[0] = option;
    harness_run(&bad);
    cr_assert_eq(bad.code[0], CT_EDATA);
    cr_assert(strstr(bad.error[0].text, "tensor \"layers.0.weight\" is F32 [7, 6], but F32 [10, 6] "
                                        "here") != NULL,
              "%s", bad.error[0].text);
}
