/* The agent's half of the protocol, driven by hand. */
#include "member_bench.h"
#include "rendezvous/store/store.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(member, .timeout = 30);

Test(member, it_says_hello_and_joins_in_one_go)
{
    struct bench b;
    bench_begin(&b);
    cr_assert_eq(b.connects, 1);
    cr_assert_eq(b.give_up_ms, ct_rdzv_params_default.join_timeout_ms);
    ct_member_connected(&b.member, 0);
    cr_assert_eq(b.sent_count, 2);
    cr_assert_eq(b.sent[0].type, CT_MSG_HELLO);
    cr_assert_eq(b.sent[1].type, CT_MSG_JOIN);
    bench_end(&b);
}

Test(member, a_round_in_parts_begins_when_all_have_come)
{
    struct bench b;
    bench_run(&b);
    cr_assert_eq(b.round.generation, 1);
    cr_assert_eq(b.round.self, 1);
    cr_assert_eq(b.round.node_count, 2);
    cr_assert_str_eq(b.round.nodes[0].host, "other");
    cr_assert_eq(b.round.nodes[1].first_rank, 2);
    bench_end(&b);
}

Test(member, a_round_that_it_did_not_promise_is_not_begun)
{
    struct bench b;
    bench_begin(&b);
    ct_member_connected(&b.member, 0);
    bench_send_welcome(&b, 0);
    bench_send_prepare(&b, 1, false);
    bench_send_round_part(&b, 1, 0);
    bench_send_round_part(&b, 1, 1);
    cr_assert_eq(b.rounds, 0);
    bench_promise(&b, 1);
    bench_send_prepare(&b, 2, false);
    bench_send_round_part(&b, 1, 0);
    bench_send_round_part(&b, 1, 1);
    cr_assert_eq(b.rounds, 0, "round 1 is over before it began");
    bench_end(&b);
}

Test(member, a_repeated_prepare_is_answered_again_but_told_once)
{
    struct bench b;
    bench_run(&b);
    bench_send_prepare(&b, 2, false);
    bench_promise(&b, 2);
    bench_send_prepare(&b, 2, false);
    cr_assert_eq(b.prepares, 2);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_PREPARED), 2);
    bench_send_prepare(&b, 1, false);
    cr_assert_eq(b.prepares, 2, "an old one is nothing");
    bench_end(&b);
}

Test(member, a_boundary_that_became_urgent_is_told_again)
{
    struct bench b;
    bench_run(&b);
    bench_send_prepare(&b, 2, true);
    cr_assert(b.at_boundary);
    bench_send_prepare(&b, 2, true);
    cr_assert_eq(b.prepares, 2);
    bench_send_prepare(&b, 2, false);
    cr_assert_eq(b.prepares, 3);
    cr_assert_not(b.at_boundary);
    bench_end(&b);
}

Test(member, a_late_revoke_takes_no_promise_back)
{
    struct bench b;
    bench_run(&b);
    bench_send_prepare(&b, 2, false);
    bench_promise(&b, 2);
    struct ct_message m = {.type = CT_MSG_REVOKE, .revoke = {.generation = 1, .reason = ""}};
    bench_send(&b, &m);
    cr_assert_eq(b.revokes, 0);
    bench_send_round_part(&b, 2, 0);
    bench_send_round_part(&b, 2, 1);
    cr_assert_eq(b.rounds, 2);
    bench_end(&b);
}

Test(member, a_lost_connection_changes_nothing_and_is_made_again)
{
    struct bench b;
    bench_run(&b);
    struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    ct_member_disconnected(&b.member, 100, &why);
    cr_assert(b.link_down);
    b.now_ms = 100;
    ct_member_tick(&b.member, 100);
    cr_assert_eq(b.connects, 2);
    ct_member_connected(&b.member, 120);
    cr_assert_eq(b.sent[1].join.acting, 1);
    bench_send_welcome(&b, 1);
    cr_assert_not(b.link_down);
    cr_assert_eq(b.revokes, 0);
    bench_end(&b);
}

Test(member, a_round_that_went_on_without_it_is_given_up)
{
    struct bench b;
    bench_run(&b);
    struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    ct_member_disconnected(&b.member, 100, &why);
    ct_member_tick(&b.member, 100);
    ct_member_connected(&b.member, 120);
    bench_send_welcome(&b, 0);
    cr_assert_eq(b.revokes, 1);
    cr_assert_eq(b.revoked, 1);
    b.sent_count = 0;
    b.now_ms = 2000;
    ct_member_tick(&b.member, 2000);
    cr_assert_eq(b.sent[0].heartbeat.over, 1);
    cr_assert_eq(b.sent[0].heartbeat.acting, 0);
    bench_end(&b);
}

