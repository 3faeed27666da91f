/* The rounds of a job, as transcripts of virtual time (see scene.h). */
#include "scene.h"
#include "wire/failure.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(core, .timeout = 30);

/* ---- forming ---- */

Test(core, a_static_job_starts_at_once_when_all_nodes_are_here)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_join(&s, "b");
    scene_at(&s, 100, false);
    scene_join(&s, "a");
    scene_prepared(&s, "b", 0, 0);
    scene_at(&s, 120, false);
    scene_prepared(&s, "a", 0, 0);
    scene_at(&s, 900, true);
    scene_done(&s, "a");
    scene_done(&s, "b");
    scene_expect(&s, "[    0] > b JOIN slots=2\n"
                     "[  100] > a JOIN slots=2\n"
                     "[  100] < all PREPARE g1 (first round)\n"
                     "[  100] > b PREPARED g1 lineage=0 step=0\n"
                     "[  120] > a PREPARED g1 lineage=0 step=0\n"
                     "[  120] < all ROUND g1 world=4 [a:0 b:2]\n"
                     "[  900] > a DONE g1\n"
                     "[  900] > b DONE g1\n"
                     "[  900] < all CLOSE status=0\n");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    scene_deinit(&s);
}

Test(core, an_elastic_job_waits_for_the_last_call_after_the_last_newcomer)
{
    struct scene s;
    scene_init(&s, 2, 4, 0);
    scene_join(&s, "a");
    scene_at(&s, 1000, false);
    scene_join(&s, "b");
    scene_at(&s, 1200, false);
    scene_join(&s, "c");
    scene_at(&s, 2000, false);
    scene_expect(&s, "[    0] > a JOIN slots=2\n"
                     "[ 1000] > b JOIN slots=2\n"
                     "[ 1200] > c JOIN slots=2\n"
                     "[ 1500] < all PREPARE g1 (first round)\n");
    scene_deinit(&s);
}

Test(core, an_elastic_job_starts_at_once_at_its_largest)
{
    struct scene s;
    scene_init(&s, 1, 2, 0);
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_expect(&s, "[    0] > a JOIN slots=2\n"
                     "[    0] > b JOIN slots=2\n"
                     "[    0] < all PREPARE g1 (first round)\n");
    scene_deinit(&s);
}

Test(core, a_node_that_joins_while_others_promise_is_asked_too)
{
    struct scene s;
    scene_init(&s, 1, 3, 0);
    scene_join(&s, "a");
    scene_at(&s, 400, false);
    scene_join(&s, "b");
    scene_prepared(&s, "a", 0, 0);
    scene_prepared(&s, "b", 0, 0);
    scene_expect(&s, "[    0] > a JOIN slots=2\n"
                     "[  300] < all PREPARE g1 (first round)\n"
                     "[  400] > b JOIN slots=2\n"
                     "[  400] < b PREPARE g1 (first round)\n"
                     "[  400] > a PREPARED g1 lineage=0 step=0\n"
                     "[  400] > b PREPARED g1 lineage=0 step=0\n"
                     "[  400] < all ROUND g1 world=4 [a:0 b:2]\n");
    scene_deinit(&s);
}

Test(core, a_node_lost_before_the_first_round_costs_nothing)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_prepared(&s, "a", 0, 0);
    scene_cut(&s, "b");
    scene_at(&s, 1000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_LOBBY);
    scene_new_self(&s, "b");
    scene_join(&s, "b");
    scene_all_prepared(&s);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    cr_assert_eq(ct_rdzv_restarts(s.job), 0);
    cr_assert_eq(ct_rdzv_generation(s.job), 2);
    scene_deinit(&s);
}

Test(core, a_job_that_never_gets_its_nodes_ends_and_names_who_is_missing)
{
    struct scene s;
    scene_init(&s, 4, 4, 0);
    scene_join_as(&s, "a", 1, 0);
    scene_join_as(&s, "c", 1, 2);
    scene_at(&s, 60000, true);
    scene_expect(&s, "[    0] > a JOIN slots=1 node_rank=0\n"
                     "[    0] > c JOIN slots=1 node_rank=2\n"
                     "[60000] < all CLOSE status=75: gave up after 60.000 s: job demo: waiting "
                     "for 2 more nodes (2 of 4 joined: a, c); node rank 1, 3 missing; start the "
                     "missing "
                     "nodes or raise --join_timeout\n");
    scene_deinit(&s);
}

/* ---- failures ---- */

