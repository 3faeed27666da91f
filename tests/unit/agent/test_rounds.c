/* The rules of the node agent between rounds. */
#include "desk.h"

#include <criterion/criterion.h>

TestSuite(agent_rounds, .timeout = 10);

static struct desk desk;

static void programs(void)
{
    desk_open(&desk, false);
}

static void natives(void)
{
    desk_open(&desk, true);
}

Test(agent_rounds, nothing_runs_so_the_promise_is_immediate_and_reserves_a_port, .init = programs)
{
    desk_run(&desk);
}

Test(agent_rounds, workers_that_cannot_live_on_are_ended_before_the_promise, .init = programs)
{
    desk_run(&desk);
    desk_expect(desk_prepare(&desk, 2, false), "prepare g2: REVOKE g1, STOP by 15");
    cr_assert_eq(desk.core.phase, AGENT_EMPTYING);
    desk_expect(desk_left(&desk, 0), "left 0");
    desk_expect(desk_finished(&desk, false), "finished badly: OFFER, PROMISE g2 with step 0");
    desk_expect(desk_round(&desk, 2), "round g2: BEGIN g2, 0 live on");
}

Test(agent_rounds, survivors_leave_their_round_and_the_most_advanced_state_is_promised,
     .init = natives)
{
    desk_run(&desk);
    desk_expect(desk_prepare(&desk, 2, false), "prepare g2: REVOKE g1");
    cr_assert_eq(desk.core.phase, AGENT_QUIESCING);
    desk_expect(desk_ready(&desk, 0, 1, 5), "ready 0 g1");
    desk_expect(desk_ready(&desk, 1, 1, 6), "ready 1 g1: OFFER, PROMISE g2 with step 6");
    cr_assert_eq(desk.core.best.digest, 13);
    desk_expect(desk_round(&desk, 2), "round g2: BEGIN g2, 2 live on");
}

Test(agent_rounds, a_survivor_that_does_not_leave_its_round_within_the_grace_is_ended,
     .init = natives)
{
    desk_run(&desk);
    (void)desk_prepare(&desk, 2, false);
    (void)desk_ready(&desk, 0, 1, 5);
    desk_expect(desk_wait(&desk, DESK_GRACE_MS), "tick: DISMISS 1");
    desk_expect(desk_left(&desk, 1), "left 1: OFFER, PROMISE g2 with step 5");
    desk_expect(desk_round(&desk, 2), "round g2: BEGIN g2, 1 live on");
}

/* It may have sent that it is ready in the moment before; its death is nobody's failure, so a round
 * that begins with it would wait for it for ever (seed 9224 of the simulator). */
Test(agent_rounds, a_worker_that_was_given_up_is_not_counted_on_whatever_it_has_sent,
     .init = natives)
{
    desk_run(&desk);
    (void)desk_prepare(&desk, 2, false);
    (void)desk_ready(&desk, 0, 1, 5);
    (void)desk_wait(&desk, DESK_GRACE_MS);
    desk_expect(desk_ready(&desk, 1, 1, 6), "ready 1 g1");
    desk_expect(desk_left(&desk, 1), "left 1: OFFER, PROMISE g2 with step 5");
}

Test(agent_rounds, a_worker_that_is_not_able_to_live_on_is_ended_while_another_is, .init = programs)
{
    desk_run(&desk);
    desk_expect(desk_ready(&desk, 1, 0, 0), "ready 1 g0: KEEP"); /* the other one never says so */
    desk_expect(desk_prepare(&desk, 2, false), "prepare g2: REVOKE g1, DISMISS 0");
}

Test(agent_rounds, at_a_step_boundary_workers_act_on_until_they_come_to_it, .init = natives)
{
    desk_run(&desk);
    desk_expect(desk_prepare(&desk, 2, true), "prepare g2 at a step boundary: SET_BOUNDARY g2");
    cr_assert(agent_core_acts(&desk.core));
    cr_assert_eq(agent_core_deadline(&desk.core), UINT64_MAX, "nobody hurries them");
    (void)desk_ready(&desk, 0, 1, 9);
    desk_expect(desk_ready(&desk, 1, 1, 9), "ready 1 g1: OFFER, PROMISE g2 with step 9");
}

