/* Two records of one job that both had rounds, and meet: the one of the lower generation gives way,
 * whichever has the higher epoch, and wherever the nodes meet. */
#include "hosts_fixture.h"

#include "rendezvous/holder/holder_state.h"

#include "base/assert.h"

#include <criterion/criterion.h>

TestSuite(holder_meet, .init = hosts_set_up, .fini = hosts_tear_down, .timeout = 60);

static uint64_t round_of(uint32_t index)
{
    return world->list[index].round;
}

static uint64_t epoch_of(uint32_t index)
{
    return holder_epoch(&world->list[index].holder);
}

static void cut(uint32_t a, uint32_t b, bool is_cut)
{
    world->cut[a][b] = world->cut[b][a] = is_cut;
}

/* A worker of that host fails, so a round is made anew: so many times. */
static void fail(uint32_t index, int times)
{
    struct ct_wire_failure failure = {
        .rank = 0, .status = 1, .host = "", .text = "", .error_file = ""};

    for (int i = 0; i < times; i++) {
        uint64_t round = round_of(index);

        ct_member_failure(&world->list[index].member, world->now_ms, round, &failure);
        hosts_run(world, 3000);
        cr_assert_gt(round_of(index), round);
    }
}

/* Hosts 0 and 1 had one job; each goes on alone behind a cut, 1 by an operator's word.
 * Their epochs are equal. */
static void divide(void)
{
    char text[512];

    hosts_init(world, 3, 1);
    hosts_kill(world, 2);
    hosts_run(world, 8000);
    cr_assert_eq(hosts_leader(world), 0);
    cr_assert_eq(round_of(0), round_of(1));
    cut(0, 1, true);
    cut(1, 2, true);
    hosts_run(world, 10000);
    cr_assert(ct_holder_leads(&world->list[0].holder));
    world->list[1].holder.now_ms = world->now_ms;
    cr_assert_eq(holder_take_over(&world->list[1].holder, "me@here", text, sizeof text), 0);
    hosts_run(world, 5000);
    cr_assert(ct_holder_leads(&world->list[1].holder));
    cr_assert_eq(epoch_of(1), epoch_of(0));
}

/* One job is left, led by that host, and no round was counted back. */
static void unite(int leader, uint32_t count)
{
    uint64_t newest = CT_MAX(round_of(0), round_of(1));
    uint64_t epoch = CT_MAX(epoch_of(0), epoch_of(1));

    for (uint32_t i = 0; i < 3; i++)
        cut(1, i, false);
    hosts_run(world, 20000);
    cr_assert_eq(hosts_leader(world), leader, "host %d leads, not %d", hosts_leader(world), leader);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(round_of(i), round_of(0), "host %u is in another round", i);
    cr_assert_gt(round_of(0), newest);
    cr_assert_geq(epoch_of((uint32_t)leader), epoch);
}

Test(holder_meet, the_one_where_the_nodes_meet_stays_when_its_job_had_more_rounds)
{
    divide();
    fail(0, 3);
    cr_assert_gt(round_of(0), round_of(1));
    unite(0, 2);
}

Test(holder_meet, the_one_where_the_nodes_meet_gives_way_when_its_job_had_fewer_rounds)
{
    divide();
    fail(1, 3);
    cr_assert_gt(round_of(1), round_of(0));
    unite(1, 2);
}

/* Host 2 joins the record of host 0, so that it is founded anew when host 2 dies. */
static void raise_epoch_of_first(void)
{
    hosts_start(world, 2);
    hosts_run(world, 5000);
    cr_assert_eq(round_of(2), round_of(0));
    hosts_kill(world, 2);
    hosts_run(world, 5000);
    cr_assert_gt(epoch_of(0), epoch_of(1));
}

Test(holder_meet,
     one_of_more_rounds_elsewhere_raises_its_epoch_until_that_where_they_meet_gives_way)
{
    divide();
    raise_epoch_of_first();
    fail(1, 6);
    cr_assert_gt(round_of(1), round_of(0));
    unite(1, 2);
    cr_assert_gt(holder_raised_count(&world->list[1].holder), 0);
    /* The next leader has the raised epoch from the record. */
    cr_assert_eq(hosts_voters(world, 1), 3);
    uint64_t epoch = epoch_of(1), round = round_of(0);
    hosts_kill(world, 1);
    hosts_run(world, 10000);
    cr_assert_eq(hosts_leader(world), 0);
    cr_assert_gt(epoch_of(0), epoch);
    cr_assert_gt(round_of(0), round);
}

/* Of a record that was taken over: a node may have followed a later leader, who is gone. */
Test(holder_meet, who_took_a_record_over_raises_its_epoch_above_that_of_a_node_that_comes)
{
    divide();
    uint64_t followed = epoch_of(1) + (UINT64_C(3) << 32);
    cr_assert_not(holder_succeed(&world->list[1].holder, followed), "it comes again");
    hosts_run(world, 2000);
    cr_assert_gt(epoch_of(1), followed);
    cr_assert_not(holder_succeed(&world->list[0].holder, followed));
    hosts_run(world, 2000);
    cr_assert_lt(epoch_of(0), followed, "host 0 lacks nothing");
}

/* Host 1 leads the one; of the other, which is led by host 2, the host where the nodes meet is a
 * holder that only follows. */
