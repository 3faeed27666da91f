/* See hier.h: collectives as calls on two levels. */
#include "backend/hier/hier.h"

#include "base/assert.h"
#include "reduce/reduce.h"

enum { STEPS_MAX = 3, LINE = 64 };

/* One call of a level: which piece, which step, which of the step's calls. */
struct place {
    size_t piece;
    int step, index;
};

/* How one kind of collective is made of calls. */
struct recipe {
    int steps;
    enum ct_level level[STEPS_MAX];
    /* How many calls step `step` has at this rank. */
    int (*calls)(const struct ct_hier *hier, const struct ct_call *call, int step);
    void (*make)(struct ct_hier *hier, const struct ct_call *call, struct place at,
                 struct ct_call *sub);
};

/* ---- what recipes are made with --------------------------------------------------------------*/

static bool is_float(enum ct_dtype dtype)
{
    return dtype == CT_F32 || dtype == CT_F64 || dtype == CT_BF16 || dtype == CT_F16;
}

/* In F32 between the levels, so that it is rounded once. */
static bool goes_wide(const struct ct_call *call)
{
    return call->kind == CT_CALL_ALL_REDUCE && ct_reduce_through_f32(call->dtype, call->reduce);
}

bool ct_hier_is_flat(const struct ct_hier *hier, const struct ct_call *call)
{
    bool power_of_two = (hier->locals & (hier->locals - 1)) == 0;

    if (call->kind == CT_CALL_GATHER || call->kind == CT_CALL_SCATTER ||
        call->kind == CT_CALL_ALL_TO_ALL)
        return true;
    if (!ct_call_reduces(call->kind))
        return false;
    if (!ct_reduce_in_steps(call->dtype, call->reduce) && !goes_wide(call))
        return true;
    if (!is_float(call->dtype) || call->mode == CT_MODE_FAST)
        return false;
    return call->mode == CT_MODE_REPRODUCIBLE || !hier->in_order || !power_of_two;
}

/* `total` elements cut into pieces: piece `at`. */
static struct ct_span piece_of(const struct ct_hier *hier, size_t total, size_t at)
{
    size_t skipped = CT_MIN(at * hier->piece, total);

    return (struct ct_span){skipped, CT_MIN(hier->piece, total - skipped)};
}

/* Local rank j's share of `n` elements. */
static struct ct_span share_of(const struct ct_hier *hier, const struct ct_call *call, size_t n,
                               int j)
{
    size_t line = LINE / ct_dtype_size(call->dtype), locals = (size_t)hier->locals;
    size_t share = ((n + line - 1) / line + locals - 1) / locals * line;
    size_t at = CT_MIN((size_t)j * share, n);

    return (struct ct_span){at, CT_MIN(share, n - at)};
}

static struct ct_hier_level *level_of(struct ct_hier *hier, enum ct_level level,
                                      struct ct_call *sub)
{
    struct ct_hier_level *at = &hier->levels[level];

    sub->rank = at->group->rank;
    sub->size = at->group->size;
    return at;
}

/* The shares of `n` elements from element `base` on, as the parts of a call on the local level. */
static struct ct_parts shares(struct ct_hier *hier, const struct ct_call *call, size_t base,
                              size_t n)
{
    struct ct_hier_level *local = &hier->levels[CT_LEVEL_LOCAL];

    for (int j = 0; j < hier->locals; j++) {
        struct ct_span share = share_of(hier, call, n, j);

        local->counts[j] = share.bytes;
        local->offsets[j] = base + share.at;
    }
    return (struct ct_parts){local->counts, local->offsets};
}

/* Piece `at` of rank i's part, in elements. */
static struct ct_span part_piece(const struct ct_hier *hier, const struct ct_call *call,
                                 struct ct_span whole, size_t at)
{
    size_t size = ct_dtype_size(call->dtype);
    struct ct_span piece = piece_of(hier, whole.bytes / size, at);

    return (struct ct_span){whole.at / size + piece.at, piece.bytes};
}

static char *set_of(const struct ct_hier *hier, size_t piece)
{
    return hier->scratch + piece % CT_HIER_SETS * hier->tuning.hier_piece_bytes;
}

/* ---- recipes ---------------------------------------------------------------------------------*/

static int one_call(const struct ct_hier *hier, const struct ct_call *call, int step)
{
    (void)hier;
    (void)call;
    (void)step;
    return 1;
}

