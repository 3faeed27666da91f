/* Who holds the record of a job, who leads, and who is told: rules of the holder, on hosts in
 * virtual time. */
#include "hosts_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(holder, .init = hosts_set_up, .fini = hosts_tear_down, .timeout = 60);

/* `count` hosts in a round, with as many voters as they should be. */
static void begin(uint32_t count, uint32_t lowest)
{
    hosts_init(world, count, lowest);
    hosts_run(world, 5000);
    cr_assert_eq(hosts_leader(world), 0);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_neq(world->list[i].round, 0, "host %u is in no round", i);
}

static uint64_t era_of(uint32_t index)
{
    return ct_replica_era(world->list[index].holder.replica) >> 32;
}

static bool is_in_round(uint32_t index, uint64_t after)
{
    return world->list[index].round > after;
}

Test(holder, a_founder_leads_alone_and_its_members_become_voters)
{
    begin(2, 2);
    cr_assert_eq(hosts_voters(world, 0), 3);
    cr_assert_eq(hosts_voters(world, 1), 3);
}

Test(holder, five_hosts_have_five_voters_and_four_have_three)
{
    begin(5, 2);
    cr_assert_eq(hosts_voters(world, 0), 31);
    hosts_deinit(world);
    begin(4, 2);
    cr_assert_eq(__builtin_popcount(hosts_voters(world, 0)), 3);
}

/* As the agent of `member` would at another holder's. */
static void speak_to(uint32_t index, struct host *member)
{
    struct host *to = &world->list[index];
    const struct ct_message hello = {.type = CT_MSG_HELLO,
                                     .hello = {.protocol = CT_WIRE_PROTOCOL,
                                               .job = "job",
                                               .host = member->name,
                                               .incarnation = member->id,
                                               .role = "agent"}};
    struct conn *conn = &world->conns[world->conn_count++];

    *conn = (struct conn){.from = member,
                          .to = to,
                          .from_life = member->life,
                          .to_life = to->life,
                          .open = true,
                          .answered = true};
    cr_assert(ct_holder_opened(&to->holder, world->now_ms, &conn->holder, conn));
    member->agent = conn;
    ct_holder_message(&to->holder, world->now_ms, &conn->holder, &hello);
    hosts_run(world, 1);
}

Test(holder, a_member_that_speaks_to_a_follower_is_told_who_leads)
{
    struct host *member;
    uint32_t told;

    begin(3, 2);
    member = &world->list[2];
    told = member->told_count;
    cr_assert_not(ct_holder_leads(&world->list[1].holder));
    speak_to(1, member);
    cr_assert_eq(member->told_count, told + 1);
    cr_assert_str_eq(member->told, world->list[0].address, "the leader comes first");
    cr_assert_eq(member->told_epoch, 0, "who says so does not lead");
    cr_assert_str_eq(member->refusal,
                     "the rendezvous of job job is at 10.0.0.0:1001, not at host host1");
}

/* Of the hosts beside the leader: one that votes and one that does not, the last of each. */
static void find_roles(uint32_t *ret_voter, uint32_t *ret_spare)
{
    for (uint32_t i = 1; i < world->count; i++)
        *((hosts_voters(world, 0) >> i & 1) != 0 ? ret_voter : ret_spare) = i;
}

/* Those that it knew by its own record may be dead. */
Test(holder, one_that_was_removed_while_it_was_cut_off_names_those_who_hold_the_record_now)
{
    uint32_t removed = 0, spare = 0;

    begin(4, 2);
    find_roles(&removed, &spare);
    struct host *host = &world->list[removed];
    hosts_cut(world, removed, true);
    hosts_run(world, 5000);
    struct ct_wire_replica_server now = {.id = ct_id_fold(world->list[spare].id),
                                         .address = world->list[spare].address};
    const struct ct_msg_voters voters = {.epoch = UINT64_C(1) << 32 | 9,
                                         .era = ct_replica_era(host->holder.replica),
                                         .servers = {&now, 1}};
    cr_assert_eq(ct_holder_follow(&host->holder, world->now_ms, &voters), 0);
    speak_to(removed, host);
    cr_assert_str_eq(host->told, world->list[spare].address);
    cr_assert_not_null(strstr(host->refusal, "was cut off from it"), "%s", host->refusal);
}

/* It would go on with what it holds when this one dies. */
Test(holder, of_two_none_is_replaced_because_its_node_is_away)
{
    begin(2, 1);
    uint64_t told = world->list[1].told_epoch;
    for (int i = 0; i < 150; i++) { /* its agent comes no more, its replica is heard */
        struct ct_holder_conn *conn = world->list[0].holder.conns;

        for (; conn != NULL; conn = conn->next)
            conn->offers = false;
        hosts_run(world, 100);
        cr_assert_eq(hosts_voters(world, 0), 3);
    }
    cr_assert_eq(world->list[1].told_epoch, told, "nothing has changed");
    cr_assert_eq(hosts_leader(world), 0);
}

