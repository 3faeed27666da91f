/* What a job does with what should not be: wrong nodes, full disks, late and repeated messages. */
#include "base/str.h"
#include "scene.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(core_edges, .timeout = 30);

/* ---- who is refused ---- */

Test(core_edges, two_nodes_cannot_have_one_rank)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_join_as(&s, "a", 2, 1);
    scene_join_as(&s, "b", 2, 1);
    cr_assert_eq(scene_host(&s, "b")->refused, CT_EUSAGE);
    cr_assert_str_eq(scene_host(&s, "b")->refusal,
                     "node rank 1 of host b is already taken by host a: give each node its own "
                     "--node_rank");
    cr_assert_gt(scene_host(&s, "b")->retry_ms, 0, "a may be the old self of a host that died");
    scene_at(&s, 1250, true);
    scene_join_as(&s, "b", 2, 1);
    cr_assert_eq(scene_host(&s, "b")->retry_ms, 0, "a was heard since");
    scene_deinit(&s);
}

Test(core_edges, a_host_that_came_up_again_gets_its_place_when_its_old_self_is_given_up)
{
    struct scene s;
    char text[512];
    scene_init(&s, 2, 2, 1);
    scene_join_as(&s, "a", 2, 0);
    scene_join_as(&s, "b", 2, 1);
    scene_all_prepared(&s);
    scene_at(&s, 10000, true);
    scene_silence(&s, "b"); /* its power was cut, its connection stays half open */
    scene_new_self(&s, "b");
    uint64_t tries = 0;
    do {
        scene_join_as(&s, "b", 2, 1);
        cr_assert(scene_host(&s, "b")->refused == 0 || scene_host(&s, "b")->retry_ms > 0);
        scene_silence(&s, "b");
        scene_at(&s, s.now_ms + scene_host(&s, "b")->retry_ms, true);
    } while (scene_host(&s, "b")->refused != 0 && ++tries < 20);
    scene_all_prepared(&s);
    cr_assert_str_eq(scene_roster(&s, text), "a:0 b:2");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_deinit(&s);
}

Test(core_edges, a_node_too_many_is_refused)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_join(&s, "c");
    cr_assert_eq(scene_host(&s, "c")->refused, CT_ELIMIT);
    cr_assert_str_eq(scene_host(&s, "c")->refusal,
                     "job demo already has 2 nodes of 2; host c is one too many");
    scene_at(&s, 1250, true);
    scene_join(&s, "c");
    cr_assert_eq(scene_host(&s, "c")->retry_ms, 0);
    scene_deinit(&s);
}

Test(core_edges, a_node_rank_beyond_the_job_is_refused)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_join_as(&s, "a", 2, 2);
    cr_assert_eq(scene_host(&s, "a")->refused, CT_EUSAGE);
    scene_deinit(&s);
}

Test(core_edges, nodes_that_run_another_configuration_are_refused)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    ct_rdzv_free(s.job);
    s.params.config_hash = 1;
    s.job = ct_rdzv_new("demo", &s.params, 1, 0);
    scene_join(&s, "a");
    s.params.config_hash = 2;
    scene_join(&s, "b");
    cr_assert_eq(scene_host(&s, "b")->refused, CT_ECONFIG);
    cr_assert_not_null(strstr(scene_host(&s, "b")->refusal, "the configuration has hash"));
    ct_str_copy(s.params.settings, sizeof(s.params.settings), "--torch_store=local\n");
    scene_join(&s, "d");
    cr_assert_not_null(
        strstr(scene_host(&s, "d")->refusal, "--torch_store local here, its default on the nodes"));
    s.params.config_hash = 0; /* nothing to compare: a plain program */
    scene_join(&s, "c");
    cr_assert_eq(scene_host(&s, "c")->refused, 0);
    scene_deinit(&s);
}