static void make_barrier(struct ct_hier *hier, const struct ct_call *call, struct place at,
                         struct ct_call *sub)
{
    (void)call;
    (void)level_of(hier, (enum ct_level)at.step, sub);
}

/* The sum is divided once, where it is complete. */
static enum ct_reduce partial(const struct ct_call *call)
{
    return call->reduce == CT_REDUCE_AVG ? CT_REDUCE_SUM : call->reduce;
}

static void make_small_all_reduce(struct ct_hier *hier, const struct ct_call *call, struct place at,
                                  struct ct_call *sub)
{
    (void)level_of(hier, (enum ct_level)at.step, sub);
    sub->count = call->count;
    sub->recv = call->recv;
    sub->send = at.step == 0 ? call->send : call->recv;
    sub->reduce = at.step == 0 ? partial(call) : call->reduce;
}

/* Step 0 of a reduction: the node's sum of this piece, a share at each local rank, to `to`. */
static void scatter_sums(struct ct_hier *hier, const struct ct_call *call, struct ct_span piece,
                         char *to, struct ct_call *sub)
{
    (void)level_of(hier, CT_LEVEL_LOCAL, sub);
    sub->kind = CT_CALL_REDUCE_SCATTER;
    sub->reduce = partial(call);
    sub->uneven = true;
    sub->in = shares(hier, call, piece.at, piece.bytes);
    sub->count = sub->in.counts[hier->local];
    sub->send = call->send;
    sub->recv = to;
}

/* The last step: all shares of this piece at all local ranks. */
static void gather_shares(struct ct_hier *hier, const struct ct_call *call, struct ct_span piece,
                          struct ct_call *sub)
{
    size_t size = ct_dtype_size(call->dtype);

    (void)level_of(hier, CT_LEVEL_LOCAL, sub);
    sub->kind = CT_CALL_ALL_GATHER;
    sub->uneven = true;
    sub->out = shares(hier, call, piece.at, piece.bytes);
    sub->count = sub->out.counts[hier->local];
    sub->send = call->recv + sub->out.offsets[hier->local] * size;
    sub->recv = call->recv;
}

static void make_all_reduce(struct ct_hier *hier, const struct ct_call *call, struct place at,
                            struct ct_call *sub)
{
    struct ct_span piece = piece_of(hier, call->count, at.piece);
    struct ct_span share = share_of(hier, call, piece.bytes, hier->local);
    char *mine = call->recv + (piece.at + share.at) * ct_dtype_size(call->dtype);

    if (at.step == 0) {
        scatter_sums(hier, call, piece, mine, sub);
    } else if (at.step == 2) {
        gather_shares(hier, call, piece, sub);
    } else {
        (void)level_of(hier, CT_LEVEL_ACROSS, sub);
        sub->count = share.bytes;
        sub->send = sub->recv = mine;
    }
}

/* The same with the piece as F32 in scratch, from the first step's start to the last one's. */
static void make_wide_all_reduce(struct ct_hier *hier, const struct ct_call *call, struct place at,
                                 struct ct_call *sub)
{
    struct ct_span piece = piece_of(hier, call->count, at.piece);
    struct ct_span share = share_of(hier, call, piece.bytes, hier->local);
    size_t size = ct_dtype_size(call->dtype);
    float *wide = (float *)(void *)set_of(hier, at.piece);

    if (at.step == 2) {
        ct_reduce_narrow(call->dtype, call->recv + (piece.at + share.at) * size, wide + share.at,
                         share.bytes);
        gather_shares(hier, call, piece, sub);
        return;
    }
    if (at.step == 0) {
        ct_reduce_widen(call->dtype, wide, call->send + piece.at * size, piece.bytes);
        scatter_sums(hier, call, (struct ct_span){0, piece.bytes}, (char *)(wide + share.at), sub);
        sub->send = (char *)wide;
    } else {
        (void)level_of(hier, CT_LEVEL_ACROSS, sub);
        sub->count = share.bytes;
        sub->send = sub->recv = (char *)(wide + share.at);
    }
    sub->dtype = CT_F32;
}

/* The own share lies in scratch: only the root has an output. */
static int reduce_calls(const struct ct_hier *hier, const struct ct_call *call, int step)
{
    return step < 2 || hier->node_of[call->peer] == hier->node;
}

static void make_reduce(struct ct_hier *hier, const struct ct_call *call, struct place at,
                        struct ct_call *sub)
{
    struct ct_span piece = piece_of(hier, call->count, at.piece);
    struct ct_span share = share_of(hier, call, piece.bytes, hier->local);
    char *mine = set_of(hier, at.piece);

