/* Pipelines: the rows E3, E6, E7, E10 to E12 of the equivalence table with stages, ranks as
 * threads.
 */
#include "base/assert.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(pipeline, .timeout = 40);

static const int64_t hidden[] = {9, 8, 7, 9, 8};

static const struct ct_layer_spec cnn[] = {
    {.kind = CT_LAYER_CONV2D, .out = 5, .kernel = 3, .pad = 1, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_BATCH_NORM},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2, .stride = 1},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 7, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_BATCH_NORM},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = CT_LAYER_NO_ACT},
};

/* Two norms over the whole global batch, at two stages. */
static const struct ct_layer_spec synced[] = {
    {.kind = CT_LAYER_CONV2D, .out = 5, .kernel = 3, .pad = 1, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2, .stride = 1},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 7, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true},
    {.kind = CT_LAYER_LINEAR, .out = 6, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = CT_LAYER_NO_ACT},
};

enum { MLP, CNN, GPT, MODELS };

static const struct ct_optim_spec adamw = {
    .type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01};

/* Eight samples a step, in micro-batches of one; not in a pipeline yet. */
static struct run model(int which)
{
    struct run run = run_default();

    run.exec.timeout_ms = 30000; /* not the group's ten minutes, where two wait for each other */
    run.options.micro_rows = which == CNN ? 2 : 1;
    run.options.accumulation = which == CNN ? 4 : 8;
    run.spec.hidden = hidden;
    run.spec.hidden_count = CT_COUNT(hidden);
    if (which == CNN)
        run_see(&run, 4, 3, cnn, CT_COUNT(cnn));
    if (which == GPT) {
        run.options.optim = adamw;
        run.spec.type = CT_MODEL_GPT;
        run.spec.gpt = (struct ct_gpt_spec){.vocabulary = 11,
                                            .context = 9,
                                            .sequence = 7,
                                            .layers = 3,
                                            .heads = 2,
                                            .width = 12,
                                            .untied = true,
                                            .dropout = 0.1};
    }
    return run;
}

/* The same on `stages` times as many ranks. */
static struct run staged(struct run run, enum ct_plan_order order, int stages, int chunks)
{
    run.options.world *= stages;
    run.options.stages = stages;
    run.options.chunks = chunks;
    run.options.order = order;
    return run;
}

/* The norm is added up stage by stage: other roundings of a double. */
static void take_norms(struct run *run, const struct run *of)
{
    for (int step = 0; step < run->steps; step++) {
        cr_assert_lt(fabs(run->norms[step] - of->norms[step]), 1e-12 * of->norms[step]);
        run->norms[step] = of->norms[step];
    }
}

static void assert_pipeline_equals(const struct run *whole, struct run run, const char *what)
{
    run_train(&run);
    take_norms(&run, whole);
    assert_same_bits(&run, whole, what);
    run_deinit(&run);
}

/* ---- E3: stages do not change a bit ---------------------------------------------------------- */

static void assert_orders_equal_one_process(int which, enum ct_plan_reduce reduce)
{
    struct run whole = model(which);

    whole.options.reduce = reduce;
    run_train(&whole);
    struct run plain = whole;
    plain.grads = plain.state = NULL;
    for (int stages = 2; stages <= 4 - (which == CNN); stages++)
        for (int order = CT_PLAN_GPIPE; order <= CT_PLAN_1F1B; order++)
            assert_pipeline_equals(&whole, staged(plain, (enum ct_plan_order)order, stages, 1),
                                   "stages");
    assert_pipeline_equals(&whole, staged(plain, CT_PLAN_EAGER, 3, 1), "eager");
    if (which != CNN)
        assert_pipeline_equals(&whole, staged(plain, CT_PLAN_INTERLEAVED, 2, 2), "interleaved");
    run_deinit(&whole);
}

Test(pipeline, every_order_has_the_bits_of_one_process)
{
    for (int which = 0; which < MODELS; which++)
        for (int reduce = CT_PLAN_FAST; reduce <= CT_PLAN_INVARIANT; reduce++)
            assert_orders_equal_one_process(which, (enum ct_plan_reduce)reduce);
}

/* ---- with replicas and parts ----------------------------------------------------------------- */

static const enum ct_plan_shard shards[] = {CT_PLAN_SHARD_NONE, CT_PLAN_SHARD_OPTIM,
                                            CT_PLAN_SHARD_GRAD, CT_PLAN_SHARD_FULL};

/* On two ranks that see other samples, each with half of the micro-batches. */
static struct run doubled(struct run run)
{
    run.options.world = 2;
    run.options.accumulation /= 2;
    return run;
}

Test(pipeline, stages_times_replicas_have_the_bits_of_replicas)
{
    for (int which = 0; which < MODELS; which++) {
        struct run whole = doubled(model(which));
        run_train(&whole);
        for (size_t i = 0; i < CT_COUNT(shards); i++) {
            struct run run = staged(doubled(model(which)), CT_PLAN_1F1B, 2, 1);
            run.options.shard = shards[i];
            run.options.prefetch = 1;
            assert_pipeline_equals(&whole, run, "two stages of two ranks");
            run.options.overlap = false;
            run.grads = run.state = NULL;
            assert_pipeline_equals(&whole, run, "without overlap");
        }
        run_deinit(&whole);
    }
}

