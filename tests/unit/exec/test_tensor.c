/* Slices of a mesh: the rows E4, E5, E10, E11 and E12 of the equivalence table, with ranks as
 * threads. */
#include "base/assert.h"
#include "tests/unit/exec/exchange.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(tensor, .timeout = 60);

enum { MLP, GPT, LLAMA, MODELS };

static const int64_t hidden[] = {16, 12, 8};

static const struct ct_optim_spec adamw = {
    .type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01};

/* Eight samples a step; MLP: three hidden layers and 5 classes; GPT: tied head, 11 tokens; LLAMA:
 * untied, rotary, SwiGLU, RMSNorm, no biases. */
static struct run dense(int which)
{
    struct run run = run_default();

    run.options.micro_rows = 4;
    run.options.accumulation = 2;
    run.options.optim.clip = 0.5;
    run.spec.hidden = hidden;
    run.spec.hidden_count = CT_COUNT(hidden);
    run.spec.classes = 5;
    if (which == MLP)
        return run;
    run.spec.type = CT_MODEL_GPT;
    run.spec.gpt = (struct ct_gpt_spec){.vocabulary = 11,
                                        .context = 9,
                                        .sequence = 6,
                                        .layers = 2,
                                        .heads = 4,
                                        .width = 16,
                                        .dropout = 0.1};
    if (which == LLAMA) {
        run.spec.gpt.untied = run.spec.gpt.unbiased = true;
        run.spec.gpt.positions = CT_POSITIONS_ROTARY;
        run.spec.gpt.norm = CT_NORM_RMS;
        run.spec.gpt.mlp = CT_MLP_SWIGLU;
        run.spec.gpt.inner = 24;
    }
    return run;
}

static struct run sliced(int which, int world, int slices)
{
    struct run run = dense(which);

    run.options.world = world;
    run.options.tensor = slices;
    run.options.accumulation = 2 * slices / world;
    if (run.options.accumulation == 0) {
        run.options.accumulation = 1;
        run.options.micro_rows = 8 * slices / world;
    }
    return run;
}

/* Losses, norms and state: rounding apart the same. */
static void assert_close(const struct run *run, const struct run *one, const char *what)
{
    for (int step = 0; step < one->steps; step++) {
        cr_assert_lt(fabs(run->losses[step] - one->losses[step]), 2e-6 * one->losses[step],
                     "%s: loss of step %d: %.9g and %.9g", what, step, run->losses[step],
                     one->losses[step]);
        cr_assert_lt(fabs(run->norms[step] - one->norms[step]), 2e-6 * one->norms[step],
                     "%s: norm of step %d: %.9g and %.9g", what, step, run->norms[step],
                     one->norms[step]);
        cr_assert_eq(run->correct[step], one->correct[step], "%s: count of step %d", what, step);
    }
    cr_assert_eq(run->state_count, one->state_count);
    double l2 = relative_l2(run->state, one->state, one->state_count);
    cr_assert_lt(l2, 4e-6, "%s: state differs by %g", what, l2);
}

static void compare(struct run run, const struct run *one, const char *what)
{
    run_train(&run);
    assert_close(&run, one, what);
    run_deinit(&run);
}

/* ---- E4, E12: slices compute what one rank does ---------------------------------------------- */

Test(tensor, slices_have_the_losses_norms_and_state_of_one_rank)
{
    for (int which = 0; which < MODELS; which++) {
        struct run one = dense(which);
        run_train(&one);
        compare(sliced(which, 2, 2), &one, "two slices");
        compare(sliced(which, 4, 4), &one, "four slices");
        compare(sliced(which, 4, 2), &one, "two slices, two batches");
        run_deinit(&one);
    }
}

Test(tensor, eight_ranks_share_layers_samples_and_state)
{
    struct run one = dense(GPT);

    run_train(&one);
    for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++) {
        struct run run = sliced(GPT, 8, 2);
        run.options.shard = (enum ct_plan_shard)shard;
        run.options.replicas = shard == CT_PLAN_SHARD_NONE ? 1 : 2;
        run.options.prefetch = 1;
        compare(run, &one, "eight ranks");
    }
    run_deinit(&one);
}

/* Zero1 and fsdp over slices: the bits of ddp over slices, clipping apart. */
Test(tensor, sharding_slices_does_not_change_a_bit)
{
    for (int which = 0; which < MODELS; which++) {
        struct run whole = sliced(which, 4, 2);
        whole.options.optim.clip = 0;
        run_train(&whole);
        for (int shard = CT_PLAN_SHARD_OPTIM; shard <= CT_PLAN_SHARD_FULL; shard++) {
            struct run run = sliced(which, 4, 2);
            run.options.optim.clip = 0;
            run.options.shard = (enum ct_plan_shard)shard;
            run_train(&run);
            memcpy(run.norms, whole.norms, sizeof run.norms);
            assert_same_bits(&run, &whole, "sharded slices");
            run_deinit(&run);
        }
        run_deinit(&whole);
    }
}

Test(tensor, recomputing_does_not_change_a_bit)
{
    for (int sequence = 0; sequence <= 1; sequence++) {
        struct run kept = sliced(GPT, 2, 2);
        kept.options.sequence = sequence == 1;
        run_train(&kept);
        for (int what = CT_PLAN_RECOMPUTE_GELU; what <= CT_PLAN_RECOMPUTE_BLOCK; what++) {
            struct run run = sliced(GPT, 2, 2);
            run.options.recompute = (enum ct_plan_recompute)what;
            run.options.sequence = sequence == 1;
            run_train(&run);
            assert_same_bits(&run, &kept, "recomputed slices");
            run_deinit(&run);
        }
        run_deinit(&kept);
    }
}

