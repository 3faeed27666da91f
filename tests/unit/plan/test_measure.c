/* What a plan costs: memory by kind, collectives by axis. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"
#include "collectives/plan/measure.h"

#include <criterion/criterion.h>

TestSuite(measure, .timeout = 30);

static const struct ct_gpt_spec small_gpt = {
    .vocabulary = 96, .context = 16, .layers = 3, .heads = 2, .width = 32};

static struct ct_measure measure_gpt(struct ct_plan *plan, const struct ct_plan_options *options)
{
    struct ct_model_spec spec = {.type = CT_MODEL_GPT, .dtype = CT_F32, .gpt = small_gpt};
    struct ct_measure measure;
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(plan, &spec, options, 1, &err), 0, "%s", err.text);
    cr_assert_eq(ct_plan_measure(plan, &measure, &err), 0, "%s", err.text);
    return measure;
}

static size_t sum_of(const struct ct_measure *measure)
{
    size_t sum = 0;

    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT; kind++)
        sum += measure->memory[kind];
    return sum;
}

Test(measure, the_kinds_of_memory_add_up_to_the_arena_in_every_layout)
{
    static const enum ct_plan_reduce reduces[] = {CT_PLAN_FAST, CT_PLAN_INVARIANT};

    for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++)
        for (int recompute = 0; recompute <= CT_PLAN_RECOMPUTE_BLOCK; recompute++)
            for (size_t i = 0; i < CT_COUNT(reduces); i++) {
                struct ct_plan_options options = plan_options;
                struct ct_plan plan;
                options.shard = (enum ct_plan_shard)shard;
                options.recompute = (enum ct_plan_recompute)recompute;
                options.reduce = reduces[i];
                struct ct_measure measure = measure_gpt(&plan, &options);
                cr_assert_eq(sum_of(&measure), plan.arena_bytes);
                cr_assert_lt(measure.memory[CT_MEMORY_UNUSED], plan.arena_bytes / 20);
                ct_plan_deinit(&plan);
            }
}

Test(measure, what_survives_steps_is_what_the_layout_says)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.accumulation = 1;
    struct ct_measure whole = measure_gpt(&plan, &options);
    cr_assert_eq(whole.memory[CT_MEMORY_PARAMS], plan.flat_bytes);
    cr_assert_eq(whole.memory[CT_MEMORY_MOMENTS], plan.flat_bytes);
    cr_assert_eq(whole.memory[CT_MEMORY_GRADS], plan.flat_bytes);
    cr_assert_eq(whole.memory[CT_MEMORY_COPIES], 0);
    ct_plan_deinit(&plan);

    options.shard = CT_PLAN_SHARD_FULL;
    struct ct_measure parts = measure_gpt(&plan, &options);
    cr_assert_eq(parts.memory[CT_MEMORY_PARAMS], plan.flat_bytes / 4);
    cr_assert_eq(parts.memory[CT_MEMORY_MOMENTS], plan.flat_bytes / 4);
    cr_assert_geq(parts.memory[CT_MEMORY_GRADS], plan.flat_bytes / 4);
    cr_assert_gt(parts.memory[CT_MEMORY_COPIES], 0);
    ct_plan_deinit(&plan);
}

Test(measure, recomputing_blocks_leaves_fewer_activations_and_more_work)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    struct ct_measure kept = measure_gpt(&plan, &options);
    ct_plan_deinit(&plan);
    options.recompute = CT_PLAN_RECOMPUTE_BLOCK;
    struct ct_measure again = measure_gpt(&plan, &options);
    ct_plan_deinit(&plan);
    cr_assert_lt(2 * again.memory[CT_MEMORY_ACTIVATIONS], kept.memory[CT_MEMORY_ACTIVATIONS]);
    cr_assert_gt(again.flop, kept.flop);
}

Test(measure, the_activations_of_a_perceptron_are_its_hidden_layers)
{
    struct ct_plan_options options = plan_options;
    struct ct_measure measure;
    struct ct_error err = {0};
    struct ct_plan plan;

    options.accumulation = 1;
    plan_init(&plan, &options);
    cr_assert_eq(ct_plan_measure(&plan, &measure, &err), 0);
    /* 5 rows of 9 and 7 columns, the logits' lse a row; f32 */
    cr_assert_eq(measure.memory[CT_MEMORY_ACTIVATIONS] % 4, 0);
    cr_assert_geq(measure.memory[CT_MEMORY_ACTIVATIONS], (size_t)(5 * (9 + 7) * 4));
    cr_assert_eq(measure.parameters, 165);
    ct_plan_deinit(&plan);
}

Test(measure, collectives_are_counted_by_axis)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.accumulation = 1;
    options.shard = CT_PLAN_SHARD_OPTIM;
    options.replicas = 2;
    struct ct_measure measure = measure_gpt(&plan, &options);
    const struct ct_axis_traffic *shard = &measure.traffic[CT_AXIS_SHARD];
    const struct ct_axis_traffic *replica = &measure.traffic[CT_AXIS_REPLICA];
    double sent = 0;

    /* a bucket is scattered and gathered, its part reduced over the copies; and the norm */
    cr_assert_eq(shard->calls, 2 * plan.bucket_count);
    cr_assert_eq(measure.traffic[CT_AXIS_COPY].calls, 1);
    cr_assert_eq(replica->calls, plan.bucket_count);
    cr_assert_eq(measure.traffic[CT_AXIS_WORLD].calls, 1);
    cr_assert_eq(shard->bytes, 2 * (double)plan.flat_bytes);
    cr_assert_eq(replica->bytes, (double)plan.shard_bytes);
    for (int axis = 0; axis < CT_AXIS_COUNT; axis++)
        sent += measure.traffic[axis].sent;
    cr_assert_float_eq(sent, ct_plan_wire_bytes(&plan), 1e-6);
    ct_plan_deinit(&plan);
}
