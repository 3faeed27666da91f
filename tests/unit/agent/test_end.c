/* The rules of the node agent's end: signals, draining, stopping, publications, waiting. */
#include "desk.h"

#include "base/error.h"

#include <criterion/criterion.h>

TestSuite(agent_end, .timeout = 10);

enum { SIGUSR1_NUMBER = 10, SIGUSR2_NUMBER = 12, SIGKILL_NUMBER = 9 };

static struct desk desk;

static void programs(void)
{
    desk_open(&desk, false);
}

static void natives(void)
{
    desk_open(&desk, true);
}

static void open_elastic(void)
{
    struct agent_settings settings = {.slots = DESK_SLOTS,
                                      .native = true,
                                      .elastic = true,
                                      .grace_ms = DESK_GRACE_MS,
                                      .ends = 1 << AGENT_SIGINT | 1 << AGENT_SIGTERM};

    desk_open_with(&desk, &settings);
}

static void open_slurm(void)
{
    struct agent_settings settings = {.slots = DESK_SLOTS,
                                      .slurm = true,
                                      .grace_ms = DESK_GRACE_MS,
                                      .ends = 1 << AGENT_SIGINT | 1 << AGENT_SIGTERM,
                                      .requeues = 1 << SIGUSR2_NUMBER};

    desk_open_with(&desk, &settings);
}

static const char *over(int status, int code)
{
    return desk_step(&desk,
                     (struct agent_event){
                         .kind = AGENT_ON_OVER, .generation = 1, .status = status, .code = code});
}

static const char *happens(enum agent_event_kind kind)
{
    return desk_step(&desk, (struct agent_event){.kind = kind});
}

/* ---- the usual end -------------------------------------------------------------------------- */

Test(agent_end, a_job_that_is_over_closes_the_link_writes_files_reports_and_closes,
     .init = programs)
{
    desk_run(&desk);
    (void)desk_finished(&desk, true);
    desk_expect(over(0, 0), "over, status 0: NOTE_END, REVOKE all, STOP by 15, CLOSE_LINK");
    desk_expect(happens(AGENT_ON_UNLINKED), "unlinked: FLUSH");
    desk_expect(happens(AGENT_ON_FLUSHED), "flushed: REPORT, status 0, CLOSE");
    cr_assert_eq(desk.core.life, AGENT_CLOSED);
}

Test(agent_end, a_job_that_ended_elsewhere_waits_for_the_workers_here, .init = programs)
{
    desk_run(&desk);
    (void)over(3, CT_EWORKER);
    desk_expect(happens(AGENT_ON_UNLINKED), "unlinked");
    desk_expect(desk_finished(&desk, false), "finished badly: FLUSH");
    desk_expect(happens(AGENT_ON_FLUSHED), "flushed: REPORT, status 3, CLOSE");
}

Test(agent_end, a_node_without_a_way_on_ends_with_the_errors_status, .init = programs)
{
    desk_expect(
        desk_step(&desk, (struct agent_event){.kind = AGENT_ON_FAILED, .code = CT_EUNAVAILABLE}),
        "failed: NOTE_END, REVOKE all, STOP by 15, CLOSE_LINK");
    (void)happens(AGENT_ON_UNLINKED);
    (void)happens(AGENT_ON_FLUSHED);
    cr_assert_eq(desk.core.status, ct_exit_status(CT_EUNAVAILABLE));
}

Test(agent_end, what_comes_after_the_outcome_changes_nothing, .init = programs)
{
    desk_run(&desk);
    (void)over(0, 0);
    desk_expect(desk_prepare(&desk, 2, false), "prepare g2");
    desk_expect(desk_failure(&desk, 0, 1), "failure 0, status 1");
    desk_expect(over(5, CT_EWORKER), "over, status 5");
    cr_assert_eq(desk.core.status, 0);
}

/* ---- signals -------------------------------------------------------------------------------- */

Test(agent_end, the_first_signal_stops_the_job_the_second_kills_what_is_left, .init = programs)
{
    desk_run(&desk);
    desk_expect(desk_signal(&desk, AGENT_SIGINT), "signal 2: LEAVE, STOP by 2");
    cr_assert_eq(desk.core.leave, CT_RDZV_LEAVE_STOP);
    cr_assert_eq(desk.core.life, AGENT_STOPPING);
    desk_expect(desk_signal(&desk, AGENT_SIGINT), "signal 2: KILL");
    desk_expect(desk_finished(&desk, false), "finished badly");
    desk_expect(desk_wait(&desk, 0),
                "tick: NOTE_END, STOP by 2, CLOSE_LINK"); /* forced: no answer is awaited */
    cr_assert_eq(desk.core.status, 130);
}

