/* A holder that waits for all others asks who manages the machines whether their nodes are down.
 * Hosts in virtual time. */
#include "hosts_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(holder_nodes, .init = hosts_set_up, .fini = hosts_tear_down, .timeout = 60);

static void begin(uint32_t count)
{
    hosts_init(world, count, 1);
    hosts_run(world, 5000);
    cr_assert_eq(hosts_leader(world), 0);
}

static void answer(uint32_t index, bool down, const char *text)
{
    ct_holder_nodes_known(&world->list[index].holder, world->now_ms, down, text);
}

static bool leads(uint32_t index)
{
    return ct_holder_leads(&world->list[index].holder);
}

Test(holder_nodes, of_two_the_one_that_waits_goes_on_when_the_node_of_the_leader_is_down)
{
    struct host *left = &world->list[1];

    begin(2);
    uint64_t round = left->round;
    hosts_cut(world, 0, true);
    hosts_run(world, HOSTS_LEASE_MS - 500);
    cr_assert_eq(left->asked, 0, "not before a lease");
    hosts_run(world, 20000);
    cr_assert_gt(left->asked, 0);
    cr_assert_leq(left->asked, 5, "not more often than every 5 s");
    cr_assert_eq(left->asked_count, 1);
    cr_assert_str_eq(left->asked_host, "host0");
    answer(1, false, "Slurm does not report node host0 down (IDLE*)");
    hosts_run(world, 5000);
    cr_assert_not(leads(1));
    cr_assert_not_null(
        strstr(left->refusal, "takeover` here; Slurm does not report node host0 down (IDLE*)"),
        "%s", left->refusal);
    answer(1, true, "");
    cr_assert(leads(1));
    hosts_run(world, 10000);
    cr_assert_gt(left->round, round, "the job goes on");
}

Test(holder_nodes, an_answer_that_comes_when_the_others_are_heard_again_counts_no_more)
{
    begin(2);
    hosts_cut(world, 0, true);
    hosts_run(world, 10000);
    cr_assert_gt(world->list[1].asked, 0);
    hosts_cut(world, 0, false);
    hosts_run(world, 10000);
    uint64_t era = ct_replica_era(world->list[1].holder.replica);
    answer(1, true, "");
    cr_assert_eq(ct_replica_era(world->list[1].holder.replica), era);
    cr_assert_eq(world->list[1].holder.nodes_text[0], '\0');
}

Test(holder_nodes, who_leads_or_hears_another_asks_nobody)
{
    begin(3);
    hosts_cut(world, 2, true);
    hosts_run(world, 60000);
    cr_assert_eq(world->list[0].asked + world->list[1].asked, 0);
    cr_assert_gt(world->list[2].asked, 0, "it hears nobody");
    cr_assert_eq(world->list[2].asked_count, 2, "and asks for both");
    hosts_deinit(world);
    begin(2);
    hosts_cut(world, 1, true);
    hosts_run(world, 20000);
    cr_assert_eq(world->list[0].asked, 0, "it led, and goes on without an answer");
}