Test(holder, a_survivor_whose_others_are_all_proven_dead_founds_anew)
{
    begin(2, 1);
    uint64_t round = world->list[1].round;
    hosts_kill(world, 0);
    hosts_run(world, 1500);
    cr_assert_eq(hosts_leader(world), 1, "at once, not after a lease");
    cr_assert_eq(era_of(1), 2);
    hosts_run(world, 10000);
    cr_assert(is_in_round(1, round), "and the job goes on");
}

Test(holder, one_of_three_that_dies_is_no_reason_to_found_anew)
{
    begin(3, 1);
    hosts_kill(world, 0);
    hosts_run(world, 5000);
    cr_assert_gt(hosts_leader(world), 0);
    cr_assert_eq(era_of(1), 1);
    cr_assert_eq(era_of(2), 1);
}

Test(holder, of_two_the_one_that_led_goes_on_after_a_lease_of_silence_the_other_never)
{
    begin(2, 1);
    hosts_cut(world, 1, true);
    hosts_run(world, HOSTS_LEASE_MS - 500);
    cr_assert_eq(era_of(0), 1, "not before the lease is over");
    hosts_run(world, 1500);
    cr_assert(ct_holder_leads(&world->list[0].holder));
    cr_assert_eq(era_of(0), 2);
    hosts_run(world, 60000);
    cr_assert_not(ct_holder_leads(&world->list[1].holder));
    cr_assert_eq(era_of(1), 1);
}

Test(holder, a_timer_that_is_late_judges_nobody)
{
    begin(2, 1);
    hosts_freeze(world, 0, 3 * HOSTS_LEASE_MS);
    hosts_cut(world, 1, true);
    hosts_run(world, 3 * HOSTS_LEASE_MS + 1000);
    cr_assert_eq(era_of(0), 1, "the other one was silent for no lease of its waking time");
    hosts_run(world, HOSTS_LEASE_MS + 500);
    cr_assert_eq(era_of(0), 2);
}

Test(holder, a_founder_of_a_younger_record_joins_the_one_that_lives)
{
    begin(2, 1);
    hosts_kill(world, 0);
    hosts_run(world, 5000);
    cr_assert_eq(hosts_leader(world), 1);
    hosts_start(world, 0);
    cr_assert(ct_holder_leads(&world->list[0].holder), "it knows of no other");
    hosts_run(world, 10000);
    cr_assert_eq(hosts_leader(world), 1);
    cr_assert_eq(hosts_voters(world, 1), 3);
    cr_assert_eq(world->list[0].round, world->list[1].round);
    cr_assert_eq(ct_replica_era(world->list[0].holder.replica),
                 ct_replica_era(world->list[1].holder.replica));
}

Test(holder, a_voter_that_is_away_for_two_leases_and_five_seconds_is_replaced)
{
    uint32_t away = 0, spare = 0;

    begin(4, 2);
    find_roles(&away, &spare);
    hosts_cut(world, away, true);
    hosts_run(world, HOSTS_USER_TIMEOUT_MS); /* its connection ends */
    hosts_run(world, 2 * HOSTS_LEASE_MS + CT_HOLDER_AWAY_MS - 1000);
    cr_assert(hosts_voters(world, 0) >> away & 1, "not yet");
    hosts_run(world, 2000);
    cr_assert_not(hosts_voters(world, 0) >> away & 1);
    cr_assert(hosts_voters(world, 0) >> spare & 1);
    cr_assert_eq(hosts_leader(world), 0);
}

Test(holder, a_voter_that_is_proven_dead_is_replaced_at_once)
{
    begin(4, 2);
    uint32_t dead = (hosts_voters(world, 0) >> 1 & 1) != 0 ? 1 : 2;
    hosts_kill(world, dead);
    hosts_run(world, 2000);
    cr_assert_eq(__builtin_popcount(hosts_voters(world, 0)), 3);
    cr_assert_eq(hosts_voters(world, 0) >> 31, 0);
}

Test(holder, a_host_that_waited_to_hold_a_record_that_has_ended_founds_one_at_the_endpoint)
{
    begin(2, 1);
    hosts_kill(world, 0);
    hosts_run(world, 5000);
    hosts_start(world, 0);
    while (ct_holder_leads(&world->list[0].holder))
        hosts_run(world, 1);
    hosts_kill(world, 1);
    hosts_run(world, 5000);
    cr_assert_eq(hosts_leader(world), 0);
    cr_assert_gt(era_of(0), 2);
}

