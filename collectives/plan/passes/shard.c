/* See passes.h: the same step where a rank holds parts.
 *
 *     as list_builder.c made it       sharded over W ranks, part = this rank's 1/W of a unit
 *
 *                              full   = all_gather part      in front of its first reader
 *     h  = linear x, W         h      = linear x, full.W
 *     dW = linear_dw dy, x     grad.W = linear_dw dy, x      a temporary, as `full` is
 *                              g part = reduce_scatter grad  behind its last writer
 *     s  = sumsq g             s      = sumsq g part
 *                              all_reduce s
 *     W  = sgd g, W            W part = sgd g part, W part
 *                              W      = all_gather W part    where W is held whole
 *
 * The list is copied op by op into a new program. A view of the flat range becomes a view of the
 * bucket's temporary, or, in the update, of this rank's part; a view of anything else stays what it
 * is. What a gathered unit is and when it goes follows from lifetimes: the memory pass sees
 * temporaries.
 *
 * In 16 bits, what the readers of an interval read is a narrow copy of each parameter: the parts
 * are narrowed instead, and gathered so, half as long. Rounding the same numbers gives the same
 * bits; what is rounded by chance draws for a name and an element's number, tensor by tensor.
 *
 *     full = all_gather part,  W' = narrow full.W        n = narrow part,  full' = all_gather n
 *
 * A unit in use has an interval, from its first to its last reader: in a step with FULL one for
 * each pass over the unit (forward, backward, of each micro-batch), unless no other unit was used
 * in between; with GRAD one for the whole step. Prefetching puts a gather in front of the first
 * reader of an earlier interval. */
#include "collectives/plan/passes/shard.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

enum { UNMAPPED = -2 };

/* ---- the flat ranges ------------------------------------------------------------------------ */

/* Whether `value` lies in a range of which this rank holds its part: parameters where they are
 * sharded, gradients, moments. Parameters behind flat_bytes do not learn and stay whole. */
bool ct_shard_splits(const struct ct_sharder *s, const struct ct_value *value)
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
bool ct_shard_is_flat(const struct ct_sharder *s, int value)
{
    const struct ct_value *v = value == CT_NONE ? NULL : &s->from->values[value];

    return v != NULL &&
           (ct_shard_splits(s, v) || s->from->values[v->root].kind == CT_VALUE_PARAM) &&
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

struct ct_range ct_shard_bucket(const struct ct_plan *plan, int bucket)
{
    const struct ct_bucket *b = &plan->buckets[bucket];

    return (struct ct_range){b->offset_bytes, b->offset_bytes + b->bytes};
}

int ct_shard_view(struct ct_sharder *s, int root, struct ct_range range, const char *name)
{
    enum ct_dtype dtype = s->plan->tensors[0].dtype;
    int64_t count = (int64_t)((range.end - range.begin) / ct_dtype_size(dtype));

    return ct_program_view(s->to, root, range.begin, dtype, ct_shape1(count), name);
}

/* The bucket that `op` reads parameters of, or writes the target kind of, with operand `value`;
 * CT_NONE when it is another value. */
static int bucket_of(const struct ct_sharder *s, int value, enum ct_value_kind kind)
{
    const struct ct_value *v = value == CT_NONE ? NULL : &s->from->values[value];

    return v != NULL && v->kind == kind && ct_shard_splits(s, v)
               ? bucket_at(s->plan, v->offset_bytes)
               : CT_NONE;
}

/* ---- looking at the list -------------------------------------------------------------------- */

static bool same_pass(const struct ct_sharder *s, int a, int b)
{
    const struct ct_program_op *ops = s->from->ops;

    return s->plan->options.shard == CT_PLAN_SHARD_GRAD ||
           (ops[a].stage == ops[b].stage && ops[a].micro == ops[b].micro);
}

/* Whether two buckets are of one layer or block. */
static bool same_unit(const struct ct_sharder *s, int a, int b)
{
    const struct ct_plan_tensor *tensors = s->plan->tensors;

    return a == b || ct_plan_same_unit(tensors[s->plan->buckets[a].last_param].name,
                                       tensors[s->plan->buckets[b].last_param].name);
}

static void use(struct ct_sharder *s, int bucket, int op, int *unit_run, int *previous)
{
    int at = s->current[bucket];
    struct ct_shard_interval *interval = at == CT_NONE ? NULL : &s->intervals[at];

    if (*previous == CT_NONE || !same_unit(s, *previous, bucket))
        ++*unit_run;
    *previous = bucket;
    if (interval == NULL ||
        (interval->unit_run != *unit_run && !same_pass(s, interval->last, op))) {
        s->current[bucket] = s->interval_count;
        interval = &s->intervals[s->interval_count++];
        *interval = (struct ct_shard_interval){
            .bucket = bucket, .first = op, .full = CT_NONE, .narrow = true};
    }
    interval->narrow = interval->narrow && ct_plan_narrows_param(s->from, &s->from->ops[op]);
    interval->last = op;
    interval->unit_run = *unit_run;
}

static void find_intervals(struct ct_sharder *s)
{
    int unit_run = 0, previous = CT_NONE;

    for (int i = 0; i < s->from->op_count; i++) {
        const struct ct_program_op *op = &s->from->ops[i];
        for (int k = 0; k < CT_OP_MAX_IN && op->stage != CT_STAGE_UPDATE; k++) {
            int bucket = bucket_of(s, op->in[k], CT_VALUE_PARAM);
            if (bucket != CT_NONE)
                use(s, bucket, i, &unit_run, &previous);
        }
    }
    for (int k = 0; k < s->plan->bucket_count; k++)
        s->current[k] = CT_NONE;
}

static void find_writers(struct ct_sharder *s)
{
    for (int k = 0; k < s->plan->bucket_count; k++) {
        s->targets[k] = (struct ct_shard_target){CT_NONE, CT_NONE, CT_NONE};
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
            if (op->stage != CT_STAGE_UPDATE || !ct_shard_is_flat(s, op->out[k]) ||
                s->from->values[op->out[k]].kind != CT_VALUE_PARAM)
                continue;
            struct ct_range range = ct_plan_in_root(&s->from->values[op->out[k]]);
            for (int b = 0; b < s->plan->bucket_count; b++)
                if (ct_range_overlap(range, ct_shard_bucket(s->plan, b)))
                    s->last_update[b] = i;
        }
    }
}

