/* A node that leads the rendezvous has left the job: the lead goes to another holder before its
 * process ends, where the others can do without it. Hosts in virtual time. */
#include "hosts_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

enum { POLL_MS = 100 /* as the agent does */ };

static char why[256];

TestSuite(holder_leave, .init = hosts_set_up, .fini = hosts_tear_down, .timeout = 60);

static void begin(uint32_t count)
{
    hosts_init(world, count, 1);
    hosts_run(world, 5000);
    cr_assert_eq(hosts_leader(world), 0);
}

static enum ct_holder_duty duty(uint32_t index)
{
    return ct_holder_duty(&world->list[index].holder, world->now_ms, why, sizeof why);
}

/* The node of host 0 leaves the job; its workers have nothing to save. */
static void leave(void)
{
    ct_member_leave(&world->list[0].member, CT_RDZV_LEAVE_DRAIN);
    for (int i = 0; i < 1000 && !world->list[0].released; i++)
        hosts_run(world, 1);
    cr_assert(world->list[0].released);
}

/* What its agent does then; milliseconds until it may end. */
static uint64_t hand_over(uint64_t within_ms)
{
    uint64_t since_ms = world->now_ms;
    enum ct_holder_duty now;

    while ((now = duty(0)) != CT_HOLDER_FREE && world->now_ms < since_ms + within_ms) {
        if (now == CT_HOLDER_YIELDS)
            ct_holder_yield(&world->list[0].holder, world->now_ms);
        hosts_run(world, POLL_MS);
    }
    cr_assert_eq(now, CT_HOLDER_FREE, "it is kept: %s", why);
    return world->now_ms - since_ms;
}

static void go_on_without_the_first(uint32_t count)
{
    uint64_t round;
    int leader;

    begin(count);
    leave();
    hosts_run(world, 1000);
    round = world->list[1].round;
    uint64_t took_ms = hand_over(5000);
    cr_assert_leq(took_ms, 1000);
    leader = hosts_leader(world);
    cr_assert_gt(leader, 0, "another one leads before it ends");
    hosts_kill(world, 0);
    hosts_run(world, 20000);
    cr_assert_eq(hosts_leader(world), leader);
    cr_assert_eq(hosts_voters(world, (uint32_t)leader) & ~((1u << count) - 2), 0,
                 "it holds no more");
    for (uint32_t i = 1; i < count; i++)
        cr_assert_eq(world->list[i].round, round, "host %u is in another round", i);
}

Test(holder_leave, the_lead_of_three_goes_to_another_and_no_round_is_made)
{
    go_on_without_the_first(3);
    cr_assert_eq(ct_replica_era(world->list[1].holder.replica) >> 32, 1, "nothing was founded");
}

Test(holder_leave, the_lead_of_two_and_of_five_goes_to_another_as_well)
{
    go_on_without_the_first(2);
    hosts_deinit(world);
    go_on_without_the_first(5);
}

Test(holder_leave, a_round_that_is_being_made_is_waited_for)
{
    begin(3);
    ct_member_leave(&world->list[0].member, CT_RDZV_LEAVE_DRAIN);
    while (ct_service_is_settled(world->list[0].holder.service))
        hosts_run(world, 1);
    cr_assert_eq(duty(0), CT_HOLDER_NEEDED);
    cr_assert_str_eq(why, "a round of job job is being made");
    (void)hand_over(5000);
}

Test(holder_leave, who_holds_the_record_alone_stays_until_another_holds_it)
{
    hosts_init(world, 2, 1);
    hosts_kill(world, 1);
    hosts_run(world, 5000);
    cr_assert_eq(duty(0), CT_HOLDER_NEEDED);
    cr_assert_str_eq(why, "no other host holds the record of job job");
    hosts_start(world, 1);
    hosts_run(world, 5000);
    leave();
    (void)hand_over(5000);
    cr_assert_eq(hosts_leader(world), 1);
}

/* Without it two of three would have to hear each other, and one is silent. */
Test(holder_leave, who_is_needed_for_a_majority_stays_until_the_silent_one_is_replaced)
{
    begin(3);
    leave();
    hosts_run(world, 1000);
    hosts_cut(world, 2, true);
    hosts_run(world, 1500);
    cr_assert(ct_holder_leads(&world->list[0].holder));
    cr_assert_eq(duty(0), CT_HOLDER_NEEDED);
    cr_assert_str_eq(why, "too few of the 2 other hosts that hold the record of job job answer");
    (void)hand_over(60000);
    cr_assert_eq(hosts_voters(world, 1), 3);
    cr_assert(ct_holder_leads(&world->list[1].holder));
}

Test(holder_leave, who_lost_the_lead_stays_for_a_while_when_nobody_is_known_to_lead)
{
    begin(3);
    leave();
    hosts_cut(world, 0, true);
    hosts_run(world, 3000);
    cr_assert_not(ct_holder_leads(&world->list[0].holder));
    cr_assert_eq(duty(0), CT_HOLDER_NEEDED);
    cr_assert_str_eq(why, "no other host leads the rendezvous of job job yet");
    hosts_run(world, 2 * HOSTS_LEASE_MS + CT_HOLDER_AWAY_MS);
    cr_assert_eq(duty(0), CT_HOLDER_FREE, "the others have replaced it, if they live");
}

Test(holder_leave, who_never_led_owes_nothing)
{
    begin(3);
    cr_assert_eq(duty(1), CT_HOLDER_FREE);
    hosts_cut(world, 1, true);
    hosts_run(world, 3000);
    cr_assert_eq(duty(1), CT_HOLDER_FREE);
}
