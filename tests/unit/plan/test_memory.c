/* Memory: what lives at the same time lies apart, and little is wasted. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

TestSuite(memory, .timeout = 10);

/* Whether op `op` touches root `root`. */
static bool touches(const struct ct_program *program, int op, int root)
{
    for (int k = 0; k < CT_OP_MAX_IN; k++) {
        int in = program->ops[op].in[k];
        if (in != CT_NONE && program->values[in].root == root)
            return true;
    }
    for (int k = 0; k < CT_OP_MAX_OUT; k++) {
        int out = program->ops[op].out[k];
        if (out != CT_NONE && program->values[out].root == root)
            return true;
    }
    return false;
}

static void lifetime(const struct ct_plan_list *list, int root, int *ret_first, int *ret_last)
{
    const struct ct_program *program = &list->program;
    enum ct_value_kind kind = program->values[root].kind;
    int first = program->op_count, last = -1;

    for (int i = 0; i < program->op_count; i++)
        if (touches(program, i, root)) {
            first = first < i ? first : i;
            last = i;
        }
    if (kind == CT_VALUE_PARAM || kind == CT_VALUE_STATE || kind == CT_VALUE_GRAD ||
        kind == CT_VALUE_INPUT)
        first = -1;
    if (kind != CT_VALUE_INPUT && kind != CT_VALUE_TEMP)
        last = program->op_count;
    *ret_first = first;
    *ret_last = last;
}

static void check_list(const struct ct_plan_list *list)
{
    const struct ct_program *program = &list->program;

    for (int a = 0; a < program->value_count; a++)
        for (int b = 0; b < a; b++) {
            int first_a, last_a, first_b, last_b;
            if (program->values[a].root != a || program->values[b].root != b ||
                !ct_range_overlap(ct_plan_range(list, a), ct_plan_range(list, b)))
                continue;
            lifetime(list, a, &first_a, &last_a);
            lifetime(list, b, &first_b, &last_b);
            /* An op in place takes over from its input: they meet in that op alone. */
            bool apart = last_a < first_b || last_b < first_a;
            bool handed = (last_a == first_b && list->offset[a] == list->offset[b]) ||
                          (last_b == first_a && list->offset[a] == list->offset[b]);
            cr_assert(apart || handed, "'%s' and '%s' share bytes and live at the same time",
                      program->values[a].name, program->values[b].name);
        }
}

Test(memory, values_that_live_together_lie_apart)
{
    for (int reduce = CT_PLAN_FAST; reduce <= CT_PLAN_INVARIANT; reduce++) {
        struct ct_plan_options options = plan_options;
        struct ct_plan plan;
        options.reduce = (enum ct_plan_reduce)reduce;
        options.accumulation = 3;
        plan_init(&plan, &options);
        check_list(&plan.init);
        check_list(&plan.step);
        check_list(&plan.eval);
        ct_plan_deinit(&plan);
    }
}

Test(memory, every_root_starts_at_a_multiple_of_the_alignment)
{
    struct ct_plan plan;

    plan_init(&plan, &plan_options);
    for (int i = 0; i < plan.step.program.value_count; i++)
        if (plan.step.program.values[i].root == i)
            cr_assert_eq(plan.step.offset[i] % CT_PLAN_ALIGN, 0);
    ct_plan_deinit(&plan);
}

Test(memory, micro_batches_use_the_same_place_again)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan few, many;

    options.reduce = CT_PLAN_FAST;
    options.accumulation = 2;
    plan_init(&few, &options);
    options.accumulation = 20;
    plan_init(&many, &options);
    size_t batch = 18 * 5 * (6 + 1) * sizeof(float); /* 18 more blocks of inputs and labels */
    cr_assert_leq(many.step.peak_bytes - few.step.peak_bytes, batch + CT_PLAN_ALIGN);
    ct_plan_deinit(&few);
    ct_plan_deinit(&many);
}

Test(memory, the_peak_is_close_to_what_is_live_at_once)
{
    for (int rows = 1; rows <= 64; rows *= 4) {
        struct ct_plan_options options = plan_options;
        struct ct_plan plan;
        options.micro_rows = rows;
        plan_init(&plan, &options);
        size_t used = plan.step.peak_bytes - plan.grads_bytes;
        cr_assert_leq(used, plan.step.live_bytes * 21 / 20, "%zu used, %zu live", used,
                      plan.step.live_bytes);
        cr_assert_leq(plan.step.live_bytes, used + CT_PLAN_ALIGN);
        ct_plan_deinit(&plan);
    }
}

Test(memory, an_activation_takes_the_place_of_its_input)
{
    struct ct_plan plan;

    plan_init(&plan, &plan_options);
    const struct ct_program_op *relu = &plan.step.program.ops[find_op(&plan, CT_OP_RELU, 0)];
    cr_assert_eq(ct_plan_offset(&plan.step, relu->in[0]), ct_plan_offset(&plan.step, relu->out[0]));
    ct_plan_deinit(&plan);
}
