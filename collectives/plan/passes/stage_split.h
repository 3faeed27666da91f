/* Pipeline parallelism: splitting a model into stages.
 *
 *     forward    wte wpe | h.0 | h.1 | h.2 | ln_f head          five units
 *     3 parts    [ wte wpe  h.0 ] [ h.1  h.2 ] [ ln_f head ]    by cost
 *                           x1 -->        x2 -->                activations between the parts
 *     backward             <-- d x1      <-- d x2
 *
 * A unit lies between two places where parameters of another layer or block begin and only one
 * temporary is live. Parts are runs of units, of costs (FLOP) as equal as possible.
 *
 * Backward ops follow their forward ops: one belongs behind a border if it touches values that
 * only parts behind it hold, in front of it likewise; of the remaining positions the one where the
 * fewest bytes cross is chosen, and one value crosses there at most.
 *
 * A parameter can be used by two parts: a tied embedding. Each of them holds a copy.
 *
 * Pure, like all of plan. Tables are in the given arena. */
#ifndef CT_COLL_PLAN_STAGE_SPLIT_H
#define CT_COLL_PLAN_STAGE_SPLIT_H

#include "base/arena.h"
#include "base/error.h"
#include "graph/model.h"

/* The parts that hold a value: none (CT_NONE twice), one (twice the same) or two. */
struct ct_stage_holders {
    int first, last;
};

struct ct_stage_split {
    int parts;
    int *places;       /* [parts - 1]: which unit border of the model each part border is, from 0 */
    int *borders;      /* [parts]: the last forward op of each part */
    int *carried;      /* [parts]: the value that goes from part c - 1 to part c; CT_NONE for 0 */
    int *carried_back; /* [parts]: the gradient that goes from part c to c - 1; CT_NONE: none */
    int *part_of;      /* by op of the model; ct_stage_split_assign */
    struct ct_stage_holders
        *holders; /* by value of the model, of parameters and buffers; likewise */
};

/* Choose the borders of the forward pass: places, borders, carried. 0, CT_ECONFIG when the model
 * has fewer units than `parts`, or CT_ENOMEM. */
int ct_stage_split_choose(struct ct_stage_split *split, const struct ct_model *model, int parts,
                          struct ct_arena *arena, struct ct_error *err);

/* Choose the same borders in a model with the same parameters: that for evaluations. 0 or
 * CT_ENOMEM. */
int ct_stage_split_like(struct ct_stage_split *split, const struct ct_model *model,
                        const struct ct_stage_split *like, struct ct_arena *arena,
                        struct ct_error *err);

/* Assign each op of the finished model (forward, then backward) to a part: part_of, holders and
 * carried_back. The forward ops are those that the borders were chosen from. 0, CT_EUNSUPPORTED
 * with the op that cannot be in one part, or CT_ENOMEM. */
int ct_stage_split_assign(struct ct_stage_split *split, const struct ct_model *model,
                          struct ct_arena *arena, struct ct_error *err);

/* Keep only the ops of the parts of `stage` (part % stages) in the model and in part_of. Values and
 * tables stay; the first op of the stage that adds to a gradient writes it. */
void ct_stage_split_keep(struct ct_stage_split *split, struct ct_model *model, int stage,
                         int stages);

#endif