static void divide_from_follower(void)
{
    divide();
    hosts_start(world, 2);
    hosts_run(world, 5000);
    cr_assert_eq(hosts_voters(world, 0), 5);
    ct_holder_yield(&world->list[0].holder, world->now_ms);
    hosts_run(world, 2000);
    cr_assert(ct_holder_leads(&world->list[2].holder));
    cr_assert_not(ct_holder_leads(&world->list[0].holder));
}

Test(holder_meet, one_that_follows_where_they_meet_tells_the_other_leader_who_gives_way)
{
    divide_from_follower();
    fail(2, 3);
    cr_assert_gt(round_of(0), round_of(1));
    unite(2, 3);
}

Test(holder_meet, one_that_follows_where_they_meet_brings_both_leaders_together)
{
    divide_from_follower();
    fail(1, 6);
    cr_assert_gt(round_of(1), round_of(0));
    unite(1, 3);
}

/* Hosts 1 and 2 hold the record, and do not hear each other when the leader dies: nobody leads. */
Test(holder_meet, a_founder_waits_for_those_who_hold_a_record_that_nobody_leads)
{
    hosts_init(world, 3, 1);
    hosts_run(world, 8000);
    uint64_t round = round_of(1);
    cr_assert_eq(hosts_voters(world, 0), 7);
    cut(1, 2, true);
    hosts_kill(world, 0);
    hosts_run(world, 100);
    hosts_start(world, 0);
    hosts_run(world, 5000);
    cr_assert(ct_holder_leads(&world->list[0].holder));
    cr_assert_eq(round_of(0), 0, "it has begun round %llu", (unsigned long long)round_of(0));
    cut(1, 2, false);
    hosts_run(world, 20000);
    cr_assert_geq(hosts_leader(world), 1);
    cr_assert_gt(round_of(0), round);
    cr_assert_eq(round_of(0), round_of(1));
}

/* Nodes that joined the founder obey no lower epoch than its. */
Test(holder_meet, a_founder_of_a_higher_epoch_gives_way_when_the_other_one_has_raised_its_own)
{
    hosts_init(world, 3, 1);
    hosts_run(world, 8000);
    uint64_t round = round_of(1);
    hosts_kill(world, 0);
    hosts_run(world, 5000);
    cut(0, 1, true);
    cut(0, 2, true);
    hosts_start(world, 0);
    hosts_run(world, 200);
    uint64_t above = epoch_of(1) + (UINT64_C(3) << 32);
    world->list[0].holder.now_ms = world->now_ms;
    cr_assert(holder_succeed(&world->list[0].holder, above));
    cr_assert_gt(epoch_of(0), above);
    above = epoch_of(0);
    cut(0, 1, false);
    cut(0, 2, false);
    hosts_run(world, 20000);
    cr_assert_geq(hosts_leader(world), 1);
    cr_assert_gt(epoch_of((uint32_t)hosts_leader(world)), above);
    cr_assert_gt(round_of(0), round);
    cr_assert_eq(round_of(0), round_of(1));
}

/* Its node is a member of a job founded meanwhile, whose leader tells it so. */
Test(holder_meet, who_holds_a_record_with_rounds_does_not_give_it_up_for_one_with_fewer)
{
    struct ct_wire_replica_server one = {.id = 77, .address = "10.0.0.9:1"};
    struct ct_holder *holder;
    uint64_t era;

    hosts_init(world, 3, 1);
    hosts_run(world, 8000);
    holder = &world->list[1].holder;
    era = ct_replica_era(holder->replica);
    struct ct_msg_voters other = {
        .epoch = epoch_of(0) + (UINT64_C(5) << 32), .era = era + 1, .servers = {&one, 1}};
    cr_assert_eq(ct_holder_follow(holder, world->now_ms, &other), 0);
    cr_assert_eq(ct_replica_era(holder->replica), era, "the other one has no round");
    other.generation = round_of(1) - 1;
    cr_assert_eq(ct_holder_follow(holder, world->now_ms, &other), 0);
    cr_assert_eq(ct_replica_era(holder->replica), era, "the other one has fewer rounds");
    other.generation = round_of(1);
    cr_assert_eq(ct_holder_follow(holder, world->now_ms, &other), 0);
    cr_assert_eq(ct_replica_era(holder->replica), era + 1);
}

/* Of two that held a record without a round, the one that led is dead, and the other one has not
 * heard it for a lease. Its node joins the job that is founded then, with the same epoch. */
Test(holder_meet, who_waits_for_nobody_with_an_empty_record_gives_it_up_for_the_job_of_its_node)
{
    struct ct_wire_replica_server one = {.id = 77, .address = "10.0.0.9:1"};
    struct ct_holder *holder;

    hosts_init(world, 3, 3);
    hosts_kill(world, 2);
    hosts_run(world, 3000);
    cr_assert_eq(hosts_voters(world, 0), 3);
    hosts_cut(world, 1, true);
    hosts_run(world, HOSTS_LEASE_MS + 500);
    hosts_kill(world, 0);
    hosts_cut(world, 1, false);
    hosts_run(world, 3000);
    holder = &world->list[1].holder;
    cr_assert_not(ct_holder_leads(holder));
    struct ct_msg_voters other = {.epoch = holder_epoch(holder),
                                  .era = ct_replica_era(holder->replica) + 1,
                                  .servers = {&one, 1}};
    cr_assert_eq(ct_holder_follow(holder, world->now_ms, &other), 0);
    cr_assert_eq(ct_replica_era(holder->replica), other.era);
}