    if (at.step == 0) {
        scatter_sums(hier, call, piece, mine, sub);
        return;
    }
    (void)level_of(hier, at.step == 1 ? CT_LEVEL_ACROSS : CT_LEVEL_LOCAL, sub);
    sub->count = share.bytes;
    sub->send = mine;
    sub->recv = at.step == 1 ? mine : call->recv;
    sub->peer = at.step == 1 ? hier->node_of[call->peer] : hier->local_of[call->peer];
    if (at.step == 2) {
        sub->kind = CT_CALL_GATHER;
        sub->uneven = true;
        sub->out = shares(hier, call, piece.at, piece.bytes);
    }
}

/* The parts of node `node`'s ranks, as the parts of a local call. */
static struct ct_parts parts_of_node(struct ct_hier *hier, const struct ct_call *call, int node,
                                     size_t piece)
{
    struct ct_hier_level *local = &hier->levels[CT_LEVEL_LOCAL];
    bool in = call->kind == CT_CALL_REDUCE_SCATTER;

    for (int j = 0; j < hier->locals; j++) {
        int rank = ct_hier_rank(hier, node, j);
        struct ct_span whole = in ? ct_call_in(call, rank) : ct_call_out(call, rank);
        struct ct_span cut = part_piece(hier, call, whole, piece);

        local->counts[j] = cut.bytes;
        local->offsets[j] = cut.at;
    }
    return (struct ct_parts){local->counts, local->offsets};
}

static int scatter_calls(const struct ct_hier *hier, const struct ct_call *call, int step)
{
    (void)call;
    return step == 0 ? hier->nodes : 1;
}

/* Scratch holds the node's sums of this piece of the column's parts, one after the other. */
static void make_reduce_scatter(struct ct_hier *hier, const struct ct_call *call, struct place at,
                                struct ct_call *sub)
{
    size_t size = ct_dtype_size(call->dtype);
    struct ct_hier_level *level =
        level_of(hier, at.step == 0 ? CT_LEVEL_LOCAL : CT_LEVEL_ACROSS, sub);

    sub->uneven = true;
    if (at.step == 0) {
        sub->reduce = partial(call);
        sub->in = parts_of_node(hier, call, at.index, at.piece);
        sub->send = call->send;
        sub->recv = set_of(hier, at.piece) + (size_t)at.index * hier->piece * size;
    } else {
        for (int a = 0; a < hier->nodes; a++) {
            struct ct_span whole = ct_call_in(call, ct_hier_rank(hier, a, hier->local));

            level->counts[a] = part_piece(hier, call, whole, at.piece).bytes;
            level->offsets[a] = (size_t)a * hier->piece;
        }
        sub->in = (struct ct_parts){level->counts, level->offsets};
        sub->send = set_of(hier, at.piece);
        sub->recv = call->recv + at.piece * hier->piece * size;
    }
    sub->count = sub->in.counts[sub->rank];
}

static int gather_calls(const struct ct_hier *hier, const struct ct_call *call, int step)
{
    (void)call;
    return step == 0 ? 1 : hier->nodes;
}

static void make_all_gather(struct ct_hier *hier, const struct ct_call *call, struct place at,
                            struct ct_call *sub)
{
    size_t size = ct_dtype_size(call->dtype);
    struct ct_hier_level *level =
        level_of(hier, at.step == 0 ? CT_LEVEL_ACROSS : CT_LEVEL_LOCAL, sub);

    sub->uneven = true;
    sub->recv = call->recv;
    if (at.step == 0) {
        for (int a = 0; a < hier->nodes; a++) {
            struct ct_span whole = ct_call_out(call, ct_hier_rank(hier, a, hier->local));
            struct ct_span cut = part_piece(hier, call, whole, at.piece);

            level->counts[a] = cut.bytes;
            level->offsets[a] = cut.at;
        }
        sub->out = (struct ct_parts){level->counts, level->offsets};
        sub->send = call->send + at.piece * hier->piece * size;
    } else {
        sub->out = parts_of_node(hier, call, at.index, at.piece);
        sub->send = call->recv + sub->out.offsets[hier->local] * size;
    }
    sub->count = sub->out.counts[sub->rank];
}

static int broadcast_calls(const struct ct_hier *hier, const struct ct_call *call, int step)
{
    return step > 0 || hier->node_of[call->peer] == hier->node;
}

