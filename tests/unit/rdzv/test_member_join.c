/* The agent's half of the protocol until it is let in: whoever does not answer as a rendezvous is
 * named, and nothing lasts longer than the join timeout. */
#include "member_bench.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(member_join, .timeout = 30);

static const char foreign[] =
    "x:1 accepts connections but does not answer as a ctrun rendezvous: another program may hold "
    "the port; check --rdzv_endpoint";

Test(member_join, a_listener_that_never_answers_is_named_once_after_two_seconds)
{
    struct bench b;
    bench_begin(&b);
    ct_member_connected(&b.member, 0);
    ct_member_tick(&b.member, 1999);
    cr_assert_eq(b.waits, 0);
    cr_assert_eq(ct_member_deadline(&b.member), 2000);
    ct_member_tick(&b.member, 2000);
    cr_assert_str_eq(b.waiting, foreign);
    for (b.now_ms = 2000; b.fails == 0; b.now_ms += 1000) {
        cr_assert_leq(b.now_ms, 2 * ct_rdzv_params_default.join_timeout_ms);
        b.sent_count = 0;
        ct_member_tick(&b.member, b.now_ms);
        if (b.member.phase == CT_MEMBER_CONNECTING)
            ct_member_connected(&b.member, b.now_ms);
    }
    cr_assert_eq(b.waits, 1, "said %u times", b.waits);
    cr_assert_eq(b.error.code, CT_ETIMEOUT);
    cr_assert_str_eq(b.error.text, foreign);
    bench_end(&b);
}

Test(member_join, with_a_key_it_is_named_two_seconds_after_it_has_accepted)
{
    struct bench b;
    bench_begin(&b);
    ct_member_waiting(&b.member, 1000, "x:1 answers connection refused", false);
    cr_assert_eq(ct_member_deadline(&b.member), UINT64_MAX);
    ct_member_waiting(&b.member, 1500, "the TLS handshake goes on", true);
    cr_assert_eq(ct_member_deadline(&b.member), 3500);
    ct_member_tick(&b.member, 3499);
    cr_assert_str_eq(b.waiting, "the TLS handshake goes on");
    ct_member_tick(&b.member, 3500);
    cr_assert_str_eq(b.waiting, foreign);
    unsigned waits = b.waits;
    ct_member_waiting(&b.member, 6500, "the peer did not finish the TLS handshake", true);
    ct_member_waiting(&b.member, 6600, "the TLS handshake goes on", true);
    cr_assert_eq(b.waits, waits, "it is said");
    const struct ct_error why = {.code = CT_ETIMEOUT, .text = "cannot connect"};
    ct_member_disconnected(&b.member, ct_rdzv_params_default.join_timeout_ms, &why);
    cr_assert_eq(b.fails, 1);
    cr_assert_str_eq(b.error.text, foreign);
    bench_end(&b);
}

/* The connection's own limit does not count while a handshake goes on. */
Test(member_join, a_handshake_that_never_ends_ends_with_the_join_timeout)
{
    struct bench b;
    const uint64_t join_timeout_ms = ct_rdzv_params_default.join_timeout_ms;
    bench_begin(&b);
    ct_member_waiting(&b.member, join_timeout_ms - 1000, "the TLS handshake goes on", true);
    cr_assert_eq(ct_member_deadline(&b.member), join_timeout_ms);
    ct_member_tick(&b.member, join_timeout_ms);
    cr_assert_eq(b.fails, 1);
    cr_assert_eq(b.error.code, CT_ETIMEOUT);
    cr_assert_str_eq(b.error.text, foreign);
    bench_end(&b);
}

/* Turn through silences and new connections to the end; returns when it came. */
static uint64_t wait_for_the_end(struct bench *b)
{
    while (b->fails == 0) {
        b->now_ms = ct_member_deadline(&b->member);
        cr_assert_lt(b->now_ms, UINT64_MAX);
        b->sent_count = 0;
        ct_member_tick(&b->member, b->now_ms);
        if (b->member.phase == CT_MEMBER_CONNECTING)
            ct_member_connected(&b->member, b->now_ms);
    }
    return b->now_ms;
}

