/* See shard.h: the update, which each rank makes for its parts.
 *
 *     sgd params, moments, grads     sgd params part, moments part, grads part
 *
 * An element-wise op over a flat range becomes one over each piece of it that is this rank's. Where
 * parameters are held whole between steps, each bucket is gathered once its last piece has changed.
 */
#include "collectives/plan/passes/shard.h"

#include "base/assert.h"

/* A run of elements that this rank updates, in the flat range and in sharded ones. */
struct piece {
    size_t flat_bytes, shard_bytes, bytes;
};

/* This rank's share of `range` within `bucket`; bytes 0 when it has none. */
static struct piece piece_of(const struct ct_sharder *s, int bucket, struct ct_range range)
{
    struct ct_plan_part part = ct_plan_part(s->plan, bucket, s->plan->place.part);
    size_t begin = CT_MAX(range.begin, part.flat_bytes);
    size_t end = CT_MIN(range.end, part.flat_bytes + part.bytes);

    if (begin >= end)
        return (struct piece){0};
    return (struct piece){begin, part.shard_bytes + begin - part.flat_bytes, end - begin};
}

static int piece_view(struct ct_sharder *s, int value, struct piece piece)
{
    const struct ct_value *v = &s->from->values[value];
    size_t begin = ct_shard_splits(s, v) ? piece.shard_bytes : piece.flat_bytes;

    return ct_shard_view(s, s->map[v->root], (struct ct_range){begin, begin + piece.bytes},
                         v->name);
}

static void emit_piece(struct ct_sharder *s, const struct ct_program_op *op, struct piece piece,
                       bool first)
{
    struct ct_program_op copy = *op;

    if (piece.bytes == 0)
        return;
    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (op->in[k] != CT_NONE)
            copy.in[k] = ct_shard_is_flat(s, op->in[k]) ? piece_view(s, op->in[k], piece)
                                                        : s->map[op->in[k]];
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        if (op->out[k] != CT_NONE)
            copy.out[k] = ct_shard_is_flat(s, op->out[k]) ? piece_view(s, op->out[k], piece)
                                                          : s->map[op->out[k]];
    if (op->kind == CT_OP_SUMSQ)
        copy.attr.accumulate = op->attr.accumulate || !first;
    ct_program_emit(s->to, copy);
}

/* Whether `op` reads or writes parameters that this rank holds whole, where parts lie apart. */
static bool touches_whole(const struct ct_sharder *s, const struct ct_program_op *op)
{
    bool touches = false;

    for (int k = 0; k < CT_OP_MAX_IN; k++)
        touches |=
            ct_shard_is_flat(s, op->in[k]) && !ct_shard_splits(s, &s->from->values[op->in[k]]);
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        touches |=
            ct_shard_is_flat(s, op->out[k]) && !ct_shard_splits(s, &s->from->values[op->out[k]]);
    return touches;
}

static void gather_updated(struct ct_sharder *s, int bucket)
{
    int params = ct_shard_root(s->from, CT_VALUE_PARAM);

    ct_shard_emit(s, CT_OP_ALL_GATHER, CT_AXIS_SHARD, ct_shard_own(s, params, bucket),
                  ct_shard_view(s, s->map[params], ct_shard_bucket(s->plan, bucket), "params"));
}

/* An element-wise op over `range` becomes one over each piece of it that is this rank's; where
 * nothing lies between them, over several at once. */
static void split(struct ct_sharder *s, int i, struct ct_range range)
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

void ct_shard_update(struct ct_sharder *s, int i)
{
    const struct ct_program_op *op = &s->from->ops[i];
    int flat = CT_NONE;

    for (int k = 0; k < CT_OP_MAX_IN; k++)
        flat = ct_shard_is_flat(s, op->in[k]) ? op->in[k] : flat;
    if (flat == CT_NONE)
        emit_piece(s, op, (struct piece){.bytes = 1}, true);
    else
        split(s, i, ct_plan_in_root(&s->from->values[flat]));
}
