/* Strings: what counts as a number, how near two names are. */
#include "base/str.h"

#include <criterion/criterion.h>

Test(str, digit_runs_compare_as_numbers)
{
    cr_assert_lt(ct_natural_compare("node2", "node10"), 0);
    cr_assert_gt(ct_natural_compare("node10", "node9"), 0);
    cr_assert_eq(ct_natural_compare("node01", "node1"), 0);
    cr_assert_lt(ct_natural_compare("a", "a1"), 0);
}
