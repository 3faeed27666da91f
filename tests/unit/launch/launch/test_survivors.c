/* What the workers of a node hold between two rounds. */
#include "launch/survivors.h"

#include <criterion/criterion.h>

TestSuite(survivors, .timeout = 10);

enum { ALL = 3 };

static struct ct_survivor ready(uint64_t lineage, uint64_t step)
{
    return (struct ct_survivor){.able = true, .ready = true, .lineage = lineage, .step = step};
}

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
    struct ct_survivor all[ALL] = {ready(4, 900), ready(5, 20), ready(5, 21)};

    cr_assert_eq(ct_survivors_best(all, ALL), &all[2]);
    all[2].ready = false;
    cr_assert_eq(ct_survivors_best(all, ALL), &all[1]);
    all[1].lineage = 0;
    cr_assert_eq(ct_survivors_best(all, ALL), &all[0]);
}

Test(survivors, one_that_has_not_recovered_proves_that_no_step_was_taken)
{
    struct ct_survivor all[ALL] = {ready(5, 20), {.able = true}, ready(5, 20)};

    cr_assert_not(ct_survivors_untouched(all, ALL, 5));
    all[2].lineage = 4;
    cr_assert(ct_survivors_untouched(all, ALL, 5));
    all[2] = (struct ct_survivor){.able = true, .idle = true}; /* it still loads */
    cr_assert(ct_survivors_untouched(all, ALL, 5));
}

Test(survivors, a_round_has_recovered_when_the_last_worker_holds_its_base)
{
    struct ct_survivor all[ALL] = {{.recovered = 5}, {.recovered = 4}, {.recovered = 5}};

    cr_assert_not(ct_survivors_recovered(all, ALL, 5));
    all[1].recovered = 6;
    cr_assert(ct_survivors_recovered(all, ALL, 5));
}