/* ---- values --------------------------------------------------------------------------------- */

/* The root as this rank holds it. */
static int add_root(struct ct_sharder *s, int value)
{
    const struct ct_value *v = &s->from->values[value];
    struct ct_shape shape = v->shape;

    if (ct_shard_splits(s, v))
        shape = ct_shape1((int64_t)((s->plan->shard_bytes + v->bytes - s->plan->flat_bytes) /
                                    ct_dtype_size(v->dtype)));
    return ct_program_value(s->to, v->kind, v->dtype, shape, v->name);
}

static void map_values(struct ct_sharder *s)
{
    for (int i = 0; i < s->from->op_count; i++) /* what becomes of them is known at their op */
        if (ct_plan_narrows_param(s->from, &s->from->ops[i]))
            s->map[s->from->ops[i].out[0]] = UNMAPPED;
    for (int i = 0; i < s->from->value_count; i++) {
        const struct ct_value *v = &s->from->values[i];
        const struct ct_value *root = &s->from->values[v->root];
        if (s->map[i] == UNMAPPED)
            continue;
        if (v->root == i) {
            s->map[i] = add_root(s, i);
        } else if (ct_shard_splits(s, v)) {
            s->map[i] = UNMAPPED;
        } else {
            size_t less = ct_shard_splits(s, root) ? s->plan->flat_bytes - s->plan->shard_bytes : 0;
            s->map[i] = ct_program_view(s->to, s->map[v->root], v->offset_bytes - less, v->dtype,
                                        v->shape, v->name);
        }
    }
}

/* `value` as a view of the bucket that is whole in `whole`. */
static int view_of_bucket(struct ct_sharder *s, int value, int bucket, int whole)
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
static int mapped(struct ct_sharder *s, int value)
{
    if (value == CT_NONE || !ct_shard_splits(s, &s->from->values[value]))
        return value == CT_NONE ? CT_NONE : s->map[value];
    int bucket = bucket_at(s->plan, s->from->values[value].offset_bytes);
    if (s->from->values[value].kind == s->written)
        return view_of_bucket(s, value, bucket, s->targets[bucket].whole);
    CT_ASSERT(s->from->values[value].kind == CT_VALUE_PARAM && s->current[bucket] != CT_NONE);
    return view_of_bucket(s, value, bucket, s->intervals[s->current[bucket]].full);
}

static int64_t elements_of(const struct ct_sharder *s, size_t bytes)
{
    return (int64_t)(bytes / ct_dtype_size(s->plan->tensors[0].dtype));
}

/* A temporary for a whole bucket. */
static int whole_bucket(struct ct_sharder *s, const char *what, int bucket, enum ct_dtype dtype)
{
    char name[32];

    (void)snprintf(name, sizeof name, "%s%d", what, bucket);
    return ct_program_value(s->to, CT_VALUE_TEMP, dtype,
                            ct_shape1(elements_of(s, s->plan->buckets[bucket].bytes)), name);
}

