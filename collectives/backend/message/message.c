/* See message.h: a call's messages, and what happens to them when the group ends. */
#include "backend/message/message_members.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHORT_BYTES =
        CT_ENGINE_SLOT_BYTES - CT_CALL_HEADER_BYTES, /* of data that travels with a header */
    SYNCHRONOUS_EVERY = 16,
    GOODBYE_NS = 20000000,      /* for control messages in flight when a group ends, */
    REVOKED_GRACE_NS = 5000000, /* and for sends from the caller's memory when the round is over */
    WAIT_SLICE_NS = 1000000,
};

/* ---- the group -------------------------------------------------------------------------------*/

int ct_engine_init(struct ct_engine *engine, const struct ct_setup *setup,
                   const struct ct_message_transport *transport, void *context)
{
    size_t size = (size_t)setup->size;
    int code = ct_pipelined_init(&engine->pipelined, setup);

    engine->transport = transport;
    engine->context = context;
    engine->job = setup->job;
    if (code != 0)
        return code;
    engine->moves =
        calloc((size_t)ct_pipelined_moves_max(&engine->pipelined), sizeof *engine->moves);
    engine->transfers = calloc(2 * size, sizeof *engine->transfers);
    engine->header_call = calloc(2 * size, sizeof *engine->header_call);
    engine->calls = calloc(2 * size, sizeof *engine->calls);
    engine->slots = calloc(CT_CHANNELS * 2 * size, CT_ENGINE_SLOT_BYTES);
    engine->control = calloc(size, sizeof *engine->control);
    engine->counts = calloc(CT_DATA_CHANNELS * 2 * size, sizeof *engine->counts);
    engine->departures = calloc(size, sizeof *engine->departures);
    engine->contacts = calloc(size, sizeof *engine->contacts);
    engine->informed = calloc((size + 7) / 8, sizeof *engine->informed);
    engine->key = strdup(setup->key);
    engine->generation = setup->job->assignment.generation;
    return engine->moves != NULL && engine->transfers != NULL && engine->header_call != NULL &&
                   engine->calls != NULL && engine->slots != NULL && engine->control != NULL &&
                   engine->counts != NULL && engine->departures != NULL &&
                   engine->contacts != NULL && engine->informed != NULL && engine->key != NULL
               ? 0
               : CT_ENOMEM;
}

void ct_engine_deinit(struct ct_engine *engine)
{
    ct_pipelined_deinit(&engine->pipelined);
    free(engine->moves);
    free(engine->transfers);
    free(engine->header_call);
    free(engine->calls);
    free(engine->slots);
    free(engine->control);
    free(engine->counts);
    free(engine->departures);
    free(engine->contacts);
    free(engine->informed);
    free(engine->key);
}

/* 1 when the message is done, or was never posted; 0, or the failure. */
static int poll_message(struct ct_engine *engine, struct ct_task *task,
                        struct ct_peer_message *message, struct ct_error *err)
{
    if (atomic_load_explicit(&message->state, memory_order_relaxed) == CT_PEER_MESSAGE_UNUSED)
        return 1;
    if (!ct_engine_is_done(engine, message))
        return 0;
    if (message->code != 0)
        return ct_error_set(err, message->code, "rank %d is gone", message->peer);
    ct_engine_reset(message);
    ct_engine_count(engine, message->channel, message->out, message->peer)->done++;
    task->moves++;
    return 1;
}

/* ---- a move ----------------------------------------------------------------------------------*/

/* Begin `move`, of which peer, direction, data, size and whether it has a header are set. 0, or an
 * error when it needs a connection that cannot be made. */
static int start(struct ct_engine *engine, struct ct_engine_move *move,
                 enum ct_engine_channel channel, const struct ct_call_header *header,
                 struct ct_error *err)
{
    bool is_short = move->has_header && move->bytes <= SHORT_BYTES;
    bool connected = engine->contacts[move->peer] & CT_CONTACT_CONNECTED;
    int code = connected ? 0 : ct_engine_connect(engine, move->peer, err);

    if (code != 0)
        return code;
    move->head = (struct ct_peer_message){.channel = channel, .peer = move->peer, .out = move->out};
    move->body = move->head;
    if (move->has_header) {
        move->slot = ct_engine_slot(engine, channel, move->out, move->peer);
        move->head.data = (char *)move->slot;
        move->head.bytes = CT_ENGINE_SLOT_BYTES;
    }
    if (move->has_header && move->out) {
        uint64_t *calls = &engine->calls[(int)channel * engine->pipelined.size + move->peer];

        ct_call_header_write(move->slot, header);
        if (is_short && move->bytes > 0)
            memcpy(move->slot + CT_CALL_HEADER_BYTES, move->data, move->bytes);
        move->head.bytes = CT_CALL_HEADER_BYTES + (is_short ? move->bytes : 0);
        move->head.synchronous = ++*calls % SYNCHRONOUS_EVERY == 0;
    }
    if (move->has_header)
        ct_engine_post(engine, &move->head);
    if (move->bytes > 0 && !is_short) {
        move->body.data = move->data;
        move->body.bytes = move->bytes;
        ct_engine_post(engine, &move->body);
    }
    return 0;
}

