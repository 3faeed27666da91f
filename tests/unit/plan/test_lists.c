/* Lists: in which order micro-batches are added, and what a step holds. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(lists, .timeout = 10);

enum { TEXT = 256 };

/* The sum that the step's gradient of layers.0.weight ends as, written out. Each root holds the
 * text of the sum in it; addition commutes, so the side with the smaller first leaf is written
 * first. */
static void sum_text(const struct ct_plan *plan, char result[TEXT])
{
    const struct ct_program *program = &plan->step.program;
    char(*text)[TEXT] = calloc((size_t)program->value_count, TEXT);
    size_t offset = plan->tensors[0].offset_bytes;

    cr_assert_not_null(text);
    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        const struct ct_value *out = &program->values[op->out[0]];
        char *to = text[out->root], sum[2 * TEXT + 8], leaf[16];
        bool ours =
            out->offset_bytes == offset && ct_shape_equal(out->shape, plan->tensors[0].shape);
        if (op->stage != CT_STAGE_BACKWARD || !ours)
            continue;
        snprintf(leaf, sizeof leaf, "%d", op->micro);
        const char *from = op->kind == CT_OP_ADD ? text[program->values[op->in[1]].root] : leaf;
        if (op->kind == CT_OP_LINEAR_DW && !op->attr.accumulate)
            snprintf(sum, sizeof sum, "%s", leaf);
        else if (atoi(to + strspn(to, "(")) < atoi(from + strspn(from, "(")))
            snprintf(sum, sizeof sum, "(%s+%s)", to, from);
        else
            snprintf(sum, sizeof sum, "(%s+%s)", from, to);
        snprintf(to, TEXT, "%.*s", TEXT - 1, sum);
        if (out->kind == CT_VALUE_GRAD)
            strcpy(result, to);
    }
    free(text);
}

static void check_sum(enum ct_plan_reduce reduce, int accumulation, const char *expected)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;
    char text[TEXT] = "";

    options.reduce = reduce;
    options.accumulation = accumulation;
    plan_init(&plan, &options);
    sum_text(&plan, text);
    cr_assert_str_eq(text, expected);
    ct_plan_deinit(&plan);
}

Test(lists, invariant_adds_micro_batches_as_a_binary_tree)
{
    check_sum(CT_PLAN_INVARIANT, 1, "0");
    check_sum(CT_PLAN_INVARIANT, 2, "(0+1)");
    check_sum(CT_PLAN_INVARIANT, 3, "((0+1)+2)");
    check_sum(CT_PLAN_INVARIANT, 4, "((0+1)+(2+3))");
    check_sum(CT_PLAN_INVARIANT, 6, "(((0+1)+(2+3))+(4+5))");
    check_sum(CT_PLAN_INVARIANT, 7, "(((0+1)+(2+3))+((4+5)+6))");
    check_sum(CT_PLAN_INVARIANT, 8, "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

Test(lists, the_other_modes_add_them_one_after_the_other)
{
    check_sum(CT_PLAN_FAST, 1, "0");
    check_sum(CT_PLAN_FAST, 4, "(((0+1)+2)+3)");
    check_sum(CT_PLAN_REPRODUCIBLE, 3, "((0+1)+2)");
}

Test(lists, invariant_needs_a_buffer_for_each_level_only)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;
    size_t other[3];

    for (int i = 0; i < 3; i++) { /* 4, 16, 64 micro-batches: 2, 4, 6 leaves and subtrees wait */
        options.accumulation = 4 << 2 * i;
        plan_init(&plan, &options);
        other[i] = plan.step.live_bytes - (size_t)options.accumulation * 5 * (6 + 1) * 4;
        ct_plan_deinit(&plan);
    }
    size_t flat = 1024;
    cr_assert_lt(other[1] - other[0], 3 * flat);
    cr_assert_lt(other[2] - other[1], 3 * flat);
    cr_assert_gt(other[2] - other[1], flat);
}

Test(lists, one_rank_reduces_nothing)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.world = 1;
    plan_init(&plan, &options);
    cr_assert_eq(find_op(&plan, CT_OP_ALL_REDUCE, 0), -1);
    cr_assert_eq(ct_plan_wire_bytes(&plan), 0);
    ct_plan_deinit(&plan);
}

Test(lists, evaluation_is_the_forward_pass_alone)
{
    struct ct_plan plan;

    plan_init(&plan, &plan_options);
    for (int i = 0; i < plan.eval.program.op_count; i++)
        cr_assert_eq(plan.eval.program.ops[i].stage, CT_STAGE_FORWARD);
    cr_assert_eq(plan.eval.program.values[plan.eval.io.logits].kind, CT_VALUE_OUTPUT);
    cr_assert_eq(plan.eval.io.inv_valid, CT_NONE);
    ct_plan_deinit(&plan);
}
