/* A rendezvous that knows less than its nodes, because those who held the record are dead. */
#include "scene.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(rebuild, .timeout = 60);

/* A node that was in round `acting`, and has promised `promised`. */
static void survivor(struct scene *s, const char *name, uint64_t promised, uint64_t acting)
{
    struct scene_host *host = scene_host(s, name);

    host->promised = promised;
    host->acting = host->begun = acting;
    host->orphan = true;
    scene_join(s, name);
}

static void begin(struct scene *s, uint32_t nodes_min, uint32_t nodes_max)
{
    scene_init(s, nodes_min, nodes_max, 3);
    ct_rdzv_set_rebuild(s->job, CT_RDZV_REBUILD_OF_ORPHAN);
}

static const struct ct_rdzv_roster *roster(const struct scene *s)
{
    return ct_rdzv_roster(s->job);
}

Test(rebuild, the_highest_generation_and_the_newest_state_win)
{
    struct scene s;

    begin(&s, 2, 2);
    survivor(&s, "a", 5, 5);
    cr_assert_eq(ct_rdzv_generation(s.job), 5);
    survivor(&s, "b", 6, 5);
    cr_assert_eq(ct_rdzv_generation(s.job), 7, "the next one is being made");
    scene_prepared(&s, "a", 5, 40);
    scene_prepared(&s, "b", 5, 41);
    cr_assert_eq(roster(&s)->generation, 7);
    cr_assert_eq(roster(&s)->lineage, 5);
    cr_assert_eq(roster(&s)->base_step, 41);
    scene_deinit(&s);
}

Test(rebuild, a_newer_lineage_wins_over_more_steps_of_an_older_one)
{
    struct scene s;

    begin(&s, 2, 2);
    survivor(&s, "a", 6, 6);
    survivor(&s, "b", 5, 5);
    scene_prepared(&s, "a", 6, 40);
    scene_prepared(&s, "b", 5, 90);
    cr_assert_eq(roster(&s)->lineage, 6);
    cr_assert_eq(roster(&s)->base_step, 40);
    scene_deinit(&s);
}

Test(rebuild, nothing_is_founded_a_second_time_while_a_holder_may_live)
{
    struct scene s;

    begin(&s, 1, 2);
    scene_host(&s, "a")->promised = 5;
    scene_join(&s, "a");
    cr_assert_eq(scene_host(&s, "a")->refused, CT_EFENCED);
    cr_assert_gt(scene_host(&s, "a")->retry_ms, 0, "its proof may come");
    cr_assert_eq(ct_rdzv_generation(s.job), 0);
    ct_rdzv_set_rebuild(s.job, CT_RDZV_REBUILD_NEVER);
    survivor(&s, "b", 5, 5);
    cr_assert_eq(scene_host(&s, "b")->refused, CT_EFENCED);
    cr_assert_eq(scene_host(&s, "b")->retry_ms, 0);
    scene_deinit(&s);
}

/* "b" was in a round, and its holders may live: "a" could begin one alone. */
Test(rebuild, no_first_round_is_begun_while_a_node_that_was_in_one_asks)
{
    struct scene s;
    char text[512];

    begin(&s, 1, 3);
    scene_join(&s, "a");
    scene_host(&s, "b")->promised = 5;
    scene_join(&s, "b");
    scene_at(&s, s.now_ms + 2 * (uint64_t)s.params.lease_ms + 4000, true);
    cr_assert_eq(ct_rdzv_generation(s.job), 0, "its proof may come");
    ct_rdzv_describe(s.job, text, sizeof(text));
    cr_assert_not_null(strstr(text, "ctrun takeover"), "%s", text);
    scene_at(&s, s.now_ms + 2000, true);
    cr_assert_eq(ct_rdzv_generation(s.job), 1, "it has asked no more");
    scene_deinit(&s);
}

Test(rebuild, what_a_minority_held_is_brought_up_to_date)
{
    struct scene s;

    begin(&s, 2, 3);
    scene_run(&s, "a b");
    survivor(&s, "c", 3, 3);
    cr_assert_eq(scene_host(&s, "c")->refused, CT_EFENCED, "a whole record has all");
    ct_rdzv_set_rebuild(s.job, CT_RDZV_REBUILD_OF_ALL);
    survivor(&s, "c", 3, 3);
    cr_assert_eq(ct_rdzv_generation(s.job), 4);
    scene_prepared(&s, "a", 1, 7);
    scene_prepared(&s, "b", 1, 7);
    scene_prepared(&s, "c", 3, 9);
    cr_assert_eq(roster(&s)->generation, 4);
    cr_assert_eq(roster(&s)->count, 3);
    cr_assert_eq(roster(&s)->base_step, 9);
    scene_deinit(&s);
}

