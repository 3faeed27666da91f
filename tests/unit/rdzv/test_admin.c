/* Operators: what they see of a job, and how their orders reach it. */
#include "rendezvous/admin.h"

#include "base/assert.h"
#include "base/clock.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(admin, .timeout = 30);

struct peer {
    uint64_t link;
    bool has_key;
    int closed;
    int code;
    unsigned drains;
    unsigned rounds;         /* ROUND, of any number of nodes */
    uint32_t nodes;          /* in the last one */
    struct ct_msg_look look; /* the last LOOK */
    unsigned looks, seens;   /* how many */
    struct ct_msg_seen seen; /* the last SEEN, without its bytes */
    size_t traces;           /* of which it had so many */
    char *text;              /* of the last ADMIN_REPLY */
};

struct bench {
    struct ct_service *service;
    struct peer *nodes;
    uint32_t count;
    struct peer operator;
};

static void io_send(void *context, void *to, const struct ct_message *message)
{
    struct peer *peer = to;
    (void)context;
    peer->drains += message->type == CT_MSG_DRAIN;
    if (message->type == CT_MSG_ROUND) {
        peer->rounds++;
        peer->nodes = message->round.nodes.count;
    } else if (message->type == CT_MSG_LOOK) {
        peer->looks++;
        peer->look = message->look;
    } else if (message->type == CT_MSG_SEEN) {
        peer->seens++;
        peer->seen = message->seen;
        peer->traces = message->seen.traces.size;
    }
    if (message->type != CT_MSG_ADMIN_REPLY)
        return;
    const struct ct_bytes *text = &message->admin_reply.text;
    free(peer->text);
    peer->text = strndup((const char *)text->data, text->size);
    peer->code = message->admin_reply.code;
}

static void io_close(void *context, void *of, int code, const char *sentence)
{
    (void)context, (void)sentence;
    ((struct peer *)of)->closed = code;
}

static bool io_is_for(void *context, void *of, const char *job)
{
    (void)context, (void)job;
    return ((struct peer *)of)->has_key;
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    (void)context, (void)job, (void)sentence;
}

static void say(struct bench *b, const struct peer *peer, const struct ct_message *message)
{
    ct_service_message(b->service, 1000, peer->link, message);
}

static void hello(struct bench *b, struct peer *peer, const char *job, const char *role)
{
    struct ct_message m = {.type = CT_MSG_HELLO,
                           .hello = {.protocol = CT_WIRE_PROTOCOL,
                                     .job = job,
                                     .host = "h",
                                     .incarnation = {peer->link, 1},
                                     .role = role}};
    *peer = (struct peer){.has_key = true, .link = peer->link};
    peer->link = ct_service_open(b->service, peer);
    m.hello.incarnation.high = peer->link;
    say(b, peer, &m);
}

static void join(struct bench *b, uint32_t index, const char *job, uint32_t nodes_max)
{
    struct peer *peer = &b->nodes[index];
    char host[32];
    (void)snprintf(host, sizeof(host), "node%u", index);
    hello(b, peer, job, "agent");
    struct ct_message m = {.type = CT_MSG_JOIN,
                           .join = {.seq = 1,
                                    .incarnation = {peer->link, 1},
                                    .slots = 2,
                                    .node_rank = -1,
                                    .slurm_node = -1,
                                    .nodes_min = CT_MAX(nodes_max / 2, 1u),
                                    .nodes_max = nodes_max,
                                    .host = host,
                                    .address = "10.0.0.1",
                                    .role = "default",
                                    .settings = "",
                                    .join_timeout_ms = 60000,
                                    .last_call_ms = 1,
                                    .lease_ms = 1000,
                                    .prepare_ms = 1000,
                                    .grow_ms = 100,
                                    .autonomy_ms = 600000}};
    say(b, peer, &m);
}

