/* The bytes of each named tensor that a rank holds, in any layout: gathering tensors, broadcasting
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

/* Return whether each rank holds every byte of every tensor. */
bool ct_plan_holds_all(const struct ct_plan *plan);

struct ct_plan_piece {
    int tensor;   /* index in plan->tensors */
    size_t at;    /* offset in the tensor, bytes */
    size_t arena; /* offset in this rank's arena */
    size_t bytes;
    int copies, copy; /* number of ranks that hold these bytes; index of this one */
};

struct ct_plan_walk {
    const struct ct_plan *plan; /* borrowed */
    int tensor, end;            /* tensors from the present one up to `end` */
    int bucket;                 /* of the present one: the next to visit */
    size_t at, until;           /* the bytes of held_bytes that are left */
    size_t arena;               /* offset of `at` in the arena */
};

/* Begin a walk over all tensors, or over one. */
void ct_plan_walk_init(struct ct_plan_walk *walk, const struct ct_plan *plan);
void ct_plan_walk_tensor(struct ct_plan_walk *walk, const struct ct_plan *plan, int tensor);

/* Find the next part that plan->options.rank holds, in the order of tensors. Return false after the
 * last one. */
bool ct_plan_walk_next(struct ct_plan_walk *walk, struct ct_plan_piece *ret);

/* Reduce a part to the bytes of it that this rank writes: ranks that hold the same bytes divide the
 * work. Return false when none are left. */
bool ct_plan_own(struct ct_plan_piece *piece);

#endif
