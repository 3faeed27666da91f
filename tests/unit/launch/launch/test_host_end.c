/* When the node that hosts the rendezvous may end. */
#include "launch/host_end.h"

#include <criterion/criterion.h>

TestSuite(host_end, .timeout = 10);

Test(host_end, a_node_that_left_stays_as_the_rendezvous_as_long_as_the_job_runs)
{
    struct ct_host_view view = {.released = true, .jobs = 1, .links = 2};

    cr_assert_eq(ct_host_next(&view), CT_HOST_STAY);
    view.waited_ms = 30ull * 24 * 3600 * 1000;
    cr_assert_eq(ct_host_next(&view), CT_HOST_STAY, "however long that takes");
    view.links = 0;
    cr_assert_eq(ct_host_next(&view), CT_HOST_STAY, "a broken connection is made anew");
}

Test(host_end, others_are_told_the_result_before_the_rendezvous_ends)
{
    struct ct_host_view view = {.links = 1, .waited_ms = CT_HOST_WAIT_MS};

    cr_assert_eq(ct_host_next(&view), CT_HOST_WAIT);
    view.released = true;
    cr_assert_eq(ct_host_next(&view), CT_HOST_WAIT, "the job is over here, too");
    view.links = 0;
    cr_assert_eq(ct_host_next(&view), CT_HOST_CLOSE);
}

Test(host_end, a_lost_node_does_not_keep_an_ended_job_up)
{
    const struct ct_host_view view = {.links = 1, .waited_ms = CT_HOST_WAIT_MS + 1};

    cr_assert_eq(ct_host_next(&view), CT_HOST_CLOSE);
}

Test(host_end, a_node_that_fails_takes_the_rendezvous_with_it)
{
    const struct ct_host_view view = {.jobs = 1, .links = 1, .waited_ms = CT_HOST_WAIT_MS + 1};

    cr_assert_eq(ct_host_next(&view), CT_HOST_CLOSE);
}

Test(host_end, nothing_is_waited_for_alone_or_in_a_hurry)
{
    cr_assert_eq(ct_host_next(&(struct ct_host_view){
                     .alone = true, .released = true, .jobs = 1, .links = 1}),
                 CT_HOST_CLOSE);
    cr_assert_eq(ct_host_next(&(struct ct_host_view){
                     .forced = true, .released = true, .jobs = 1, .links = 1}),
                 CT_HOST_CLOSE);
}

Test(host_end, nobody_waits_for_a_boundary_that_no_rendezvous_announces)
{
    cr_assert(ct_host_boundary_comes(true, true));
    cr_assert_not(ct_host_boundary_comes(false, true));
    cr_assert_not(ct_host_boundary_comes(true, false));
}
