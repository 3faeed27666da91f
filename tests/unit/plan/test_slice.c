/* Slices: what is cut, what is said about it, and what cannot be cut. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(slice, .timeout = 30);

enum { LAYERS = 3, VOCABULARY = 50 };

static struct ct_model_spec gpt(int64_t heads)
{
    return (struct ct_model_spec){.type = CT_MODEL_GPT,
                                  .dtype = CT_F32,
                                  .gpt = {.vocabulary = VOCABULARY,
                                          .context = 8,
                                          .sequence = 4,
                                          .layers = LAYERS,
                                          .heads = heads,
                                          .width = 24}};
}

static struct ct_plan_options options_of(int world, int slices)
{
    struct ct_plan_options options = plan_options;

    options.world = world;
    options.tensor = slices;
    options.accumulation = 1;
    options.micro_rows = 4;
    return options;
}

static int build(struct ct_plan *plan, int64_t heads, const struct ct_plan_options *options,
                 struct ct_error *err)
{
    struct ct_model_spec spec = gpt(heads);

    return ct_plan_build(plan, &spec, options, 1, err);
}

static int count(const struct ct_plan *plan, int kind, enum ct_stage stage)
{
    int found = 0;

    for (int i = 0; i < plan->step.program.op_count; i++)
        found += plan->step.program.ops[i].kind == kind && plan->step.program.ops[i].stage == stage;
    return found;
}

Test(slice, a_block_adds_up_twice_forward_and_twice_backward)
{
    struct ct_plan_options options = options_of(2, 2);
    struct ct_plan plan;

    cr_assert_eq(build(&plan, 4, &options, NULL), 0);
    /* forward: two a block, the embedding, the loss' sums; backward: two a block, the head */
    cr_assert_eq(count(&plan, CT_OP_RANK_SUM, CT_STAGE_FORWARD), 2 * LAYERS + 2);
    cr_assert_eq(count(&plan, CT_OP_RANK_MAX, CT_STAGE_FORWARD), 1);
    cr_assert_eq(count(&plan, CT_OP_RANK_SUM, CT_STAGE_BACKWARD), 2 * LAYERS + 1);
    ct_plan_deinit(&plan);
}

Test(slice, tokens_are_gathered_and_scattered_instead)
{
    struct ct_plan_options options = options_of(2, 2);
    struct ct_plan plan;

    options.sequence = true;
    cr_assert_eq(build(&plan, 4, &options, NULL), 0);
    cr_assert_eq(count(&plan, CT_OP_RANK_SUM, CT_STAGE_FORWARD), 1);
    cr_assert_eq(count(&plan, CT_OP_RANK_SUM, CT_STAGE_BACKWARD), 0);
    cr_assert_eq(count(&plan, CT_OP_ALL_GATHER, CT_STAGE_FORWARD), 2 * LAYERS + 1);
    cr_assert_eq(count(&plan, CT_OP_REDUCE_SCATTER, CT_STAGE_FORWARD), 2 * LAYERS + 1);
    cr_assert_eq(count(&plan, CT_OP_ALL_GATHER, CT_STAGE_BACKWARD), 2 * LAYERS + 1);
    cr_assert_eq(count(&plan, CT_OP_REDUCE_SCATTER, CT_STAGE_BACKWARD), 2 * LAYERS + 1);
    ct_plan_deinit(&plan);
}

Test(slice, logits_are_never_put_together)
{
    struct ct_plan_options options = options_of(2, 2);
    struct ct_plan plan;

    cr_assert_eq(build(&plan, 4, &options, NULL), 0);
    for (int i = 0; i < plan.step.program.value_count; i++) {
        struct ct_shape shape = plan.step.program.values[i].shape;
        cr_assert(shape.dims != 2 || shape.dim[0] != 16 || shape.dim[1] != VOCABULARY);
    }
    ct_plan_deinit(&plan);
}

Test(slice, tensors_keep_their_shapes_whatever_a_rank_holds)
{
    struct ct_plan_options whole_options = options_of(1, 1), options = options_of(4, 4);
    struct ct_plan whole, plan;
    size_t held = 0, all = 0;

    options.rank = 3; /* its rows of the vocabulary end in padding */
    cr_assert_eq(build(&whole, 4, &whole_options, NULL), 0);
    cr_assert_eq(build(&plan, 4, &options, NULL), 0);
    cr_assert_eq(plan.tensor_count, whole.tensor_count);
    for (int i = 0; i < plan.tensor_count; i++) {
        cr_assert_str_eq(plan.tensors[i].name, whole.tensors[i].name);
        cr_assert_eq(plan.tensors[i].bytes, whole.tensors[i].bytes);
        cr_assert(ct_shape_equal(plan.tensors[i].shape, whole.tensors[i].shape));
        held += plan.tensors[i].held_bytes;
        all += plan.tensors[i].bytes;
    }
    cr_assert_lt(held, all / 3);
    ct_plan_deinit(&whole);
    ct_plan_deinit(&plan);
}

static void verify_world(const struct ct_plan_options *options)
{
    struct ct_plan plans[8];
    struct ct_error err = {0};

    for (int rank = 0; rank < options->world; rank++) {
        struct ct_plan_options own = *options;
        own.rank = rank;
        cr_assert_eq(build(&plans[rank], 4, &own, &err), 0, "%s", err.text);
    }
    for (int evaluation = 0; evaluation <= 1; evaluation++)
        cr_assert_eq(ct_plan_verify_world(plans, options->world, evaluation == 1, &err), 0, "%s",
                     err.text);
    for (int rank = 0; rank < options->world; rank++)
        ct_plan_deinit(&plans[rank]);
}

Test(slice, no_rank_of_a_world_waits_for_ever)
{
    for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++)
        for (int stages = 1; stages <= 2; stages++) {
            struct ct_plan_options options = options_of(4 * stages, 2);
            options.shard = (enum ct_plan_shard)shard;
            options.sequence = shard % 2 == 0;
            options.stages = stages;
            verify_world(&options);
        }
}

Test(slice, what_does_not_divide_is_refused_with_the_numbers)
{
    struct ct_plan_options options = options_of(4, 4), odd = options_of(2, 2);
    struct ct_plan plan;
    struct ct_error err = {0};

    cr_assert_eq(build(&plan, 6, &options, &err), CT_ECONFIG);
    cr_assert_not_null(strstr(err.text, "parallel.tensor is 4, must divide the 6 heads"), "%s",
                       err.text);
    ct_plan_deinit(&plan);
    cr_assert_eq(ct_plan_build(&plan, &plan_spec, &odd, 1, &err), CT_ECONFIG);
    cr_assert_str_eq(err.text, "parallel.tensor is 2, must divide the 9 rows of layers.0.weight");
    ct_plan_deinit(&plan);
    options.sequence = true;
    options.micro_rows = 1;
    options.world = options.tensor = 8;
    cr_assert_eq(build(&plan, 8, &options, &err), CT_ECONFIG);
    cr_assert_str_eq(err.text, "parallel.sequence: parallel.tensor is 8, must divide the 4 rows of "
                               "a micro-batch");
    ct_plan_deinit(&plan);
}
