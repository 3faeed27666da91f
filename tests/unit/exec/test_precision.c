/* Training in bf16 and f16: near f32 within the tolerances of E17, the same bits on every layout,
 * less memory, and one narrow copy of a weight a step. E13: an overflow in f16. */
#include "base/assert.h"
#include "collectives/plan/passes/passes.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(precision, .timeout = 60);

static const enum ct_dtype narrow[] = {CT_BF16, CT_F16};

static struct run gpt_run(enum ct_dtype compute)
{
    struct run run = run_gpt(2, 16);

    run.options.compute = compute;
    run.options.accumulation = 2;
    run.options.micro_rows = 4;
    run.lr = 0.05;
    return run;
}

static struct run llama_run(enum ct_dtype compute)
{
    struct run run = gpt_run(compute);

    run.spec.gpt.norm = CT_NORM_RMS;
    run.spec.gpt.mlp = CT_MLP_SWIGLU;
    run.spec.gpt.positions = CT_POSITIONS_ROTARY;
    run.spec.gpt.untied = true;
    return run;
}

static struct run mlp_run(enum ct_dtype compute)
{
    struct run run = run_default();

    run.spec.activation = CT_ACT_GELU;
    run.options.compute = compute;
    return run;
}

static const struct ct_layer_spec normed[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 9, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = -1},
};

static struct run cnn_run(enum ct_dtype compute)
{
    struct run run = run_default();

    run_see(&run, 4, 4, normed, CT_COUNT(normed));
    run.options.compute = compute;
    return run;
}

static struct run (*const models[])(enum ct_dtype) = {gpt_run, llama_run, mlp_run, cnn_run};

/* Weights rounded by chance; with dropout, and without anything else that draws. */
static struct run rounded_gpt_run(enum ct_dtype compute)
{
    struct run run = gpt_run(compute);

    run.options.stochastic = true;
    return run;
}

static struct run rounded_mlp_run(enum ct_dtype compute)
{
    struct run run = mlp_run(compute);

    run.options.stochastic = true;
    return run;
}

Test(precision, gradients_and_losses_are_near_those_of_f32)
{
    for (size_t m = 0; m < CT_COUNT(models); m++) {
        struct run wide = models[m](CT_F32);

        wide.steps = 20;
        run_train(&wide);
        for (size_t i = 0; i < CT_COUNT(narrow); i++) {
            struct run first = models[m](narrow[i]), run = models[m](narrow[i]);
            struct run first_wide = models[m](CT_F32);

            first.steps = first_wide.steps = 1;
            run_train(&first);
            run_train(&first_wide);
            double error = relative_l2(first.grads, first_wide.grads, first.grad_count);
            cr_assert_leq(error, narrow[i] == CT_BF16 ? 2e-2 : 3e-3, "model %zu: %g", m, error);
            cr_assert_gt(error, 1e-6, "model %zu computes in f32", m);
            run.steps = 20;
            run_train(&run);
            for (int s = 0; s < run.steps; s++)
                cr_assert_leq(fabs(run.losses[s] - wide.losses[s]), 0.02,
                              "model %zu, step %d: %g, not %g", m, s, run.losses[s],
                              wide.losses[s]);
            run_deinit(&run);
            run_deinit(&first);
            run_deinit(&first_wide);
        }
        run_deinit(&wide);
    }
}

static void assert_same(struct run (*make)(enum ct_dtype), int world, enum ct_plan_shard shard,
                        enum ct_plan_recompute recompute)
{
    struct run one = make(CT_BF16), run = make(CT_BF16);

    one.options.accumulation = 4;
    run.options.accumulation = 4 / world;
    run.options.world = world;
    run.options.shard = shard;
    run.options.recompute = recompute;
    run_train(&one);
    run_train(&run);
    for (int i = 0; i < run.steps && shard != CT_PLAN_SHARD_NONE; i++) { /* added up in parts */
        cr_assert_lt(fabs(run.norms[i] - one.norms[i]), 2e-6 * one.norms[i]);
        run.norms[i] = one.norms[i];
    }
    assert_same_bits(&run, &one, "another layout");
    run_deinit(&run);
    run_deinit(&one);
}

static void assert_same_in_layouts(struct run (*make)(enum ct_dtype))
{
    assert_same(make, 2, CT_PLAN_SHARD_NONE, CT_PLAN_RECOMPUTE_NONE);
    assert_same(make, 4, CT_PLAN_SHARD_OPTIM, CT_PLAN_RECOMPUTE_NONE);
    assert_same(make, 2, CT_PLAN_SHARD_GRAD, CT_PLAN_RECOMPUTE_BLOCK);
    assert_same(make, 2, CT_PLAN_SHARD_FULL, CT_PLAN_RECOMPUTE_NONE);
    assert_same(make, 2, CT_PLAN_SHARD_FULL, CT_PLAN_RECOMPUTE_BLOCK);
    assert_same(make, 1, CT_PLAN_SHARD_NONE, CT_PLAN_RECOMPUTE_BLOCK);
    assert_same(make, 1, CT_PLAN_SHARD_NONE, CT_PLAN_RECOMPUTE_GELU);
}

