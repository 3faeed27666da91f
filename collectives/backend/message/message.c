/* See message.h: a call's messages, and what happens to them when the group ends. */
#include "backend/message/message_members.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHORT_BYTES = CT_POST_SLOT_BYTES - CT_GREETING_BYTES, /* of data that travels with a greeting */
    TAKEN_EVERY = 16,
    PARTING_NS = 20000000,   /* for words on their way when a group ends, */
    TAKEN_BACK_NS = 5000000, /* and for what is in the caller's memory when the round is over */
    PARTING_SLICE_NS = 1000000,
};

/* ---- the group -------------------------------------------------------------------------------*/

int ct_post_init(struct ct_post *post, const struct ct_setup *setup,
                 const struct ct_message_transport *transport, void *context)
{
    size_t size = (size_t)setup->size;
    int code = ct_wave_init(&post->wave, setup);

    post->transport = transport;
    post->context = context;
    post->job = setup->job;
    if (code != 0)
        return code;
    post->moves = calloc((size_t)ct_wave_moves_max(&post->wave), sizeof *post->moves);
    post->transfers = calloc(2 * size, sizeof *post->transfers);
    post->greeted = calloc(2 * size, sizeof *post->greeted);
    post->calls = calloc(2 * size, sizeof *post->calls);
    post->slots = calloc(CT_POST_LANES * 2 * size, CT_POST_SLOT_BYTES);
    post->control = calloc(size, sizeof *post->control);
    post->tallies = calloc(CT_POST_DATA_LANES * 2 * size, sizeof *post->tallies);
    post->left = calloc(size, sizeof *post->left);
    return post->moves != NULL && post->transfers != NULL && post->greeted != NULL &&
                   post->calls != NULL && post->slots != NULL && post->control != NULL &&
                   post->tallies != NULL && post->left != NULL
               ? 0
               : CT_ENOMEM;
}

void ct_post_deinit(struct ct_post *post)
{
    ct_wave_deinit(&post->wave);
    free(post->moves);
    free(post->transfers);
    free(post->greeted);
    free(post->calls);
    free(post->slots);
    free(post->control);
    free(post->tallies);
    free(post->left);
}

/* Has it come to an end? A message that was never posted has. 1, 0, or the failure. */
static int look(struct ct_post *post, struct ct_task *task, struct ct_peer_message *message,
                struct ct_error *err)
{
    if (atomic_load_explicit(&message->state, memory_order_relaxed) == CT_PEER_MESSAGE_UNUSED)
        return 1;
    if (!ct_post_has_come(post, message))
        return 0;
    if (message->code != 0)
        return ct_error_set(err, message->code, "rank %d is gone", message->peer);
    ct_post_forget(message);
    ct_post_tally(post, message->lane, message->out, message->peer)->over++;
    task->moves++;
    return 1;
}

/* ---- a move ----------------------------------------------------------------------------------*/

/* Begin `move`, of which peer, direction, data, size and whether it greets are set. */
static void start(struct ct_post *post, struct ct_post_move *move, enum ct_post_lane lane,
                  const struct ct_greeting *greeting)
{
    bool is_short = move->greets && move->bytes <= SHORT_BYTES;

    move->head = (struct ct_peer_message){.lane = lane, .peer = move->peer, .out = move->out};
    move->body = move->head;
    if (move->greets) {
        move->slot = ct_post_slot(post, lane, move->out, move->peer);
        move->head.data = (char *)move->slot;
        move->head.bytes = CT_POST_SLOT_BYTES;
    }
    if (move->greets && move->out) {
        uint64_t *calls = &post->calls[(int)lane * post->wave.size + move->peer];

        ct_greeting_write(move->slot, greeting);
        if (is_short && move->bytes > 0)
            memcpy(move->slot + CT_GREETING_BYTES, move->data, move->bytes);
        move->head.bytes = CT_GREETING_BYTES + (is_short ? move->bytes : 0);
        move->head.taken = ++*calls % TAKEN_EVERY == 0;
    }
    if (move->greets)
        ct_post_send_off(post, &move->head);
    if (move->bytes > 0 && !is_short) {
        move->body.data = move->data;
        move->body.bytes = move->bytes;
        ct_post_send_off(post, &move->body);
    }
}

/* A greeting has come: compare it with what is expected, and take the data that came with it. */
static int read_greeting(struct ct_post *post, struct ct_post_move *move,
                         struct ct_greeting *expected, struct ct_error *err)
{
    int code = ct_greeting_check(move->slot, post->wave.rank, move->peer, expected, err);

