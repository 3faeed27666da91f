/* Which bytes of the arena the ops of a placed list read and write: by this alone passes order ops,
 * and the verifier checks that order. Pure. */
#ifndef CT_PLAN_ACCESS_H
#define CT_PLAN_ACCESS_H

#include "collectives/plan/plan.h"

/* Whether ops of the kind give what they read in a type of 16 bits. */
static inline bool ct_plan_is_narrowing(int kind)
{
    return kind == CT_OP_NARROW || kind == CT_OP_NARROW_STOCHASTIC;
}

/* Bytes of the arena, [begin, end). */
struct ct_range {
    size_t begin, end;
};

/* Where a value lies in its root. */
static inline struct ct_range ct_plan_in_root(const struct ct_value *value)
{
    return (struct ct_range){value->offset_bytes, value->offset_bytes + value->bytes};
}

static inline bool ct_range_meet(struct ct_range a, struct ct_range b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* Where value `value` (not CT_NONE) of a placed list lies. */
struct ct_range ct_plan_range(const struct ct_plan_list *list, int value);

/* Whether two ops of a placed list touch the same bytes, at least one of them writing: then their
 * order matters. */
bool ct_plan_conflict(const struct ct_plan_list *list, const struct ct_program_op *a,
                      const struct ct_program_op *b);

#endif