/* Compare a received header with the expected one, and copy the data that came with it. */
static int read_header(struct ct_engine *engine, struct ct_engine_move *move,
                       struct ct_call_header *expected, struct ct_error *err)
{
    int code = ct_call_header_check(move->slot, engine->pipelined.rank, move->peer, expected, err);

    if (code == 0 && move->bytes > 0 && move->bytes <= SHORT_BYTES)
        memcpy(move->data, move->slot + CT_CALL_HEADER_BYTES, move->bytes);
    return code;
}

/* 1 when the move is done. `header` is the expected one, or the one sent; it gets the peer's
 * factor. */
static int advance(struct ct_engine *engine, struct ct_task *task, struct ct_engine_move *move,
                   struct ct_call_header *header, struct ct_error *err)
{
    int code = poll_message(engine, task, &move->head, err);

    if (code != 1)
        return code;
    if (move->has_header && !move->out) {
        int differs = read_header(engine, move, header, err);

        if (differs != 0)
            return differs;
    }
    move->has_header = false;
    code = poll_message(engine, task, &move->body, err);
    move->done = code == 1;
    return code;
}

/* ---- collectives -----------------------------------------------------------------------------*/

/* The header that goes to `peer` (out), or that must come from it. */
static struct ct_call_header header_of(const struct ct_engine *engine, const struct ct_task *task,
                                       int peer, bool out)
{
    return (struct ct_call_header){
        .call = engine->call,
        .signature = ct_call_signature_with(&task->call, task->signature, peer, out),
        .scale = task->call.scale};
}

static int start_step(struct ct_engine *engine, const struct ct_task *task, struct ct_error *err)
{
    struct ct_pipelined_move what;
    int step = 0, code = 0;

    engine->move_count = 0;
    while (code == 0 &&
           ct_pipelined_next_move(&engine->pipelined, &task->call, task->at, &step, &what)) {
        struct ct_engine_move *move = &engine->moves[engine->move_count++];
        uint64_t *header_call =
            &engine->header_call[(what.out ? 0 : engine->pipelined.size) + what.peer];
        struct ct_call_header header = header_of(engine, task, what.peer, what.out);

        *move = (struct ct_engine_move){.peer = what.peer,
                                        .out = what.out,
                                        .has_header = *header_call != engine->call,
                                        .data = what.data,
                                        .bytes = what.bytes};
        *header_call = engine->call;
        code = start(engine, move, CT_CHANNEL_COLLECTIVE, &header, err);
    }
    return code;
}

/* 1 when all moves of the step are done. */
static int advance_step(struct ct_engine *engine, struct ct_task *task, struct ct_error *err)
{
    int open = 0;

    for (int i = 0; i < engine->move_count; i++) {
        struct ct_engine_move *move = &engine->moves[i];

        if (move->done)
            continue;
        bool compared = !move->has_header;
        struct ct_call_header header = header_of(engine, task, move->peer, move->out);
        int code = advance(engine, task, move, &header, err);

        if (code < 0)
            return code;
        if (!move->out && !compared && !move->has_header)
            engine->pipelined.factors[move->peer] = header.scale;
        open += code == 0;
    }
    return open == 0;
}

static int collective(struct ct_engine *engine, struct ct_task *task, struct ct_error *err)
{
    int code = 0;

    if (task->stage == 0) {
        ct_pipelined_begin(&engine->pipelined, &task->call);
        task->algorithm = engine->pipelined.schedule.algorithm;
        engine->call++;
        task->stage = 1;
        code = start_step(engine, task, err);
        engine->transport->progress(engine->context);
    }
    while (code == 0) {
        code = advance_step(engine, task, err);
        if (code != 1)
            return code;
        ct_pipelined_compute(&engine->pipelined, &task->call, task->at);
        if (++task->at == ct_pipelined_step_count(&engine->pipelined))
            break;
        code = start_step(engine, task, err);
    }
    if (code < 0)
        return code;
    engine->move_count = 0;
    return 1;
}

/* ---- send and recv ---------------------------------------------------------------------------*/

static int transfer(struct ct_engine *engine, struct ct_task *task, struct ct_error *err)
{
    const struct ct_call *call = &task->call;
    bool out = call->kind == CT_CALL_SEND;
    struct ct_engine_move *move =
        &engine->transfers[(out ? 0 : engine->pipelined.size) + call->peer];
    struct ct_call_header header = {.signature = task->signature};

    if (task->stage == 0) {
        task->stage = 1;
        *move = (struct ct_engine_move){.peer = call->peer,
                                        .out = out,
                                        .has_header = true,
                                        .data = out ? (char *)(uintptr_t)call->send : call->recv,
                                        .bytes = ct_call_bytes(call)};
        int code = start(engine, move, CT_CHANNEL_TRANSFER, &header, err);
        if (code != 0)
            return code;
        engine->transport->progress(engine->context);
    }
    return advance(engine, task, move, &header, err);
}

/* ---- as the backend --------------------------------------------------------------------------*/