static void make_broadcast(struct ct_hier *hier, const struct ct_call *call, struct place at,
                           struct ct_call *sub)
{
    size_t size = ct_dtype_size(call->dtype);
    struct ct_span piece = piece_of(hier, call->count, at.piece);
    struct ct_span share = share_of(hier, call, piece.bytes, hier->local);
    char *mine = call->recv + (piece.at + share.at) * size;

    if (at.step == 2) {
        gather_shares(hier, call, piece, sub);
        return;
    }
    (void)level_of(hier, at.step == 0 ? CT_LEVEL_LOCAL : CT_LEVEL_ACROSS, sub);
    sub->peer = at.step == 0 ? hier->local_of[call->peer] : hier->node_of[call->peer];
    sub->count = share.bytes;
    sub->send = at.step == 0 ? call->send : mine;
    sub->recv = mine;
    if (at.step == 0) {
        sub->kind = CT_CALL_SCATTER;
        sub->uneven = true;
        sub->in = shares(hier, call, piece.at, piece.bytes);
    }
}

static int small_broadcast_calls(const struct ct_hier *hier, const struct ct_call *call, int step)
{
    return step > 0 || hier->local_of[call->peer] == hier->local;
}

/* After the first step each node has it, at the rank with the root's place. */
static void make_small_broadcast(struct ct_hier *hier, const struct ct_call *call, struct place at,
                                 struct ct_call *sub)
{
    bool has_it = hier->local_of[call->peer] == hier->local && call->rank != call->peer;

    (void)level_of(hier, at.step == 0 ? CT_LEVEL_ACROSS : CT_LEVEL_LOCAL, sub);
    sub->peer = at.step == 0 ? hier->node_of[call->peer] : hier->local_of[call->peer];
    sub->count = call->count;
    sub->recv = call->recv;
    sub->send = at.step == 1 && has_it ? call->recv : call->send;
}

static const struct recipe barrier = {2, {CT_LEVEL_LOCAL, CT_LEVEL_ACROSS}, one_call, make_barrier};
static const struct recipe small_all_reduce = {
    2, {CT_LEVEL_LOCAL, CT_LEVEL_ACROSS}, one_call, make_small_all_reduce};
static const struct recipe all_reduce = {
    3, {CT_LEVEL_LOCAL, CT_LEVEL_ACROSS, CT_LEVEL_LOCAL}, one_call, make_all_reduce};
static const struct recipe wide_all_reduce = {
    3, {CT_LEVEL_LOCAL, CT_LEVEL_ACROSS, CT_LEVEL_LOCAL}, one_call, make_wide_all_reduce};
static const struct recipe reduce = {
    3, {CT_LEVEL_LOCAL, CT_LEVEL_ACROSS, CT_LEVEL_LOCAL}, reduce_calls, make_reduce};
static const struct recipe reduce_scatter = {
    2, {CT_LEVEL_LOCAL, CT_LEVEL_ACROSS}, scatter_calls, make_reduce_scatter};
static const struct recipe all_gather = {
    2, {CT_LEVEL_ACROSS, CT_LEVEL_LOCAL}, gather_calls, make_all_gather};
static const struct recipe broadcast = {
    3, {CT_LEVEL_LOCAL, CT_LEVEL_ACROSS, CT_LEVEL_LOCAL}, broadcast_calls, make_broadcast};
static const struct recipe small_broadcast = {
    2, {CT_LEVEL_ACROSS, CT_LEVEL_LOCAL}, small_broadcast_calls, make_small_broadcast};

static const struct recipe *recipe_of(const struct ct_task *task)
{
    bool columns = task->algorithm == CT_ALGO_COLUMNS;

    switch (task->call.kind) {
    case CT_CALL_ALL_REDUCE:
        if (goes_wide(&task->call))
            return &wide_all_reduce;
        return columns ? &small_all_reduce : &all_reduce;
    case CT_CALL_REDUCE:
        return &reduce;
    case CT_CALL_REDUCE_SCATTER:
        return &reduce_scatter;
    case CT_CALL_ALL_GATHER:
        return &all_gather;
    case CT_CALL_BROADCAST:
        return columns ? &small_broadcast : &broadcast;
    default:
        CT_ASSERT(task->call.kind == CT_CALL_BARRIER);
        return &barrier;
    }
}

/* ---- the engine ------------------------------------------------------------------------------*/

