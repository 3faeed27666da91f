/* See ps_server_uv.h: the calls of a round.
 *
 *     HELLO    a guest sits down
 *     STORE    the state changes; BEGIN: it is whole
 *     PUSH     into the worker's slot; COMMIT: the slot is complete -> its turn -> update
 *     PULL     answered at once, or behind the update that it waits for
 *     BYE      the last one ends the round
 *
 * What a caller gets wrong is refused, with a sentence, and it is hung up on: workers and servers
 * are of one build. */
#include "collectives/ps/ps_server_state_uv.h"

#include "base/assert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call being answered. */
struct call {
    struct ct_ps_server *server;
    struct ct_rpc_caller *caller;
    uint64_t id;
    int worker; /* -1 before HELLO */
    struct ct_bytes body, data;
};

static int done(const struct call *call)
{
    return ct_rpc_answer(call->caller, call->id, (struct ct_bytes){NULL, 0});
}

/* ---- hello ----------------------------------------------------------------------------------- */

static bool is_let_in(const struct ct_ps_server *server, const struct ct_ps_hello *hello)
{
    const uint64_t *token = server->address.token;

    return ((hello->token0 ^ token[0]) | (hello->token1 ^ token[1]) | (hello->token2 ^ token[2]) |
            (hello->token3 ^ token[3])) == 0;
}

static int check_hello(const struct ct_ps_server *server, const struct ct_ps_hello *hello,
                       struct ct_error *err)
{
    if (!is_let_in(server, hello) || hello->version != CT_PS_VERSION)
        return ct_error_set(err, CT_EAUTH, "parameter server %d does not know this worker",
                            server->index);
    if (hello->generation != server->generation ||
        hello->workers != (uint64_t)server->round->workers || hello->worker >= hello->workers ||
        server->guests[hello->worker].caller != NULL || server->guests[hello->worker].lost)
        return ct_error_set(err, CT_EFENCED,
                            "parameter server %d serves %d workers in generation %" PRIu64
                            ", and is not waiting for worker %" PRIu64 " of generation %" PRIu64,
                            server->index, server->round->workers, server->generation,
                            hello->worker, hello->generation);
    if (hello->hash != server->round->hash || hello->flat_bytes != server->flat_bytes)
        return ct_error_set(err, CT_EMISMATCH,
                            "worker %" PRIu64
                            " has another shared part of the configuration (model, data, optim, "
                            "batch, train, ...) than parameter server %d",
                            hello->worker, server->index);
    return 0;
}

static int on_hello(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    const struct ct_ps_note *note = &server->brought_note;
    unsigned char answer[CT_PS_HEAD_BYTES + CT_PS_NOTE_MAX];
    struct ct_ps_hello hello;
    int code = ct_ps_get(CT_PS_HEAD_hello, call->body, &hello, &call->data, err);

    if (code == 0)
        code = check_hello(server, &hello, err);
    if (code == CT_EMISMATCH && !server->round->patient)
        ct_ps_server_end(server, code, err->text); /* the worker will not come again */
    if (code != 0)
        return code;
    struct ct_ps_guest *guest = &server->guests[hello.worker];
    guest->caller = call->caller;
    ct_rpc_caller_set_user(call->caller, guest);
    size_t size = ct_ps_put(CT_PS_HEAD_holding, &server->brought, answer);
    memcpy(answer + size, note->data, note->bytes);
    return ct_rpc_answer(call->caller, call->id, (struct ct_bytes){answer, size + note->bytes});
}

/* ---- the state ------------------------------------------------------------------------------- */

static bool is_inside(uint64_t at, uint64_t bytes, uint64_t end)
{
    return at <= end && bytes <= end - at;
}

static int get_block(struct call *call, struct ct_ps_block *ret, struct ct_error *err)
{
    const struct ct_ps_update *update = call->server->update;
    int code = ct_ps_get(CT_PS_HEAD_block, call->body, ret, &call->data, err);

    if (code == 0 &&
        (ret->range >= (uint64_t)ct_ps_update_ranges(update) || ret->bytes > CT_PS_BLOCK_MAX ||
         !is_inside(ret->at, ret->bytes, ct_ps_update_part(update).bytes)))
        code = ct_error_set(err, CT_EPROTOCOL,
                            "block of %" PRIu64 " bytes at %" PRIu64 " of range %" PRIu64
                            ": there is none",
                            ret->bytes, ret->at, ret->range);
    return code;
}

