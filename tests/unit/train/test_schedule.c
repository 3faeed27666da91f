/* Schedules: ends, middles and monotony of each shape. */
#include "train/schedule.h"

#include <criterion/criterion.h>

TestSuite(schedule, .timeout = 30);

Test(schedule, names_find_types)
{
    cr_assert_eq(ct_schedule_find("constant"), CT_SCHEDULE_CONSTANT);
    cr_assert_eq(ct_schedule_find("linear"), CT_SCHEDULE_LINEAR);
    cr_assert_eq(ct_schedule_find("cosine"), CT_SCHEDULE_COSINE);
    cr_assert_eq(ct_schedule_find("onecycle"), -1);
}

Test(schedule, the_warm_up_rises_evenly_and_reaches_the_peak)
{
    for (int type = 0; type < CT_SCHEDULE_COUNT; type++) {
        struct ct_schedule s = {
            .type = (enum ct_schedule_type)type, .lr = 0.4, .warmup = 4, .steps = 20};
        cr_assert_float_eq(ct_schedule_lr(&s, 0), 0.1, 1e-15);
        cr_assert_float_eq(ct_schedule_lr(&s, 1), 0.2, 1e-15);
        cr_assert_float_eq(ct_schedule_lr(&s, 3), 0.4, 1e-15);
        cr_assert_float_eq(ct_schedule_lr(&s, 4), 0.4, 1e-15);
    }
}

Test(schedule, constant_stays)
{
    struct ct_schedule s = {.type = CT_SCHEDULE_CONSTANT, .lr = 0.3, .steps = 9, .min_ratio = 0.5};

    for (uint64_t step = 0; step < 20; step++)
        cr_assert_float_eq(ct_schedule_lr(&s, step), 0.3, 0);
}

Test(schedule, linear_and_cosine_fall_to_the_minimum_at_the_last_step)
{
    for (int type = CT_SCHEDULE_LINEAR; type < CT_SCHEDULE_COUNT; type++) {
        struct ct_schedule s = {.type = (enum ct_schedule_type)type,
                                .lr = 1,
                                .warmup = 10,
                                .steps = 111,
                                .min_ratio = 0.2};
        cr_assert_float_eq(ct_schedule_lr(&s, 10), 1, 1e-12);
        cr_assert_float_eq(ct_schedule_lr(&s, 60), 0.6, 1e-12, "half way");
        cr_assert_float_eq(ct_schedule_lr(&s, 110), 0.2, 1e-12);
        cr_assert_float_eq(ct_schedule_lr(&s, 5000), 0.2, 1e-12);
        for (uint64_t step = 10; step < 110; step++)
            cr_assert_lt(ct_schedule_lr(&s, step + 1), ct_schedule_lr(&s, step));
    }
}

Test(schedule, cosine_is_flat_at_both_ends)
{
    struct ct_schedule s = {.type = CT_SCHEDULE_COSINE, .lr = 1, .steps = 101};

    cr_assert_float_eq(ct_schedule_lr(&s, 25), 0.853553390593, 1e-11);
    cr_assert_float_eq(ct_schedule_lr(&s, 75), 0.146446609407, 1e-11);
}

Test(schedule, one_step_or_a_warm_up_without_end_are_fine)
{
    struct ct_schedule one = {.type = CT_SCHEDULE_COSINE, .lr = 1, .steps = 1, .min_ratio = 0.5};
    struct ct_schedule rising = {.type = CT_SCHEDULE_LINEAR, .lr = 1, .steps = 4, .warmup = 100};

    cr_assert_float_eq(ct_schedule_lr(&one, 0), 0.5, 0);
    cr_assert_float_eq(ct_schedule_lr(&rising, 3), 0.04, 1e-15);
    cr_assert_float_eq(ct_schedule_lr(&rising, 99), 1, 1e-15);
}