/* A job of `count` nodes in its first round. */
static void begin(struct bench *b, uint32_t count)
{
    const struct ct_service_io io = {.context = b,
                                     .send = io_send,
                                     .close = io_close,
                                     .is_for = io_is_for,
                                     .announce = io_announce};
    *b = (struct bench){.count = count, .nodes = calloc(count, sizeof(*b->nodes))};
    b->service = ct_service_new(NULL, &io, 7);
    for (uint32_t i = 0; i < count; i++)
        join(b, i, "digits", count);
    for (uint32_t i = 0; i < count; i++)
        say(b, &b->nodes[i],
            &(struct ct_message){.type = CT_MSG_PREPARED, .prepared = {.generation = 1, .seq = 2}});
    for (uint32_t i = 0; i < count; i++)
        say(b, &b->nodes[i],
            &(struct ct_message){
                .type = CT_MSG_HEARTBEAT,
                .heartbeat = {.generation = 1, .seq = 3, .acting = 1, .healed = 1}});
}

static void end(struct bench *b)
{
    for (uint32_t i = 0; i < b->count; i++)
        free(b->nodes[i].text);
    free(b->operator.text);
    ct_service_free(b->service);
    free(b->nodes);
}

static const char *ask(struct bench *b, const char *job, const struct ct_msg_admin *question)
{
    struct ct_message m = {.type = CT_MSG_ADMIN, .admin = *question};
    m.admin.host = question->host != NULL ? question->host : ""; /* the codec leaves no NULL */
    m.admin.author = question->author != NULL ? question->author : "";
    m.admin.reason = question->reason != NULL ? question->reason : "";
    free(b->operator.text);
    hello(b, &b->operator, job, "admin");
    say(b, &b->operator, & m);
    cr_assert_not_null(b->operator.text);
    return b->operator.text;
}

static const char *status(struct bench *b, const char *job, bool json)
{
    return ask(b, job, &(struct ct_msg_admin){.verb = CT_ADMIN_STATUS, .json = json});
}

