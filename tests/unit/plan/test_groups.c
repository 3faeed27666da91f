/* Groups: what is updated alike, and patterns that match nothing. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(groups, .timeout = 10);

static struct ct_plan_options decaying(void)
{
    struct ct_plan_options options = plan_options;

    options.optim.weight_decay = 0.1;
    return options;
}

/* The runs follow each other without a gap, and each op of the optimizer has one. */
static void assert_covered(const struct ct_plan *plan)
{
    size_t end = 0;

    for (int i = 0; i < plan->run_count; i++) {
        cr_assert_eq(plan->runs[i].offset_bytes, end);
        end += plan->runs[i].bytes;
        int op = find_op(plan, CT_OP_SGD, i);
        const struct ct_program_op *sgd = &plan->step.program.ops[op];
        cr_assert_eq(plan->step.program.values[sgd->in[0]].bytes, plan->runs[i].bytes);
        cr_assert_eq(plan->step.program.values[sgd->out[0]].offset_bytes,
                     plan->runs[i].offset_bytes);
        cr_assert_eq(sgd->attr.weight_decay > 0, plan->runs[i].decays);
    }
    cr_assert_eq(end, plan->flat_bytes);
    cr_assert_eq(find_op(plan, CT_OP_SGD, plan->run_count), -1);
}

Test(groups, one_group_is_one_run)
{
    struct ct_plan_options options = decaying();
    struct ct_plan plan;

    plan_init(&plan, &options);
    cr_assert_eq(plan.run_count, 1);
    cr_assert(plan.runs[0].decays && plan.runs[0].lr_factor == 1);
    assert_covered(&plan);
    ct_plan_deinit(&plan);
}

Test(groups, vectors_without_decay_alternate_with_matrices)
{
    struct ct_plan_options options = decaying();
    struct ct_plan plan;

    options.optim.groups.vectors_undecayed = true;
    plan_init(&plan, &options);
    cr_assert_eq(plan.run_count, 6);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(plan.runs[i].decays, i % 2 == 1, "bias first, from the last layer on");
    assert_covered(&plan);
    ct_plan_deinit(&plan);
}

Test(groups, without_any_decay_there_is_no_group_of_it)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.optim.groups.vectors_undecayed = true;
    plan_init(&plan, &options);
    cr_assert_eq(plan.run_count, 1);
    ct_plan_deinit(&plan);
}

Test(groups, patterns_choose_decay_and_rate_and_the_first_rule_counts)
{
    static const char *const undecayed[] = {"*.1.*"};
    static const struct ct_lr_rule rules[] = {{"layers.2.weight", 0.5}, {"layers.2.*", 0.25}};
    struct ct_plan_options options = decaying();
    struct ct_plan plan;

    options.optim.groups = (struct ct_optim_groups){
        .undecayed = undecayed, .undecayed_count = 1, .rules = rules, .rule_count = 2};
    plan_init(&plan, &options);
    cr_assert_eq(plan.run_count, 4);
    cr_assert_eq(plan.runs[0].lr_factor, 0.25, "the last bias");
    cr_assert_eq(plan.runs[1].lr_factor, 0.5, "the last weight");
    cr_assert(!plan.runs[2].decays && plan.runs[2].lr_factor == 1);
    cr_assert(plan.runs[3].decays && plan.runs[3].lr_factor == 1);
    assert_covered(&plan);
    ct_plan_deinit(&plan);
}

Test(groups, a_pattern_that_matches_nothing_is_refused_with_its_key)
{
    static const char *const undecayed[] = {"layers.9.*"};
    static const struct ct_lr_rule rules[] = {{"haed.*", 0.5}};
    struct ct_plan_options options[] = {decaying(), decaying()};
    static const char *const says[] = {"optim.no_decay: no parameter is called \"layers.9.*\"",
                                       "optim.lr_factors: no parameter is called \"haed.*\""};

    options[0].optim.groups.undecayed = undecayed;
    options[0].optim.groups.undecayed_count = 1;
    options[1].optim.groups.rules = rules;
    options[1].optim.groups.rule_count = 1;
    for (size_t i = 0; i < CT_COUNT(options); i++) {
        struct ct_plan plan;
        struct ct_error err = {0};

        cr_assert_eq(ct_plan_build(&plan, &plan_spec, &options[i], 1, &err), CT_ECONFIG);
        cr_assert(strncmp(err.text, says[i], strlen(says[i])) == 0, "'%s'", err.text);
        cr_assert_not_null(strstr(err.text, "there are 6, the first is layers.0.weight"));
        ct_plan_deinit(&plan);
    }
}

