/* The agent's half of the protocol, driven by hand. */
#include "rendezvous/member.h"
#include "rendezvous/store.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(member, .timeout = 30);

enum { SENT = 64 };

struct bench {
    struct ct_member member;
    uint64_t now_ms;
    struct ct_message sent[SENT]; /* only their numbers count */
    size_t sent_count;
    unsigned connects, disconnects;
    uint64_t give_up_ms;
    uint64_t prepared_for; /* of the last on_prepare */
    bool at_boundary;
    unsigned prepares, revokes, rounds, closes, fails, replies;
    uint64_t revoked;
    struct ct_round round;
    struct ct_rdzv_result result;
    struct ct_error error;
    int reply_code;
    uint64_t reply_request;
    char waiting[256];
    bool link_down;
};

static void io_send(void *context, const struct ct_message *message)
{
    struct bench *b = context;
    cr_assert(b->sent_count < SENT);
    b->sent[b->sent_count++] = *message;
}

static void io_connect(void *context, uint64_t give_up_ms)
{
    struct bench *b = context;
    b->connects++;
    b->give_up_ms = give_up_ms;
}

static void io_disconnect(void *context)
{
    ((struct bench *)context)->disconnects++;
}

static void on_waiting(void *context, const char *text)
{
    struct bench *b = context;
    strncpy(b->waiting, text != NULL ? text : "", sizeof(b->waiting) - 1);
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct bench *b = context;
    (void)reason;
    b->prepares++;
    b->prepared_for = generation;
    b->at_boundary = at_boundary;
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    struct bench *b = context;
    (void)reason;
    b->revokes++;
    b->revoked = generation;
}

static void on_round(void *context, const struct ct_round *round)
{
    struct bench *b = context;
    b->rounds++;
    b->round = *round;
}

static void on_store_reply(void *context, const struct ct_msg_store_reply *reply)
{
    struct bench *b = context;
    b->replies++;
    b->reply_code = reply->code;
    b->reply_request = reply->request;
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    struct bench *b = context;
    b->closes++;
    b->result = *result;
}

static void on_released(void *context)
{
    (void)context;
}

static void on_link(void *context, bool connected, const char *why)
{
    (void)why;
    ((struct bench *)context)->link_down = !connected;
}

static void on_failed(void *context, const struct ct_error *error)
{
    struct bench *b = context;
    b->fails++;
    b->error = *error;
}

static void begin(struct bench *b)
{
    memset(b, 0, sizeof(*b));
    struct ct_agent_options options = {
        .run_id = "j",
        .host = "h",
        .address = "",
        .params = ct_rdzv_params_default,
        .slots = 2,
        .node_rank = -1,
        .slurm_node = -1,
        .id = {1, 2},
    };
    struct ct_agent_callbacks callbacks = {
        .context = b,
        .on_waiting = on_waiting,
        .on_prepare = on_prepare,
        .on_revoke = on_revoke,
        .on_round = on_round,
        .on_store_reply = on_store_reply,
        .on_closed = on_closed,
        .on_released = on_released,
        .on_link = on_link,
        .on_failed = on_failed,
    };
    struct ct_member_io io = {
        .context = b, .send = io_send, .connect = io_connect, .disconnect = io_disconnect};
    ct_member_init(&b->member, &options, &callbacks, &io, 42);
    ct_member_start(&b->member, b->now_ms);
}

static void say(struct bench *b, const struct ct_message *message)
{
    ct_member_message(&b->member, b->now_ms, message);
}

static void say_welcome(struct bench *b, uint64_t generation)
{
    struct ct_message m = {.type = CT_MSG_WELCOME,
                           .welcome = {.generation = generation, .epoch = 1, .version = ""}};
    say(b, &m);
}

static void say_prepare(struct bench *b, uint64_t generation, bool at_boundary)
{
    struct ct_message m = {
        .type = CT_MSG_PREPARE,
        .prepare = {.generation = generation, .at_boundary = at_boundary, .reason = ""}};
    say(b, &m);
}