/* This rank's part of a bucket in the sharded range that is `root` in the old list. */
int ct_shard_own(struct ct_sharder *s, int root, int bucket)
{
    struct ct_plan_part part = ct_plan_part(s->plan, bucket, s->plan->place.part);
    bool sharded = ct_shard_splits(s, &s->from->values[root]);
    size_t begin = sharded ? part.shard_bytes : part.flat_bytes;

    return ct_shard_view(s, s->map[root], (struct ct_range){begin, begin + part.bytes}, "part");
}

int ct_shard_root(const struct ct_program *program, enum ct_value_kind kind)
{
    for (int i = 0; i < program->value_count; i++)
        if (program->values[i].kind == kind)
            return i;
    return CT_NONE;
}

/* ---- communication -------------------------------------------------------------------------- */

void ct_shard_emit(struct ct_sharder *s, int kind, enum ct_axis axis, int in, int out)
{
    struct ct_program_op op = ct_program_op(kind);

    op.axis = axis;
    op.in[0] = in;
    op.out[0] = out;
    ct_program_emit(s->to, op);
}

/* Elements [begin, end) of what is in `value`. */
static int elements(struct ct_sharder *s, int value, int64_t begin, int64_t end)
{
    enum ct_dtype dtype = s->to->values[value].dtype;

    return ct_program_view(s->to, value, (size_t)begin * ct_dtype_size(dtype), dtype,
                           ct_shape1(end - begin), s->to->values[value].name);
}

/* As `like`, the first reader's op, narrows a tensor: those that this rank's part of the bucket
 * meets, each with the zeroes behind it. */
static void round_part(struct ct_sharder *s, int bucket, const struct ct_program_op *like, int part,
                       int narrow)
{
    const struct ct_bucket *b = &s->plan->buckets[bucket];
    struct ct_plan_part own = ct_plan_part(s->plan, bucket, s->plan->place.part);
    size_t end = b->offset_bytes + b->bytes;

    for (int i = b->first_param; i <= b->last_param && s->to->error.code == 0; i++) {
        const struct ct_plan_tensor *t = &s->plan->tensors[i];
        if (!ct_plan_in_bucket(s->plan, b, i))
            continue;
        struct ct_program_op op = *like;
        size_t from = CT_MAX(t->flat_bytes, own.flat_bytes);
        size_t to = CT_MIN(end, own.flat_bytes + own.bytes);
        end = t->flat_bytes;
        if (from >= to)
            continue;
        int64_t first = elements_of(s, from - own.flat_bytes);
        int64_t last = elements_of(s, to - own.flat_bytes);
        ct_plan_key_rounding(s->plan, t, (uint64_t)elements_of(s, from - t->flat_bytes), &op);
        op.in[0] = elements(s, part, first, last);
        op.in[1] = mapped(s, like->in[1]);
        op.out[0] = elements(s, narrow, first, last);
        ct_program_emit(s->to, op);
    }
}

static void gather(struct ct_sharder *s, struct ct_shard_interval *interval)
{
    const struct ct_program_op *reader = &s->from->ops[interval->first];
    enum ct_dtype dtype = s->plan->tensors[0].dtype;
    int part = ct_shard_own(s, ct_shard_root(s->from, CT_VALUE_PARAM), interval->bucket);

    if (interval->narrow) {
        dtype = s->plan->options.compute;
        int narrow = ct_program_value(
            s->to, CT_VALUE_TEMP, dtype,
            ct_shape1(elements_of(s, ct_plan_part(s->plan, interval->bucket, 0).bytes)), "part");
        if (reader->kind == CT_OP_NARROW_STOCHASTIC)
            round_part(s, interval->bucket, reader, part, narrow);
        else
            ct_shard_emit(s, CT_OP_NARROW, CT_AXIS_WORLD, part, narrow);
        part = narrow;
    }
    interval->full = whole_bucket(s, "full", interval->bucket, dtype);
    ct_shard_emit(s, CT_OP_ALL_GATHER, CT_AXIS_SHARD, part, interval->full);
}

/* The interval at whose first reader interval `i` is gathered: the first one of a unit. */
static int ahead_of(const struct ct_sharder *s, int i)
{
    for (int units = s->plan->options.prefetch; i > 0; i--)
        if (!same_unit(s, s->intervals[i].bucket, s->intervals[i - 1].bucket) && units-- == 0)
            break;
    return i;
}

/* The gathers that are due in front of op `i`, and which interval it reads. */
static void gather_for(struct ct_sharder *s, int i)
{
    const struct ct_program_op *op = &s->from->ops[i];

    s->to->stage = op->stage;
    s->to->micro = op->micro;
    for (; s->gathered < s->interval_count; s->gathered++) {
        if (s->intervals[ahead_of(s, s->gathered)].first > i)
            break;
        gather(s, &s->intervals[s->gathered]);
    }
}

