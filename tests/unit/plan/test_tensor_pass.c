/* Slices: what is cut, what is said about it, and what cannot be cut. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"
#include "deadlock_check.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

TestSuite(tensor_pass, .timeout = 30);

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

Test(tensor_pass, a_block_adds_up_twice_forward_and_twice_backward)
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

Test(tensor_pass, tokens_are_gathered_and_scattered_instead)
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

Test(tensor_pass, logits_are_never_put_together)
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

Test(tensor_pass, tensors_keep_their_shapes_whatever_a_rank_holds)
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
        cr_assert_eq(deadlock_check(plans, options->world, evaluation == 1, &err), 0, "%s",
                     err.text);
    for (int rank = 0; rank < options->world; rank++)
        ct_plan_deinit(&plans[rank]);
}

Test(tensor_pass, no_rank_of_a_world_waits_for_ever)
{
    for (int shard = CT_PLAN_SHARD_NONE; shard <= CT_PLAN_SHARD_FULL; shard++)
        for (int stages = 1; stages <= 2; stages++) {
            struct ct_plan_options options = options_of(4 * stages, 2);
            options.shard = (enum ct_plan_shard)shard;
            options.sequence = shard % 2 == 0;
            options.stages = stages;
            verify_world(&options);
            options.overlap = false;
            verify_world(&options);
            options.overlap = true;
            options.order = CT_PLAN_INTERLEAVED;
            options.chunks = 2;
            options.accumulation = 2;
            if (stages == 2)
                verify_world(&options);
        }
}

Test(tensor_pass, what_does_not_divide_is_refused_with_the_numbers)
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

/* ---- planted faults: gradients that each slice has a part of --------------------------------- */

enum { PLAIN, SHARDED, NARROW_SUMS, VARIANTS };

/* Two batches of two slices cut by tokens, two micro-batches, one queue: only the order counts. */
static void build_parts(struct ct_plan *plan, int variant)
{
    struct ct_plan_options options = options_of(4, 2);
    struct ct_error err = {0};

    options.sequence = true;
    options.overlap = false;
    options.accumulation = 2;
    options.reduce = CT_PLAN_REPRODUCIBLE;
    options.shard = variant == PLAIN ? CT_PLAN_SHARD_NONE : CT_PLAN_SHARD_FULL;
    options.reduce_dtype = variant == NARROW_SUMS ? CT_BF16 : CT_F32;
    cr_assert_eq(build(plan, 4, &options, &err), 0, "%s", err.text);
}

/* The sum over the slices that makes the gradient of parameter `name` whole. */
static int sum_of(const struct ct_plan *plan, const char *name)
{
    const struct ct_program *program = &plan->step.program;

    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == CT_OP_ALL_REDUCE && program->ops[i].axis == CT_AXIS_TENSOR &&
            strcmp(program->values[program->ops[i].out[0]].name, name) == 0)
            return i;
    cr_assert_fail("no sum for %s", name);
    return -1;
}

Test(tensor_pass, every_gradient_of_some_tokens_is_summed_over_the_slices)
{
    for (int variant = 0; variant < VARIANTS; variant++) {
        struct ct_plan plan;
        int parts = 0;
        build_parts(&plan, variant);
        for (int i = 0; i < plan.param_count; i++) {
            parts += plan.sliced[i].partial;
            if (plan.sliced[i].partial)
                (void)sum_of(&plan, plan.tensors[i].name);
        }
        cr_assert_eq(parts, 1 + LAYERS * 6 + 2); /* places; norms, biases added behind sums; ln_f */
        ct_plan_deinit(&plan);
    }
}

Test(tensor_pass, the_verifier_rejects_a_gradient_of_some_tokens_that_is_not_summed)
{
    static const char *const says[VARIANTS] = {"(all_reduce) reads", "(reduce_scatter) reads",
                                               "(reduce_scatter) reads"};

    for (int variant = 0; variant < VARIANTS; variant++) {
        struct ct_plan plan;
        build_parts(&plan, variant);
        drop_op(&plan, sum_of(&plan, "h.1.ln_1.weight"));
        cr_assert_eq(ct_plan_verify(&plan, &plan.step, NULL), CT_EBUG);
        struct ct_error err = {0};
        (void)ct_plan_verify(&plan, &plan.step, &err);
        cr_assert_not_null(strstr(err.text, says[variant]), "says '%s'", err.text);
        expect_objection(&plan, "before its sum over the slices");
    }
}

