/* Supervision: which signal goes out when. */
#include "launch/supervise.h"

#include "base/assert.h"

#include <criterion/criterion.h>

TestSuite(supervise, .timeout = 10);

static void start(struct ct_supervise *sup, uint32_t workers)
{
    ct_supervise_init(sup, 10000);
    cr_assert_eq(ct_supervise_step(sup, 0, CT_SUP_START, 0), (unsigned)CT_SUP_DO_SPAWN);
    cr_assert_eq(ct_supervise_step(sup, 0, CT_SUP_STARTED, workers), 0u);
    cr_assert_eq(sup->state, CT_SUP_RUNNING);
}

Test(supervise, a_round_is_over_when_the_last_worker_is_gone)
{
    struct ct_supervise sup;

    start(&sup, 2);
    cr_assert_eq(ct_supervise_step(&sup, 5, CT_SUP_EXIT_OK, 0), (unsigned)CT_SUP_DO_SWEEP);
    cr_assert_eq(ct_supervise_step(&sup, 5, CT_SUP_GONE, 0), 0u);
    cr_assert_eq(ct_supervise_step(&sup, 9, CT_SUP_EXIT_OK, 0), (unsigned)CT_SUP_DO_SWEEP);
    cr_assert_eq(ct_supervise_step(&sup, 9, CT_SUP_GONE, 0), (unsigned)CT_SUP_DO_FINISH);
    cr_assert_eq(sup.state, CT_SUP_DONE);
    cr_assert_eq(ct_supervise_step(&sup, 10, CT_SUP_START, 0), (unsigned)CT_SUP_DO_SPAWN);
}

Test(supervise, the_first_bad_exit_is_blamed_and_ends_the_others)
{
    struct ct_supervise sup;

    start(&sup, 3);
    cr_assert_eq(ct_supervise_step(&sup, 100, CT_SUP_EXIT_BAD, 0),
                 (unsigned)(CT_SUP_DO_SWEEP | CT_SUP_DO_BLAME | CT_SUP_DO_TERM));
    cr_assert_eq(ct_supervise_step(&sup, 101, CT_SUP_EXIT_BAD, 0), 0u, "it was our SIGTERM");
    cr_assert_eq(ct_supervise_step(&sup, 101, CT_SUP_GONE, 0), 0u);
    cr_assert_eq(ct_supervise_step(&sup, 101, CT_SUP_GONE, 0), 0u);
    cr_assert_eq(ct_supervise_step(&sup, 101, CT_SUP_GONE, 0), (unsigned)CT_SUP_DO_FINISH);
}

Test(supervise, sigkill_follows_when_the_grace_is_over)
{
    struct ct_supervise sup;

    start(&sup, 1);
    cr_assert_eq(ct_supervise_deadline(&sup), UINT64_MAX, "a running round is not timed");
    cr_assert_eq(ct_supervise_step(&sup, 50, CT_SUP_STOP, 0), (unsigned)CT_SUP_DO_TERM);
    cr_assert_eq(ct_supervise_deadline(&sup), 1050u);
    cr_assert_eq(ct_supervise_step(&sup, 1049, CT_SUP_TICK, 0), 0u);
    cr_assert_eq(ct_supervise_step(&sup, 1050, CT_SUP_TICK, 0), (unsigned)CT_SUP_DO_REPORT);
    cr_assert_eq(ct_supervise_deadline(&sup), 10050u, "it is said once");
    cr_assert_eq(ct_supervise_step(&sup, 10050, CT_SUP_TICK, 0), (unsigned)CT_SUP_DO_KILL);
    cr_assert_eq(sup.state, CT_SUP_KILLING);
    cr_assert_eq(ct_supervise_step(&sup, 10051, CT_SUP_EXIT_BAD, 0), 0u);
    cr_assert_eq(ct_supervise_step(&sup, 10051, CT_SUP_GONE, 0), (unsigned)CT_SUP_DO_FINISH);
    cr_assert_eq(ct_supervise_deadline(&sup), UINT64_MAX);
}

Test(supervise, a_process_that_survives_sigkill_is_given_up)
{
    struct ct_supervise sup;

    start(&sup, 2);
    cr_assert_eq(ct_supervise_step(&sup, 0, CT_SUP_KILL, 0), (unsigned)CT_SUP_DO_KILL);
    cr_assert_eq(ct_supervise_step(&sup, 1000, CT_SUP_TICK, 0), (unsigned)CT_SUP_DO_REPORT);
    cr_assert_eq(ct_supervise_step(&sup, CT_SUP_PATIENCE_MS, CT_SUP_TICK, 0),
                 (unsigned)(CT_SUP_DO_FORGET | CT_SUP_DO_FINISH));
    cr_assert_eq(sup.state, CT_SUP_DONE);
    cr_assert_eq(ct_supervise_step(&sup, 9000, CT_SUP_GONE, 0), 0u, "late news changes nothing");
}