Test(agent_rounds, a_boundary_that_has_no_time_any_more_becomes_the_end_of_the_round,
     .init = natives)
{
    desk_run(&desk);
    (void)desk_prepare(&desk, 2, true);
    desk_expect(desk_prepare(&desk, 2, false), "prepare g2: REVOKE g1");
    cr_assert_eq(desk.core.phase, AGENT_QUIESCING);
    cr_assert_not(agent_core_acts(&desk.core));
}

Test(agent_rounds, a_worker_that_still_loads_has_done_nothing_and_is_not_waited_for,
     .init = natives)
{
    (void)desk_prepare(&desk, 1, false);
    (void)desk_round(&desk, 1);
    desk_expect(desk_prepare(&desk, 2, false),
                "prepare g2: REVOKE g1, OFFER, PROMISE g2 with step 0");
}

Test(agent_rounds, what_was_promised_and_lost_since_is_promised_anew, .init = natives)
{
    desk_run(&desk);
    (void)desk_prepare(&desk, 2, false);
    (void)desk_ready(&desk, 0, 1, 5);
    (void)desk_ready(&desk, 1, 1, 6);
    desk_expect(desk_left(&desk, 1), "left 1: PROMISE g2 with step 5");
    desk_expect(desk_finished(&desk, false), "finished badly: PROMISE g2 with step 0");
}

Test(agent_rounds, a_round_that_begins_while_workers_are_being_ended_waits_for_them,
     .init = natives)
{
    desk_run(&desk);
    (void)desk_prepare(&desk, 2, false);
    (void)desk_ready(&desk, 0, 1, 5);
    (void)desk_ready(&desk, 1, 1, 5);
    desk.view.stopping = true; /* since: one could not be started, say */
    desk_expect(desk_round(&desk, 2), "round g2");
    cr_assert_eq(desk.core.phase, AGENT_WAITING);
    desk_expect(desk_left(&desk, 0), "left 0");
    desk_expect(desk_finished(&desk, false), "finished badly: BEGIN g2, 0 live on");
}

Test(agent_rounds, a_round_that_was_not_promised_does_not_begin, .init = natives)
{
    desk_run(&desk);
    desk_expect(desk_round(&desk, 2), "round g2");
    cr_assert_eq(desk.core.running, 1);
}

Test(agent_rounds, without_a_next_round_survivors_wait_and_others_are_ended, .init = natives)
{
    desk_run(&desk);
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_REVOKE, .generation = 1}),
                "revoke g1: REVOKE g1");
    (void)desk_ready(&desk, 0, 1, 5);
    (void)desk_ready(&desk, 1, 1, 5);
    desk_expect(desk_prepare(&desk, 2, false),
                "prepare g2: REVOKE g1, OFFER, PROMISE g2 with step 5");
    desk_open(&desk, false);
    desk_run(&desk);
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_REVOKE, .generation = 1}),
                "revoke g1: REVOKE g1, STOP by 15");
    desk_expect(desk_finished(&desk, false), "finished badly");
    desk_expect(desk_prepare(&desk, 2, false), "prepare g2: OFFER, PROMISE g2 with step 0");
}

Test(agent_rounds, workers_that_left_their_round_and_nobody_knows_why_end_it_after_3_s,
     .init = natives)
{
    desk_run(&desk);
    desk_expect(desk_ready(&desk, 1, 1, 5), "ready 1 g1");
    desk_expect(desk_wait(&desk, 3000), "tick: BLAME_NETWORK");
    cr_assert_eq(desk.core.blamed, 1);
}

Test(agent_rounds, recovery_is_reported_when_the_last_worker_holds_its_base, .init = natives)
{
    (void)desk_prepare(&desk, 1, false);
    (void)desk_round(&desk, 1);
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_RECOVERED, .generation = 1}),
                "recovered 0 g1");
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_RECOVERED,
                                                      .local_rank = 1,
                                                      .generation = 1}),
                "recovered 1 g1: SEND_RECOVERED");
}

Test(agent_rounds, a_survivor_without_the_rounds_state_shows_that_nobody_took_a_step_in_it,
     .init = natives)
{
    desk_run(&desk);
    (void)desk_ready(&desk, 0, 1, 1);
    (void)desk_ready(&desk, 1, 1, 1);
    (void)desk_prepare(&desk, 2, false);
    cr_assert_not(desk.core.untouched);
    desk_open(&desk, true);
    desk_run(&desk);
    (void)desk_ready(&desk, 0, 1, 1);
    (void)desk_step(&desk,
                    (struct agent_event){
                        .kind = AGENT_ON_READY, .local_rank = 1, .generation = 1, .able = true});
    (void)desk_prepare(&desk, 2, false);
    cr_assert(desk.core.untouched);
}

