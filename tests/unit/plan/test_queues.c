/* Queues: who waits for whom. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

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