static bool says(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

Test(admin, status_shows_round_ranks_and_nodes)
{
    struct bench b;
    begin(&b, 2);
    const char *text = status(&b, "digits", false);
    cr_assert_eq(b.operator.code, 0);
    cr_assert(says(text, "job digits"), "%s", text);
    cr_assert(says(text, "generation 1, epoch 7, 2 nodes and 4 ranks (nodes 1:2"), "%s", text);
    cr_assert(says(text, "node 1, ranks 2 to 3"), "%s", text);
    cr_assert(!says(text, "DEGRADED") && !says(text, "published"), "%s", text);
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
        "{\"jobs\":[{\"job\":\"digits\",\"phase\":\"RUNNING\",\"why\":\"job digits runs round 1 "
        "with 1 "
        "nodes, 2 ranks, 0 of 0 restarts used\",\"epoch\":7,\"generation\":1,\"world\":2,"
        "\"nodes_min\":1,\"nodes_max\":1,\"restarts\":0,\"max_restarts\":0,\"journal\":\"in "
        "order\","
        "\"cordons\":[{\"host\":\"bad \\\"host\\\"\",\"reason\":\"by me\",\"left_s\":60}],"
        "\"nodes\":[{\"host\":\"node0\",\"state\":\"ACTING\",\"slots\":2,\"node_rank\":0,"
        "\"first_rank\":0,\"heard_s\":0,\"connected\":true,\"leaving\":false}]}]}\n";
    const char *text = status(&b, "digits", true);
    cr_assert(strcmp(text, expected) == 0, "%s", text);
    end(&b);
}

Test(admin, without_a_name_the_only_job_is_meant_and_status_shows_all)
{
    struct bench b;
    struct peer other = {.link = 0};
    begin(&b, 1);
    cr_assert(says(status(&b, "", false), "job digits"));
    hello(&b, &other, "second", "agent");
    struct peer *kept = b.nodes;
    b.nodes = &other;
    join(&b, 0, "second", 2);
    b.nodes = kept;
    const char *text = status(&b, "", false);
    cr_assert(says(text, "job digits") && says(text, "job second"), "%s", text);
    text = ask(&b, "", &(struct ct_msg_admin){.verb = CT_ADMIN_DRAIN, .host = "node0"});
    cr_assert_eq(b.operator.code, CT_EUSAGE);
    cr_assert(says(text, "name one with --rdzv_id: second, digits"), "%s", text);
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
    cr_assert(says(status(&b, "digits", false), "DEGRADED   no new round can begin"));
    cr_assert(says(status(&b, "digits", true), "\"journal\":\"cannot write"));
    ct_service_set_trouble(b.service, "");
    cr_assert(!says(status(&b, "digits", false), "DEGRADED"));
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
    cr_assert(!says(status(&b, "digits", false), "store "));
    say(&b, &b.nodes[0], &waits);
    cr_assert(says(status(&b, "digits", false), "  store      rank 0 waits 2 s for \"/a\"\n"
                                                "  store      rank 2 waits 1 s for \"/b\"\n"),
              "%s", b.operator.text);
    cr_assert(says(status(&b, "digits", true),
                   "\"store_waits\":[\"rank 0 waits 2 s for \\\"/a\\\"\",\"rank 2 waits"),
              "%s", b.operator.text);
    other.store_waits.text = "";
    say(&b, &b.nodes[0], &other);
    cr_assert(!says(status(&b, "digits", false), "store "), "nobody waits");
    other = waits;
    other.store_waits.generation = 0;
    say(&b, &b.nodes[0], &other);
    cr_assert(!says(status(&b, "digits", false), "store "), "an older round's");
    say(&b, &b.nodes[0], &waits);
    const struct ct_message question = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_STATUS, .host = "", .author = "", .reason = ""}};
    ct_service_message(b.service, 3999, b.operator.link, &question);
    cr_assert(says(b.operator.text, "  store      rank 0"));
    ct_service_message(b.service, 4000, b.operator.link, &question);
    cr_assert(!says(b.operator.text, "store "), "not said for 3 s");
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
    cr_assert(says(text, "cordoned   node7: by me@here: a bad fan"), "%s", text);
    (void)ask(&b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_UNCORDON, .host = "node7"});
    cr_assert_eq(b.operator.code, 0, "%s", b.operator.text);
    cr_assert(!says(status(&b, "digits", false), "cordoned"));
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
    cr_assert(says(text, "x"), "%s", text);
    end(&b);
}

Test(admin, an_operator_is_no_node_and_a_node_no_operator)
{
    struct bench b;
    begin(&b, 1);
    hello(&b, &b.operator, "digits", "admin");
    say(&b, &b.operator, &(struct ct_message){.type = CT_MSG_HEARTBEAT});
    cr_assert_eq(b.operator.closed, CT_EPROTOCOL);
    say(&b, &b.nodes[0], &(struct ct_message){.type = CT_MSG_ADMIN});
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
    say(&b, operator, & hi);
    cr_assert_eq(operator->closed, CT_EAUTH);
    operator->link = ct_service_open(b.service, operator);
    hi.hello.job = "";
    say(&b, operator, & hi);
    say(&b, operator, &(struct ct_message){.type = CT_MSG_ADMIN});
    cr_assert_eq(operator->code, CT_ENOTFOUND);
    cr_assert_not(says(operator->text, "digits"), "%s", operator->text);
    end(&b);
}

Test(admin, status_of_a_thousand_nodes_takes_well_below_200_ms)
{
    struct bench b;
    begin(&b, 1000);
    uint64_t before_ms = ct_clock_mono_ms(&ct_clock_system);
    const char *text = status(&b, "digits", true);
    uint64_t ms = ct_clock_mono_ms(&ct_clock_system) - before_ms;
    cr_assert(says(text, "node999"));
    cr_assert_lt(ms, 200);
    end(&b);
}

/* ---- flight ---- */

