/* Nodes beyond what the round needs, and nodes that it is to do without: spares, worlds, orders. */
#include "scene.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(spares, .timeout = 30);

static const char *waits_for(struct scene *s, const char *host, char text[512])
{
    return ct_rdzv_describe_member(s->job, scene_host(s, host)->member, text, 512) ? text : "";
}

static enum ct_rdzv_member_state state_of(struct scene *s, const char *host)
{
    return ct_rdzv_member(s->job, scene_host(s, host)->member)->state;
}

Test(spares, a_node_beyond_the_largest_number_waits_and_replaces_the_first_that_is_lost)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 2, 1);
    scene_run(&s, "a b");
    scene_join(&s, "c");
    scene_at(&s, 60000, true);
    cr_assert_eq(ct_rdzv_generation(s.job), 1, "nothing changes for a spare");
    cr_assert_str_eq(waits_for(&s, "c", text), "spare: 2 of 2 nodes of job demo are at work, this "
                                               "one replaces the next that is lost");
    scene_cut(&s, "a");
    scene_at(&s, 60100, true);
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "c:0 b:2");
    scene_deinit(&s);
}

Test(spares, a_job_of_a_fixed_size_takes_spares_when_it_survives_failures)
{
    struct scene s;
    scene_init(&s, 2, 2, 1);
    scene_run(&s, "a b");
    scene_join(&s, "c");
    cr_assert_eq(scene_host(&s, "c")->refused, 0);
    scene_deinit(&s);
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_join(&s, "c");
    cr_assert_eq(scene_host(&s, "c")->refused, CT_ELIMIT);
    scene_deinit(&s);
}

/* ---- worlds that divide the batch ---- */

Test(spares, only_worlds_that_divide_the_batch_are_formed_and_the_rest_are_spares)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 4, 9);
    scene_terms(&s, 0, 8); /* 2 slots each: 1, 2 or 4 nodes, not 3 */
    scene_run(&s, "a b c");
    cr_assert_str_eq(scene_roster(&s, text), "a:0 b:2");
    cr_assert_eq(state_of(&s, "c"), CT_RDZV_STANDBY);
    scene_at(&s, 60000, true);
    cr_assert_eq(ct_rdzv_generation(s.job), 1, "a world that cannot grow is left alone");
    scene_join(&s, "d");
    scene_at(&s, 75000, true);
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "a:0 b:2 c:4 d:6");
    scene_cut(&s, "b");
    scene_at(&s, 76000, true);
    scene_all_prepared(&s);
    cr_assert_eq(ct_rdzv_roster(s.job)->world, 4);
    scene_deinit(&s);
}

Test(spares, who_holds_the_newest_state_stays_when_nodes_are_too_many_for_the_batch)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 4, 9);
    scene_terms(&s, 0, 8);
    scene_run(&s, "a b c d");
    scene_cut(&s, "d");
    scene_at(&s, 1000, true);
    scene_prepared(&s, "a", 0, 0);
    scene_prepared(&s, "b", 1, 9);
    scene_prepared(&s, "c", 1, 10);
    cr_assert_str_eq(scene_roster(&s, text), "a:0 c:2");
    cr_assert_eq(ct_rdzv_roster(s.job)->base_step, 10);
    scene_deinit(&s);
}

Test(spares, newcomers_go_before_survivors_when_nodes_are_too_many_for_the_batch)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 4, 9);
    scene_terms(&s, 0, 8);
    scene_run(&s, "a b");
    scene_join(&s, "c");
    scene_fail(&s, "a", 1, 0);
    scene_prepared(&s, "a", 0, 0);
    scene_prepared(&s, "b", 1, 4);
    scene_prepared(&s, "c", 0, 0);
    cr_assert_str_eq(scene_roster(&s, text), "a:0 b:2");
    scene_deinit(&s);
}

Test(spares, a_round_is_not_remade_for_nodes_that_may_not_be_taken_in)
{
    struct scene s;
    scene_init(&s, 1, 4, 99);
    scene_terms(&s, 1, 8);
    s.quiet = true;
    scene_run(&s, "a b c");
    scene_at(&s, 60000, true);
    scene_cut(&s, "b");
    scene_at(&s, 60200, true);
    scene_all_prepared(&s);
    scene_new_self(&s, "b");
    scene_join(&s, "b"); /* cordoned for an hour */
    scene_join(&s, "d"); /* with b it would be four, without it three are of no use */
    scene_all_prepared(&s);
    uint64_t generation = ct_rdzv_generation(s.job);
    scene_at(&s, 600000, true);
    cr_assert_eq(ct_rdzv_generation(s.job), generation);
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 2);
    scene_at(&s, 3700000, true);
    scene_all_prepared(&s);
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 4);
    scene_deinit(&s);
}

Test(spares, nodes_whose_ranks_cannot_divide_the_batch_wait_for_more_and_say_so)
{
    struct scene s;
    char text[512];
    scene_init(&s, 3, 4, 0);
    scene_terms(&s, 0, 8);
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_join(&s, "c");
    scene_at(&s, 5000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_LOBBY);
    ct_rdzv_describe(s.job, text, sizeof(text));
    cr_assert(strstr(text, "their ranks do not divide the global batch") != NULL, "%s", text);
    scene_join(&s, "d");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_deinit(&s);
}