/* E1, E2, E7 in bf16. */
Test(precision, layouts_and_recomputation_change_no_bit)
{
    for (size_t m = 0; m < CT_COUNT(models); m++)
        assert_same_in_layouts(models[m]);
}

/* Micro-batches of a step and its passes have one copy, shards round their own part of it. */
Test(precision, layouts_and_recomputation_change_no_bit_of_weights_rounded_by_chance)
{
    assert_same_in_layouts(rounded_gpt_run);
    assert_same_in_layouts(rounded_mlp_run);
}

/* Columns and rows of weights, whole or sharded, with the numbers of all of it. */
Test(precision, shards_of_slices_round_by_chance_as_slices_do)
{
    struct run whole = rounded_gpt_run(CT_BF16), nearest = gpt_run(CT_BF16);

    whole.options.world = nearest.options.world = 4;
    whole.options.tensor = nearest.options.tensor = 2;
    run_train(&whole);
    run_train(&nearest);
    cr_assert_neq(whole.losses[0], nearest.losses[0]);
    for (int shard = CT_PLAN_SHARD_OPTIM; shard <= CT_PLAN_SHARD_FULL; shard++) {
        struct run run = rounded_gpt_run(CT_BF16);

        run.options.world = 4;
        run.options.tensor = 2;
        run.options.shard = (enum ct_plan_shard)shard;
        run_train(&run);
        for (int i = 0; i < run.steps; i++) { /* added up in parts */
            cr_assert_lt(fabs(run.norms[i] - whole.norms[i]), 2e-6 * whole.norms[i]);
            run.norms[i] = whole.norms[i];
        }
        assert_same_bits(&run, &whole, "shards of slices");
        run_deinit(&run);
    }
    run_deinit(&whole);
    run_deinit(&nearest);
}

/* At a rate of 0 the parameters stay as they are: each step rounds them anew, an evaluation to the
 * nearest. */
Test(precision, steps_round_by_chance_and_evaluations_to_the_nearest)
{
    struct run nearest = mlp_run(CT_BF16), run = rounded_mlp_run(CT_BF16);

    nearest.lr = run.lr = 0;
    nearest.evaluates = run.evaluates = true;
    run_train(&nearest);
    run_train(&run);
    for (int i = 0; i < run.steps; i++) {
        cr_assert_neq(run.losses[i], nearest.losses[i]);
        cr_assert_leq(fabs(run.losses[i] - nearest.losses[i]), 0.02);
    }
    cr_assert_eq(run.evaluation.loss, nearest.evaluation.loss);
    run_deinit(&nearest);
    run_deinit(&run);
}

Test(precision, only_copies_in_bf16_are_rounded_by_chance)
{
    for (int f16 = 0; f16 < 2; f16++) {
        struct run run = rounded_mlp_run(f16 == 1 ? CT_F16 : CT_F32);
        struct ct_plan plan;
        struct ct_error err = {0};

        cr_assert_eq(ct_plan_build(&plan, &run.spec, &run.options, 1, &err), CT_ECONFIG);
        cr_assert_str_eq(err.text, "train.rounding stochastic is for train.precision bf16 alone");
        ct_plan_deinit(&plan);
    }
}

/* Norms and biases without decay, embeddings at a rate of their own: runs of the flat range, which
 * is laid out by what is read in 16 bits where parameters are sharded. */
Test(precision, groups_and_averages_of_parts_have_the_bits_of_ddp)
{
    static const struct ct_lr_rule rules[] = {{"wte.*", 0.5}, {"h.0.*", 2}};

    for (int shard = CT_PLAN_SHARD_GRAD; shard <= CT_PLAN_SHARD_FULL; shard++)
        for (int tensor = 1; tensor <= 2; tensor++) {
            struct run whole = gpt_run(CT_BF16);
            whole.options.world = 2 * tensor;
            whole.options.tensor = tensor;
            whole.options.optim.weight_decay = 0.1;
            whole.options.optim.ema = 0.9;
            whole.options.optim.groups = (struct ct_optim_groups){
                .vectors_undecayed = true, .rules = rules, .rule_count = CT_COUNT(rules)};
            struct run run = whole;
            run.options.shard = (enum ct_plan_shard)shard;
            run_train(&whole);
            run_train(&run);
            for (int i = 0; i < run.steps; i++) { /* added up in parts */
                cr_assert_lt(fabs(run.norms[i] - whole.norms[i]), 2e-6 * whole.norms[i]);
                run.norms[i] = whole.norms[i];
            }
            assert_same_bits(&run, &whole, "groups of parts");
            run_deinit(&run);
            run_deinit(&whole);
        }
}

