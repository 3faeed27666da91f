/* When an event is given to a hook, again, and no more. */
#include "hook/hook_queue.h"

#include "base/assert.h"

#include <criterion/criterion.h>

TestSuite(hook_queue, .timeout = 10);

enum { TIMEOUT_MS = 5000, A = 1, B = 2 };

static struct ct_hook_queue queue_of(struct ct_hook_entry *entries, size_t count, uint64_t job)
{
    struct ct_hook_queue queue;

    ct_hook_queue_init(&queue, TIMEOUT_MS);
    for (size_t i = 0; i < count; i++)
        cr_assert_null(ct_hook_put(&queue, 0, &entries[i], job));
    return queue;
}

static void expect(struct ct_hook_queue *queue, uint64_t now_ms, enum ct_hook_act act,
                   const struct ct_hook_entry *entry)
{
    struct ct_hook_task task = ct_hook_next(queue, now_ms);

    cr_assert_eq(task.act, act, "at %llu: %d", (unsigned long long)now_ms, task.act);
    cr_assert_eq(task.entry, entry);
}

Test(hook_queue, events_of_a_job_go_in_order_one_at_a_time_and_other_jobs_do_not_wait_for_them)
{
    struct ct_hook_entry a[2], b;
    struct ct_hook_queue queue = queue_of(a, 2, A);

    cr_assert_null(ct_hook_put(&queue, 0, &b, B));
    expect(&queue, 0, CT_HOOK_START, &a[0]);
    expect(&queue, 0, CT_HOOK_START, &b);
    expect(&queue, 0, CT_HOOK_NOTHING, NULL);
    cr_assert_eq(ct_hook_ended(&queue, 10, &a[0], true), CT_HOOK_TAKEN);
    expect(&queue, 10, CT_HOOK_START, &a[1]);
    cr_assert_eq(queue.count, 2);
    cr_assert_eq(ct_hook_ended(&queue, 20, &a[1], true), CT_HOOK_TAKEN);
    cr_assert_eq(ct_hook_ended(&queue, 20, &b, true), CT_HOOK_TAKEN);
    cr_assert_eq(queue.count + queue.running, 0);
    cr_assert_eq(ct_hook_deadline(&queue), UINT64_MAX);
}

Test(hook_queue, what_is_not_taken_is_tried_again_twice_as_late_each_time_and_given_up_in_the_end)
{
    struct ct_hook_entry a[2];
    struct ct_hook_queue queue = queue_of(a, 2, A);
    uint64_t now_ms = 0, wait_ms = CT_HOOK_RETRY_MS;

    for (int i = 1; i < CT_HOOK_TRIES; i++, wait_ms *= 2) {
        expect(&queue, now_ms, CT_HOOK_START, &a[0]);
        cr_assert_eq(ct_hook_ended(&queue, now_ms, &a[0], false), CT_HOOK_AGAIN);
        cr_assert_eq(ct_hook_deadline(&queue), now_ms + wait_ms);
        expect(&queue, now_ms + wait_ms - 1, CT_HOOK_NOTHING, NULL); /* nor the one behind it */
        now_ms += wait_ms;
    }
    expect(&queue, now_ms, CT_HOOK_START, &a[0]);
    cr_assert_eq(ct_hook_ended(&queue, now_ms, &a[0], false), CT_HOOK_GIVEN_UP);
    cr_assert_leq(now_ms, 16000);
    expect(&queue, now_ms, CT_HOOK_START, &a[1]);
}

Test(hook_queue, a_try_whose_time_is_over_is_killed_once_and_tried_again)
{
    struct ct_hook_entry a[1];
    struct ct_hook_queue queue = queue_of(a, 1, A);

    expect(&queue, 0, CT_HOOK_START, a);
    cr_assert_eq(ct_hook_deadline(&queue), TIMEOUT_MS);
    expect(&queue, TIMEOUT_MS - 1, CT_HOOK_NOTHING, NULL);
    expect(&queue, TIMEOUT_MS, CT_HOOK_KILL, a);
    expect(&queue, TIMEOUT_MS, CT_HOOK_NOTHING, NULL);
    cr_assert_eq(ct_hook_deadline(&queue), UINT64_MAX, "its end comes by itself");
    cr_assert_eq(ct_hook_ended(&queue, TIMEOUT_MS, a, false), CT_HOOK_AGAIN);
    expect(&queue, TIMEOUT_MS + CT_HOOK_RETRY_MS, CT_HOOK_START, a);
}

