/* The verifier: it accepts what the passes make and objects to every planted fault. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(verify, .timeout = 10);

static void build(struct ct_plan *plan)
{
    struct ct_plan_options options = plan_options;

    options.reduce = CT_PLAN_FAST;
    options.accumulation = 2;
    plan_init(plan, &options);
    cr_assert_eq(ct_plan_verify(plan, &plan->step, NULL), 0);
}

/* Exchange two ops with their slots. */
static void swap_ops(struct ct_plan *plan, int a, int b)
{
    struct ct_program_op op = plan->step.program.ops[a];
    struct ct_plan_slot slot = plan->step.slot[a];

    plan->step.program.ops[a] = plan->step.program.ops[b];
    plan->step.program.ops[b] = op;
    plan->step.slot[a] = plan->step.slot[b];
    plan->step.slot[b] = slot;
}

static int root_of(const struct ct_plan *plan, int value)
{
    return plan->step.program.values[value].root;
}

Test(verify, accepts_every_plan)
{
    for (int world = 1; world <= 2; world++)
        for (int accumulation = 1; accumulation <= 9; accumulation++)
            for (int variant = 0; variant < 6 * CT_ACT_COUNT; variant++) {
                struct ct_plan_options options = plan_options;
                struct ct_model_spec spec = plan_spec;
                struct ct_plan plan;
                struct ct_error err = {0};
                options.world = world;
                options.accumulation = accumulation;
                options.reduce = (enum ct_plan_reduce)(variant % 3);
                options.overlap = variant % 6 < 3;
                spec.activation = (enum ct_activation)(variant / 6);
                spec.loss = accumulation % 2 == 0 ? CT_LOSS_MSE : CT_LOSS_CROSS_ENTROPY;
                cr_assert_eq(ct_plan_build(&plan, &spec, &options, 1, &err), 0, "%s", err.text);
                ct_plan_deinit(&plan); /* building it verified it */
            }
}

Test(verify, rejects_a_value_placed_over_one_that_lives)
{
    struct ct_plan plan;

    build(&plan);
    const struct ct_program_op *loss =
        &plan.step.program.ops[find_op(&plan, CT_OP_CROSS_ENTROPY_GRAD, 0)];
    plan.step.offset[root_of(&plan, loss->out[1])] = plan.step.offset[root_of(&plan, loss->in[0])];
    expect_objection(&plan, "writes 'losses' over its operand 'linear'");
}

Test(verify, rejects_an_activation_that_is_overwritten_before_backward_reads_it)
{
    struct ct_plan plan;

    build(&plan);
    const struct ct_program_op *first = &plan.step.program.ops[find_op(&plan, CT_OP_RELU, 0)];
    const struct ct_program_op *logits = &plan.step.program.ops[find_op(&plan, CT_OP_LINEAR, 2)];
    plan.step.offset[root_of(&plan, logits->out[0])] =
        plan.step.offset[root_of(&plan, first->out[0])];
    expect_objection(&plan, "by then");
}

Test(verify, rejects_a_temporary_in_the_parameters)
{
    struct ct_plan plan;

    build(&plan);
    const struct ct_program_op *op = &plan.step.program.ops[find_op(&plan, CT_OP_LINEAR, 0)];
    plan.step.offset[root_of(&plan, op->out[0])] = 0;
    expect_objection(&plan, "arena holds 'linear' by then");
}

Test(verify, rejects_a_temporary_in_the_padding_of_the_gradients)
{
    struct ct_plan plan;

    build(&plan);
    /* Nobody reads the padding in this step any more, but the next one's norm does. */
    const struct ct_program_op *clip = &plan.step.program.ops[find_op(&plan, CT_OP_CLIP_SCALE, 0)];
    plan.step.offset[root_of(&plan, clip->out[0])] = plan.grads_bytes - sizeof(double);
    expect_objection(&plan, "'grads'");
}

Test(verify, rejects_a_read_before_the_write)
{
    struct ct_plan plan;
    int linear;

    build(&plan);
    linear = find_op(&plan, CT_OP_LINEAR, 0);
    swap_ops(&plan, linear, linear + 1);
    expect_objection(&plan, "reads 'linear'");
}

Test(verify, rejects_a_gradient_that_is_never_written)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.world = 1;
    options.accumulation = 1;
    plan_init(&plan, &options);
    /* Drop the op that makes the gradient of a bias. */
    int drop = find_op(&plan, CT_OP_LINEAR_DB, 1), last = --plan.step.program.op_count;
    for (int i = drop; i < last; i++)
        swap_ops(&plan, i, i + 1);
    expect_objection(&plan, "(sumsq) reads 'grads', of which byte");
}

Test(verify, rejects_a_reduction_that_does_not_wait_for_its_writer)
{
    struct ct_plan plan;

    build(&plan);
    plan.step.slot[find_op(&plan, CT_OP_ALL_REDUCE, 1)].wait[CT_QUEUE_COMPUTE]--;
    expect_objection(&plan, "(all_reduce) does not wait for op");
}