/* Two stages in bf16: messages between them are narrow, the bits those of one. Both hold the tied
 * embedding, and round it alike. */
Test(precision, stages_change_no_bit, .timeout = 20)
{
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        struct run one = gpt_run(CT_BF16), run = gpt_run(CT_BF16);

        one.options.stochastic = run.options.stochastic = stochastic == 1;
        one.options.accumulation = run.options.accumulation = 4;
        run.options.world = run.options.stages = 2;
        run_train(&one);
        run_train(&run);
        for (int i = 0; i < run.steps; i++)
            cr_assert_eq(run.losses[i], one.losses[i]);
        run_deinit(&one);
        run_deinit(&run);
    }
}

/* Linear layers, heads, vocabulary and loss cut over slices, in bf16. */
Test(precision, slices_compute_in_16_bits_too)
{
    for (int sequence = 0; sequence < 2; sequence++) {
        struct run whole = gpt_run(CT_BF16), run = gpt_run(CT_BF16);

        run.options.world = run.options.tensor = 2;
        run.options.sequence = sequence == 1;
        whole.spec.gpt.dropout = run.spec.gpt.dropout = 0;
        run_train(&whole);
        run_train(&run);
        for (int i = 0; i < run.steps; i++)
            cr_assert_leq(fabs(run.losses[i] - whole.losses[i]), 0.02, "%g, not %g", run.losses[i],
                          whole.losses[i]);
        run_deinit(&whole);
        run_deinit(&run);
    }
}

static struct run wire_run(int world, enum ct_plan_shard shard, enum ct_dtype dtype)
{
    struct run run = mlp_run(CT_F32);

    run.options.world = world;
    run.options.accumulation = 1;
    run.options.shard = shard;
    run.options.replicas = world == 4 && shard != CT_PLAN_SHARD_NONE ? 2 : 1;
    run.options.reduce = CT_PLAN_REPRODUCIBLE;
    run.options.reduce_dtype = dtype;
    run.options.optim = (struct ct_optim_spec){.type = CT_OPTIM_SGD};
    run.lr = 1; /* the state tells of the gradients */
    run.steps = 1;
    return run;
}

/* The measured error of such a sum is 2 to 3e-3. */
static void assert_rounded_sums(int world, enum ct_plan_shard shard)
{
    struct run start = wire_run(world, shard, CT_F32), wide = start;
    struct run run = wire_run(world, shard, CT_BF16), in_line = run;

    start.steps = 0;
    in_line.options.overlap = false;
    run_train(&start);
    run_train(&wide);
    run_train(&run);
    run_train(&in_line);
    assert_same_bits(&in_line, &run, "without overlap");
    for (int64_t i = 0; i < run.state_count; i++) {
        run.state[i] -= start.state[i];
        wide.state[i] -= start.state[i];
    }
    double error = relative_l2(run.state, wide.state, run.state_count);
    cr_assert(error > 1e-4 && error < 4e-3, "%g over %d ranks, shard %d", error, world, (int)shard);
    run_deinit(&start);
    run_deinit(&wide);
    run_deinit(&run);
    run_deinit(&in_line);
}

Test(precision, gradients_are_added_up_in_bf16_when_asked_for)
{
    for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++) {
        assert_rounded_sums(2, (enum ct_plan_shard)shard);
        assert_rounded_sums(4, (enum ct_plan_shard)shard);
    }
}

/* A power of two is taken off again exactly, unless something is too large or too small for f16. */
Test(precision, the_scale_of_the_loss_changes_no_step)
{
    struct run plain = mlp_run(CT_F16), scaled = mlp_run(CT_F16);

    plain.options.optim.clip = scaled.options.optim.clip = 0.05;
    scaled.scale = 64;
    plain.scale = 16;
    run_train(&plain);
    run_train(&scaled);
    for (int i = 0; i < plain.steps; i++) {
        cr_assert_leq(fabs(plain.losses[i] - scaled.losses[i]), 1e-4 * plain.losses[i]);
        cr_assert_leq(fabs(plain.norms[i] - scaled.norms[i]), 1e-3 * plain.norms[i]);
    }
    cr_assert_gt(plain.norms[0], 0.05, "the norm that is clipped");
    cr_assert_leq(relative_l2(scaled.state, plain.state, plain.state_count), 1e-3);
    run_deinit(&plain);
    run_deinit(&scaled);
}

