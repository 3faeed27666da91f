/* What a job's nodes answer an operator: `ctrun flight --job`, `ctrun logs`. */
#include "admin_bench.h"

#include <time.h>

TestSuite(query, .timeout = 30);

/* A job of two nodes and an operator who has been told its round. */
static void begin_query(struct bench *b)
{
    begin(b, 2);
    hello(b, &b->operator, "digits", "admin");
    send_message(b, &b->operator, &(struct ct_message){.type = CT_MSG_FLIGHT_QUERY});
    cr_assert(b->operator.rounds == 1 && b->operator.nodes == 2 && b->operator.text == NULL);
    cr_assert_eq(b->nodes[0].queries + b->nodes[1].queries, 0, "nobody is asked yet");
}

static void query(struct bench *b, uint32_t first, uint32_t count)
{
    send_message(b, &b->operator, &(struct ct_message){.type = CT_MSG_FLIGHT_QUERY,
                                                       .flight_query = {.generation = 1,
                                                                        .first = first,
                                                                        .count = count,
                                                                        .rank = -1,
                                                                        .calls = 5,
                                                                        .json = 1}});
}

Test(query, a_look_goes_to_the_nodes_that_are_named_and_their_answers_to_who_asked)
{
    struct bench b;
    begin_query(&b);
    query(&b, 1, UINT32_MAX);
    cr_assert(b.nodes[0].queries == 0 && b.nodes[1].queries == 1);
    const struct ct_msg_flight_query *asked = &b.nodes[1].flight_query;
    cr_assert(asked->generation == 1 && asked->calls == 5 && asked->rank == -1 && asked->json == 1);
    send_message(
        &b, &b.nodes[1],
        &(struct ct_message){.type = CT_MSG_FLIGHT_REPLY,
                             .flight_reply = {.generation = 1,
                                              .asker = asked->asker,
                                              .node = 1,
                                              .traces = {(const unsigned char *)"abc", 3}}});
    cr_assert(b.operator.replies == 1 && b.operator.flight_reply.node == 1 && b.operator.traces ==
              3);
    query(&b, 2, 1);
    query(&b, 0, 0);
    cr_assert(b.nodes[0].queries == 0 && b.nodes[1].queries == 1, "there is no node 2");
    end(&b);
}

Test(query, a_look_at_all_of_many_nodes_costs_a_look_up_a_node)
{
    enum { NODES = 8000 };
    struct bench b;
    begin(&b, NODES);
    hello(&b, &b.operator, "digits", "admin");
    clock_t before = clock(); /* of the processor: what runs beside the test does not count */
    query(&b, 0, UINT32_MAX);
    double ms = (double)(clock() - before) * 1e3 / CLOCKS_PER_SEC;
    for (uint32_t i = 0; i < NODES; i++)
        cr_assert_eq(b.nodes[i].queries, 1, "node %u", i);
    cr_assert_lt(ms, 50, "%.1f ms", ms);
    end(&b);
}

Test(query, for_a_node_that_is_not_connected_the_rendezvous_answers)
{
    struct bench b;
    begin_query(&b);
    ct_service_closed(b.service, 1000, b.nodes[0].link, false);
    query(&b, 0, 1);
    cr_assert_eq(b.operator.replies, 1);
    cr_assert(b.operator.flight_reply.node == 0 && b.operator.flight_reply.code == CT_EUNAVAILABLE);
    cr_assert_eq(b.operator.traces, 0);
    end(&b);
}

Test(query, a_look_into_another_round_is_refused_with_a_sentence)
{
    struct bench b;
    begin_query(&b);
    send_message(&b,
                 &b.operator, &(struct ct_message){.type = CT_MSG_FLIGHT_QUERY,
                                                   .flight_query = {.generation = 2, .count = 2}});
    cr_assert_eq(b.operator.code, CT_EUNAVAILABLE);
    cr_assert(contains(b.operator.text, "another round"), "%s", b.operator.text);
    cr_assert_eq(b.nodes[0].queries, 0);
    end(&b);
}