int ct_engine_progress(struct ct_engine *engine, struct ct_task *task, struct ct_error *err)
{
    engine->transport->progress(engine->context);
    int code = ct_call_is_transfer(&task->call) ? transfer(engine, task, err)
                                                : collective(engine, task, err);
    if (code == 0)
        code = ct_engine_poll_control(engine, err);
    if (code == 0)
        code = ct_engine_check_departed(engine, task, err);
    return code == 0 ? ct_engine_check_unheard(engine, task, err) : code;
}

int ct_engine_missing(const struct ct_engine *engine, const struct ct_task *task)
{
    if (ct_call_is_transfer(&task->call))
        return task->call.peer;
    for (int i = 0; i < engine->move_count; i++)
        if (!engine->moves[i].done && !engine->moves[i].out)
            return engine->moves[i].peer;
    return -1;
}

static void cancel_message(struct ct_engine *engine, struct ct_peer_message *message)
{
    if (atomic_load_explicit(&message->state, memory_order_acquire) == CT_PEER_MESSAGE_OPEN &&
        !engine->transport->is_done(engine->context, message))
        engine->transport->cancel(engine->context, message);
    ct_engine_reset(message);
}

static void cancel_moves(struct ct_engine *engine, struct ct_engine_move *moves, int count,
                         bool out)
{
    for (int i = 0; i < count; i++)
        if (moves[i].out == out) {
            cancel_message(engine, &moves[i].head);
            cancel_message(engine, &moves[i].body);
        }
}

static void cancel_all(struct ct_engine *engine, bool out)
{
    cancel_moves(engine, engine->moves, engine->move_count, out);
    cancel_moves(engine, engine->transfers, 2 * engine->pipelined.size, out);
}

/* Control messages that have not gone out yet: others replace them. */
static void cancel_control(struct ct_engine *engine)
{
    for (int i = 0; i < engine->pipelined.size; i++)
        if (i != engine->pipelined.rank && !engine->departures[i].left)
            cancel_message(engine, &engine->control[i]);
}

static bool is_gone(struct ct_engine *engine, struct ct_peer_message *message)
{
    return atomic_load_explicit(&message->state, memory_order_relaxed) == CT_PEER_MESSAGE_UNUSED ||
           ct_engine_is_done(engine, message);
}

/* How long sends may stay open after the group has ended: headers and control messages, and data
 * that lies in the caller's memory. Members of a round that is over need no control messages. */
struct grace {
    uint64_t control_ns, send_grace_ns;
};

static uint64_t grace_of(struct ct_engine *engine, const struct grace *grace,
                         struct ct_engine_move *moves, int count)
{
    uint64_t most_ns = 0;

    for (int i = 0; i < count; i++) {
        if (moves[i].out && !is_gone(engine, &moves[i].body))
            return grace->send_grace_ns;
        if (moves[i].out && !is_gone(engine, &moves[i].head))
            most_ns = grace->control_ns;
    }
    return most_ns;
}

/* 0: all is gone. */
static uint64_t grace_left(struct ct_engine *engine)
{
    const struct grace grace = ct_job_revoked(engine->job)
                                   ? (struct grace){0, REVOKED_GRACE_NS}
                                   : (struct grace){GOODBYE_NS, engine->transport->send_grace_ns};
    uint64_t most_ns =
        CT_MAX(grace_of(engine, &grace, engine->moves, engine->move_count),
               grace_of(engine, &grace, engine->transfers, 2 * engine->pipelined.size));

    for (int i = 0; i < engine->pipelined.size; i++)
        if (i != engine->pipelined.rank && !is_gone(engine, &engine->control[i]))
            most_ns = CT_MAX(most_ns, grace.control_ns);
    return most_ns;
}

/* Give sends a moment: their receivers receive or drain them. A transport that carries the
 * caller's memory has to break off what is not over then, maybe with all that it carries between
 * the two. */
static void flush_sends(struct ct_engine *engine, uint64_t least_ns)
{
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);

    engine->transport->drain(engine->context);
    while (ct_clock_mono_ns(&ct_clock_system) - start_ns < CT_MAX(least_ns, grace_left(engine))) {
        engine->transport->wait(engine->context, WAIT_SLICE_NS);
        engine->transport->progress(engine->context);
        engine->transport->drain(engine->context);
    }
}

/* All members are notified, and the callers get their buffers back. */
void ct_engine_fail(struct ct_engine *engine, int code)
{
    engine->failed = true;
    cancel_all(engine, false);
    cancel_control(engine);
    ct_engine_notify(engine, code, false);
    flush_sends(engine, engine->notified ? engine->transport->linger_ns : 0);
    cancel_all(engine, true);
    engine->move_count = 0;
}

void ct_engine_close(struct ct_engine *engine)
{
    if (engine->control == NULL)
        return;
    cancel_all(engine, false);
    if (engine->formed && !engine->failed) {
        cancel_control(engine);
        ct_engine_notify(engine, CT_ECLOSED, true);
    }
    flush_sends(engine, 0);
    cancel_all(engine, true);
    for (int i = 0; i < engine->pipelined.size; i++)
        cancel_message(engine, &engine->control[i]);
}
