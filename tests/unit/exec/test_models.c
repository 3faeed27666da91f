/* The rows E1, E7, E8, E11 and E16 of the equivalence table for GPTs and for a model of one's
 * own, with dropout, with ranks as threads. */
#include "base/assert.h"
#include "graph/builder.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <math.h>

TestSuite(models, .timeout = 60);

/* Two wide branches that meet again: more than the specification of an MLP can say. */
static int build_own(struct ct_builder *b, void *context, struct ct_error *err)
{
    int x = ct_build_features(b, ct_shape2(b->rows, 6));
    int h = ct_build_act(b, CT_ACT_GELU, ct_build_linear(b, "in", x, 9));
    int more = ct_build_act(b, CT_ACT_TANH, ct_build_linear(b, "more", h, 9));

    (void)context;
    (void)err;
    h = ct_build_norm(b, "norm", ct_build_add(b, h, more), CT_NORM_LAYER, 1e-5, true);
    h = ct_build_dropout(b, "drop", h, 0.2);
    ct_build_loss(b, CT_LOSS_CROSS_ENTROPY, ct_build_linear(b, "out", h, 4));
    return 0;
}

static const struct ct_layer_spec cnn[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_CONV2D, .out = 5, .kernel = 2, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2, .stride = 1},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_DROPOUT, .rate = 0.1},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = CT_LAYER_NO_ACT},
};

/* With batch norm; the second one over the whole global batch. */
static const struct ct_layer_spec plain_body[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM},
};
static const struct ct_layer_spec sync_body[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true},
};
static const struct ct_layer_spec plain_norms[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM},
    {.kind = CT_LAYER_RESIDUAL, .body = {plain_body, CT_COUNT(plain_body)}, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = -1},
};
static const struct ct_layer_spec sync_norms[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true},
    {.kind = CT_LAYER_RESIDUAL, .body = {sync_body, CT_COUNT(sync_body)}, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = -1},
};
_Static_assert((int)CT_LAYER_NO_ACT == -1, "as written above");

enum { GPT2, LLAMA, CNN, OWN, SYNC, BATCH, MODELS };

/* Whether what a sample gives depends on who is in its micro-batch. */
static bool knows_its_batch(int which)
{
    return which == BATCH;
}

static struct run run_of(int which)
{
    struct run run = run_default();
    struct ct_gpt_spec *gpt = &run.spec.gpt;

    run.options.optim.clip = 1;
    if (which == OWN) {
        run.spec.type = CT_MODEL_CUSTOM; /* input and classes are those of the data */
        run.spec.build = build_own;
        return run;
    }
    if (which == BATCH || which == SYNC) {
        run_see(&run, 4, 3, which == SYNC ? sync_norms : plain_norms, CT_COUNT(plain_norms));
        return run;
    }
    if (which == CNN) {
        run_see(&run, 4, 3, cnn, CT_COUNT(cnn));
        return run;
    }
    run.spec.type = CT_MODEL_GPT;
    *gpt = (struct ct_gpt_spec){.vocabulary = 11,
                                .context = 9,
                                .sequence = 7,
                                .layers = 2,
                                .heads = 2,
                                .width = 12,
                                .dropout = 0.1};
    if (which == LLAMA) {
        gpt->positions = CT_POSITIONS_ROTARY;
        gpt->norm = CT_NORM_RMS;
        gpt->mlp = CT_MLP_SWIGLU;
        gpt->untied = gpt->unbiased = true;
    }
    return run;
}

/* The same 8 samples a step on `world` ranks, in micro-batches of `rows`. */
static struct run split(int which, int world, int64_t rows, enum ct_plan_reduce reduce)
{
    struct run run = run_of(which);

    run.options.world = world;
    run.options.micro_rows = rows;
    run.options.accumulation = (int)(8 / rows / world);
    run.options.reduce = reduce;
    return run;
}

static void assert_replicas_equal(const struct run *run)
{
    for (int rank = 1; rank < run->options.world; rank++)
        cr_assert_eq(run->digests[rank], run->digests[0], "rank %d of %d differs", rank,
                     run->options.world);
}

Test(models, invariant_runs_of_1_2_and_4_ranks_have_equal_bits)
{
    for (int which = 0; which < MODELS; which++) {
        struct run single = split(which, 1, 2, CT_PLAN_INVARIANT);

        run_train(&single);
        for (int world = 2; world <= 4; world *= 2) {
            struct run run = split(which, world, 2, CT_PLAN_INVARIANT);
            run_train(&run);
            assert_same_bits(&run, &single, "ranks");
            assert_replicas_equal(&run);
            run_deinit(&run);
        }
        run_deinit(&single);
    }
}

Test(models, ranks_and_accumulation_equal_one_batch_within_2e_6)
{
    static const struct {
        int world;
        int64_t rows;
    } splits[] = {{1, 1}, {1, 4}, {2, 4}, {4, 2}, {4, 1}};

    for (int which = 0; which < MODELS; which++) {
        struct run single = split(which, 1, 8, CT_PLAN_FAST);

        if (knows_its_batch(which))
            continue;
        single.masked = 1;
        run_train(&single);
        for (size_t i = 0; i < CT_COUNT(splits); i++) {
            struct run run = split(which, splits[i].world, splits[i].rows, CT_PLAN_FAST);
            run.masked = 1;
            run_train(&run);
            double l2 = relative_l2(run.grads, single.grads, run.grad_count);
            double state = relative_l2(run.state, single.state, run.state_count);
            cr_assert_lt(state, 2e-6, "model %d, %d ranks: %g", which, splits[i].world, state);
            cr_assert_lt(l2, 2e-6, "model %d, %d ranks: %g", which, splits[i].world, l2);
            for (int step = 0; step < run.steps; step++)
                cr_assert_lt(fabs(run.losses[step] - single.losses[step]),
                             2e-6 * single.losses[step]);
            assert_replicas_equal(&run);
            run_deinit(&run);
        }
        run_deinit(&single);
    }
}