Test(rebuild, a_round_that_is_being_made_begins_again_above_it)
{
    struct scene s;

    begin(&s, 2, 3);
    survivor(&s, "a", 2, 2);
    survivor(&s, "b", 2, 2);
    scene_at(&s, s.params.last_call_ms + 1, true); /* the last call is over */
    cr_assert_eq(ct_rdzv_generation(s.job), 3);
    scene_prepared(&s, "a", 2, 20);
    survivor(&s, "c", 5, 5);
    cr_assert_eq(ct_rdzv_generation(s.job), 6);
    cr_assert_eq(scene_host(&s, "a")->promised, 6, "asked anew");
    scene_all_prepared(&s);
    cr_assert_eq(roster(&s)->generation, 6);
    cr_assert_eq(roster(&s)->count, 3);
    scene_deinit(&s);
}

/* Its number was reserved here anew, for those who held its roster are dead. */
Test(rebuild, a_round_that_only_a_node_knows_is_not_made_again_with_its_number)
{
    struct scene s;

    begin(&s, 2, 4);
    scene_run(&s, "a b");
    ct_rdzv_set_rebuild(s.job, CT_RDZV_REBUILD_OF_ALL);
    scene_fail(&s, "a", 1, 0);
    cr_assert_eq(ct_rdzv_generation(s.job), 2);
    survivor(&s, "c", 2, 2);
    cr_assert_eq(ct_rdzv_generation(s.job), 3);
    scene_deinit(&s);
}

Test(rebuild, while_a_record_is_under_way_a_node_is_told_to_come_again)
{
    struct scene s;

    begin(&s, 1, 2);
    survivor(&s, "a", 2, 2);
    scene_disk(&s, DISK_SLOW);
    scene_at(&s, s.params.last_call_ms + 1, true);
    survivor(&s, "b", 5, 5);
    cr_assert_eq(scene_host(&s, "b")->refused, CT_EFENCED);
    cr_assert_gt(scene_host(&s, "b")->retry_ms, 0);
    scene_disk(&s, DISK_GOOD);
    survivor(&s, "b", 5, 5);
    cr_assert_eq(ct_rdzv_generation(s.job), 6);
    scene_deinit(&s);
}

Test(rebuild, a_job_that_has_ended_stays_so)
{
    struct scene s;

    begin(&s, 1, 2);
    scene_run(&s, "a b");
    scene_done(&s, "a");
    scene_done(&s, "b");
    survivor(&s, "c", 5, 5);
    cr_assert_eq(scene_host(&s, "c")->refused, CT_EFENCED);
    scene_deinit(&s);
}

Test(rebuild, another_that_goes_on_with_it_knows_that_it_was_rebuilt)
{
    struct scene s;

    begin(&s, 1, 1);
    ct_rdzv_restore_reserve(s.job, 7, 0, false, true);
    ct_rdzv_restored(s.job);
    survivor(&s, "a", 7, 5);
    scene_prepared(&s, "a", 5, 40);
    cr_assert_eq(roster(&s)->generation, 8);
    cr_assert_eq(roster(&s)->lineage, 5);
    cr_assert_eq(roster(&s)->base_step, 40);
    scene_deinit(&s);
}

/* Taken over: "c" knows of a round that only the dead held, and comes a second later. */
Test(rebuild, after_a_takeover_no_roster_is_made_before_nodes_could_tell_what_they_know)
{
    struct scene s;
    uint64_t taken_ms;

    begin(&s, 2, 3);
    scene_run(&s, "a b");
    ct_rdzv_set_rebuild(s.job, CT_RDZV_REBUILD_OF_ALL);
    taken_ms = s.now_ms;
    ct_rdzv_hear_for(s.job, 3000);
    scene_fail(&s, "a", 1, 0); /* a round is made */
    scene_prepared(&s, "a", 1, 7);
    scene_prepared(&s, "b", 1, 7);
    scene_at(&s, taken_ms + 1000, true);
    cr_assert_eq(roster(&s)->generation, 1, "all have promised, and the next one is not made");
    survivor(&s, "c", 2, 2);
    cr_assert_eq(ct_rdzv_generation(s.job), 3, "round 2 is the dead ones'");
    scene_all_prepared(&s);
    cr_assert_eq(roster(&s)->generation, 1);
    scene_at(&s, taken_ms + 2999, true);
    cr_assert_eq(roster(&s)->generation, 1);
    scene_at(&s, taken_ms + 3001, true);
    cr_assert_eq(roster(&s)->generation, 3);
    cr_assert_eq(roster(&s)->count, 3);
    scene_deinit(&s);
}
