/* Plans: layout, hash, refusals, text. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(plan, .timeout = 10);

Test(plan, parameters_lie_in_reverse_and_moments_behind_them)
{
    struct ct_plan plan;
    size_t end = 0;

    plan_init(&plan, &plan_options);
    cr_assert_eq(plan.param_count, 6);
    cr_assert_eq(plan.tensor_count, 12);
    for (int i = plan.param_count - 1; i >= 0; i--) {
        const struct ct_plan_tensor *p = &plan.tensors[i], *m = &plan.tensors[i + 6];
        cr_assert_eq(p->offset_bytes, end);
        cr_assert_eq(p->offset_bytes % CT_PLAN_ALIGN, 0);
        cr_assert(p->is_param && !m->is_param);
        cr_assert_eq(m->offset_bytes, p->offset_bytes + plan.flat_bytes);
        cr_assert_eq(m->bytes, p->bytes);
        end += ct_plan_align(p->bytes);
    }
    cr_assert_eq(plan.flat_bytes, end);
    cr_assert_eq(plan.state_bytes, 2 * end);
    cr_assert_eq(plan.grads_bytes, 3 * end);
    cr_assert_str_eq(plan.tensors[0].name, "layers.0.weight");
    cr_assert_str_eq(plan.tensors[6].name, "momentum.layers.0.weight");
    ct_plan_deinit(&plan);
}

Test(plan, adamw_has_two_moments_lion_one_and_plain_sgd_none)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.optim =
        (struct ct_optim_spec){.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    plan_init(&plan, &options);
    cr_assert_eq(plan.tensor_count, 18);
    cr_assert_str_eq(plan.tensors[7].name, "exp_avg.layers.0.bias");
    cr_assert_str_eq(plan.tensors[13].name, "exp_avg_sq.layers.0.bias");
    ct_plan_deinit(&plan);
    options.optim = (struct ct_optim_spec){.type = CT_OPTIM_LION, .beta1 = 0.9, .beta2 = 0.99};
    plan_init(&plan, &options);
    cr_assert_eq(plan.tensor_count, 12);
    cr_assert_str_eq(plan.tensors[6].name, "exp_avg.layers.0.weight");
    cr_assert_eq(plan.step.io.update, CT_NONE);
    ct_plan_deinit(&plan);
    options.optim.ema = 0.99;
    plan_init(&plan, &options);
    cr_assert_eq(plan.tensor_count, 18, "the average is the last moment");
    cr_assert_str_eq(plan.tensors[12].name, "ema.layers.0.weight");
    cr_assert_neq(plan.step.io.update, CT_NONE);
    ct_plan_deinit(&plan);
    options.optim = (struct ct_optim_spec){.type = CT_OPTIM_SGD};
    plan_init(&plan, &options);
    cr_assert_eq(plan.tensor_count, 6);
    cr_assert_eq(plan.state_bytes, plan.flat_bytes);
    ct_plan_deinit(&plan);
}

Test(plan, equal_options_have_equal_hashes_and_others_do_not)
{
    struct ct_plan_options rows[10];
    struct ct_plan base, same;

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        rows[i] = plan_options;
    rows[0].world = 2;
    rows[1].reduce = CT_PLAN_FAST;
    rows[2].accumulation = 2;
    rows[3].micro_rows = 6;
    rows[4].bucket_bytes = 1 << 20;
    rows[5].optim.momentum = 0.8;
    rows[6].optim.clip = 2;
    rows[7].optim.weight_decay = 0.1;
    rows[8].eval_rows = 6;
    rows[9].optim.nesterov = true;
    plan_init(&base, &plan_options);
    plan_init(&same, &plan_options);
    cr_assert_eq(base.hash, same.hash);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_plan other;
        plan_init(&other, &rows[i]);
        cr_assert_neq(other.hash, base.hash, "row %zu", i);
        ct_plan_deinit(&other);
    }
    struct ct_plan seeded;
    cr_assert_eq(ct_plan_build(&seeded, &plan_spec, &plan_options, 2, NULL), 0);
    cr_assert_neq(seeded.hash, base.hash, "another seed");
    ct_plan_deinit(&seeded);
    ct_plan_deinit(&base);
    ct_plan_deinit(&same);
}

Test(plan, the_hash_sees_the_mode_where_the_lists_are_equal)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan fast, reproducible;

    options.reduce = CT_PLAN_FAST;
    plan_init(&fast, &options);
    options.reduce = CT_PLAN_REPRODUCIBLE;
    plan_init(&reproducible, &options);
    cr_assert_eq(ct_program_hash(&fast.step.program), ct_program_hash(&reproducible.step.program));
    cr_assert_neq(fast.hash, reproducible.hash);
    ct_plan_deinit(&fast);
    ct_plan_deinit(&reproducible);
}

Test(plan, what_cannot_be_planned_is_refused_with_the_key)
{
    struct ct_plan_options rows[11];
    static const char *const says[] = {
        "a world of 0 ranks",
        "0 micro-batches a step",
        "the micro-batch is 0",
        "parallel.bucket",
        "optim.momentum is 1",
        "optim.clip is -1",
        "optim.weight_decay is nan",
        "optim.betas are 0.9 and 1",
        "4097 micro-batches a step, must be from 1 to 4096: raise batch.micro",
        "optim.nesterov needs optim.momentum",
        "optim.betas are 1 and 0.99"};

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        rows[i] = plan_options;
    rows[0].world = 0;
    rows[1].accumulation = 0;
    rows[2].micro_rows = 0;
    rows[3].bucket_bytes = 0;
    rows[4].optim.momentum = 1;
    rows[5].optim.clip = -1;
    rows[6].optim.weight_decay = NAN;
    rows[7].optim =
        (struct ct_optim_spec){.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 1, .eps = 1e-8};
    rows[8].accumulation = 4097;
    rows[9].optim = (struct ct_optim_spec){.type = CT_OPTIM_SGD, .nesterov = true};
    rows[10].optim = (struct ct_optim_spec){.type = CT_OPTIM_LION, .beta1 = 1, .beta2 = 0.99};
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_plan plan;
        struct ct_error err = {0};
        cr_assert_eq(ct_plan_build(&plan, &plan_spec, &rows[i], 1, &err), CT_ECONFIG);
        cr_assert(strncmp(err.text, says[i], strlen(says[i])) == 0, "'%s'", err.text);
        ct_plan_deinit(&plan);
    }
}

Test(plan, a_large_step_is_planned_too)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.accumulation = 300;
    plan_init(&plan, &options);
    cr_assert_gt(plan.step.program.op_count, 300 * 15);
    cr_assert_eq(find_op(&plan, CT_OP_ALL_REDUCE, plan.bucket_count + 1), -1);
    ct_plan_deinit(&plan);
}

Test(plan, the_text_names_memory_buckets_and_waits)
{
    static const char *const says[] = {
        "parameters   165 in 6 tensors\n",
        "batch        4 ranks x 4 micro-batches x 5 rows\n",
        "  moments              ",
        "reduction    invariant, beside backward, 3 buckets",
        "  world                4 ranks, 1 calls",
        "  data                 4 ranks, 3 calls",
        "  bucket 0: 64 B, layers.2.bias .. layers.2.bias\n",
        "wait(",
        "all_reduce",
        "comm",
    };
    struct ct_plan plan;
    struct ct_buf buf;

    plan_init(&plan, &plan_options);
    ct_buf_init(&buf, 0);
    cr_assert_eq(ct_plan_print(&plan, true, &buf, NULL), 0);
    for (size_t i = 0; i < CT_COUNT(says); i++)
        cr_assert_not_null(strstr(ct_buf_str(&buf), says[i]), "no '%s' in\n%s", says[i],
                           ct_buf_str(&buf));
    ct_buf_deinit(&buf);
    ct_plan_deinit(&plan);
}
