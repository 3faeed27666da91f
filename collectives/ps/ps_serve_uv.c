/* See ps_server_uv.h: the calls of a round.
 *
 *     HELLO    the worker registers
 *     STORE    the state changes; BEGIN: it is complete
 *     PUSH     into the worker's slot; COMMIT: the slot is complete -> schedule -> update
 *     PULL     answered at once, or behind the update that it waits for
 *     BYE      the last one ends the round
 *
 * A wrong call is refused with a sentence, and its caller disconnected: workers and servers are of
 * one build. */
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

static bool has_token(const struct ct_ps_server *server, const struct ct_ps_hello *hello)
{
    const uint64_t *token = server->address.token;

    return ((hello->token0 ^ token[0]) | (hello->token1 ^ token[1]) | (hello->token2 ^ token[2]) |
            (hello->token3 ^ token[3])) == 0;
}

static int check_hello(const struct ct_ps_server *server, const struct ct_ps_hello *hello,
                       struct ct_error *err)
{
    if (!has_token(server, hello) || hello->version != CT_PS_VERSION)
        return ct_error_set(err, CT_EAUTH, "parameter server %d does not know this worker",
                            server->index);
    if (hello->generation != server->generation ||
        hello->workers != (uint64_t)server->round->workers || hello->worker >= hello->workers ||
        server->registrations[hello->worker].caller != NULL ||
        server->registrations[hello->worker].lost)
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
    const struct ct_ps_note *note = &server->initial_note;
    unsigned char answer[CT_PS_HEAD_BYTES + CT_PS_NOTE_MAX];
    struct ct_ps_hello hello;
    int code = ct_ps_get(CT_PS_HEAD_hello, call->body, &hello, &call->data, err);