Test(pipeline, interleaved_stages_share_parts)
{
    struct run whole = doubled(model(GPT));

    run_train(&whole);
    for (size_t i = 0; i < CT_COUNT(shards); i++) {
        struct run run = staged(doubled(model(GPT)), CT_PLAN_INTERLEAVED, 2, 2);
        run.options.shard = shards[i];
        assert_pipeline_equals(&whole, run, "interleaved");
    }
    run_deinit(&whole);
}

/* ---- norms over the global batch ------------------------------------------------------------ */

static struct run synchronised(void)
{
    struct run run = model(CNN);

    run_see(&run, 4, 3, synced, CT_COUNT(synced));
    return run;
}

Test(pipeline, synchronised_norms_in_stages_have_the_bits_of_one_process)
{
    for (int reduce = CT_PLAN_FAST; reduce <= CT_PLAN_INVARIANT; reduce++) {
        struct run whole = synchronised();
        whole.options.reduce = (enum ct_plan_reduce)reduce;
        for (int stages = 2; stages <= 4; stages++) {
            struct run run = staged(whole, CT_PLAN_GPIPE, stages, 1), one = whole;
            run_train(&one);
            assert_pipeline_equals(&one, run, "synchronised");
            run_deinit(&one);
        }
    }
}

Test(pipeline, synchronised_norms_of_several_ranks_in_stages_have_their_bits)
{
    struct run whole = doubled(synchronised());

    run_train(&whole);
    for (size_t i = 0; i < CT_COUNT(shards); i++) {
        struct run run = staged(doubled(synchronised()), CT_PLAN_GPIPE, 3, 1);
        run.options.shard = shards[i];
        assert_pipeline_equals(&whole, run, "three stages of two ranks");
        run.options.recompute = CT_PLAN_RECOMPUTE_BLOCK;
        run.options.overlap = false;
        assert_pipeline_equals(&whole, run, "recomputed, without overlap");
    }
    run_deinit(&whole);
}

/* Then there is nothing to wait for but other ranks. */
Test(pipeline, one_micro_batch_of_synchronised_norms_goes_with_any_order)
{
    struct run whole = synchronised();

    whole.options.world = 2;
    whole.options.micro_rows = 4;
    whole.options.accumulation = 1;
    struct run run = staged(whole, CT_PLAN_1F1B, 2, 1);
    run_train(&whole);
    assert_pipeline_equals(&whole, run, "1f1b");
    run_deinit(&whole);
}

/* ---- tied embeddings ------------------------------------------------------------------------- */

static struct run tied(void)
{
    struct run run = model(GPT);

    run.spec.gpt.untied = false;
    run.options.optim = run_default().options.optim;
    return run;
}

static void assert_close(const struct run *a, const struct run *b)
{
    for (int step = 0; step < a->steps; step++) {
        cr_assert_lt(fabs(a->losses[step] - b->losses[step]), 1e-6 * b->losses[step]);
        cr_assert_lt(fabs(a->norms[step] - b->norms[step]), 1e-6 * b->norms[step]);
    }
    double l2 = relative_l2(a->state, b->state, a->state_count);
    cr_assert_lt(l2, 2e-6, "state differs by %g", l2);
}

Test(pipeline, tied_embeddings_agree_with_one_process_and_bitwise_among_orders)
{
    struct run whole = tied(), first = staged(tied(), CT_PLAN_GPIPE, 3, 1);

    run_train(&whole);
    run_train(&first);
    assert_close(&first, &whole);
    cr_assert_neq(first.common[0].holders[CT_EXEC_TIED], 0, "the first and the last stage");
    cr_assert_eq(first.common[1].holders[CT_EXEC_TIED], 0);
    cr_assert_eq(first.common[2].holders[CT_EXEC_TIED], first.common[0].holders[CT_EXEC_TIED]);
    assert_pipeline_equals(&first, staged(tied(), CT_PLAN_1F1B, 3, 1), "1f1b");
    run_deinit(&first);
    run_deinit(&whole);
}

/* ---- what else a step is made of ------------------------------------------------------------- */

Test(pipeline, recomputing_and_averaging_do_not_change_a_bit)
{
    for (int which = 0; which < MODELS; which++)
        for (int recompute = CT_PLAN_RECOMPUTE_GELU; recompute <= CT_PLAN_RECOMPUTE_BLOCK;
             recompute++) {
            struct run whole = model(which);
            whole.options.optim.ema = 0.9;
            run_train(&whole);
            struct run run = staged(model(which), CT_PLAN_1F1B, 2, 1);
            run.options.optim.ema = 0.9;
            run.options.recompute = (enum ct_plan_recompute)recompute;
            run.options.recompute_blocks = 2;
            assert_pipeline_equals(&whole, run, "recompute");
            run_deinit(&whole);
        }
}