Test(member_join, a_server_that_takes_the_join_and_never_answers_ends_with_the_join_timeout)
{
    struct bench b;
    bench_begin(&b);
    b.member.give_up_ms = 12345; /* while a silence is being waited for */
    ct_member_connected(&b.member, 0);
    cr_assert_eq(wait_for_the_end(&b), 12345);
    cr_assert_eq(b.error.code, CT_ETIMEOUT);
    cr_assert_str_eq(b.error.text, foreign);
    bench_end(&b);
}

Test(member_join, a_server_that_says_anything_but_welcome_ends_with_the_join_timeout)
{
    struct bench b;
    struct ct_message ack = {.type = CT_MSG_HEARTBEAT_ACK,
                             .heartbeat_ack = {.waiting = "waiting for 1 more node"}};
    const uint64_t join_timeout_ms = ct_rdzv_params_default.join_timeout_ms;
    bench_begin(&b);
    ct_member_connected(&b.member, 0);
    for (b.now_ms = 0; b.now_ms < join_timeout_ms; b.now_ms += 1000) {
        ct_member_tick(&b.member, b.now_ms);
        bench_send(&b, &ack);
        cr_assert_eq(b.fails, 0, "after %lu ms", (unsigned long)b.now_ms);
    }
    ct_member_tick(&b.member, b.now_ms);
    cr_assert_eq(b.fails, 1);
    cr_assert_eq(b.error.code, CT_ETIMEOUT);
    cr_assert_str_eq(b.error.text,
                     "the rendezvous at x:1 answers but did not let this node in in time");
    bench_end(&b);
}

Test(member_join, an_agent_that_was_away_reads_its_welcome_before_it_gives_up)
{
    struct bench b;
    const uint64_t join_timeout_ms = ct_rdzv_params_default.join_timeout_ms;
    bench_begin(&b);
    ct_member_connected(&b.member, 0);
    b.now_ms = join_timeout_ms + 9000;
    ct_member_tick(&b.member, b.now_ms);
    cr_assert_eq(b.fails, 0);
    bench_send_welcome(&b, 0);
    cr_assert_eq(b.member.phase, CT_MEMBER_JOINED);
    bench_end(&b);
}

/* There are no workers to go on alone. */
Test(member_join, a_node_that_was_in_no_round_waits_for_a_lost_rendezvous_as_long_as_to_join)
{
    struct bench b;
    const struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    bench_begin(&b);
    b.member.options.params.join_timeout_ms = 20000;
    ct_member_connected(&b.member, 0);
    bench_send_welcome(&b, 0);
    ct_member_disconnected(&b.member, 1000, &why);
    cr_assert_leq(wait_for_the_end(&b), 21000 + 1000);
    cr_assert_eq(b.error.code, CT_ETIMEOUT);
    bench_end(&b);
}

Test(member_join, an_answer_in_another_protocol_is_named_at_once)
{
    struct bench b;
    const struct ct_error why = {.code = CT_EPROTOCOL, .text = "x:1: it speaks HTTP"};
    bench_begin(&b);
    ct_member_waiting(&b.member, 0, "the TLS handshake goes on", true);
    ct_member_disconnected(&b.member, 3, &why);
    cr_assert_str_eq(b.waiting,
                     "x:1 accepts connections but does not answer as a ctrun rendezvous (it speaks "
                     "HTTP): another program may hold the port; check --rdzv_endpoint");
    cr_assert_eq(b.fails, 0, "the port may be given free in time");
    bench_end(&b);
}

Test(member_join, a_server_that_closes_all_connections_is_named_over_its_many_connections)
{
    struct bench b;
    const struct ct_error why = {.code = CT_ECLOSED, .text = "closed"};
    bench_begin(&b);
    for (b.now_ms = 0; b.now_ms < 10000; b.now_ms += 1000) {
        cr_assert_eq(b.waits, b.now_ms > 2000, "at %d ms", (int)b.now_ms);
        b.sent_count = 0;
        ct_member_tick(&b.member, b.now_ms);
        ct_member_connected(&b.member, b.now_ms);
        ct_member_disconnected(&b.member, b.now_ms, &why);
    }
    cr_assert_str_eq(b.waiting, foreign);
    bench_end(&b);
}