Test(member, a_silent_daemon_is_left_after_a_lease_and_looked_for_again)
{
    struct bench b;
    bench_run(&b);
    for (b.now_ms = 0; b.now_ms < ct_rdzv_params_default.lease_ms; b.now_ms += 100)
        ct_member_tick(&b.member, b.now_ms);
    cr_assert_eq(b.disconnects, 0);
    for (; b.now_ms < 2 * ct_rdzv_params_default.lease_ms; b.now_ms += 100)
        ct_member_tick(&b.member, b.now_ms);
    cr_assert_eq(b.disconnects, 1);
    cr_assert_eq(b.connects, 2);
    cr_assert_geq(bench_count_sent(&b, CT_MSG_HEARTBEAT), 4);
    bench_end(&b);
}

Test(member, its_own_stall_is_not_the_daemons)
{
    struct bench b;
    bench_run(&b);
    b.now_ms = 60000; /* the agent was stopped for a minute; answers lie in its socket */
    ct_member_tick(&b.member, b.now_ms);
    cr_assert_eq(b.disconnects, 0);
    bench_end(&b);
}

Test(member, a_publication_is_asked_for_until_it_is_answered_whatever_happens_meanwhile)
{
    struct bench b;
    bench_run(&b);
    const struct ct_msg_publish first = {.generation = 1, .step = 40};
    const struct ct_msg_publish next = {.generation = 2, .step = 41};
    cr_assert_eq(ct_member_publish(&b.member, &first), 0);
    cr_assert_eq(ct_member_publish(&b.member, &first), CT_ELIMIT, "one at a time");
    cr_assert_eq(ct_member_publish(&b.member, &next), 0, "a newer round asks anew");
    bench_answer_heartbeat(&b, CT_RDZV_ACTING);
    bench_answer_heartbeat(&b, CT_RDZV_PREPARING);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_PUBLISH), 4);
    struct ct_message m = {.type = CT_MSG_PUBLISHED,
                           .published = {.generation = 1, .step = 40, .text = ""}};
    bench_send(&b, &m);
    cr_assert_eq(b.publishes, 0, "an answer to another question");
    m.published =
        (struct ct_msg_published){.generation = 2, .step = 41, .code = CT_EFENCED, .text = "over"};
    bench_send(&b, &m);
    bench_send(&b, &m);
    cr_assert_eq(b.publishes, 1);
    cr_assert_eq(b.publish_code, CT_EFENCED);
    bench_answer_heartbeat(&b, CT_RDZV_ACTING);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_PUBLISH), 4);
    bench_end(&b);
}

Test(member, that_its_workers_hold_the_base_is_said_at_once_and_with_each_heartbeat)
{
    struct bench b;
    bench_run(&b);
    b.member.options.reports_recovery = true;
    b.member.recovered = 0;
    b.sent_count = 0;
    ct_member_state_recovered(&b.member, 9);
    cr_assert_eq(b.sent_count, 0, "not the round that it is in");
    ct_member_state_recovered(&b.member, 1);
    ct_member_state_recovered(&b.member, 1);
    cr_assert_eq(b.sent_count, 1);
    cr_assert_eq(b.sent[0].heartbeat.recovered, 1);
    b.now_ms = 2000;
    ct_member_tick(&b.member, 2000);
    cr_assert_eq(b.sent[1].heartbeat.recovered, 1);
    bench_end(&b);
}

Test(member, workers_go_on_alone_for_the_time_of_autonomy_and_no_longer)
{
    struct bench b;
    bench_run(&b);
    struct ct_error why = {.code = CT_EUNAVAILABLE, .text = "connection refused"};
    b.now_ms = 1000;
    for (ct_member_disconnected(&b.member, 1000, &why); b.fails == 0; b.now_ms += 1000) {
        ct_member_tick(&b.member, b.now_ms);
        ct_member_disconnected(&b.member, b.now_ms, &why);
    }
    cr_assert(b.now_ms > ct_rdzv_params_default.autonomy_ms &&
              b.now_ms <= ct_rdzv_params_default.autonomy_ms + 2000);
    cr_assert_eq(ct_exit_status(b.error.code), 75);
    cr_assert_str_eq(b.error.text,
                     "no rendezvous for 600 s, the longest that workers go on alone (connection "
                     "refused): start ctrund again with its journal sooner, or raise the autonomy "
                     "time");
    bench_end(&b);
}