/* What is computed beside the collectives is what was computed between them. */
Test(tensor, overlap_does_not_change_a_bit)
{
    for (int which = 0; which < MODELS; which++)
        for (int sequence = 0; sequence <= 1; sequence++)
            for (int stages = 1; stages <= 2; stages++) {
                struct run in_line = sliced(which, 2, 2), run;
                in_line.options.sequence = sequence == 1;
                in_line.options.world = 2 * stages;
                in_line.options.stages = stages;
                run = in_line;
                in_line.options.overlap = false;
                run_train(&in_line);
                run_train(&run);
                assert_same_bits(&run, &in_line, "beside collectives and between them");
                run_deinit(&run);
                run_deinit(&in_line);
            }
}

/* Narrow slices differ from a narrow whole by roundings of 16 bits. */
Test(tensor, slices_compute_in_bf16)
{
    struct run one = dense(GPT);

    one.options.compute = CT_BF16;
    run_train(&one);
    for (int sequence = 0; sequence <= 1; sequence++) {
        struct run run = sliced(GPT, 4, 2);
        run.options.compute = CT_BF16;
        run.options.sequence = sequence == 1;
        run_train(&run);
        for (int step = 0; step < run.steps; step++)
            cr_assert_lt(fabs(run.losses[step] - one.losses[step]), 0.02 * one.losses[step]);
        double l2 = relative_l2(run.state, one.state, one.state_count);
        cr_assert_lt(l2, 2e-2, "state differs by %g", l2);
        run_deinit(&run);
    }
    run_deinit(&one);
}

/* ---- E6: slices and stages ------------------------------------------------------------------- */

/* Of eight samples in micro-batches of two; with tied embeddings the order of a sum would differ.
 */
static struct run cube(int world, int stages, bool sequence)
{
    struct run run = sliced(LLAMA, world, 2);

    run.options.stages = stages;
    run.options.micro_rows = 2;
    run.options.accumulation = 4 * 2 * stages / world;
    run.options.sequence = sequence;
    run.options.optim.clip = 0; /* the norm is added up stage by stage */
    return run;
}

static void assert_stages_equal(const struct run *flat, struct run deep, const char *what)
{
    run_train(&deep);
    memcpy(deep.norms, flat->norms, sizeof deep.norms);
    assert_same_bits(&deep, flat, what);
    run_deinit(&deep);
}

Test(tensor, stages_over_slices_do_not_change_a_bit)
{
    for (int data = 1; data <= 2; data++)
        for (int sequence = 0; sequence <= 1; sequence++) {
            struct run flat = cube(2 * data, 1, sequence == 1);
            struct run interleaved = cube(4 * data, 2, sequence == 1);
            run_train(&flat);
            assert_stages_equal(&flat, interleaved, "two stages");
            interleaved.options.order = CT_PLAN_INTERLEAVED;
            interleaved.options.chunks = 2;
            assert_stages_equal(&flat, interleaved, "two stages of two parts each");
            interleaved.options.shard = data == 1 ? CT_PLAN_SHARD_NONE : CT_PLAN_SHARD_FULL;
            interleaved.options.recompute = CT_PLAN_RECOMPUTE_BLOCK;
            assert_stages_equal(&flat, interleaved, "sharded and recomputed parts");
            run_deinit(&flat);
        }
}

Test(tensor, two_slices_two_stages_and_two_batches_do_what_one_rank_does)
{
    struct run one = dense(GPT);

    run_train(&one);
    for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++) {
        struct run run = sliced(GPT, 8, 2);
        run.options.stages = 2;
        run.options.accumulation = 2;
        run.options.micro_rows = 2;
        run.options.shard = (enum ct_plan_shard)shard;
        run.options.sequence = shard % 2 == 1;
        compare(run, &one, "2 x 2 x 2");
    }
    run_deinit(&one);
}

/* ---- E5: cut by tokens ----------------------------------------------------------------------- */

Test(tensor, cutting_by_tokens_changes_rounding_alone)
{
    for (int which = 0; which < MODELS; which++) {
        struct run one = dense(which);
        run_train(&one);
        for (int slices = 2; slices <= 4; slices *= 2) {
            struct run run = sliced(which, slices, slices);
            run.options.sequence = true;
            compare(run, &one, "cut by tokens");
        }
        struct run run = sliced(which, 4, 2);
        run.options.sequence = true;
        run.options.shard = CT_PLAN_SHARD_FULL;
        compare(run, &one, "cut by tokens, sharded");
        run_deinit(&one);
    }
}

/* ---- E10, E11: tensors come and go whole ----------------------------------------------------- */

Test(tensor, slices_begin_with_the_same_values_and_take_over_any_others)
{
    for (int which = 0; which < MODELS; which++) {
        struct run one = dense(which);
        struct originals originals;
        one.options.optim = adamw;
        originals_init(&originals, &one);
        for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++)
            for (int slices = 2; slices <= 4; slices *= 2) {
                struct run run = sliced(which, 4, slices);
                run.options.optim = adamw;
                run.options.shard = (enum ct_plan_shard)shard;
                assert_takes_over(&originals, &run, NULL);
            }
        originals_deinit(&originals);
    }
}