/* A round of two nodes in two parts; this node is the second. */
static void say_round_part(struct bench *b, uint64_t generation, uint32_t first)
{
    struct ct_wire_node node = {
        .index = first,
        .incarnation = {1, first == 1 ? 2 : 99},
        .host = first == 1 ? "h" : "other",
        .address = "",
        .role = "default",
        .slots = 2,
        .first_rank = first * 2,
    };
    struct ct_message m = {.type = CT_MSG_ROUND,
                           .round = {.generation = generation,
                                     .epoch = 1,
                                     .base_node = -1,
                                     .world = 4,
                                     .node_count = 2,
                                     .first = first}};
    m.round.nodes.data = &node;
    m.round.nodes.count = 1;
    say(b, &m);
}

static void promise(struct bench *b, uint64_t generation)
{
    struct ct_prepared prepared = {.generation = generation};
    ct_member_prepared(&b->member, &prepared);
}

/* Joined, and in round 1. */
static void run(struct bench *b)
{
    begin(b);
    ct_member_connected(&b->member, 0);
    say_welcome(b, 0);
    say_prepare(b, 1, false);
    promise(b, 1);
    say_round_part(b, 1, 0);
    say_round_part(b, 1, 1);
    cr_assert_eq(b->rounds, 1);
    b->sent_count = 0;
}

static void end(struct bench *b)
{
    ct_member_deinit(&b->member);
}

static size_t count_sent(const struct bench *b, enum ct_message_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < b->sent_count; i++)
        count += b->sent[i].type == type;
    return count;
}

Test(member, it_says_hello_and_joins_in_one_go)
{
    struct bench b;
    begin(&b);
    cr_assert_eq(b.connects, 1);
    cr_assert_eq(b.give_up_ms, ct_rdzv_params_default.join_timeout_ms);
    ct_member_connected(&b.member, 0);
    cr_assert_eq(b.sent_count, 2);
    cr_assert_eq(b.sent[0].type, CT_MSG_HELLO);
    cr_assert_eq(b.sent[1].type, CT_MSG_JOIN);
    end(&b);
}

Test(member, a_round_in_parts_begins_when_all_have_come)
{
    struct bench b;
    run(&b);
    cr_assert_eq(b.round.generation, 1);
    cr_assert_eq(b.round.self, 1);
    cr_assert_eq(b.round.node_count, 2);
    cr_assert_str_eq(b.round.nodes[0].host, "other");
    cr_assert_eq(b.round.nodes[1].first_rank, 2);
    end(&b);
}

Test(member, a_round_that_it_did_not_promise_is_not_begun)
{
    struct bench b;
    begin(&b);
    ct_member_connected(&b.member, 0);
    say_welcome(&b, 0);
    say_prepare(&b, 1, false);
    say_round_part(&b, 1, 0);
    say_round_part(&b, 1, 1);
    cr_assert_eq(b.rounds, 0);
    promise(&b, 1);
    say_prepare(&b, 2, false);
    say_round_part(&b, 1, 0);
    say_round_part(&b, 1, 1);
    cr_assert_eq(b.rounds, 0, "round 1 is over before it began");
    end(&b);
}

Test(member, a_repeated_prepare_is_answered_again_but_told_once)
{
    struct bench b;
    run(&b);
    say_prepare(&b, 2, false);
    promise(&b, 2);
    say_prepare(&b, 2, false);
    cr_assert_eq(b.prepares, 2);
    cr_assert_eq(count_sent(&b, CT_MSG_PREPARED), 2);
    say_prepare(&b, 1, false);
    cr_assert_eq(b.prepares, 2, "an old one is nothing");
    end(&b);
}

Test(member, a_boundary_that_became_urgent_is_told_again)
{
    struct bench b;
    run(&b);
    say_prepare(&b, 2, true);
    cr_assert(b.at_boundary);
    say_prepare(&b, 2, true);
    cr_assert_eq(b.prepares, 2);
    say_prepare(&b, 2, false);
    cr_assert_eq(b.prepares, 3);
    cr_assert_not(b.at_boundary);
    end(&b);
}

Test(member, a_late_revoke_takes_no_promise_back)
{
    struct bench b;
    run(&b);
    say_prepare(&b, 2, false);
    promise(&b, 2);
    struct ct_message m = {.type = CT_MSG_REVOKE, .revoke = {.generation = 1, .reason = ""}};
    say(&b, &m);
    cr_assert_eq(b.revokes, 0);
    say_round_part(&b, 2, 0);
    say_round_part(&b, 2, 1);
    cr_assert_eq(b.rounds, 2);
    end(&b);
}