Test(core, a_failure_restarts_all_nodes_and_is_charged_once)
{
    struct scene s;
    scene_init(&s, 2, 2, 1);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_fail(&s, "b", 1, 0);
    scene_fail(&s, "a", 1, 0); /* its consequence on the other node */
    scene_prepared(&s, "a", 0, 0);
    scene_prepared(&s, "b", 0, 0);
    scene_at(&s, 9000, true);
    scene_fail(&s, "b", -1, 11);
    scene_at(&s, 9000 + CT_RDZV_VERDICT_MS, true);
    scene_expect(&s, "[ 5000] > b FAILURE g1 rank=1 status=1 signal=0\n"
                     "[ 5000] < all PREPARE g2 (a worker failed)\n"
                     "[ 5000] > a FAILURE g1 rank=1 status=1 signal=0\n"
                     "[ 5000] > a PREPARED g2 lineage=0 step=0\n"
                     "[ 5000] > b PREPARED g2 lineage=0 step=0\n"
                     "[ 5000] < all ROUND g2 world=4 [a:0 b:2]\n"
                     "[ 9000] > b FAILURE g2 rank=1 status=-1 signal=11\n"
                     "[ 9200] < all CLOSE status=139: worker died\n");
    cr_assert_eq(ct_rdzv_restarts(s.job), 1);
    scene_deinit(&s);
}

Test(core, the_first_failure_of_the_last_incident_is_the_root_cause)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_fail(&s, "b", 7, 0);
    scene_fail(&s, "a", 1, 0);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 7);
    cr_assert_str_eq(ct_rdzv_result(s.job)->cause.host, "b");
    scene_deinit(&s);
}

Test(core, below_min_the_survivors_wait_for_a_replacement_that_takes_the_hole)
{
    struct scene s;
    scene_init(&s, 3, 3, 1);
    scene_run(&s, "a b c");
    scene_at(&s, 5000, true);
    scene_cut(&s, "b");
    scene_at(&s, 6000, true);
    scene_join(&s, "x");
    scene_all_prepared(&s);
    scene_expect(&s, "[ 5000] > b DISCONNECT\n"
                     "[ 5100] < all REVOKE g1 (a node was lost)\n"
                     "[ 6000] > x JOIN slots=2\n"
                     "[ 6000] < all PREPARE g3 (a node was lost)\n"
                     "[ 6000] > a PREPARED g3 lineage=0 step=0\n"
                     "[ 6000] > c PREPARED g3 lineage=0 step=0\n"
                     "[ 6000] > x PREPARED g3 lineage=0 step=0\n"
                     "[ 6000] < all ROUND g3 world=6 [a:0 x:2 c:4]\n");
    cr_assert_eq(ct_rdzv_restarts(s.job), 1);
    scene_deinit(&s);
}

Test(core, a_replacement_that_never_comes_ends_the_job_with_both_reasons)
{
    struct scene s;
    scene_init(&s, 2, 2, 1);
    scene_run(&s, "a b");
    scene_cut(&s, "b");
    scene_at(&s, 70000, true);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 75);
    const char *text = ct_rdzv_result(s.job)->cause.text;
    cr_assert_not_null(strstr(text, "1 of 2 joined: a); gone b"), "%s", text);
    cr_assert_not_null(strstr(text, "node 1 (host b) was lost: its connection closed"), "%s", text);
    scene_deinit(&s);
}

Test(core, many_losses_at_once_cost_one_restart_and_one_generation)
{
    struct scene s;
    scene_init(&s, 2, 6, 1);
    scene_run(&s, "a b c d e f");
    scene_cut(&s, "b");
    scene_at(&s, 20, true);
    scene_cut(&s, "c");
    scene_at(&s, 40, true);
    scene_cut(&s, "f");
    scene_at(&s, 1000, true);
    scene_all_prepared(&s);
    char text[512];
    cr_assert_str_eq(scene_roster(&s, text), "a:0 d:2 e:4");
    cr_assert_eq(ct_rdzv_restarts(s.job), 1);
    cr_assert_eq(ct_rdzv_generation(s.job), 2);
    scene_deinit(&s);
}

