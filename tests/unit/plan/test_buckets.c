/* Buckets: sizes, and the place of each reduction. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

TestSuite(buckets, .timeout = 10);

static void build(struct ct_plan *plan, size_t first, size_t cap)
{
    struct ct_plan_options options = plan_options;

    options.first_bucket_bytes = first;
    options.bucket_bytes = cap;
    plan_init(plan, &options);
}

Test(buckets, cover_the_gradients_without_gap_or_overlap)
{
    static const size_t caps[] = {1, 64, 128, 300, 1 << 20};

    for (size_t i = 0; i < 5; i++) {
        struct ct_plan plan;
        size_t end = 0;
        int next = 5;
        build(&plan, caps[i], caps[i]);
        for (int k = 0; k < plan.bucket_count; k++) {
            const struct ct_bucket *bucket = &plan.buckets[k];
            cr_assert_eq(bucket->offset_bytes, end);
            cr_assert_eq(bucket->last_param, next);
            cr_assert(bucket->bytes <= caps[i] || bucket->first_param == bucket->last_param);
            end += bucket->bytes;
            next = bucket->first_param - 1;
        }
        cr_assert_eq(end, plan.flat_bytes);
        cr_assert_eq(next, -1);
        ct_plan_deinit(&plan);
    }
}

Test(buckets, one_byte_makes_a_bucket_a_tensor_and_a_large_cap_a_single_one)
{
    struct ct_plan plan;

    build(&plan, 1, 1);
    cr_assert_eq(plan.bucket_count, 6);
    ct_plan_deinit(&plan);
    build(&plan, 25 << 20, 25 << 20);
    cr_assert_eq(plan.bucket_count, 1);
    ct_plan_deinit(&plan);
}

Test(buckets, the_first_has_its_own_cap)
{
    struct ct_plan plan;

    build(&plan, 64, 1 << 20); /* layers.2.bias takes 64 bytes with its padding */
    cr_assert_eq(plan.bucket_count, 2);
    cr_assert_eq(plan.buckets[0].bytes, 64);
    cr_assert_eq(plan.buckets[1].last_param, 4);
    ct_plan_deinit(&plan);
}

/* Whether op `i` writes into the bytes of `range`. */
static bool writes(const struct ct_plan *plan, int i, struct ct_range range)
{
    const struct ct_program_op *op = &plan->step.program.ops[i];

    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        if (op->out[k] != CT_NONE &&
            ct_range_overlap(ct_plan_range(&plan->step, op->out[k]), range))
            return true;
    return false;
}

Test(buckets, a_reduction_follows_its_last_writer_at_once_in_the_last_micro_batch)
{
    struct ct_plan plan;

    build(&plan, 64, 300);
    const struct ct_program *program = &plan.step.program;
    for (int k = 0; k < plan.bucket_count; k++) {
        int reduce = find_op(&plan, CT_OP_ALL_REDUCE, k + 1); /* the first one reduces the sums */
        cr_assert_geq(reduce, 1);
        const struct ct_program_op *op = &program->ops[reduce];
        struct ct_range range = ct_plan_range(&plan.step, op->out[0]);
        cr_assert_eq(range.begin, plan.state_bytes + plan.buckets[k].offset_bytes);
        cr_assert_eq(range.end - range.begin, plan.buckets[k].bytes);
        cr_assert_eq(op->micro, plan.options.accumulation - 1);
        int before = reduce - 1;
        cr_assert(writes(&plan, before, range), "an op stands between writer and reduction");
        for (int i = reduce + 1; i < program->op_count; i++)
            cr_assert_not(writes(&plan, i, range));
    }
    cr_assert_eq(find_op(&plan, CT_OP_ALL_REDUCE, plan.bucket_count + 1), -1);
    ct_plan_deinit(&plan);
}

Test(buckets, the_sums_are_reduced_before_the_last_backward_pass)
{
    struct ct_plan plan;

    build(&plan, 64, 300);
    int sums = find_op(&plan, CT_OP_ALL_REDUCE, 0);
    const struct ct_program *program = &plan.step.program;
    cr_assert_eq(program->ops[sums].out[0], program->values[plan.step.io.loss].root);
    cr_assert_eq(program->ops[sums + 1].stage, CT_STAGE_BACKWARD);
    ct_plan_deinit(&plan);
}
