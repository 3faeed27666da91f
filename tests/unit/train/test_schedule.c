/* Schedules: ends, middles and monotony of each shape. */
#include "train/lr_schedule.h"

#include <criterion/criterion.h>

TestSuite(schedule, .timeout = 30);

Test(schedule, the_warm_up_rises_evenly_and_reaches_the_peak)
{
    for (int type = 0; type < CT_SCHEDULE_COUNT; type++) {
        struct ct_schedule s = {.type = (enum ct_schedule_type)type,
                                .lr = 0.4,
                                .factor = 0.5,
                                .warmup = 4,
                                .steps = 20,
                                .every = 10};
        if (type == CT_SCHEDULE_ONECYCLE)
            continue; /* its rise is a cosine */
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
    for (int type = CT_SCHEDULE_LINEAR; type <= CT_SCHEDULE_COSINE; type++) {
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

Test(schedule, wsd_stays_and_falls_evenly_over_its_last_steps)
{
    struct ct_schedule s = {.type = CT_SCHEDULE_WSD,
                            .lr = 2,
                            .min_ratio = 0.1,
                            .warmup = 10,
                            .steps = 101,
                            .decay = 20};

    cr_assert_eq(ct_schedule_lr(&s, 10), 2);
    cr_assert_eq(ct_schedule_lr(&s, 80), 2);
    cr_assert_lt(ct_schedule_lr(&s, 81), 2);
    cr_assert_float_eq(ct_schedule_lr(&s, 90), 1.1, 1e-12, "half way down");
    cr_assert_float_eq(ct_schedule_lr(&s, 100), 0.2, 1e-12);
    cr_assert_float_eq(ct_schedule_lr(&s, 1000), 0.2, 1e-12);
    s.decay = 0; /* a fifth of 101 */
    cr_assert_eq(ct_schedule_lr(&s, 80), 2);
    cr_assert_lt(ct_schedule_lr(&s, 81), 2);
}

Test(schedule, step_multiplies_by_its_factor_at_each_stair)
{
    struct ct_schedule s = {
        .type = CT_SCHEDULE_STEP, .lr = 0.8, .factor = 0.5, .warmup = 2, .every = 5};

    cr_assert_float_eq(ct_schedule_lr(&s, 0), 0.4, 1e-15);
    cr_assert_eq(ct_schedule_lr(&s, 4), 0.8);
    cr_assert_eq(ct_schedule_lr(&s, 5), 0.4);
    cr_assert_eq(ct_schedule_lr(&s, 9), 0.4);
    cr_assert_eq(ct_schedule_lr(&s, 10), 0.2);
    cr_assert_eq(ct_schedule_lr(&s, 500), 0.8 * 0x1p-100);
}

/* torch 1.13: OneCycleLR(max_lr=1, total_steps=20, pct_start=0.3, div_factor=25,
 * final_div_factor=4). */
Test(schedule, onecycle_has_the_rates_of_torch)
{
    static const double want[] = {0.040000000000000036,
                                  0.1316718427000253,
                                  0.3716718427000253,
                                  0.6683281572999747,
                                  0.9083281572999747,
                                  1.0,
                                  0.9875893165300026,
                                  0.9509795896116974,
                                  0.8920065838216749,
                                  0.8136274519200731,
                                  0.7197724508631912,
                                  0.6151478623083756,
                                  0.505,
                                  0.3948521376916244,
                                  0.29022754913680876,
                                  0.19637254807992693,
                                  0.11799341617832525,
                                  0.05902041038830258,
                                  0.02241068346999731,
                                  0.01};
    struct ct_schedule s = {
        .type = CT_SCHEDULE_ONECYCLE, .lr = 1, .start_ratio = 0.04, .min_ratio = 0.01, .steps = 20};

    for (uint64_t step = 0; step < 20; step++)
        cr_assert_float_eq(ct_schedule_lr(&s, step), want[step], 1e-14);
    cr_assert_float_eq(ct_schedule_lr(&s, 99), 0.01, 1e-14);
    s.warmup = 6; /* what three tenths were */
    cr_assert_float_eq(ct_schedule_lr(&s, 3), want[3], 1e-14);
}

Test(schedule, onecycle_of_a_step_or_two_has_finite_rates)
{
    for (uint64_t steps = 1; steps < 5; steps++) {
        struct ct_schedule s = {
            .type = CT_SCHEDULE_ONECYCLE, .lr = 1, .start_ratio = 0.1, .steps = steps};

        for (uint64_t step = 0; step < 5; step++) {
            cr_assert_geq(ct_schedule_lr(&s, step), 0);
            cr_assert_leq(ct_schedule_lr(&s, step), 1);
        }
    }
}
