/* Queues: who waits for whom, and what is computed meanwhile. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(queues, .timeout = 10);

/* How many ops of `queue` stand before op `op` or are it. */
static int position(const struct ct_plan *plan, int op, enum ct_queue queue)
{
    int count = 0;

    for (int i = 0; i <= op; i++)
        count += plan->step.slot[i].queue == queue;
    return count;
}

Test(queues, a_reduction_waits_for_its_last_writer_only)
{
    struct ct_plan plan;

    plan_init(&plan, &plan_options);
    for (int k = 0; k <= plan.bucket_count; k++) {
        int reduce = find_op(&plan, CT_OP_ALL_REDUCE, k);
        cr_assert_eq(plan.step.slot[reduce].queue, CT_QUEUE_COMM);
        cr_assert_eq(plan.step.slot[reduce].wait[CT_QUEUE_COMPUTE],
                     position(&plan, reduce - 1, CT_QUEUE_COMPUTE));
    }
    ct_plan_deinit(&plan);
}

Test(queues, backward_waits_for_no_reduction_and_the_update_for_all)
{
    struct ct_plan plan;
    int sumsq;

    plan_init(&plan, &plan_options);
    sumsq = find_op(&plan, CT_OP_SUMSQ, 0);
    for (int i = 0; i < plan.step.program.op_count; i++) {
        if (plan.step.slot[i].queue != CT_QUEUE_COMPUTE)
            continue;
        cr_assert_eq(plan.step.slot[i].wait[CT_QUEUE_COMM], i == sumsq ? plan.bucket_count + 1 : 0);
    }
    ct_plan_deinit(&plan);
}

static void expect_one_queue(const struct ct_plan_options *options)
{
    struct ct_plan plan;

    plan_init(&plan, options);
    cr_assert_neq(find_op(&plan, CT_OP_ALL_REDUCE, 0), -1);
    for (int i = 0; i < plan.step.program.op_count; i++) {
        cr_assert_eq(plan.step.slot[i].queue, CT_QUEUE_COMPUTE);
        for (int other = 0; other < CT_QUEUE_COUNT; other++)
            cr_assert_eq(plan.step.slot[i].wait[other], 0);
    }
    ct_plan_deinit(&plan);
}

Test(queues, without_overlap_there_is_one_queue_and_no_wait)
{
    struct ct_plan_options options = plan_options;

    options.overlap = false;
    expect_one_queue(&options);
}

Test(queues, a_single_bucket_has_nothing_to_run_beside)
{
    struct ct_plan_options options = plan_options;

    options.first_bucket_bytes = options.bucket_bytes = 1 << 20;
    expect_one_queue(&options);
}

/* ---- between slices and stages --------------------------------------------------------------- */

static void gpt_init(struct ct_plan *plan, const struct ct_plan_options *options)
{
    const struct ct_model_spec spec = {
        .type = CT_MODEL_GPT,
        .dtype = CT_F32,
        .gpt = {.vocabulary = 50, .context = 8, .layers = 4, .heads = 4, .width = 24}};
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(plan, &spec, options, 1, &err), 0, "%s", err.text);
}

static struct ct_plan_options sliced(bool sequence)
{
    struct ct_plan_options options = plan_options;

    options.tensor = 2;
    options.sequence = sequence;
    options.accumulation = 2;
    return options;
}

/* FLOP that the compute queue has from op `call` of another queue to the first op that waits for
 * it. */
static double beside(const struct ct_plan *plan, int call)
{
    const struct ct_plan_list *list = &plan->step;
    int number = position(plan, call, list->slot[call].queue);
    double flop = 0;

    for (int i = call + 1; i < list->program.op_count; i++) {
        const struct ct_plan_slot *slot = &list->slot[i];
        if (slot->queue == CT_QUEUE_COMPUTE && slot->wait[list->slot[call].queue] >= number)
            break;
        if (slot->queue == CT_QUEUE_COMPUTE)
            flop += ct_program_cost(&list->program, &list->program.ops[i]).flop;
    }
    return flop;
}

static bool is_between_slices(const struct ct_program_op *op)
{
    return op->axis == CT_AXIS_TENSOR && op->kind != CT_OP_ALL_REDUCE && ct_plan_calls_group(op);
}

/* A product at least beside most collectives of the blocks: there are four in a block's backward
 * pass with sequence parallelism, else two, each micro-batch. */
Test(queues, the_weights_gradients_are_computed_beside_the_slices_collectives)
{
    for (int sequence = 0; sequence <= 1; sequence++) {
        struct ct_plan_options options = sliced(sequence == 1);
        struct ct_plan plan;
        gpt_init(&plan, &options);
        double product = 2.0 * 5 * 8 * 24 * 12; /* the smallest: 5 rows of 8 tokens, 24 x 12 */
        int with_products = 0, forward = 0;
        for (int i = 0; i < plan.step.program.op_count; i++) {
            const struct ct_program_op *op = &plan.step.program.ops[i];
            if (!is_between_slices(op))
                continue;
            if (op->stage == CT_STAGE_BACKWARD && plan.step.slot[i].queue == CT_QUEUE_MODEL)
                with_products += beside(&plan, i) >= product;
            if (op->stage == CT_STAGE_FORWARD)
                forward += plan.step.slot[i].queue != CT_QUEUE_COMPUTE;
        }
        cr_assert_geq(with_products, 2 * 4 * (sequence == 1 ? 3 : 2) - 2, "%d", with_products);
        cr_assert_eq(forward, 0, "nothing can be computed beside those of the forward pass");
        ct_plan_deinit(&plan);
    }
}