/* Whether op `i`, which narrows a parameter, has nothing to do: what is gathered is narrow. */
static bool is_narrowed(struct ct_sharder *s, int i)
{
    const struct ct_program_op *op = &s->from->ops[i];
    int bucket = bucket_of(s, op->in[0], CT_VALUE_PARAM);
    const struct ct_shard_interval *interval =
        bucket == CT_NONE ? NULL : &s->intervals[s->current[bucket]];

    if (interval == NULL || !interval->narrow) {
        s->map[op->out[0]] = add_root(s, op->out[0]);
        return false;
    }
    const struct ct_value *v = &s->from->values[op->in[0]];
    int64_t before = elements_of(s, v->offset_bytes - s->plan->buckets[bucket].offset_bytes);
    s->map[op->out[0]] = ct_program_view(s->to, interval->full,
                                         (size_t)before * ct_dtype_size(s->plan->options.compute),
                                         s->plan->options.compute, v->shape, v->name);
    return true;
}

static void enter_intervals(struct ct_sharder *s, int i)
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
static void fill_gaps(struct ct_sharder *s, int bucket, int whole)
{
    const struct ct_bucket *b = &s->plan->buckets[bucket];
    size_t end = 0;

    for (int i = b->last_param; i >= b->first_param - 1; i--) {
        bool behind = i < b->first_param; /* of the last tensor */
        if (!behind && !ct_plan_in_bucket(s->plan, b, i))
            continue;
        size_t begin = behind ? b->bytes : s->plan->tensors[i].flat_bytes - b->offset_bytes;
        if (begin > end) {
            struct ct_program_op fill = ct_program_op(CT_OP_FILL);
            fill.out[0] = ct_shard_view(s, whole, (struct ct_range){end, begin}, "gap");
            ct_program_emit(s->to, fill);
        }
        if (!behind)
            end = begin + s->plan->tensors[i].held_bytes;
    }
}

static void open_targets(struct ct_sharder *s, int i)
{
    for (int k = 0; k < s->plan->bucket_count; k++) {
        if (s->targets[k].first_writer != i)
            continue;
        s->targets[k].whole = whole_bucket(s, "whole", k, s->plan->tensors[0].dtype);
        fill_gaps(s, k, s->targets[k].whole);
    }
}

/* What is complete behind op `i` becomes this rank's part. */
static void close_targets(struct ct_sharder *s, int i)
{
    bool first_values = s->written == CT_VALUE_PARAM;

    for (int k = 0; k < s->plan->bucket_count; k++) {
        struct ct_shard_target *target = &s->targets[k];
        if (target->last_writer != i)
            continue;
        int part = ct_shard_own(s, ct_shard_root(s->from, s->written), k);
        if (first_values) {
            struct ct_plan_part own = ct_plan_part(s->plan, k, s->plan->place.part);
            size_t begin = own.flat_bytes - s->plan->buckets[k].offset_bytes;
            int slice =
                ct_shard_view(s, target->whole, (struct ct_range){begin, begin + own.bytes}, "own");
            ct_shard_emit(s, CT_OP_COPY, CT_AXIS_WORLD, slice, part);
            continue;
        }
        s->to->stage = CT_STAGE_REDUCE;
        ct_shard_emit(s, CT_OP_REDUCE_SCATTER, CT_AXIS_SHARD, target->whole, part);
        if (s->plan->mesh.replicas > 1)
            ct_shard_emit(s, CT_OP_ALL_REDUCE, CT_AXIS_REPLICA, part, part);
    }
}

/* ---- the pass ------------------------------------------------------------------------------- */

static void rewrite(struct ct_sharder *s)
{
    for (int i = 0; i < s->from->op_count && s->to->error.code == 0; i++) {
        struct ct_program_op op = s->from->ops[i];
        gather_for(s, i);
        if (op.stage == CT_STAGE_UPDATE) {
            ct_shard_update(s, i);
            continue;
        }
        enter_intervals(s, i);
        if (ct_plan_narrows_param(s->from, &op) && is_narrowed(s, i))
            continue;
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
static void map_io(const struct ct_sharder *s, struct ct_plan_io *io)
{
    int *const all[] = {&io->x,      &io->labels, &io->inv_valid, &io->draw, &io->lr,
                        &io->update, &io->wish,   &io->wishes,    &io->loss, &io->correct,
                        &io->sumsq,  &io->logits, &io->unscale};

    _Static_assert(sizeof *io == CT_COUNT(all) * sizeof(int), "every value of ct_plan_io");
    for (size_t i = 0; i < CT_COUNT(all); i++)
        if (*all[i] != CT_NONE)
            *all[i] = s->map[*all[i]];
}

static int run(struct ct_sharder *s, struct ct_plan_io *io, struct ct_error *err)
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
    struct ct_sharder s = {.plan = plan, .from = &list->program, .to = &sharded};
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
