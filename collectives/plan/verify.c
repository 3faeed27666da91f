/* The verifier: see plan.h. It trusts no pass: it looks at the finished list, its offsets and its
 * waits, and plays the list once from the first op to the last.
 *
 * The arena is cut at every border of a value into segments. Each segment has an owner, the root
 * whose bytes it holds at the moment, and what these still owe: gradients and sums a reduction over
 * some ranks, parameters of which every rank has updated its part a gather. A read must find its
 * own root in every segment. That proves the order of the list right; that queues run
 * it in an equivalent order follows when all conflicting ops on different queues are ordered by
 * waits. */
#include "collectives/plan/access.h"

#include "base/assert.h"
#include "collectives/plan/tensor_extents.h"

#include <stdlib.h>

/* What bytes owe to other ranks before the update may read them, or before the list ends. */
enum owed {
    OWES_SHARDS = 1,   /* a sum over the ranks that share a copy */
    OWES_REPLICAS = 2, /* a sum over those that hold the same part */
    OWES_SUM = OWES_SHARDS | OWES_REPLICAS,
    OWES_GATHER = 4,  /* the parts that the other ranks have changed */
    PADDING = 8,      /* nothing: between parameters, zero on every rank, stays so */
    OWES_TENSOR = 16, /* a sum over the slices: each has the gradient of its own tokens */
    OWES_PUSH = 64,   /* to servers, which add up and update */
    CONSUMED = 32     /* nothing: scattered, or on its way in another type */
};

struct segment {
    size_t begin; /* ends where the next begins */
    int owner;    /* a root, or CT_NONE: nothing was written */
    uint8_t owed; /* enum debt */
};

struct verifier {
    const struct ct_plan *plan;
    const struct ct_plan_list *list;
    struct segment *segments;
    int segment_count;
    int *whole; /* by root: the bucket whose gradients it holds until they are scattered; CT_NONE */
    struct ct_error *err;
};

static const struct ct_value *value_of(const struct verifier *v, int value)
{
    return &v->list->program.values[value];
}

static const char *op_name(const struct verifier *v, int op)
{
    return ct_rule_info(v->list->program.ops[op].kind)->name;
}

/* ---- segments ------------------------------------------------------------------------------- */

