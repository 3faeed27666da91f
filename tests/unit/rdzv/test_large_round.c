/* Large rounds are told in short: where all ranks live, and few nodes by name. Here one service and
 * true members exchange encoded frames, and 129 nodes (two parts) count as large. */
#include "rendezvous/client/member.h"
#include "rendezvous/service/service.h"

#include "wire/frame.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

TestSuite(large_round, .timeout = 30);

enum {
    NODES = CT_WIRE_PART + 1,
    LARGE_NODES = 100, /* the first ones: two workers, the others one */
    QUEUE = 8192,
};

struct world;

struct node {
    struct world *world;
    struct ct_member member;
    uint64_t link;
    char host[16];
    unsigned rounds;
    struct ct_round round;
};

/* A frame under way. */
struct flight {
    struct node *node;
    bool to_service;
    struct ct_buf bytes;
};

struct world {
    struct ct_service *service;
    struct node nodes[NODES];
    struct flight queue[QUEUE];
    size_t head, tail;
    unsigned lose; /* so many parts on their way to node 0 */
};

static void fly(struct node *node, bool to_service, const struct ct_message *message)
{
    struct world *world = node->world;
    bool is_part =
        message->type == CT_MSG_ROUND && message->round.first < message->round.node_count;
    if (is_part && node == world->nodes && world->lose > 0) {
        world->lose--;
        return;
    }
    struct flight *flight = &world->queue[world->tail++ % QUEUE];
    cr_assert_lt(world->tail - world->head, (size_t)QUEUE);
    *flight = (struct flight){.node = node, .to_service = to_service};
    ct_buf_init(&flight->bytes, 0);
    cr_assert_eq(ct_wire_encode(message, 0, &flight->bytes, NULL), 0);
}

static void node_send(void *context, const struct ct_message *message)
{
    fly(context, true, message);
}

static void service_send(void *context, void *peer, const struct ct_message *message)
{
    (void)context;
    fly(peer, false, message);
}

static void service_close(void *context, void *peer, int code, const char *sentence)
{
    (void)context, (void)peer;
    cr_assert_fail("closed with %d: %s", code, sentence);
}

static void announce(void *context, const char *job, const char *sentence)
{
    (void)context, (void)job, (void)sentence;
}

static void connect_node(void *context, uint64_t give_up_ms)
{
    (void)context, (void)give_up_ms;
}

static void disconnect_node(void *context)
{
    (void)context;
}

static void on_waiting(void *context, const char *text)
{
    (void)context, (void)text;
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct node *node = context;
    (void)reason, (void)at_boundary;
    ct_member_prepared(&node->member, &(struct ct_prepared){.generation = generation, .port = 7});
}

static void on_round(void *context, const struct ct_round *round)
{
    struct node *node = context;
    node->rounds++;
    node->round = *round;
}

static void deliver(struct world *world, struct flight *flight)
{
    struct ct_frame_reader reader;
    struct ct_frame frame;
    struct ct_message message;
    struct ct_arena arena;
    struct ct_error err = {0};
    unsigned from = flight->to_service ? CT_FROM_NODE : CT_FROM_SERVER;
    ct_frame_reader_init(&reader, from, CT_WIRE_VALUE);
    ct_arena_init(&arena, 1 << 20);
    cr_assert_eq(ct_frame_reader_push(&reader, flight->bytes.data, flight->bytes.size), 0);
    cr_assert_eq(ct_frame_reader_next(&reader, &frame, &err), 1, "%s", err.text);
    cr_assert_eq(ct_wire_decode(&frame, &arena, &message, &err), 0, "%s", err.text);
    if (flight->to_service)
        ct_service_message(world->service, 1000, flight->node->link, &message);
    else
        ct_member_message(&flight->node->member, 1000, &message);
    ct_arena_deinit(&arena);
    ct_frame_reader_deinit(&reader);
}

static void deliver_all(struct world *world)
{
    while (world->head < world->tail) {
        struct flight flight = world->queue[world->head++ % QUEUE];
        deliver(world, &flight);
        ct_buf_deinit(&flight.bytes);
    }
}

