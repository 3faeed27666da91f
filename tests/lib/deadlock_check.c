/* See deadlock_check.h. */
#include "deadlock_check.h"

#include "base/assert.h"

#include <stdlib.h>

enum { MESSAGES = CT_OP_MAX_IN + CT_OP_MAX_OUT };

/* A queue of a rank. */
struct line {
    int at;             /* its op at hand; op_count at the end */
    int done;           /* ops before that */
    bool met[MESSAGES]; /* messages of an exchange at hand that have met their other side */
};

struct player {
    const struct ct_plan *plan;
    const struct ct_plan_list *list;
    struct line line[CT_QUEUE_COUNT];
};

struct world {
    struct player *players;
    int count;
    bool moved;
    struct ct_error *err;
};

static const struct ct_program_op *op_at(const struct player *p, int queue)
{
    const struct line *line = &p->line[queue];

    return line->at < p->list->program.op_count ? &p->list->program.ops[line->at] : NULL;
}

/* Whether the queue's op at hand does not wait for another queue. */
static bool is_open(const struct player *p, int queue)
{
    bool open = op_at(p, queue) != NULL;

    for (int other = 0; other < CT_QUEUE_COUNT && open; other++)
        open = p->list->slot[p->line[queue].at].wait[other] <= p->line[other].done;
    return open;
}

/* To the next op of the queue, from op `from` on. */
static void seek(struct player *p, int queue, int from)
{
    while (from < p->list->program.op_count && p->list->slot[from].queue != queue)
        from++;
    p->line[queue].at = from;
    for (int i = 0; i < MESSAGES; i++)
        p->line[queue].met[i] = false;
}

static void finish(struct world *w, int rank, int queue)
{
    struct player *p = &w->players[rank];

    p->line[queue].done++;
    seek(p, queue, p->line[queue].at + 1);
    w->moved = true;
}

static size_t bytes_of(const struct player *p, int value)
{
    return value == CT_NONE ? 0 : p->list->program.values[value].bytes;
}

/* Does it wait for other ranks? Servers, which are pushed to, are none. */
static bool communicates(const struct ct_program_op *op)
{
    return ct_op_is_comm(op->kind) && op->kind != CT_OP_PUSH;
}

/* The queue of `rank` whose op at hand is on the group of `axis`, an exchange or a collective; -1
 * when none is. */
static int waiting(const struct world *w, int rank, enum ct_axis axis, bool exchanges)
{
    const struct player *p = &w->players[rank];

    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++) {
        const struct ct_program_op *op = op_at(p, queue);
        if (op != NULL && is_open(p, queue) && communicates(op) &&
            (op->kind == CT_OP_EXCHANGE) == exchanges &&
            ct_mesh_shared(&p->plan->mesh, op->axis, axis))
            return queue;
    }
    return -1;
}

/* ---- collectives ---------------------------------------------------------------------------- */

static int disagree(const struct world *w, int rank, int queue, int other, int other_queue)
{
    const struct player *a = &w->players[rank], *b = &w->players[other];

    return ct_error_set(w->err, CT_EBUG,
                        "rank %d is at op %d (%s) and rank %d of its group at op %d (%s), which is "
                        "not the same",
                        rank, a->line[queue].at, ct_rule_info(op_at(a, queue)->kind)->name, other,
                        b->line[other_queue].at, ct_rule_info(op_at(b, other_queue)->kind)->name);
}

