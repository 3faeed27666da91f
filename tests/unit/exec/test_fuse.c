/* Ops that stand for several, as plans for devices that fuse have them: on the CPU, which does not,
 * the bits of the ops one by one. */
#include "base/assert.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

TestSuite(fuse, .timeout = 60);

static struct run gpt_run(void)
{
    struct run run = run_gpt(4, 8);

    run.options.accumulation = 2;
    run.options.micro_rows = 4;
    run.options.optim.clip = 0;
    run.lr = 0.01;
    return run;
}

/* What the run does is in its plan, too. */
static void expect_planned(const struct run *run, bool forward, const char *what)
{
    struct ct_plan plan;
    struct ct_error err = {0};
    int fused = 0, back = 0, norms = 0, sums = 0;

    cr_assert_eq(ct_plan_build(&plan, &run->spec, &run->options, 1, &err), 0, "%s", err.text);
    for (int i = 0; i < plan.step.program.op_count; i++) {
        fused += plan.step.program.ops[i].kind == CT_OP_LINEAR_GELU;
        back += plan.step.program.ops[i].kind == CT_OP_LINEAR_DX_GELU;
        norms += plan.step.program.ops[i].kind == CT_OP_LAYERNORM_BW;
        sums += plan.step.program.ops[i].kind == CT_OP_ADD_LAYERNORM;
    }
    cr_assert_eq(fused > 0, forward, "%s", what);
    cr_assert_gt(back, 0, "%s", what);
    cr_assert_gt(norms, 0, "%s", what);
    cr_assert_gt(sums, 0, "%s", what);
    ct_plan_deinit(&plan);
}

static void assert_same(const struct ct_plan_options *options, const char *what)
{
    struct run apart = gpt_run(), fused = gpt_run();

    apart.options = fused.options = *options;
    fused.options.fuses = true;
    expect_planned(&fused, options->recompute != CT_PLAN_RECOMPUTE_GELU, what);
    run_train(&apart);
    run_train(&fused);
    assert_same_bits(&fused, &apart, what);
    run_deinit(&apart);
    run_deinit(&fused);
}

Test(fuse, ops_that_stand_for_several_have_their_bits_in_every_layout)
{
    static const enum ct_dtype types[] = {CT_F32, CT_BF16};

    for (size_t t = 0; t < CT_COUNT(types); t++) {
        struct ct_plan_options plain = gpt_run().options, options;
        plain.compute = types[t];
        assert_same(&plain, "one rank");
        for (int what = CT_PLAN_RECOMPUTE_GELU; what <= CT_PLAN_RECOMPUTE_BLOCK; what++) {
            options = plain;
            options.recompute = (enum ct_plan_recompute)what;
            assert_same(&options, "recomputed");
        }
        options = plain;
        options.offload = true;
        assert_same(&options, "offloaded");
        options = plain;
        options.world = 2;
        options.shard = CT_PLAN_SHARD_FULL;
        assert_same(&options, "fsdp");
        options = plain;
        options.world = options.stages = 2;
        options.order = CT_PLAN_1F1B;
        assert_same(&options, "stages");
        options = plain;
        options.world = options.tensor = 2;
        assert_same(&options, "slices");
        options.sequence = true;
        assert_same(&options, "tokens");
    }
}