Test(member_join, a_daemon_that_answered_or_refused_is_no_foreign_server)
{
    struct bench b;
    struct ct_message full = {.type = CT_MSG_REFUSE,
                              .refuse = {.code = CT_ELIMIT, .retry_ms = 500, .text = "full"}};
    bench_begin(&b);
    for (b.now_ms = 0; b.now_ms < 10000; b.now_ms += 1000) {
        ct_member_tick(&b.member, b.now_ms);
        ct_member_connected(&b.member, b.now_ms);
        bench_send(&b, &full);
    }
    cr_assert_str_eq(b.waiting, "full");
    cr_assert_eq(b.waits, 1);
    bench_end(&b);
    bench_run(&b);
    unsigned waits = b.waits;
    const struct ct_error gone = {.code = CT_ECLOSED, .text = "gone"};
    ct_member_disconnected(&b.member, 100, &gone);
    ct_member_tick(&b.member, 1000);
    ct_member_connected(&b.member, 1000);
    ct_member_tick(&b.member, 3500);
    cr_assert_eq(b.waits, waits, "its workers run: on_link is what it says");
    bench_end(&b);
}

/* The next HELLO: of which protocol? */
static uint32_t offered(const struct bench *b)
{
    for (size_t i = b->sent_count; i-- > 0;)
        if (b->sent[i].type == CT_MSG_HELLO)
            return b->sent[i].hello.protocol;
    return 0;
}

/* A daemon of an older release refuses what it does not know: it is dialled again at once, in each
 * protocol that is spoken here too, and then the refusal is final. */
Test(member_join, an_older_daemon_is_dialled_again_in_the_protocols_that_it_may_know)
{
    const struct ct_message refuse = {
        .type = CT_MSG_REFUSE, .refuse = {.code = CT_EPROTOCOL, .text = "newer than this one"}};
    struct bench b;
    char words[64];

    bench_begin(&b);
    for (uint32_t protocol = CT_WIRE_PROTOCOL; protocol >= CT_WIRE_OLDEST; protocol--) {
        cr_assert_eq(b.fails, 0, "%s", b.error.text);
        ct_member_connected(&b.member, 0);
        cr_assert_eq(offered(&b), protocol);
        bench_send(&b, &refuse);
        ct_member_tick(&b.member, 0);
    }
    cr_assert_eq(b.connects, 1 + CT_WIRE_PROTOCOL - CT_WIRE_OLDEST);
    cr_assert_eq(b.fails, 1);
    cr_assert_eq(b.error.code, CT_EPROTOCOL);
    (void)snprintf(words, sizeof words, "this ctrun speaks protocols %d to %d; upgrade the daemon",
                   CT_WIRE_OLDEST, CT_WIRE_PROTOCOL);
    cr_assert_not_null(strstr(b.error.text, words), "%s", b.error.text);
    cr_assert_not_null(strstr(b.error.text, "newer than this one"), "%s", b.error.text);
    bench_end(&b);
}

/* Whoever answers after a lost connection may be a newer daemon, which has taken over. */
Test(member_join, a_connection_that_was_lost_is_made_again_in_the_newest_protocol)
{
    const struct ct_message refuse = {.type = CT_MSG_REFUSE, .refuse = {.code = CT_EPROTOCOL}};
    struct ct_error why = {.code = CT_ECLOSED, .text = "gone"};
    struct bench b;

    bench_begin(&b);
    for (uint32_t protocol = CT_WIRE_PROTOCOL; protocol > CT_WIRE_OLDEST; protocol--) {
        ct_member_connected(&b.member, 0);
        bench_send(&b, &refuse);
        ct_member_tick(&b.member, 0);
    }
    ct_member_connected(&b.member, 0);
    cr_assert_eq(offered(&b), CT_WIRE_OLDEST);
    bench_send_welcome(&b, 0);
    ct_member_disconnected(&b.member, 0, &why);
    ct_member_tick(&b.member, ct_member_deadline(&b.member));
    ct_member_connected(&b.member, 1);
    cr_assert_eq(offered(&b), CT_WIRE_PROTOCOL);
    bench_end(&b);
}