Test(core_edges, a_daemon_that_forgot_its_rounds_is_found_out)
{
    struct scene s;
    scene_init(&s, 1, 1, 0);
    scene_host(&s, "a")->promised = 5;
    scene_join(&s, "a");
    cr_assert_eq(scene_host(&s, "a")->refused, CT_EFENCED);
    cr_assert_not_null(strstr(scene_host(&s, "a")->refusal, "was in round 5 already"));
    scene_deinit(&s);
}

/* ---- durability ---- */

Test(core_edges, nothing_is_told_before_it_is_durable)
{
    struct scene s;
    scene_init(&s, 1, 1, 0);
    s.verbose = true;
    scene_host(&s, "a")->slow = true;
    scene_disk(&s, DISK_SLOW);
    scene_join(&s, "a");
    scene_forget(&s);
    scene_disk(&s, DISK_GOOD);
    scene_expect(&s, "[    0] > PERSISTED #1\n"
                     "[    0] < all PREPARE g1 (first round)\n");
    scene_disk(&s, DISK_SLOW);
    scene_prepared(&s, "a", 0, 0);
    scene_expect(&s, "[    0] > a PREPARED g1 lineage=0 step=0\n"
                     "[    0] < PERSIST #2 COMMIT g1\n");
    scene_disk(&s, DISK_GOOD);
    scene_expect(&s, "[    0] > PERSISTED #2\n"
                     "[    0] < all ROUND g1 world=2 [a:0]\n"
                     "[    0] < (round 1 runs with 1 node, 2 ranks)\n");
    scene_deinit(&s);
}

Test(core_edges, a_full_disk_stops_new_rounds_not_the_running_one_and_is_tried_again)
{
    struct scene s;
    scene_init(&s, 1, 2, 0);
    scene_run(&s, "a");
    scene_disk(&s, DISK_FULL);
    scene_join(&s, "b");
    scene_at(&s, 20000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    cr_assert_eq(scene_host(&s, "a")->acting, 1, "a was not asked yet");
    scene_forget(&s);
    scene_disk(&s, DISK_GOOD);
    scene_at(&s, 20500, true);
    scene_expect(&s, "[20300] < all PREPARE g2 (nodes joined, at a step boundary)\n");
    scene_deinit(&s);
}

Test(core_edges, a_node_lost_while_the_roster_becomes_durable_leaves_at_once_after)
{
    struct scene s;
    scene_init(&s, 1, 2, 1);
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_prepared(&s, "a", 0, 0);
    scene_disk(&s, DISK_SLOW);
    scene_prepared(&s, "b", 0, 0);
    scene_cut(&s, "b");
    scene_at(&s, 150, true);
    scene_forget(&s);
    scene_disk(&s, DISK_GOOD);
    scene_expect(&s, "[  150] < all ROUND g1 world=4 [a:0 b:2]\n"
                     "[  150] < all PREPARE g2 (a node was lost)\n");
    scene_deinit(&s);
}

/* ---- lost, late and repeated messages ---- */

Test(core_edges, heartbeats_bring_what_was_missed)
{
    struct scene s;
    scene_init(&s, 1, 1, 0);
    scene_join(&s, "a");
    scene_forget(&s);
    scene_heartbeat(&s, "a");
    scene_expect(&s, "[    0] < a PREPARE g1 (first round)\n");
    scene_prepared(&s, "a", 0, 0);
    scene_host(&s, "a")->acting = 0; /* ROUND was lost */
    scene_forget(&s);
    scene_heartbeat(&s, "a");
    scene_expect(&s, "[    0] < a ROUND g1 world=2 [a:0]\n");
    scene_done(&s, "a");
    scene_forget(&s);
    scene_heartbeat(&s, "a");
    scene_expect(&s, "[    0] < a CLOSE status=0\n");
    scene_deinit(&s);
}

Test(core_edges, old_and_repeated_messages_change_nothing)
{
    struct scene s;
    scene_init(&s, 2, 2, 9);
    scene_run(&s, "a b");
    struct scene_host *a = scene_host(&s, "a");
    const struct ct_wire_failure failure = {.code = CT_EWORKER, .text = ""};
    struct ct_rdzv_actions actions;
    struct ct_rdzv_event event = {.kind = CT_RDZV_ON_FAILURE,
                                  .member = a->member,
                                  .link = a->link,
                                  .seq = a->seq, /* not newer than the last */
                                  .generation = 1,
                                  .failure = &failure};
    ct_rdzv_step(s.job, 0, &event, &actions);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    event.seq = ++a->seq;
    event.link = a->link + 1000; /* another connection */
    ct_rdzv_step(s.job, 0, &event, &actions);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    event.link = a->link;
    event.generation = 0; /* a round that is over */
    ct_rdzv_step(s.job, 0, &event, &actions);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    event.generation = 1;
    event.seq = ++a->seq;
    ct_rdzv_step(s.job, 0, &event, &actions);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_PREPARE);
    scene_deinit(&s);
}

