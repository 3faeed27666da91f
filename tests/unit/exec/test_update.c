/* The update: groups, and steps that cannot be taken. */
#include "base/assert.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(update, .timeout = 60);

enum { MAX_ROWS = 64, TENSORS = 6 };

/* One step of plain SGD with `lr` and `groups`. */
static struct run one_step(double lr, double weight_decay, const struct ct_optim_groups *groups)
{
    struct run run = run_default();

    run.options.optim = (struct ct_optim_spec){.type = CT_OPTIM_SGD, .weight_decay = weight_decay};
    if (groups != NULL)
        run.options.optim.groups = *groups;
    run.lr = lr;
    run.steps = 1;
    run_train(&run);
    return run;
}

/* The elements of layer weights and biases 6-9-7-4, in the model's order. */
static const int64_t sizes[TENSORS] = {54, 9, 63, 7, 28, 4};

static void assert_tensor_equal(const struct run *a, const struct run *b, int tensor)
{
    int64_t first = 0;

    for (int i = 0; i < tensor; i++)
        first += sizes[i];
    for (int64_t i = first; i < first + sizes[tensor]; i++)
        cr_assert_eq(a->state[i], b->state[i], "tensor %d, element %ld", tensor, (long)(i - first));
}

Test(update, a_group_without_decay_moves_as_if_there_were_none)
{
    const struct ct_optim_groups groups = {.vectors_undecayed = true};
    struct run mixed = one_step(0.5, 0.3, &groups), all = one_step(0.5, 0.3, NULL);
    struct run none = one_step(0.5, 0, NULL);

    for (int i = 0; i < TENSORS; i++)
        assert_tensor_equal(&mixed, i % 2 == 0 ? &all : &none, i);
    run_deinit(&mixed);
    run_deinit(&all);
    run_deinit(&none);
}

Test(update, a_group_with_a_factor_moves_at_that_part_of_the_rate)
{
    static const struct ct_lr_rule rules[] = {{"layers.1.*", 0.25}, {"*.bias", 0}};
    const struct ct_optim_groups groups = {.rules = rules, .rule_count = 2};
    struct run mixed = one_step(0.5, 0.3, &groups), all = one_step(0.5, 0.3, NULL);
    struct run slow = one_step(0.125, 0.3, NULL), still = one_step(0, 0.3, NULL);
    const struct run *want[TENSORS] = {&all, &still, &slow, &slow, &all, &still};

    for (int i = 0; i < TENSORS; i++)
        assert_tensor_equal(&mixed, want[i], i);
    run_deinit(&mixed);
    run_deinit(&all);
    run_deinit(&slow);
    run_deinit(&still);
}

/* E1 and E12 with groups: the norm is that of all of them. */
Test(update, groups_give_the_same_bits_in_every_world)
{
    static const struct ct_lr_rule rules[] = {{"layers.1.*", 0.25}};
    static const enum ct_optim types[] = {CT_OPTIM_SGD, CT_OPTIM_ADAMW, CT_OPTIM_LION};

    for (size_t t = 0; t < CT_COUNT(types); t++) {
        struct run runs[3];

        for (int i = 0; i < 3; i++) {
            runs[i] = run_default();
            runs[i].options.world = 1 << i;
            runs[i].options.accumulation = 4 >> i;
            runs[i].lr = 0.01;
            runs[i].options.optim = (struct ct_optim_spec){
                .type = types[t],
                .momentum = 0.9,
                .nesterov = true,
                .beta1 = 0.9,
                .beta2 = 0.99,
                .eps = 1e-8,
                .weight_decay = 0.1,
                .clip = 0.05,
                .groups = {.vectors_undecayed = true, .rules = rules, .rule_count = 1}};
            run_train(&runs[i]);
            if (i > 0)
                assert_same_bits(&runs[i], &runs[0], "a world of 2 or 4 against 1");
        }
        for (int i = 0; i < 3; i++)
            run_deinit(&runs[i]);
    }
}