Test(agent_end, native_workers_are_told_to_stop_by_sigterm, .init = natives)
{
    desk_run(&desk);
    desk_expect(desk_signal(&desk, AGENT_SIGINT), "signal 2: LEAVE, STOP by 15");
}

Test(agent_end, a_stop_that_the_rendezvous_does_not_answer_ends_500_ms_after_the_workers,
     .init = programs)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    (void)desk_finished(&desk, false);
    desk_expect(desk_wait(&desk, 500), "tick: NOTE_END, STOP by 15, CLOSE_LINK");
    cr_assert_eq(desk.core.status, 143);
}

Test(agent_end, the_round_of_stopping_workers_is_over_after_half_the_grace, .init = natives)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    desk_expect(desk_wait(&desk, DESK_GRACE_MS / 2), "tick: REVOKE all");
}

Test(agent_end, the_round_of_stopping_workers_is_over_soon_after_one_has_left, .init = natives)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    desk_expect(desk_left(&desk, 1), "left 1");
    desk_expect(desk_wait(&desk, 200), "tick: REVOKE all");
}

Test(agent_end, a_signal_that_means_something_to_workers_is_passed_on, .init = programs)
{
    desk_run(&desk);
    desk_expect(desk_signal(&desk, SIGUSR1_NUMBER), "signal 10: FORWARD");
    cr_assert_eq(desk.core.forwarded, 1u << SIGUSR1_NUMBER);
    cr_assert_eq(desk.core.life, AGENT_LIVE);
}

Test(agent_end, a_signal_that_requeues_stops_the_job_for_later_once, .init = programs)
{
    desk_run(&desk);
    desk_expect(desk_signal(&desk, SIGUSR2_NUMBER), "signal 12: LEAVE, STOP by 12");
    cr_assert_eq(desk.core.leave, CT_RDZV_LEAVE_REQUEUE);
    desk_expect(desk_signal(&desk, SIGUSR2_NUMBER), "signal 12");
    (void)desk_finished(&desk, false);
    (void)desk_wait(&desk, 500);
    cr_assert_eq(desk.core.status, ct_exit_status(CT_EREQUEUE));
}

Test(agent_end, under_slurm_a_signal_takes_effect_after_200_ms, .init = open_slurm)
{
    desk_run(&desk);
    desk_expect(desk_signal(&desk, AGENT_SIGTERM), "signal 15");
    desk_expect(desk_wait(&desk, 200), "tick: LEAVE, STOP by 15");
}

Test(agent_end, under_slurm_a_worker_that_a_held_signal_ended_has_not_failed, .init = open_slurm)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_FAILURE,
                                                      .end = {.signal = AGENT_SIGTERM}}),
                "failure 0, status 143: LEAVE, STOP by 15");
    cr_assert_eq(desk.core.unstopped, 0);
}

Test(agent_end, under_slurm_a_lost_node_is_worth_another_try, .init = open_slurm)
{
    desk_run(&desk);
    (void)over(79, CT_ENODE_LOST);
    cr_assert_eq(desk.core.status, ct_exit_status(CT_EREQUEUE));
}

Test(agent_end, a_worker_that_wrote_to_a_broken_pipe_of_ours_stops_the_job, .init = programs)
{
    const struct agent_event broken = {.kind = AGENT_ON_FAILURE, .end = {.signal = AGENT_SIGPIPE}};

    desk_run(&desk);
    desk.view.pipe_broken = true;
    desk_expect(desk_step(&desk, broken), "failure 0, status 141: LEAVE, STOP by 13");
    desk_open(&desk, false);
    desk_run(&desk); /* another pipe's end: a failure like others */
    desk_expect(desk_step(&desk, broken),
                "failure 0, status 141: NOTE_FAILURE, NOTE_CASUALTY, SEND_FAILURE");
}

/* ---- workers that do not stop as they are told ---------------------------------------------- */

Test(agent_end, a_worker_that_fails_while_it_is_being_stopped_gives_its_status, .init = programs)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_CASUALTY,
                                                      .local_rank = 1,
                                                      .end = {.status = 9}}),
                "casualty 1, status 9: NOTE_CASUALTY, NOTE_UNSTOPPED");
    desk_expect(
        desk_step(&desk, (struct agent_event){.kind = AGENT_ON_CASUALTY, .end = {.status = 8}}),
        "casualty 0, status 8: NOTE_CASUALTY");
    (void)desk_finished(&desk, false);
    (void)desk_wait(&desk, 500);
    cr_assert_eq(desk.core.status, 9);
    cr_assert_eq(desk.core.unstopped, 2);
}