Test(core, a_node_that_does_not_stop_its_workers_is_given_up)
{
    struct scene s;
    scene_init(&s, 1, 2, 1);
    scene_run(&s, "a b");
    scene_fail(&s, "a", 1, 0);
    scene_prepared(&s, "a", 0, 0);
    scene_forget(&s);
    scene_at(&s, 29999, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_at(&s, 30000, true);
    char text[512];
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    cr_assert_str_eq(scene_roster(&s, text), "a:0");
    cr_assert_eq(ct_rdzv_restarts(s.job), 1);
    scene_deinit(&s);
}

Test(core, a_worker_that_fell_with_its_peer_is_not_the_root_cause)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_cut(&s, "b"); /* its agent was killed, and a's worker saw its peer go */
    const struct ct_wire_failure failure = {
        .code = CT_EREVOKED, .rank = 0, .status = 75, .text = ""};
    struct scene_host *a = scene_host(&s, "a");
    struct ct_rdzv_event event = {.kind = CT_RDZV_ON_FAILURE,
                                  .member = a->member,
                                  .link = a->link,
                                  .seq = ++a->seq,
                                  .generation = 1,
                                  .failure = &failure};
    struct ct_rdzv_actions actions;
    ct_rdzv_step(s.job, s.now_ms, &event, &actions);
    scene_at(&s, s.now_ms + CT_RDZV_VERDICT_MS, true);
    cr_assert_eq(ct_rdzv_result(s.job)->code, CT_ENODE_LOST);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 79);
    cr_assert_str_eq(ct_rdzv_result(s.job)->cause.host, "b");
    scene_deinit(&s);
}

Test(core, a_failure_that_would_repeat_itself_ends_the_job_whatever_the_budget)
{
    struct scene s;
    scene_init(&s, 2, 2, 9);
    scene_run(&s, "a b");
    scene_host(&s, "b")->fatal = true;
    scene_fail(&s, "b", 2, 0);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 2);
    cr_assert_eq(ct_rdzv_restarts(s.job), 0);
    scene_deinit(&s);
}

Test(core, a_failure_that_was_the_same_again_and_again_ends_the_job_with_93)
{
    struct scene s;
    scene_init(&s, 2, 2, 9);
    scene_run(&s, "a b");
    scene_host(&s, "b")->fatal = CT_FAILURE_REPEATED;
    scene_fail(&s, "b", 1, 0);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 93);
    cr_assert_eq(ct_rdzv_result(s.job)->code, CT_EREPEATED);
    scene_deinit(&s);
}

/* ---- growing and leaving ---- */

Test(core, newcomers_are_collected_and_taken_in_at_a_step_boundary_without_charge)
{
    struct scene s;
    scene_init(&s, 1, 4, 0);
    scene_run(&s, "m");
    scene_at(&s, 20100, true);
    scene_join(&s, "b");
    scene_at(&s, 21000, true);
    scene_join(&s, "a");
    scene_at(&s, 22500, true);
    scene_all_prepared(&s);
    scene_expect(&s, "[20100] > b JOIN slots=2\n"
                     "[21000] > a JOIN slots=2\n"
                     "[22100] < all PREPARE g2 (nodes joined, at a step boundary)\n"
                     "[22500] > m PREPARED g2 lineage=0 step=0\n"
                     "[22500] > b PREPARED g2 lineage=0 step=0\n"
                     "[22500] > a PREPARED g2 lineage=0 step=0\n"
                     "[22500] < all ROUND g2 world=6 [m:0 a:2 b:4]\n");
    cr_assert_eq(ct_rdzv_restarts(s.job), 0);
    scene_deinit(&s);
}

Test(core, workers_that_finish_on_the_way_to_a_boundary_end_the_job)
{
    struct scene s;
    scene_init(&s, 1, 3, 0);
    scene_run(&s, "a b");
    scene_at(&s, 20000, true);
    scene_join(&s, "c");
    scene_at(&s, 22000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_done(&s, "a");
    scene_prepared(&s, "a", 0, 0);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_done(&s, "b");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 0);
    scene_deinit(&s);
}

