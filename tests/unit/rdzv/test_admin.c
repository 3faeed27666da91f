/* Operators: what they see of a job, and how their orders reach it. */
#include "admin_bench.h"

#include "base/clock.h"

TestSuite(admin, .timeout = 30);

Test(admin, status_shows_round_ranks_and_nodes)
{
    struct bench b;
    begin(&b, 2);
    const char *text = status(&b, "digits", false);
    cr_assert_eq(b.operator.code, 0);
    cr_assert(contains(text, "job digits"), "%s", text);
    cr_assert(contains(text, "runs round 1 with 2 nodes, 4 ranks, 0 of 0 restarts used\n"), "%s",
              text);
    cr_assert(contains(text, "node 1, ranks 2 to 3"), "%s", text);
    cr_assert(!contains(text, "DEGRADED") && !contains(text, "saved"), "%s", text);
    end(&b);
}

Test(admin, status_in_json_has_the_same_facts)
{
    struct bench b;
    begin(&b, 1);
    (void)ask(
        &b, "digits",
        &(struct ct_msg_admin){
            .verb = CT_ADMIN_CORDON, .host = "bad \"host\"", .author = "me", .for_ms = 60000});
    const char *expected =
        "{\"jobs\":[{\"job\":\"digits\",\"phase\":\"RUNNING\",\"phase_s\":0,\"why\":\"job digits "
        "runs round 1 "
        "with 1 "
        "node, 2 ranks, 0 of 0 restarts used\",\"epoch\":7,\"generation\":1,\"world\":2,"
        "\"nodes_min\":1,\"nodes_max\":1,\"restarts\":0,\"max_restarts\":0,\"journal\":\"in "
        "order\","
        "\"cordons\":[{\"host\":\"bad \\\"host\\\"\",\"reason\":\"by me\",\"left_s\":60}],"
        "\"nodes\":[{\"host\":\"node0\",\"state\":\"ACTING\",\"slots\":2,\"node_rank\":0,"
        "\"first_rank\":0,\"heard_s\":0,\"connected\":true,\"leaving\":false}]}]}\n";
    const char *text = status(&b, "digits", true);
    cr_assert(strcmp(text, expected) == 0, "%s", text);
    end(&b);
}

Test(admin, status_with_the_history_has_the_curve_and_where_the_time_went_besides)
{
    struct bench b;
    const struct ct_message m = {
        .type = CT_MSG_PROGRESS,
        .progress = {.generation = 1, .step = 30, .steps = 120, .loss = 2.5, .eta_s = 95}};

    begin(&b, 1);
    send_message(&b, &b.nodes[0], &m);
    for (int form = CT_ADMIN_HISTORY; form < 256; form += 100) { /* a newer one's is as this */
        const char *text = ask(
            &b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_STATUS, .json = (uint8_t)form});
        cr_assert(contains(text, "\"leaving\":false}],\"curve\":{\"s\":[") &&
                      contains(text, "\"loss\":[2.5]") && contains(text, "\"time\":[[") &&
                      contains(text, "\"rounds\":[]}]}\n"),
                  "%s", text);
    }
    cr_assert(!contains(status(&b, "digits", true), "curve"));
    end(&b);
}

Test(admin, status_has_the_jobs_own_elapsed_time_and_what_is_left_by_rank_0s_word)
{
    struct bench b;
    const struct ct_message m = {
        .type = CT_MSG_PROGRESS,
        .progress = {.generation = 1,
                     .step = 30,
                     .steps = 120,
                     .loss = 2.5,
                     .samples_per_s = 46,
                     .elapsed_s = 3725, /* this daemon was started again a moment ago */
                     .eta_s = 95}};
    begin(&b, 1);
    send_message(&b, &b.nodes[0], &m);
    const char *text = status(&b, "digits", false);
    cr_assert(contains(text, "  training   step 30 of 120 (25 %), loss 2.5000, 46 samples/s\n"
                             "  elapsed    1:02:05, about 1:35 left\n"),
              "%s", text);
    text = status(&b, "digits", true);
    cr_assert(contains(text, "\"percent\":25,") &&
                  contains(text, "\"elapsed_s\":3725,\"eta_s\":95,"),
              "%s", text);
    end(&b);
}

