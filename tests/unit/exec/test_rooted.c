/* DataParallel: rank 0 has the batch, the update and the moments. Row E1 of the equivalence table
 * with dp in ddp's place. */
#include "tests/unit/exec/fixture.h"

#include "base/assert.h"
#include "collectives/plan/measure.h"

#include <criterion/criterion.h>

TestSuite(rooted, .timeout = 30);

static struct run small_gpt(void)
{
    struct run run = run_default();

    run.spec.type = CT_MODEL_GPT;
    run.spec.gpt = (struct ct_gpt_spec){.vocabulary = 13,
                                        .context = 6,
                                        .sequence = 6,
                                        .layers = 2,
                                        .heads = 2,
                                        .width = 8,
                                        .dropout = 0.1};
    run.options.optim = (struct ct_optim_spec){
        .type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1, .ema = 0.9};
    return run;
}

/* Train twice, ranks that hold all and one that leads the others. */
static void compare(struct run ddp, const char *what)
{
    struct run dp = ddp;

    dp.options.rooted = true;
    run_train(&ddp);
    run_train(&dp);
    assert_same_bits(&dp, &ddp, what);
    for (int64_t i = 0; i < ddp.grad_count; i++)
        cr_assert_eq(dp.grads[i], ddp.grads[i], "%s: gradient %lld", what, (long long)i);
    run_deinit(&ddp);
    run_deinit(&dp);
}

Test(rooted, one_rank_that_leads_the_others_has_the_bits_of_ddp)
{
    static const enum ct_plan_reduce reduces[] = {CT_PLAN_REPRODUCIBLE, CT_PLAN_INVARIANT};

    for (int world = 2; world <= 4; world += 2)
        for (size_t i = 0; i < CT_COUNT(reduces); i++) {
            struct run mlp = run_default(), gpt = small_gpt();
            mlp.options.world = gpt.options.world = world;
            mlp.options.reduce = gpt.options.reduce = reduces[i];
            mlp.masked = 3;
            compare(mlp, "perceptron");
            compare(gpt, "gpt");
        }
}

Test(rooted, replicas_in_mode_invariant_have_the_bits_of_one_process)
{
    struct run alone = run_default(), dp = run_default();

    alone.options.accumulation = 8;
    dp.options.world = 4;
    dp.options.accumulation = 2;
    dp.options.rooted = true;
    run_train(&alone);
    run_train(&dp);
    assert_same_bits(&dp, &alone, "4 replicas");
    run_deinit(&alone);
    run_deinit(&dp);
}

Test(rooted, recomputing_and_one_micro_batch_change_no_bit)
{
    struct run run = small_gpt();

    run.options.world = 2;
    run.options.accumulation = 1;
    run.options.reduce = CT_PLAN_REPRODUCIBLE;
    run.options.recompute = CT_PLAN_RECOMPUTE_BLOCK;
    compare(run, "block");
}

Test(rooted, replicas_have_no_moments_and_everything_goes_through_rank_0)
{
    struct run run = small_gpt();
    struct ct_plan root, replica;
    struct ct_measure measure;

    run.options.world = 4;
    run.options.rooted = true;
    cr_assert_eq(ct_plan_build(&root, &run.spec, &run.options, 1, NULL), 0);
    run.options.rank = 3;
    cr_assert_eq(ct_plan_build(&replica, &run.spec, &run.options, 1, NULL), 0);
    cr_assert_eq(root.hash, replica.hash);
    cr_assert_eq(root.state_bytes, 4 * root.flat_bytes);
    cr_assert_eq(replica.state_bytes, replica.flat_bytes);
    cr_assert_eq(ct_plan_measure(&root, &measure, NULL), 0);
    cr_assert_eq(measure.traffic[CT_AXIS_DATA].calls, 4, "broadcast, two scatters, reduce");
    ct_plan_deinit(&root);
    ct_plan_deinit(&replica);
}
