/* See post.h. */
#include "backend/post.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLOT_BYTES = 1024,
    SHORT_BYTES = SLOT_BYTES - CT_GREETING_BYTES, /* of data that travels with its greeting */
    TAKEN_EVERY = 16,
    SLICE_NS = 10000000,
    ASK_NS = 2000000000,     /* how often to ask whether a member has given up */
    PARTING_NS = 20000000,   /* for words on their way when a group ends, */
    TAKEN_BACK_NS = 5000000, /* and for what is in the caller's memory when the round is over */
    PARTING_SLICE_NS = 1000000,
    LEFT_NS = 20000000, /* for what a member that has left had sent before, on another lane */
};

/* ---- the group -------------------------------------------------------------------------------*/

int ct_post_init(struct ct_post *post, const struct ct_setup *setup,
                 const struct ct_courier *courier, void *context)
{
    size_t size = (size_t)setup->size;
    int code = ct_wave_init(&post->wave, setup);

    post->courier = courier;
    post->context = context;
    post->job = setup->job;
    if (code != 0)
        return code;
    post->moves = calloc((size_t)ct_wave_moves_max(&post->wave), sizeof *post->moves);
    post->transfers = calloc(2 * size, sizeof *post->transfers);
    post->greeted = calloc(2 * size, sizeof *post->greeted);
    post->calls = calloc(2 * size, sizeof *post->calls);
    post->slots = calloc(CT_POST_LANES * 2 * size, SLOT_BYTES);
    post->control = calloc(size, sizeof *post->control);
    post->left_ns = calloc(size, sizeof *post->left_ns);
    return post->moves != NULL && post->transfers != NULL && post->greeted != NULL &&
                   post->calls != NULL && post->slots != NULL && post->control != NULL &&
                   post->left_ns != NULL
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
    free(post->left_ns);
}

static unsigned char *slot_of(const struct ct_post *post, enum ct_post_lane lane, bool out,
                              int peer)
{
    size_t size = (size_t)post->wave.size;

    return post->slots + (((size_t)lane * 2 + (out ? 0 : 1)) * size + (size_t)peer) * SLOT_BYTES;
}

static void send_off(struct ct_post *post, struct ct_parcel *parcel)
{
    atomic_store_explicit(&parcel->state, CT_PARCEL_OPEN, memory_order_relaxed);
    parcel->code = 0;
    post->courier->post(post->context, parcel);
}

/* Has it come to an end that nobody has looked at yet? */
static bool has_come(struct ct_post *post, struct ct_parcel *parcel)
{
    int state = atomic_load_explicit(&parcel->state, memory_order_acquire);

    return state == CT_PARCEL_OVER ||
           (state == CT_PARCEL_OPEN && post->courier->over(post->context, parcel));
}

static void forget(struct ct_parcel *parcel)
{
    atomic_store_explicit(&parcel->state, CT_PARCEL_UNUSED, memory_order_relaxed);
}

/* Has it come to an end? A parcel that was never posted has. 1, 0, or the failure. */
static int look(struct ct_post *post, struct ct_task *task, struct ct_parcel *parcel,
                struct ct_error *err)
{
    if (atomic_load_explicit(&parcel->state, memory_order_relaxed) == CT_PARCEL_UNUSED)
        return 1;
    if (!has_come(post, parcel))
        return 0;
    if (parcel->code != 0)
        return ct_error_set(err, parcel->code, "rank %d is gone", parcel->peer);
    forget(parcel);
    task->moves++;
    return 1;
}

/* ---- a move ----------------------------------------------------------------------------------*/