/* ---- drain ---- */

Test(spares, a_drained_node_works_until_the_step_boundary_and_is_released)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 2, 0);
    scene_run(&s, "a b");
    scene_order(&s, CT_RDZV_ON_DRAIN, "b", 0);
    scene_prepared(&s, "a", 1, 5);
    scene_prepared(&s, "b", 1, 5);
    scene_expect(&s, "[    0] > ops DRAIN b\n"
                     "[    0] < link1000 ANSWER OK: host b leaves job demo at the next step "
                     "boundary\n"
                     "[    0] < b DRAIN (drained by ops: a test)\n"
                     "[    0] < all PREPARE g2 (a node leaves, at a step boundary)\n"
                     "[    0] > a PREPARED g2 lineage=1 step=5\n"
                     "[    0] > b PREPARED g2 lineage=1 step=5\n"
                     "[    0] < b RELEASE\n"
                     "[    0] < all ROUND g2 world=2 [a:0] base=a lineage=1 step=5\n");
    cr_assert_str_eq(scene_roster(&s, text), "a:0");
    cr_assert_eq(ct_rdzv_restarts(s.job), 0);
    scene_deinit(&s);
}

Test(spares, orders_that_cannot_be_followed_are_answered_with_the_reason)
{
    struct scene s;
    scene_init(&s, 2, 3, 0);
    scene_run(&s, "a b");
    scene_order(&s, CT_RDZV_ON_DRAIN, "b", 0);
    scene_order(&s, CT_RDZV_ON_DRAIN, "x", 0);
    scene_order(&s, CT_RDZV_ON_CORDON, "", 0);
    scene_expect(&s,
                 "[  300] > ops DRAIN b\n"
                 "[  300] < link1000 ANSWER CT_EUNAVAILABLE: without host b job demo would have "
                 "1 nodes of at least 2 and stop: start another node first\n"
                 "[  300] > ops DRAIN x\n"
                 "[  300] < link1000 ANSWER CT_ENOTFOUND: job demo has no node on host x\n"
                 "[  300] > ops CORDON \n"
                 "[  300] < link1000 ANSWER CT_EUSAGE: the order names no host\n");
    scene_deinit(&s);
}

Test(spares, a_spare_takes_the_place_of_a_drained_node_in_the_same_round)
{
    struct scene s;
    char text[512];
    scene_init(&s, 2, 2, 1);
    scene_run(&s, "a b");
    scene_join(&s, "c");
    scene_order(&s, CT_RDZV_ON_DRAIN, "a", 0);
    scene_prepared(&s, "a", 1, 5);
    scene_prepared(&s, "b", 1, 5);
    scene_prepared(&s, "c", 0, 0);
    cr_assert_str_eq(scene_roster(&s, text), "c:0 b:2");
    cr_assert(scene_host(&s, "a")->released);
    scene_deinit(&s);
}

/* ---- cordon ---- */

Test(spares, a_cordoned_host_is_in_no_new_round_until_it_is_uncordoned)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 2, 1);
    scene_run(&s, "a");
    scene_order(&s, CT_RDZV_ON_CORDON, "b", 0);
    scene_join(&s, "b");
    scene_at(&s, 60000, true);
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 1);
    cr_assert_str_eq(waits_for(&s, "b", text),
                     "host b is cordoned (by ops: a test) and joins no round: `ctrun uncordon b` "
                     "ends that");
    scene_fail(&s, "a", 1, 0);
    scene_all_prepared(&s);
    cr_assert_eq(ct_rdzv_generation(s.job), 2);
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 1);
    scene_order(&s, CT_RDZV_ON_UNCORDON, "b", 0);
    scene_at(&s, 75000, true);
    scene_all_prepared(&s);
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 2);
    scene_deinit(&s);
}

Test(spares, a_cordon_before_the_first_round_is_answered_and_recorded_with_that_round)
{
    struct scene s;
    scene_init(&s, 1, 2, 0);
    scene_order(&s, CT_RDZV_ON_CORDON, "b", 0);
    scene_order(&s, CT_RDZV_ON_CORDON, "c", 0);
    scene_order(&s, CT_RDZV_ON_UNCORDON, "c", 0);
    scene_expect(&s, "[    0] > ops CORDON b\n"
                     "[    0] < link1000 ANSWER OK: done\n"
                     "[    0] > ops CORDON c\n"
                     "[    0] < link1000 ANSWER OK: done\n"
                     "[    0] > ops UNCORDON c\n"
                     "[    0] < link1000 ANSWER OK: done\n");
    s.verbose = true;
    scene_join(&s, "a");
    scene_at(&s, 300, true);
    cr_assert(strstr(ct_buf_str(&s.transcript), "CORDON g1") != NULL);
    scene_deinit(&s);
}