Test(verify, rejects_an_update_that_does_not_wait_for_the_reductions)
{
    struct ct_plan plan;

    build(&plan);
    plan.step.slot[find_op(&plan, CT_OP_SUMSQ, 0)].wait[CT_QUEUE_COMM]--;
    expect_objection(&plan, "(sumsq) does not wait for op");
}

Test(verify, rejects_a_wait_for_what_is_queued_later)
{
    struct ct_plan plan;

    build(&plan);
    plan.step.slot[find_op(&plan, CT_OP_LINEAR_DW, 0)].wait[CT_QUEUE_COMM] = 2;
    expect_objection(&plan, "a deadlock");
}

Test(verify, rejects_a_reduction_before_the_last_writer)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.reduce = CT_PLAN_FAST;
    options.overlap = false; /* one queue: only the order of the list can be wrong */
    plan_init(&plan, &options);
    int reduce = find_op(&plan, CT_OP_ALL_REDUCE, 1);
    swap_ops(&plan, reduce, reduce - 1);
    expect_objection(&plan, "after its reduction");
}

Test(verify, rejects_a_gradient_that_is_reduced_twice)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.overlap = false;
    plan_init(&plan, &options);
    int first = find_op(&plan, CT_OP_ALL_REDUCE, 1), second = find_op(&plan, CT_OP_ALL_REDUCE, 2);
    plan.step.program.ops[second] = plan.step.program.ops[first];
    expect_objection(&plan, "a second time");
}

Test(verify, rejects_a_gradient_that_is_not_reduced)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.overlap = false;
    plan_init(&plan, &options);
    /* Put the last reduction behind the update. */
    int reduce = find_op(&plan, CT_OP_ALL_REDUCE, plan.bucket_count);
    for (int i = reduce; i + 1 < plan.step.program.op_count; i++)
        swap_ops(&plan, i, i + 1);
    expect_objection(&plan, "before its reduction");
}

Test(verify, rejects_sums_that_are_not_reduced)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.overlap = false;
    plan_init(&plan, &options);
    int reduce = find_op(&plan, CT_OP_ALL_REDUCE, 0), last = --plan.step.program.op_count;
    for (int i = reduce; i < last; i++)
        swap_ops(&plan, i, i + 1);
    expect_objection(&plan, "(guard) reads 'loss' before its reduction");
}

Test(verify, rejects_results_over_each_other)
{
    struct ct_plan plan;

    build(&plan);
    const struct ct_program_op *loss =
        &plan.step.program.ops[find_op(&plan, CT_OP_CROSS_ENTROPY_GRAD, 0)];
    plan.step.offset[root_of(&plan, loss->out[2])] = ct_plan_offset(&plan.step, loss->out[1]);
    expect_objection(&plan, "over its result");
}

Test(verify, rejects_an_output_that_is_overwritten_before_the_host_reads_it)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.world = 1;
    options.optim.clip = 1;
    plan_init(&plan, &options);
    const struct ct_program_op *clip = &plan.step.program.ops[find_op(&plan, CT_OP_CLIP_SCALE, 0)];
    plan.step.offset[root_of(&plan, clip->out[0])] =
        ct_plan_offset(&plan.step, plan.step.io.correct);
    expect_objection(&plan, "(the end) reads 'sums'");
}

/* ---- what is served ------------------------------------------------------------------------- */

static void build_served(struct ct_plan *plan)
{
    struct ct_plan_options options = plan_options;

    options.served = true;
    plan_init(plan, &options);
    cr_assert_eq(ct_plan_verify(plan, &plan->step, NULL), 0);
}

Test(verify, rejects_a_gradient_that_is_not_pushed)
{
    struct ct_plan plan;

    build_served(&plan);
    plan.step.program.ops[find_op(&plan, CT_OP_PUSH, 0)].kind = CT_OP_COPY;
    expect_objection(&plan, "'grads' is not pushed");
}

Test(verify, rejects_a_second_push)
{
    struct ct_plan plan;

    build_served(&plan);
    plan.step.program.ops[find_op(&plan, CT_OP_PUSH, 1)].in[0] =
        plan.step.program.ops[find_op(&plan, CT_OP_PUSH, 0)].in[0];
    expect_objection(&plan, "pushes 'bucket0' a second time");
}

Test(verify, rejects_a_gradient_that_is_written_after_it_was_pushed)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.served = true;
    options.overlap = false;
    plan_init(&plan, &options);
    int push = find_op(&plan, CT_OP_PUSH, 0);
    swap_ops(&plan, push - 1, push);
    expect_objection(&plan, "after it was pushed");
}

Test(verify, rejects_a_push_that_does_not_wait_for_its_gradient)
{
    struct ct_plan plan;

    build_served(&plan);
    plan.step.slot[find_op(&plan, CT_OP_PUSH, 0)].wait[CT_QUEUE_COMPUTE] = 0;
    expect_objection(&plan, "(push) does not wait for");
}