    if (code == 0 && move->bytes > 0 && move->bytes <= SHORT_BYTES)
        memcpy(move->data, move->slot + CT_GREETING_BYTES, move->bytes);
    return code;
}

/* 1 when it is over. `greeting` is what must come, or has gone; it takes the peer's factor. */
static int advance(struct ct_post *post, struct ct_task *task, struct ct_post_move *move,
                   struct ct_greeting *greeting, struct ct_error *err)
{
    int code = look(post, task, &move->head, err);

    if (code != 1)
        return code;
    if (move->greets && !move->out) {
        int differs = read_greeting(post, move, greeting, err);

        if (differs != 0)
            return differs;
    }
    move->greets = false;
    code = look(post, task, &move->body, err);
    move->over = code == 1;
    return code;
}

/* ---- collectives -----------------------------------------------------------------------------*/

/* The greeting that goes to `peer` (out), or that must come from it. */
static struct ct_greeting greet(const struct ct_post *post, const struct ct_task *task, int peer,
                                bool out)
{
    return (struct ct_greeting){.call = post->call,
                                .signature =
                                    ct_call_signature_with(&task->call, task->signature, peer, out),
                                .scale = task->call.scale};
}

static void start_wave(struct ct_post *post, const struct ct_task *task)
{
    struct ct_wave_move what;
    int step = 0;

    post->move_count = 0;
    while (ct_wave_next_move(&post->wave, &task->call, task->at, &step, &what)) {
        struct ct_post_move *move = &post->moves[post->move_count++];
        uint64_t *greeted = &post->greeted[(what.out ? 0 : post->wave.size) + what.peer];
        struct ct_greeting greeting = greet(post, task, what.peer, what.out);

        *move = (struct ct_post_move){.peer = what.peer,
                                      .out = what.out,
                                      .greets = *greeted != post->call,
                                      .data = what.data,
                                      .bytes = what.bytes};
        *greeted = post->call;
        start(post, move, CT_POST_COLLECTIVE, &greeting);
    }
}

/* 1 when all moves of the wave are over. */
static int advance_wave(struct ct_post *post, struct ct_task *task, struct ct_error *err)
{
    int open = 0;

    for (int i = 0; i < post->move_count; i++) {
        struct ct_post_move *move = &post->moves[i];

        if (move->over)
            continue;
        bool greeted = !move->greets;
        struct ct_greeting greeting = greet(post, task, move->peer, move->out);
        int code = advance(post, task, move, &greeting, err);

        if (code < 0)
            return code;
        if (!move->out && !greeted && !move->greets)
            post->wave.factors[move->peer] = greeting.scale;
        open += code == 0;
    }
    return open == 0;
}

static int collective(struct ct_post *post, struct ct_task *task, struct ct_error *err)
{
    if (task->stage == 0) {
        ct_wave_begin(&post->wave, &task->call);
        task->algorithm = post->wave.schedule.algorithm;
        post->call++;
        task->stage = 1;
        start_wave(post, task);
        post->transport->turn(post->context);
    }
    for (;;) {
        int code = advance_wave(post, task, err);

        if (code != 1)
            return code;
        ct_wave_compute(&post->wave, &task->call, task->at);
        if (++task->at == ct_wave_count(&post->wave))
            break;
        start_wave(post, task);
    }
    post->move_count = 0;
    return 1;
}

/* ---- send and recv ---------------------------------------------------------------------------*/

static int transfer(struct ct_post *post, struct ct_task *task, struct ct_error *err)
{
    const struct ct_call *call = &task->call;
    bool out = call->kind == CT_CALL_SEND;
    struct ct_post_move *move = &post->transfers[(out ? 0 : post->wave.size) + call->peer];
    struct ct_greeting greeting = {.signature = task->signature};

    if (task->stage == 0) {
        task->stage = 1;
        *move = (struct ct_post_move){.peer = call->peer,
                                      .out = out,
                                      .greets = true,
                                      .data = out ? (char *)(uintptr_t)call->send : call->recv,
                                      .bytes = ct_call_bytes(call)};
        start(post, move, CT_POST_TRANSFER, &greeting);
        post->transport->turn(post->context);
    }
    return advance(post, task, move, &greeting, err);
}

/* ---- as the backend --------------------------------------------------------------------------*/

int ct_post_progress(struct ct_post *post, struct ct_task *task, struct ct_error *err)
{
    post->transport->turn(post->context);
    int code =
        ct_call_is_transfer(&task->call) ? transfer(post, task, err) : collective(post, task, err);
    if (code == 0)
        code = ct_post_parted(post, err);
    return code == 0 ? ct_post_deserted(post, task, err) : code;
}