static int on_store(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    struct ct_ps_block block;
    int code = get_block(call, &block, err);

    if (code == 0 && (server->begun || call->worker != 0 || call->data.size != block.bytes))
        code = ct_error_set(err, CT_EPROTOCOL, "worker %d stores a state that it may not",
                            call->worker);
    if (code != 0)
        return code;
    if (!server->stored)
        ct_ps_update_reset(server->update);
    server->stored = true;
    server->lineage = 0;
    memcpy(ct_ps_update_range(server->update, (int)block.range) + block.at, call->data.data,
           call->data.size);
    return done(call);
}

static int on_fetch(struct call *call, struct ct_error *err)
{
    struct ct_ps_block block;
    int code = get_block(call, &block, err);

    if (code != 0)
        return code;
    const char *from = ct_ps_update_range(call->server->update, (int)block.range) + block.at;
    return ct_rpc_answer(call->caller, call->id,
                         (struct ct_bytes){(const unsigned char *)from, block.bytes});
}

/* ---- pulling --------------------------------------------------------------------------------- */

static void answer_pull(struct ct_ps_server *server, const struct ct_ps_waiting *w)
{
    const struct ct_ps_pulled pulled = {.leave_at = server->turn.leave_at,
                                        .loss = server->loss,
                                        .correct = server->correct,
                                        .sumsq = server->sumsq};
    size_t size = ct_ps_put(CT_PS_HEAD_pulled, &pulled, server->answer);

    memcpy(server->answer + size, ct_ps_update_range(server->update, 0) + w->pull.at,
           w->pull.bytes);
    (void)ct_rpc_answer(w->caller, w->id, (struct ct_bytes){server->answer, size + w->pull.bytes});
}

/* Answer those whose turn has come. */
static void answer_waiting(struct ct_ps_server *server)
{
    int kept = 0;

    for (int i = 0; i < server->waiting_count; i++) {
        struct ct_ps_waiting *w = &server->waiting[i];
        if (server->begun && ct_ps_turn_begin(&server->turn, w->worker, w->pull.step))
            answer_pull(server, w);
        else
            server->waiting[kept++] = *w;
    }
    server->waiting_count = kept;
}

static int on_pull(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    struct ct_ps_waiting *w = &server->waiting[server->waiting_count];
    int code = ct_ps_get(CT_PS_HEAD_pull, call->body, &w->pull, &call->data, err);

    if (code == 0 &&
        (w->pull.bytes > CT_PS_BLOCK_MAX ||
         !is_inside(w->pull.at, w->pull.bytes, ct_ps_update_part(server->update).bytes)))
        code = ct_error_set(err, CT_EPROTOCOL, "there are no such parameters");
    if (code != 0)
        return code;
    w->caller = call->caller;
    w->id = call->id;
    w->worker = call->worker;
    server->waiting_count++;
    answer_waiting(server);
    return 0;
}

/* ---- updating -------------------------------------------------------------------------------- */

/* The sum over workers of one number of their commits, in the order of gradients. */
static double add_up(const struct ct_ps_server *server, size_t member)
{
    const struct ct_reduction how = {
        .dtype = CT_F64, .reduce = CT_REDUCE_SUM, .order = server->round->order};
    const void *sources[CT_REDUCE_SOURCES_MAX];
    double sum = 0;

    for (int i = 0; i < server->round->workers; i++)
        sources[i] = (const char *)&server->guests[i].commit + member;
    ct_reduce_buffers(&how, &sum, sources, server->round->workers, 1);
    return sum;
}

/* All gradients into the slot of worker 0. */
static void add_gradients(struct ct_ps_server *server)
{
    enum ct_dtype dtype = ct_ps_update_dtype(server->update);
    const struct ct_reduction how = {
        .dtype = dtype, .reduce = CT_REDUCE_SUM, .order = server->round->order};
    const void *sources[CT_REDUCE_SOURCES_MAX];
    size_t count = ct_ps_update_part(server->update).bytes / ct_dtype_size(dtype);

    for (int i = 0; i < server->round->workers; i++)
        sources[i] = server->guests[i].slot;
    ct_reduce_buffers(&how, server->guests[0].slot, sources, server->round->workers, count);
}

