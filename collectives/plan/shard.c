/* See passes.h: the same step where a rank holds parts.
 *
 *     as lists.c made it          sharded over W ranks, part = this rank's 1/W of a unit
 *                                 full   = all_gather part              in front of its first
 * reader h  = linear x, W            h      = linear x, full.W dW = linear_dw dy, x        grad.W =
 * linear_dw dy, x              a temporary, as `full` is g part = reduce_scatter grad behind its
 * last writer s  = sumsq g                s      = sumsq g part;  all_reduce s W  = sgd g, W W part
 * = sgd g part, W part W      = all_gather W part            where W is held whole
 *
 * The list is copied op by op into a new program. A view of the flat range becomes a view of the
 * bucket's temporary, or, in the update, of this rank's part; a view of anything else stays what it
 * is. What a gathered unit is and when it goes follows from lifetimes: the memory pass sees
 * temporaries.
 *
 * A unit in use has an interval, from its first to its last reader: in a step with FULL one for
 * each pass over the unit (forward, backward, of each micro-batch), unless no other unit was used
 * in between; with GRAD one for the whole step. Prefetching puts a gather in front of the first
 * reader of an earlier interval. */
#include "collectives/plan/passes.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

enum { UNMAPPED = -2 };

/* From the first to the last reader of a bucket's parameters. */
struct interval {
    int bucket, first, last;
    int turn; /* which run of ops that use the same bucket the last one belongs to */
    int full; /* the gathered bucket, in the new program */
};

/* What is written whole and kept in parts: gradients in a step, first values at the start. */
struct target {
    int first_writer, last_writer;
    int whole; /* the temporary, in the new program; CT_NONE until its first writer */
};

struct sharder {
    const struct ct_plan *plan;
    const struct ct_program *from;
    struct ct_program *to;
    enum ct_value_kind written; /* the kind of flat range that `targets` is about */
    int *map;                   /* by value: the same in `to`; UNMAPPED for views of flat ranges */
    struct interval *intervals;
    int interval_count, gathered; /* `gathered`: intervals whose gather is emitted */
    int *current;                 /* by bucket: its interval at the present op */
    struct target *targets;       /* by bucket */
    int *last_update;             /* by bucket: the op that changes its parameters last */
};

/* ---- the flat ranges ------------------------------------------------------------------------ */

/* Whether `value` lies in a range of which this rank holds its part: parameters where they are
 * sharded, gradients, moments. Parameters behind flat_bytes do not learn and stay whole. */
static bool is_sharded(const struct sharder *s, const struct ct_value *value)
{
    const struct ct_value *root = &s->from->values[value->root];

    if (value->offset_bytes >= s->plan->flat_bytes)
        return false;
    if (root->kind == CT_VALUE_PARAM)
        return ct_plan_is_sharded(s->plan, 0);
    return root->kind == CT_VALUE_GRAD ||
           (root->kind == CT_VALUE_STATE && root->bytes == s->plan->flat_bytes);
}

/* Whether an update works on it part by part. */
static bool is_flat(const struct sharder *s, int value)
{
    const struct ct_value *v = value == CT_NONE ? NULL : &s->from->values[value];

    return v != NULL && (is_sharded(s, v) || s->from->values[v->root].kind == CT_VALUE_PARAM) &&
           v->offset_bytes < s->plan->flat_bytes;
}

