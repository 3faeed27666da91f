/* Whose state a round starts from. */
#include "job/state_recovery.h"

#include <criterion/criterion.h>

TestSuite(state_recovery, .timeout = 10);

enum { LINEAGE = 7, RANKS = 3 };

static struct ct_holding held(uint64_t lineage, uint64_t step, uint64_t digest)
{
    return (struct ct_holding){lineage, step, digest, {0}};
}

Test(state_recovery, the_base_is_the_highest_step_of_the_jobs_lineage)
{
    struct ct_holding all[] = {held(0, 0, 0), held(LINEAGE, 4, 1), held(LINEAGE, 5, 2),
                               held(LINEAGE - 1, 90, 3), held(LINEAGE, 5, 2)};

    cr_assert_eq(ct_state_recovery_base(all, 5, LINEAGE), 2, "the lowest rank of those at step 5");
    cr_assert_eq(ct_state_recovery_base(all, 2, LINEAGE), 1);
    cr_assert_eq(ct_state_recovery_base(all, 1, LINEAGE), -1, "nobody holds it");
    cr_assert_eq(ct_state_recovery_base(all, 5, 0), -1, "there is none to hold");
}

Test(state_recovery, nothing_is_given_when_all_hold_the_same)
{
    struct ct_holding all[] = {held(LINEAGE, 5, 2), held(LINEAGE - 1, 5, 2), held(LINEAGE, 5, 2)};

    cr_assert_not(ct_state_recovery_needed(all, RANKS, 0),
                  "an older lineage of the same state is no other");
    all[2].digest = 3;
    cr_assert(ct_state_recovery_needed(all, RANKS, 0));
    all[2] = held(0, 5, 2);
    cr_assert(ct_state_recovery_needed(all, RANKS, 0), "who holds nothing is given everything");
}

Test(state_recovery, equal_steps_of_one_lineage_must_have_equal_states)
{
    struct ct_holding all[] = {held(LINEAGE, 5, 2), held(LINEAGE, 4, 9), held(LINEAGE, 5, 2)};

    cr_assert_eq(ct_state_recovery_diverged(all, RANKS, 0), -1);
    all[2].digest = 3;
    cr_assert_eq(ct_state_recovery_diverged(all, RANKS, 0), 2);
}