Test(pipeline, gradients_are_clipped_by_the_norm_over_all_stages)
{
    for (int is_tied = 0; is_tied <= 1; is_tied++) {
        struct run one = is_tied ? tied() : model(MLP);
        one.options.optim.clip = 0.01;
        struct run run = staged(one, CT_PLAN_1F1B, 3, 1);
        run_train(&one);
        run_train(&run);
        for (int step = 0; step < run.steps; step++)
            cr_assert_gt(one.norms[step], 0.01, "nothing is clipped");
        assert_close(&run, &one);
        run_deinit(&run);
        run_deinit(&one);
    }
}

Test(pipeline, a_step_that_is_not_finite_is_left_out_by_all_stages)
{
    struct run whole = model(MLP), run = staged(model(MLP), CT_PLAN_1F1B, 2, 1);

    whole.poisoned = run.poisoned = 2;
    run_train(&whole);
    run_train(&run);
    cr_assert(isnan(whole.losses[1]) && isnan(run.losses[1]));
    for (int rank = 0; rank < 2; rank++)
        cr_assert_eq(run.skipped[rank], 1);
    for (int64_t i = 0; i < run.state_count; i++)
        cr_assert_eq(run.state[i], whole.state[i]);
    run_deinit(&run);
    run_deinit(&whole);
}

static const char *const front[] = {"layers.0.*", "layers.1.*"};

Test(pipeline, layers_that_do_not_learn_get_no_gradient_from_later_stages)
{
    struct run whole = model(MLP), run = staged(model(MLP), CT_PLAN_1F1B, 2, 1);

    whole.options.optim.groups = run.options.optim.groups =
        (struct ct_optim_groups){.frozen = front, .frozen_count = CT_COUNT(front)};
    run_train(&whole);
    assert_pipeline_equals(&whole, run, "frozen");
    run_deinit(&whole);
}

/* ---- E6: stages, replicas and slices together ------------------------------------------------ */

static struct run sliced(bool sequence)
{
    struct run run = model(GPT);

    run.spec.gpt.sequence = 6; /* tokens that two slices can share */
    run.options.world = 2;
    run.options.tensor = 2;
    run.options.sequence = sequence;
    run.options.optim = run_default().options.optim;
    run.steps = 3;
    return run;
}

Test(pipeline, two_by_two_by_two_ranks_have_the_bits_of_two_slices)
{
    for (int sequence = 0; sequence <= 1; sequence++) {
        struct run flat = sliced(sequence == 1), dense = sliced(false);
        /* Slices that share tokens add up parts of gradients before replicas do: as many of both.
         */
        flat.options.world = sequence == 0 ? 2 : 4;
        flat.options.accumulation /= flat.options.world / 2;
        run_train(&flat);
        for (int order = CT_PLAN_GPIPE; order <= CT_PLAN_1F1B; order++) {
            struct run run = sliced(sequence == 1);
            run.options.world = 8;
            run.options.stages = 2;
            run.options.order = (enum ct_plan_order)order;
            run.options.accumulation /= 2;
            run.options.shard = order == CT_PLAN_GPIPE ? CT_PLAN_SHARD_NONE : CT_PLAN_SHARD_OPTIM;
            assert_pipeline_equals(&flat, run, "2 x 2 x 2");
        }
        dense.options.world = dense.options.tensor = 1;
        run_train(&dense);
        assert_close(&flat, &dense);
        run_deinit(&dense);
        run_deinit(&flat);
    }
}

/* ---- E10, E11: any layout holds the same tensors -------------------------------------------- */

Test(pipeline, stages_begin_as_one_process_does)
{
    for (int which = 0; which < MODELS; which++) {
        struct run whole = model(which), run = staged(model(which), CT_PLAN_1F1B, 3, 1);
        whole.steps = run.steps = 0;
        run_train(&whole);
        run_train(&run);
        assert_same_bits(&run, &whole, "first values");
        run_deinit(&run);
        run_deinit(&whole);
    }
}

Test(pipeline, evaluations_sum_up_to_those_of_one_process)
{
    struct run run = staged(model(GPT), CT_PLAN_INTERLEAVED, 2, 2), one = model(GPT);

    run.evaluates = one.evaluates = true;
    run_train(&one);
    run_train(&run);
    cr_assert_eq(run.evaluation.loss, one.evaluation.loss);
    cr_assert_eq(run.evaluation.correct, one.evaluation.correct);
    run_deinit(&run);
    run_deinit(&one);
}

Test(pipeline, sixteen_bits_in_stages_have_the_bits_of_one_process)
{
    for (int which = 0; which < MODELS; which += 2)
        for (int compute = 0; compute <= 1; compute++) {
            struct run whole = model(which);
            whole.options.compute = compute == 0 ? CT_BF16 : CT_F16;
            struct run run = staged(whole, CT_PLAN_1F1B, 2, 1);
            run_train(&whole);
            assert_pipeline_equals(&whole, run, "16 bits");
            run_deinit(&whole);
        }
}
