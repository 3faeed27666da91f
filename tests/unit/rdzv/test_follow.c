/* Who is told of a job's events: one node, each event once; and operators that follow. */
#include "admin_bench.h"

#include "rendezvous/history/history.h"

TestSuite(follow, .timeout = 20);

/* An event: a host is cordoned. */
static void happen(struct bench *b, const char *host)
{
    struct peer operator= {.has_key = true};
    const struct ct_message m = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_CORDON, .host = host, .author = "me", .reason = ""}};

    hello(b, &operator, "digits", "admin");
    send_message(b, &operator, & m);
    free(operator.text);
    ct_service_closed(b->service, 1000, operator.link, false);
}

/* What the peer was told since it was asked last. */
static bool was_told(struct peer *peer, const char *words)
{
    bool told = peer->text != NULL && contains(peer->text, words);

    free(peer->text);
    peer->text = NULL;
    return told;
}

Test(follow, of_the_nodes_that_ask_the_first_of_the_round_is_told_each_event_once)
{
    struct bench b;
    followers = 1u << 1 | 1u << 2;
    begin(&b, 3);
    cr_assert_not_null(b.nodes[1].text);
    cr_assert(contains(b.nodes[1].text, "\"number\":1,"), "%s", b.nodes[1].text);
    cr_assert(was_told(&b.nodes[1], "\"event\":\"round_runs\""), "what waited for its round");
    happen(&b, "x");
    cr_assert(was_told(&b.nodes[1], "host x is cordoned"));
    cr_assert_null(b.nodes[0].text, "it did not ask");
    cr_assert_null(b.nodes[2].text, "nothing is told twice");
    end(&b);
}

Test(follow, when_the_node_that_was_told_is_gone_the_next_one_is)
{
    struct bench b;
    followers = 3;
    begin(&b, 2);
    cr_assert(was_told(&b.nodes[0], "round_runs"));
    ct_service_closed(b.service, 1000, b.nodes[0].link, false);
    happen(&b, "x");
    cr_assert(was_told(&b.nodes[1], "host x is cordoned"));
    end(&b);
}

static void begin_lobby(struct bench *b)
{
    const struct ct_service_io io = {
        .context = b, .send = io_send, .close = io_close, .may = io_may, .announce = io_announce};

    *b = (struct bench){.count = 1, .nodes = calloc(1, sizeof(*b->nodes))};
    b->service = ct_service_new(NULL, &io, 7);
    followers = 1;
    join(b, 0, "digits", 4);
}

Test(follow, what_happens_before_the_first_round_waits_for_it_but_not_for_ever)
{
    struct bench b;
    char host[16];
    begin_lobby(&b);
    cr_assert_null(b.nodes[0].text, "who will be node 0 is not known yet");
    for (int i = 0; i < CT_ADMIN_HELD; i++) {
        (void)snprintf(host, sizeof host, "h%d", i);
        happen(&b, host);
    }
    cr_assert(was_told(&b.nodes[0], "\"number\":1,"), "the oldest is not lost");
    end(&b);
}

/* The same node on a new connection, which has seen events up to `after`. */
static void come_back(struct bench *b, struct peer *peer, uint64_t now_ms, uint64_t after)
{
    const struct ct_id id = {peer->link, 1};
    struct ct_message hello_again = {.type = CT_MSG_HELLO,
                                     .hello = {.protocol = CT_WIRE_PROTOCOL,
                                               .job = "digits",
                                               .host = "h",
                                               .incarnation = id,
                                               .role = "agent"}};
    struct ct_message join_again = {.type = CT_MSG_JOIN,
                                    .join = {.generation = 1,
                                             .seq = 10,
                                             .acting = 1,
                                             .incarnation = id,
                                             .slots = 2,
                                             .node_rank = -1,
                                             .slurm_node = -1,
                                             .nodes_min = 1,
                                             .nodes_max = 2,
                                             .host = "node0",
                                             .address = "10.0.0.1",
                                             .role = "default",
                                             .settings = "",
                                             .join_timeout_ms = 60000,
                                             .last_call_ms = 1,
                                             .lease_ms = 1000,
                                             .prepare_ms = 1000,
                                             .grow_ms = 100,
                                             .autonomy_ms = 600000}};

    const struct ct_message ask_again = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_FOLLOW, .host = "", .author = "", .reason = "", .after = after}};

    ct_service_closed(b->service, now_ms, peer->link, false);
    peer->link = ct_service_open(b->service, peer);
    ct_service_message(b->service, now_ms, peer->link, &hello_again);
    ct_service_message(b->service, now_ms, peer->link, &ask_again);
    ct_service_message(b->service, now_ms, peer->link, &join_again);
}