Test(agent_rounds, workers_that_are_done_are_reported_once, .init = programs)
{
    desk_run(&desk);
    desk_expect(desk_finished(&desk, true), "finished well: SEND_DONE");
    cr_assert_eq(desk.core.finished, 1);
    cr_assert_eq(desk.core.phase, AGENT_IDLE);
    desk_expect(desk_prepare(&desk, 2, false), "prepare g2: OFFER, PROMISE g2 with step 0");
}

/* ---- failures ------------------------------------------------------------------------------- */

Test(agent_rounds, a_failure_is_noted_and_sent, .init = programs)
{
    desk_run(&desk);
    desk_expect(desk_failure(&desk, 1, 3),
                "failure 1, status 3: NOTE_FAILURE, NOTE_CASUALTY, SEND_FAILURE");
    cr_assert_not(desk.core.final);
}

Test(agent_rounds, a_native_workers_usage_error_is_final, .init = natives)
{
    desk_run(&desk);
    (void)desk_failure(&desk, 0, ct_exit_status(CT_EUSAGE));
    cr_assert(desk.core.final);
}

Test(agent_rounds, a_doubtful_failure_waits_for_the_verdict_of_all_nodes_once, .init = natives)
{
    struct agent_event doubtful = {
        .kind = AGENT_ON_FAILURE, .end = {.status = 75}, .code = CT_ETIMEOUT, .doubtful = true};

    desk_run(&desk);
    desk_expect(desk_step(&desk, doubtful),
                "failure 0, status 75: NOTE_FAILURE, NOTE_CASUALTY, INQUIRE");
    doubtful.local_rank = 1;
    desk_expect(desk_step(&desk, doubtful),
                "failure 1, status 75: NOTE_FAILURE, NOTE_CASUALTY, SEND_FAILURE");
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_INQUIRED}),
                "inquired: SEND_HELD");
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_INQUIRED}), "inquired");
}

Test(agent_rounds, a_worker_that_cannot_be_started_fails_the_round_for_good, .init = programs)
{
    desk_run(&desk);
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_START_FAILED,
                                                      .end = {.status = 127}}),
                "start failed 0, status 127: NOTE_FAILURE, SEND_FAILURE");
    cr_assert(desk.core.final);
    desk_expect(desk_finished(&desk, false), "finished badly");
    desk_expect(desk_prepare(&desk, 2, false), "prepare g2: OFFER, PROMISE g2 with step 0");
}

/* One failure at `place`, `ran_ms` after the round began; then the next round. */
static bool fails_again(uint64_t generation, uint64_t place, uint64_t step, uint64_t ran_ms)
{
    desk.view.now_ms += ran_ms;
    (void)desk_step(&desk, (struct agent_event){.kind = AGENT_ON_FAILURE,
                                                .end = {.status = 1},
                                                .place = place,
                                                .held.step = step});
    bool repeated = desk.core.repeated;
    (void)desk_prepare(&desk, generation + 1, false);
    (void)desk_finished(&desk, false);
    (void)desk_round(&desk, generation + 1);
    return repeated;
}

Test(agent_rounds, the_fourth_failure_at_one_place_without_progress_ends_the_job, .init = programs)
{
    desk.core.settings.same_failures = 3;
    desk_run(&desk);
    cr_assert_not(fails_again(1, 77, 0, 1000));
    cr_assert_not(fails_again(2, 77, 0, 1200));
    cr_assert_not(fails_again(3, 77, 0, 900));
    cr_assert(fails_again(4, 77, 0, 1000));
    cr_assert_not(desk.core.repeated, "the next round begins anew");
}

Test(agent_rounds, another_place_a_later_step_and_a_long_round_are_progress, .init = programs)
{
    desk.core.settings.same_failures = 1;
    desk_run(&desk);
    cr_assert_not(fails_again(1, 77, 0, 1000));
    cr_assert_not(fails_again(2, 78, 0, 1000));
    cr_assert_not(fails_again(3, 78, 5, 1000));
    cr_assert_not(fails_again(4, 78, 6, 1000));
    cr_assert_not(fails_again(5, 78, 6, 700000));
    cr_assert(fails_again(6, 78, 6, 1000));
    desk.core.settings.same_failures = 0;
    cr_assert_not(fails_again(7, 78, 6, 1000), "0: never");
}