Test(hook_queue, where_too_many_wait_the_oldest_of_the_job_goes_and_never_one_that_is_being_tried)
{
    static struct ct_hook_entry many[CT_HOOK_WAIT + 1], more, other;
    struct ct_hook_queue queue = queue_of(many, 1, A);

    expect(&queue, 0, CT_HOOK_START, &many[0]);
    cr_assert_null(ct_hook_put(&queue, 0, &other, B));
    for (int i = 1; i <= CT_HOOK_WAIT; i++)
        cr_assert_null(ct_hook_put(&queue, 0, &many[i], A));
    cr_assert_eq(ct_hook_put(&queue, 0, &more, A), &many[1]);
    cr_assert_eq(queue.count, CT_HOOK_WAIT + 2);
}

Test(hook_queue, all_jobs_together_have_a_bound_and_so_have_the_tries_at_once)
{
    static struct ct_hook_entry entries[CT_HOOK_WAIT_ALL + CT_HOOK_AT_ONCE + 1];
    struct ct_hook_queue queue;
    uint64_t job = 0;

    ct_hook_queue_init(&queue, TIMEOUT_MS);
    for (; job < CT_HOOK_AT_ONCE; job++)
        cr_assert_null(ct_hook_put(&queue, 0, &entries[job], job));
    for (uint64_t i = 0; i < CT_HOOK_AT_ONCE; i++)
        expect(&queue, 0, CT_HOOK_START, &entries[i]);
    for (; job < CT_HOOK_AT_ONCE + CT_HOOK_WAIT_ALL; job++)
        cr_assert_null(ct_hook_put(&queue, 0, &entries[job], job));
    expect(&queue, 0, CT_HOOK_NOTHING, NULL);
    cr_assert_eq(ct_hook_deadline(&queue), TIMEOUT_MS, "nothing before one of those ends");
    cr_assert_eq(ct_hook_put(&queue, 0, &entries[job], job), &entries[CT_HOOK_AT_ONCE]);
    cr_assert_eq(ct_hook_ended(&queue, 1, &entries[3], true), CT_HOOK_TAKEN);
    expect(&queue, 1, CT_HOOK_START, &entries[CT_HOOK_AT_ONCE + 1]);
}

Test(hook_queue, at_the_end_what_finds_no_time_is_not_tried_again_and_what_is_left_is_dropped)
{
    struct ct_hook_entry a[3], b[1];
    struct ct_hook_queue queue = queue_of(a, 3, A);

    cr_assert_null(ct_hook_put(&queue, 0, b, B));
    ct_hook_finish(&queue, 1000);
    expect(&queue, 0, CT_HOOK_START, &a[0]);
    expect(&queue, 0, CT_HOOK_START, b);
    cr_assert_eq(ct_hook_ended(&queue, 900, &a[0], false), CT_HOOK_GIVEN_UP, "1150 is too late");
    expect(&queue, 900, CT_HOOK_START, &a[1]);
    cr_assert_eq(ct_hook_deadline(&queue), 1000);
    cr_assert_null(ct_hook_drop(&queue, 999));
    ct_hook_finish(&queue, 2000);
    expect(&queue, 1000, CT_HOOK_NOTHING, NULL);
    cr_assert_eq(ct_hook_drop(&queue, 1000), &a[1]);
    cr_assert_eq(ct_hook_drop(&queue, 1000), &a[2]);
    cr_assert_eq(ct_hook_drop(&queue, 1000), b);
    cr_assert_null(ct_hook_drop(&queue, 1000));
    cr_assert_eq(queue.count + queue.running, 0);
}
