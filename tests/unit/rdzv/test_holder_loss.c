/* What becomes of a job when a majority of those who held its record is lost. */
#include "hosts_fixture.h"

#include "rendezvous/holder/holder_state.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(holder_loss, .init = hosts_set_up, .fini = hosts_tear_down, .timeout = 60);

static void begin(uint32_t count, uint32_t lowest)
{
    hosts_init(world, count, lowest);
    hosts_run(world, 5000);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_neq(world->list[i].round, 0, "host %u is in no round", i);
}

static uint64_t round_of(uint32_t index)
{
    return world->list[index].round;
}

Test(holder_loss, the_last_of_three_goes_on_when_both_others_die_at_once)
{
    begin(3, 1);
    uint64_t round = round_of(2);
    hosts_kill(world, 0);
    hosts_kill(world, 1);
    hosts_run(world, 2000);
    cr_assert_eq(hosts_leader(world), 2);
    hosts_run(world, 10000);
    cr_assert_gt(round_of(2), round);
}

Test(holder_loss, the_leader_goes_on_when_both_others_die_at_once)
{
    begin(3, 1);
    uint64_t round = round_of(0);
    hosts_kill(world, 1);
    hosts_kill(world, 2);
    hosts_run(world, 2000);
    cr_assert_eq(hosts_leader(world), 0);
    hosts_run(world, 10000);
    cr_assert_gt(round_of(0), round);
}

Test(holder_loss, two_of_five_go_on_when_the_leader_and_two_more_die_at_once)
{
    begin(5, 2);
    uint64_t round = round_of(3);
    hosts_kill(world, 0);
    hosts_kill(world, 1);
    hosts_kill(world, 2);
    hosts_run(world, 3000);
    cr_assert_gt(hosts_leader(world), 2);
    hosts_run(world, 15000);
    cr_assert_gt(round_of(3), round);
    cr_assert_eq(round_of(3), round_of(4));
    cr_assert_eq(hosts_voters(world, 3), hosts_voters(world, 4));
}

Test(holder_loss, one_that_has_not_heard_a_leader_for_a_lease_does_not_go_on_by_itself)
{
    begin(3, 1);
    hosts_cut(world, 2, true);
    hosts_run(world, HOSTS_LEASE_MS + 500);
    hosts_kill(world, 0);
    hosts_kill(world, 1);
    hosts_cut(world, 2, false);
    hosts_run(world, 20000);
    cr_assert_eq(hosts_leader(world), -1, "it may have been replaced meanwhile");
}

/* It has not heard for a lease who led when that one died: others may have gone on. */
Test(holder_loss, of_two_the_one_that_learns_of_a_death_too_late_waits_for_one_who_starts_again)
{
    begin(2, 1);
    uint64_t round = round_of(0);
    hosts_cut(world, 1, true);
    hosts_run(world, HOSTS_LEASE_MS + 500);
    hosts_kill(world, 0);
    hosts_cut(world, 1, false);
    hosts_run(world, 10000);
    cr_assert_eq(hosts_leader(world), -1);
    cr_assert_not_null(strstr(world->list[1].refusal, "are dead"), "%s", world->list[1].refusal);
    hosts_start(world, 0);
    hosts_run(world, 30000);
    cr_assert_eq(hosts_leader(world), 0);
    cr_assert_gt(round_of(1), round);
    cr_assert_eq(round_of(0), round_of(1));
}

/* Host 4 lives and held the record, but does not hear that the leader went on alone; host 1 comes
 * back: would it hold the record now, it and host 4 could both go on when the leader dies. */
Test(holder_loss, who_went_on_alone_adds_nobody_beside_one_who_may_not_have_heard_of_it)
{
    begin(5, 1);
    cr_assert_eq(hosts_leader(world), 0);
    cr_assert_eq(hosts_voters(world, 0), 31);
    hosts_cut(world, 4, true);
    for (uint32_t i = 1; i < 4; i++)
        hosts_kill(world, i);
    hosts_run(world, 200);
    cr_assert_eq(hosts_voters(world, 0), 1, "it has gone on alone");
    hosts_start(world, 1);
    hosts_run(world, HOSTS_LEASE_MS);
    cr_assert_eq(hosts_voters(world, 0), 1);
    hosts_run(world, HOSTS_LEASE_MS);
    cr_assert_eq(hosts_voters(world, 0), 3);
}

