/* See operation.h: a table of verbs: what each is given, its call, and what has to come of it. */
#include "operation.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "collectives/group/group.h"
#include "layout.h"
#include "shuffle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages of an exchange: at most so many from one rank to another. */
enum { A_PAIR = 2, MESSAGES = REFERENCE_WORLD_MAX * A_PAIR };

_Static_assert(2 * MESSAGES <= SHUFFLE_MAX, "all messages of an exchange can be mixed");

/* Elements of the reference between the data for one rank and that for the next. */
static const size_t apart = 1u << 20;

struct message {
    int peer, nth;
    size_t count, offset;
};

struct performance {
    struct ct_group *group;
    struct operation op;
    int rank, world;
    struct buffer in, out;
    struct layout sent, received;         /* parts of `in` and of `out` */
    struct message messages[2][MESSAGES]; /* of an exchange, by direction */
    int message_count[2];
    struct ct_transfer transfers[2 * MESSAGES];
    struct ct_options options;
    struct ct_request *request; /* NULL: over, or never started */
};

static bool is_root(const struct performance *p)
{
    return p->rank == p->op.root;
}

static size_t size_of(const struct performance *p)
{
    return ct_dtype_size(p->op.dtype);
}

/* ---- drawn lengths ---------------------------------------------------------------------------*/

static uint64_t drawn(const struct operation *op, int a, int b, int n)
{
    uint64_t key[4] = {op->seed, (uint64_t)a, (uint64_t)b, (uint64_t)n};

    return ct_hash64(key, sizeof key, 11);
}

/* 0 .. count, often 0. */
static size_t drawn_count(const struct operation *op, int a, int b, int n)
{
    uint64_t bits = drawn(op, a, b, n);

    return bits % 4 == 0 ? 0 : (size_t)(bits >> 8) % (op->count + 1);
}

/* The parts that all members know. */
static struct layout common_layout(const struct performance *p)
{
    struct layout layout = {0};

    if (!p->op.uneven)
        return layout_even(p->world, p->op.count);
    for (int i = 0; i < p->world; i++)
        layout.counts[i] = drawn_count(&p->op, i, 0, 0);
    layout_spread(&layout, p->world);
    return layout;
}

/* What this rank has for all others, or gets from them. */
static struct layout pair_layout(const struct performance *p, bool sent)
{
    struct layout layout = {0};

    if (!p->op.uneven)
        return layout_even(p->world, p->op.count);
    for (int i = 0; i < p->world; i++)
        layout.counts[i] =
            sent ? drawn_count(&p->op, p->rank, i, 0) : drawn_count(&p->op, i, p->rank, 0);
    layout_spread(&layout, p->world);
    return layout;
}

/* ---- filling and looking ---------------------------------------------------------------------*/

static void fill(const struct performance *p, char *data, size_t from, size_t count)
{
    buffer_fill(data, p->op.dtype, p->rank, p->op.base + from, count);
}

/* `count` elements of `rank`'s data. */
static bool holds(const struct performance *p, const char *data, int rank, size_t from,
                  size_t count)
{
    return buffer_filled(data, p->op.dtype, rank, p->op.base + from, count);
}

/* The reduction of all members' data: to the bit, in FAST as closely as rounding allows. */
static bool holds_reduced(const struct performance *p, const char *data, size_t from, size_t count)
{
    const struct operation *op = &p->op;
    unsigned char expected[8];

    for (size_t i = 0; i < count; i += buffer_stride(count)) {
        size_t index = op->base + from + i;
        const char *at = data + i * size_of(p);

        reference_reduce(op->dtype, op->reduce, op->mode == CT_MODE_INVARIANT, p->world, index,
                         expected);
        if (op->mode == CT_MODE_FAST ? !reference_close(op->dtype, op->reduce, p->world, index, at)
                                     : memcmp(expected, at, size_of(p)) != 0)
            return false;
    }
    return true;
}

static void make_buffers(struct performance *p, size_t in, size_t out)
{
    struct ct_job *job = p->op.symmetric ? p->group->job : NULL;

    p->in = buffer_new_shared(in, p->op.dtype, job);
    p->out = buffer_new_shared(out, p->op.dtype, job);
}

