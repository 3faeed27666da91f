/* E7: what is computed once more has the same bits, and takes less memory as planned. */
#include "base/assert.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

TestSuite(recompute, .timeout = 60);

static const int64_t deep[] = {32, 32, 32, 32, 32, 32};

static struct run gpt_run(void)
{
    struct run run = run_gpt(4, 8);

    run.options.accumulation = 2;
    run.options.micro_rows = 4;
    run.lr = 0.01;
    return run;
}

static struct run mlp_run(void)
{
    struct run run = run_default();

    run.spec.hidden = deep;
    run.spec.hidden_count = CT_COUNT(deep);
    run.options.accumulation = 2;
    run.options.micro_rows = 24;
    return run;
}

static const struct ct_layer_spec normed[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true},
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = -1},
};

static struct run cnn_run(void)
{
    struct run run = run_default();

    run_see(&run, 4, 4, normed, CT_COUNT(normed));
    run.options.accumulation = 2;
    run.options.micro_rows = 4;
    return run;
}

static size_t planned(const struct run *run)
{
    struct ct_plan plan;
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(&plan, &run->spec, &run->options, 1, &err), 0, "%s", err.text);
    size_t live = plan.step.live_bytes;
    ct_plan_deinit(&plan);
    return live;
}

static const struct {
    enum ct_plan_recompute what;
    int blocks;
} ways[] = {{CT_PLAN_RECOMPUTE_GELU, 0},
            {CT_PLAN_RECOMPUTE_ATTENTION, 0},
            {CT_PLAN_RECOMPUTE_BLOCK, 1},
            {CT_PLAN_RECOMPUTE_BLOCK, 2}};

static void assert_same(struct run (*make)(void), int world, enum ct_plan_shard shard)
{
    struct run plain = make();

    plain.options.world = world;
    plain.options.shard = shard;
    run_train(&plain);
    for (size_t i = 0; i < CT_COUNT(ways); i++) {
        struct run run = make();
        run.options = plain.options;
        run.options.recompute = ways[i].what;
        run.options.recompute_blocks = ways[i].blocks;
        run_train(&run);
        assert_same_bits(&run, &plain, "recomputed");
        run_deinit(&run);
    }
    run_deinit(&plain);
}

Test(recompute, no_bit_changes)
{
    assert_same(gpt_run, 1, CT_PLAN_SHARD_NONE);
    assert_same(mlp_run, 1, CT_PLAN_SHARD_NONE);
    assert_same(cnn_run, 1, CT_PLAN_SHARD_NONE);
    assert_same(cnn_run, 2, CT_PLAN_SHARD_NONE);
    assert_same(gpt_run, 2, CT_PLAN_SHARD_NONE);
    assert_same(gpt_run, 2, CT_PLAN_SHARD_FULL);
}

Test(recompute, a_step_needs_less_memory)
{
    struct run run = gpt_run();
    size_t plain, gelu, attention, block, two;

    run.options.micro_rows = 32;
    plain = planned(&run);
    run.options.recompute = CT_PLAN_RECOMPUTE_GELU;
    gelu = planned(&run);
    run.options.recompute = CT_PLAN_RECOMPUTE_ATTENTION;
    attention = planned(&run);
    run.options.recompute = CT_PLAN_RECOMPUTE_BLOCK;
    block = planned(&run);
    run.options.recompute_blocks = 2;
    two = planned(&run);
    cr_assert_lt(gelu, plain);
    cr_assert_lt(attention, plain);
    cr_assert_lt(block, gelu);
    cr_assert_lt(two, plain);
    cr_assert_lt(block, plain * 6 / 10, "%zu of %zu", block, plain);
}