/* Host 4 holds nothing: it was in the job, and knows who did. */
Test(holder_loss, nodes_bring_their_job_to_the_host_that_starts_again_when_all_who_held_it_are_dead)
{
    uint32_t held, left = 0;
    uint64_t round;

    begin(4, 1);
    held = hosts_voters(world, 0);
    while ((held >> left & 1) != 0)
        left++;
    cr_assert_lt(left, 4);
    round = round_of(left);
    for (uint32_t i = 0; i < 4; i++)
        if (i != left)
            hosts_kill(world, i);
    hosts_run(world, 3000);
    cr_assert_eq(hosts_leader(world), -1);
    hosts_start(world, 0);
    hosts_run(world, 20000);
    cr_assert_eq(hosts_leader(world), 0);
    cr_assert_gt(round_of(left), round);
    cr_assert_eq(round_of(0), round_of(left));
}

/* ---- an operator's word --------------------------------------------------------------------- */

static int take_over(uint32_t index, char text[512])
{
    struct ct_holder *holder = &world->list[index].holder;

    holder->now_ms = world->now_ms;
    return holder_take_over(holder, "me@here", text, 512);
}

Test(holder_loss, a_job_that_lives_is_not_taken_over)
{
    char text[512];

    begin(3, 2);
    cr_assert_eq(take_over(0, text), CT_EINUSE);
    cr_assert_eq(take_over(1, text), CT_EINUSE);
    cr_assert_str_eq(
        text, "job job lives, its rendezvous is at 10.0.0.0:1001: nothing is to be taken over");
    cr_assert_eq(hosts_leader(world), 0);
}

Test(holder_loss, of_two_the_one_that_waits_goes_on_when_an_operator_says_so)
{
    char text[512];

    begin(2, 1);
    uint64_t round = round_of(1);
    hosts_cut(world, 1, true);
    hosts_run(world, 10000);
    cr_assert_not(ct_holder_leads(&world->list[1].holder));
    cr_assert_eq(take_over(1, text), 0, "%s", text);
    cr_assert(ct_holder_leads(&world->list[1].holder));
    hosts_run(world, 15000);
    cr_assert_gt(round_of(1), round);
}

Test(holder_loss, one_that_holds_nothing_cannot_take_over)
{
    char text[512];
    uint32_t left = 0;

    begin(4, 1);
    while ((hosts_voters(world, 0) >> left & 1) != 0)
        left++;
    hosts_cut(world, left, true);
    hosts_run(world, 10000);
    cr_assert_eq(take_over(left, text), CT_ENOTFOUND);
    cr_assert_not_null(strstr(text, "does not hold the record"), "%s", text);
}

/* ---- nodes that go with the leader ---------------------------------------------------------- */

/* When host `of` is in a round without those that went, after `from_ms`; at most 20 s. */
static uint64_t next_round_after(uint32_t of, uint64_t from_ms)
{
    uint64_t round = round_of(of);

    while (round_of(of) == round && world->now_ms < from_ms + 20000)
        hosts_run(world, 10);
    return world->now_ms - from_ms;
}

Test(holder_loss, a_node_that_holds_nothing_and_dies_with_the_leader_is_missed_in_two_seconds)
{
    uint32_t left = 0;

    begin(4, 1);
    while ((hosts_voters(world, 0) >> left & 1) != 0)
        left++;
    hosts_kill(world, 0);
    hosts_kill(world, left);
    uint64_t after_ms = next_round_after(left == 3 ? 1 : 3, world->now_ms);
    cr_assert_lt(after_ms, 3000, "after %llu ms", (unsigned long long)after_ms);
}

Test(holder_loss, a_node_that_is_cut_off_with_the_leader_is_missed_soon_after_its_lease)
{
    begin(5, 2);
    hosts_cut(world, 0, true);
    hosts_cut(world, 1, true);
    uint64_t after_ms = next_round_after(4, world->now_ms);
    cr_assert_gt(after_ms, HOSTS_LEASE_MS);
    cr_assert_lt(after_ms, HOSTS_LEASE_MS + 1500, "after %llu ms", (unsigned long long)after_ms);
}

Test(holder_loss, a_holder_whose_agent_comes_late_is_no_lost_node_while_its_replica_answers)
{
    begin(5, 2);
    uint64_t round = round_of(4);
    for (uint32_t i = 1; i < 5; i++)
        world->list[i].astray = true;
    hosts_kill(world, 0);
    hosts_run(world, 100);
    int leader = hosts_leader(world);
    cr_assert_geq(leader, 1);
    uint32_t late = leader == 4 ? 3 : 4;
    for (uint32_t i = 1; i < 5; i++)
        world->list[i].astray = i == late;
    hosts_run(world, 900);
    world->list[late].astray = false;
    hosts_run(world, 3000);
    cr_assert_eq(round_of((uint32_t)leader), round + 1, "the dead one cost a round, nobody else");
    cr_assert_eq(round_of(late), round + 1);
}