/* Begin `move`, of which peer, direction, data, size and whether it greets are set. */
static void start(struct ct_post *post, struct ct_post_move *move, enum ct_post_lane lane,
                  const struct ct_greeting *greeting)
{
    bool is_short = move->greets && move->bytes <= SHORT_BYTES;

    move->head = (struct ct_parcel){.lane = lane, .peer = move->peer, .out = move->out};
    move->body = move->head;
    if (move->greets) {
        move->slot = slot_of(post, lane, move->out, move->peer);
        move->head.data = (char *)move->slot;
        move->head.bytes = SLOT_BYTES;
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
        send_off(post, &move->head);
    if (move->bytes > 0 && !is_short) {
        move->body.data = move->data;
        move->body.bytes = move->bytes;
        send_off(post, &move->body);
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
        post->courier->turn(post->context);
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
        post->courier->turn(post->context);
    }
    return advance(post, task, move, &greeting, err);
}

/* ---- control ---------------------------------------------------------------------------------*/

/* Behind the greeting of a control message. */
struct word {
    int32_t rank;   /* who says it */
    int32_t leaves; /* the group, which has not failed */
};

static void control_post(struct ct_post *post, int peer, bool out, int code, bool leaves)
{
    struct ct_parcel *parcel = &post->control[out ? peer : post->wave.rank];
    unsigned char *slot = slot_of(post, CT_POST_CONTROL, out, out ? peer : post->wave.rank);

    *parcel =
        (struct ct_parcel){.lane = CT_POST_CONTROL,
                           .peer = peer,
                           .out = out,
                           .data = (char *)slot,
                           .bytes = out ? CT_GREETING_BYTES + sizeof(struct word) : SLOT_BYTES};
    if (out) {
        const struct word word = {post->wave.rank, leaves};

        ct_greeting_write(slot, &(struct ct_greeting){.code = code});
        memcpy(slot + CT_GREETING_BYTES, &word, sizeof word);
    }
    send_off(post, parcel);
}

/* What a member said on the control lane: 0, or why it ended the group. */
static int hear(struct ct_post *post, struct word *ret_word, struct ct_error *err)
{
    const unsigned char *slot = slot_of(post, CT_POST_CONTROL, false, post->wave.rank);
    struct ct_greeting greeting = {0};

    memcpy(ret_word, slot + CT_GREETING_BYTES, sizeof *ret_word);
    if (ret_word->rank < 0 || ret_word->rank >= post->wave.size)
        return ct_error_set(err, CT_EPROTOCOL, "an unknown rank %d spoke to the group",
                            ret_word->rank);
    return ct_greeting_check(slot, post->wave.rank, ret_word->rank, &greeting, err);
}

/* Has a member ended the group? Who has merely left it is noted. */
static int parted(struct ct_post *post, struct ct_error *err)
{
    struct ct_parcel *parcel = &post->control[post->wave.rank];

    while (has_come(post, parcel)) {
        struct ct_error heard = {0};
        struct word word = {0};

        forget(parcel);
        int code = hear(post, &word, &heard);
        if (code != 0 && word.leaves == 0) {
            *err = heard;
            post->told = true;
            return code;
        }
        post->left_ns[word.rank] = ct_clock_mono_ns(&ct_clock_system);
        control_post(post, -1, false, 0, false);
    }
    return 0;
}

static int find_left(const struct ct_post *post, const struct ct_post_move *move,
                     struct ct_error *err)
{
    uint64_t since_ns = post->left_ns[move->peer];

    if (move->over || since_ns == 0 || ct_clock_mono_ns(&ct_clock_system) - since_ns < LEFT_NS)
        return 0;
    return ct_error_set(err, CT_ECLOSED, "rank %d has left the group", move->peer);
}

/* Does `task`, which cannot go on, wait for one who has left? */
static int deserted(const struct ct_post *post, const struct ct_task *task, struct ct_error *err)
{
    bool out = task->call.kind == CT_CALL_SEND;
    int code = 0;

    if (ct_call_is_transfer(&task->call))
        return find_left(post, &post->transfers[(out ? 0 : post->wave.size) + task->call.peer],
                         err);
    for (int i = 0; i < post->move_count && code == 0; i++)
        code = find_left(post, &post->moves[i], err);
    return code;
}

/* Wait a little, unless there is no need to go on. */
static int rest(struct ct_post *post, const struct ct_setup *setup, uint64_t *asked_ns,
                struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);

    if (ct_job_revoked(setup->job))
        return ct_error_set(err, CT_EREVOKED, "the round was revoked");
    ct_worker_record_alive(setup->job->record, now_ns);
    if (now_ns >= setup->deadline_ns)
        return CT_ETIMEOUT;
    if (setup->failed_elsewhere != NULL && now_ns - *asked_ns >= ASK_NS) {
        *asked_ns = now_ns;
        int code = setup->failed_elsewhere(setup, err);
        if (code != 0)
            return code;
    }
    post->courier->rest(post->context, SLICE_NS);
    return 0;
}

static int not_met(const struct ct_post *post, const bool *met, int code, struct ct_error *err)
{
    int peer = 0;

    while (peer == post->wave.rank || (peer < post->wave.size - 1 && met[peer]))
        peer++;
    if (code == CT_ETIMEOUT)
        return ct_error_set(err, code, "rank %d has no connection with rank %d in time",
                            post->wave.rank, peer);
    return code;
}

/* How many of this rank's own words are still on their way; one that cannot go is an error. */
static int see_words_out(struct ct_post *post, const struct ct_setup *setup, int *ret_open,
                         struct ct_error *err)
{
    *ret_open = 0;
    for (int i = 0; i < setup->size; i++) {
        struct ct_parcel *word = &post->control[i];

        if (i == setup->rank || atomic_load(&word->state) == CT_PARCEL_UNUSED)
            continue;
        if (!has_come(post, word))
            ++*ret_open;
        else if (word->code != 0)
            return ct_error_set(err, CT_EUNAVAILABLE, "rank %d cannot connect to rank %d",
                                setup->rank, i);
        else
            forget(word);
    }
    return 0;
}

/* Take up what members say until all of them have; `met` has room for all. A word may wait for a
 * connection that only this rank's own turns complete, so it is seen out as well: who leaves
 * earlier may do something else for long, and nobody else would turn. */
