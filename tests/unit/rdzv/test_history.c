/* A job's history: the last events by their numbers, a thinned curve, what is noticed by itself. */
#include "rendezvous/history/history.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(job_history, .timeout = 30);

static struct ct_history *history;
static uint64_t number;

static void set_up(void)
{
    history = ct_history_new(1000);
    cr_assert_not_null(history);
    number = 0;
}

static void tear_down(void)
{
    ct_history_free(history);
}

static void note(uint64_t ms, enum ct_announcement kind, const char *text)
{
    struct ct_history_event event = {.kind = kind, .generation = 1};

    (void)snprintf(event.text, sizeof event.text, "%s", text);
    ct_history_note(history, ms, &number, &event);
}

Test(job_history, the_last_events_are_kept_in_the_order_of_their_numbers, .init = set_up,
     .fini = tear_down)
{
    const struct ct_history_event *event;
    uint64_t expected;

    cr_assert_null(ct_history_next(history, 0));
    for (uint64_t i = 1; i <= 3 * CT_HISTORY_EVENTS; i++) {
        number++; /* another job's, in between */
        note(1000 + i, CT_ANNOUNCE_NODE_JOINED, "a node");
    }
    expected = 2 * (2 * CT_HISTORY_EVENTS + 1);
    for (uint64_t after = 0; (event = ct_history_next(history, after)) != NULL; expected += 2) {
        cr_assert_eq(event->number, expected);
        after = event->number;
    }
    cr_assert_eq(expected, 2 * (3 * CT_HISTORY_EVENTS + 1));
    cr_assert_eq(ct_history_next(history, 601)->number, 602);
    cr_assert_eq(history->counts[CT_ANNOUNCE_NODE_JOINED], 3 * CT_HISTORY_EVENTS);
}

Test(job_history, checkpoints_do_not_drive_out_what_matters, .init = set_up, .fini = tear_down)
{
    note(1000, CT_ANNOUNCE_NODE_LOST, "node b is lost");
    for (int i = 0; i < 1000; i++)
        note(2000, CT_ANNOUNCE_CHECKPOINT, "a checkpoint");
    cr_assert_eq(ct_history_next(history, 0)->kind, CT_ANNOUNCE_NODE_LOST);
    cr_assert_eq(ct_history_next(history, 1)->number, 1001);
    cr_assert_null(ct_history_next(history, 1001));
    cr_assert_eq(history->counts[CT_ANNOUNCE_CHECKPOINT], 1000);
}

Test(job_history, the_bytes_of_a_checkpoint_count_once, .init = set_up, .fini = tear_down)
{
    ct_history_published(history, 10, 100);
    ct_history_published(history, 10, 100); /* its answer was lost, and comes again */
    ct_history_published(history, 20, 40);
    cr_assert_eq(history->published_step, 20);
    cr_assert_eq(history->published_bytes, 40);
    cr_assert_eq(history->all_bytes, 140);
}

static struct ct_history_event told(uint64_t ms, uint64_t step, double loss)
{
    const struct ct_msg_progress progress = {.step = step, .loss = loss, .samples_per_s = 9};
    struct ct_history_event event = {.generation = 1};

    ct_history_progress(history, ms, &progress, &event);
    return event;
}

Test(job_history, a_curve_of_any_length_keeps_its_ends_and_its_order, .init = set_up,
     .fini = tear_down)
{
    ct_history_phase(history, 1000, CT_RDZV_RUNNING, 0);
    for (uint64_t i = 1; i <= 100000; i++)
        (void)told(1000 + i, i, (double)i);
    cr_assert_geq(history->point_count, CT_HISTORY_POINTS / 2);
    cr_assert_leq(history->point_count, CT_HISTORY_POINTS);
    cr_assert_eq(history->points[0].step, 1);
    for (size_t i = 1; i < history->point_count; i++)
        cr_assert_eq(history->points[i].step - history->points[i - 1].step, history->stride);
    cr_assert_gt(history->points[history->point_count - 1].step, 99000);
}

Test(job_history, a_job_without_steps_and_a_loss_that_is_no_number_are_noticed_once, .init = set_up,
     .fini = tear_down)
{
    struct ct_history_event event = {.generation = 1};
    uint64_t due;

    cr_assert_eq(ct_history_deadline(history), UINT64_MAX);
    ct_history_phase(history, 1000, CT_RDZV_RUNNING, 0);
    cr_assert_eq(ct_history_deadline(history), UINT64_MAX, "the first step may take long");
    for (uint64_t i = 1; i <= 50; i++)
        cr_assert_eq(told(1000 + 5000 * i, i, 1).number, 0);
    due = ct_history_deadline(history);
    cr_assert_geq(due, 251000 + 90000, "20 times what a step takes here: %.0f ms",
                  history->pause_ms);
    ct_history_tick(history, due - 1, &event);
    cr_assert_eq(event.number, 0);
    ct_history_tick(history, due, &event);
    cr_assert_eq(event.kind, CT_ANNOUNCE_NO_STEP);
    cr_assert_not_null(strstr(event.text, ", after step 50"), "%s", event.text);
    cr_assert_eq(ct_history_deadline(history), UINT64_MAX);
    event = told(due + 5000, 51, 1);
    cr_assert_eq(event.kind, CT_ANNOUNCE_STEPS_AGAIN);
    event = told(due + 6000, 52, (double)NAN);
    cr_assert_eq(event.kind, CT_ANNOUNCE_LOSS_NOT_FINITE);
    cr_assert_eq(told(due + 7000, 53, (double)NAN).number, 0);
    cr_assert_eq(told(due + 8000, 54, 1).number, 0);
    ct_history_phase(history, due + 9000, CT_RDZV_PAUSED, 0);
    cr_assert_eq(ct_history_deadline(history), UINT64_MAX, "it is known to wait");
}

Test(job_history, a_program_that_tells_no_loss_has_none_that_is_no_number, .init = set_up,
     .fini = tear_down)
{
    ct_history_phase(history, 1000, CT_RDZV_RUNNING, 0);
    cr_assert_eq(told(2000, 1, (double)NAN).number, 0);
    cr_assert_eq(told(3000, 2, (double)NAN).number, 0);
    cr_assert_eq(told(4000, 3, (double)INFINITY).kind, CT_ANNOUNCE_LOSS_NOT_FINITE);
}

Test(job_history, step_times_are_counted_by_their_mean, .init = set_up, .fini = tear_down)
{
    uint64_t count = 0;

    ct_history_phase(history, 1000, CT_RDZV_RUNNING, 0);
    (void)told(1000, 1, 1);
    (void)told(2000, 11, 1);  /* 0.1 s each */
    (void)told(12000, 13, 1); /* 5 s each */
    for (int i = 0; i < CT_HISTORY_BUCKETS; i++)
        count += history->step_times[i];
    cr_assert_eq(count, 12);
    cr_assert_eq(history->step_times[4], 10);
    cr_assert_eq(history->step_times[8], 2);
    cr_assert_float_eq(history->step_seconds, 11, 1e-9);
}
