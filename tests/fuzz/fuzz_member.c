/* Fuzz: a node as a daemon's wire reaches it: frames through the decoder to the agent's core, in
 * virtual time, with a daemon that tells mostly the truth.
 *
 *   input -> message -> frame -> reader -> decoder -> member, assembly, relay -> callbacks, frames
 *
 * The first byte is the setting; then a byte an event (`enum what`; bit 5 its kind). Whatever the
 * daemon says, a round that begins is one that the launcher can carry out, every store request is
 * answered at most once, and all that is sent fits its frame. */
#include "base/assert.h"
#include "frames.h"
#include "rendezvous/client/line_reader.h"
#include "rendezvous/client/member.h"

#include <string.h>

enum { SLOTS = 2, NODES = 3, REQUESTS = 16 };

enum what {
    PASS,
    STALL,
    CONNECT,
    LOSE, /* kind: whoever answers has another key */
    PROMISE,
    RECOVER,
    FAIL,
    FINISH,
    LEAVE,
    ASK, /* the store */
    PUBLISH,
    BYTES,
    FIRST_MESSAGE,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
    struct ct_member member;
    struct frames frames;
    bool dials, open;
    uint64_t now_ms;
    uint64_t requested;            /* the newest PREPARE that was told */
    uint64_t acting;               /* the round that it is in */
    struct ct_line_reader *reader; /* of all nodes' lines */
    uint32_t waiting[REQUESTS];    /* store requests by their number: how many wait */
};

/* ---- what the node does ---- */

static void io_send(void *context, const struct ct_message *message)
{
    (void)context;
    frames_check(message);
}

static void io_connect(void *context, uint64_t give_up_ms)
{
    struct world *world = context;

    CT_ASSERT(give_up_ms > 0 && !world->open);
    world->dials = true;
}

static void io_disconnect(void *context)
{
    struct world *world = context;

    if (world->open)
        frames_deinit(&world->frames);
    world->dials = world->open = false;
}

static void on_waiting(void *context, const char *text)
{
    (void)context;
    CT_ASSERT(text == NULL || text[0] != '\0');
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct world *world = context;

    (void)at_boundary;
    CT_ASSERT(reason < CT_RDZV_REASONS);
    world->requested = generation;
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    struct world *world = context;

    CT_ASSERT(generation > 0 && reason < CT_RDZV_REASONS);
    world->acting = 0;
}

/* Do the ranks of all its nodes follow each other up to the world's size? */
static void check_nodes(const struct ct_round *round)
{
    uint64_t ranks = 0;

    CT_ASSERT(ct_node_runs_fit(round->runs, round->node_count, round->world));
    CT_ASSERT((round->base != NULL) == (round->base_node >= 0));
    if (round->nodes == NULL)
        return;
    for (uint32_t i = 0; i < round->node_count; i++) {
        CT_ASSERT(round->nodes[i].first_rank == ranks && round->nodes[i].host != NULL);
        ranks += round->nodes[i].slots;
    }
    CT_ASSERT(ranks == round->world && round->own == &round->nodes[round->self]);
}

static void on_round(void *context, const struct ct_round *round)
{
    struct world *world = context;
    const struct ct_round_node *own = round->own;

    CT_ASSERT(round->generation == world->requested && round->self < round->node_count);
    CT_ASSERT(own != NULL && round->head != NULL && own->slots == SLOTS);
    CT_ASSERT((uint64_t)own->first_rank + own->slots <= round->world);
    CT_ASSERT(round->base_node >= -1 && round->base_node < (int64_t)round->node_count);
    check_nodes(round);
    world->acting = round->generation;
}

static void on_store_reply(void *context, const struct ct_msg_store_reply *reply)
{
    struct world *world = context;

    CT_ASSERT(reply->request < REQUESTS && world->waiting[reply->request] > 0);
    world->waiting[reply->request]--;
}

static void on_published(void *context, const struct ct_msg_published *answer)
{
    (void)context;
    CT_ASSERT(answer->text != NULL);
}

static void on_flight_query(void *context, const struct ct_msg_flight_query *query)
{
    struct world *world = context;
    const struct ct_msg_flight_reply reply = {.generation = query->generation,
                                              .asker = query->asker};

    ct_member_flight_reply(&world->member, &reply);
}