/* Its agent's words about the founded record arrive when the host has joined the one that lives. */
Test(holder, a_host_that_starts_again_at_once_joins_the_one_that_lives)
{
    for (uint32_t after_ms = 0; after_ms < 60; after_ms++) {
        begin(2, 2);
        hosts_kill(world, 0);
        hosts_run(world, after_ms);
        hosts_start(world, 0);
        hosts_run(world, 10000);
        cr_assert_geq(hosts_leader(world), 0, "after %u ms", after_ms);
        cr_assert_neq(world->list[0].round, 0, "after %u ms", after_ms);
        cr_assert_eq(world->list[0].round, world->list[1].round, "after %u ms", after_ms);
        hosts_deinit(world);
    }
    begin(1, 1);
}

Test(holder, a_late_word_of_an_older_record_takes_no_holder_back)
{
    struct ct_holder *holder;
    uint64_t era;

    begin(2, 1);
    hosts_kill(world, 0);
    hosts_run(world, 5000);
    hosts_start(world, 0);
    holder = &world->list[0].holder;
    era = ct_replica_era(holder->replica);
    struct ct_wire_replica_server self = {.id = holder->id, .address = holder->address};
    const struct ct_msg_voters founded = {
        .epoch = UINT64_C(1) << 32 | 1, .era = era, .servers = {&self, 1}};
    hosts_run(world, 5000);
    cr_assert_neq(ct_replica_era(holder->replica), era);
    cr_assert_eq(ct_holder_follow(holder, world->now_ms, &founded), 0);
    cr_assert_neq(ct_replica_era(holder->replica), era);
    /* Nor the one that leads. */
    cr_assert_eq(ct_holder_follow(&world->list[1].holder, world->now_ms, &founded), 0);
    cr_assert_eq(hosts_leader(world), 1);
}

/* Nobody has been told of a round: there are two records, and one has to give way. */
Test(holder, a_host_that_starts_again_before_the_first_round_joins_who_waits)
{
    hosts_init(world, 3, 3);
    hosts_kill(world, 2);
    hosts_run(world, 3000);
    hosts_kill(world, 0);
    hosts_run(world, 3000);
    cr_assert_eq(hosts_leader(world), 1);
    hosts_start(world, 0);
    hosts_start(world, 2);
    hosts_run(world, 10000);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_neq(world->list[i].round, 0, "host %u is in no round", i);
    cr_assert_eq(hosts_leader(world), 1);
}

/* Hosts 1, 2 and 4 have a job that runs; hosts 0 and 3, which do not reach them, found another, and
 * host 0 dies: neither leader is where the nodes meet, and each hears of nobody. */
static void begin_two(void)
{
    hosts_init(world, 5, 3);
    hosts_kill(world, 3);
    hosts_run(world, 8000);
    hosts_kill(world, 0);
    hosts_run(world, 8000);
    for (uint32_t i = 1; i < 5; i++)
        for (uint32_t k = 0; k < 4; k += 3)
            if (i != 3)
                world->cut[i][k] = world->cut[k][i] = true;
    hosts_start(world, 0);
    hosts_start(world, 3);
    hosts_run(world, 3000);
    hosts_kill(world, 0);
    hosts_run(world, 3000);
    cr_assert(ct_holder_leads(&world->list[3].holder));
    cr_assert_eq(world->list[3].round, 0);
    cr_assert_gt(era_of(3), era_of(1));
    memset(world->cut, 0, sizeof world->cut);
}

Test(holder, a_leader_without_a_round_is_told_of_the_job_that_lives_where_the_nodes_meet)
{
    begin_two();
    hosts_start(world, 0);
    hosts_run(world, 20000);
    cr_assert_geq(hosts_leader(world), 0, "there is one");
    for (uint32_t i = 0; i < 5; i++)
        cr_assert_eq(world->list[i].round, world->list[1].round, "host %u is in another round", i);
}

/* The others know of the third or do not; nothing but the dead one is waited for. */
Test(holder, a_leader_that_dies_as_the_third_holder_is_added_is_replaced_at_once)
{
    for (uint32_t after_ms = 0; after_ms < 20; after_ms++) {
        hosts_init(world, 3, 2);
        while (__builtin_popcount(hosts_voters(world, 0)) < 3)
            hosts_run(world, 1);
        hosts_run(world, after_ms);
        hosts_kill(world, 0);
        uint64_t killed_ms = world->now_ms;
        while (hosts_leader(world) < 0 && world->now_ms < killed_ms + 10000)
            hosts_run(world, 10);
        cr_expect_lt(world->now_ms - killed_ms, 1000, "%u ms after: %llu ms", after_ms,
                     (unsigned long long)(world->now_ms - killed_ms));
        hosts_deinit(world);
    }
    begin(1, 1);
}
