/* The bytes of each named tensor that a rank holds, in any layout: gathering tensors, spreading
 * them and writing checkpoints use nothing else.
 *
 *     struct ct_plan_walk walk;
 *     struct ct_plan_piece piece;
 *
 *     for (ct_plan_walk_init(&walk, plan); ct_plan_walk_next(&walk, &piece);)
 *         ...     piece.bytes bytes of plan->tensors[piece.tensor] from piece.at on
 *
 * Tensors are the logical ones, row-major. The parts of all ranks together cover every byte of
 * every tensor, some of them several times; those of ct_plan_own exactly once. Pure. */
#ifndef CT_COLL_PLAN_TENSOR_EXTENTS_H
#define CT_COLL_PLAN_TENSOR_EXTENTS_H

#include "collectives/plan/plan.h"

/* Does each rank hold every byte of every tensor? */
bool ct_plan_holds_all(const struct ct_plan *plan);

struct ct_plan_piece {
    int tensor;   /* its number in plan->tensors */
    size_t at;    /* where in the tensor it begins, in bytes */
    size_t arena; /* where in this rank's arena */
    size_t bytes;
    int copies, copy; /* so many ranks hold these bytes; this one is number `copy` of them */
};

struct ct_plan_walk {
    const struct ct_plan *plan; /* borrowed */
    int tensor, end;            /* tensors from the present one up to `end` */
    int bucket;                 /* of the present one: where to look next */
    size_t at, until;           /* bytes of held_bytes that are still to be given */
    size_t arena;               /* where `at` lies */
};

/* Walk over all tensors, or over one. */
void ct_plan_walk_init(struct ct_plan_walk *walk, const struct ct_plan *plan);
void ct_plan_walk_tensor(struct ct_plan_walk *walk, const struct ct_plan *plan, int tensor);

/* The next piece that plan->options.rank holds, rising by tensor; false behind the last one. */
bool ct_plan_walk_next(struct ct_plan_walk *walk, struct ct_plan_piece *ret);

/* Leave of a piece what this rank is to write of it: ranks that hold the same bytes share the work.
 * False when nothing is left. */
bool ct_plan_own(struct ct_plan_piece *piece);

#endif