static void on_lines_query(void *context, const struct ct_msg_lines_query *query)
{
    struct world *world = context;

    ct_member_lines(&world->member, &(struct ct_msg_lines){.asker = query->asker});
}

/* Its rounds are the node's. */
static void on_lines(void *context, const struct ct_msg_lines *lines)
{
    const struct world *world = context;
    const struct ct_message message = {.type = CT_MSG_LINES, .lines = *lines};
    struct ct_message query;

    (void)ct_line_reader_receive(world->reader, world->now_ms, &message);
    while (ct_line_reader_next(world->reader, &query))
        frames_check(&query);
}

static void on_line(void *context, const struct ct_read_line *line)
{
    (void)context;
    CT_ASSERT(line->size <= CT_WIRE_LINE_BYTES && memchr(line->host, '\0', 256) != NULL);
}

static void on_missed(void *context, const char *host, uint64_t count)
{
    (void)context, (void)count;
    CT_ASSERT(host != NULL);
}

static void on_absent(void *context, const char *host, const char *why)
{
    (void)context;
    CT_ASSERT(host != NULL && why != NULL);
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    (void)context;
    for (size_t i = 0; i < result->other_count; i++)
        CT_ASSERT(memchr(result->others[i].text, '\0', CT_RDZV_OTHER_BYTES) != NULL);
}

static void on_released(void *context)
{
    (void)context;
}

static void on_link(void *context, bool connected, const char *why)
{
    (void)context, (void)connected;
    CT_ASSERT(why != NULL);
}

static void on_failed(void *context, const struct ct_error *error)
{
    (void)context;
    CT_ASSERT(memchr(error->text, '\0', sizeof(error->text)) != NULL);
}

/* ---- what a daemon would say ---- */

static const enum ct_message_type types[] = {
    CT_MSG_WELCOME,   CT_MSG_PREPARE, CT_MSG_ROUND,        CT_MSG_HEARTBEAT_ACK, CT_MSG_REVOKE,
    CT_MSG_PUBLISHED, CT_MSG_DRAIN,   CT_MSG_FLIGHT_QUERY, CT_MSG_STORE_REPLY,   CT_MSG_REFUSE,
    CT_MSG_CLOSE,     CT_MSG_RELEASE, CT_MSG_LINES_QUERY,  CT_MSG_LINES,
};

/* Three nodes, this one in the middle; `is_short`: as the one message of a large round. */
static struct ct_message round_of(const struct world *world, bool is_short, struct ct_arena *arena)
{
    static const struct ct_wire_run all = {NODES, SLOTS, "default"};
    struct ct_wire_node *nodes = ct_arena_array(arena, NODES, sizeof(*nodes));
    struct ct_message message = {.type = CT_MSG_ROUND,
                                 .round = {.generation = world->requested,
                                           .epoch = 1,
                                           .base_node = -1,
                                           .world = NODES * SLOTS,
                                           .node_count = NODES,
                                           .first = is_short ? NODES : 0}};

    CT_ASSERT(nodes != NULL);
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = (struct ct_wire_node){.index = i,
                                         .incarnation = {.low = i},
                                         .host = "h",
                                         .address = "10.0.0.1",
                                         .slots = SLOTS,
                                         .first_rank = i * SLOTS,
                                         .role = "default"};
    message.round.runs.data = &all;
    message.round.runs.count = is_short ? 1 : 0;
    message.round.nodes.data = nodes;
    message.round.nodes.count = NODES;
    return message;
}

static uint64_t oldest_request(const struct world *world)
{
    uint64_t number = 0;

    while (number + 1 < REQUESTS && world->waiting[number] == 0)
        number++;
    return number;
}

static struct ct_message truth(const struct world *world, enum ct_message_type type, bool kind,
                               struct ct_arena *arena)
{
    static const struct ct_wire_failure other = {.rank = 3, .host = "h", .text = "it broke"};
    static const struct ct_wire_line line = {.number = 3, .text = {(const void *)"step 3", 6}};
    const struct ct_member *member = &world->member;
    struct ct_message message = {.type = type};

