/* What readers may take, and when a round has recovered, as transcripts (see scene.h). */
#include "scene.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(publish, .timeout = 30);

Test(publish, a_publication_counts_once_it_is_on_record)
{
    struct scene s;
    scene_init(&s, 1, 2, 0);
    scene_run(&s, "a b");
    scene_disk(&s, DISK_SLOW);
    scene_publish(&s, "a", 1, 40, 7);
    scene_expect(&s, "[    0] > a PUBLISH g1 step=40\n");
    cr_assert_eq(ct_rdzv_published(s.job)->generation, 0);
    scene_disk(&s, DISK_GOOD);
    scene_expect(&s, "[    0] < a PUBLISHED g1 step=40\n");
    cr_assert_eq(ct_rdzv_published(s.job)->step, 40);
    cr_assert_eq(ct_rdzv_published(s.job)->digest, 7);
    scene_deinit(&s);
}

Test(publish, a_repeated_publication_is_answered_alike_and_recorded_once)
{
    struct scene s;
    scene_init(&s, 1, 1, 0);
    scene_run(&s, "a");
    s.verbose = true;
    scene_host(&s, "a")->slow = true;
    scene_publish(&s, "a", 1, 40, 0);
    scene_publish(&s, "a", 1, 40, 0);
    scene_expect(&s, "[    0] > a PUBLISH g1 step=40\n"
                     "[    0] < PERSIST #3 MANIFEST g1\n"
                     "[    0] > PERSISTED #3\n"
                     "[    0] < (checkpoint of step 40 saved)\n"
                     "[    0] < a PUBLISHED g1 step=40\n"
                     "[    0] > a PUBLISH g1 step=40\n"
                     "[    0] < a PUBLISHED g1 step=40\n");
    scene_deinit(&s);
}

Test(publish, a_publication_that_cannot_be_recorded_is_not_answered_and_may_be_asked_again)
{
    struct scene s;
    scene_init(&s, 1, 1, 0);
    scene_run(&s, "a");
    scene_disk(&s, DISK_FULL);
    scene_publish(&s, "a", 1, 40, 0);
    scene_disk(&s, DISK_GOOD);
    scene_publish(&s, "a", 1, 40, 0);
    scene_expect(&s, "[    0] > a PUBLISH g1 step=40\n"
                     "[    0] > PERSIST_FAILED #3\n"
                     "[    0] > a PUBLISH g1 step=40\n"
                     "[    0] < a PUBLISHED g1 step=40\n");
    scene_deinit(&s);
}

Test(publish, an_older_step_and_another_state_of_the_same_step_do_not_count)
{
    struct scene s;
    scene_init(&s, 1, 1, 0);
    scene_run(&s, "a");
    scene_publish(&s, "a", 1, 40, 0xab);
    scene_forget(&s);
    scene_publish(&s, "a", 1, 39, 0xab);
    scene_expect(&s, "[    0] > a PUBLISH g1 step=39\n"
                     "[    0] < a PUBLISHED g1 step=39 CT_EFENCED: step 39 does not count: round 1 "
                     "has published step 40\n");
    cr_assert_eq(ct_rdzv_published(s.job)->step, 40);
    scene_deinit(&s);
}

Test(publish, the_next_round_may_confirm_a_published_step_but_not_contradict_it)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_run(&s, "a b");
    scene_publish(&s, "a", 1, 40, 0xab);
    scene_fail(&s, "b", 1, 0);
    scene_prepared(&s, "a", 1, 40);
    scene_prepared(&s, "b", 0, 0);
    scene_forget(&s);
    scene_publish(&s, "a", 2, 40, 0xab);
    scene_publish(&s, "a", 2, 40, 0xcd);
    scene_expect(&s,
                 "[    0] > a PUBLISH g2 step=40\n"
                 "[    0] < a PUBLISHED g2 step=40\n"
                 "[    0] > a PUBLISH g2 step=40\n"
                 "[    0] < a PUBLISHED g2 step=40 CT_EDIVERGED: step 40 was published by round 1 "
                 "with digest 00000000000000ab, and now has 00000000000000cd\n");
    scene_deinit(&s);
}