Test(member, a_lost_connection_changes_nothing_and_is_made_again)
{
    struct bench b;
    run(&b);
    struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    ct_member_disconnected(&b.member, 100, &why);
    cr_assert(b.link_down);
    b.now_ms = 100;
    ct_member_tick(&b.member, 100);
    cr_assert_eq(b.connects, 2);
    ct_member_connected(&b.member, 120);
    cr_assert_eq(b.sent[1].join.acting, 1);
    say_welcome(&b, 1);
    cr_assert_not(b.link_down);
    cr_assert_eq(b.revokes, 0);
    end(&b);
}

Test(member, a_round_that_went_on_without_it_is_given_up)
{
    struct bench b;
    run(&b);
    struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    ct_member_disconnected(&b.member, 100, &why);
    ct_member_tick(&b.member, 100);
    ct_member_connected(&b.member, 120);
    say_welcome(&b, 0);
    cr_assert_eq(b.revokes, 1);
    cr_assert_eq(b.revoked, 1);
    b.sent_count = 0;
    b.now_ms = 2000;
    ct_member_tick(&b.member, 2000);
    cr_assert_eq(b.sent[0].heartbeat.over, 1);
    cr_assert_eq(b.sent[0].heartbeat.acting, 0);
    end(&b);
}

Test(member, a_silent_daemon_is_left_after_a_lease_and_looked_for_again)
{
    struct bench b;
    run(&b);
    for (b.now_ms = 0; b.now_ms < ct_rdzv_params_default.lease_ms; b.now_ms += 100)
        ct_member_tick(&b.member, b.now_ms);
    cr_assert_eq(b.disconnects, 0);
    for (; b.now_ms < 2 * ct_rdzv_params_default.lease_ms; b.now_ms += 100)
        ct_member_tick(&b.member, b.now_ms);
    cr_assert_eq(b.disconnects, 1);
    cr_assert_eq(b.connects, 2);
    cr_assert_geq(count_sent(&b, CT_MSG_HEARTBEAT), 4);
    end(&b);
}

Test(member, its_own_stall_is_not_the_daemons)
{
    struct bench b;
    run(&b);
    b.now_ms = 60000; /* the agent was stopped for a minute; answers lie in its socket */
    ct_member_tick(&b.member, b.now_ms);
    cr_assert_eq(b.disconnects, 0);
    end(&b);
}

Test(member, what_the_daemon_does_not_know_is_said_again)
{
    struct bench b;
    run(&b);
    struct ct_rdzv_failure failure = {.generation = 1, .code = CT_EWORKER, .rank = 2};
    ct_member_failure(&b.member, &failure);
    ct_member_failure(&b.member, &failure);
    cr_assert_eq(count_sent(&b, CT_MSG_FAILURE), 1, "the first of a round counts");
    struct ct_message ack = {
        .type = CT_MSG_HEARTBEAT_ACK,
        .heartbeat_ack = {.seq = 1, .state = CT_RDZV_ACTING, .waiting = "for others"}};
    say(&b, &ack);
    cr_assert_eq(count_sent(&b, CT_MSG_FAILURE), 2);
    cr_assert_str_eq(b.waiting, "for others");
    say_prepare(&b, 2, false);
    promise(&b, 2);
    ack.heartbeat_ack.state = CT_RDZV_ASKED;
    say(&b, &ack);
    cr_assert_eq(count_sent(&b, CT_MSG_PREPARED), 2);
    cr_assert_eq(count_sent(&b, CT_MSG_FAILURE), 2, "that round is over");
    end(&b);
}

Test(member, a_refusal_for_now_is_tried_again_and_one_for_good_is_not)
{
    struct bench b;
    begin(&b);
    ct_member_connected(&b.member, 0);
    struct ct_message m = {.type = CT_MSG_REFUSE,
                           .refuse = {.code = CT_ELIMIT, .retry_ms = 500, .text = "full"}};
    say(&b, &m);
    cr_assert_eq(b.fails, 0);
    cr_assert_str_eq(b.waiting, "full");
    ct_member_tick(&b.member, 1000);
    cr_assert_eq(b.connects, 2);
    ct_member_connected(&b.member, 1000);
    m.refuse.retry_ms = 0;
    b.now_ms = 1000;
    say(&b, &m);
    cr_assert_eq(b.fails, 1);
    cr_assert_str_eq(b.error.text, "full");
    end(&b);
}