    switch (type) {
    case CT_MSG_WELCOME:
        message.welcome = (struct ct_msg_welcome){
            .generation = world->acting, .epoch = 1, .protocol = CT_WIRE_PROTOCOL};
        break;
    case CT_MSG_PREPARE:
        message.prepare.generation = world->requested + 1;
        message.prepare.at_boundary = kind;
        break;
    case CT_MSG_ROUND:
        return round_of(world, kind, arena);
    case CT_MSG_HEARTBEAT_ACK:
        message.heartbeat_ack.seq = member->seq;
        message.heartbeat_ack.state = kind ? CT_RDZV_PREPARING : CT_RDZV_ACTING;
        break;
    case CT_MSG_REVOKE:
        message.revoke.generation = world->acting;
        break;
    case CT_MSG_PUBLISHED:
        message.published.generation = member->publication.generation;
        message.published.step = member->publication.step;
        break;
    case CT_MSG_STORE_REPLY:
        message.store_reply.request = oldest_request(world);
        message.store_reply.generation = world->acting;
        break;
    case CT_MSG_LINES:
        message.lines.sent = member->seq;
        message.lines.lines.data = &line;
        message.lines.lines.count = 1;
        break;
    case CT_MSG_REFUSE:
        message.refuse = (struct ct_msg_refuse){
            .code = CT_EUNAVAILABLE, .retry_ms = kind ? 50 : 0, .text = "no"};
        break;
    case CT_MSG_CLOSE:
        message.close = (struct ct_msg_close){.generation = world->acting, .cause.rank = -1};
        message.close.others.data = &other;
        message.close.others.count = kind;
        break;
    default:
        break;
    }
    return message;
}

/* ---- events ---- */

static void on_message(void *context, const struct ct_message *message)
{
    struct world *world = context;

    if (world->open)
        ct_member_message(&world->member, world->now_ms, message);
}

static void lose(struct world *world, int code)
{
    struct ct_error why = {0};

    if (!world->dials && !world->open)
        return;
    ct_error_set(&why, code, "it is gone");
    io_disconnect(world);
    ct_member_disconnected(&world->member, world->now_ms, &why);
}

static void tick(struct world *world, uint64_t now_ms)
{
    world->now_ms = CT_MAX(world->now_ms, now_ms);
    ct_member_tick(&world->member, world->now_ms);
}

static void pass(struct world *world, uint64_t until_ms)
{
    for (int i = 0; i < 100 && ct_member_deadline(&world->member) <= until_ms; i++)
        tick(world, ct_member_deadline(&world->member));
    tick(world, until_ms);
}

/* A message, or bytes that are no frame of ours. What is being read is not freed with a connection
 * that ends meanwhile. */
static void receive(struct world *world, const struct ct_message *message, const uint8_t *bytes,
                    size_t size)
{
    struct frames frames = world->frames;
    bool lives;

    if (!world->open)
        return;
    frames_init(&world->frames, CT_FROM_SERVER, CT_WIRE_VALUE);
    if (message != NULL)
        lives = frames_send(&frames, message, on_message, world);
    else
        lives = frames_push(&frames, bytes, size, on_message, world);
    if (!world->open) {
        frames_deinit(&frames);
        return;
    }
    frames_deinit(&world->frames);
    world->frames = frames;
    if (!lives)
        lose(world, CT_EPROTOCOL);
}

static void ask(struct world *world, uint64_t number)
{
    struct ct_message message = {.type = number % 2 ? CT_MSG_STORE_ADD : CT_MSG_STORE_GET};

    message.store_get.generation = world->acting;
    message.store_get.key = "key";
    world->waiting[number]++;
    if (ct_member_store(&world->member, number, &message) != 0)
        world->waiting[number]--;
}

static void act(struct world *world, enum what what, bool kind, struct input *input)
{
    struct ct_member *member = &world->member;
    const struct ct_prepared prepared = {.generation = world->requested, .untouched = kind};
    const struct ct_wire_failure failure = {.fatal = kind};
    const struct ct_msg_publish publish = {.generation = world->acting, .step = input->size};

    if (what == PROMISE)
        ct_member_prepared(member, &prepared);
    else if (what == RECOVER)
        ct_member_state_recovered(member, world->acting);
    else if (what == FAIL)
        ct_member_failure(member, world->now_ms, world->acting, &failure);
    else if (what == FINISH)
        ct_member_done(member, world->acting);
    else if (what == LEAVE)
        ct_member_leave(member, kind ? CT_RDZV_LEAVE_STOP : CT_RDZV_LEAVE_DRAIN);
    else if (what == ASK)
        ask(world, input_byte(input) % REQUESTS);
    else
        (void)ct_member_publish(member, &publish);
}