    if (code == 0)
        code = check_hello(server, &hello, err);
    if (code == CT_EMISMATCH && !server->round->ends_on_loss)
        ct_ps_server_end(server, code, err->text); /* the worker will not come again */
    if (code != 0)
        return code;
    struct ct_ps_registration *registration = &server->registrations[hello.worker];
    registration->caller = call->caller;
    ct_rpc_caller_set_user(call->caller, registration);
    size_t size = ct_ps_put(CT_PS_HEAD_holding, &server->initial, answer);
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

static void answer_pull(struct ct_ps_server *server, const struct ct_ps_open_pull *open_pull)
{
    const struct ct_ps_pulled pulled = {.leave_at = server->schedule.leave_at,
                                        .loss = server->loss,
                                        .correct = server->correct,
                                        .sumsq = server->sumsq};
    size_t size = ct_ps_put(CT_PS_HEAD_pulled, &pulled, server->answer);

    memcpy(server->answer + size, ct_ps_update_range(server->update, 0) + open_pull->pull.at,
           open_pull->pull.bytes);
    (void)ct_rpc_answer(open_pull->caller, open_pull->id,
                        (struct ct_bytes){server->answer, size + open_pull->pull.bytes});
}

/* Answer the pulls whose step may begin now. */
static void answer_open_pulls(struct ct_ps_server *server)
{
    int kept = 0;

    for (int i = 0; i < server->open_pull_count; i++) {
        struct ct_ps_open_pull *open_pull = &server->open_pulls[i];
        if (server->begun &&
            ct_ps_schedule_begin(&server->schedule, open_pull->worker, open_pull->pull.step))
            answer_pull(server, open_pull);
        else
            server->open_pulls[kept++] = *open_pull;
    }
    server->open_pull_count = kept;
}

static int on_pull(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    struct ct_ps_open_pull *open_pull = &server->open_pulls[server->open_pull_count];
    int code = ct_ps_get(CT_PS_HEAD_pull, call->body, &open_pull->pull, &call->data, err);

    if (code == 0 && (open_pull->pull.bytes > CT_PS_BLOCK_MAX ||
                      !is_inside(open_pull->pull.at, open_pull->pull.bytes,
                                 ct_ps_update_part(server->update).bytes)))
        code = ct_error_set(err, CT_EPROTOCOL, "there are no such parameters");
    if (code != 0)
        return code;
    open_pull->caller = call->caller;
    open_pull->id = call->id;
    open_pull->worker = call->worker;
    server->open_pull_count++;
    answer_open_pulls(server);
    return 0;
}

/* ---- updating -------------------------------------------------------------------------------- */

/* The sum over workers of one number of their commits, in the order of gradients. */
static double add_up(const struct ct_ps_server *server, size_t member)
{
    const struct ct_reduction how = {
        .dtype = CT_F64, .reduce = CT_REDUCE_SUM, .order = server->round->order};
    double sum = 0;

    for (int i = 0; i < server->round->workers; i++)
        server->sources[i] = (const char *)&server->registrations[i].commit + member;
    ct_reduce_buffers(&how, &sum, server->sources, server->round->workers, 1);
    return sum;
}

/* All gradients into the slot of worker 0. */
static void add_gradients(struct ct_ps_server *server)
{
    enum ct_dtype dtype = ct_ps_update_dtype(server->update);
    const struct ct_reduction how = {
        .dtype = dtype, .reduce = CT_REDUCE_SUM, .order = server->round->order};
    size_t count = ct_ps_update_part(server->update).bytes / ct_dtype_size(dtype);

    for (int i = 0; i < server->round->workers; i++)
        server->sources[i] = server->registrations[i].slot;
    ct_reduce_buffers(&how, server->registrations[0].slot, server->sources, server->round->workers,
                      count);
}

/* The squared norm of the whole gradient, of which each server has a part. */
static int find_norm(struct ct_ps_server *server, double *ret_sumsq)
{
    const struct ct_options options = {.mode = CT_MODE_REPRODUCIBLE};
    struct ct_group *group = server->round->servers;
    double sumsq = ct_ps_update_sumsq(server->update, server->registrations[0].slot);
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
    const struct ct_ps_commit *first = &server->registrations[0].commit;
    double loss = add_up(server, offsetof(struct ct_ps_commit, loss)), sumsq;

    add_gradients(server);
    if (find_norm(server, &sumsq) != 0)
        return;
    const struct ct_ps_numbers numbers = {first->lr, (double)first->update, loss, sumsq};
    ct_ps_update_run(server->update, server->registrations[0].slot, &numbers);
    server->loss = loss;
    server->sumsq = sumsq;
    server->correct = add_up(server, offsetof(struct ct_ps_commit, correct));
}

/* A gradient that is not finite is left out, and not counted. */
static void update_with_one(struct ct_ps_server *server,
                            const struct ct_ps_registration *registration)
{
    const struct ct_ps_commit *commit = &registration->commit;

    if (!isfinite(commit->loss) || !isfinite(commit->sumsq))
        return;
    const struct ct_ps_numbers numbers = {commit->lr, (double)++server->updates, commit->loss,
                                          commit->sumsq};
    ct_ps_update_run(server->update, registration->slot, &numbers);
}

static void update(struct ct_ps_server *server, const struct ct_ps_registration *registration,
                   enum ct_ps_due due)
{
    if (due == CT_PS_SUM_DUE)
        update_with_all(server);
    else
        update_with_one(server, registration);
    if (server->over)
        return;
    server->step = ct_ps_schedule_step(&server->schedule);
    if (due == CT_PS_SUM_DUE || registration == server->registrations)
        server->note = server->next_note; /* worker 0's: a later round gets it */
    server->round->on_step(server->round->context, server->step);
}

static void copy_note(struct ct_ps_note *note, struct ct_bytes data)
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
    copy_note(&server->note, call->data);
    ct_ps_schedule_init(&server->schedule, round->workers, round->staleness, begin.step);
    round->on_begin(round->context);
    code = done(call);
    answer_open_pulls(server);
    return code;
}

static int on_push(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    struct ct_ps_push push;
    int code = ct_ps_get(CT_PS_HEAD_push, call->body, &push, &call->data, err);

    if (code == 0 &&
        (!server->begun || push.step != server->schedule.progress[call->worker].pushed ||
         !is_inside(push.at, call->data.size, ct_ps_update_part(server->update).bytes)))
        code = ct_error_set(err, CT_EPROTOCOL, "worker %d pushes what is no gradient of its step",
                            call->worker);
    if (code != 0)
        return code;
    memcpy(server->registrations[call->worker].slot + push.at, call->data.data, call->data.size);
    return done(call);
}

