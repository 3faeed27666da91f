/* What the workers of a node hold between two rounds. */
#include "launch/survivors.h"

#include <criterion/criterion.h>

TestSuite(survivors, .timeout = 10);

enum { ALL = 3 };

Test(survivors, somebody_who_only_says_that_it_can_live_on_holds_nothing_yet)
{
    struct ct_survivor all[ALL] = {[1] = {.able = true}};

    cr_assert(ct_survivors_any(all, ALL));
    cr_assert_null(ct_survivors_best(all, ALL));
    all[1].able = false;
    cr_assert_not(ct_survivors_any(all, ALL));
}

Test(survivors, the_newest_lineage_comes_before_the_highest_step)
{
    struct ct_survivor all[ALL] = {
        {true, true, 4, 900, 1}, {true, true, 5, 20, 2}, {true, true, 5, 21, 3}};

    cr_assert_eq(ct_survivors_best(all, ALL), &all[2]);
    all[2].ready = false;
    cr_assert_eq(ct_survivors_best(all, ALL), &all[1]);
    all[1].lineage = 0;
    cr_assert_eq(ct_survivors_best(all, ALL), &all[0]);
}

Test(survivors, one_that_was_not_healed_proves_that_no_step_was_taken)
{
    struct ct_survivor all[ALL] = {
        {true, true, 5, 20, 2}, {true, false, 0, 0, 0}, {true, true, 5, 20, 2}};

    cr_assert_not(ct_survivors_untouched(all, ALL, 5));
    all[2].lineage = 4;
    cr_assert(ct_survivors_untouched(all, ALL, 5));
}