struct batch {
    float x[MAX_ROWS * 6];
    int32_t labels[MAX_ROWS];
};

static struct ct_exec_result step(struct rig *rig, const struct run *run, struct ct_exec_step args,
                                  bool bad)
{
    int64_t rows = run->options.accumulation * run->options.micro_rows;
    struct ct_exec_result result;
    struct ct_error err = {0};
    struct batch batch;

    fill_rows(&run->spec, 0, rows, batch.x, batch.labels);
    if (bad)
        batch.x[3] = INFINITY;
    args.x = batch.x;
    args.labels = batch.labels;
    args.valid_count = rows;
    args.lr = 0.01;
    cr_assert_eq(ct_exec_step(rig->exec, &args, &result, &err), 0, "%s", err.text);
    cr_assert_eq(result.skipped, bad);
    return result;
}

/* ---- freezing ------------------------------------------------------------------------------- */

Test(update, frozen_parameters_stay_and_the_others_move_as_before)
{
    static const char *const frozen[] = {"layers.0.*", "layers.2.bias"};
    const struct ct_optim_groups groups = {.frozen = frozen, .frozen_count = 2};
    struct run part = one_step(0.5, 0.3, &groups), all = one_step(0.5, 0.3, NULL);
    struct run still = one_step(0, 0.3, NULL);

    for (int i = 0; i < TENSORS; i++)
        assert_tensor_equal(&part, i < 2 || i == 5 ? &still : &all, i);
    cr_assert_lt(part.norms[0], all.norms[0], "the norm is that of what learns");
    run_deinit(&part);
    run_deinit(&all);
    run_deinit(&still);
}

Test(update, freezing_gives_the_same_bits_in_every_world_and_way_of_sharding)
{
    static const char *const frozen[] = {"layers.1.*"};
    uint64_t want = 0;

    for (int world = 1; world <= 4; world *= 2) {
        for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++) {
            struct run run = run_default();

            run.options.world = world;
            run.options.accumulation = 4 / world;
            run.options.shard = (enum ct_plan_shard)shard;
            run.options.optim.groups =
                (struct ct_optim_groups){.frozen = frozen, .frozen_count = 1};
            run_train(&run);
            if (world == 1 && shard == CT_PLAN_SHARD_NONE)
                want = run.digests[0];
            cr_assert_eq(run.digests[0], want, "world %d, way %d of sharding", world, shard);
            run_deinit(&run);
        }
    }
}

/* ---- the average ---------------------------------------------------------------------------- */

Test(update, the_average_has_the_same_bits_in_every_world_and_way_of_sharding)
{
    static const char *const frozen[] = {"layers.2.bias"};
    uint64_t want = 0;

    for (int world = 1; world <= 4; world *= 2) {
        for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++) {
            struct run run = run_default();

            run.options.world = world;
            run.options.accumulation = 4 / world;
            run.options.shard = (enum ct_plan_shard)shard;
            run.options.optim.ema = 0.5;
            run.options.optim.groups =
                (struct ct_optim_groups){.frozen = frozen, .frozen_count = 1};
            run.poisoned = 2;
            run_train(&run);
            if (world == 1 && shard == CT_PLAN_SHARD_NONE)
                want = run.digests[0];
            cr_assert_eq(run.digests[0], want, "world %d, way %d of sharding", world, shard);
            run_deinit(&run);
        }
    }
}

