/* Plateaus: the ratio falls when torch's would, and an evaluation counts once. */
#include "train/plateau.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <math.h>

TestSuite(plateau, .timeout = 30);

static const struct ct_plateau_rule rule = {
    .factor = 0.5, .min_ratio = 0.2, .threshold = 0.1, .patience = 2};

/* torch 1.13: ReduceLROnPlateau(factor=0.5, patience=2, threshold=0.1, min_lr=0.2) at lr 1. */
Test(plateau, the_ratio_falls_when_the_rate_of_torch_does)
{
    static const double losses[] = {5, 4,   3.9, 3.7, 3.61, 3.5, 3.4, 3.3, 3.2, 3.2, 3.1,
                                    2, 1.9, 1.9, NAN, 1.9,  1.9, 1.9, 1.9, 1.9, 1.9};
    static const double want[] = {1,    1,    1,    1,   0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25,
                                  0.25, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2,  0.2};
    struct ct_plateau plateau;

    ct_plateau_init(&plateau);
    cr_assert_eq(plateau.ratio, 1);
    for (size_t i = 0; i < CT_COUNT(losses); i++) {
        ct_plateau_observe(&plateau, &rule, 10 * (i + 1), losses[i]);
        cr_assert_eq(plateau.ratio, want[i], "evaluation %zu: %g, not %g", i, plateau.ratio,
                     want[i]);
    }
}

Test(plateau, an_evaluation_that_is_done_again_changes_nothing)
{
    struct ct_plateau once, again;

    ct_plateau_init(&once);
    ct_plateau_init(&again);
    for (uint64_t step = 1; step < 20; step++) {
        ct_plateau_observe(&once, &rule, step, 1);
        ct_plateau_observe(&again, &rule, step, 1);
        ct_plateau_observe(&again, &rule, step, 1);
        ct_plateau_observe(&again, &rule, step / 2, 0);
        cr_assert_eq(again.ratio, once.ratio);
        cr_assert_eq(again.bad, once.bad);
        cr_assert_eq(again.best, once.best);
    }
    cr_assert_eq(once.ratio, 0.2);
}

Test(plateau, a_ratio_below_the_least_is_not_raised)
{
    struct ct_plateau plateau = {.ratio = 0.1, .best = 1};
    const struct ct_plateau_rule hasty = {.factor = 0.5, .min_ratio = 0.2};

    ct_plateau_observe(&plateau, &hasty, 1, 2);
    cr_assert_eq(plateau.ratio, 0.1);
}
