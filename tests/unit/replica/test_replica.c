/* The record on several replicas: one leader a term, nothing that was confirmed is lost. */
#include "world.h"

#include "rendezvous/replica/replica_state.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct world *world;

static void set_up(void)
{
    world = malloc(sizeof *world);
}

static void tear_down(void)
{
    world_deinit(world);
    free(world);
}

TestSuite(replica, .init = set_up, .fini = tear_down, .timeout = 120);

static void begin(uint64_t seed, uint32_t voters)
{
    world_init(world, seed, voters);
    world_found(world);
}

Test(replica, a_founder_leads_alone_and_at_once)
{
    begin(1, 1);
    cr_assert_eq(world_leader(world), 0);
    world_run(world, 1000);
    cr_assert_gt(world->puts_confirmed, 0);
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

Test(replica, voters_are_added_until_there_are_enough)
{
    struct ct_replica_server server;
    size_t voters = 0;

    begin(2, 5);
    world_run(world, 3000);
    for (size_t i = 0; ct_replica_server(world->nodes[0].replica, i, &server); i++)
        voters++;
    cr_assert_eq(voters, 5);
    world->quiet = true;
    world_run(world, 4000);
    cr_assert(world_agrees(world), "%s", world->broken);
}

Test(replica, a_leader_that_is_known_to_be_dead_is_replaced_at_once)
{
    uint64_t killed_ms;

    begin(3, 3);
    world_run(world, 3000);
    world_kill(world, 0, true);
    killed_ms = world->now_ms;
    while (world_leader(world) < 0 && world->now_ms < killed_ms + 5000)
        world_run(world, world->now_ms + 1);
    cr_assert_lt(world->now_ms - killed_ms, 500, "after %llu ms",
                 (unsigned long long)(world->now_ms - killed_ms));
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

Test(replica, a_leader_that_fell_silent_is_replaced)
{
    begin(4, 3);
    world_run(world, 3000);
    world_kill(world, 0, false);
    world_run(world, 10000);
    cr_assert_gt(world_leader(world), 0);
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

Test(replica, a_leader_in_a_minority_confirms_nothing_and_steps_down)
{
    uint64_t confirmed;

    begin(5, 3);
    world_run(world, 3000);
    for (size_t i = 1; i < WORLD_NODES; i++)
        world->cut[0][i] = world->cut[i][0] = true;
    world_run(world, world->now_ms + 30); /* what was under way arrives */
    confirmed = world->puts_confirmed;
    world_run(world, world->now_ms + 300);
    cr_assert_eq(world->puts_confirmed, confirmed);
    world_run(world, world->now_ms + 8000);
    cr_assert(!world->nodes[0].leads);
    cr_assert_gt(world_leader(world), 0);
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

Test(replica, a_leader_hands_over)
{
    begin(6, 3);
    world_run(world, 3000);
    cr_assert_eq(ct_replica_yield(world->nodes[0].replica, world->now_ms, 0), 0);
    world_run(world, world->now_ms + 300);
    cr_assert_gt(world_leader(world), 0);
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

/* Five voters that agree, of which the leader and two more die; the ids of those that live. */
static void kill_three_of_five(uint64_t ids[2], size_t places[2])
{
    size_t count = 0, killed = 1;

    begin(10, 5);
    world_run(world, 3000);
    world->quiet = true;
    world_run(world, 5000);
    int leader = world_leader(world);
    struct ct_replica_server server;
    cr_assert_geq(leader, 0);
    for (size_t i = 0; ct_replica_server(world->nodes[leader].replica, i, &server); i++)
        for (size_t k = 0; k < WORLD_NODES; k++) {
            if (world->nodes[k].id != server.id || (int)k == leader)
                continue;
            if (killed < 3) {
                killed++;
                world_kill(world, k, false);
            } else {
                ids[count] = server.id;
                places[count++] = k;
            }
        }
    world_kill(world, (size_t)leader, false);
    cr_assert_eq(count, 2);
    world->era = 2;
    world->voters = 2;
}

Test(replica, the_two_of_five_that_live_go_on_when_both_know_of_the_deaths)
{
    uint64_t ids[2];
    size_t places[2];

    kill_three_of_five(ids, places);
    for (size_t i = 0; i < 2; i++)
        cr_assert_eq(ct_replica_reduce(world->nodes[places[i]].replica, world->now_ms, 2, ids, 2),
                     0);
    world_run(world, world->now_ms + 500);
    cr_assert_geq(world_leader(world), 0, "at once");
    world->quiet = false;
    uint64_t confirmed = world->puts_confirmed;
    world_run(world, world->now_ms + 3000);
    cr_assert_gt(world->puts_confirmed, confirmed);
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

Test(replica, one_of_two_that_live_leads_nobody_before_the_other_knows)
{
    uint64_t ids[2];
    size_t places[2];

    kill_three_of_five(ids, places);
    cr_assert_eq(ct_replica_reduce(world->nodes[places[0]].replica, world->now_ms, 2, ids, 2), 0);
    world_run(world, world->now_ms + 20000);
    cr_assert_eq(world_leader(world), -1);
    cr_assert_eq(ct_replica_reduce(world->nodes[places[1]].replica, world->now_ms, 2, ids, 2), 0);
    world_run(world, world->now_ms + 1000);
    cr_assert_geq(world_leader(world), 0);
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

/* Which of the two voters does not lead. */
static int other_voter(int leader)
{
    struct ct_replica_server server;

    for (size_t i = 0; ct_replica_server(world->nodes[leader].replica, i, &server); i++)
        for (int k = 0; k < WORLD_NODES; k++)
            if (k != leader && world->nodes[k].id == server.id)
                return k;
    cr_assert_fail("there is no second voter");
    return -1;
}

static void expect_puts(uint64_t until_ms)
{
    uint64_t confirmed = world->puts_confirmed;

    world_run(world, until_ms);
    cr_assert_gt(world->puts_confirmed, confirmed);
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

Test(replica, a_leader_whose_only_other_voter_is_dead_goes_on_without_a_pause)
{
    begin(8, 2);
    world_run(world, 3000);
    int leader = world_leader(world), other = other_voter(leader);
    uint64_t term = ct_replica_term(world->nodes[leader].replica);

    world->voters = 1;
    world_kill(world, (size_t)other, true);
    cr_assert(ct_replica_holds_all(world->nodes[leader].replica, world->now_ms));
    world->era = 2;
    cr_assert_eq(ct_replica_found_anew(world->nodes[leader].replica, world->now_ms, 2), 0);
    cr_assert(ct_replica_leads(world->nodes[leader].replica));
    cr_assert_eq(ct_replica_term(world->nodes[leader].replica), term);
    cr_assert_eq(ct_replica_era(world->nodes[leader].replica), 2);
    expect_puts(world->now_ms + 3000);
}

Test(replica, of_two_voters_the_follower_of_a_dead_leader_founds_the_record_with_all_it_was_sent)
{
    begin(9, 2);
    world_run(world, 3000);
    int leader = world_leader(world), other = other_voter(leader);

    world->voters = 1;
    world_kill(world, (size_t)leader, true);
    cr_assert(ct_replica_holds_all(world->nodes[other].replica, world->now_ms));
    world->era = 2;
    cr_assert_eq(ct_replica_found_anew(world->nodes[other].replica, world->now_ms, 2), 0);
    cr_assert(ct_replica_leads(world->nodes[other].replica));
    expect_puts(world->now_ms + 3000);
}

/* What the other one, elected since, has confirmed with a third, it lacks. */
Test(replica, of_two_voters_one_that_was_deposed_does_not_hold_all)
{
    begin(11, 2);
    world_run(world, 3000);
    int leader = world_leader(world), other = other_voter(leader);
    struct ct_replica *deposed = world->nodes[leader].replica;
    const struct ct_message vote = {.type = CT_MSG_VOTE,
                                    .vote = {.term = ct_replica_term(deposed) + 1,
                                             .sender = {.era = ct_replica_era(deposed),
                                                        .id = world->nodes[other].id,
                                                        .to = world->nodes[leader].id,
                                                        .address = "elsewhere:1"},
                                             .disrupt = true}};

    ct_replica_receive(deposed, world->now_ms, &vote);
    cr_assert_not(ct_replica_leads(deposed));
    cr_assert_not(ct_replica_holds_all(deposed, world->now_ms));
}

Test(replica, a_follower_that_has_not_heard_its_leader_for_long_may_lack_what_that_did_alone)
{
    begin(10, 2);
    world_run(world, 3000);
    int leader = world_leader(world), other = other_voter(leader);

    world->cut[leader][other] = world->cut[other][leader] = true;
    world_run(world, world->now_ms + 3000);
    cr_assert(!ct_replica_leads(world->nodes[leader].replica), "it hears no majority");
    cr_assert(ct_replica_holds_all(world->nodes[leader].replica, world->now_ms), "it led last");
    cr_assert(!ct_replica_holds_all(world->nodes[other].replica, world->now_ms));
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

/* Two voters are cut from each other as a third is added; after a while the leader dies. False: the
 * other one does not hold all any more. */
static bool third_is_added_behind_a_cut(uint64_t for_ms)
{
    begin(11, 2);
    world_run(world, 3000);
    int leader = world_leader(world), other = other_voter(leader);
    struct ct_replica *replica = world->nodes[other].replica;

    world->cut[leader][other] = world->cut[other][leader] = true;
    world->voters = 3;
    world_run(world, world->now_ms + for_ms);
    world_kill(world, (size_t)leader, true);
    world->voters = 1;
    bool holds_all = ct_replica_holds_all(replica, world->now_ms);
    if (holds_all) {
        world->era = 2;
        cr_assert_eq(ct_replica_found_anew(replica, world->now_ms, 2), 0);
        world_run(world, world->now_ms + 1000);
    }
    cr_assert_eq(world->broken[0], '\0', "after %d ms: %s", (int)for_ms, world->broken);
    return holds_all;
}

/* It would go on without what only the leader and the new one hold. */
Test(replica, what_two_voters_that_become_three_confirm_is_known_to_both)
{
    uint64_t for_ms = 0;

    while (third_is_added_behind_a_cut(for_ms)) {
        world_deinit(world);
        for_ms += 10;
    }
    cr_assert_gt(for_ms, 100, "there was time to add one");
}

Test(replica, one_that_stands_with_another_does_not_go_on_without_it_before_somebody_led)
{
    uint64_t ids[2];
    size_t places[2];

    kill_three_of_five(ids, places);
    struct ct_replica *replica = world->nodes[places[0]].replica;
    uint64_t now_ms = world->now_ms;

    cr_assert(ct_replica_known_within(replica, now_ms, 10000));
    cr_assert_eq(ct_replica_reduce(replica, now_ms, 2, ids, 2), 0);
    cr_assert_not(ct_replica_known_within(replica, now_ms, 10000),
                  "the other one may have led, and gone on with others");
}

/* Is `key` in the map of what is committed? */
static bool is_committed(const struct ct_replica *replica, const char *key)
{
    struct ct_bytes value;
    const char *name;

    for (size_t i = 0; ct_replica_entry(replica, i, &name, &value); i++)
        if (strcmp(name, key) == 0)
            return true;
    return false;
}

/* `voter` gives its vote to `candidate`, whether that asks before or stands. */
static void elect_by(struct node *candidate, const struct node *voter)
{
    struct ct_replica *replica = candidate->replica;
    struct ct_message voted = {
        .type = CT_MSG_VOTED,
        .voted = {.sender = {.era = world->era, .id = voter->id, .to = candidate->id},
                  .granted = true}};

    for (int pre = 1; pre >= 0; pre--) {
        voted.voted.pre = (uint8_t)pre;
        voted.voted.term = ct_replica_term(replica) + (uint64_t)pre;
        ct_replica_receive(replica, world->now_ms, &voted);
    }
}

/* The case of figure 3.7 in Ongaro's dissertation. */
Test(replica, an_entry_of_an_older_term_that_a_majority_holds_is_committed_with_one_of_this_term)
{
    begin(13, 3);
    world_run(world, 3000);
    world->quiet = true;
    world_run(world, 4000);
    int leader = world_leader(world), other = other_voter(leader), third = 3 - leader - other;
    struct node *next = &world->nodes[other];

    for (int i = 0; i < 3; i++) /* all but what the leader sends to the next one is lost */
        for (int k = 0; k < 3; k++)
            world->cut[i][k] = i != leader || k != other;
    uint64_t held = replica_log_last(&next->replica->log);

    cr_assert_eq(ct_replica_put(world->nodes[leader].replica, world->now_ms, 77, "late", "x", 1),
                 0);
    world_run(world, world->now_ms + 100);
    world_kill(world, (size_t)leader, true);
    world_run(world, world->now_ms + 50);
    elect_by(next, &world->nodes[third]);

    struct ct_message appended = {
        .type = CT_MSG_APPENDED,
        .appended = {.term = ct_replica_term(next->replica),
                     .sender = {.era = world->era, .id = world->nodes[third].id, .to = next->id},
                     .last_index = held + 1}};
    ct_replica_receive(next->replica, world->now_ms, &appended);
    cr_assert_not(is_committed(next->replica, "late"), "another leader may still replace it");
    appended.appended.last_index++;
    ct_replica_receive(next->replica, world->now_ms, &appended);
    cr_assert(is_committed(next->replica, "late"));
}

/* Two minutes of faults, then peace: somebody leads, all agree, puts are confirmed again. */
static void seed_holds(uint64_t seed)
{
    uint64_t confirmed;

    begin(seed, seed % 3 == 0 ? 5 : 3);
    world_run(world, 2000);
    for (int i = 0; i < 100 && !world->broken[0]; i++) {
        world_fault(world);
        world_run(world, world->now_ms + ct_rng_below(&world->rng, 2500));
        for (size_t k = 0; k < WORLD_NODES; k++)
            if (!world->nodes[k].replica && ct_rng_below(&world->rng, 3) == 0)
                world_restart(world, k);
    }
    world_end_faults(world);
    world_run(world, world->now_ms + 10000);
    confirmed = world->puts_confirmed;
    world_run(world, world->now_ms + 5000);
    if (!world->broken[0] && world->puts_confirmed == confirmed) {
        snprintf(world->broken, sizeof world->broken, "seed %llu: nothing is confirmed any more",
                 (unsigned long long)seed);
    }
    world->quiet = true;
    world_run(world, world->now_ms + 2000);
    world_agrees(world);
}

Test(replica, faults_never_break_the_record)
{
    const char *seeds = getenv("CTRUN_REPLICA_SEEDS"), *first = getenv("CTRUN_REPLICA_FIRST");
    uint64_t begin_at = first ? strtoull(first, NULL, 10) : 1;
    uint64_t count = seeds ? strtoull(seeds, NULL, 10) : 60;
    uint64_t elections = 0, kills = 0, confirmed = 0;

    for (uint64_t seed = begin_at; seed < begin_at + count; seed++) {
        seed_holds(seed);
        if (world->broken[0])
            world_print(world);
        cr_expect_eq(world->broken[0], '\0', "%s", world->broken);
        elections += world->elections;
        kills += world->kills;
        confirmed += world->puts_confirmed;
        world_deinit(world);
    }
    world_init(world, 1, 1);
    cr_log_info("%llu seeds: %llu elections, %llu kills, %llu puts", (unsigned long long)count,
                (unsigned long long)elections, (unsigned long long)kills,
                (unsigned long long)confirmed);
}