static void add(struct world *world, uint32_t index)
{
    struct node *node = &world->nodes[index];
    node->world = world;
    (void)snprintf(node->host, sizeof(node->host), "n%03u", index);
    struct ct_agent_options options = {.run_id = "large",
                                       .host = node->host,
                                       .address = "10.0.0.1",
                                       .params = ct_rdzv_params_default,
                                       .slots = index < LARGE_NODES ? 2 : 1,
                                       .node_rank = -1,
                                       .slurm_node = -1,
                                       .id = {index + 1, 1}};
    options.params.nodes_min = options.params.nodes_max = NODES;
    const struct ct_agent_callbacks on = {
        .context = node, .on_waiting = on_waiting, .on_prepare = on_prepare, .on_round = on_round};
    const struct ct_member_io io = {
        .context = node, .send = node_send, .connect = connect_node, .disconnect = disconnect_node};
    ct_member_init(&node->member, &options, &on, &io, index);
    node->link = ct_service_open(world->service, node);
    ct_member_start(&node->member, 1000);
    ct_member_connected(&node->member, 1000);
}

/* A round of NODES, told whole up to `whole_round_nodes`; so many parts get lost. */
static struct world *form(uint32_t whole_round_nodes, unsigned lose)
{
    const struct ct_service_limits limits = {.whole_round_nodes = whole_round_nodes};
    const struct ct_service_io io = {
        .send = service_send, .close = service_close, .announce = announce};
    struct world *world = calloc(1, sizeof(*world));
    cr_assert_not_null(world);
    world->lose = lose;
    world->service = ct_service_new(&limits, &io, 1);
    for (uint32_t i = 0; i < NODES; i++)
        add(world, i);
    deliver_all(world);
    return world;
}

static void end(struct world *world)
{
    for (uint32_t i = 0; i < NODES; i++)
        ct_member_deinit(&world->nodes[i].member);
    ct_service_free(world->service);
    free(world);
}

/* Nodes of two workers, then nodes of one. */
static void check_runs(struct ct_node_runs runs)
{
    cr_assert_eq(runs.count, 2);
    cr_assert_eq(runs.data[0].nodes, LARGE_NODES);
    cr_assert_eq(runs.data[0].slots, 2);
    cr_assert_str_eq(runs.data[0].role, "default");
    cr_assert_eq(runs.data[1].nodes, NODES - LARGE_NODES);
    cr_assert_eq(runs.data[1].slots, 1);
}

static uint32_t first_rank_of(uint32_t index)
{
    return index < LARGE_NODES ? 2 * index : LARGE_NODES + index;
}

Test(large_round, its_nodes_know_their_place_and_where_all_ranks_live)
{
    struct world *world = form(NODES - 1, 0);
    for (uint32_t i = 0; i < NODES; i++) {
        const struct node *node = &world->nodes[i];
        char room[32];
        cr_assert_eq(node->rounds, 1);
        cr_assert_eq(node->round.nodes != NULL, i == 0, "node 0 knows all");
        cr_assert_eq(node->round.self, i);
        cr_assert_eq(node->round.node_count, NODES);
        cr_assert_eq(node->round.world, NODES + LARGE_NODES);
        cr_assert_eq(node->round.own->first_rank, first_rank_of(i));
        cr_assert_str_eq(node->round.own->host, node->host);
        cr_assert_str_eq(node->round.head->host, "n000");
        cr_assert_eq(node->round.head->port, 7);
        cr_assert_str_eq(ct_round_name(&node->round, 17, room), i == 0 ? "n017" : "node 17");
        check_runs(node->round.runs);
    }
    end(world);
}

Test(large_round, a_round_that_is_not_large_is_told_whole_to_all)
{
    struct world *world = form(NODES, 0);
    for (uint32_t i = 0; i < NODES; i++) {
        const struct node *node = &world->nodes[i];
        char room[32];
        cr_assert_eq(node->rounds, 1);
        cr_assert_eq(node->round.own, &node->round.nodes[i]);
        cr_assert_eq(node->round.head, &node->round.nodes[0]);
        for (uint32_t k = 0; k < NODES; k++) {
            cr_assert_str_eq(node->round.nodes[k].host, world->nodes[k].host);
            cr_assert_eq(node->round.nodes[k].first_rank, first_rank_of(k));
        }
        cr_assert_str_eq(ct_round_name(&node->round, NODES - 1, room), "n128");
        check_runs(node->round.runs);
    }
    end(world);
}

Test(large_round, who_lost_a_part_of_a_whole_round_gets_all_again)
{
    struct world *world = form(NODES, 1);
    struct node *node = &world->nodes[0];
    const struct ct_message heartbeat = {
        .type = CT_MSG_HEARTBEAT,
        .heartbeat = {.generation = 1, .seq = 100, .acting = 0}}; /* in no round yet */
    cr_assert_eq(node->rounds, 0);
    ct_service_message(world->service, 1000, node->link, &heartbeat);
    deliver_all(world);
    cr_assert_eq(node->rounds, 1);
    end(world);
}
