/* See tensor_extents.h.
 *
 *     tensor        [ ............................ ]
 *     flat range    bucket 3 [ 0 | 1 ]  bucket 4 [ 0 | 1 ]      two ranks a copy
 *     rank 1 holds           [   xxx             xxx      ]     a piece for each bucket it meets
 *
 * Of a range that is not sharded a rank holds each tensor in one piece, unless slices share it:
 * then in as many as its split repeats. */
#include "collectives/plan/tensor_extents.h"

#include "base/assert.h"

/* What several ranks hold is shared out in multiples of this: a page of most file systems. */
enum { OWN_BYTES = 4096 };

bool ct_plan_holds_all(const struct ct_plan *plan)
{
    return ct_mesh_size(&plan->mesh, CT_AXIS_COPY) == 1;
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

/* What this rank holds of a bucket's part of the present tensor, which lies in a range that is
 * sharded. */
static bool intersect(struct ct_plan_walk *walk, int bucket)
{
    const struct ct_plan *plan = walk->plan;
    const struct ct_plan_tensor *t = &plan->tensors[walk->tensor];
    struct ct_plan_part own = ct_plan_part(plan, bucket, plan->place.part);
    size_t low = CT_MAX(t->flat_bytes, own.flat_bytes);
    size_t high = CT_MIN(t->flat_bytes + t->held_bytes, own.flat_bytes + own.bytes);

    if (low >= high)
        return false;
    walk->at = low - t->flat_bytes;
    walk->until = high - t->flat_bytes;
    walk->arena = ct_plan_range_offset(plan, t->range) + own.shard_bytes + (low - own.flat_bytes);
    return true;
}

/* The next run of bytes in the arena, of this tensor or the next; false behind the last one. */
static bool next_run(struct ct_plan_walk *walk)
{
    const struct ct_plan *plan = walk->plan;

    for (; walk->tensor < walk->end; walk->tensor++, walk->bucket = 0) {
        const struct ct_plan_tensor *t = &plan->tensors[walk->tensor];
        if (ct_plan_is_sharded(plan, t->range)) {
            while (walk->bucket < plan->bucket_count)
                if (intersect(walk, walk->bucket++))
                    return true;
        } else if (walk->bucket++ == 0) {
            walk->at = 0;
            walk->until = t->held_bytes;
            walk->arena = t->offset_bytes;
            return true;
        }
    }
    return false;
}

/* Which ranks hold the same: replicas, parts unless it is sharded, slices unless it is split, and
 * another stage if it is tied. */
static void count_copies(const struct ct_plan *plan, const struct ct_plan_tensor *t,
                         struct ct_plan_piece *piece)
{
    const struct ct_mesh *mesh = &plan->mesh;
    const struct ct_mesh_place *place = &plan->place;
    bool parts = !ct_plan_is_sharded(plan, t->range), slices = t->split.size == 0;

    piece->copies = mesh->replicas * (parts ? mesh->shards : 1) * (slices ? mesh->tensor : 1);
    piece->copy = place->replica;
    piece->copy = parts ? piece->copy * mesh->shards + place->part : piece->copy;
    piece->copy = slices ? piece->copy * mesh->tensor + place->slice : piece->copy;
    if (t->twin != CT_PLAN_NO_STAGE) {
        piece->copies *= 2;
        piece->copy = piece->copy * 2 + (place->stage == t->twin);
    }
}

/* Where byte `at` of what a slice holds lies in the tensor, and how many bytes follow it there; 0
 * where it is padding, of which then `*ret_skip` bytes follow. */
static size_t place_of(const struct ct_plan *plan, const struct ct_plan_tensor *t, size_t at,
                       size_t *ret_at, size_t *ret_skip)
{
    size_t unit = (size_t)t->split.inner * ct_dtype_size(t->dtype);
    size_t size = (size_t)t->split.size, slices = (size_t)plan->mesh.tensor;

    *ret_skip = 0;
    *ret_at = at;
    if (size == 0)
        return t->held_bytes - at;
    size_t each = (size + slices - 1) / slices, first = each * (size_t)plan->place.slice;
    size_t real = CT_MIN(each, size - CT_MIN(first, size)) * unit;
    size_t repeat = at / (each * unit), within = at % (each * unit);
    *ret_at = repeat * size * unit + first * unit + within;
    *ret_skip = each * unit - within;
    return within < real ? real - within : 0;
}

bool ct_plan_walk_next(struct ct_plan_walk *walk, struct ct_plan_piece *ret)
{
    while (walk->at < walk->until || next_run(walk)) {
        const struct ct_plan_tensor *t = &walk->plan->tensors[walk->tensor];
        size_t at, skip, left = place_of(walk->plan, t, walk->at, &at, &skip);
        size_t bytes = CT_MIN(left, walk->until - walk->at);
        *ret = (struct ct_plan_piece){
            .tensor = walk->tensor, .at = at, .arena = walk->arena, .bytes = bytes};
        count_copies(walk->plan, t, ret);
        skip = bytes > 0 ? bytes : CT_MIN(skip, walk->until - walk->at);
        walk->at += skip;
        walk->arena += skip;
        if (bytes > 0)
            return true;
    }
    return false;
}

/* Where number `copy` of those that share a piece begins to write. */
static size_t share_begin(const struct ct_plan_piece *piece, int copy)
{
    size_t at = piece->bytes / (size_t)piece->copies * (size_t)copy;

    return copy == piece->copies ? piece->bytes : at / OWN_BYTES * OWN_BYTES;
}

bool ct_plan_own(struct ct_plan_piece *piece)
{
    size_t low = share_begin(piece, piece->copy), high = share_begin(piece, piece->copy + 1);

    piece->at += low;
    piece->arena += low;
    piece->bytes = high - low;
    return low < high;
}