Test(admin, status_says_why_the_job_was_restarted)
{
    struct bench b;
    const struct ct_message failure = {.type = CT_MSG_FAILURE,
                                       .failure = {.generation = 1,
                                                   .seq = 4,
                                                   .failure = {.rank = 1,
                                                               .local_rank = 1,
                                                               .pid = 7,
                                                               .code = CT_EWORKER,
                                                               .status = 3,
                                                               .host = "node0",
                                                               .text = "",
                                                               .error_file = ""}}};
    restarts_allowed = 1;
    begin(&b, 1);
    restarts_allowed = 0;
    send_message(&b, &b.nodes[0], &failure);
    const char *text = status(&b, "digits", false);
    cr_assert(contains(text, "  restarted  because rank 1 on node0 exited with status 3\n"), "%s",
              text);
    text = status(&b, "digits", true);
    cr_assert(contains(text, "\"restart_reason\":\"rank 1 on node0 exited with status 3\""), "%s",
              text);
    end(&b);
}

Test(admin, without_a_name_the_only_job_is_meant_and_status_shows_all)
{
    struct bench b;
    struct peer other = {.link = 0};
    begin(&b, 1);
    cr_assert(contains(status(&b, "", false), "job digits"));
    hello(&b, &other, "second", "agent");
    struct peer *kept = b.nodes;
    b.nodes = &other;
    join(&b, 0, "second", 2);
    b.nodes = kept;
    const char *text = status(&b, "", false);
    cr_assert(contains(text, "job digits") && contains(text, "job second"), "%s", text);
    text = ask(&b, "", &(struct ct_msg_admin){.verb = CT_ADMIN_DRAIN, .host = "node0"});
    cr_assert_eq(b.operator.code, CT_EUSAGE);
    cr_assert(contains(text, "name one with --rdzv_id: second, digits"), "%s", text);
    end(&b);
}

Test(admin, a_job_that_is_not_there_is_said_with_those_that_are)
{
    struct bench b;
    begin(&b, 1);
    const char *text = status(&b, "digit", false);
    cr_assert_eq(b.operator.code, CT_ENOTFOUND);
    cr_assert_str_eq(text, "no job digit is served here; there are: digits");
    end(&b);
}

Test(admin, a_journal_that_cannot_be_written_is_shown)
{
    struct bench b;
    begin(&b, 1);
    ct_service_set_trouble(b.service, "cannot write the journal: no space left");
    cr_assert(contains(status(&b, "digits", false), "DEGRADED   no new round can begin"));
    cr_assert(contains(status(&b, "digits", true), "\"journal\":\"cannot write"));
    ct_service_set_trouble(b.service, "");
    cr_assert(!contains(status(&b, "digits", false), "DEGRADED"));
    end(&b);
}

Test(admin, who_waits_in_the_store_of_pytorch_is_shown_as_long_as_it_is_said)
{
    struct bench b;
    const struct ct_message waits = {
        .type = CT_MSG_STORE_WAITS,
        .store_waits = {.generation = 1,
                        .text = "rank 0 waits 2 s for \"/a\"\nrank 2 waits 1 s for \"/b\"\n"}};
    struct ct_message other = waits;

    begin(&b, 2);
    cr_assert(!contains(status(&b, "digits", false), "store "));
    send_message(&b, &b.nodes[0], &waits);
    cr_assert(contains(status(&b, "digits", false), "  store      rank 0 waits 2 s for \"/a\"\n"
                                                    "  store      rank 2 waits 1 s for \"/b\"\n"),
              "%s", b.operator.text);
    cr_assert(contains(status(&b, "digits", true),
                       "\"store_waits\":[\"rank 0 waits 2 s for \\\"/a\\\"\",\"rank 2 waits"),
              "%s", b.operator.text);
    other.store_waits.text = "";
    send_message(&b, &b.nodes[0], &other);
    cr_assert(!contains(status(&b, "digits", false), "store "), "nobody waits");
    other.store_waits.text = "a\x1b[2J\nb\r";
    send_message(&b, &b.nodes[0], &other);
    cr_assert(
        contains(status(&b, "digits", false), "  store      a\\x1b[2J\n  store      b\\x0d\n"),
        "%s", b.operator.text);
    other = waits;
    other.store_waits.generation = 0;
    send_message(&b, &b.nodes[0], &other);
    cr_assert(!contains(status(&b, "digits", false), "store "), "an older round's");
    send_message(&b, &b.nodes[0], &waits);
    const struct ct_message question = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_STATUS, .host = "", .author = "", .reason = ""}};
    ct_service_message(b.service, 3999, b.operator.link, &question);
    cr_assert(contains(b.operator.text, "  store      rank 0"));
    ct_service_message(b.service, 4000, b.operator.link, &question);
    cr_assert(!contains(b.operator.text, "store "), "not said for 3 s");
    end(&b);
}

