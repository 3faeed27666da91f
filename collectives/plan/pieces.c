/* See pieces.h.
 *
 *     tensor        [ ............................ ]
 *     flat range    bucket 3 [ 0 | 1 ]  bucket 4 [ 0 | 1 ]      two ranks a copy
 *     rank 1 holds           [   xxx             xxx      ]     a piece for each bucket it meets
 *
 * Of a range that is not sharded a rank holds each tensor in one piece. */
#include "collectives/plan/pieces.h"

#include "base/assert.h"

/* What several ranks hold is shared out in multiples of this: a page of most file systems. */
enum { OWN_BYTES = 4096 };

bool ct_plan_holds_all(const struct ct_plan *plan)
{
    return plan->shards == 1;
}

void ct_plan_walk_tensor(struct ct_plan_walk *walk, const struct ct_plan *plan, int tensor)
{
    CT_ASSERT(tensor >= 0 && tensor < plan->tensor_count);
    *walk = (struct ct_plan_walk){.plan = plan, .tensor = tensor, .end = tensor + 1};
}

void ct_plan_walk_init(struct ct_plan_walk *walk, const struct ct_plan *plan)
{
    *walk = (struct ct_plan_walk){.plan = plan, .end = plan->tensor_count};
}

/* What this rank holds of a tensor that lies in a range of which it has a part: within one bucket.
 */
static bool meet(const struct ct_plan *plan, int tensor, int bucket, struct ct_plan_piece *ret)
{
    const struct ct_plan_tensor *t = &plan->tensors[tensor];
    struct ct_plan_part own = ct_plan_part(plan, bucket, plan->options.rank);
    size_t low = CT_MAX(t->flat_bytes, own.flat_bytes);
    size_t high = CT_MIN(t->flat_bytes + t->bytes, own.flat_bytes + own.bytes);

    if (low >= high)
        return false;
    *ret = (struct ct_plan_piece){.tensor = tensor,
                                  .at = low - t->flat_bytes,
                                  .arena = ct_plan_range_offset(plan, t->range) + own.shard_bytes +
                                           (low - own.flat_bytes),
                                  .bytes = high - low,
                                  .copies = plan->options.world / plan->shards,
                                  .copy = plan->options.rank / plan->shards};
    return true;
}

bool ct_plan_walk_next(struct ct_plan_walk *walk, struct ct_plan_piece *ret)
{
    const struct ct_plan *plan = walk->plan;

    for (; walk->tensor < walk->end; walk->tensor++, walk->bucket = 0) {
        const struct ct_plan_tensor *t = &plan->tensors[walk->tensor];
        if (!ct_plan_is_sharded(plan, t->range)) {
            *ret = (struct ct_plan_piece){.tensor = walk->tensor++,
                                          .arena = t->offset_bytes,
                                          .bytes = t->bytes,
                                          .copies = plan->options.world,
                                          .copy = plan->options.rank};
            return true;
        }
        while (walk->bucket < plan->bucket_count)
            if (meet(plan, walk->tensor, walk->bucket++, ret))
                return true;
    }
    return false;
}

/* Where number `copy` of those that share a piece begins to write. */
static size_t cut(const struct ct_plan_piece *piece, int copy)
{
    size_t at = piece->bytes / (size_t)piece->copies * (size_t)copy;

    return copy == piece->copies ? piece->bytes : at / OWN_BYTES * OWN_BYTES;
}

bool ct_plan_own(struct ct_plan_piece *piece)
{
    size_t low = cut(piece, piece->copy), high = cut(piece, piece->copy + 1);

    piece->at += low;
    piece->arena += low;
    piece->bytes = high - low;
    return low < high;
}
