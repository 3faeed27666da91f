/* The verifier of a world: it objects to every planted fault in what ranks say to each other. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"
#include "deadlock_check.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

TestSuite(verify_world, .timeout = 20);

enum { MAX_WORLD = 4 };

static const int64_t hidden[] = {8, 8, 8, 8};

/* The plans of all ranks; a fault is planted in one of them. */
struct world {
    struct ct_plan plans[MAX_WORLD];
    int count;
};

static void world_init(struct world *world, const struct ct_plan_options *options)
{
    struct ct_model_spec spec = plan_spec;
    struct ct_plan_options own = *options;
    struct ct_error err = {0};

    spec.hidden = hidden;
    spec.hidden_count = CT_COUNT(hidden);
    spec.classes = 8;
    world->count = own.world;
    for (own.rank = 0; own.rank < own.world; own.rank++)
        cr_assert_eq(ct_plan_build(&world->plans[own.rank], &spec, &own, 1, &err), 0, "%s",
                     err.text);
    cr_assert_eq(deadlock_check(world->plans, world->count, false, &err), 0, "%s", err.text);
}

static void world_deinit(struct world *world)
{
    for (int rank = 0; rank < world->count; rank++)
        ct_plan_deinit(&world->plans[rank]);
}

static void expect(struct world *world, const char *what)
{
    struct ct_error err = {0};

    cr_assert_eq(deadlock_check(world->plans, world->count, false, &err), CT_EBUG,
                 "the fault passed");
    cr_assert_not_null(strstr(err.text, what), "says '%s'", err.text);
    world_deinit(world);
}

/* Without overlap all is said in the order of the list. */
static struct ct_plan_options options_of(int count)
{
    struct ct_plan_options options = plan_options;

    options.world = count;
    options.overlap = false;
    return options;
}

static struct ct_program_op *op_of(struct world *world, int rank, int kind, int nth)
{
    int at = find_op(&world->plans[rank], kind, nth);

    cr_assert_geq(at, 0);
    return &world->plans[rank].step.program.ops[at];
}

/* ---- collectives ----------------------------------------------------------------------------- */

Test(verify_world, rejects_a_rank_that_leaves_a_sum_out)
{
    struct ct_plan_options options = options_of(2);
    struct world world;

    world_init(&world, &options);
    int last = world.plans[1].bucket_count;
    drop_op(&world.plans[1], find_op(&world.plans[1], CT_OP_ALL_REDUCE, last));
    expect(&world, "rank 0 waits for ever at op");
}

Test(verify_world, rejects_sums_of_different_length)
{
    struct ct_plan_options options = options_of(2);
    struct world world;

    world_init(&world, &options);
    struct ct_program_op *op = op_of(&world, 1, CT_OP_ALL_REDUCE, 1);
    struct ct_program *program = &world.plans[1].step.program;
    const struct ct_value *v = &program->values[op->in[0]];
    int half = ct_program_view(program, op->in[0], 0, v->dtype,
                               ct_shape1(ct_shape_elements(v->shape) / 2), "half");
    op = op_of(&world, 1, CT_OP_ALL_REDUCE, 1);
    op->in[0] = op->out[0] = half;
    expect(&world, "which is not the same");
}

/* Buckets that are reduced in another order would be added to each other. */
Test(verify_world, rejects_sums_in_another_order)
{
    struct ct_plan_options options = options_of(2);
    struct world world;

    world_init(&world, &options);
    struct ct_program_op *a = op_of(&world, 0, CT_OP_ALL_REDUCE, 1);
    struct ct_program_op *b = op_of(&world, 0, CT_OP_ALL_REDUCE, 2), op = *a;
    *a = *b;
    *b = op;
    expect(&world, "(all_reduce), which is not the same");
}

Test(verify_world, rejects_another_collective)
{
    struct ct_plan_options options = options_of(2);
    struct world world;

    options.tensor = 2;
    world_init(&world, &options);
    op_of(&world, 1, CT_OP_RANK_SUM, 1)->kind = CT_OP_RANK_MAX;
    expect(&world, "rank 1 is at op");
}

Test(verify_world, rejects_a_sum_in_another_type)
{
    struct ct_plan_options options = options_of(2);
    struct world world;

    options.tensor = 2;
    world_init(&world, &options);
    op_of(&world, 0, CT_OP_RANK_SUM, 0)->dtype = CT_BF16;
    expect(&world, "which is not the same");
}

/* A group of two axes is not the other's: ranks 0 and 1 would add up slices, 0 and 2 samples. */
Test(verify_world, rejects_a_sum_over_another_axis)
{
    struct ct_plan_options options = options_of(4);
    struct world world;

    options.tensor = 2;
    world_init(&world, &options);
    op_of(&world, 3, CT_OP_RANK_SUM, 0)->axis = CT_AXIS_DATA;
    expect(&world, "waits for ever at op");
}