Test(admin, cordons_are_shown_until_they_are_taken_back)
{
    struct bench b;
    begin(&b, 1);
    (void)ask(
        &b, "digits",
        &(struct ct_msg_admin){
            .verb = CT_ADMIN_CORDON, .host = "node7", .author = "me@here", .reason = "a bad fan"});
    cr_assert_eq(b.operator.code, 0, "%s", b.operator.text);
    const char *text = status(&b, "digits", false);
    cr_assert(contains(text, "cordoned   node7: by me@here: a bad fan"), "%s", text);
    (void)ask(&b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_UNCORDON, .host = "node7"});
    cr_assert_eq(b.operator.code, 0, "%s", b.operator.text);
    cr_assert(!contains(status(&b, "digits", false), "cordoned"));
    end(&b);
}

Test(admin, drain_tells_the_node_of_that_host_and_an_unknown_host_is_said)
{
    struct bench b;
    begin(&b, 2);
    (void)ask(&b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_DRAIN, .host = "node1"});
    cr_assert_eq(b.operator.code, 0, "%s", b.operator.text);
    cr_assert(b.nodes[1].drains == 1 && b.nodes[0].drains == 0);
    const char *text =
        ask(&b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_DRAIN, .host = "x"});
    cr_assert_eq(b.operator.code, CT_ENOTFOUND);
    cr_assert(contains(text, "x"), "%s", text);
    end(&b);
}

Test(admin, an_operator_is_no_node_and_a_node_no_operator)
{
    struct bench b;
    begin(&b, 1);
    hello(&b, &b.operator, "digits", "admin");
    send_message(&b, &b.operator, &(struct ct_message){.type = CT_MSG_HEARTBEAT});
    cr_assert_eq(b.operator.closed, CT_EPROTOCOL);
    send_message(&b, &b.nodes[0], &(struct ct_message){.type = CT_MSG_ADMIN});
    cr_assert_eq(b.nodes[0].closed, CT_EPROTOCOL);
    end(&b);
}

Test(admin, an_operator_without_the_key_learns_nothing)
{
    struct bench b;
    begin(&b, 1);
    struct peer *operator= & b.operator;
    struct ct_message hi = {
        .type = CT_MSG_HELLO,
        .hello = {.protocol = CT_WIRE_PROTOCOL, .job = "digits", .host = "h", .role = "admin"}};
    operator->link = ct_service_open(b.service, operator);
    send_message(&b, operator, & hi);
    cr_assert_eq(operator->closed, CT_EAUTH);
    operator->link = ct_service_open(b.service, operator);
    hi.hello.job = "";
    operator->closed = 0;
    send_message(&b, operator, & hi);
    cr_assert_eq(operator->closed, CT_EAUTH);
    cr_assert_null(operator->text);
    end(&b);
}

Test(admin, status_of_a_thousand_nodes_takes_well_below_200_ms)
{
    struct bench b;
    begin(&b, 1000);
    uint64_t before_ms = ct_clock_mono_ms(&ct_clock_system);
    const char *text = status(&b, "digits", true);
    uint64_t ms = ct_clock_mono_ms(&ct_clock_system) - before_ms;
    cr_assert(contains(text, "node999"));
    cr_assert_lt(ms, 200);
    end(&b);
}

/* ---- how often ---- */

/* Ask for the status once more on the operator's connection. */
static const char *status_at(struct bench *b, uint64_t now_ms, bool json)
{
    const struct ct_message question = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_STATUS, .host = "", .author = "", .reason = "", .json = json}};
    ct_service_message(b->service, now_ms, b->operator.link, &question);
    return b->operator.text;
}

static void progress_at(struct bench *b, uint64_t now_ms, uint64_t step)
{
    const struct ct_message progress = {.type = CT_MSG_PROGRESS,
                                        .progress = {.step = step, .steps = 100}};
    ct_service_message(b->service, now_ms, b->nodes[0].link, &progress);
}

Test(admin, status_of_many_nodes_is_written_once_a_second)
{
    struct bench b;
    begin(&b, CT_ADMIN_MANY + 1);
    cr_assert(!contains(status(&b, "digits", false), "training"));
    cr_assert(!contains(status(&b, "digits", true), "\"step\""));
    progress_at(&b, 1000, 5);
    cr_assert(!contains(status_at(&b, 1999, false), "training"), "what was said at 1000");
    cr_assert(!contains(status_at(&b, 1999, true), "\"step\""));
    cr_assert(contains(b.operator.text, "{\"jobs\":[{\"job\":\"digits\","), "%s", b.operator.text);
    cr_assert(contains(b.operator.text, "}]}]}\n"));
    cr_assert(contains(status_at(&b, 2000, false), "step 5 of 100"));
    cr_assert(contains(status_at(&b, 2000, true), "\"step\":5"));
    end(&b);
}