Test(member, nobody_answering_ends_after_the_join_timeout_with_the_last_reason)
{
    struct bench b;
    begin(&b);
    struct ct_error why = {.code = CT_ETIMEOUT, .text = "nobody answers at x:1"};
    ct_member_disconnected(&b.member, ct_rdzv_params_default.join_timeout_ms, &why);
    cr_assert_eq(b.fails, 1);
    cr_assert_str_eq(b.error.text, "nobody answers at x:1");
    end(&b);
}

Test(member, a_wrong_key_is_final)
{
    struct bench b;
    begin(&b);
    struct ct_error why = {.code = CT_EAUTH, .text = "wrong key"};
    ct_member_disconnected(&b.member, 10, &why);
    cr_assert_eq(b.fails, 1);
    end(&b);
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

Test(member, a_broken_connection_repeats_what_may_be_repeated)
{
    struct bench b;
    run(&b);
    cr_assert_eq(add_set(&b, 10, 1), 0);
    cr_assert_eq(add_add(&b, 11, 1), 0);
    cr_assert_eq(count_sent(&b, CT_MSG_STORE_SET), 1);
    struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    ct_member_disconnected(&b.member, 100, &why);
    cr_assert_eq(b.replies, 1);
    cr_assert_eq(b.reply_request, 11);
    cr_assert_eq(b.reply_code, CT_ECLOSED);
    cr_assert_eq(add_add(&b, 12, 1), 0, "asked while there is no connection");
    ct_member_tick(&b.member, 100);
    ct_member_connected(&b.member, 120);
    b.sent_count = 0;
    say_welcome(&b, 1);
    cr_assert_eq(count_sent(&b, CT_MSG_STORE_SET), 1);
    cr_assert_eq(count_sent(&b, CT_MSG_STORE_ADD), 1);
    struct ct_message reply = {.type = CT_MSG_STORE_REPLY, .store_reply = {.request = 10}};
    say(&b, &reply);
    say(&b, &reply);
    cr_assert_eq(b.replies, 2, "an answer that nobody waits for is dropped");
    end(&b);
}

Test(member, requests_of_a_round_that_ends_are_revoked)
{
    struct bench b;
    run(&b);
    cr_assert_eq(add_set(&b, 10, 1), 0);
    say_prepare(&b, 2, false);
    cr_assert_eq(b.replies, 1);
    cr_assert_eq(b.reply_code, CT_EREVOKED);
    end(&b);
}

Test(member, the_end_answers_what_is_open_and_is_told_once)
{
    struct bench b;
    run(&b);
    cr_assert_eq(add_set(&b, 10, 1), 0);
    struct ct_message m = {.type = CT_MSG_CLOSE,
                           .close = {.status = 3, .host = "x", .text = "why"}};
    say(&b, &m);
    say(&b, &m);
    cr_assert_eq(b.closes, 1);
    cr_assert_eq(b.result.status, 3);
    cr_assert_str_eq(b.result.cause.text, "why");
    cr_assert_eq(b.replies, 1);
    cr_assert_eq(b.disconnects, 1);
    cr_assert_eq(add_set(&b, 11, 1), CT_ECLOSED);
    cr_assert_eq(ct_member_deadline(&b.member), UINT64_MAX);
    end(&b);
}

Test(member, too_many_open_requests_are_refused)
{
    struct bench b;
    begin(&b);
    int rc = 0;
    uint64_t count = 0;
    while (rc == 0 && count < 2 * CT_RELAY_REQUESTS)
        rc = add_set(&b, ++count, 1);
    cr_assert_eq(rc, CT_ELIMIT);
    cr_assert_eq(count, CT_RELAY_REQUESTS + 1);
    struct ct_message m = {.type = CT_MSG_HEARTBEAT};
    cr_assert_eq(ct_member_store(&b.member, 1, &m), CT_EPROTOCOL);
    end(&b);
}