Test(core_edges, an_ended_job_stays_ended_and_answers_latecomers)
{
    struct scene s;
    scene_init(&s, 1, 1, 0);
    scene_run(&s, "a");
    scene_done(&s, "a");
    scene_forget(&s);
    scene_join(&s, "late");
    scene_fail(&s, "a", 1, 0);
    scene_leave(&s, "a", CT_RDZV_LEAVE_STOP);
    scene_expect(&s, "[    0] > late JOIN slots=2\n"
                     "[    0] < link2 CLOSE status=0\n"
                     "[    0] > a FAILURE g1 rank=1 status=1 signal=0\n"
                     "[    0] > a LEAVE stop\n");
    scene_cut(&s, "a");
    scene_at(&s, 1, false);
    cr_assert(ct_rdzv_is_idle(s.job));
    scene_deinit(&s);
}

Test(core_edges, the_result_is_kept_for_a_node_that_was_away_when_the_job_ended)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_cut(&s, "b");
    scene_at(&s, 1000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    scene_cut(&s, "a");
    scene_at(&s, 60000, false);
    cr_assert(!ct_rdzv_is_idle(s.job));
    scene_join(&s, "b");
    cr_assert(scene_host(&s, "b")->closed);
    cr_assert(ct_rdzv_is_idle(s.job));
    scene_deinit(&s);
}

Test(core_edges, the_result_is_not_kept_for_ever)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_cut(&s, "b");
    scene_at(&s, 1000, true);
    scene_cut(&s, "a");
    scene_at(&s, 600000, false);
    cr_assert(!ct_rdzv_is_idle(s.job));
    scene_at(&s, 640000, false);
    cr_assert(ct_rdzv_is_idle(s.job));
    scene_deinit(&s);
}

Test(core_edges, a_done_node_may_go_before_the_others_are_done)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_done(&s, "a");
    scene_cut(&s, "a");
    scene_at(&s, 10000, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_done(&s, "b");
    cr_assert_eq(ct_rdzv_result(s.job)->status, 0);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    scene_deinit(&s);
}

Test(core_edges, who_is_done_after_the_end_of_the_job_changes_nothing)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_done(&s, "b");
    scene_disk(&s, DISK_SLOW);
    scene_fail(&s, "a", 3, 0);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSING);
    scene_done(&s, "a");
    scene_disk(&s, DISK_GOOD);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    scene_done(&s, "a");
    cr_assert_eq(ct_rdzv_result(s.job)->status, 3);
    scene_deinit(&s);
}

