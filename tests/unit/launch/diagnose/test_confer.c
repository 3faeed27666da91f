/* Nodes that are quiet confer: none ends a rank while another node is at work. */
#include "diagnose/confer.h"

#include <criterion/criterion.h>

TestSuite(confer, .timeout = 30);

enum { NODES = 5 };

/* Ask until all are quiet, at most `most` times. How often it took; 0: they were not. */
static int ask(struct ct_confer *confer, const bool quiet[NODES], int most)
{
    for (int i = 1; i <= most; i++) {
        cr_assert_neq(confer->next, confer->self);
        if (ct_confer_hear(confer, quiet[confer->next]))
            return i;
    }
    return 0;
}

Test(confer, all_are_quiet_when_each_has_said_so_twice)
{
    const bool all[NODES] = {true, true, true, true, true};

    for (uint32_t self = 0; self < NODES; self++) {
        struct ct_confer confer;

        ct_confer_begin(&confer, self, NODES);
        cr_assert_eq(ask(&confer, all, 100), 2 * (NODES - 1));
    }
}

Test(confer, one_at_work_is_asked_again_and_nobody_else)
{
    const bool some[NODES] = {true, true, true, false, true};
    const bool all[NODES] = {true, true, true, true, true};
    struct ct_confer confer;

    ct_confer_begin(&confer, 1, NODES);
    cr_assert_eq(ask(&confer, some, 1000), 0);
    cr_assert_eq(confer.next, 3);
    cr_assert_eq(ask(&confer, all, 100), 2 * (NODES - 1), "all are asked anew");
}

Test(confer, one_that_goes_on_between_two_questions_is_heard)
{
    bool quiet[NODES] = {true, true, true, true, true};
    struct ct_confer confer;

    ct_confer_begin(&confer, 0, NODES);
    cr_assert_eq(ask(&confer, quiet, NODES), 0);
    quiet[4] = false;
    cr_assert_eq(ask(&confer, quiet, 100), 0);
}