int ct_post_missing(const struct ct_post *post, const struct ct_task *task)
{
    if (ct_call_is_transfer(&task->call))
        return task->call.peer;
    for (int i = 0; i < post->move_count; i++)
        if (!post->moves[i].over && !post->moves[i].out)
            return post->moves[i].peer;
    return -1;
}

static void drop_message(struct ct_post *post, struct ct_peer_message *message)
{
    if (atomic_load_explicit(&message->state, memory_order_acquire) == CT_PEER_MESSAGE_OPEN &&
        !post->transport->over(post->context, message))
        post->transport->drop(post->context, message);
    ct_post_forget(message);
}

static void drop_moves(struct ct_post *post, struct ct_post_move *moves, int count, bool out)
{
    for (int i = 0; i < count; i++)
        if (moves[i].out == out) {
            drop_message(post, &moves[i].head);
            drop_message(post, &moves[i].body);
        }
}

static void drop_all(struct ct_post *post, bool out)
{
    drop_moves(post, post->moves, post->move_count, out);
    drop_moves(post, post->transfers, 2 * post->wave.size, out);
}

/* Words that have not gone out yet: others take their place. */
static void drop_words(struct ct_post *post)
{
    for (int i = 0; i < post->wave.size; i++)
        if (i != post->wave.rank && !post->left[i].left)
            drop_message(post, &post->control[i]);
}

static bool is_gone(struct ct_post *post, struct ct_peer_message *message)
{
    return atomic_load_explicit(&message->state, memory_order_relaxed) == CT_PEER_MESSAGE_UNUSED ||
           ct_post_has_come(post, message);
}

/* How long until what is open has to be taken back, from when the group ended: of a greeting or a
 * word, and of what lies in the caller's memory. In a round that is over nobody needs the words. */
struct patience {
    uint64_t word_ns, lent_ns;
};

static uint64_t patience_with(struct ct_post *post, const struct patience *patience,
                              struct ct_post_move *moves, int count)
{
    uint64_t most_ns = 0;

    for (int i = 0; i < count; i++) {
        if (moves[i].out && !is_gone(post, &moves[i].body))
            return patience->lent_ns;
        if (moves[i].out && !is_gone(post, &moves[i].head))
            most_ns = patience->word_ns;
    }
    return most_ns;
}

/* 0: all is gone. */
static uint64_t patience_with_all(struct ct_post *post)
{
    const struct patience patience = ct_job_revoked(post->job)
                                         ? (struct patience){0, TAKEN_BACK_NS}
                                         : (struct patience){PARTING_NS, post->transport->lent_ns};
    uint64_t most_ns = CT_MAX(patience_with(post, &patience, post->moves, post->move_count),
                              patience_with(post, &patience, post->transfers, 2 * post->wave.size));

    for (int i = 0; i < post->wave.size; i++)
        if (i != post->wave.rank && !is_gone(post, &post->control[i]))
            most_ns = CT_MAX(most_ns, patience.word_ns);
    return most_ns;
}

/* What goes out gets a moment: who listens takes it, or drains it. A transport that carries the
 * caller's memory has to break off what is not over then, maybe with all that it carries between
 * the two. */
static void see_off(struct ct_post *post, uint64_t least_ns)
{
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);

    post->transport->drain(post->context);
    while (ct_clock_mono_ns(&ct_clock_system) - start_ns <
           CT_MAX(least_ns, patience_with_all(post))) {
        post->transport->rest(post->context, PARTING_SLICE_NS);
        post->transport->turn(post->context);
        post->transport->drain(post->context);
    }
}

/* Everyone is told, and the callers get their buffers back. */
void ct_post_fail(struct ct_post *post, int code)
{
    post->failed = true;
    drop_all(post, false);
    drop_words(post);
    ct_post_tell(post, code, false);
    see_off(post, post->told ? post->transport->linger_ns : 0);
    drop_all(post, true);
    post->move_count = 0;
}

void ct_post_drop(struct ct_post *post)
{
    if (post->control == NULL)
        return;
    drop_all(post, false);
    if (post->met && !post->failed) {
        drop_words(post);
        ct_post_tell(post, CT_ECLOSED, true);
    }
    see_off(post, 0);
    drop_all(post, true);
    for (int i = 0; i < post->wave.size; i++)
        drop_message(post, &post->control[i]);
}
