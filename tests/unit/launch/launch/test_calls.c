/* Store requests on their way. */
#include "launch/calls.h"

#include "base/error.h"

#include <criterion/criterion.h>

TestSuite(calls, .timeout = 10);

static uint64_t add(struct ct_calls *calls, uint32_t local_rank, uint64_t request)
{
    uint64_t number = UINT64_MAX;

    cr_assert_eq(ct_calls_add(calls, &(struct ct_call){local_rank, request, 3}, &number), 0);
    return number;
}

Test(calls, an_answer_finds_its_asker_once)
{
    struct ct_calls calls;
    struct ct_call call;

    ct_calls_init(&calls);
    uint64_t a = add(&calls, 0, 7), b = add(&calls, 1, 7);
    cr_assert_neq(a, b);
    cr_assert(ct_calls_remove(&calls, b, &call));
    cr_assert(call.local_rank == 1 && call.request == 7 && call.generation == 3);
    cr_assert_not(ct_calls_remove(&calls, b, &call), "answered twice");
    cr_assert_not(ct_calls_remove(&calls, 99, &call));
    cr_assert_not(ct_calls_remove(&calls, UINT64_MAX, &call));
    cr_assert(ct_calls_remove(&calls, a, &call));
    cr_assert_eq(call.local_rank, 0u);
    ct_calls_deinit(&calls);
}

Test(calls, places_of_answered_requests_are_used_again)
{
    struct ct_calls calls;
    struct ct_call call;
    uint64_t before = 0;

    ct_calls_init(&calls);
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t number = add(&calls, 5, i);

        if (i > 0) {
            cr_assert(ct_calls_remove(&calls, before, &call));
            cr_assert_eq(call.request, i - 1);
        }
        before = number;
    }
    cr_assert_leq(calls.used, 2u);
    ct_calls_deinit(&calls);
}

/* A request is given up when its round ends; the rendezvous answers it all the same, be it when a
 * request of the next round is on its way. */
Test(calls, a_late_answer_to_what_was_given_up_is_not_taken_for_another)
{
    struct ct_calls calls;
    struct ct_call call;

    ct_calls_init(&calls);
    uint64_t given_up = add(&calls, 0, 7);
    cr_assert(ct_calls_remove(&calls, given_up, &call));
    uint64_t later = add(&calls, 0, 8);
    cr_assert_not(ct_calls_remove(&calls, given_up, &call));
    cr_assert(ct_calls_remove(&calls, later, &call));
    cr_assert_eq(call.request, 8u);
    ct_calls_deinit(&calls);
}

Test(calls, too_many_open_requests_are_refused)
{
    struct ct_calls calls;
    struct ct_call call;
    uint64_t number, one = 0;

    ct_calls_init(&calls);
    for (uint32_t i = 0; i < CT_CALLS_MAX; i++) {
        number = add(&calls, i, i);
        one = i == 4711 ? number : one;
    }
    cr_assert_eq(ct_calls_add(&calls, &(struct ct_call){0, 0, 0}, &number), CT_ELIMIT);
    cr_assert(ct_calls_remove(&calls, one, &call));
    cr_assert_eq(call.local_rank, 4711u);
    (void)add(&calls, 0, 0);
    cr_assert_eq(ct_calls_add(&calls, &(struct ct_call){0, 0, 0}, &number), CT_ELIMIT);
    ct_calls_deinit(&calls);
}
