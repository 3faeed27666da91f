/* Leases: who is lost, and whose stall costs nobody his place; transcripts of virtual time
 * (scene.h). */
#include "scene.h"

#include <criterion/criterion.h>

TestSuite(leases, .timeout = 30);

Test(leases, a_closed_connection_that_does_not_come_back_is_a_lost_node)
{
    struct scene s;
    scene_init(&s, 2, 3, 1);
    scene_run(&s, "a b c");
    scene_at(&s, 5000, true);
    scene_cut(&s, "b");
    scene_at(&s, 6000, true);
    scene_prepared(&s, "a", 0, 0);
    scene_prepared(&s, "c", 0, 0);
    scene_expect(&s, "[ 5000] > b DISCONNECT\n"
                     "[ 5100] < all PREPARE g2 (a node was lost)\n"
                     "[ 6000] < a PREPARE g2 (a node was lost)\n"
                     "[ 6000] < c PREPARE g2 (a node was lost)\n"
                     "[ 6000] > a PREPARED g2 lineage=0 step=0\n"
                     "[ 6000] > c PREPARED g2 lineage=0 step=0\n"
                     "[ 6000] < all ROUND g2 world=4 [a:0 c:2]\n");
    cr_assert_eq(ct_rdzv_restarts(s.job), 1);
    scene_deinit(&s);
}

Test(leases, a_connection_that_comes_back_in_time_disturbs_nobody)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_cut(&s, "b");
    scene_at(&s, 5050, true);
    scene_join(&s, "b");
    scene_at(&s, 20000, true);
    scene_expect(&s, "[ 5000] > b DISCONNECT\n"
                     "[ 5050] > b JOIN slots=2\n");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    cr_assert_eq(scene_host(&s, "b")->acting, 1);
    scene_deinit(&s);
}

Test(leases, a_silent_node_is_lost_when_its_lease_is_over)
{
    struct scene s;
    scene_init(&s, 1, 2, 1);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_silence(&s, "b");
    scene_at(&s, 11000, true);
    scene_expect(&s, "[10000] < all PREPARE g2 (a node was lost)\n"
                     "[11000] < a PREPARE g2 (a node was lost)\n");
    scene_deinit(&s);
}

Test(leases, a_stall_of_the_daemon_itself_costs_nobody_its_place)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    s.now_ms = 65000; /* the daemon was stopped for a minute; heartbeats wait in its sockets */
    scene_heartbeat(&s, "a");
    scene_at(&s, 65900, false);
    scene_heartbeat(&s, "b");
    scene_at(&s, 80000, true);
    scene_expect(&s, "");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_deinit(&s);
}

/* The loop of a daemon that stands still from `at_ms` on, `lasts_ms` at a time, and wakes between:
 * what arrived meanwhile is read, then comes the tick. Its nodes stand still with it, or do not. */
static void stall(struct scene *s, uint64_t at_ms, uint64_t lasts_ms, int times, bool all)
{
    const struct ct_rdzv_event tick = {.kind = CT_RDZV_ON_TICK};
    struct ct_rdzv_actions actions;
    scene_at(s, at_ms, true);
    for (int i = 0; i < times; i++) {
        s->now_ms += lasts_ms;
        if (!all)
            scene_heartbeat(s, "a");
        if (!all || i + 1 == times)
            scene_heartbeat(s, "b");
        ct_rdzv_step(s->job, s->now_ms, &tick, &actions);
        cr_assert_eq(actions.count, 0, "%s", actions.list[0].text);
        s->now_ms += 2;
    }
}

Test(leases, a_stall_of_any_length_at_any_phase_in_any_number_of_pieces_costs_nobody_its_place)
{
    for (uint64_t lasts_ms = 50; lasts_ms < 12000; lasts_ms += 50 + lasts_ms / 8) {
        for (uint64_t phase_ms = 0; phase_ms < 1000; phase_ms += 90) {
            for (int mode = 0; mode < 4; mode++) {
                struct scene s;
                scene_init(&s, 2, 2, 0);
                s.quiet = true;
                scene_run(&s, "a b");
                stall(&s, 5000 + phase_ms, lasts_ms, mode < 2 ? 1 : 3, mode % 2 == 1);
                scene_at(&s, s.now_ms + 9000, true);
                cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING, "%lu ms at %lu, mode %d",
                             (unsigned long)lasts_ms, (unsigned long)phase_ms, mode);
                scene_deinit(&s);
            }
        }
    }
}

Test(leases, a_node_that_died_during_the_daemons_own_stall_is_lost_after_it)
{
    struct scene s;
    scene_init(&s, 1, 2, 1);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_silence(&s, "b");
    s.now_ms = 25000;
    scene_heartbeat(&s, "a");
    scene_at(&s, 31000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_deinit(&s);
}

Test(leases, a_connection_that_closed_during_the_daemons_own_stall_has_a_lease_to_come_back)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    s.now_ms = 65000; /* the daemon was stopped; its agents gave the connections up meanwhile */
    scene_cut(&s, "a");
    scene_cut(&s, "b");
    scene_at(&s, 69000, false);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_at(&s, 75000, false); /* nobody came: then they are lost */
    cr_assert_neq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_deinit(&s);
}

Test(leases, when_all_are_silent_at_once_the_daemon_is_cut_off_and_nobody_is_lost)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_at(&s, 60000, false); /* its cable is out */
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_cut(&s, "a"); /* the cable is back: an end that was on its way */
    scene_at(&s, 60300, false);
    scene_join(&s, "b");
    scene_at(&s, 60900, false);
    scene_join(&s, "a");
    scene_at(&s, 90000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_deinit(&s);
}

Test(leases,
     a_connection_that_closed_while_the_daemon_was_cut_off_has_more_than_a_lease_to_come_back)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_at(&s, 60000, false);
    scene_cut(&s, "a"); /* the cable is back */
    scene_at(&s, 60300, false);
    scene_join(&s, "b");
    for (int at = 61000; at <= 68000; at += 1000) {
        scene_at(&s, (uint64_t)at, false);
        scene_heartbeat(&s, "b");
    }
    scene_join(&s, "a"); /* its network tries again ever more rarely */
    scene_at(&s, 90000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_deinit(&s);
}

Test(leases, when_the_daemon_is_cut_off_for_most_of_a_lease_the_first_who_is_heard_costs_nobody_his)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_at(&s, 9990, false);
    s.now_ms = 10001; /* what waited in the network comes in one burst, b's behind a's */
    scene_heartbeat(&s, "a");
    scene_at(&s, 10900, false);
    scene_heartbeat(&s, "b");
    scene_at(&s, 30000, true);
    scene_expect(&s, "");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_deinit(&s);
}

Test(leases, when_nobody_is_heard_for_good_all_are_lost)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_at(&s, 700000, false);
    cr_assert_eq(ct_rdzv_result(s.job)->code, CT_ENODE_LOST);
    scene_deinit(&s);
}
