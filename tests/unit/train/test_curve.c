/* A value's course in a few columns. */
#include "train/curve.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(curve, .timeout = 10);

static const char *print(const struct ct_curve *curve, struct ct_buf *to)
{
    ct_buf_clear(to);
    ct_curve_print(curve, to);
    return ct_buf_str(to);
}

Test(curve, columns_show_the_course_with_its_first_and_last_value)
{
    struct ct_curve curve = {.stride = 0};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    cr_assert_str_eq(print(&curve, &text), "", "nothing is known");
    ct_curve_add(&curve, 8);
    cr_assert_str_eq(print(&curve, &text), "", "one value has no course");
    for (int i = 7; i >= 1; i--)
        ct_curve_add(&curve, i);
    cr_assert_str_eq(print(&curve, &text), "█▇▆▅▄▃▂▁  8 to 1");
    ct_curve_add(&curve, NAN);
    ct_curve_add(&curve, 1);
    cr_assert_str_eq(print(&curve, &text), "█▇▆▅▄▃▂▁ ▁  8 to 1");
    ct_buf_deinit(&text);
}

Test(curve, two_columns_become_one_when_all_are_used_up)
{
    struct ct_curve curve = {.stride = 0};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    for (int i = 0; i < 2 * CT_CURVE_COLUMNS; i++) /* half of them 1, then 0 */
        ct_curve_add(&curve, i < CT_CURVE_COLUMNS);
    cr_assert_eq(curve.stride, 2);
    for (int i = 0; i < 1000; i++)
        ct_curve_add(&curve, 0);
    print(&curve, &text);
    cr_assert(curve.stride == 32 && curve.count == 1000 + 2 * CT_CURVE_COLUMNS);
    cr_assert_str_eq(ct_buf_str(&text), "█▃▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  1 to 0");
    ct_buf_deinit(&text);
}