static int await_all(struct ct_post *post, const struct ct_setup *setup, bool *met,
                     struct ct_error *err)
{
    uint64_t asked_ns = ct_clock_mono_ns(&ct_clock_system);
    struct ct_parcel *listening = &post->control[post->wave.rank];
    int left = setup->size - 1, open = left;

    for (;;) {
        struct word word;

        post->courier->turn(post->context);
        int code = see_words_out(post, setup, &open, err);
        if (code != 0)
            return code;
        if (left == 0 && open == 0)
            return 0;
        if (!has_come(post, listening)) {
            code = rest(post, setup, &asked_ns, err);
            if (code != 0)
                return not_met(post, met, code, err);
            continue;
        }
        code = hear(post, &word, err);
        if (code != 0)
            return code;
        if (met[word.rank])
            return ct_error_set(err, CT_EPROTOCOL, "rank %d said its word twice", word.rank);
        met[word.rank] = true;
        left--;
        control_post(post, -1, false, 0, false);
    }
}

int ct_post_meet(struct ct_post *post, const struct ct_setup *setup, struct ct_error *err)
{
    bool *met = calloc((size_t)setup->size, sizeof *met);

    if (met == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    control_post(post, -1, false, 0, false);
    for (int i = 0; i < setup->size; i++)
        if (i != setup->rank)
            control_post(post, i, true, 0, false);
    int code = await_all(post, setup, met, err);
    free(met);
    post->met = code == 0;
    return code;
}

/* ---- as the backend --------------------------------------------------------------------------*/

int ct_post_progress(struct ct_post *post, struct ct_task *task, struct ct_error *err)
{
    post->courier->turn(post->context);
    int code =
        ct_call_is_transfer(&task->call) ? transfer(post, task, err) : collective(post, task, err);
    if (code == 0)
        code = parted(post, err);
    return code == 0 ? deserted(post, task, err) : code;
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

static void drop_parcel(struct ct_post *post, struct ct_parcel *parcel)
{
    if (atomic_load_explicit(&parcel->state, memory_order_acquire) == CT_PARCEL_OPEN &&
        !post->courier->over(post->context, parcel))
        post->courier->drop(post->context, parcel);
    forget(parcel);
}

static void drop_moves(struct ct_post *post, struct ct_post_move *moves, int count, bool out)
{
    for (int i = 0; i < count; i++)
        if (moves[i].out == out) {
            drop_parcel(post, &moves[i].head);
            drop_parcel(post, &moves[i].body);
        }
}

static void drop_all(struct ct_post *post, bool out)
{
    drop_moves(post, post->moves, post->move_count, out);
    drop_moves(post, post->transfers, 2 * post->wave.size, out);
}

static bool is_gone(struct ct_post *post, struct ct_parcel *parcel)
{
    return atomic_load_explicit(&parcel->state, memory_order_relaxed) == CT_PARCEL_UNUSED ||
           has_come(post, parcel);
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
                                         : (struct patience){PARTING_NS, post->courier->lent_ns};
    uint64_t most_ns = CT_MAX(patience_with(post, &patience, post->moves, post->move_count),
                              patience_with(post, &patience, post->transfers, 2 * post->wave.size));

    for (int i = 0; i < post->wave.size; i++)
        if (i != post->wave.rank && !is_gone(post, &post->control[i]))
            most_ns = CT_MAX(most_ns, patience.word_ns);
    return most_ns;
}

/* What goes out gets a moment: who listens takes it, or drains it. A courier that carries the
 * caller's memory has to break off what is not over then, maybe with all that it carries between
 * the two. */
static void see_off(struct ct_post *post, uint64_t least_ns)
{
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);

    post->courier->drain(post->context);
    while (ct_clock_mono_ns(&ct_clock_system) - start_ns <
           CT_MAX(least_ns, patience_with_all(post))) {
        post->courier->rest(post->context, PARTING_SLICE_NS);
        post->courier->turn(post->context);
        post->courier->drain(post->context);
    }
}

static void tell_all(struct ct_post *post, int code, bool leaves)
{
    for (int i = 0; i < post->wave.size; i++)
        if (i != post->wave.rank && post->left_ns[i] == 0) {
            drop_parcel(post, &post->control[i]);
            control_post(post, i, true, code, leaves);
        }
}

/* Everyone is told, and the callers get their buffers back. */
void ct_post_fail(struct ct_post *post, int code)
{
    post->failed = true;
    drop_all(post, false);
    tell_all(post, code, false);
    see_off(post, post->told ? post->courier->linger_ns : 0);
    drop_all(post, true);
    post->move_count = 0;
}

void ct_post_drop(struct ct_post *post)
{
    if (post->control == NULL)
        return;
    drop_all(post, false);
    if (post->met && !post->failed)
        tell_all(post, CT_ECLOSED, true);
    see_off(post, 0);
    drop_all(post, true);
    for (int i = 0; i < post->wave.size; i++)
        drop_parcel(post, &post->control[i]);
}