Test(core, growth_keeps_its_distance_from_the_round_before)
{
    struct scene s;
    scene_init(&s, 1, 4, 0);
    scene_run(&s, "a");
    uint64_t began = s.now_ms;
    scene_join(&s, "b");
    scene_at(&s, began + 5 * s.params.grow_ms - 1, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_at(&s, began + 5 * s.params.grow_ms, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_deinit(&s);
}

Test(core, a_failure_during_growth_makes_it_urgent_and_is_charged)
{
    struct scene s;
    scene_init(&s, 1, 3, 1);
    scene_run(&s, "a b");
    scene_at(&s, 20000, true);
    scene_join(&s, "c");
    scene_at(&s, 22000, true);
    scene_forget(&s);
    scene_fail(&s, "b", 1, 0);
    scene_expect(&s, "[22000] > b FAILURE g1 rank=1 status=1 signal=0\n"
                     "[22000] < all PREPARE g2 (a worker failed)\n");
    cr_assert_eq(ct_rdzv_restarts(s.job), 1);
    scene_deinit(&s);
}

Test(core, spares_beyond_max_wait_and_replace_at_once)
{
    struct scene s;
    scene_init(&s, 1, 2, 1);
    scene_run(&s, "a b");
    scene_join(&s, "spare");
    scene_at(&s, 30000, true);
    scene_cut(&s, "a");
    scene_at(&s, 30100, true);
    scene_all_prepared(&s);
    scene_expect(&s, "[    0] > spare JOIN slots=2\n"
                     "[30000] > a DISCONNECT\n"
                     "[30100] < all PREPARE g2 (a node was lost)\n"
                     "[30100] > b PREPARED g2 lineage=0 step=0\n"
                     "[30100] > spare PREPARED g2 lineage=0 step=0\n"
                     "[30100] < all ROUND g2 world=4 [spare:0 b:2]\n");
    scene_deinit(&s);
}

Test(core, a_node_may_leave_in_good_order)
{
    struct scene s;
    scene_init(&s, 1, 3, 0);
    scene_run(&s, "a b c");
    scene_at(&s, 4000, true);
    scene_leave(&s, "b", CT_RDZV_LEAVE_DRAIN);
    scene_prepared(&s, "a", 0, 0);
    scene_prepared(&s, "b", 0, 0);
    scene_cut(&s, "b");
    scene_prepared(&s, "c", 0, 0);
    scene_expect(&s, "[ 4000] > b LEAVE drain\n"
                     "[ 4000] < all PREPARE g2 (a node leaves, at a step boundary)\n"
                     "[ 4000] > a PREPARED g2 lineage=0 step=0\n"
                     "[ 4000] > b PREPARED g2 lineage=0 step=0\n"
                     "[ 4000] < b RELEASE\n"
                     "[ 4000] > b DISCONNECT\n"
                     "[ 4000] > c PREPARED g2 lineage=0 step=0\n"
                     "[ 4000] < all ROUND g2 world=4 [a:0 c:2]\n");
    cr_assert_eq(ct_rdzv_restarts(s.job), 0);
    scene_deinit(&s);
}

Test(core, the_user_stops_the_whole_job_from_any_node)
{
    struct scene s;
    scene_init(&s, 2, 2, 3);
    scene_run(&s, "a b");
    scene_leave(&s, "b", CT_RDZV_LEAVE_STOP);
    scene_expect(&s, "[    0] > b LEAVE stop\n"
                     "[    0] < all CLOSE status=130: stopped by the user on host b\n");
    scene_deinit(&s);
}

Test(core, a_job_that_is_to_be_queued_again_ends_with_75_on_all_nodes)
{
    struct scene s;
    scene_init(&s, 1, 2, 3);
    scene_run(&s, "a b");
    scene_leave(&s, "a", CT_RDZV_LEAVE_REQUEUE);
    scene_expect(&s, "[    0] > a LEAVE requeue\n"
                     "[    0] < all CLOSE status=75: stopped to be queued again on host a\n");
    scene_deinit(&s);
}

Test(core, a_host_that_is_lost_again_and_again_is_kept_out_of_running_rounds_for_a_while)
{
    struct scene s;
    scene_init(&s, 1, 2, 9);
    scene_terms(&s, 0, 0);
    s.quiet = true;
    scene_run(&s, "a b");
    for (int i = 0; i < 3; i++) {
        uint64_t now = s.now_ms + 60000;
        scene_at(&s, now, true);
        scene_cut(&s, "b");
        scene_at(&s, now + 200, true);
        scene_all_prepared(&s);
        scene_new_self(&s, "b");
        scene_join(&s, "b");
        /* 0, 10, 20 s after its first, second and third loss; growth has its own 10 s */
        scene_at(&s, now + 12000, true);
        scene_all_prepared(&s);
        cr_assert_eq(ct_rdzv_roster(s.job)->count, i < 2 ? 2 : 1, "loss %d", i);
    }
    scene_at(&s, s.now_ms + 12000, true);
    scene_all_prepared(&s);
    cr_assert_eq(ct_rdzv_roster(s.job)->count, 2);
    scene_deinit(&s);
}