Test(queues, gradients_do_not_stand_in_front_of_what_a_layer_waits_for)
{
    struct ct_plan_options options = sliced(false);
    struct ct_plan plan;
    int sums = 0;

    gpt_init(&plan, &options);
    for (int i = 0; i < plan.step.program.op_count; i++) {
        const struct ct_program_op *op = &plan.step.program.ops[i];
        if (op->axis == CT_AXIS_DATA) {
            cr_assert_eq(plan.step.slot[i].queue, CT_QUEUE_COMM);
            sums++;
        } else if (is_between_slices(op)) {
            cr_assert_neq(plan.step.slot[i].queue, CT_QUEUE_COMM);
            cr_assert_eq(plan.step.slot[i].wait[CT_QUEUE_COMM], 0);
        }
    }
    cr_assert_eq(sums, plan.bucket_count);
    ct_plan_deinit(&plan);
}

static int find_like(const struct ct_plan *plan, const struct ct_program_op *op)
{
    const struct ct_program *program = &plan->step.program;

    for (int i = 0; i < program->op_count; i++)
        if (memcmp(program->ops[i].in, op->in, sizeof op->in) == 0 &&
            memcmp(program->ops[i].out, op->out, sizeof op->out) == 0 &&
            program->ops[i].kind == op->kind && program->ops[i].axis == op->axis)
            return i;
    return -1;
}

Test(queues, reordering_keeps_the_order_of_ops_that_depend_on_each_other)
{
    struct ct_plan_options options = sliced(true);
    struct ct_plan before, behind;
    int moved = 0;

    gpt_init(&behind, &options);
    options.overlap = false;
    gpt_init(&before, &options);
    const struct ct_program *program = &before.step.program;
    cr_assert_eq(program->op_count, behind.step.program.op_count);
    for (int i = 0; i < program->op_count; i++) {
        int at = find_like(&behind, &program->ops[i]);
        cr_assert_geq(at, 0, "op %d is gone", i);
        moved += at != i;
        for (int j = 0; j < i; j++)
            if (ct_plan_depend(program, &program->ops[i], &program->ops[j]))
                cr_assert_lt(find_like(&behind, &program->ops[j]), at, "ops %d and %d", j, i);
    }
    cr_assert_gt(moved, 0);
    ct_plan_deinit(&before);
    ct_plan_deinit(&behind);
}

/* The first stage of gpipe sends all activations before it waits for a gradient. */
Test(queues, a_stage_computes_on_while_what_it_has_made_is_sent)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;
    int sends = 0;

    options.world = options.stages = 2;
    options.order = CT_PLAN_GPIPE;
    gpt_init(&plan, &options);
    for (int i = 0; i < plan.step.program.op_count; i++) {
        const struct ct_program_op *op = &plan.step.program.ops[i];
        const struct ct_plan_slot *slot = &plan.step.slot[i];
        if (op->stage == CT_STAGE_BACKWARD)
            break;
        if (op->kind == CT_OP_EXCHANGE) {
            sends++;
            cr_assert_eq(slot->queue, CT_QUEUE_MODEL);
        } else {
            cr_assert_leq(slot->wait[CT_QUEUE_MODEL], CT_MAX(sends - 1, 0), "op %d", i);
        }
    }
    cr_assert_eq(sends, options.accumulation);
    ct_plan_deinit(&plan);
}

Test(queues, the_update_begins_when_no_message_can_fail_any_more)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.world = options.stages = 2;
    options.rank = 1; /* which sends the last one */
    plan_init(&plan, &options);
    int sumsq = find_op(&plan, CT_OP_SUMSQ, 0), messages = position(&plan, sumsq, CT_QUEUE_MODEL);
    cr_assert_gt(messages, 0);
    cr_assert_eq(plan.step.slot[sumsq].wait[CT_QUEUE_MODEL], messages);
    plan.step.slot[sumsq].wait[CT_QUEUE_MODEL] = 0;
    expect_objection(&plan, "which can fail");
}

/* ---- of sharded layers ----------------------------------------------------------------------- */

/* The next unit's gradients do not take the place of those that are still on their way. */
Test(queues, gradients_are_scattered_beside_the_backward_pass_of_the_next_unit)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;
    int scatters = 0, queued = 0, last = 0;

    options.shard = CT_PLAN_SHARD_FULL;
    options.prefetch = 1;
    options.accumulation = 1;
    gpt_init(&plan, &options);
    for (int i = 0; i < plan.step.program.op_count; i++) {
        const struct ct_program_op *op = &plan.step.program.ops[i];
        const struct ct_plan_slot *slot = &plan.step.slot[i];
        queued += slot->queue == CT_QUEUE_COMM;
        if (op->kind == CT_OP_REDUCE_SCATTER) {
            scatters++;
            last = queued;
        } else if (slot->queue == CT_QUEUE_COMPUTE && op->stage == CT_STAGE_BACKWARD) {
            cr_assert(last == 0 || slot->wait[CT_QUEUE_COMM] < last, "op %d", i);
        }
    }
    cr_assert_gt(scatters, 4);
    ct_plan_deinit(&plan);
}