Test(publish, a_round_may_publish_until_the_last_member_has_promised_the_next_one)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_run(&s, "a b");
    scene_fail(&s, "b", 1, 0);
    scene_prepared(&s, "b", 0, 0);
    scene_publish(&s, "a", 1, 40, 0);
    scene_prepared(&s, "a", 1, 40);
    scene_publish(&s, "a", 1, 41, 0);
    scene_expect(&s, "[    0] > b FAILURE g1 rank=1 status=1 signal=0\n"
                     "[    0] < all PREPARE g2 (a worker failed)\n"
                     "[    0] > b PREPARED g2 lineage=0 step=0\n"
                     "[    0] > a PUBLISH g1 step=40\n"
                     "[    0] < a PUBLISHED g1 step=40\n"
                     "[    0] > a PREPARED g2 lineage=1 step=40\n"
                     "[    0] < all ROUND g2 world=4 [a:0 b:2] base=a lineage=1 step=40\n"
                     "[    0] > a PUBLISH g1 step=41\n"
                     "[    0] < a PUBLISHED g1 step=41 CT_EFENCED: step 41 of round 1 does not "
                     "count, for that round is over: ask again in the next one\n");
    cr_assert_eq(ct_rdzv_roster(s.job)->published.step, 40);
    scene_deinit(&s);
}

Test(publish, the_base_is_not_chosen_while_a_publication_is_being_recorded)
{
    struct scene s;
    scene_init(&s, 1, 1, 9);
    scene_run(&s, "a");
    scene_fail(&s, "a", 1, 0);
    scene_disk(&s, DISK_SLOW);
    scene_publish(&s, "a", 1, 40, 0);
    scene_prepared(&s, "a", 0, 0);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_disk(&s, DISK_GOOD);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    cr_assert_eq(ct_rdzv_roster(s.job)->published.step, 40, "a round without base starts there");
    cr_assert_eq(ct_rdzv_roster(s.job)->base_node, -1);
    scene_deinit(&s);
}

Test(publish, a_state_behind_the_newest_publication_is_nobodys_base)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_run(&s, "a b");
    scene_publish(&s, "a", 1, 40, 0);
    scene_fail(&s, "a", 1, 0);
    scene_prepared(&s, "a", 0, 0);
    scene_prepared(&s, "b", 1, 39);
    cr_assert_eq(ct_rdzv_roster(s.job)->generation, 2);
    cr_assert_eq(ct_rdzv_roster(s.job)->base_node, -1);
    cr_assert_eq(ct_rdzv_roster(s.job)->published.step, 40);
    scene_deinit(&s);
}

/* b is left out of round 2 with a step that nobody else has; a goes on and publishes, and leaves.
 * Round 3 is b alone, without a base, and ends before its first step. */
static void leave_branch(struct scene *s, bool publishes)
{
    scene_init(s, 1, 2, 9);
    scene_run(s, "a b");
    scene_cut(s, "b");
    scene_at(s, s->now_ms + 200, true);
    scene_prepared(s, "a", 1, 10);
    if (publishes)
        scene_publish(s, "a", 2, 11, 0);
    scene_join(s, "b");
    scene_cut(s, "a");
    scene_at(s, s->now_ms + 200, true);
    scene_prepared(s, "b", 1, 12);
    cr_assert_eq(ct_rdzv_roster(s->job)->generation, 3);
    cr_assert_eq(ct_rdzv_roster(s->job)->base_node, -1);
    scene_fail(s, "b", 1, 0);
    scene_prepared(s, "b", 1, 12); /* of round 1: it took no step in round 3 */
}

Test(publish, a_branch_that_was_given_up_is_no_base_after_a_round_that_never_acted)
{
    struct scene s;
    for (int publishes = 0; publishes < 2; publishes++) {
        leave_branch(&s, publishes != 0);
        cr_assert_eq(ct_rdzv_roster(s.job)->generation, 4);
        cr_assert_eq(ct_rdzv_roster(s.job)->base_node, -1);
        scene_deinit(&s);
    }
}

/* Round 2 begins from step 10 of round 1 and publishes; who took no part in it holds step 10 too.
 */
static void publish_in_second_round(struct scene *s, uint64_t step)
{
    scene_init(s, 1, 2, 9);
    scene_run(s, "a b");
    scene_fail(s, "b", 1, 0);
    scene_prepared(s, "a", 1, 10);
    scene_prepared(s, "b", 1, 10);
    scene_publish(s, "a", 2, step, 0);
    scene_fail(s, "b", 1, 0);
    scene_prepared(s, "a", 1, step);
    scene_prepared(s, "b", 0, 0);
    cr_assert_eq(ct_rdzv_roster(s->job)->generation, 3);
}

Test(publish, a_state_from_before_the_round_that_published_is_nobodys_base)
{
    struct scene s;
    publish_in_second_round(&s, 11);
    cr_assert_eq(ct_rdzv_roster(s.job)->base_node, -1, "step 11 of round 1 is another branch");
    scene_deinit(&s);
}

