/* What the ops of a list read and write, as values and, once it is placed, as bytes of the arena:
 * passes order ops by these alone, and the verifier checks that order. Pure. */
#ifndef CT_PLAN_ACCESS_H
#define CT_PLAN_ACCESS_H

#include "collectives/plan/plan.h"

/* Return whether ops of the kind convert to a type of 16 bits. */
static inline bool ct_plan_is_narrowing(int kind)
{
    return kind == CT_OP_NARROW || kind == CT_OP_NARROW_STOCHASTIC;
}

/* Bytes of the arena, [begin, end). */
struct ct_range {
    size_t begin, end;
};

/* Return the bytes of a value in its root. */
static inline struct ct_range ct_plan_in_root(const struct ct_value *value)
{
    return (struct ct_range){value->offset_bytes, value->offset_bytes + value->bytes};
}

/* Return whether two ranges have bytes in common. */
static inline bool ct_range_overlap(struct ct_range a, struct ct_range b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* Return the bytes of value `value` (not CT_NONE) of a placed list. */
struct ct_range ct_plan_range(const struct ct_plan_list *list, int value);

/* Return whether two ops of a placed list touch the same bytes, at least one of them writing: then
 * their order matters. */
bool ct_plan_conflict(const struct ct_plan_list *list, const struct ct_program_op *a,
                      const struct ct_program_op *b);

/* Return whether an op is a call of the group of its axis: all members make such calls in the same
 * order. */
bool ct_plan_calls_group(const struct ct_program_op *op);

/* Return whether the order of two ops of a placed list matters: because of their bytes,
 * because they are calls of one group, or because one is of the update, which begins when no
 * message and no call between slices can fail any more. */
bool ct_plan_ordered(const struct ct_plan *plan, const struct ct_plan_list *list,
                     const struct ct_program_op *a, const struct ct_program_op *b);

/* Return whether one of two ops of a list that need not be placed writes a value that the other one
 * reads or writes. */
bool ct_plan_depend(const struct ct_program *program, const struct ct_program_op *a,
                    const struct ct_program_op *b);

/* The ops of a list beside which a call may go on: what it reads lives up to `last`, what it writes
 * from `first` on. */
struct ct_plan_flight {
    int first, last;
};

/* Return the flight of op `i` of a list that need not be placed. It is more than the op
 * itself, when the plan overlaps, for calls between slices, up to what depends on them; for
 * messages, a run of the stage before and behind; for a unit's gradients, until those of the next
 * one are scattered. */
struct ct_plan_flight ct_plan_flight(const struct ct_plan *plan, const struct ct_program *program,
                                     int i);

/* Return whether an op is of model parallelism, between slices or stages, and communicates. */
static inline bool ct_plan_is_model_comm(const struct ct_program_op *op)
{
    return (op->axis == CT_AXIS_TENSOR || op->axis == CT_AXIS_STAGE) && ct_plan_calls_group(op);
}

#endif