/* The squared norm of the whole gradient, of which each server has a part. */
static int find_norm(struct ct_ps_server *server, double *ret_sumsq)
{
    const struct ct_options options = {.mode = CT_MODE_REPRODUCIBLE};
    struct ct_group *group = server->round->servers;
    double sumsq = ct_ps_update_sumsq(server->update, server->guests[0].slot);
    struct ct_error why = {0};
    int code = group == NULL
                   ? 0
                   : ct_all_reduce(group, ct_inplace(&sumsq, 1, CT_F64), CT_REDUCE_SUM, &options);

    if (code != 0)
        ct_ps_server_end(server, ct_group_explain(group, code, &why), why.text);
    *ret_sumsq = sumsq;
    return code;
}

/* All or nothing: what fails leaves the state of the step before. */
static void update_with_all(struct ct_ps_server *server)
{
    const struct ct_ps_commit *first = &server->guests[0].commit;
    double loss = add_up(server, offsetof(struct ct_ps_commit, loss)), sumsq;

    add_gradients(server);
    if (find_norm(server, &sumsq) != 0)
        return;
    const struct ct_ps_numbers numbers = {first->lr, (double)first->update, loss, sumsq};
    ct_ps_update_run(server->update, server->guests[0].slot, &numbers);
    server->loss = loss;
    server->sumsq = sumsq;
    server->correct = add_up(server, offsetof(struct ct_ps_commit, correct));
}

/* A gradient that is not finite is left out, and not counted. */
static void update_with_one(struct ct_ps_server *server, const struct ct_ps_guest *guest)
{
    const struct ct_ps_commit *commit = &guest->commit;

    if (!isfinite(commit->loss) || !isfinite(commit->sumsq))
        return;
    const struct ct_ps_numbers numbers = {commit->lr, (double)++server->updates, commit->loss,
                                          commit->sumsq};
    ct_ps_update_run(server->update, guest->slot, &numbers);
}

static void update(struct ct_ps_server *server, const struct ct_ps_guest *guest, enum ct_ps_due due)
{
    if (due == CT_PS_SUM_DUE)
        update_with_all(server);
    else
        update_with_one(server, guest);
    if (server->over)
        return;
    server->step = ct_ps_turn_step(&server->turn);
    if (due == CT_PS_SUM_DUE || guest == server->guests)
        server->note = server->next_note; /* worker 0's: what a later round is told */
    server->round->on_step(server->round->context, server->step);
}

static void keep_note(struct ct_ps_note *note, struct ct_bytes data)
{
    note->bytes = data.size;
    memcpy(note->data, data.data, data.size);
}

static int on_begin(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    const struct ct_ps_round *round = server->round;
    struct ct_ps_begin begin;
    int code = ct_ps_get(CT_PS_HEAD_begin, call->body, &begin, &call->data, err);

    if (code == 0 && (server->begun || call->worker != 0 || (begin.keep == 0) != server->stored ||
                      call->data.size > CT_PS_NOTE_MAX))
        code = ct_error_set(err, CT_EPROTOCOL, "worker %d begins a round that it may not",
                            call->worker);
    if (code != 0)
        return code;
    server->begun = true;
    server->lineage = server->generation;
    server->step = begin.step;
    if (begin.keep == 0)
        server->updates = begin.updates;
    keep_note(&server->note, call->data);
    ct_ps_turn_init(&server->turn, round->workers, round->staleness, begin.step);
    round->on_begin(round->context);
    code = done(call);
    answer_waiting(server);
    return code;
}

static int on_push(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    struct ct_ps_push push;
    int code = ct_ps_get(CT_PS_HEAD_push, call->body, &push, &call->data, err);

    if (code == 0 &&
        (!server->begun || push.step != server->turn.seats[call->worker].pushed ||
         !is_inside(push.at, call->data.size, ct_ps_update_part(server->update).bytes)))
        code = ct_error_set(err, CT_EPROTOCOL, "worker %d pushes what is no gradient of its step",
                            call->worker);
    if (code != 0)
        return code;
    memcpy(server->guests[call->worker].slot + push.at, call->data.data, call->data.size);
    return done(call);
}