Test(spares, what_an_operator_lifted_does_not_bar_the_next_host_that_flaps)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_terms(&s, 1, 0);
    s.quiet = true;
    scene_run(&s, "a b");
    scene_order(&s, CT_RDZV_ON_CORDON, "x", 0);
    scene_order(&s, CT_RDZV_ON_UNCORDON, "x", 0);
    scene_cut(&s, "b");
    scene_at(&s, s.now_ms + 200, true);
    cr_assert_str_eq(ct_rdzv_cordon(s.job, 0)->host, "b");
    cr_assert(!ct_rdzv_cordon(s.job, 0)->by_operator);
    scene_deinit(&s);
}

Test(spares, a_cordon_ends_by_itself_and_does_not_count_towards_the_smallest_number)
{
    struct scene s;
    char text[512];
    scene_init(&s, 2, 3, 0);
    scene_order(&s, CT_RDZV_ON_CORDON, "b", 10000);
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_at(&s, 5000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_LOBBY);
    cr_assert_str_eq(waits_for(&s, "b", text), "host b is cordoned for 5 s more (by ops: a test) "
                                               "and joins no round: `ctrun uncordon b` ends that");
    scene_at(&s, 10300, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_deinit(&s);
}

Test(spares, a_host_that_is_cordoned_while_it_is_asked_is_barred_once_that_round_is_given_up)
{
    struct scene s;
    scene_init(&s, 2, 3, 0);
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_at(&s, 300, true);
    cr_assert_eq(state_of(&s, "b"), CT_RDZV_PREPARING);
    scene_order(&s, CT_RDZV_ON_CORDON, "b", 0);
    scene_cut(&s, "a");
    scene_at(&s, 500, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_LOBBY);
    scene_new_self(&s, "a");
    scene_join(&s, "a");
    scene_at(&s, 5000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_LOBBY, "a alone is too few");
    scene_deinit(&s);
}

Test(spares, a_node_that_is_in_the_round_stays_when_its_host_is_cordoned)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 2, 1);
    scene_run(&s, "a b");
    scene_order(&s, CT_RDZV_ON_CORDON, "b", 0);
    scene_fail(&s, "a", 1, 0);
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "a:0 b:2");
    scene_deinit(&s);
}

Test(spares, a_host_that_was_lost_three_times_within_an_hour_is_cordoned_unless_it_is_needed)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 2, 9);
    s.quiet = true;
    scene_run(&s, "a b");
    for (int i = 0; i < 3; i++) {
        scene_at(&s, s.now_ms + 60000, true);
        scene_cut(&s, "b");
        scene_at(&s, s.now_ms + 200, true);
        scene_all_prepared(&s);
        scene_new_self(&s, "b");
        scene_join(&s, "b");
        scene_at(&s, s.now_ms + 30000, true);
        scene_all_prepared(&s);
    }
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 1);
    cr_assert_str_eq(ct_rdzv_cordon(s.job, 0)->reason, "lost 3 times within an hour");
    cr_assert(strstr(waits_for(&s, "b", text), "host b is cordoned for 35") != NULL, "%s", text);
    scene_cut(&s, "a"); /* b is all that is left */
    scene_at(&s, s.now_ms + 200, true);
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "b:0");
    scene_deinit(&s);
}

Test(spares, a_host_that_flapped_joins_as_soon_as_an_operator_says_so)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_terms(&s, 1, 0);
    s.quiet = true;
    scene_run(&s, "a b");
    scene_cut(&s, "b");
    scene_at(&s, s.now_ms + 200, true);
    scene_all_prepared(&s);
    scene_new_self(&s, "b");
    scene_join(&s, "b");
    scene_at(&s, s.now_ms + 60000, true);
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 1);
    scene_order(&s, CT_RDZV_ON_UNCORDON, "b", 0);
    scene_at(&s, s.now_ms + 3000, true);
    scene_all_prepared(&s);
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 2);
    scene_deinit(&s);
}

Test(spares, a_cordon_is_answered_when_it_is_durable_or_says_that_it_is_not)
{
    struct scene s;
    scene_init(&s, 1, 2, 0);
    scene_run(&s, "a");
    scene_disk(&s, DISK_FULL);
    scene_order(&s, CT_RDZV_ON_CORDON, "b", 0);
    scene_expect(&s, "[  300] > ops CORDON b\n"
                     "[  300] > PERSIST_FAILED #3\n"
                     "[  300] < link1000 ANSWER CT_EIO: done, but the journal cannot be written: a "
                     "daemon that restarts forgets it\n");
    scene_disk(&s, DISK_SLOW);
    scene_at(&s, 900, true);
    scene_order(&s, CT_RDZV_ON_UNCORDON, "b", 0);
    scene_expect(&s, "[  900] > ops UNCORDON b\n");
    scene_disk(&s, DISK_GOOD);
    scene_expect(&s, "[  900] < link1000 ANSWER OK: done\n");
    scene_order(&s, CT_RDZV_ON_UNCORDON, "b", 0);
    scene_expect(&s, "[  900] > ops UNCORDON b\n"
                     "[  900] < link1000 ANSWER CT_ENOTFOUND: host b is not cordoned in job "
                     "demo\n");
    scene_deinit(&s);
}