Test(core_edges, parameters_that_cannot_work_are_refused_with_a_sentence)
{
    struct ct_error err = {0};
    struct ct_rdzv_params p = ct_rdzv_params_default;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), 0);
    p.nodes_min = 3;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), CT_EUSAGE);
    p = ct_rdzv_params_default;
    p.lease_ms = 10;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), CT_EUSAGE);
    cr_assert_not_null(strstr(err.text, "lease 10 ms"));
    p = ct_rdzv_params_default;
    p.join_timeout_ms = 100;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), CT_EUSAGE);
    p = ct_rdzv_params_default;
    p.prepare_ms = 1;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), CT_EUSAGE);
    p = ct_rdzv_params_default;
    p.nodes_max = CT_RDZV_NODES_LIMIT + 1;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), CT_EUSAGE);
    p = ct_rdzv_params_default;
    p.nodes_max = 10000;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), CT_EUSAGE);
    cr_assert_str_eq(err.text, "lease 5000 ms is too short for up to 10000 nodes, which are heard "
                               "every 5000 ms: give a lease of 10000 ms or more");
    p.lease_ms = 10000;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), 0);
    p = ct_rdzv_params_default;
    p.autonomy_ms = 2 * p.lease_ms - 1;
    cr_assert_eq(ct_rdzv_params_check(&p, &err), CT_EUSAGE);
    cr_assert_not_null(strstr(err.text, "autonomy 9999 ms"));
}

Test(core_edges, the_end_waits_a_moment_for_a_failure_that_happened_before)
{
    struct scene s;
    scene_init(&s, 2, 3, 0);
    scene_run(&s, "a b c");
    scene_at(&s, 5000, true);
    scene_fail_since(&s, "a", 1, 4990);
    scene_at(&s, 5100, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_fail_since(&s, "b", 7, 4980); /* its worker took longer to end */
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING, "c may know of an earlier one still");
    scene_at(&s, 5000 + CT_RDZV_VERDICT_MS - 1, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING);
    scene_at(&s, 5000 + CT_RDZV_VERDICT_MS, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 7);
    cr_assert_str_eq(ct_rdzv_result(s.job)->cause.host, "b");
    size_t count;
    const struct ct_wire_failure *others = ct_rdzv_others(s.job, &count);
    cr_assert_eq(count, 1, "the one that took itself for the cause is told beside it");
    cr_assert_eq(others[0].status, 1);
    scene_deinit(&s);
}

Test(core_edges, a_failure_that_is_repeated_is_not_another_one)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_fail_since(&s, "a", 1, 4990);
    scene_at(&s, 5050, true);
    scene_fail_since(&s, "a", 1, 4990);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RUNNING, "b may know of an earlier one still");
    scene_fail_since(&s, "b", 7, 4980);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 7);
    size_t count;
    (void)ct_rdzv_others(s.job, &count);
    cr_assert_eq(count, 1);
    scene_deinit(&s);
}

Test(core_edges, a_job_that_is_to_end_makes_no_other_round)
{
    struct scene s;
    scene_init(&s, 1, 3, 0);
    scene_run(&s, "a b");
    scene_at(&s, 5000, true);
    scene_fail(&s, "a", 3, 0);
    scene_join(&s, "c");
    scene_at(&s, 5000 + CT_RDZV_VERDICT_MS, true);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED, "nobody waits for those who come");
    cr_assert_eq(ct_rdzv_result(s.job)->status, 3);
    cr_assert_eq(ct_rdzv_generation(s.job), 1);
    scene_deinit(&s);
}

Test(core_edges, a_job_that_is_to_end_lets_nobody_leave_for_another_round_once_all_have_recovered)
{
    struct scene s;
    scene_init(&s, 1, 3, 0);
    scene_host(&s, "b")->slow = true;
    scene_join(&s, "a");
    scene_join(&s, "b");
    scene_join(&s, "c");
    scene_all_prepared(&s);
    scene_leave(&s, "c", CT_RDZV_LEAVE_DRAIN);
    scene_fail(&s, "a", 3, 0);
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_RECOVER);
    scene_host(&s, "b")->slow = false;
    scene_heartbeat(&s, "b");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    cr_assert_eq(ct_rdzv_result(s.job)->status, 3);
    scene_deinit(&s);
}