Test(supervise, a_second_request_shortens_the_grace)
{
    struct ct_supervise sup;

    start(&sup, 1);
    (void)ct_supervise_step(&sup, 0, CT_SUP_STOP, 0);
    cr_assert_eq(ct_supervise_step(&sup, 10, CT_SUP_STOP, 0), 0u);
    cr_assert_eq(ct_supervise_step(&sup, 20, CT_SUP_KILL, 0), (unsigned)CT_SUP_DO_KILL);
    cr_assert_eq(ct_supervise_step(&sup, 30, CT_SUP_STOP, 0), 0u, "killing is not taken back");
    cr_assert_eq(sup.state, CT_SUP_KILLING);
}

Test(supervise, no_grace_means_sigkill_at_the_next_tick)
{
    struct ct_supervise sup;

    start(&sup, 1);
    sup.grace_ms = 0;
    (void)ct_supervise_step(&sup, 7, CT_SUP_STOP, 0);
    cr_assert_eq(ct_supervise_deadline(&sup), 7u);
    cr_assert_eq(ct_supervise_step(&sup, 7, CT_SUP_TICK, 0), (unsigned)CT_SUP_DO_KILL);
}

Test(supervise, an_endless_grace_does_not_overflow)
{
    struct ct_supervise sup;

    start(&sup, 1);
    sup.grace_ms = UINT64_MAX;
    (void)ct_supervise_step(&sup, 7, CT_SUP_STOP, 0);
    cr_assert_eq(ct_supervise_step(&sup, UINT64_MAX - 1, CT_SUP_TICK, 0),
                 (unsigned)CT_SUP_DO_REPORT);
    cr_assert_eq(sup.state, CT_SUP_STOPPING);
}

Test(supervise, a_failed_start_ends_those_that_exist)
{
    struct ct_supervise sup;

    ct_supervise_init(&sup, 10);
    (void)ct_supervise_step(&sup, 0, CT_SUP_START, 0);
    cr_assert_eq(ct_supervise_step(&sup, 0, CT_SUP_START_FAILED, 2),
                 (unsigned)(CT_SUP_DO_BLAME | CT_SUP_DO_KILL));
    cr_assert_eq(ct_supervise_step(&sup, 1, CT_SUP_GONE, 0), 0u);
    cr_assert_eq(ct_supervise_step(&sup, 1, CT_SUP_GONE, 0), (unsigned)CT_SUP_DO_FINISH);

    (void)ct_supervise_step(&sup, 2, CT_SUP_START, 0);
    cr_assert_eq(ct_supervise_step(&sup, 2, CT_SUP_START_FAILED, 0),
                 (unsigned)(CT_SUP_DO_BLAME | CT_SUP_DO_KILL | CT_SUP_DO_FINISH));
    cr_assert_eq(sup.state, CT_SUP_DONE);
}

Test(supervise, requests_without_workers_change_nothing)
{
    static const enum ct_sup_event events[] = {CT_SUP_STOP, CT_SUP_KILL, CT_SUP_TICK, CT_SUP_GONE,
                                               CT_SUP_EXIT_BAD};
    struct ct_supervise sup;

    ct_supervise_init(&sup, 10);
    for (size_t i = 0; i < CT_COUNT(events); i++) {
        cr_assert_eq(ct_supervise_step(&sup, 99, events[i], 0), 0u);
        cr_assert_eq(sup.state, CT_SUP_DONE);
        cr_assert_eq(sup.live, 0u);
    }
    cr_assert_eq(ct_supervise_deadline(&sup), UINT64_MAX);
}

Test(supervise, a_lost_worker_stops_nobody_who_can_live_on)
{
    struct ct_supervise sup;

    start(&sup, 3);
    cr_assert_eq(ct_supervise_step(&sup, 5, CT_SUP_EXIT_LOST, 0),
                 (unsigned)(CT_SUP_DO_SWEEP | CT_SUP_DO_BLAME));
    cr_assert_eq(ct_supervise_step(&sup, 5, CT_SUP_GONE, 0), 0u);
    cr_assert_eq(ct_supervise_deadline(&sup), UINT64_MAX, "the others are not hurried");
    cr_assert_eq(ct_supervise_step(&sup, 9, CT_SUP_REFILL, 0), (unsigned)CT_SUP_DO_SPAWN);
    cr_assert_eq(ct_supervise_step(&sup, 9, CT_SUP_STARTED, 3), 0u);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(ct_supervise_step(&sup, 10, CT_SUP_GONE, 0), 0u);
    cr_assert_eq(ct_supervise_step(&sup, 10, CT_SUP_GONE, 0), (unsigned)CT_SUP_DO_FINISH);
}

Test(supervise, a_loss_while_stopping_blames_nobody)
{
    struct ct_supervise sup;

    start(&sup, 2);
    cr_assert_eq(ct_supervise_step(&sup, 5, CT_SUP_STOP, 0), (unsigned)CT_SUP_DO_TERM);
    cr_assert_eq(ct_supervise_step(&sup, 6, CT_SUP_EXIT_LOST, 0), 0u);
}
