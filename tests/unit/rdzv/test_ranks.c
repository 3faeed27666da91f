/* Who gets which ranks, and whose state a round starts from. */
#include "scene.h"

#include <criterion/criterion.h>

TestSuite(ranks, .timeout = 30);

Test(ranks, ranks_follow_node_rank_then_natural_host_order)
{
    struct scene s;
    char text[512];
    scene_init(&s, 5, 5, 0);
    scene_join_as(&s, "node10", 1, -1);
    scene_join_as(&s, "node9", 2, -1);
    scene_join_as(&s, "z", 4, 0);
    scene_join_as(&s, "y", 3, 3);
    scene_join_as(&s, "node1", 1, -1);
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "z:0 y:4 node1:7 node9:8 node10:10");
    scene_deinit(&s);
}

Test(ranks, newcomers_take_holes_and_more_holes_are_closed)
{
    struct scene s;
    char text[512];
    scene_init(&s, 1, 5, 9);
    scene_run(&s, "a b c d e");
    scene_cut(&s, "b");
    scene_cut(&s, "c");
    scene_cut(&s, "d");
    scene_at(&s, s.now_ms + 200, true);
    scene_join(&s, "x");
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "a:0 x:2 e:4");
    scene_deinit(&s);
}

Test(ranks, a_node_that_returns_gets_its_own_place_back)
{
    struct scene s;
    char text[512];
    scene_init(&s, 4, 4, 9);
    scene_run(&s, "a b c d");
    scene_cut(&s, "b");
    scene_cut(&s, "c");
    scene_at(&s, 1000, true);
    scene_new_self(&s, "c");
    scene_join(&s, "c");
    scene_join(&s, "aa"); /* by its name it would come before c */
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "a:0 aa:2 c:4 d:6");
    scene_deinit(&s);
}

Test(ranks, a_newcomer_prefers_a_hole_of_its_own_size)
{
    struct scene s;
    char text[512];
    scene_init(&s, 4, 4, 9);
    scene_join_as(&s, "a", 1, -1);
    scene_join_as(&s, "b", 2, -1);
    scene_join_as(&s, "c", 3, -1);
    scene_join_as(&s, "d", 1, -1);
    scene_all_prepared(&s);
    scene_cut(&s, "b");
    scene_cut(&s, "c");
    scene_at(&s, 1000, true);
    scene_join_as(&s, "x", 3, -1);
    scene_join_as(&s, "y", 2, -1);
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "a:0 y:1 x:3 d:6");
    scene_deinit(&s);
}

/* ---- whose state ---- */

static const struct ct_rdzv_roster *recover(struct scene *s, const char *who, uint64_t lineage,
                                            uint64_t step)
{
    scene_prepared(s, who, lineage, step);
    return ct_rdzv_roster(s->job);
}

Test(ranks, the_most_advanced_survivor_gives_its_state)
{
    struct scene s;
    scene_init(&s, 3, 3, 9);
    scene_run(&s, "a b c");
    scene_fail(&s, "b", 1, 0);
    (void)recover(&s, "a", 1, 41);
    (void)recover(&s, "b", 0, 0);
    const struct ct_rdzv_roster *roster = recover(&s, "c", 1, 42);
    cr_assert_eq(roster->generation, 2);
    cr_assert_eq(roster->base_node, 2);
    cr_assert_eq(roster->base_step, 42);
    cr_assert_eq(roster->lineage, 1);
    scene_deinit(&s);
}

Test(ranks, a_longer_but_dead_history_never_wins)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_run(&s, "a b");
    scene_cut(&s, "b"); /* it goes on alone in round 1 and comes back with step 90 */
    scene_at(&s, 200, true);
    (void)recover(&s, "a", 1, 40);
    scene_join(&s, "b");
    scene_at(&s, 20000, true);
    scene_prepared(&s, "b", 1, 90);
    const struct ct_rdzv_roster *roster = recover(&s, "a", 2, 50);
    cr_assert_eq(roster->generation, 3);
    cr_assert_eq(roster->places[roster->base_node].host[0], 'a');
    cr_assert_eq(roster->base_step, 50);
    scene_deinit(&s);
}

Test(ranks, a_round_that_never_acted_leaves_the_state_before_it_valid)
{
    struct scene s;
    scene_init(&s, 2, 2, 9);
    scene_run(&s, "a b");
    scene_fail(&s, "b", 1, 0);
    (void)recover(&s, "a", 1, 10);
    (void)recover(&s, "b", 0, 0);
    scene_fail(&s, "b", 1, 0); /* before it had a's state: a still has that of round 1 */
    (void)recover(&s, "a", 1, 10);
    const struct ct_rdzv_roster *roster = recover(&s, "b", 0, 0);
    cr_assert_eq(roster->generation, 3);
    cr_assert_eq(roster->base_node, 0);
    cr_assert_eq(roster->lineage, 1);
    scene_deinit(&s);
}

Test(ranks, a_copy_that_only_some_made_leaves_the_state_it_came_from_valid)
{
    struct scene s;
    scene_init(&s, 2, 3, 9);
    scene_run(&s, "a b c");
    scene_fail(&s, "c", 1, 0);
    (void)recover(&s, "a", 1, 10);
    (void)recover(&s, "b", 1, 10);
    (void)recover(&s, "c", 1, 10);
    scene_fail(&s, "c", 1, 0); /* a alone had taken the base of round 2 */
    (void)recover(&s, "a", 2, 10);
    (void)recover(&s, "b", 1, 10);
    cr_assert_eq(recover(&s, "c", 1, 10)->lineage, 2);
    scene_cut(&s, "a");
    scene_at(&s, s.now_ms + 200, true);
    (void)recover(&s, "b", 1, 10);
    const struct ct_rdzv_roster *roster = recover(&s, "c", 1, 10);
    cr_assert_eq(roster->generation, 4);
    cr_assert_eq(roster->lineage, 1);
    cr_assert_eq(roster->base_step, 10);
    scene_deinit(&s);
}

Test(ranks, without_a_holder_the_round_starts_from_the_checkpoint)
{
    struct scene s;
    scene_init(&s, 2, 2, 9);
    scene_run(&s, "a b");
    scene_fail(&s, "b", 1, 0);
    (void)recover(&s, "a", 0, 0);
    const struct ct_rdzv_roster *roster = recover(&s, "b", 0, 0);
    cr_assert_eq(roster->base_node, -1);
    cr_assert_eq(roster->lineage, 0);
    scene_deinit(&s);
}

Test(ranks, different_states_of_one_step_end_the_job)
{
    struct scene s;
    scene_init(&s, 2, 2, 9);
    scene_run(&s, "a b");
    scene_fail(&s, "b", 1, 0);
    scene_prepared(&s, "a", 1, 10);
    struct scene_host *b = scene_host(&s, "b");
    struct ct_rdzv_event event = {.kind = CT_RDZV_ON_PREPARED,
                                  .member = b->member,
                                  .link = b->link,
                                  .seq = ++b->seq,
                                  .generation = 2,
                                  .lineage = 1,
                                  .step = 10,
                                  .digest = 4711};
    struct ct_rdzv_actions actions;
    ct_rdzv_step(s.job, s.now_ms, &event, &actions);
    cr_assert_eq(ct_rdzv_result(s.job)->code, CT_EDIVERGED);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 93);
    scene_deinit(&s);
}
