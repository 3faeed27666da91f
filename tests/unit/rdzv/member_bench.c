#include "member_bench.h"

#include <criterion/criterion.h>
#include <string.h>

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
    b->waits++;
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

static void on_published(void *context, const struct ct_msg_published *answer)
{
    struct bench *b = context;
    b->publishes++;
    b->publish_code = answer->code;
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    struct bench *b = context;
    b->closes++;
    b->result = *result;
    if (result->other_count > 0)
        b->other = result->others[0];
}

static void on_released(void *context)
{
    (void)context;
}

static void on_link(void *context, bool connected, const char *why)
{
    (void)why;
    ((struct bench *)context)->link_down = !connected;
    ((struct bench *)context)->links_down += !connected;
}

static void on_failed(void *context, const struct ct_error *error)
{
    struct bench *b = context;
    b->fails++;
    b->error = *error;
}

void bench_begin(struct bench *b)
{
    memset(b, 0, sizeof(*b));
    struct ct_agent_options options = {
        .endpoint = "x:1",
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
        .on_published = on_published,
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

void bench_send(struct bench *b, const struct ct_message *message)
{
    ct_member_message(&b->member, b->now_ms, message);
}

void bench_send_welcome(struct bench *b, uint64_t generation)
{
    struct ct_message m = {.type = CT_MSG_WELCOME,
                           .welcome = {.generation = generation, .epoch = 1, .version = ""}};
    bench_send(b, &m);
}

void bench_send_prepare(struct bench *b, uint64_t generation, bool at_boundary)
{
    struct ct_message m = {
        .type = CT_MSG_PREPARE,
        .prepare = {.generation = generation, .at_boundary = at_boundary, .reason = ""}};
    bench_send(b, &m);
}

void bench_send_round_part(struct bench *b, uint64_t generation, uint32_t first)
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
    bench_send(b, &m);
}

void bench_promise(struct bench *b, uint64_t generation)
{
    struct ct_prepared prepared = {.generation = generation};
    ct_member_prepared(&b->member, &prepared);
}

void bench_run(struct bench *b)
{
    bench_begin(b);
    ct_member_connected(&b->member, 0);
    bench_send_welcome(b, 0);
    bench_send_prepare(b, 1, false);
    bench_promise(b, 1);
    bench_send_round_part(b, 1, 0);
    bench_send_round_part(b, 1, 1);
    cr_assert_eq(b->rounds, 1);
    b->sent_count = 0;
}

void bench_end(struct bench *b)
{
    ct_member_deinit(&b->member);
}

size_t bench_count_sent(const struct bench *b, enum ct_message_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < b->sent_count; i++)
        count += b->sent[i].type == type;
    return count;
}

void bench_answer_heartbeat(struct bench *b, enum ct_rdzv_member_state state)
{
    struct ct_message m = {.type = CT_MSG_HEARTBEAT_ACK,
                           .heartbeat_ack = {.seq = 1, .state = (uint8_t)state, .waiting = ""}};
    bench_send(b, &m);
}