/* A job of two nodes and an operator who has been told its round. */
static void begin_look(struct bench *b)
{
    begin(b, 2);
    hello(b, &b->operator, "digits", "admin");
    say(b, &b->operator, &(struct ct_message){.type = CT_MSG_LOOK});
    cr_assert(b->operator.rounds == 1 && b->operator.nodes == 2 && b->operator.text == NULL);
    cr_assert_eq(b->nodes[0].looks + b->nodes[1].looks, 0, "nobody is asked yet");
}

static void look(struct bench *b, uint32_t first, uint32_t count)
{
    say(b, &b->operator, &(struct ct_message){.type = CT_MSG_LOOK,
                                              .look = {.generation = 1,
                                                       .first = first,
                                                       .count = count,
                                                       .rank = -1,
                                                       .calls = 5,
                                                       .json = 1}});
}

Test(admin, a_look_goes_to_the_nodes_that_are_named_and_their_answers_to_who_asked)
{
    struct bench b;
    begin_look(&b);
    look(&b, 1, UINT32_MAX);
    cr_assert(b.nodes[0].looks == 0 && b.nodes[1].looks == 1);
    const struct ct_msg_look *asked = &b.nodes[1].look;
    cr_assert(asked->generation == 1 && asked->calls == 5 && asked->rank == -1 && asked->json == 1);
    say(&b, &b.nodes[1],
        &(struct ct_message){.type = CT_MSG_SEEN,
                             .seen = {.generation = 1,
                                      .asker = asked->asker,
                                      .node = 1,
                                      .traces = {(const unsigned char *)"abc", 3}}});
    cr_assert(b.operator.seens == 1 && b.operator.seen.node == 1 && b.operator.traces == 3);
    look(&b, 2, 1);
    look(&b, 0, 0);
    cr_assert(b.nodes[0].looks == 0 && b.nodes[1].looks == 1, "there is no node 2");
    end(&b);
}

Test(admin, for_a_node_that_is_not_connected_the_rendezvous_answers)
{
    struct bench b;
    begin_look(&b);
    ct_service_closed(b.service, 1000, b.nodes[0].link, false);
    look(&b, 0, 1);
    cr_assert_eq(b.operator.seens, 1);
    cr_assert(b.operator.seen.node == 0 && b.operator.seen.code == CT_EUNAVAILABLE);
    cr_assert_eq(b.operator.traces, 0);
    end(&b);
}

Test(admin, a_look_into_another_round_is_refused_with_a_sentence)
{
    struct bench b;
    begin_look(&b);
    say(&b, &b.operator, &(struct ct_message){.type = CT_MSG_LOOK,
                                              .look = {.generation = 2, .count = 2}});
    cr_assert_eq(b.operator.code, CT_EUNAVAILABLE);
    cr_assert(says(b.operator.text, "another round"), "%s", b.operator.text);
    cr_assert_eq(b.nodes[0].looks, 0);
    end(&b);
}

Test(admin, what_a_node_says_reaches_no_operator_of_another_job_and_no_node)
{
    struct bench b;
    struct ct_message seen = {.type = CT_MSG_SEEN, .seen = {.generation = 1}};
    begin_look(&b);
    struct peer stranger = {.link = 0};
    hello(&b, &stranger, "another", "admin");
    seen.seen.asker = stranger.link;
    say(&b, &b.nodes[0], &seen);
    seen.seen.asker = b.nodes[1].link;
    say(&b, &b.nodes[0], &seen);
    seen.seen.asker = b.operator.link;
    ct_service_closed(b.service, 1000, b.operator.link, false);
    say(&b, &b.nodes[0], &seen);
    cr_assert(stranger.seens == 0 && b.nodes[1].seens == 0 && b.operator.seens == 0);
    cr_assert_eq(b.nodes[0].closed, 0, "it did nothing wrong");
    say(&b, &b.nodes[0], &(struct ct_message){.type = CT_MSG_LOOK});
    cr_assert_eq(b.nodes[0].closed, CT_EPROTOCOL, "nodes do not ask");
    end(&b);
}
