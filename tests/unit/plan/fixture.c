/* See fixture.h. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

#include <string.h>

static const int64_t two_hidden[] = {9, 7};

const struct ct_model_spec plan_spec = {.input = 6,
                                        .hidden = two_hidden,
                                        .hidden_count = 2,
                                        .classes = 4,
                                        .activation = CT_ACT_RELU,
                                        .loss = CT_LOSS_CROSS_ENTROPY,
                                        .dtype = CT_F32};

const struct ct_plan_options plan_options = {
    .world = 4,
    .micro_rows = 5,
    .accumulation = 4,
    .bucket_bytes = 512,
    .first_bucket_bytes = 128,
    .overlap = true,
    .reduce = CT_PLAN_INVARIANT,
    .optim = {.type = CT_OPTIM_SGD, .momentum = 0.9, .clip = 1},
};

void plan_init(struct ct_plan *plan, const struct ct_plan_options *options)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(plan, &plan_spec, options, 1, &err), 0, "%s", err.text);
}

int find_op(const struct ct_plan *plan, int kind, int nth)
{
    for (int i = 0; i < plan->step.program.op_count; i++)
        if (plan->step.program.ops[i].kind == kind && nth-- == 0)
            return i;
    return -1;
}

int count_kind(const struct ct_program *program, int kind)
{
    int count = 0;

    for (int i = 0; i < program->op_count; i++)
        count += program->ops[i].kind == kind;
    return count;
}

struct ct_program_op op_reading(int kind, int a, int b, int c, int d)
{
    struct ct_program_op op = ct_program_op(kind);

    op.in[0] = a;
    op.in[1] = b;
    op.in[2] = c;
    op.in[3] = d;
    return op;
}

void move_op(struct ct_plan *plan, int from, int to)
{
    struct ct_program_op *ops = plan->step.program.ops, op = ops[from];

    for (int step = from < to ? 1 : -1; from != to; from += step)
        ops[from] = ops[from + step];
    ops[to] = op;
}

void drop_op(struct ct_plan *plan, int op)
{
    move_op(plan, op, plan->step.program.op_count - 1);
    plan->step.program.op_count--;
}

void expect_objection(struct ct_plan *plan, const char *part)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_verify(plan, &plan->step, &err), CT_EBUG, "the fault passed");
    cr_assert_not_null(strstr(err.text, part), "says '%s'", err.text);
    ct_plan_deinit(plan);
}