Test(agent_end, a_worker_that_ends_by_the_signal_or_by_our_sigkill_has_done_as_told,
     .init = programs)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_CASUALTY,
                                                      .end = {.signal = AGENT_SIGTERM}}),
                "casualty 0, status 143: NOTE_CASUALTY");
    desk_expect(desk_step(&desk, (struct agent_event){.kind = AGENT_ON_CASUALTY,
                                                      .local_rank = 1,
                                                      .end = {.signal = SIGKILL_NUMBER},
                                                      .killed = true}),
                "casualty 1, status 137: NOTE_CASUALTY");
    cr_assert_eq(desk.core.killed, 1);
    cr_assert_eq(desk.core.unstopped, 0);
}

/* ---- leaving -------------------------------------------------------------------------------- */

Test(agent_end, a_node_of_an_elastic_job_leaves_at_the_next_step_boundary, .init = open_elastic)
{
    desk_run(&desk);
    desk_expect(desk_signal(&desk, AGENT_SIGTERM), "signal 15: LEAVE");
    cr_assert_eq(desk.core.leave, CT_RDZV_LEAVE_DRAIN);
    cr_assert_eq(desk.core.life, AGENT_DRAINING);
    (void)desk_prepare(&desk, 2, true);
    (void)desk_ready(&desk, 0, 1, 4);
    desk_expect(desk_ready(&desk, 1, 1, 4), "ready 1 g1: OFFER, PROMISE g2 with step 4");
    desk_expect(happens(AGENT_ON_RELEASED),
                "released: NOTE_END, SEND_STOP, STOP by 15, CLOSE_LINK");
}

Test(agent_end, ctrl_c_stops_an_elastic_job_as_any_other, .init = open_elastic)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGINT);
    cr_assert_eq(desk.core.leave, CT_RDZV_LEAVE_STOP);
}

Test(agent_end, a_step_boundary_that_does_not_come_within_the_grace_is_given_up,
     .init = open_elastic)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    desk_expect(desk_wait(&desk, DESK_GRACE_MS), "tick: REVOKE all, STOP by 15, REPORT_DRAIN_LATE");
    cr_assert_eq(desk.core.life, AGENT_STOPPING);
}

Test(agent_end, without_the_rendezvous_no_boundary_comes, .init = open_elastic)
{
    desk_run(&desk);
    (void)desk_step(&desk, (struct agent_event){.kind = AGENT_ON_LINK, .up = false});
    desk_expect(desk_signal(&desk, AGENT_SIGTERM), "signal 15: LEAVE, STOP by 15");
}

Test(agent_end, an_operators_drain_leaves_and_a_second_one_changes_nothing, .init = natives)
{
    desk_run(&desk);
    desk_expect(happens(AGENT_ON_DRAIN), "drain: LEAVE");
    cr_assert_eq(desk.core.leave, CT_RDZV_LEAVE_DRAIN, "for a daemon that takes over meanwhile");
    cr_assert_eq(desk.core.life, AGENT_DRAINING);
    uint64_t due_ms = agent_core_deadline(&desk.core);
    desk.view.now_ms += 5;
    desk_expect(happens(AGENT_ON_DRAIN), "drain");
    cr_assert_eq(agent_core_deadline(&desk.core), due_ms);
}

Test(agent_end, workers_that_cannot_come_to_a_boundary_are_stopped_at_once, .init = programs)
{
    desk_run(&desk);
    desk_expect(happens(AGENT_ON_DRAIN), "drain: LEAVE, STOP by 15");
}

Test(agent_end, a_stopped_node_begins_no_round, .init = programs)
{
    desk_run(&desk);
    (void)desk_prepare(&desk, 2, false);
    (void)desk_finished(&desk, false);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    desk_expect(desk_round(&desk, 2), "round g2");
}

/* ---- the rendezvous that is hosted here ----------------------------------------------------- */

static void end_as_host(void)
{
    (void)happens(AGENT_ON_UNLINKED);
    if (desk.view.running)
        (void)desk_finished(&desk, false);
}

Test(agent_end, others_have_2_s_to_leave_the_rendezvous_that_is_here, .init = programs)
{
    desk_run(&desk);
    (void)desk_finished(&desk, true);
    desk.view.hosts = true;
    desk.view.links = 1;
    (void)over(0, 0);
    end_as_host();
    desk_expect(happens(AGENT_ON_FLUSHED), "flushed: REPORT, status 0, REPORT_WAITS");
    desk_expect(desk_wait(&desk, 5), "tick: REPORT_WAITS");
    desk.view.links = 0;
    desk_expect(desk_wait(&desk, 5), "tick: STOP_SERVER");
    desk_expect(happens(AGENT_ON_SERVER_STOPPED), "server stopped: CLOSE");
}

Test(agent_end, a_lost_node_that_never_leaves_is_not_waited_for_longer, .init = programs)
{
    desk_run(&desk);
    (void)desk_finished(&desk, true);
    desk.view.hosts = true;
    desk.view.links = 1;
    (void)over(0, 0);
    end_as_host();
    (void)happens(AGENT_ON_FLUSHED);
    desk.view.now_ms += 2001;
    desk_expect(happens(AGENT_ON_TICK), "tick: STOP_SERVER");
}