static void send_message(struct world *world, enum ct_message_type type, bool kind,
                         struct input *input)
{
    struct ct_arena arena;

    ct_arena_init(&arena, 1 << 20);
    struct ct_message message = truth(world, type, kind, &arena);
    change_fields(input, &arena, &message);
    receive(world, &message, NULL, 0);
    ct_arena_deinit(&arena);
}

static void connect_it(struct world *world)
{
    if (!world->dials)
        return;
    world->dials = false;
    world->open = true;
    frames_init(&world->frames, CT_FROM_SERVER, CT_WIRE_VALUE);
    ct_member_connected(&world->member, world->now_ms);
}

static void happen(struct world *world, struct input *input)
{
    uint8_t head = input_byte(input);
    bool kind = (head >> 5 & 1) != 0;
    unsigned what = head & 31u;
    size_t size;

    if (what == PASS)
        pass(world, world->now_ms + 20 * (uint64_t)input_byte(input));
    else if (what == STALL)
        tick(world, world->now_ms + 20 * (uint64_t)input_byte(input));
    else if (what == CONNECT)
        connect_it(world);
    else if (what == LOSE)
        lose(world, kind ? CT_EAUTH : CT_ECLOSED);
    else if (what < BYTES)
        act(world, what, kind, input);
    else if (what >= FIRST_MESSAGE)
        send_message(world, types[(what - FIRST_MESSAGE) % CT_COUNT(types)], kind, input);
    else {
        const uint8_t *bytes = input_bytes(input, input_byte(input), &size);
        receive(world, NULL, bytes, size);
    }
}

static void begin(struct world *world, uint8_t setting)
{
    struct ct_agent_options options = {.endpoint = "x:1",
                                       .run_id = "j",
                                       .host = "h",
                                       .address = "10.0.0.1",
                                       .params = ct_rdzv_params_default,
                                       .slots = SLOTS,
                                       .node_rank = -1,
                                       .slurm_node = -1,
                                       .reports_recovery = setting & 1,
                                       .id = {.low = 1}};
    const struct ct_agent_callbacks callbacks = {.context = world,
                                                 .on_waiting = on_waiting,
                                                 .on_prepare = on_prepare,
                                                 .on_revoke = on_revoke,
                                                 .on_round = on_round,
                                                 .on_store_reply = on_store_reply,
                                                 .on_published = on_published,
                                                 .on_flight_query = on_flight_query,
                                                 .on_lines_query = on_lines_query,
                                                 .on_lines = on_lines,
                                                 .on_closed = on_closed,
                                                 .on_released = on_released,
                                                 .on_link = on_link,
                                                 .on_failed = on_failed};
    const struct ct_member_io io = {
        .context = world, .send = io_send, .connect = io_connect, .disconnect = io_disconnect};

    options.params.lease_ms = 1000;
    options.params.autonomy_ms = 5000;
    options.params.join_timeout_ms = 5000;
    ct_member_init(&world->member, &options, &callbacks, &io, 1);
    ct_member_start(&world->member, world->now_ms);
    const struct ct_line_reader_options reading = {.rank = -1,
                                                   .node = -1,
                                                   .bytes = 1 << 20,
                                                   .follow = setting & 2,
                                                   .on_line = on_line,
                                                   .on_missed = on_missed,
                                                   .on_absent = on_absent};
    world->reader = ct_line_reader_new(&reading);
    CT_ASSERT(world->reader != NULL);
    ct_line_reader_round(world->reader, world->now_ms, 1, 2, 2);
    ct_line_reader_node(world->reader, (struct ct_id){0}, "a");
    ct_line_reader_node(world->reader, (struct ct_id){.low = 1}, "b");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world;
    struct input input = {data, size};

    world = (struct world){.now_ms = 1000};
    begin(&world, input_byte(&input));
    for (int events = 0; input.size > 0 && events < 2000; events++)
        happen(&world, &input);
    ct_member_stop(&world.member);
    io_disconnect(&world);
    ct_member_deinit(&world.member);
    ct_line_reader_free(world.reader);
    return 0;
}