static int on_commit(struct call *call, struct ct_error *err)
{
    struct ct_ps_server *server = call->server;
    struct ct_ps_registration *registration = &server->registrations[call->worker];
    enum ct_ps_due due = CT_PS_NOT_DUE;
    int code = ct_ps_get(CT_PS_HEAD_commit, call->body, &registration->commit, &call->data, err);

    if (code == 0 &&
        (!server->begun || call->data.size > CT_PS_NOTE_MAX ||
         !ct_ps_schedule_push(&server->schedule, call->worker, registration->commit.step, &due)))
        code = ct_error_set(err, CT_EPROTOCOL, "worker %d ends a step that it has not begun",
                            call->worker);
    if (code != 0)
        return code;
    if (registration->commit.leave_vote != 0)
        ct_ps_schedule_vote_leave(&server->schedule);
    if (call->worker == 0)
        copy_note(&server->next_note, call->data);
    code = done(call);
    if (due != CT_PS_NOT_DUE)
        update(server, registration, due);
    if (!server->over)
        answer_open_pulls(server);
    return code;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* End the round if all workers have left, or are lost. */
static void check_end(struct ct_ps_server *server, const char *why)
{
    int left = 0, lost = 0;

    for (int i = 0; i < server->round->workers; i++) {
        left += server->registrations[i].left;
        lost += server->registrations[i].lost;
    }
    if (left == server->round->workers)
        ct_ps_server_end(server, 0, "");
    else if (lost > 0 && !server->round->ends_on_loss &&
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
    server->registrations[call->worker].left = true;
    if (server->begun)
        ct_ps_schedule_remove(&server->schedule, call->worker);
    server->end = CT_MAX(server->end, (enum ct_ps_end)CT_MIN(bye.reason, (uint64_t)CT_PS_STOPPED));
    code = done(call);
    answer_open_pulls(server);
    check_end(server, "a worker left the round before its end");
    return code;
}

static void remove_open_pulls(struct ct_ps_server *server, const struct ct_rpc_caller *caller)
{
    int kept = 0;

    for (int i = 0; i < server->open_pull_count; i++)
        if (server->open_pulls[i].caller != caller)
            server->open_pulls[kept++] = server->open_pulls[i];
    server->open_pull_count = kept;
}

void ct_ps_server_on_gone(void *context, struct ct_rpc_caller *caller, const struct ct_error *why)
{
    struct ct_ps_server *server = context;
    struct ct_ps_registration *registration = ct_rpc_caller_user(caller);
    struct ct_error text = {0};

    if (registration == NULL)
        return;
    int worker = (int)(registration - server->registrations);
    remove_open_pulls(server, caller);
    registration->caller = NULL;
    if (registration->left || server->over)
        return;
    registration->lost = true;
    if (server->lost_ms == 0)
        server->lost_ms = CT_MAX(uv_now(&server->loop), (uint64_t)1);
    if (server->begun) {
        ct_ps_schedule_remove(&server->schedule, worker);
        answer_open_pulls(server);
    }
    (void)ct_error_set(&text, CT_ECLOSED, "parameter server %d has lost worker %d: %s",
                       server->index, worker, why->text);
    check_end(server, text.text);
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
    const struct ct_ps_registration *registration = ct_rpc_caller_user(caller);
    struct call call = {.server = server,
                        .caller = caller,
                        .id = message->id,
                        .worker =
                            registration != NULL ? (int)(registration - server->registrations) : -1,
                        .body = message->body};
    struct ct_error why = {0};
    int code = dispatch(&call, message->method, &why);

    if (why.code == 0 || code == 0)
        return; /* answered, or the caller is just being lost */
    (void)ct_error_prefix(&why, "%s", ct_ps_method_name(message->method));
    (void)ct_rpc_refuse(caller, message->id, code, why.text);
    ct_rpc_drop(caller, code, why.text);
}