/* With one batch nothing else is added up over ranks. */
Test(tensor_pass, the_verifier_rejects_an_update_by_the_gradient_of_some_tokens)
{
    struct ct_plan_options options = options_of(2, 2);
    struct ct_plan plan;

    options.sequence = true;
    options.overlap = false;
    cr_assert_eq(build(&plan, 4, &options, NULL), 0);
    drop_op(&plan, sum_of(&plan, "h.0.mlp.c_proj.bias"));
    expect_objection(&plan, "(sumsq) reads 'grads' before its sum over the slices");
}

Test(tensor_pass, the_verifier_rejects_a_sum_over_the_slices_before_the_last_writer)
{
    for (int variant = 0; variant < VARIANTS; variant++) {
        struct ct_plan plan;
        build_parts(&plan, variant);
        int sum = sum_of(&plan, "ln_f.weight");
        move_op(&plan, sum, sum - 1);
        expect_objection(&plan, "' after its sum over the slices");
    }
}

Test(tensor_pass, the_verifier_rejects_a_second_sum_over_the_slices)
{
    for (int variant = 0; variant < VARIANTS; variant++) {
        struct ct_plan plan;
        build_parts(&plan, variant);
        int sum = sum_of(&plan, "h.2.ln_2.bias"), other = sum_of(&plan, "h.2.ln_2.weight");
        plan.step.program.ops[CT_MAX(sum, other)] = plan.step.program.ops[CT_MIN(sum, other)];
        expect_objection(&plan, "a second time");
    }
}

/* Each slice has all of the gradient of what it holds alone. */
Test(tensor_pass, the_verifier_rejects_a_sum_of_gradients_that_are_whole)
{
    struct ct_plan plan;

    build_parts(&plan, PLAIN);
    const struct ct_program *program = &plan.step.program;
    int sum = sum_of(&plan, "h.0.ln_1.weight"), value = -1;
    for (int i = 0; i < program->value_count; i++)
        if (strcmp(program->values[i].name, "grad.h.0.attn.c_attn.bias") == 0)
            value = i;
    cr_assert_geq(value, 0);
    program->ops[sum].in[0] = program->ops[sum].out[0] = value;
    expect_objection(&plan, "reduces 'grad.h.0.attn.c_attn.bias' a second time");
}

/* The scatter of the unit that begins with parameter `name`. */
static int scatter_of(const struct ct_plan *plan, const char *name)
{
    const struct ct_program *program = &plan->step.program;
    char whole[32];

    for (int k = 0; k < plan->bucket_count; k++)
        if (strcmp(plan->tensors[plan->buckets[k].first_param].name, name) == 0)
            snprintf(whole, sizeof whole, "whole%d", k);
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == CT_OP_REDUCE_SCATTER &&
            strcmp(program->values[program->ops[i].in[0]].name, whole) == 0)
            return i;
    cr_assert_fail("no scatter for %s", name);
    return -1;
}

/* What the second micro-batch adds behind its scatter would be lost. */
Test(tensor_pass, the_verifier_rejects_a_scatter_before_the_last_micro_batch)
{
    for (int variant = SHARDED; variant < VARIANTS; variant++) {
        struct ct_plan plan;
        build_parts(&plan, variant);
        const struct ct_program *program = &plan.step.program;
        int at = scatter_of(&plan, "wte.weight");
        int first = variant == NARROW_SUMS ? at - 1 : at; /* the copy in another type goes along */
        int root = program->values[program->ops[first].in[0]].root, writer = first;
        while (program->ops[writer].out[0] == CT_NONE ||
               program->values[program->ops[writer].out[0]].root != root || writer == first)
            writer--;
        if (variant == NARROW_SUMS) /* where nothing else lies that early */
            plan.step.offset[program->ops[first].out[0]] = plan.arena_bytes;
        for (int i = first; i <= at; i++)
            move_op(&plan, i, writer + i - first);
        expect_objection(&plan, "' after its reduction");
    }
}

/* Two threads would call one group at the same time, in an order that differs from rank to rank. */
Test(tensor_pass, the_verifier_rejects_calls_of_a_group_that_the_queues_do_not_order)
{
    struct ct_plan_options options = options_of(2, 2);
    struct ct_plan plan;
    int before = -1, call = -1;

    options.sequence = true;
    cr_assert_eq(build(&plan, 4, &options, NULL), 0);
    const struct ct_program_op *ops = plan.step.program.ops;
    for (bool found = false; !found;) { /* two in a row that have no bytes in common */
        cr_assert_lt(++call, plan.step.program.op_count);
        if (plan.step.slot[call].queue != CT_QUEUE_MODEL)
            continue;
        found = before >= 0 && !ct_plan_conflict(&plan.step, &ops[before], &ops[call]);
        before = call;
    }
    plan.step.slot[call].queue = CT_QUEUE_COMM;
    expect_objection(&plan, "a call of the same group");
}