Test(member, a_daemon_of_a_lower_epoch_is_not_obeyed)
{
    struct bench b;
    bench_run(&b);
    struct ct_error why = {.code = CT_EUNAVAILABLE, .text = "gone"};
    b.member.epoch = 5;
    ct_member_disconnected(&b.member, 1000, &why);
    b.now_ms = 1000;
    ct_member_tick(&b.member, b.now_ms);
    ct_member_connected(&b.member, b.now_ms);
    bench_send_welcome(&b, 0);
    cr_assert_eq(b.revokes, 0, "its round is none of that daemon's");
    cr_assert_eq(b.member.phase, CT_MEMBER_DOWN);
    bench_end(&b);
}

Test(member, what_the_daemon_does_not_know_is_said_again)
{
    struct bench b;
    bench_run(&b);
    const struct ct_wire_failure failure = {.code = CT_EWORKER, .rank = 2};
    ct_member_failure(&b.member, b.now_ms, 1, &failure);
    ct_member_failure(&b.member, b.now_ms, 1, &failure);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_FAILURE), 1, "the first of a round counts");
    struct ct_message ack = {
        .type = CT_MSG_HEARTBEAT_ACK,
        .heartbeat_ack = {.seq = 1, .state = CT_RDZV_ACTING, .waiting = "for others"}};
    bench_send(&b, &ack);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_FAILURE), 2);
    cr_assert_str_eq(b.waiting, "for others");
    bench_send_prepare(&b, 2, false);
    bench_promise(&b, 2);
    ack.heartbeat_ack.state = CT_RDZV_PREPARING;
    bench_send(&b, &ack);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_PREPARED), 2);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_FAILURE), 2, "that round is over");
    bench_end(&b);
}

Test(member, a_refusal_for_now_is_tried_again_and_one_for_good_is_not)
{
    struct bench b;
    bench_begin(&b);
    ct_member_connected(&b.member, 0);
    struct ct_message m = {.type = CT_MSG_REFUSE,
                           .refuse = {.code = CT_ELIMIT, .retry_ms = 500, .text = "full"}};
    bench_send(&b, &m);
    cr_assert_eq(b.fails, 0);
    cr_assert_str_eq(b.waiting, "full");
    ct_member_tick(&b.member, 1000);
    cr_assert_eq(b.connects, 2);
    ct_member_connected(&b.member, 1000);
    m.refuse.retry_ms = 0;
    b.now_ms = 1000;
    bench_send(&b, &m);
    cr_assert_eq(b.fails, 1);
    cr_assert_str_eq(b.error.text, "full");
    bench_end(&b);
}

/* Connected, and turned away: for how long it waits. */
static uint64_t turn_away(struct bench *b, uint32_t retry_ms)
{
    struct ct_message m = {
        .type = CT_MSG_REFUSE,
        .refuse = {.code = CT_EUNAVAILABLE, .retry_ms = retry_ms, .text = "not here"}};

    ct_member_connected(&b->member, b->now_ms);
    bench_send(b, &m);
    return ct_member_deadline(&b->member) - b->now_ms;
}

Test(member, who_is_turned_away_again_and_again_asks_less_and_less_often)
{
    enum { FIRST_MS = 20, LONGEST_MS = 1000, TIMES = 12 };
    struct bench b;
    uint64_t waited_ms = 0;

    bench_begin(&b);
    for (uint64_t i = 0, least_ms = FIRST_MS; i < TIMES; i++) {
        waited_ms = turn_away(&b, FIRST_MS);
        cr_assert_geq(waited_ms, least_ms, "time %lu", (unsigned long)i);
        cr_assert_leq(waited_ms, least_ms + least_ms / 2 + 1, "time %lu", (unsigned long)i);
        least_ms = 2 * least_ms < LONGEST_MS ? 2 * least_ms : LONGEST_MS;
        b.now_ms += waited_ms;
        ct_member_tick(&b.member, b.now_ms);
    }
    cr_assert_geq(waited_ms, LONGEST_MS);
    bench_end(&b);
}

/* Few that come again at once keep nobody waiting, and somebody may lead any moment. */
Test(member, who_was_in_a_small_round_and_is_turned_away_comes_again_soon)
{
    enum { FIRST_MS = 20, LONGEST_MS = 50, TIMES = 12 };
    struct ct_error why = {.code = CT_EUNAVAILABLE, .text = "gone"};
    struct bench b;

    bench_run(&b);
    cr_assert_lt(ct_member_nodes(&b.member), LONGEST_MS);
    ct_member_disconnected(&b.member, b.now_ms, &why);
    for (int i = 0; i < TIMES; i++) {
        b.now_ms = ct_member_deadline(&b.member);
        ct_member_tick(&b.member, b.now_ms);
        cr_assert_leq(turn_away(&b, FIRST_MS), LONGEST_MS + LONGEST_MS / 2 + 1);
    }
    bench_end(&b);
}