Test(agent_end, a_released_host_stays_until_the_job_is_over_and_a_signal_warns_first,
     .init = open_elastic)
{
    desk_run(&desk);
    desk.view.hosts = true;
    desk.view.jobs = 1;
    (void)happens(AGENT_ON_DRAIN);
    (void)happens(AGENT_ON_RELEASED);
    end_as_host();
    desk_expect(happens(AGENT_ON_FLUSHED), "flushed: REPORT, status 0");
    desk_expect(desk_wait(&desk, 100), "tick");
    desk.view.now_ms += 900;
    desk_expect(happens(AGENT_ON_TICK), "tick: REPORT_STAYS");
    desk_expect(desk_wait(&desk, 100), "tick");
    desk_expect(desk_signal(&desk, AGENT_SIGTERM), "signal 15: REPORT_NEEDED");
    cr_assert_eq(desk.core.life, AGENT_HOSTING);
    desk_expect(desk_signal(&desk, AGENT_SIGTERM), "signal 15: KILL, STOP_SERVER");
}

Test(agent_end, a_released_host_asks_another_to_serve_and_ends_when_one_does, .init = open_elastic)
{
    desk_run(&desk);
    desk.view.hosts = true;
    desk.view.jobs = 1;
    (void)happens(AGENT_ON_DRAIN);
    (void)happens(AGENT_ON_RELEASED);
    end_as_host();
    desk_expect(happens(AGENT_ON_FLUSHED), "flushed: REPORT, status 0");
    desk.view.can_yield = true;
    desk_expect(desk_wait(&desk, 100), "tick: YIELD");
    desk.view.can_yield = false;
    desk.view.jobs = 0;
    desk.view.unserved = true;
    desk_expect(desk_wait(&desk, 100), "tick");
    cr_assert_eq(desk.core.life, AGENT_HOSTING, "nobody serves the job yet");
    desk.view.unserved = false;
    desk_expect(desk_wait(&desk, 100), "tick: STOP_SERVER");
    desk_expect(happens(AGENT_ON_SERVER_STOPPED), "server stopped: CLOSE");
}

/* ---- publications --------------------------------------------------------------------------- */

static const char *publish(uint64_t step)
{
    return desk_step(
        &desk, (struct agent_event){
                   .kind = AGENT_ON_PUBLISH, .local_rank = 1, .generation = 1, .held.step = step});
}

static const char *published(uint64_t step, int code)
{
    return desk_step(&desk, (struct agent_event){.kind = AGENT_ON_PUBLISHED,
                                                 .generation = 1,
                                                 .held.step = step,
                                                 .code = code,
                                                 .text = ""});
}

Test(agent_end, a_publication_is_asked_for_and_answered, .init = natives)
{
    desk_run(&desk);
    desk_expect(publish(7), "publish: PUBLISH");
    desk_expect(published(7, 0), "published: ANSWER");
    cr_assert_eq(desk.core.answer, 0);
    cr_assert_eq(desk.core.publication.local_rank, 1);
    desk_expect(published(7, 0), "published");
}

Test(agent_end, the_answer_to_an_older_publication_sends_the_one_that_waits, .init = natives)
{
    desk_run(&desk);
    (void)publish(7);
    (void)publish(8);
    desk_expect(published(7, 0), "published: PUBLISH");
    desk_expect(published(8, CT_EFENCED), "published: ANSWER");
    cr_assert_eq(desk.core.answer, CT_EFENCED);
}

Test(agent_end, a_publication_of_a_stopping_node_is_answered_by_the_jobs_end, .init = natives)
{
    desk_run(&desk);
    (void)desk_signal(&desk, AGENT_SIGTERM);
    desk_expect(publish(7), "publish");
    desk_expect(published(7, CT_EFENCED), "published");
    desk_expect(over(0, CT_ECLOSED), "over, status 0: NOTE_END, STOP by 15, ANSWER, CLOSE_LINK");
    cr_assert_eq(desk.core.answer, 0, "nothing can contradict the last round");
}

Test(agent_end, a_publication_after_the_end_of_another_round_does_not_count, .init = natives)
{
    desk_run(&desk);
    (void)publish(7);
    (void)desk_step(&desk, (struct agent_event){.kind = AGENT_ON_OVER, .generation = 2});
    cr_assert_eq(desk.core.answer, CT_EFENCED);
    desk_open(&desk, true);
    desk_run(&desk);
    (void)publish(7);
    (void)desk_step(&desk, (struct agent_event){.kind = AGENT_ON_FAILED, .code = CT_EAUTH});
    cr_assert_eq(desk.core.answer, CT_ECLOSED);
}