/* E1 without synchronisation: the same micro-batches on any number of ranks, some of their samples
 * masked; the running statistics are part of the state. */
Test(models, batch_norm_over_equal_micro_batches_is_the_same_on_any_number_of_ranks)
{
    for (int64_t masked = 0; masked <= 5; masked++) { /* 4 and more: a whole micro-batch */
        struct run single = split(BATCH, 1, 4, CT_PLAN_FAST);
        struct run two = split(BATCH, 2, 4, CT_PLAN_FAST);

        single.masked = two.masked = masked;
        run_train(&single);
        run_train(&two);
        assert_replicas_equal(&two);
        double l2 = relative_l2(two.state, single.state, two.state_count);
        cr_assert_lt(l2, 2e-6, "%d masked: %g", (int)masked, l2);
        for (int step = 0; step < two.steps; step++)
            cr_assert_lt(fabs(two.losses[step] - single.losses[step]), 2e-6 * single.losses[step]);
        run_deinit(&single);
        run_deinit(&two);
    }
}

/* E2 with buffers, which no rank shares out. */
Test(models, batch_norm_is_the_same_however_parameters_are_sharded)
{
    for (int which = SYNC; which <= BATCH; which++) {
        struct run whole = split(which, 2, 2, CT_PLAN_REPRODUCIBLE);

        run_train(&whole);
        for (int shard = CT_PLAN_SHARD_OPTIM; shard <= CT_PLAN_SHARD_FULL; shard++) {
            struct run run = split(which, 2, 2, CT_PLAN_REPRODUCIBLE);
            run.options.shard = (enum ct_plan_shard)shard;
            run_train(&run);
            cr_assert_eq(run.digests[0], whole.digests[0], "model %d, sharding %d", which, shard);
            run_deinit(&run);
        }
        run_deinit(&whole);
    }
}

/* Masked samples are as if they were not there: padding of a last batch changes nothing. */
Test(models, batch_norm_does_not_see_masked_samples)
{
    struct run padded = split(SYNC, 2, 4, CT_PLAN_FAST), alone = split(SYNC, 1, 8, CT_PLAN_FAST);

    padded.masked = alone.masked = 3;
    padded.steps = alone.steps = 1;
    alone.options.micro_rows = 5;
    alone.masked = 0;
    run_train(&padded);
    run_train(&alone);
    double l2 = relative_l2(padded.state, alone.state, alone.state_count);
    cr_assert_lt(l2, 2e-6, "%g", l2);
    run_deinit(&padded);
    run_deinit(&alone);
}

Test(models, buckets_and_overlap_do_not_change_a_bit)
{
    for (int which = 0; which < MODELS; which++) {
        struct run base = split(which, 2, 2, CT_PLAN_REPRODUCIBLE);

        run_train(&base);
        for (int overlap = 0; overlap < 2; overlap++) {
            struct run run = split(which, 2, 2, CT_PLAN_REPRODUCIBLE);
            run.options.first_bucket_bytes = overlap ? 1 : 25 << 20;
            run.options.bucket_bytes = overlap ? 1024 : 25 << 20;
            run.options.overlap = overlap;
            run_train(&run);
            assert_same_bits(&run, &base, "buckets, overlap");
            run_deinit(&run);
        }
        run_deinit(&base);
    }
}

static double mean(const double *numbers, int count)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        sum += numbers[i];
    return sum / count;
}

/* Each step has other samples: eight steps together tell. (The CNN's pictures are mostly noise;
 * that it follows torch's losses is in test_golden.c.) */
Test(models, steps_learn)
{
    for (int which = 0; which < MODELS; which++) {
        struct run run = split(which, 1, 8, CT_PLAN_FAST);

        if (which == CNN || which == BATCH || which == SYNC)
            continue;
        run.steps = FIXTURE_MAX_STEPS;
        run.lr = 0.02;
        run.options.optim = (struct ct_optim_spec){
            .type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
        run_train(&run);
        double before = mean(run.losses, 8), after = mean(run.losses + run.steps - 8, 8);
        cr_assert_lt(after, 0.97 * before, "model %d: %g to %g", which, before, after);
        run_deinit(&run);
    }
}

/* E11: at world 1 and 4, before any step. */
Test(models, begin_alike_on_any_number_of_ranks)
{
    for (int which = 0; which < MODELS; which++) {
        struct run one = split(which, 1, 2, CT_PLAN_FAST), four = split(which, 4, 2, CT_PLAN_FAST);

        one.steps = four.steps = 0;
        run_train(&one);
        run_train(&four);
        assert_same_bits(&one, &four, "first values");
        assert_replicas_equal(&four);
        run_deinit(&one);
        run_deinit(&four);
    }
}

static int build_nothing(struct ct_builder *b, void *context, struct ct_error *err)
{
    (void)b;
    (void)context;
    (void)err;
    return 0;
}

Test(models, a_model_without_input_or_loss_is_refused)
{
    struct run run = run_of(OWN);
    struct ct_plan plan;
    struct ct_error err = {0};

    run.spec.build = build_nothing;
    cr_assert_eq(ct_plan_build(&plan, &run.spec, &run.options, 1, &err), CT_EUSAGE);
    cr_assert_str_eq(err.text, "the model has no input");
    ct_plan_deinit(&plan);
}
