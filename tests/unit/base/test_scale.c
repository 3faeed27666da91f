/* Amounts as people read them. */
#include "base/number/scale.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(scale, .timeout = 10);

Test(scale, amounts_have_the_largest_unit_that_keeps_them_above_one)
{
    char text[CT_SCALE_SIZE];

    cr_assert_str_eq(ct_scale_bytes(64, text), "64 B");
    cr_assert_str_eq(ct_scale_bytes(25 << 20, text), "25.00 MiB");
    cr_assert_str_eq(ct_scale_bytes(1.5 * (1 << 30), text), "1.50 GiB");
    cr_assert_str_eq(ct_scale_unit(640, "FLOP", text), "640 FLOP");
    cr_assert_str_eq(ct_scale_unit(312e12, "FLOP", text), "312.00 TFLOP");
    cr_assert_str_eq(ct_scale_seconds(12.34e-6, text), "12.3 us");
    cr_assert_str_eq(ct_scale_seconds(4.56e-3, text), "4.56 ms");
    cr_assert_str_eq(ct_scale_seconds(7.8, text), "7.80 s");
}

Test(scale, times_read_as_on_a_clock)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{0, "0:00"},       {0.4, "0:00"},         {59.6, "1:00"},  {754, "12:34"},
                {3723, "1:02:03"}, {90000, "1d 1:00:00"}, {INFINITY, "?"}, {NAN, "?"}};
    char text[CT_SCALE_SIZE];

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        cr_assert_str_eq(ct_scale_clock(rows[i].seconds, text), rows[i].text);
}
