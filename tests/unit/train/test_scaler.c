/* The loss' scale: as torch.cuda.amp.GradScaler's with its defaults. */
#include "train/scaler.h"

#include <criterion/criterion.h>

TestSuite(scaler, .timeout = 30);

Test(scaler, an_overflow_halves_it_and_clean_steps_double_it)
{
    struct ct_scaler scaler;

    ct_scaler_init(&scaler, 65536);
    ct_scaler_observe(&scaler, 2000, true);
    cr_assert_eq(scaler.scale, 32768);
    for (int i = 0; i < 1999; i++)
        ct_scaler_observe(&scaler, 2000, false);
    cr_assert_eq(scaler.scale, 32768);
    ct_scaler_observe(&scaler, 2000, false);
    cr_assert_eq(scaler.scale, 65536);
    cr_assert_eq(scaler.clean, 0);
}

Test(scaler, an_overflow_begins_the_count_anew)
{
    struct ct_scaler scaler;

    ct_scaler_init(&scaler, 16);
    ct_scaler_observe(&scaler, 2, false);
    ct_scaler_observe(&scaler, 2, true);
    ct_scaler_observe(&scaler, 2, false);
    cr_assert_eq(scaler.scale, 8);
    ct_scaler_observe(&scaler, 2, false);
    cr_assert_eq(scaler.scale, 16);
}

Test(scaler, it_stays_within_one_and_2_to_the_64)
{
    struct ct_scaler scaler;

    ct_scaler_init(&scaler, 2);
    for (int i = 0; i < 3; i++)
        ct_scaler_observe(&scaler, 1, true);
    cr_assert_eq(scaler.scale, 1);
    for (int i = 0; i < 100; i++)
        ct_scaler_observe(&scaler, 1, false);
    cr_assert_eq(scaler.scale, 0x1p64);
}