/* E13: only rank 0 has rows that count, so its gradients alone overflow. */
static void overflow_on_one_rank(int world, enum ct_plan_shard shard)
{
    struct run run = mlp_run(CT_F16), fresh = mlp_run(CT_F16);

    fresh.steps = 0;
    run.options.world = fresh.options.world = world;
    run.options.shard = fresh.options.shard = shard;
    run.options.accumulation = fresh.options.accumulation = 1;
    run.masked = run.options.micro_rows * (world - 1);
    run.scale = 0x1p24;
    run_train(&run);
    run_train(&fresh);
    for (int i = 0; i < run.steps; i++)
        cr_assert(isfinite(run.losses[i]) && !isfinite(run.norms[i]));
    for (int rank = 0; rank < world; rank++)
        cr_assert_eq(run.skipped[rank], run.steps, "rank %d left out %d", rank, run.skipped[rank]);
    for (int64_t i = 0; i < run.state_count; i++)
        cr_assert_eq(run.state[i], fresh.state[i]);
    run_deinit(&run);
    run.scale = 0x1p4;
    for (int rank = 0; rank < world; rank++)
        run.skipped[rank] = 0;
    run_train(&run);
    for (int rank = 0; rank < world; rank++)
        cr_assert_eq(run.skipped[rank], 0);
    run_deinit(&run);
    run_deinit(&fresh);
}

Test(precision, an_overflow_on_one_rank_leaves_out_the_step_on_all)
{
    overflow_on_one_rank(2, CT_PLAN_SHARD_NONE);
    overflow_on_one_rank(4, CT_PLAN_SHARD_NONE);
    overflow_on_one_rank(2, CT_PLAN_SHARD_OPTIM);
    overflow_on_one_rank(4, CT_PLAN_SHARD_FULL);
}

/* The scale's flag is the norm of all axes. */
Test(precision, an_overflow_is_seen_by_all_slices_and_stages, .timeout = 20)
{
    for (int stages = 1; stages <= 2; stages++) {
        struct run run = gpt_run(CT_F16);

        run.options.world = 2;
        run.options.stages = stages;
        run.options.tensor = 3 - stages;
        run.scale = 0x1p40;
        run_train(&run);
        for (int rank = 0; rank < 2; rank++)
            cr_assert_eq(run.skipped[rank], run.steps);
        for (int64_t i = 0; i < run.state_count; i++)
            cr_assert(isfinite(run.state[i]));
        run_deinit(&run);
    }
}

static void build(struct ct_plan *plan, const struct run *run)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(plan, &run->spec, &run->options, 1, &err), 0, "%s", err.text);
}

static int count_narrowed(const struct ct_plan *plan)
{
    const struct ct_program *program = &plan->step.program;
    int count = 0;

    for (int i = 0; i < program->op_count; i++)
        count += ct_plan_narrows_param(program, &program->ops[i]);
    return count;
}

Test(precision, weights_of_products_are_narrowed_once_a_step)
{
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        struct run run = gpt_run(CT_BF16);
        struct ct_plan plan;

        run.options.stochastic = stochastic == 1;
        run.options.accumulation = 4;
        build(&plan, &run);
        cr_assert_eq(count_narrowed(&plan), 4 * 2 + 1, "%d", count_narrowed(&plan));
        ct_plan_deinit(&plan);
    }
}

Test(precision, sums_in_bf16_send_half_the_bytes)
{
    struct run wide = wire_run(2, CT_PLAN_SHARD_NONE, CT_F32);
    struct run run = wire_run(2, CT_PLAN_SHARD_NONE, CT_BF16);
    struct ct_plan a, b;

    build(&a, &wide);
    build(&b, &run);
    double sums = 3 * sizeof(double); /* loss, count, wishes: they stay */
    cr_assert_float_eq(ct_plan_wire_bytes(&b) - sums, (ct_plan_wire_bytes(&a) - sums) / 2, 0.5);
    ct_plan_deinit(&a);
    ct_plan_deinit(&b);
}

Test(precision, activations_take_half_the_memory)
{
    struct run wide = gpt_run(CT_F32), run = gpt_run(CT_BF16);
    struct ct_plan a, b;

    wide.options.micro_rows = run.options.micro_rows = 64;
    wide.spec.gpt.dropout = run.spec.gpt.dropout = 0;
    build(&a, &wide);
    build(&b, &run);
    cr_assert_lt(b.step.live_bytes, a.step.live_bytes * 6 / 10, "%zu of %zu", b.step.live_bytes,
                 a.step.live_bytes);
    cr_assert_eq(a.state_bytes, b.state_bytes);
    ct_plan_deinit(&a);
    ct_plan_deinit(&b);
}