static int bucket_at(const struct ct_plan *plan, size_t offset)
{
    int low = 0, high = plan->bucket_count - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (plan->buckets[middle].offset_bytes <= offset)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static struct ct_range bucket_range(const struct ct_plan *plan, int bucket)
{
    const struct ct_bucket *b = &plan->buckets[bucket];

    return (struct ct_range){b->offset_bytes, b->offset_bytes + b->bytes};
}

static int flat_view(struct sharder *s, int root, struct ct_range range, const char *name)
{
    enum ct_dtype dtype = s->plan->tensors[0].dtype;
    int64_t count = (int64_t)((range.end - range.begin) / ct_dtype_size(dtype));

    return ct_program_view(s->to, root, range.begin, dtype, ct_shape1(count), name);
}

/* The bucket that `op` reads parameters of, or writes the target kind of, with operand `value`;
 * CT_NONE when it is another value. */
static int bucket_of(const struct sharder *s, int value, enum ct_value_kind kind)
{
    const struct ct_value *v = value == CT_NONE ? NULL : &s->from->values[value];

    return v != NULL && v->kind == kind && is_sharded(s, v) ? bucket_at(s->plan, v->offset_bytes)
                                                            : CT_NONE;
}

/* ---- looking at the list -------------------------------------------------------------------- */

static bool same_pass(const struct sharder *s, int a, int b)
{
    const struct ct_program_op *ops = s->from->ops;

    return s->plan->options.shard == CT_PLAN_SHARD_GRAD ||
           (ops[a].stage == ops[b].stage && ops[a].micro == ops[b].micro);
}

static void use(struct sharder *s, int bucket, int op, int *turn, int *previous)
{
    int at = s->current[bucket];
    struct interval *interval = at == CT_NONE ? NULL : &s->intervals[at];

    if (*previous != bucket)
        ++*turn;
    *previous = bucket;
    if (interval == NULL || (interval->turn != *turn && !same_pass(s, interval->last, op))) {
        s->current[bucket] = s->interval_count;
        interval = &s->intervals[s->interval_count++];
        *interval = (struct interval){.bucket = bucket, .first = op, .full = CT_NONE};
    }
    interval->last = op;
    interval->turn = *turn;
}

static void find_intervals(struct sharder *s)
{
    int turn = 0, previous = CT_NONE;

    for (int i = 0; i < s->from->op_count; i++) {
        const struct ct_program_op *op = &s->from->ops[i];
        for (int k = 0; k < CT_OP_MAX_IN && op->stage != CT_STAGE_UPDATE; k++) {
            int bucket = bucket_of(s, op->in[k], CT_VALUE_PARAM);
            if (bucket != CT_NONE)
                use(s, bucket, i, &turn, &previous);
        }
    }
    for (int k = 0; k < s->plan->bucket_count; k++)
        s->current[k] = CT_NONE;
}

static void find_writers(struct sharder *s)
{
    for (int k = 0; k < s->plan->bucket_count; k++) {
        s->targets[k] = (struct target){CT_NONE, CT_NONE, CT_NONE};
        s->last_update[k] = CT_NONE;
    }
    for (int i = 0; i < s->from->op_count; i++) {
        const struct ct_program_op *op = &s->from->ops[i];
        for (int k = 0; k < CT_OP_MAX_OUT; k++) {
            int bucket = bucket_of(s, op->out[k], s->written);
            if (op->stage != CT_STAGE_UPDATE && bucket != CT_NONE) {
                if (s->targets[bucket].first_writer == CT_NONE)
                    s->targets[bucket].first_writer = i;
                s->targets[bucket].last_writer = i;
            }
            if (op->stage != CT_STAGE_UPDATE || !is_flat(s, op->out[k]) ||
                s->from->values[op->out[k]].kind != CT_VALUE_PARAM)
                continue;
            struct ct_range range = ct_plan_in_root(&s->from->values[op->out[k]]);
            for (int b = 0; b < s->plan->bucket_count; b++)
                if (ct_range_meet(range, bucket_range(s->plan, b)))
                    s->last_update[b] = i;
        }
    }
}

/* ---- values --------------------------------------------------------------------------------- */

/* The root as this rank holds it. */
static int add_root(struct sharder *s, int value)
{
    const struct ct_value *v = &s->from->values[value];
    struct ct_shape shape = v->shape;

    if (is_sharded(s, v))
        shape = ct_shape1((int64_t)((s->plan->shard_bytes + v->bytes - s->plan->flat_bytes) /
                                    ct_dtype_size(v->dtype)));
    return ct_program_value(s->to, v->kind, v->dtype, shape, v->name);
}

static void map_values(struct sharder *s)
{
    for (int i = 0; i < s->from->value_count; i++) {
        const struct ct_value *v = &s->from->values[i];
        const struct ct_value *root = &s->from->values[v->root];
        if (v->root == i) {
            s->map[i] = add_root(s, i);
        } else if (is_sharded(s, v)) {
            s->map[i] = UNMAPPED;
        } else {
            size_t less = is_sharded(s, root) ? s->plan->flat_bytes - s->plan->shard_bytes : 0;
            s->map[i] = ct_program_view(s->to, s->map[v->root], v->offset_bytes - less, v->dtype,
                                        v->shape, v->name);
        }
    }
}

/* `value` as a view of the bucket that is whole in `whole`. */
static int view_of_bucket(struct sharder *s, int value, int bucket, int whole)
{
    const struct ct_value *v = &s->from->values[value];
    const struct ct_bucket *b = &s->plan->buckets[bucket];

    if (v->offset_bytes + v->bytes > b->offset_bytes + b->bytes) {
        if (s->to->error.code == 0)
            ct_error_set(&s->to->error, CT_EUNSUPPORTED,
                         "'%s' is used as a whole, which cannot be sharded", v->name);
        return CT_NONE;
    }
    return ct_program_view(s->to, whole, v->offset_bytes - b->offset_bytes, v->dtype, v->shape,
                           v->name);
}

/* An operand outside of the update. */
static int mapped(struct sharder *s, int value)
{
    if (value == CT_NONE || !is_sharded(s, &s->from->values[value]))
        return value == CT_NONE ? CT_NONE : s->map[value];
    int bucket = bucket_at(s->plan, s->from->values[value].offset_bytes);
    if (s->from->values[value].kind == s->written)
        return view_of_bucket(s, value, bucket, s->targets[bucket].whole);
    CT_ASSERT(s->from->values[value].kind == CT_VALUE_PARAM && s->current[bucket] != CT_NONE);
    return view_of_bucket(s, value, bucket, s->intervals[s->current[bucket]].full);
}

/* A temporary for a whole bucket. */
static int whole_bucket(struct sharder *s, const char *what, int bucket)
{
    char name[32];
    enum ct_dtype dtype = s->plan->tensors[0].dtype;

    (void)snprintf(name, sizeof name, "%s%d", what, bucket);
    return ct_program_value(
        s->to, CT_VALUE_TEMP, dtype,
        ct_shape1((int64_t)(s->plan->buckets[bucket].bytes / ct_dtype_size(dtype))), name);
}

/* This rank's part of a bucket in the sharded range that is `root` in the old list. */
static int own_part(struct sharder *s, int root, int bucket)
{
    struct ct_plan_part part = ct_plan_part(s->plan, bucket, s->plan->place.part);
    bool sharded = is_sharded(s, &s->from->values[root]);
    size_t begin = sharded ? part.shard_bytes : part.flat_bytes;

    return flat_view(s, s->map[root], (struct ct_range){begin, begin + part.bytes}, "part");
}

static int root_of_kind(const struct ct_program *program, enum ct_value_kind kind)
{
    for (int i = 0; i < program->value_count; i++)
        if (program->values[i].kind == kind)
            return i;
    return CT_NONE;
}

/* ---- communication -------------------------------------------------------------------------- */

static void emit(struct sharder *s, int kind, enum ct_axis axis, int in, int out)
{
    struct ct_program_op op = ct_program_op(kind);

    op.axis = axis;
    op.in[0] = in;
    op.out[0] = out;
    ct_program_emit(s->to, op);
}

/* The gathers that are due in front of op `i`, and which interval it reads. */
static void gather_for(struct sharder *s, int i)
{
    const struct ct_program_op *op = &s->from->ops[i];

    s->to->stage = op->stage;
    s->to->micro = op->micro;
    while (s->gathered < s->interval_count) {
        int ahead = CT_MAX(s->gathered - s->plan->options.prefetch, 0);
        struct interval *interval = &s->intervals[s->gathered];
        if (s->intervals[ahead].first > i)
            break;
        interval->full = whole_bucket(s, "full", interval->bucket);
        emit(s, CT_OP_ALL_GATHER, CT_AXIS_SHARD,
             own_part(s, root_of_kind(s->from, CT_VALUE_PARAM), interval->bucket), interval->full);
        s->gathered++;
    }
}

static void enter_intervals(struct sharder *s, int i)
{
    for (int k = 0; k < CT_OP_MAX_IN; k++) {
        int bucket = bucket_of(s, s->from->ops[i].in[k], CT_VALUE_PARAM);
        if (bucket == CT_NONE)
            continue;
        int at = s->current[bucket];
        for (int j = at == CT_NONE ? 0 : at; j < s->interval_count && s->intervals[j].first <= i;
             j++)
            if (s->intervals[j].bucket == bucket)
                at = j;
        s->current[bucket] = at;
    }
}

/* The bytes between tensors are zero in every sum. */
static void fill_gaps(struct sharder *s, int bucket, int whole)
{
    const struct ct_bucket *b = &s->plan->buckets[bucket];
    size_t end = 0;

    for (int i = b->last_param; i >= b->first_param - 1; i--) {
        bool behind = i < b->first_param; /* of the last tensor */
        if (!behind && s->plan->tensors[i].range < 0)
            continue;
        size_t begin = behind ? b->bytes : s->plan->tensors[i].flat_bytes - b->offset_bytes;
        if (begin > end) {
            struct ct_program_op fill = ct_program_op(CT_OP_FILL);
            fill.out[0] = flat_view(s, whole, (struct ct_range){end, begin}, "gap");
            ct_program_emit(s->to, fill);
        }
        if (!behind)
            end = begin + s->plan->tensors[i].held_bytes;
    }
}

static void open_targets(struct sharder *s, int i)
{
    for (int k = 0; k < s->plan->bucket_count; k++) {
        if (s->targets[k].first_writer != i)
            continue;
        s->targets[k].whole = whole_bucket(s, "whole", k);
        fill_gaps(s, k, s->targets[k].whole);
    }
}

/* What is complete behind op `i` becomes this rank's part. */
static void close_targets(struct sharder *s, int i)
{
    bool first_values = s->written == CT_VALUE_PARAM;

    for (int k = 0; k < s->plan->bucket_count; k++) {
        struct target *target = &s->targets[k];
        if (target->last_writer != i)
            continue;
        int part = own_part(s, root_of_kind(s->from, s->written), k);
        if (first_values) {
            struct ct_plan_part own = ct_plan_part(s->plan, k, s->plan->place.part);
            size_t begin = own.flat_bytes - s->plan->buckets[k].offset_bytes;
            int slice =
                flat_view(s, target->whole, (struct ct_range){begin, begin + own.bytes}, "own");
            emit(s, CT_OP_COPY, CT_AXIS_WORLD, slice, part);
            continue;
        }
        s->to->stage = CT_STAGE_REDUCE;
        emit(s, CT_OP_REDUCE_SCATTER, CT_AXIS_SHARD, target->whole, part);
        if (s->plan->mesh.replicas > 1)
            emit(s, CT_OP_ALL_REDUCE, CT_AXIS_REPLICA, part, part);
    }
}

/* ---- the update ----------------------------------------------------------------------------- */

/* A run of elements that this rank updates, in the flat range and in sharded ones. */
struct piece {
    size_t flat_bytes, shard_bytes, bytes;
};

/* This rank's share of `range` within `bucket`; bytes 0 when it has none. */
static struct piece piece_of(const struct sharder *s, int bucket, struct ct_range range)
{
    struct ct_plan_part part = ct_plan_part(s->plan, bucket, s->plan->place.part);
    size_t begin = CT_MAX(range.begin, part.flat_bytes);
    size_t end = CT_MIN(range.end, part.flat_bytes + part.bytes);

    if (begin >= end)
        return (struct piece){0};
    return (struct piece){begin, part.shard_bytes + begin - part.flat_bytes, end - begin};
}

static int piece_view(struct sharder *s, int value, struct piece piece)
{
    const struct ct_value *v = &s->from->values[value];
    size_t begin = is_sharded(s, v) ? piece.shard_bytes : piece.flat_bytes;

    return flat_view(s, s->map[v->root], (struct ct_range){begin, begin + piece.bytes}, v->name);
}

static void emit_piece(struct sharder *s, const struct ct_program_op *op, struct piece piece,
                       bool first)
{
    struct ct_program_op copy = *op;

    if (piece.bytes == 0)
        return;
    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (op->in[k] != CT_NONE)
            copy.in[k] =
                is_flat(s, op->in[k]) ? piece_view(s, op->in[k], piece) : s->map[op->in[k]];
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        if (op->out[k] != CT_NONE)
            copy.out[k] =
                is_flat(s, op->out[k]) ? piece_view(s, op->out[k], piece) : s->map[op->out[k]];
    if (op->kind == CT_OP_SUMSQ)
        copy.attr.accumulate = op->attr.accumulate || !first;
    ct_program_emit(s->to, copy);
}

/* Whether `op` reads or writes parameters that this rank holds whole, where parts lie apart. */
static bool touches_whole(const struct sharder *s, const struct ct_program_op *op)
{
    bool touches = false;

    for (int k = 0; k < CT_OP_MAX_IN; k++)
        touches |= is_flat(s, op->in[k]) && !is_sharded(s, &s->from->values[op->in[k]]);
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        touches |= is_flat(s, op->out[k]) && !is_sharded(s, &s->from->values[op->out[k]]);
    return touches;
}

static void gather_updated(struct sharder *s, int bucket)
{
    int params = root_of_kind(s->from, CT_VALUE_PARAM);

    emit(s, CT_OP_ALL_GATHER, CT_AXIS_SHARD, own_part(s, params, bucket),
         flat_view(s, s->map[params], bucket_range(s->plan, bucket), "params"));
}

/* An element-wise op over `range` becomes one over each piece of it that is this rank's; where
 * nothing lies between them, over several at once. */
static void split(struct sharder *s, int i, struct ct_range range)
{
    const struct ct_program_op *op = &s->from->ops[i];
    bool apart = touches_whole(s, op), first = true;
    struct piece run = {0};

    for (int k = 0; k < s->plan->bucket_count; k++) {
        struct piece piece = piece_of(s, k, range);
        if (piece.bytes > 0 && !apart && run.bytes > 0 &&
            run.shard_bytes + run.bytes == piece.shard_bytes) {
            run.bytes += piece.bytes;
        } else if (piece.bytes > 0) {
            emit_piece(s, op, run, first);
            first = first && run.bytes == 0;
            run = piece;
        }
        if (s->last_update[k] == i && apart) {
            emit_piece(s, op, run, first);
            first = first && run.bytes == 0;
            run = (struct piece){0};
            gather_updated(s, k);
        }
    }
    emit_piece(s, op, run, first);
    if (op->kind == CT_OP_SUMSQ && first && run.bytes == 0 && !op->attr.accumulate) {
        struct ct_program_op none = ct_program_op(CT_OP_FILL);
        none.out[0] = s->map[op->out[0]];
        ct_program_emit(s->to, none);
    }
}

static void update(struct sharder *s, int i)
{
    const struct ct_program_op *op = &s->from->ops[i];
    int flat = CT_NONE;

    for (int k = 0; k < CT_OP_MAX_IN; k++)
        flat = is_flat(s, op->in[k]) ? op->in[k] : flat;
    if (flat == CT_NONE)
        emit_piece(s, op, (struct piece){.bytes = 1}, true);
    else
        split(s, i, ct_plan_in_root(&s->from->values[flat]));
}

/* ---- the pass ------------------------------------------------------------------------------- */

static void rewrite(struct sharder *s)
{
    for (int i = 0; i < s->from->op_count && s->to->error.code == 0; i++) {
        struct ct_program_op op = s->from->ops[i];
        gather_for(s, i);
        if (op.stage == CT_STAGE_UPDATE) {
            update(s, i);
            continue;
        }
        enter_intervals(s, i);
        open_targets(s, i);
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            op.in[k] = mapped(s, op.in[k]);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            op.out[k] = mapped(s, op.out[k]);
        ct_program_emit(s->to, op);
        close_targets(s, i);
    }
}

/* The values that the host knows keep their meaning. */
static void map_io(const struct sharder *s, struct ct_plan_io *io)
{
    int *const all[] = {&io->x,      &io->labels, &io->inv_valid, &io->draw, &io->lr,
                        &io->update, &io->wish,   &io->wishes,    &io->loss, &io->correct,
                        &io->sumsq,  &io->logits, &io->unscale};

    _Static_assert(sizeof *io == CT_COUNT(all) * sizeof(int), "every value of ct_plan_io");
    for (size_t i = 0; i < CT_COUNT(all); i++)
        if (*all[i] != CT_NONE)
            *all[i] = s->map[*all[i]];
}

static int run(struct sharder *s, struct ct_plan_io *io, struct ct_error *err)
{
    find_intervals(s);
    find_writers(s);
    map_values(s);
    rewrite(s);
    map_io(s, io);
    if (s->to->error.code == 0)
        return 0;
    return ct_error_set(err, s->to->error.code, "sharding: %s", s->to->error.text);
}

int ct_plan_shard(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err)
{
    size_t buckets = (size_t)plan->bucket_count, ops = (size_t)list->program.op_count;
    struct ct_program sharded;
    struct sharder s = {.plan = plan, .from = &list->program, .to = &sharded};
    int code = CT_ENOMEM;

    if (plan->shards == 1)
        return 0;
    ct_program_init(&sharded);
    s.written = list == &plan->init ? CT_VALUE_PARAM : CT_VALUE_GRAD;
    s.map = calloc((size_t)list->program.value_count, sizeof *s.map);
    s.intervals = calloc(ops * CT_OP_MAX_IN, sizeof *s.intervals);
    s.current = calloc(buckets, sizeof *s.current);
    s.targets = calloc(buckets, sizeof *s.targets);
    s.last_update = calloc(buckets, sizeof *s.last_update);
    if (s.map != NULL && s.intervals != NULL && s.current != NULL && s.targets != NULL &&
        s.last_update != NULL) {
        for (size_t k = 0; k < buckets; k++)
            s.current[k] = CT_NONE;
        code = run(&s, &list->io, err);
    } else {
        code = ct_error_set(err, CT_ENOMEM, "no memory to shard %zu ops", ops);
    }
    if (code == 0) {
        struct ct_program old = list->program;
        list->program = sharded;
        sharded = old;
    }
    ct_program_deinit(&sharded);
    free(s.map);
    free(s.intervals);
    free(s.current);
    free(s.targets);
    free(s.last_update);
    return code;
}
