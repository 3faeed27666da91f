/* Whose turn it is. */
#include "collectives/ps/ps_schedule.h"

#include <criterion/criterion.h>

TestSuite(ps_schedule, .timeout = 20);

enum { WORKERS = 3 };
static struct ct_ps_progress progress[WORKERS];

static struct ct_ps_schedule begin(uint64_t staleness, uint64_t step)
{
    struct ct_ps_schedule schedule = {.progress = progress};

    ct_ps_schedule_init(&schedule, WORKERS, staleness, step);
    for (int i = 0; i < WORKERS; i++)
        cr_assert(ct_ps_schedule_begin(&schedule, i, step));
    return schedule;
}

static enum ct_ps_due push(struct ct_ps_schedule *schedule, int worker, uint64_t step)
{
    enum ct_ps_due due = CT_PS_NOT_DUE;

    cr_assert(ct_ps_schedule_push(schedule, worker, step, &due));
    return due;
}

Test(ps_schedule, a_sum_is_due_when_all_have_pushed)
{
    struct ct_ps_schedule schedule = begin(0, 7);

    cr_assert_eq(push(&schedule, 2, 7), CT_PS_NOT_DUE);
    cr_assert_eq(push(&schedule, 0, 7), CT_PS_NOT_DUE);
    cr_assert_not(ct_ps_schedule_begin(&schedule, 0, 8));
    cr_assert_eq(ct_ps_schedule_step(&schedule), 7);
    cr_assert_eq(push(&schedule, 1, 7), CT_PS_SUM_DUE);
    cr_assert_eq(ct_ps_schedule_step(&schedule), 8);
    for (int i = 0; i < WORKERS; i++)
        cr_assert(ct_ps_schedule_begin(&schedule, i, 8));
}

Test(ps_schedule, a_gradient_of_another_step_is_none)
{
    struct ct_ps_schedule schedule = begin(0, 7);
    enum ct_ps_due due;

    cr_assert_not(ct_ps_schedule_push(&schedule, 1, 6, &due));
    cr_assert_not(ct_ps_schedule_push(&schedule, 1, 8, &due));
    cr_assert_eq(push(&schedule, 1, 7), CT_PS_NOT_DUE);
    cr_assert_not(ct_ps_schedule_push(&schedule, 1, 7, &due));
    cr_assert_not(ct_ps_schedule_push(&schedule, 1, 8, &due), "it has not begun step 8");
    cr_assert_not(ct_ps_schedule_begin(&schedule, 1, 7), "it has completed it");
}

Test(ps_schedule, a_worker_is_as_far_ahead_as_the_staleness_and_no_further)
{
    struct ct_ps_schedule schedule = begin(2, 0);

    for (uint64_t step = 0; step < 2; step++) {
        cr_assert_eq(push(&schedule, 0, step), CT_PS_ONE_DUE);
        cr_assert(ct_ps_schedule_begin(&schedule, 0, step + 1));
    }
    cr_assert_eq(push(&schedule, 0, 2), CT_PS_ONE_DUE);
    cr_assert_not(ct_ps_schedule_begin(&schedule, 0, 3), "the others are at step 0");
    (void)push(&schedule, 1, 0);
    cr_assert_not(ct_ps_schedule_begin(&schedule, 0, 3), "one is still at step 0");
    (void)push(&schedule, 2, 0);
    cr_assert(ct_ps_schedule_begin(&schedule, 0, 3));
    cr_assert_eq(ct_ps_schedule_step(&schedule), 3, "what worker 0 has completed");
}

Test(ps_schedule, who_is_lost_holds_up_nobody_but_those_in_step)
{
    for (uint64_t staleness = 0; staleness < 2; staleness++) {
        struct ct_ps_schedule schedule = begin(staleness, 0);
        ct_ps_schedule_remove(&schedule, 2);
        (void)push(&schedule, 0, 0);
        (void)push(&schedule, 1, 0);
        cr_assert(ct_ps_schedule_begin(&schedule, 0, 1) == (staleness > 0));
        for (uint64_t step = 1; step < 9 && staleness > 0; step++) {
            cr_assert(ct_ps_schedule_begin(&schedule, 0, step) &&
                      ct_ps_schedule_begin(&schedule, 1, step));
            (void)push(&schedule, 0, step);
            (void)push(&schedule, 1, step);
        }
    }
}

Test(ps_schedule, all_leave_after_a_step_that_nobody_has_begun_to_follow)
{
    struct ct_ps_schedule schedule = begin(3, 0);

    for (uint64_t step = 0; step < 3; step++) {
        (void)push(&schedule, 0, step);
        cr_assert(ct_ps_schedule_begin(&schedule, 0, step + 1));
    }
    cr_assert_eq(schedule.leave_at, 0);
    (void)push(&schedule, 1, 0);
    ct_ps_schedule_vote_leave(&schedule);
    cr_assert_eq(schedule.leave_at, 4, "worker 0 is in step 3");
    cr_assert(ct_ps_schedule_begin(&schedule, 1, 1));
    ct_ps_schedule_vote_leave(&schedule);
    cr_assert_eq(schedule.leave_at, 4, "the first vote counts");
}