static int by_begin(const void *left, const void *right)
{
    const struct segment *a = left, *b = right;

    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* The segment that begins at `at`, which is a border. */
static int segment_at(const struct verifier *v, size_t at)
{
    int low = 0, high = v->segment_count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (v->segments[middle].begin < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int cut_segments(struct verifier *v)
{
    int values = v->list->program.value_count, kept = 0;

    v->segments = calloc((size_t)values * 2 + 1, sizeof *v->segments);
    if (v->segments == NULL)
        return ct_error_set(v->err, CT_ENOMEM, "no memory to verify %d values", values);
    for (int i = 0; i < values; i++) {
        struct ct_range range = ct_plan_range(v->list, i);
        v->segments[2 * i].begin = range.begin;
        v->segments[2 * i + 1].begin = range.end;
    }
    qsort(v->segments, (size_t)values * 2, sizeof *v->segments, by_begin);
    for (int i = 0; i < values * 2; i++)
        if (kept == 0 || v->segments[kept - 1].begin != v->segments[i].begin)
            v->segments[kept++].begin = v->segments[i].begin;
    v->segment_count = kept;
    for (int i = 0; i < kept; i++)
        v->segments[i].owner = CT_NONE;
    return 0;
}

static void paint(struct verifier *v, struct ct_range range, int owner, int owed)
{
    for (int i = segment_at(v, range.begin);
         i < v->segment_count && v->segments[i].begin < range.end; i++) {
        v->segments[i].owner = owner;
        v->segments[i].owed = (uint8_t)owed;
    }
}

/* What the list finds in the arena: inputs, and what survived; of the gradients the padding only.
 */
static void paint_start(struct verifier *v)
{
    for (int i = 0; i < v->list->program.value_count; i++) {
        const struct ct_value *value = value_of(v, i);
        enum ct_value_kind kind = value->kind;
        struct ct_range range = ct_plan_range(v->list, i);
        if (value->root != i)
            continue;
        if (kind == CT_VALUE_PARAM || kind == CT_VALUE_STATE || kind == CT_VALUE_BUFFER ||
            kind == CT_VALUE_INPUT)
            paint(v, range, i, 0);
        if (kind != CT_VALUE_GRAD || v->plan->shards > 1)
            continue;
        paint(v, range, i, PADDING);
        for (int p = 0; p < v->plan->param_count; p++) {
            const struct ct_plan_tensor *tensor = &v->plan->tensors[p];
            size_t begin = range.begin + tensor->flat_bytes;
            if (tensor->range < 0)
                continue;
            paint(v, (struct ct_range){begin, begin + tensor->held_bytes}, CT_NONE, 0);
        }
    }
}

/* ---- gradients ------------------------------------------------------------------------------ */

/* An op of `kind` whose first input, or first output, lies in `root`; NULL when there is none. */
static const struct ct_program_op *op_at_root(const struct verifier *v, int kind, bool input,
                                              int root)
{
    const struct ct_program *program = &v->list->program;

    for (int i = 0; i < program->op_count; i++) {
        int value = input ? program->ops[i].in[0] : program->ops[i].out[0];
        if (program->ops[i].kind == kind && program->values[value].root == root)
            return &program->ops[i];
    }
    return NULL;
}

static int bucket_of_part(const struct ct_plan *plan, size_t shard_bytes)
{
    for (int k = 0; k < plan->bucket_count; k++)
        if (ct_plan_part(plan, k, plan->place.part).shard_bytes == shard_bytes)
            return k;
    return CT_NONE;
}

/* What scatters read; where sums are narrow, what they are narrowed from, too. */
static int find_wholes(struct verifier *v)
{
    const struct ct_program *program = &v->list->program;

    v->whole = malloc((size_t)program->value_count * sizeof *v->whole);
    if (v->whole == NULL)
        return ct_error_set(v->err, CT_ENOMEM, "no memory to verify %d values",
                            program->value_count);
    for (int i = 0; i < program->value_count; i++)
        v->whole[i] = CT_NONE;
    for (int i = 0; i < program->op_count && v->list == &v->plan->step; i++) {
        const struct ct_program_op *op = &program->ops[i];
        if (op->kind != CT_OP_REDUCE_SCATTER || op->axis != CT_AXIS_SHARD)
            continue;
        int in = value_of(v, op->in[0])->root, out = value_of(v, op->out[0])->root;
        const struct ct_program_op *from = op_at_root(v, CT_OP_NARROW, false, in);
        const struct ct_program_op *to = op_at_root(v, CT_OP_WIDEN, true, out);
        int part = to != NULL && value_of(v, out)->kind == CT_VALUE_TEMP ? to->out[0] : op->out[0];
        v->whole[in] = bucket_of_part(v->plan, value_of(v, part)->offset_bytes);
        if (from != NULL)
            v->whole[value_of(v, from->in[0])->root] = v->whole[in];
    }
    return 0;
}

static bool is_gradient(const struct verifier *v, int value)
{
    return value_of(v, value)->kind == CT_VALUE_GRAD ||
           v->whole[value_of(v, value)->root] != CT_NONE;
}

/* Whether slices have each a part of what gradient `value` is. */
static bool is_partial(const struct verifier *v, int value)
{
    const struct ct_plan *plan = v->plan;
    struct ct_range range = ct_plan_in_root(value_of(v, value));
    int bucket = v->whole[value_of(v, value)->root];

    if (plan->sliced == NULL || (bucket == CT_NONE && plan->shards > 1))
        return false;
    size_t base = bucket == CT_NONE ? 0 : plan->buckets[bucket].offset_bytes;
    for (int i = 0; i < plan->param_count; i++) {
        const struct ct_plan_tensor *t = &plan->tensors[i];
        struct ct_range own = {t->flat_bytes, t->flat_bytes + t->held_bytes};
        if (plan->sliced[i].partial && t->range >= 0 &&
            ct_range_overlap(own, (struct ct_range){base + range.begin, base + range.end}))
            return true;
    }
    return false;
}

/* ---- one op --------------------------------------------------------------------------------- */

/* Every byte of `value` is there. */
static int check_holds(const struct verifier *v, int value, const char *who, int op)
{
    struct ct_range range = ct_plan_range(v->list, value);
    int root = value_of(v, value)->root;

    for (int i = segment_at(v, range.begin);
         i < v->segment_count && v->segments[i].begin < range.end; i++) {
        int owner = v->segments[i].owner;
        if (owner == root)
            continue;
        if (owner == CT_NONE)
            return ct_error_set(v->err, CT_EBUG,
                                "op %d (%s) reads '%s', of which byte %zu of the "
                                "arena was never written",
                                op, who, value_of(v, value)->name, v->segments[i].begin);
        return ct_error_set(
            v->err, CT_EBUG, "op %d (%s) reads '%s', but byte %zu of the arena holds '%s' by then",
            op, who, value_of(v, value)->name, v->segments[i].begin, value_of(v, owner)->name);
    }
    return 0;
}

/* Whether some bytes that hold `value` owe any of `debt`, padding apart, or owe none of it. */
static bool any_owes(const struct verifier *v, int value, int owed, bool owes)
{
    struct ct_range range = ct_plan_range(v->list, value);
    int root = value_of(v, value)->root;

    for (int i = segment_at(v, range.begin);
         i < v->segment_count && v->segments[i].begin < range.end; i++)
        if (v->segments[i].owner == root && v->segments[i].owed != PADDING &&
            ((v->segments[i].owed & owed) != 0) == owes)
            return true;
    return false;
}

/* What ranks owe each other over an axis. */
static int axis_owed(enum ct_axis axis)
{
    static const int debts[] = {[CT_AXIS_WORLD] = OWES_SUM,
                                [CT_AXIS_DATA] = OWES_SUM,
                                [CT_AXIS_SHARD] = OWES_SHARDS,
                                [CT_AXIS_REPLICA] = OWES_REPLICAS,
                                [CT_AXIS_COPY] = OWES_SHARDS,
                                [CT_AXIS_TENSOR] = OWES_TENSOR,
                                [CT_AXIS_STAGE] = 0};

    return debts[axis];
}

/* Whether `value` lies in the root that the host knows as `io`. */
static bool shares_root(const struct verifier *v, int value, int io)
{
    return io != CT_NONE && value_of(v, value)->root == value_of(v, io)->root;
}

/* Whether other ranks have other samples of the global batch. */
static bool adds_up(const struct verifier *v)
{
    return ct_mesh_size(&v->plan->mesh, CT_AXIS_DATA) > 1;
}

/* Whether `value` is a temporary that the ranks add up: a sum over the global batch. */
static bool is_total(const struct verifier *v, int value)
{
    const struct ct_program *program = &v->list->program;
    const struct ct_value *t = value_of(v, value);

    if (t->kind != CT_VALUE_TEMP || t->dtype != CT_F64 || !adds_up(v))
        return false;
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == CT_OP_ALL_REDUCE &&
            shares_root(v, value, program->ops[i].in[0]))
            return true;
    return false;
}

/* What `value` owes when this rank has computed it alone. */
static int newly_owed(const struct verifier *v, const struct ct_program_op *op, int value)
{
    const struct ct_plan *plan = v->plan;

    if (plan->options.served) /* what is served is added up elsewhere */
        return v->list == &plan->step && is_gradient(v, value) ? OWES_PUSH : 0;
    if (plan->options.world == 1 || v->list != &plan->step)
        return 0;
    if (is_gradient(v, value))
        return (adds_up(v) ? OWES_SUM : 0) | (is_partial(v, value) ? OWES_TENSOR : 0);
    if (shares_root(v, value, v->list->io.loss) || is_total(v, value))
        return OWES_SUM;
    if (shares_root(v, value, v->list->io.sumsq) && !ct_plan_holds_all(plan))
        return OWES_SHARDS;
    if (value_of(v, value)->kind == CT_VALUE_PARAM && op->kind != CT_OP_ALL_GATHER &&
        plan->shards > 1 && !ct_plan_is_sharded(plan, 0))
        return OWES_GATHER;
    return 0;
}

/* Some ranks have added up what they owe each other in `range`. */
static void clear_owed(struct verifier *v, struct ct_range range, int owed)
{
    for (int i = segment_at(v, range.begin);
         i < v->segment_count && v->segments[i].begin < range.end; i++)
        v->segments[i].owed &= (uint8_t)~owed;
}

/* A sum in place over an axis; where it goes to one rank alone, the others owe nothing more. */
static bool is_sum(const struct ct_program_op *op)
{
    return op->kind == CT_OP_ALL_REDUCE || op->kind == CT_OP_REDUCE;
}

/* Before samples are added up, and before the update, slices have added up theirs. */
static int check_tensor(const struct verifier *v, int op, int value)
{
    const struct ct_program_op *o = &v->list->program.ops[op];
    bool sums = (is_sum(o) && o->axis != CT_AXIS_TENSOR) || o->kind == CT_OP_REDUCE_SCATTER;

    if ((!sums && o->stage != CT_STAGE_UPDATE) || !any_owes(v, value, OWES_TENSOR, true))
        return 0;
    return ct_error_set(v->err, CT_EBUG, "op %d (%s) reads '%s' before its sum over the slices", op,
                        op_name(v, op), value_of(v, value)->name);
}

static int check_read(const struct verifier *v, int op, int value)
{
    const struct ct_program_op *o = &v->list->program.ops[op];
    int code = check_holds(v, value, op_name(v, op), op);

    if (code == 0)
        code = check_tensor(v, op, value);
    if (code != 0)
        return code;
    if (is_sum(o) && axis_owed(o->axis) != 0 && any_owes(v, value, axis_owed(o->axis), false))
        return ct_error_set(v->err, CT_EBUG, "op %d (%s) reduces '%s' a second time", op,
                            op_name(v, op), value_of(v, value)->name);
    if (o->kind == CT_OP_PUSH && any_owes(v, value, OWES_PUSH, false))
        return ct_error_set(v->err, CT_EBUG, "op %d (%s) pushes '%s' a second time", op,
                            op_name(v, op), value_of(v, value)->name);
    bool total = is_total(v, value);
    bool own = o->kind == CT_OP_BATCH_DB || o->kind == CT_OP_BATCH_DG; /* to be reduced later */
    bool adds = ((o->kind == CT_OP_SUMSQ || o->kind == CT_OP_SCALE) && value == o->out[0]) ||
                (total && (own || o->kind == CT_OP_ADD));
    if (total && own && any_owes(v, value, OWES_SUM, false))
        return ct_error_set(v->err, CT_EBUG, "op %d (%s) reads '%s' after its reduction", op,
                            op_name(v, op), value_of(v, value)->name);
    if ((o->stage == CT_STAGE_UPDATE || total) && !ct_op_is_comm(o->kind) && !adds &&
        any_owes(v, value, OWES_SUM, true))
        return ct_error_set(v->err, CT_EBUG, "op %d (%s) reads '%s' before its reduction", op,
                            op_name(v, op), value_of(v, value)->name);
    return 0;
}

static int check_write(const struct verifier *v, int op, int value)
{
    const struct ct_program_op *o = &v->list->program.ops[op];
    int owed = newly_owed(v, o, value);

    if (o->kind == CT_OP_REDUCE_SCATTER && check_holds(v, value, "", op) == 0)
        return ct_error_set(v->err, CT_EBUG, "op %d (%s) reduces '%s' a second time", op,
                            op_name(v, op), value_of(v, value)->name);
    if (ct_op_is_comm(o->kind) || o->kind == CT_OP_WIDEN)
        return 0;
    if ((owed & OWES_SUM) != 0 &&
        (any_owes(v, value, OWES_SUM, false) || any_owes(v, value, CONSUMED, true)))
        return ct_error_set(v->err, CT_EBUG, "op %d (%s) writes '%s' after its reduction", op,
                            op_name(v, op), value_of(v, value)->name);
    if ((owed & OWES_PUSH) != 0 && any_owes(v, value, OWES_PUSH, false))
        return ct_error_set(v->err, CT_EBUG, "op %d (%s) writes '%s' after it was pushed", op,
                            op_name(v, op), value_of(v, value)->name);
    if ((owed & OWES_TENSOR) != 0 && any_owes(v, value, OWES_TENSOR, false))
        return ct_error_set(v->err, CT_EBUG, "op %d (%s) writes '%s' after its sum over the slices",
                            op, op_name(v, op), value_of(v, value)->name);
    return 0;
}

/* Whether op gathers `in` from its own place in `out`. */
static bool is_own_part(const struct verifier *v, const struct ct_program_op *op,
                        struct ct_range in, struct ct_range out)
{
    size_t part = in.end - in.begin;
    size_t index = (size_t)ct_mesh_index(&v->plan->mesh, op->axis, v->plan->options.rank);

    return op->kind == CT_OP_ALL_GATHER && in.begin == out.begin + index * part &&
           out.end - out.begin == (size_t)ct_mesh_size(&v->plan->mesh, op->axis) * part;
}

/* Outputs overlap nothing, except output 0 the input that the op may overwrite, and a gathered
 * whole this rank's part of it. */
static int check_overlap(const struct verifier *v, int op)
{
    const struct ct_program_op *o = &v->list->program.ops[op];
    int in_place = ct_rule_info(o->kind)->in_place;

    for (int k = 0; k < CT_OP_MAX_OUT; k++) {
        if (o->out[k] == CT_NONE)
            continue;
        struct ct_range out = ct_plan_range(v->list, o->out[k]);
        for (int i = 0; i < CT_OP_MAX_IN; i++) {
            if (o->in[i] == CT_NONE)
                continue;
            struct ct_range in = ct_plan_range(v->list, o->in[i]);
            bool same = in.begin == out.begin && in.end == out.end;
            if (!ct_range_overlap(out, in) || (k == 0 && i == in_place && same) ||
                is_own_part(v, o, in, out))
                continue;
            return ct_error_set(v->err, CT_EBUG, "op %d (%s) writes '%s' over its operand '%s'", op,
                                op_name(v, op), value_of(v, o->out[k])->name,
                                value_of(v, o->in[i])->name);
        }
        for (int i = 0; i < k; i++)
            if (o->out[i] != CT_NONE && ct_range_overlap(out, ct_plan_range(v->list, o->out[i])))
                return ct_error_set(v->err, CT_EBUG, "op %d (%s) writes '%s' over its result '%s'",
                                    op, op_name(v, op), value_of(v, o->out[k])->name,
                                    value_of(v, o->out[i])->name);
    }
    return 0;
}

/* What the bytes of `value` owe, taken together. */
static int owed_by(const struct verifier *v, int value)
{
    struct ct_range range = ct_plan_range(v->list, value);
    int owed = 0;

    for (int i = segment_at(v, range.begin);
         i < v->segment_count && v->segments[i].begin < range.end; i++)
        owed |= v->segments[i].owed & ~(PADDING | CONSUMED);
    return owed;
}

/* What is added now to a gradient that was scattered, or goes on in another type, is lost. */
static void mark_consumed(struct verifier *v, const struct ct_program_op *op)
{
    if ((op->kind != CT_OP_REDUCE_SCATTER && op->kind != CT_OP_NARROW) ||
        !is_gradient(v, op->in[0]))
        return;
    struct ct_range range = ct_plan_range(v->list, op->in[0]);
    for (int i = segment_at(v, range.begin);
         i < v->segment_count && v->segments[i].begin < range.end; i++)
        if (v->segments[i].owed != PADDING)
            v->segments[i].owed |= CONSUMED;
}

static void write(struct verifier *v, const struct ct_program_op *op, int value)
{
    struct ct_range range = ct_plan_range(v->list, value);
    int root = value_of(v, value)->root;

    if (is_sum(op))
        clear_owed(v, range, axis_owed(op->axis));
    else if (op->kind == CT_OP_REDUCE_SCATTER)
        paint(v, range, root, v->plan->mesh.replicas > 1 ? OWES_REPLICAS : 0);
    else if (ct_plan_is_narrowing(op->kind) || op->kind == CT_OP_WIDEN) /* in another type */
        paint(v, range, root, owed_by(v, op->in[0]));
    else
        paint(v, range, root, newly_owed(v, op, value));
}

static int check_op(struct verifier *v, int op)
{
    const struct ct_program_op *o = &v->list->program.ops[op];
    int code = check_overlap(v, op);

    for (int k = 0; k < CT_OP_MAX_IN && code == 0; k++)
        if (o->in[k] != CT_NONE)
            code = check_read(v, op, o->in[k]);
    for (int k = 0; k < CT_OP_MAX_OUT && code == 0; k++) {
        if (o->out[k] == CT_NONE)
            continue;
        if (ct_program_op_reads_out(o, k))
            code = check_read(v, op, o->out[k]);
        if (code == 0)
            code = check_write(v, op, o->out[k]);
    }
    for (int k = 0; k < CT_OP_MAX_OUT && code == 0; k++)
        if (o->out[k] != CT_NONE)
            write(v, o, o->out[k]);
    if (code == 0 && o->kind == CT_OP_PUSH)
        clear_owed(v, ct_plan_range(v->list, o->in[0]), OWES_PUSH);
    if (code == 0)
        mark_consumed(v, o);
    return code;
}

/* ---- queues and the end --------------------------------------------------------------------- */

/* The ops of each queue so far, and how many of the others the ops of each wait for. */
struct queued {
    int count[CT_QUEUE_COUNT];
    int known[CT_QUEUE_COUNT][CT_QUEUE_COUNT];
};

static const char *why_ordered(const struct verifier *v, const struct ct_program_op *op,
                               const struct ct_program_op *other)
{
    if (ct_plan_conflict(v->list, op, other))
        return "which touches the same bytes";
    return op->stage == CT_STAGE_UPDATE ? "which can fail" : "a call of the same group";
}

/* Op `i` waits for all ops of queue `other` before it whose order with it matters. */
static int check_wait(const struct verifier *v, int i, int other, struct queued *queued)
{
    const struct ct_plan_slot *slot = v->list->slot;
    const struct ct_program_op *ops = v->list->program.ops;
    int wait = slot[i].wait[other], *known = &queued->known[slot[i].queue][other];

    if (wait > queued->count[other])
        return ct_error_set(v->err, CT_EBUG,
                            "op %d (%s) waits for %d ops of another queue, which has %d by then: a "
                            "deadlock",
                            i, op_name(v, i), wait, queued->count[other]);
    *known = CT_MAX(*known, wait);
    for (int j = i - 1, position = queued->count[other]; j >= 0 && position > *known; j--) {
        if (slot[j].queue != other)
            continue;
        if (ct_plan_ordered(v->plan, v->list, &ops[i], &ops[j]))
            return ct_error_set(v->err, CT_EBUG, "op %d (%s) does not wait for op %d (%s), %s", i,
                                op_name(v, i), j, op_name(v, j), why_ordered(v, &ops[i], &ops[j]));
        position--;
    }
    return 0;
}

static int check_queues(const struct verifier *v)
{
    struct queued queued = {0};
    int code = 0;

    for (int i = 0; i < v->list->program.op_count && code == 0; i++) {
        int queue = v->list->slot[i].queue;
        for (int other = 0; other < CT_QUEUE_COUNT && code == 0; other++)
            if (other != queue)
                code = check_wait(v, i, other, &queued);
        queued.count[queue]++;
    }
    return code;
}

/* What outlives the list is intact: outputs for the host, state for the next step. */
static int check_end(const struct verifier *v)
{
    int count = v->list->program.op_count;

    for (int i = 0; i < v->list->program.value_count; i++) {
        const struct ct_value *value = value_of(v, i);
        if (value->root != i || value->kind == CT_VALUE_INPUT || value->kind == CT_VALUE_TEMP ||
            value->kind == CT_VALUE_HOST)
            continue;
        int code = check_holds(v, i, "the end", count);
        if (code != 0)
            return code;
        if (any_owes(v, i, OWES_SUM, true))
            return ct_error_set(v->err, CT_EBUG, "'%s' is not reduced", value->name);
        if (any_owes(v, i, OWES_PUSH, true))
            return ct_error_set(v->err, CT_EBUG, "'%s' is not pushed", value->name);
        if (any_owes(v, i, OWES_GATHER, true))
            return ct_error_set(v->err, CT_EBUG, "'%s' is not gathered", value->name);
    }
    return 0;
}

int ct_plan_verify(const struct ct_plan *plan, const struct ct_plan_list *list,
                   struct ct_error *err)
{
    struct verifier v = {.plan = plan, .list = list, .err = err};
    int code = cut_segments(&v);

    if (code == 0)
        code = find_wholes(&v);
    if (code == 0) {
        paint_start(&v);
        code = check_queues(&v);
    }
    for (int i = 0; i < list->program.op_count && code == 0; i++)
        code = check_op(&v, i);
    if (code == 0)
        code = check_end(&v);
    free(v.segments);
    free(v.whole);
    return code;
}