/* ---- freezing ------------------------------------------------------------------------------- */

static struct ct_plan_options freezing(const char *const *patterns, int count)
{
    struct ct_plan_options options = decaying();

    options.optim.groups.frozen = patterns;
    options.optim.groups.frozen_count = count;
    return options;
}

static int count_ops(const struct ct_plan *plan, int kind)
{
    int count = 0;

    while (find_op(plan, kind, count) >= 0)
        count++;
    return count;
}

Test(groups, frozen_parameters_have_neither_gradients_nor_moments)
{
    static const char *const patterns[] = {"layers.0.*", "layers.2.bias"};
    struct ct_plan_options options = freezing(patterns, 2);
    struct ct_plan plan, all;

    plan_init(&plan, &options);
    options.optim.groups.frozen_count = 0;
    plan_init(&all, &options);
    cr_assert_eq(plan.param_count, 6);
    cr_assert_eq(plan.learned_count, 3);
    cr_assert_eq(plan.tensor_count, 6 + 3);
    cr_assert_str_eq(plan.tensors[6].name, "momentum.layers.1.weight");
    cr_assert_str_eq(plan.tensors[8].name, "momentum.layers.2.weight");
    cr_assert_eq(plan.flat_bytes + plan.frozen_bytes, all.flat_bytes);
    cr_assert_eq(plan.state_bytes, 2 * plan.flat_bytes + plan.frozen_bytes);
    for (int i = 0; i < 6; i++) {
        bool frozen = plan.tensors[i].range == CT_PLAN_WHOLE;
        cr_assert_eq(frozen, i < 2 || i == 5);
        cr_assert_eq(plan.tensors[i].offset_bytes >= plan.flat_bytes, frozen);
    }
    cr_assert_eq(plan.tensors[6].offset_bytes,
                 plan.flat_bytes + plan.frozen_bytes + plan.tensors[2].offset_bytes);
    assert_covered(&plan);
    ct_plan_deinit(&plan);
    ct_plan_deinit(&all);
}

Test(groups, nothing_is_differentiated_for_what_is_frozen)
{
    static const char *const first[] = {"layers.0.*"}, *const last[] = {"layers.2.*"};
    struct ct_plan_options options = freezing(first, 1);
    struct ct_plan plan;

    plan_init(&plan, &options);
    cr_assert_eq(count_ops(&plan, CT_OP_LINEAR_DW), 2 * options.accumulation);
    cr_assert_eq(count_ops(&plan, CT_OP_LINEAR_DX), options.accumulation, "none below layer 1");
    ct_plan_deinit(&plan);
    options = freezing(last, 1);
    plan_init(&plan, &options);
    cr_assert_eq(count_ops(&plan, CT_OP_LINEAR_DW), 2 * options.accumulation);
    cr_assert_eq(count_ops(&plan, CT_OP_LINEAR_DX), 2 * options.accumulation, "through layer 2");
    ct_plan_deinit(&plan);
}

Test(groups, freezing_nothing_or_everything_is_refused)
{
    static const char *const nothing[] = {"*.bias", "embed.*"}, *const everything[] = {"layers.*"};
    struct ct_plan_options options[] = {freezing(nothing, 2), freezing(everything, 1)};
    static const char *const says[] = {
        "optim.freeze: no parameter is called \"embed.*\"; there are 6",
        "optim.freeze matches all 6 parameters: nothing is left to train"};

    for (size_t i = 0; i < CT_COUNT(options); i++) {
        struct ct_plan plan;
        struct ct_error err = {0};

        cr_assert_eq(ct_plan_build(&plan, &plan_spec, &options[i], 1, &err), CT_ECONFIG);
        cr_assert(strncmp(err.text, says[i], strlen(says[i])) == 0, "'%s'", err.text);
        ct_plan_deinit(&plan);
    }
}