static int on_commit(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    struct ct_ps_guest *guest = &server->guests[call->worker];
    enum ct_ps_due due = CT_PS_NOT_DUE;
    int code = ct_ps_get(CT_PS_HEAD_commit, call->body, &guest->commit, &call->data, err);

    if (code == 0 && (!server->begun || call->data.size > CT_PS_NOTE_MAX ||
                      !ct_ps_turn_push(&server->turn, call->worker, guest->commit.step, &due)))
        code = ct_error_set(err, CT_EPROTOCOL, "worker %d ends a step that it has not begun",
                            call->worker);
    if (code != 0)
        return code;
    if (guest->commit.wish != 0)
        ct_ps_turn_wish(&server->turn);
    if (call->worker == 0)
        keep_note(&server->next_note, call->data);
    code = done(call);
    if (due != CT_PS_NOT_DUE)
        update(server, guest, due);
    if (!server->over)
        answer_waiting(server);
    return code;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Has everybody left, or is lost? */
static void look_for_end(struct ct_ps_server *server, const char *why)
{
    int left = 0, lost = 0;

    for (int i = 0; i < server->round->workers; i++) {
        left += server->guests[i].left;
        lost += server->guests[i].lost;
    }
    if (left == server->round->workers)
        ct_ps_server_end(server, 0, "");
    else if (lost > 0 && !server->round->patient &&
             (server->round->staleness == 0 || left + lost == server->round->workers))
        ct_ps_server_end(server, CT_ECLOSED, why);
}

static int on_bye(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    struct ct_ps_bye bye;
    int code = ct_ps_get(CT_PS_HEAD_bye, call->body, &bye, &call->data, err);

    if (code != 0)
        return code;
    server->guests[call->worker].left = true;
    if (server->begun)
        ct_ps_turn_lose(&server->turn, call->worker);
    server->end = CT_MAX(server->end, (enum ct_ps_end)CT_MIN(bye.reason, (uint64_t)CT_PS_STOPPED));
    code = done(call);
    answer_waiting(server);
    look_for_end(server, "a worker left the round before its end");
    return code;
}

static void forget_waiting(struct ct_ps_server *server, const struct ct_rpc_caller *caller)
{
    int kept = 0;

    for (int i = 0; i < server->waiting_count; i++)
        if (server->waiting[i].caller != caller)
            server->waiting[kept++] = server->waiting[i];
    server->waiting_count = kept;
}

void ct_ps_server_on_gone(void *context, struct ct_rpc_caller *caller, const struct ct_error *why)
{
    struct ct_ps_server *server = context;
    struct ct_ps_guest *guest = ct_rpc_caller_user(caller);
    struct ct_error text = {0};

    if (guest == NULL)
        return;
    int worker = (int)(guest - server->guests);
    forget_waiting(server, caller);
    guest->caller = NULL;
    if (guest->left || server->over)
        return;
    guest->lost = true;
    if (server->lost_ms == 0)
        server->lost_ms = CT_MAX(uv_now(&server->loop), (uint64_t)1);
    if (server->begun) {
        ct_ps_turn_lose(&server->turn, worker);
        answer_waiting(server);
    }
    (void)ct_error_set(&text, CT_ECLOSED, "parameter server %d has lost worker %d: %s",
                       server->index, worker, why->text);
    look_for_end(server, text.text);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int dispatch(struct call *call, unsigned method, struct ct_error *err)
{
    static int (*const methods[])(struct call * call, struct ct_error * err) = {
        [CT_PS_STORE] = on_store, [CT_PS_BEGIN] = on_begin,   [CT_PS_FETCH] = on_fetch,
        [CT_PS_PUSH] = on_push,   [CT_PS_COMMIT] = on_commit, [CT_PS_PULL] = on_pull,
        [CT_PS_BYE] = on_bye};

    if (method == CT_PS_HELLO && call->worker < 0)
        return on_hello(call, err);
    if (method >= CT_COUNT(methods) || methods[method] == NULL || call->worker < 0)
        return ct_error_set(err, CT_EPROTOCOL, "there is no such method, or it is not its turn");
    return methods[method](call, err);
}

void ct_ps_server_on_call(void *context, struct ct_rpc_caller *caller,
                          const struct ct_msg_call *message)
{
    struct ct_ps_server *server = context;
    const struct ct_ps_guest *guest = ct_rpc_caller_user(caller);
    struct call call = {.server = server,
                        .caller = caller,
                        .id = message->id,
                        .worker = guest != NULL ? (int)(guest - server->guests) : -1,
                        .body = message->body};
    struct ct_error why = {0};
    int code = dispatch(&call, message->method, &why);

    if (why.code == 0 || code == 0)
        return; /* answered, or the caller is just being lost */
    (void)ct_error_prefix(&why, "%s", ct_ps_method_name(message->method));
    (void)ct_rpc_refuse(caller, message->id, code, why.text);
    ct_rpc_drop(caller, code, why.text);
}