Test(member, nobody_answering_ends_after_the_join_timeout_with_the_last_reason)
{
    struct bench b;
    bench_begin(&b);
    struct ct_error why = {.code = CT_ETIMEOUT, .text = "nobody answers at x:1"};
    ct_member_disconnected(&b.member, ct_rdzv_params_default.join_timeout_ms, &why);
    cr_assert_eq(b.fails, 1);
    cr_assert_str_eq(b.error.text, "nobody answers at x:1");
    bench_end(&b);
}

Test(member, who_answers_without_the_key_ends_no_node_that_was_in_the_job)
{
    struct bench b;
    bench_run(&b);
    const struct ct_error gone = {.code = CT_ECLOSED, .text = "the peer closed the connection"};
    const struct ct_error stranger = {.code = CT_EAUTH, .text = "the peer has another key"};
    const uint64_t autonomy_ms = ct_rdzv_params_default.autonomy_ms;
    ct_member_disconnected(&b.member, b.now_ms, &gone);
    unsigned told = b.links_down;
    while (b.now_ms + 1000 < autonomy_ms) {
        b.now_ms = ct_member_deadline(&b.member);
        ct_member_tick(&b.member, b.now_ms);
        ct_member_disconnected(&b.member, b.now_ms, &stranger);
        cr_assert_eq(b.fails, 0, "after %lu ms", (unsigned long)b.now_ms);
    }
    cr_assert_eq(b.links_down, told + 1, "told once");
    cr_assert_eq(b.revokes, 0);

    b.now_ms = ct_member_deadline(&b.member); /* the daemon is back */
    ct_member_tick(&b.member, b.now_ms);
    ct_member_connected(&b.member, b.now_ms);
    bench_send_welcome(&b, 1);
    cr_assert_not(b.link_down);
    cr_assert_eq(b.revokes, 0);
    bench_end(&b);
}

Test(member, who_answers_without_the_key_for_the_time_of_autonomy_ends_the_node)
{
    struct bench b;
    bench_run(&b);
    const struct ct_error stranger = {.code = CT_EAUTH, .text = "the peer has another key"};
    ct_member_disconnected(&b.member, b.now_ms + 1, &stranger);
    ct_member_tick(&b.member, b.now_ms + 1000);
    ct_member_disconnected(&b.member, b.now_ms + ct_rdzv_params_default.autonomy_ms + 1, &stranger);
    cr_assert_eq(b.fails, 1);
    cr_assert_eq(b.error.code, CT_ETIMEOUT);
    cr_assert(strstr(b.error.text, "the peer has another key") != NULL, "%s", b.error.text);
    bench_end(&b);
}

Test(member, a_daemon_that_takes_another_key_now_ends_no_node_that_was_in_the_job)
{
    struct bench b;
    bench_run(&b);
    const struct ct_error gone = {.code = CT_ECLOSED, .text = "the peer closed the connection"};
    const struct ct_message refuse = {
        .type = CT_MSG_REFUSE, .refuse = {.code = CT_EAUTH, .text = "host b has no key for job"}};
    ct_member_disconnected(&b.member, b.now_ms, &gone);
    ct_member_tick(&b.member, b.now_ms + 1000);
    ct_member_connected(&b.member, b.now_ms + 1000);
    b.now_ms += 1000;
    bench_send(&b, &refuse);
    cr_assert_eq(b.fails, 0);
    cr_assert(b.link_down);
    cr_assert_eq(b.member.phase, CT_MEMBER_DOWN);
    bench_end(&b);
}

Test(member, a_wrong_key_is_final)
{
    struct bench b;
    bench_begin(&b);
    struct ct_error why = {.code = CT_EAUTH, .text = "wrong key"};
    ct_member_disconnected(&b.member, 10, &why);
    cr_assert_eq(b.fails, 1);
    bench_end(&b);
}

/* ---- store requests ---- */

static int add_set(struct bench *b, uint64_t request, uint64_t generation)
{
    struct ct_message m = {.type = CT_MSG_STORE_SET,
                           .store_set = {.request = 1, .generation = generation, .key = "k"}};
    return ct_member_store(&b->member, request, &m);
}

static int add_add(struct bench *b, uint64_t request, uint64_t generation)
{
    struct ct_message m = {.type = CT_MSG_STORE_ADD,
                           .store_add = {.request = 1, .generation = generation, .key = "k"}};
    return ct_member_store(&b->member, request, &m);
}