Test(query, what_a_node_says_reaches_no_operator_of_another_job_and_no_node)
{
    struct bench b;
    struct ct_message reply = {.type = CT_MSG_FLIGHT_REPLY, .flight_reply = {.generation = 1}};
    begin_query(&b);
    struct peer stranger = {.link = 0};
    hello(&b, &stranger, "another", "admin");
    reply.flight_reply.asker = stranger.link;
    send_message(&b, &b.nodes[0], &reply);
    reply.flight_reply.asker = b.nodes[1].link;
    send_message(&b, &b.nodes[0], &reply);
    reply.flight_reply.asker = b.operator.link;
    ct_service_closed(b.service, 1000, b.operator.link, false);
    send_message(&b, &b.nodes[0], &reply);
    cr_assert(stranger.replies == 0 && b.nodes[1].replies == 0 && b.operator.replies == 0);
    cr_assert_eq(b.nodes[0].closed, 0, "it did nothing wrong");
    send_message(&b, &b.nodes[0], &(struct ct_message){.type = CT_MSG_FLIGHT_QUERY});
    cr_assert_eq(b.nodes[0].closed, CT_EPROTOCOL, "nodes do not ask");
    end(&b);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void query_lines(struct bench *b, const struct peer *asker, uint64_t generation,
                        uint32_t first, uint32_t count)
{
    send_message(b, asker,
                 &(struct ct_message){.type = CT_MSG_LINES_QUERY,
                                      .lines_query = {.generation = generation,
                                                      .first = first,
                                                      .count = count,
                                                      .rank = -1,
                                                      .tail = 10,
                                                      .window = 1000,
                                                      .received = 17}});
}

static void send_lines(struct bench *b, const struct peer *node, uint64_t asker)
{
    send_message(b, node,
                 &(struct ct_message){.type = CT_MSG_LINES, .lines = {.asker = asker, .sent = 5}});
}

Test(query, lines_are_asked_of_the_nodes_that_are_named_and_go_to_who_asked)
{
    struct bench b;
    begin(&b, 2);
    hello(&b, &b.operator, "digits", "admin");
    query_lines(&b, &b.operator, 0, 0, 0);
    cr_assert(b.operator.rounds == 1 && b.operator.nodes == 2);
    query_lines(&b, &b.operator, 1, 0, 0);
    cr_assert_eq(b.nodes[0].line_queries + b.nodes[1].line_queries, 0, "he only looks whether");
    query_lines(&b, &b.operator, 1, 1, UINT32_MAX);
    cr_assert(b.nodes[0].line_queries == 0 && b.nodes[1].line_queries == 1);
    const struct ct_msg_lines_query *asked = &b.nodes[1].lines_query;
    cr_assert(asked->asker == b.operator.link && asked->tail == 10 && asked->window == 1000 &&
                              asked->received == 17);
    send_lines(&b, &b.nodes[1], asked->asker);
    cr_assert(b.operator.lines == 1 && b.operator.last_lines.sent == 5);
    query_lines(&b, &b.operator, 7, 0, 2);
    cr_assert_eq(b.operator.rounds, 2, "of another round he gets the one that is");
    end(&b);
}

Test(query, lines_of_a_node_that_is_not_connected_are_answered_for_it)
{
    struct bench b;
    begin(&b, 2);
    hello(&b, &b.operator, "digits", "admin");
    ct_service_closed(b.service, 1000, b.nodes[0].link, false);
    query_lines(&b, &b.operator, 1, 0, 2);
    cr_assert(b.operator.lines == 1 && b.operator.last_lines.code == CT_EUNAVAILABLE && b.
              operator.last_lines.incarnation.high == b.nodes[0]
                  .link);
    end(&b);
}

Test(query, a_node_may_ask_for_the_lines_of_its_own_job_and_gets_no_round_for_it)
{
    struct bench b;
    begin(&b, 2);
    unsigned rounds = b.nodes[0].rounds;
    query_lines(&b, &b.nodes[0], 1, 0, 2);
    cr_assert(b.nodes[0].line_queries == 1 && b.nodes[1].line_queries == 1);
    send_lines(&b, &b.nodes[1], b.nodes[0].link);
    cr_assert_eq(b.nodes[0].lines, 1);
    query_lines(&b, &b.nodes[0], 9, 0, 2);
    cr_assert(b.nodes[0].rounds == rounds && b.nodes[1].line_queries == 1);
    cr_assert_eq(b.nodes[0].closed, 0);
    end(&b);
}

Test(query, lines_reach_no_operator_of_another_job)
{
    struct bench b;
    begin(&b, 2);
    struct peer stranger = {.link = 0};
    hello(&b, &stranger, "another", "admin");
    send_lines(&b, &b.nodes[0], stranger.link);
    send_lines(&b, &b.nodes[0], 12345);
    cr_assert(stranger.lines == 0 && b.nodes[0].closed == 0);
    query_lines(&b, &stranger, 1, 0, 2);
    cr_assert(b.nodes[0].line_queries == 0 && stranger.code == CT_ENOTFOUND);
    free(stranger.text);
    end(&b);
}