static void begin(struct ct_hier *hier, struct ct_task *task)
{
    const struct ct_call *call = &task->call;
    size_t size = ct_dtype_size(call->dtype), total = call->longest_bytes / size;

    task->algorithm = ct_select(&hier->tuning, CT_TOPOLOGY_LEVELS, call);
    bool small = task->algorithm == CT_ALGO_COLUMNS;
    hier->piece =
        CT_MAX(hier->tuning.hier_piece_bytes / (goes_wide(call) ? sizeof(float) : size), (size_t)1);
    if (ct_call_has_parts(call->kind))
        hier->piece = CT_MAX(hier->piece / (size_t)hier->nodes, (size_t)1);
    hier->pieces = small || total == 0 ? 1 : (total + hier->piece - 1) / hier->piece;
    for (int i = 0; i < CT_LEVELS; i++) {
        hier->levels[i].busy = false;
        hier->levels[i].wave = 0;
        hier->levels[i].step = hier->levels[i].index = 0;
    }
}

static size_t waves_of(const struct ct_hier *hier, const struct recipe *recipe)
{
    return hier->pieces + (size_t)recipe->steps - 1;
}

/* Go to the level's next call, from where it is. False: it has none left. */
static bool find_call(struct ct_hier *hier, const struct recipe *recipe, const struct ct_call *call,
                      enum ct_level which)
{
    struct ct_hier_level *level = &hier->levels[which];

    for (; level->wave < waves_of(hier, recipe); level->wave++, level->step = 0)
        for (; level->step < recipe->steps; level->step++, level->index = 0) {
            size_t step = (size_t)level->step;

            if (recipe->level[step] == which && level->wave >= step &&
                level->wave - step < hier->pieces &&
                level->index < recipe->calls(hier, call, level->step))
                return true;
        }
    return false;
}

/* A step follows the one before it, which the other level makes in the wave before; and a new piece
 * comes no sooner than the other level is two waves behind: so three sets of scratch suffice. */
static bool may_start(const struct ct_hier *hier, enum ct_level which)
{
    const struct ct_hier_level *level = &hier->levels[which];
    size_t other = hier->levels[CT_LEVEL_ACROSS - which].wave;

    return level->step > 0 ? other >= level->wave : other + 1 >= level->wave;
}

static void start(struct ct_hier *hier, const struct recipe *recipe, const struct ct_task *task,
                  enum ct_level which)
{
    struct ct_hier_level *level = &hier->levels[which];
    const struct ct_call *call = &task->call;
    struct ct_call sub = {.kind = call->kind,
                          .dtype = call->dtype,
                          .reduce = call->reduce,
                          .mode = call->mode,
                          .tag = call->tag,
                          .scale = call->scale,
                          .members = call->members};

    recipe->make(hier, call,
                 (struct place){level->wave - (size_t)level->step, level->step, level->index},
                 &sub);
    bool valid = ct_call_complete(&sub);
    CT_ASSERT(valid); /* the call was, and all of its parts lie in it */
    level->task = (struct ct_task){.call = sub, .signature = task->signature};
    level->busy = true;
}

/* As many calls of a level as can be made now: 1 when it has none left, 0, or an error. */
static int advance_level(struct ct_hier *hier, const struct recipe *recipe, struct ct_task *task,
                         enum ct_level which, struct ct_error *err)
{
    struct ct_hier_level *level = &hier->levels[which];

    while (level->busy || find_call(hier, recipe, &task->call, which)) {
        if (!level->busy && !may_start(hier, which))
            return 0;
        if (!level->busy)
            start(hier, recipe, task, which);
        uint64_t moves = level->task.moves;
        int code = level->group->backend->progress(level->group->state, &level->task, err);
        task->moves += level->task.moves - moves;
        if (code != 1)
            return code;
        level->busy = false;
        level->index++;
        task->moves++;
    }
    return 1;
}

int ct_hier_collective(struct ct_hier *hier, struct ct_task *task, struct ct_error *err)
{
    uint64_t moves;

    if (task->stage == 0)
        begin(hier, task);
    task->stage = 1;
    const struct recipe *recipe = recipe_of(task);
    do {
        int through = 0;

        moves = task->moves;
        for (int i = 0; i < CT_LEVELS; i++) {
            int code = advance_level(hier, recipe, task, (enum ct_level)i, err);

            if (code < 0)
                return code;
            through += code;
        }
        if (through == CT_LEVELS)
            return 1;
    } while (task->moves != moves);
    return 0;
}