static int collective(struct world *w, int rank, int queue)
{
    const struct player *p = &w->players[rank];
    const struct ct_program_op *op = op_at(p, queue);
    const struct ct_mesh *mesh = &p->plan->mesh;
    int size = ct_mesh_size(mesh, op->axis);

    for (int i = 0; i < size; i++) {
        int other = ct_mesh_member(mesh, op->axis, rank, i),
            at = waiting(w, other, op->axis, false);
        if (at < 0)
            return 0;
        const struct player *o = &w->players[other];
        const struct ct_program_op *same = op_at(o, at);
        if (same->kind != op->kind || same->dtype != op->dtype ||
            bytes_of(o, same->in[0]) != bytes_of(p, op->in[0]) ||
            bytes_of(o, same->out[0]) != bytes_of(p, op->out[0]))
            return disagree(w, rank, queue, other, at);
    }
    enum ct_axis axis = op->axis;
    for (int i = 0; i < size; i++) {
        int other = ct_mesh_member(mesh, axis, rank, i);
        finish(w, other, waiting(w, other, axis, false));
    }
    return 0;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Message `k` of an op: inputs are sent, then outputs received. */
static int value_of(const struct ct_program_op *op, int k)
{
    return k < CT_OP_MAX_IN ? op->in[k] : op->out[k - CT_OP_MAX_IN];
}

static int peer_of(const struct ct_program_op *op, int k)
{
    return k < CT_OP_MAX_IN ? op->to[k] : op->from[k - CT_OP_MAX_IN];
}

/* The other side of message `k`, in the exchange at hand of the peer: the first open one to or from
 * `index`. -1 when there is none yet. */
static int other_side(const struct player *peer, int queue, int index, bool sent)
{
    const struct ct_program_op *op = op_at(peer, queue);
    int first = sent ? CT_OP_MAX_IN : 0, end = sent ? MESSAGES : CT_OP_MAX_IN;

    for (int k = first; k < end; k++)
        if (value_of(op, k) != CT_NONE && peer_of(op, k) == index && !peer->line[queue].met[k])
            return k;
    return -1;
}

static int exchange(struct world *w, int rank, int queue)
{
    struct player *p = &w->players[rank];
    const struct ct_program_op *op = op_at(p, queue);
    const struct ct_mesh *mesh = &p->plan->mesh;
    int index = ct_mesh_index(mesh, op->axis, rank);
    bool all = true;

    for (int k = 0; k < MESSAGES; k++) {
        if (value_of(op, k) == CT_NONE || p->line[queue].met[k])
            continue;
        int other = ct_mesh_member(mesh, op->axis, rank, peer_of(op, k));
        int at = waiting(w, other, op->axis, true);
        int side = at < 0 ? -1 : other_side(&w->players[other], at, index, k < CT_OP_MAX_IN);
        all = all && side >= 0;
        if (side < 0)
            continue;
        struct player *o = &w->players[other];
        if (bytes_of(o, value_of(op_at(o, at), side)) != bytes_of(p, value_of(op, k)) ||
            op_at(o, at)->dtype != op->dtype)
            return disagree(w, rank, queue, other, at);
        p->line[queue].met[k] = o->line[at].met[side] = true;
        w->moved = true;
    }
    if (all)
        finish(w, rank, queue);
    return 0;
}

/* ---- the play ------------------------------------------------------------------------------- */

static int advance(struct world *w, int rank, int queue)
{
    struct player *p = &w->players[rank];

    while (is_open(p, queue) && !communicates(op_at(p, queue)))
        finish(w, rank, queue);
    if (!is_open(p, queue))
        return 0;
    return op_at(p, queue)->kind == CT_OP_EXCHANGE ? exchange(w, rank, queue)
                                                   : collective(w, rank, queue);
}

static int play(struct world *w)
{
    int code = 0;

    do {
        w->moved = false;
        for (int rank = 0; rank < w->count && code == 0; rank++)
            for (int queue = 0; queue < CT_QUEUE_COUNT && code == 0; queue++)
                code = advance(w, rank, queue);
    } while (w->moved && code == 0);
    for (int rank = 0; rank < w->count && code == 0; rank++)
        for (int queue = 0; queue < CT_QUEUE_COUNT && code == 0; queue++) {
            const struct ct_program_op *op = op_at(&w->players[rank], queue);
            if (op != NULL)
                code = ct_error_set(w->err, CT_EBUG, "rank %d waits for ever at op %d (%s, %s)",
                                    rank, w->players[rank].line[queue].at,
                                    ct_rule_info(op->kind)->name, ct_axis_name(op->axis));
        }
    return code;
}

int deadlock_check(const struct ct_plan *plans, int world, bool evaluation, struct ct_error *err)
{
    struct world w = {.count = world, .err = err};

    w.players = calloc((size_t)world, sizeof *w.players);
    if (w.players == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory to verify %d ranks", world);
    for (int rank = 0; rank < world; rank++) {
        struct player *p = &w.players[rank];
        CT_ASSERT(plans[rank].options.rank == rank && plans[rank].options.world == world);
        p->plan = &plans[rank];
        p->list = evaluation ? &plans[rank].eval : &plans[rank].step;
        for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
            seek(p, queue, 0);
    }
    int code = play(&w);
    free(w.players);
    return code;
}
