/* Amounts as people read them. */
#include "base/scale.h"

#include <criterion/criterion.h>

TestSuite(scale, .timeout = 10);

Test(scale, amounts_have_the_largest_unit_that_keeps_them_above_one)
{
    char text[CT_SCALE_SIZE];

    cr_assert_str_eq(ct_scale_bytes(64, text), "64 B");
    cr_assert_str_eq(ct_scale_bytes(25 << 20, text), "25.00 MB");
    cr_assert_str_eq(ct_scale_bytes(1.5 * (1 << 30), text), "1.50 GB");
    cr_assert_str_eq(ct_scale_unit(640, "FLOP", text), "640 FLOP");
    cr_assert_str_eq(ct_scale_unit(312e12, "FLOP", text), "312.00 TFLOP");
    cr_assert_str_eq(ct_scale_seconds(12.34e-6, text), "12.3 us");
    cr_assert_str_eq(ct_scale_seconds(4.56e-3, text), "4.56 ms");
    cr_assert_str_eq(ct_scale_seconds(7.8, text), "7.80 s");
}