Test(admin, status_of_many_nodes_is_never_older_than_an_order_or_a_phase)
{
    struct bench b;
    begin(&b, CT_ADMIN_MANY + 1);
    cr_assert(!contains(status(&b, "digits", false), "cordoned"));
    (void)ask(&b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_CORDON, .host = "node7"});
    cr_assert(contains(status(&b, "digits", false), "cordoned   node7"));
    const struct ct_message failure = {
        .type = CT_MSG_FAILURE,
        .failure = {
            .generation = 1, .seq = 4, .failure = {.host = "h", .text = "", .error_file = ""}}};
    cr_assert(contains(b.operator.text, "runs round 1"), "%s", b.operator.text);
    send_message(&b, &b.nodes[0], &failure);
    ct_service_tick(b.service, 1500);
    cr_assert(!contains(status_at(&b, 1500, false), "runs round 1"), "%.200s", b.operator.text);
    end(&b);
}

Test(admin, status_of_few_nodes_is_of_now)
{
    struct bench b;
    begin(&b, 2);
    cr_assert(!contains(status(&b, "digits", false), "training"));
    progress_at(&b, 1000, 5);
    cr_assert(contains(status_at(&b, 1000, false), "step 5 of 100"));
    end(&b);
}

Test(admin, who_asks_too_often_is_told_when_to_ask_again)
{
    struct bench b;
    begin(&b, 1);
    hello(&b, &b.operator, "digits", "admin");
    for (int i = 0; i < CT_ADMIN_BURST; i++) {
        (void)status_at(&b, 1000, false);
        cr_assert_eq(b.operator.code, 0, "question %d: %s", i, b.operator.text);
    }
    cr_assert_str_eq(status_at(&b, 1000, false),
                     "this connection sends more than 20 questions or orders a second: nothing was "
                     "done, try again in 50 ms");
    cr_assert_eq(b.operator.code, CT_EUNAVAILABLE);
    const struct ct_message drain = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_DRAIN, .host = "node0", .author = "", .reason = ""}};
    ct_service_message(b.service, 1000, b.operator.link, &drain);
    cr_assert_eq(b.operator.code, CT_EUNAVAILABLE);
    cr_assert_eq(b.nodes[0].drains, 0, "an order too much is not carried out");
    cr_assert_eq(b.operator.closed, 0);
    (void)status_at(&b, 1049, false);
    cr_assert_eq(b.operator.code, CT_EUNAVAILABLE);
    (void)status_at(&b, 1050, false);
    cr_assert_eq(b.operator.code, 0);
    send_message(&b, &b.operator, &(struct ct_message){.type = CT_MSG_FLIGHT_QUERY});
    cr_assert_eq(b.operator.rounds, 1, "FLIGHT_QUERY has a pace of its own");
    end(&b);
}

Test(admin, who_connects_anew_for_each_question_shares_a_larger_pace)
{
    struct bench b;
    begin(&b, 1);
    for (int i = 0; i < CT_ADMIN_BURST * CT_ADMIN_ALL; i++) {
        (void)status(&b, "digits", false);
        cr_assert_eq(b.operator.code, 0, "question %d: %s", i, b.operator.text);
        ct_service_closed(b.service, 1000, b.operator.link, false);
    }
    cr_assert_str_eq(status(&b, "digits", false),
                     "operators send more than 200 questions or orders a second: nothing was done, "
                     "try again in 5 ms");
    end(&b);
}

Test(admin, who_has_read_events_of_an_earlier_daemon_gets_those_of_this_one_from_the_first)
{
    static const char first[] = "\"number\":1,\"job\":\"digits\"";
    struct bench b;
    uint64_t after = 1000;
    struct ct_message m = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_EVENTS, .host = "", .author = "", .reason = "", .after = after}};
    struct ct_buf text;

    begin(&b, 2);
    hello(&b, &b.operator, "digits", "admin");
    send_message(&b, &b.operator, & m);
    cr_assert_eq(b.operator.code, 0, "%s", b.operator.text);
    cr_assert_not_null(strstr(b.operator.text, first), "%s", b.operator.text);
    ct_buf_init(&text, 0);
    cr_assert(ct_service_put_event(b.service, 1000, NULL, NULL, &after, &text));
    cr_assert_eq(after, 1);
    ct_buf_deinit(&text);
    end(&b);
}