Test(publish, a_base_that_was_published_unchanged_may_be_the_base_again)
{
    struct scene s;
    publish_in_second_round(&s, 10);
    cr_assert_eq(ct_rdzv_roster(s.job)->lineage, 1);
    cr_assert_eq(ct_rdzv_roster(s.job)->base_step, 10);
    scene_deinit(&s);
}

Test(publish, the_base_of_the_last_round_is_better_than_none)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_run(&s, "a b");
    scene_cut(&s, "b");
    scene_at(&s, s.now_ms + 200, true);
    scene_prepared(&s, "a", 1, 10);
    scene_join(&s, "b");
    scene_fail(&s, "a", 1, 0);
    scene_prepared(&s, "a", 0, 0);
    scene_prepared(&s, "b", 1, 10);
    cr_assert_eq(ct_rdzv_roster(s.job)->generation, 3);
    cr_assert_eq(ct_rdzv_roster(s.job)->lineage, 1);
    cr_assert_eq(ct_rdzv_roster(s.job)->base_step, 10);
    scene_deinit(&s);
}

Test(publish, a_state_may_be_the_base_again_after_any_number_of_rounds_that_never_acted)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_run(&s, "a b");
    scene_fail(&s, "b", 1, 0);
    scene_prepared(&s, "a", 1, 10);
    scene_prepared(&s, "b", 0, 0);
    scene_fail(&s, "b", 1, 0); /* round 2: b took the base and ended, a did not take part */
    scene_host(&s, "a")->begun = 1;
    scene_prepared(&s, "a", 1, 9);
    scene_prepared(&s, "b", 2, 10);
    cr_assert_eq(ct_rdzv_roster(s.job)->lineage, 2);
    scene_fail(&s, "b", 1, 0); /* round 3 likewise, and b lost everything */
    scene_prepared(&s, "a", 1, 9);
    scene_prepared(&s, "b", 0, 0);
    cr_assert_eq(ct_rdzv_roster(s.job)->generation, 4);
    cr_assert_eq(ct_rdzv_roster(s.job)->lineage, 1);
    cr_assert_eq(ct_rdzv_roster(s.job)->base_step, 9);
    scene_deinit(&s);
}

/* ---- RECOVER ---- */

Test(publish, a_round_runs_when_all_its_nodes_hold_the_base)
{
    struct scene s;
    char text[512];
    scene_init(&s, 2, 2, 0);
    scene_host(&s, "b")->slow = true;
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_all_prepared(&s);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RECOVER);
    scene_at(&s, 3100, true);
    ct_rdzv_describe(s.job, text, sizeof(text));
    cr_assert_str_eq(text, "job demo recovers round 1 of 2 nodes, waits 3.0 s for the state of b");
    scene_host(&s, "b")->slow = false;
    scene_at(&s, 4000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_deinit(&s);
}

Test(publish, nobody_joins_or_leaves_while_a_round_recovers)
{
    struct scene s;
    scene_init(&s, 1, 3, 0);
    scene_host(&s, "b")->slow = true;
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_at(&s, 300, true);
    scene_all_prepared(&s);
    scene_join(&s, "c");
    scene_leave(&s, "a", CT_RDZV_LEAVE_DRAIN);
    scene_at(&s, 29000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RECOVER);
    scene_forget(&s);
    scene_host(&s, "b")->slow = false;
    scene_at(&s, 30000, true);
    cr_assert(strstr(ct_buf_str(&s.transcript), "PREPARE g2 (a node leaves, at a step boundary)") !=
              NULL);
    scene_deinit(&s);
}

Test(publish, who_wants_to_leave_waits_no_longer_for_a_recovery_than_for_a_step_boundary)
{
    struct scene s;
    scene_init(&s, 1, 2, 0);
    scene_host(&s, "b")->slow = true;
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_all_prepared(&s);
    scene_leave(&s, "a", CT_RDZV_LEAVE_DRAIN);
    scene_forget(&s);
    scene_at(&s, 30000, true);
    cr_assert(strstr(ct_buf_str(&s.transcript), "[30000] < all PREPARE g2 (a node leaves)") !=
              NULL);
    scene_deinit(&s);
}

Test(publish, a_failure_while_a_round_recovers_makes_the_next_one_at_once)
{
    struct scene s;
    scene_init(&s, 2, 2, 1);
    scene_host(&s, "b")->slow = true;
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_all_prepared(&s);
    scene_forget(&s);
    scene_fail(&s, "b", 1, 0);
    scene_expect(&s, "[    0] > b FAILURE g1 rank=1 status=1 signal=0\n"
                     "[    0] < all PREPARE g2 (a worker failed)\n");
    scene_deinit(&s);
}