Test(follow, a_node_whose_connection_broke_is_told_again_what_it_has_not_seen)
{
    struct bench b;
    followers = 1;
    begin(&b, 2);
    happen(&b, "seen");
    const char *text = b.nodes[0].text;
    cr_assert(contains(text, "host seen is cordoned"), "%s", text);
    uint64_t number = strtoull(strstr(text, "\"number\":") + 9, NULL, 10);
    happen(&b, "lost");
    (void)was_told(&b.nodes[0], "");
    come_back(&b, &b.nodes[0], 1000, number);
    cr_assert_not_null(b.nodes[0].text);
    cr_assert(contains(b.nodes[0].text, "host lost is cordoned"), "%s", b.nodes[0].text);
    cr_assert(!contains(b.nodes[0].text, "host seen is cordoned"), "%s", b.nodes[0].text);
    end(&b);
}

Test(follow, a_node_that_comes_back_to_a_job_that_is_over_is_told_how_it_ended)
{
    struct bench b;
    followers = 1;
    begin(&b, 1);
    (void)was_told(&b.nodes[0], "");
    uint64_t link = b.nodes[0].link;
    ct_service_closed(b.service, 1000, link, false);
    for (uint64_t ms = 1000; ms <= 5000; ms += 50) /* it is lost, and was the only one */
        ct_service_tick(b.service, ms);
    b.nodes[0].link = link;
    come_back(&b, &b.nodes[0], 5000, 100);
    cr_assert_not_null(b.nodes[0].text);
    cr_assert(contains(b.nodes[0].text, "\"event\":\"node_lost\""), "%s", b.nodes[0].text);
    cr_assert(contains(b.nodes[0].text, "\"event\":\"ended_badly\""), "%s", b.nodes[0].text);
    end(&b);
}

Test(follow, a_node_asks_before_its_join_and_for_nothing_else)
{
    static const uint8_t verbs[] = {CT_ADMIN_STATUS, CT_ADMIN_FOLLOW};
    for (size_t i = 0; i < CT_COUNT(verbs); i++) {
        struct bench b;
        const struct ct_message m = {
            .type = CT_MSG_ADMIN,
            .admin = {.verb = verbs[i], .host = "", .author = "", .reason = ""}};
        begin(&b, 1);
        send_message(&b, &b.nodes[0], &m);
        cr_assert_eq(b.nodes[0].closed, CT_EPROTOCOL);
        end(&b);
    }
}

Test(follow, an_operator_that_follows_is_told_each_event_and_that_the_job_is_over)
{
    struct bench b;
    begin(&b, 1);
    (void)ask(&b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_FOLLOW});
    cr_assert(was_told(&b.operator, "\"event\":\"job_begun\""), "what has happened");
    happen(&b, "x");
    cr_assert(was_told(&b.operator, "host x is cordoned"));
    send_message(&b, &b.nodes[0],
                 &(struct ct_message){.type = CT_MSG_DONE, .done = {.generation = 1, .seq = 4}});
    cr_assert(was_told(&b.operator, "\"event\":\"ended_well\""));
    ct_service_closed(b.service, 1000, b.nodes[0].link, false);
    ct_service_tick(b.service, 2000000);
    join(&b, 0, "digits", 1); /* another job of that name */
    cr_assert(was_told(&b.operator, "job digits is over"));
    cr_assert_eq(b.operator.code, CT_ENOTFOUND);
    end(&b);
}

Test(follow, so_many_operators_may_follow_and_no_more)
{
    struct bench b;
    struct peer crowd[80] = {{.link = 0}};
    size_t refused = 0;
    begin(&b, 1);
    for (size_t i = 0; i < CT_COUNT(crowd); i++) {
        hello(&b, &crowd[i], "digits", "admin");
        follow(&b, &crowd[i], 0);
        refused += crowd[i].code == CT_ELIMIT;
    }
    cr_assert_eq(refused, CT_COUNT(crowd) - 64);
    ct_service_closed(b.service, 1000, crowd[0].link, false);
    follow(&b, &crowd[79], 0);
    cr_assert_eq(crowd[79].code, 0, "one has gone: %s", crowd[79].text);
    for (size_t i = 0; i < CT_COUNT(crowd); i++)
        free(crowd[i].text);
    end(&b);
}

Test(follow, names_of_events_are_known_and_a_wrong_one_is_said_with_the_nearest)
{
    const char *const good[] = {"node_lost", "ended_well"}, *const bad[] = {"node_last"};
    struct ct_error err = {0};
    uint64_t set = 0;

    cr_assert_eq(ct_announcements_read(good, 2, "kinds", &set, &err), 0);
    cr_assert_eq(set, 1ull << CT_ANNOUNCE_NODE_LOST | 1ull << CT_ANNOUNCE_ENDED_WELL);
    cr_assert_eq(ct_announcements_read(NULL, 0, "kinds", &set, &err), 0);
    cr_assert_eq(set, UINT64_MAX);
    cr_assert_eq(ct_announcements_read(bad, 1, "kinds", &set, &err), CT_EUSAGE);
    cr_assert_str_eq(err.text, "kinds: there are no events node_last: did you mean node_lost?");
}