/* Done a second time it would say of a key that was there that it was not. */
Test(member, a_delete_whose_answer_a_broken_connection_lost_is_not_repeated)
{
    const struct ct_message m = {.type = CT_MSG_STORE_DELETE,
                                 .store_delete = {.request = 1, .generation = 1, .key = "k"}};
    const struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    struct bench b;

    bench_run(&b);
    cr_assert_eq(ct_member_store(&b.member, 10, &m), 0);
    ct_member_disconnected(&b.member, 100, &why);
    cr_assert_eq(b.replies, 1);
    cr_assert_eq(b.reply_request, 10);
    cr_assert_eq(b.reply_code, CT_ECLOSED);
    ct_member_tick(&b.member, 100);
    ct_member_connected(&b.member, 120);
    b.sent_count = 0;
    bench_send_welcome(&b, 1);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_STORE_DELETE), 0);
    bench_end(&b);
}

Test(member, a_broken_connection_repeats_what_may_be_repeated)
{
    struct bench b;
    bench_run(&b);
    cr_assert_eq(add_set(&b, 10, 1), 0);
    cr_assert_eq(add_add(&b, 11, 1), 0);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_STORE_SET), 1);
    struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    ct_member_disconnected(&b.member, 100, &why);
    cr_assert_eq(b.replies, 1);
    cr_assert_eq(b.reply_request, 11);
    cr_assert_eq(b.reply_code, CT_ECLOSED);
    cr_assert_eq(add_add(&b, 12, 1), 0, "asked while there is no connection");
    ct_member_tick(&b.member, 100);
    ct_member_connected(&b.member, 120);
    b.sent_count = 0;
    bench_send_welcome(&b, 1);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_STORE_SET), 1);
    cr_assert_eq(bench_count_sent(&b, CT_MSG_STORE_ADD), 1);
    struct ct_message reply = {.type = CT_MSG_STORE_REPLY, .store_reply = {.request = 10}};
    bench_send(&b, &reply);
    bench_send(&b, &reply);
    cr_assert_eq(b.replies, 2, "an answer that nobody waits for is dropped");
    bench_end(&b);
}

Test(member, requests_of_a_round_that_ends_are_revoked)
{
    struct bench b;
    bench_run(&b);
    cr_assert_eq(add_set(&b, 10, 1), 0);
    bench_send_prepare(&b, 2, false);
    cr_assert_eq(b.replies, 1);
    cr_assert_eq(b.reply_code, CT_EREVOKED);
    bench_end(&b);
}

Test(member, the_end_answers_what_is_open_and_is_told_once)
{
    struct bench b;
    bench_run(&b);
    cr_assert_eq(add_set(&b, 10, 1), 0);
    struct ct_wire_failure other = {
        .rank = 5, .local_rank = 1, .host = "y", .text = "also", .error_file = ""};
    struct ct_message m = {.type = CT_MSG_CLOSE,
                           .close = {.others = {.data = &other, .count = 1},
                                     .status = 3,
                                     .cause = {.host = "x",
                                               .text = "why",
                                               .time_ms = 1790000000123,
                                               .error_file = "/logs/error.json"}}};
    bench_send(&b, &m);
    bench_send(&b, &m);
    cr_assert_eq(b.closes, 1);
    cr_assert_eq(b.result.status, 3);
    cr_assert_str_eq(b.result.cause.text, "why");
    cr_assert_eq(b.result.cause.time_ms, 1790000000123);
    cr_assert_str_eq(b.result.cause.error_file, "/logs/error.json");
    cr_assert_eq(b.result.other_count, 1);
    cr_assert_eq(b.other.rank, 5);
    cr_assert_str_eq(b.other.text, "also");
    cr_assert_eq(b.replies, 1);
    cr_assert_eq(b.disconnects, 1);
    cr_assert_eq(add_set(&b, 11, 1), CT_ECLOSED);
    cr_assert_eq(ct_member_deadline(&b.member), UINT64_MAX);
    bench_end(&b);
}

Test(member, too_many_open_requests_are_refused)
{
    struct bench b;
    bench_begin(&b);
    int rc = 0;
    uint64_t count = 0;
    while (rc == 0 && count < 2 * CT_RELAY_REQUESTS)
        rc = add_set(&b, ++count, 1);
    cr_assert_eq(rc, CT_ELIMIT);
    cr_assert_eq(count, CT_RELAY_REQUESTS + 1);
    struct ct_message m = {.type = CT_MSG_HEARTBEAT};
    cr_assert_eq(ct_member_store(&b.member, 1, &m), CT_EPROTOCOL);
    bench_end(&b);
}