Test(update, swapping_shows_the_average_and_swapping_again_the_parameters)
{
    struct run run = run_default();
    struct rig rig;
    float before[54], average[54], after[54];

    run.options.optim = (struct ct_optim_spec){.type = CT_OPTIM_SGD, .ema = 0.5};
    rig_init(&rig, &run, NULL);
    for (uint64_t i = 1; i <= 3; i++)
        (void)step(&rig, &run, (struct ct_exec_step){.update = i}, false);
    uint64_t digest = ct_exec_digest(rig.exec);
    ct_exec_read(rig.exec, 0, before);
    ct_exec_read(rig.exec, TENSORS, average);
    cr_assert_neq(memcmp(before, average, sizeof before), 0);
    ct_exec_swap_average(rig.exec);
    ct_exec_read(rig.exec, 0, after);
    cr_assert_eq(memcmp(after, average, sizeof after), 0);
    ct_exec_swap_average(rig.exec);
    cr_assert_eq(ct_exec_digest(rig.exec), digest);
    rig_deinit(&rig);
}

/* ---- steps that cannot be taken ------------------------------------------------------------- */

Test(update, all_ranks_leave_out_the_step_that_is_not_finite_on_one)
{
    for (int world = 1; world <= 4; world *= 2) {
        struct run bad = run_default(), good = run_default();

        bad.options.world = good.options.world = world;
        bad.steps = 2;
        bad.poisoned = 2;
        good.steps = 1;
        run_train(&bad);
        run_train(&good);
        cr_assert(isnan(bad.norms[1]) && isnan(bad.losses[1]));
        for (int rank = 0; rank < world; rank++)
            cr_assert_eq(bad.digests[rank], good.digests[0], "rank %d of %d", rank, world);
        run_deinit(&bad);
        run_deinit(&good);
    }
}

/* E2 with groups and a step that is left out: every rank judges by the same norm. */
Test(update, sharding_changes_neither_groups_nor_what_is_left_out)
{
    static const struct ct_lr_rule rules[] = {{"layers.1.*", 0.25}};
    uint64_t whole = 0;

    for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++) {
        struct run run = run_default();

        run.options.world = 4;
        run.options.shard = (enum ct_plan_shard)shard;
        run.options.optim.weight_decay = 0.1;
        run.options.optim.groups =
            (struct ct_optim_groups){.vectors_undecayed = true, .rules = rules, .rule_count = 1};
        run.poisoned = 3;
        run_train(&run);
        cr_assert(isnan(run.norms[2]) && isfinite(run.norms[3]));
        if (shard == CT_PLAN_SHARD_NONE)
            whole = run.digests[0];
        cr_assert_eq(run.digests[0], whole, "way %d of sharding", shard);
        run_deinit(&run);
    }
}

Test(update, a_step_that_was_left_out_does_not_count_for_adamw)
{
    struct run run = run_default();
    struct rig gap, whole;

    run.options.optim =
        (struct ct_optim_spec){.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    rig_init(&gap, &run, NULL);
    rig_init(&whole, &run, NULL);
    (void)step(&gap, &run, (struct ct_exec_step){.update = 1}, false);
    (void)step(&gap, &run, (struct ct_exec_step){.update = 2}, true);
    (void)step(&gap, &run, (struct ct_exec_step){.update = 3, .skipped = 1}, false);
    (void)step(&whole, &run, (struct ct_exec_step){.update = 1}, false);
    (void)step(&whole, &run, (struct ct_exec_step){.update = 2}, false);
    cr_assert_eq(ct_exec_digest(gap.exec), ct_exec_digest(whole.exec));
    rig_deinit(&gap);
    rig_deinit(&whole);
}

Test(update, parameters_whose_gradient_is_not_finite_are_found)
{
    struct run run = run_default();
    struct rig rig;
    int count = 9;

    rig_init(&rig, &run, NULL);
    (void)step(&rig, &run, (struct ct_exec_step){.update = 1}, false);
    cr_assert_eq(ct_exec_bad_gradient(rig.exec, &count), -1);
    cr_assert_eq(count, 0);
    (void)step(&rig, &run, (struct ct_exec_step){.update = 2}, true);
    cr_assert_eq(ct_exec_bad_gradient(rig.exec, &count), 0);
    cr_assert_geq(count, 1);
    rig_deinit(&rig);
}
