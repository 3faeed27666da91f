/* Requests to stop: a signal is taken once it is there, and nothing else is. */
#include "cmd/ctworker/trainer/worker/stop.h"

#include <criterion/criterion.h>

TestSuite(stop, .timeout = 30);

Test(stop, a_signal_is_a_request_and_does_not_end_the_process)
{
    struct ct_stop stop;

    ct_stop_init(&stop);
    cr_assert(!ct_stop_requested(&stop, NULL));
    cr_assert_eq(raise(SIGINT), 0);
    cr_assert(ct_stop_requested(&stop, NULL));
    cr_assert_eq(stop.signal, SIGINT);
    cr_assert_eq(raise(SIGTERM), 0);
    cr_assert(ct_stop_requested(&stop, NULL));
    cr_assert_eq(stop.signal, SIGINT, "the first one counts");
    ct_stop_init(&stop);
    cr_assert(ct_stop_wait(&stop, NULL, 10000), "the second one is still there");
    cr_assert_eq(stop.signal, SIGTERM);
}

Test(stop, without_a_request_a_wait_ends_by_itself)
{
    struct ct_stop stop;

    ct_stop_init(&stop);
    cr_assert(!ct_stop_wait(&stop, NULL, 30));
}

Test(stop, only_a_peer_that_went_or_a_round_that_ended_is_secondary)
{
    cr_assert(ct_stop_is_secondary(CT_ECLOSED));
    cr_assert(ct_stop_is_secondary(CT_EREVOKED));
    cr_assert(!ct_stop_is_secondary(CT_ETIMEOUT));
    cr_assert(!ct_stop_is_secondary(CT_EMISMATCH));
    cr_assert(!ct_stop_is_secondary(0));
}