/* ---- messages -------------------------------------------------------------------------------- */

static void staged(struct world *world, enum ct_plan_order order, int stages)
{
    struct ct_plan_options options = options_of(stages);

    options.stages = stages;
    options.order = order;
    options.reduce = CT_PLAN_REPRODUCIBLE;
    world_init(world, &options);
}

Test(verify_world, rejects_a_message_that_nobody_sends)
{
    struct world world;

    staged(&world, CT_PLAN_GPIPE, 2);
    op_of(&world, 0, CT_OP_EXCHANGE, 2)->in[0] = CT_NONE;
    expect(&world, "(exchange, stage)");
}

Test(verify_world, rejects_a_message_that_nobody_takes)
{
    struct world world;

    staged(&world, CT_PLAN_GPIPE, 2);
    int last = 0;
    while (find_op(&world.plans[0], CT_OP_EXCHANGE, last + 1) >= 0)
        last++;
    drop_op(&world.plans[0], find_op(&world.plans[0], CT_OP_EXCHANGE, last));
    expect(&world, "rank 0 waits for ever at op");
}

Test(verify_world, rejects_a_message_to_another_stage)
{
    struct world world;

    staged(&world, CT_PLAN_1F1B, 3);
    op_of(&world, 0, CT_OP_EXCHANGE, 0)->to[0] = 2;
    expect(&world, "waits for ever at op");
}

Test(verify_world, rejects_a_message_of_another_length)
{
    struct world world;

    staged(&world, CT_PLAN_GPIPE, 2);
    struct ct_program *program = &world.plans[1].step.program;
    int from = op_of(&world, 1, CT_OP_EXCHANGE, 0)->out[0];
    int half = ct_program_view(program, from, 0, CT_F32, ct_shape1(8), "half");
    op_of(&world, 1, CT_OP_EXCHANGE, 0)->out[0] = half;
    expect(&world, "(exchange), which is not the same");
}

/* Split the first exchange that gives and takes: give now, take later. */
static void give_first(struct ct_plan *plan)
{
    const struct ct_program *program = &plan->step.program;
    int both = 0;

    while (both < program->op_count &&
           (program->ops[both].kind != CT_OP_EXCHANGE || program->ops[both].in[0] == CT_NONE ||
            program->ops[both].out[0] == CT_NONE))
        both++;
    cr_assert_lt(both + 1, program->op_count, "1f1b gives and takes in one op");
    struct ct_program_op *give = &program->ops[both], *take = give + 1;
    cr_assert_neq(take->kind, CT_OP_EXCHANGE);
    *take = *give; /* over an op that computes, which this verifier does not look at */
    take->in[0] = CT_NONE;
    give->out[0] = CT_NONE;
}

/* Each wants to give before it takes: without a buffer neither can. */
Test(verify_world, rejects_stages_that_give_before_they_take)
{
    struct world world;

    staged(&world, CT_PLAN_1F1B, 2);
    give_first(&world.plans[0]);
    struct ct_error err = {0};
    cr_assert_eq(deadlock_check(world.plans, world.count, false, &err), 0, "%s", err.text);
    give_first(&world.plans[1]);
    expect(&world, "waits for ever at op");
}

/* A stage that adds up with all others before it has given them what they wait for. */
Test(verify_world, rejects_a_sum_over_all_in_front_of_a_message)
{
    struct world world;

    staged(&world, CT_PLAN_GPIPE, 2);
    int last = 0;
    while (find_op(&world.plans[1], CT_OP_EXCHANGE, last + 1) >= 0)
        last++;
    int sum = find_op(&world.plans[1], CT_OP_ALL_REDUCE, 0);
    int message = find_op(&world.plans[1], CT_OP_EXCHANGE, last);
    cr_assert_lt(message, sum);
    move_op(&world.plans[1], sum, message);
    expect(&world, "rank 0 waits for ever at op");
}

/* ---- queues ---------------------------------------------------------------------------------- */

/* The update of rank 1 would wait for a sum that it never gets to. */
Test(verify_world, rejects_a_sum_that_waits_for_what_comes_after_it)
{
    struct ct_plan_options options = options_of(2);
    struct world world;

    options.overlap = true;
    world_init(&world, &options);
    struct ct_plan_list *step = &world.plans[1].step;
    int sum = find_op(&world.plans[1], CT_OP_ALL_REDUCE, 0), computed = 0;
    for (int i = 0; i < step->program.op_count; i++)
        computed += step->slot[i].queue == CT_QUEUE_COMPUTE;
    step->slot[sum].wait[CT_QUEUE_COMPUTE] = computed;
    expect(&world, "waits for ever at op");
}