/* The call's data: out of place, or all in `place`. */
static struct ct_data data_of(const struct performance *p, char *place, size_t count)
{
    return p->op.in_place ? ct_inplace(place, count, p->op.dtype)
                          : ct_from_to(p->in.data, p->out.data, count, p->op.dtype);
}

/* The blocking form, or the one with a handle. */
#define CALL(form, ...)                              \
    (p->op.blocking ? form(__VA_ARGS__, &p->options) \
                    : form##_start(__VA_ARGS__, &p->options, &p->request))

/* ---- all_reduce, reduce, broadcast: a buffer each --------------------------------------------*/

static void prepare_whole(struct performance *p)
{
    make_buffers(p, p->op.count, p->op.count);
    if (p->op.verb != OPERATION_BROADCAST || is_root(p))
        fill(p, p->op.in_place ? p->out.data : p->in.data, 0, p->op.count);
}

static int call_all_reduce(struct performance *p)
{
    return CALL(ct_all_reduce, p->group, data_of(p, p->out.data, p->op.count), p->op.reduce);
}

static int check_all_reduce(const struct performance *p)
{
    if (!holds_reduced(p, p->out.data, 0, p->op.count))
        return __LINE__;
    return p->op.in_place || holds(p, p->in.data, p->rank, 0, p->op.count) ? 0 : __LINE__;
}

/* Others than the root give no output; in place theirs is read alone. */
static int call_reduce(struct performance *p)
{
    struct ct_data data = data_of(p, p->out.data, p->op.count);

    if (!p->op.in_place && !is_root(p))
        data.recv = NULL;
    return CALL(ct_reduce, p->group, data, p->op.reduce, p->op.root);
}

static int check_reduce(const struct performance *p)
{
    const char *given = p->op.in_place ? p->out.data : p->in.data;

    if (is_root(p) && !holds_reduced(p, p->out.data, 0, p->op.count))
        return __LINE__;
    if (is_root(p) && p->op.in_place)
        return 0;
    return holds(p, given, p->rank, 0, p->op.count) ? 0 : __LINE__;
}

static int call_broadcast(struct performance *p)
{
    struct ct_data data = data_of(p, p->out.data, p->op.count);

    if (!is_root(p))
        data.send = NULL;
    return CALL(ct_broadcast, p->group, data, p->op.root);
}

static int check_broadcast(const struct performance *p)
{
    return holds(p, p->out.data, p->op.root, 0, p->op.count) ? 0 : __LINE__;
}

/* ---- all_gather, reduce_scatter: parts that all know -----------------------------------------*/

static void prepare_all_gather(struct performance *p)
{
    p->received = common_layout(p);
    size_t own = p->received.counts[p->rank];

    make_buffers(p, own, p->received.total);
    fill(p, p->op.in_place ? layout_at(&p->received, &p->out, p->rank, p->op.dtype) : p->in.data, 0,
         own);
}

static int call_all_gather(struct performance *p)
{
    struct ct_data data = data_of(p, p->out.data, p->received.counts[p->rank]);

    if (p->op.uneven)
        return CALL(ct_all_gather_v, p->group, data, layout_parts(&p->received));
    return CALL(ct_all_gather, p->group, data);
}

/* Every member's part, whose data begin at the reference's start. */
static int check_all_parts(const struct performance *p)
{
    for (int i = 0; i < p->world; i++)
        if (!holds(p, layout_at(&p->received, &p->out, i, p->op.dtype), i, 0,
                   p->received.counts[i]))
            return __LINE__;
    return layout_gaps_are_whole(&p->received, &p->out, p->op.dtype) ? 0 : __LINE__;
}

static void prepare_reduce_scatter(struct performance *p)
{
    p->sent = common_layout(p);
    make_buffers(p, p->sent.total, p->sent.counts[p->rank]);
    for (int i = 0; i < p->world; i++)
        fill(p, layout_at(&p->sent, &p->in, i, p->op.dtype), p->sent.offsets[i], p->sent.counts[i]);
}

static int call_reduce_scatter(struct performance *p)
{
    struct ct_data data = data_of(p, p->in.data, p->sent.counts[p->rank]);

    if (p->op.uneven)
        return CALL(ct_reduce_scatter_v, p->group, data, layout_parts(&p->sent), p->op.reduce);
    return CALL(ct_reduce_scatter, p->group, data, p->op.reduce);
}

static int check_reduce_scatter(const struct performance *p)
{
    char *place = layout_at(&p->sent, &p->in, p->rank, p->op.dtype);

    if (!holds_reduced(p, p->op.in_place ? place : p->out.data, p->sent.offsets[p->rank],
                       p->sent.counts[p->rank]))
        return __LINE__;
    for (int i = 0; i < p->world && !p->op.in_place; i++)
        if (!holds(p, layout_at(&p->sent, &p->in, i, p->op.dtype), p->rank, p->sent.offsets[i],
                   p->sent.counts[i]))
            return __LINE__;
    return layout_gaps_are_whole(&p->sent, &p->in, p->op.dtype) ? 0 : __LINE__;
}

/* ---- gather, scatter: parts at the root ------------------------------------------------------*/

static void prepare_gather(struct performance *p)
{
    p->received = layout_even(p->world, p->op.count);
    make_buffers(p, p->op.count, p->received.total);
    fill(p,
         p->op.in_place && is_root(p) ? layout_at(&p->received, &p->out, p->rank, p->op.dtype)
                                      : p->in.data,
         0, p->op.count);
}

static int call_gather(struct performance *p)
{
    struct ct_data data = data_of(p, is_root(p) ? p->out.data : p->in.data, p->op.count);

    if (!p->op.in_place && !is_root(p))
        data.recv = NULL;
    return CALL(ct_gather, p->group, data, p->op.root);
}

static int check_gather(const struct performance *p)
{
    if (is_root(p))
        return check_all_parts(p);
    return holds(p, p->in.data, p->rank, 0, p->op.count) ? 0 : __LINE__;
}

static void prepare_scatter(struct performance *p)
{
    p->sent = layout_even(p->world, p->op.count);
    make_buffers(p, p->sent.total, p->op.count);
    if (is_root(p))
        fill(p, p->in.data, 0, p->sent.total);
}

/* In place is the root's affair. */
static int call_scatter(struct performance *p)
{
    struct ct_data data = ct_inplace(p->out.data, p->op.count, p->op.dtype);

    if (is_root(p))
        data = data_of(p, p->in.data, p->op.count);
    return CALL(ct_scatter, p->group, data, p->op.root);
}

static int check_scatter(const struct performance *p)
{
    size_t from = (size_t)p->rank * p->op.count;
    const char *result =
        is_root(p) && p->op.in_place ? p->in.data + from * size_of(p) : p->out.data;

    if (!holds(p, result, p->op.root, from, p->op.count))
        return __LINE__;
    return !is_root(p) || holds(p, p->in.data, p->rank, 0, p->sent.total) ? 0 : __LINE__;
}

/* ---- all_to_all: what goes from i to j begins `apart` times j --------------------------------*/

static void prepare_all_to_all(struct performance *p)
{
    const struct buffer *filled = p->op.in_place ? &p->out : &p->in;

    p->sent = pair_layout(p, true);
    p->received = pair_layout(p, false);
    make_buffers(p, p->sent.total, p->received.total);
    for (int i = 0; i < p->world; i++)
        fill(p, layout_at(&p->sent, filled, i, p->op.dtype), (size_t)i * apart, p->sent.counts[i]);
}

static int call_all_to_all(struct performance *p)
{
    if (p->op.uneven)
        return CALL(ct_all_to_all_v, p->group, data_of(p, NULL, 0), layout_parts(&p->sent),
                    layout_parts(&p->received));
    return CALL(ct_all_to_all, p->group, data_of(p, p->out.data, p->op.count));
}

static int check_all_to_all(const struct performance *p)
{
    for (int i = 0; i < p->world; i++)
        if (!holds(p, layout_at(&p->received, &p->out, i, p->op.dtype), i, (size_t)p->rank * apart,
                   p->received.counts[i]))
            return __LINE__;
    for (int i = 0; i < p->world && !p->op.in_place; i++)
        if (!holds(p, layout_at(&p->sent, &p->in, i, p->op.dtype), p->rank, (size_t)i * apart,
                   p->sent.counts[i]))
            return __LINE__;
    return layout_gaps_are_whole(&p->received, &p->out, p->op.dtype) ? 0 : __LINE__;
}

/* ---- a message, and many of them at once -----------------------------------------------------*/

static void prepare_message(struct performance *p)
{
    make_buffers(p, p->op.count, p->op.count);
    if (is_root(p))
        fill(p, p->in.data, 0, p->op.count);
}

static int call_message(struct performance *p)
{
    if (is_root(p))
        return CALL(ct_send, p->group, ct_from_to(p->in.data, NULL, p->op.count, p->op.dtype),
                    p->op.peer);
    return CALL(ct_recv, p->group, ct_inplace(p->out.data, p->op.count, p->op.dtype), p->op.root);
}

static int check_message(const struct performance *p)
{
    return holds(p, is_root(p) ? p->in.data : p->out.data, p->op.root, 0, p->op.count) ? 0
                                                                                       : __LINE__;
}

/* The messages of one direction, peer by peer. Returns the elements of all. */
static size_t draw_messages(struct performance *p, enum ct_direction direction)
{
    size_t total = 0;
    int count = 0;

    for (int peer = 0; peer < p->world; peer++) {
        int from = direction == CT_TO ? p->rank : peer, to = direction == CT_TO ? peer : p->rank;
        int here = (int)(drawn(&p->op, from, to, A_PAIR) % (A_PAIR + 1));

        for (int nth = 0; nth < here; nth++) {
            size_t length = drawn_count(&p->op, from, to, nth);

            p->messages[direction][count++] = (struct message){peer, nth, length, total};
            total += length;
        }
    }
    p->message_count[direction] = count;
    return total;
}

/* Where the data of a message begin in the reference of its sender. */
static size_t message_base(int to, int nth)
{
    return (size_t)(to * A_PAIR + nth) * apart;
}

static void prepare_exchange(struct performance *p)
{
    enum ct_dtype dtype = p->op.dtype;
    int count = 0;
    size_t out = draw_messages(p, CT_TO), in = draw_messages(p, CT_FROM);

    make_buffers(p, out, in);
    for (int i = 0; i < p->message_count[CT_TO]; i++) {
        const struct message *m = &p->messages[CT_TO][i];
        char *data = p->in.data + m->offset * size_of(p);

        fill(p, data, message_base(m->peer, m->nth), m->count);
        p->transfers[count++] = ct_transfer_to(m->peer, data, m->count, dtype);
    }
    for (int i = 0; i < p->message_count[CT_FROM]; i++) {
        const struct message *m = &p->messages[CT_FROM][i];

        p->transfers[count++] =
            ct_transfer_from(m->peer, p->out.data + m->offset * size_of(p), m->count, dtype);
    }
    shuffle_transfers(p->transfers, count, drawn(&p->op, p->rank, 0, -1)); /* its own order */
}

static int call_exchange(struct performance *p)
{
    return CALL(ct_exchange, p->group, p->transfers,
                p->message_count[CT_TO] + p->message_count[CT_FROM]);
}

static int check_exchange(const struct performance *p)
{
    for (int i = 0; i < p->message_count[CT_FROM]; i++) {
        const struct message *m = &p->messages[CT_FROM][i];

        if (!holds(p, p->out.data + m->offset * size_of(p), m->peer, message_base(p->rank, m->nth),
                   m->count))
            return __LINE__;
    }
    return 0;
}

/* ---- barrier ---------------------------------------------------------------------------------*/

static void prepare_nothing(struct performance *p)
{
    make_buffers(p, 0, 0);
}

static int call_barrier(struct performance *p)
{
    return CALL(ct_barrier, p->group);
}

static int check_nothing(const struct performance *p)
{
    (void)p;
    return 0;
}

/* ---- the table -------------------------------------------------------------------------------*/

static const struct verb {
    const char *name;
    void (*prepare)(struct performance *p);
    int (*call)(struct performance *p);
    int (*check)(const struct performance *p);
} verbs[OPERATION_VERBS] = {
    [OPERATION_ALL_REDUCE] = {"all_reduce", prepare_whole, call_all_reduce, check_all_reduce},
    [OPERATION_REDUCE] = {"reduce", prepare_whole, call_reduce, check_reduce},
    [OPERATION_BROADCAST] = {"broadcast", prepare_whole, call_broadcast, check_broadcast},
    [OPERATION_ALL_GATHER] = {"all_gather", prepare_all_gather, call_all_gather, check_all_parts},
    [OPERATION_REDUCE_SCATTER] = {"reduce_scatter", prepare_reduce_scatter, call_reduce_scatter,
                                  check_reduce_scatter},
    [OPERATION_GATHER] = {"gather", prepare_gather, call_gather, check_gather},
    [OPERATION_SCATTER] = {"scatter", prepare_scatter, call_scatter, check_scatter},
    [OPERATION_ALL_TO_ALL] = {"all_to_all", prepare_all_to_all, call_all_to_all, check_all_to_all},
    [OPERATION_MESSAGE] = {"message", prepare_message, call_message, check_message},
    [OPERATION_EXCHANGE] = {"exchange", prepare_exchange, call_exchange, check_exchange},
    [OPERATION_BARRIER] = {"barrier", prepare_nothing, call_barrier, check_nothing},
};

bool operation_concerns(const struct operation *op, int rank)
{
    return op->verb != OPERATION_MESSAGE || rank == op->root || rank == op->peer;
}

bool operation_is_for_all(const struct operation *op)
{
    return op->verb == OPERATION_ALL_REDUCE;
}

int operation_start(struct ct_group *group, const struct operation *op, struct performance **ret_p)
{
    struct performance *p = calloc(1, sizeof *p);
    int rank = ct_group_rank(group);

    CT_ASSERT(p != NULL && operation_concerns(op, rank));
    p->group = group;
    p->op = *op;
    p->rank = rank;
    p->world = ct_group_size(group);
    p->options =
        (struct ct_options){.mode = op->mode, .tag = op->tag, .scale = reference_scale(rank)};
    verbs[op->verb].prepare(p);
    *ret_p = p;
    return verbs[op->verb].call(p) == 0 ? 0 : __LINE__;
}

int operation_test(struct performance *p)
{
    int code = p->request == NULL ? 1 : ct_test(p->request);

    if (code != 0)
        p->request = NULL;
    return code;
}

int operation_wait(struct performance *p)
{
    int code = p->request == NULL ? 0 : ct_wait(p->request);

    p->request = NULL;
    return code;
}

uint64_t operation_digest(const struct performance *p)
{
    return ct_hash64(p->out.data, p->out.bytes, 0);
}

int operation_finish(struct performance *p, int line)
{
    if (line == 0)
        line = verbs[p->op.verb].check(p);
    line = buffers_free(&p->in, &p->out, line);
    free(p);
    return line;
}

/* All members have the same hash. */
static int same_everywhere(struct ct_group *group, uint64_t digest)
{
    int64_t all[REFERENCE_WORLD_MAX] = {0}, mine = (int64_t)digest;

    if (ct_all_gather(group, ct_from_to(&mine, all, 1, CT_I64), NULL) != 0)
        return __LINE__;
    for (int i = 0; i < ct_group_size(group); i++)
        if (all[i] != mine)
            return __LINE__;
    return 0;
}

int operation_perform(struct ct_group *group, const struct operation *op)
{
    struct performance *p;
    int line = operation_start(group, op, &p);

    if (line == 0 && operation_wait(p) != 0)
        line = __LINE__;
    if (line == 0 && operation_is_for_all(op) && op->mode == CT_MODE_FAST)
        line = same_everywhere(group, operation_digest(p));
    return operation_finish(p, line);
}

void operation_print(const struct operation *op, char *text, size_t room)
{
    static const char *const reduces[CT_REDUCE_COUNT] = {"SUM",  "AVG", "MAX", "MIN",
                                                         "PROD", "AND", "OR",  "PREMUL_SUM"};
    static const char *const modes[] = {"FAST", "REPRODUCIBLE", "INVARIANT"};
    bool reduces_data = op->verb == OPERATION_ALL_REDUCE || op->verb == OPERATION_REDUCE ||
                        op->verb == OPERATION_REDUCE_SCATTER;
    char how[48] = "";

    if (reduces_data)
        (void)snprintf(how, sizeof how, ", %s, %s", reduces[op->reduce], modes[op->mode]);
    (void)snprintf(text, room, "%s%s of %zu %s%s, root %d, peer %d, tag %u%s%s%s",
                   verbs[op->verb].name, op->uneven ? "_v" : "", op->count,
                   ct_dtype_name(op->dtype), how, op->root, op->peer, (unsigned)op->tag,
                   op->in_place ? ", in place" : "", op->symmetric ? ", symmetric memory" : "",
                   op->blocking ? "" : ", by handle");
}
