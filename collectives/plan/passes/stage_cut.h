/* Pipeline parallelism: cutting a model into stages.
 *
 *     forward    wte wpe | h.0 | h.1 | h.2 | ln_f head          five units
 *     cut in 3   [ wte wpe  h.0 ] [ h.1  h.2 ] [ ln_f head ]    by cost
 *                           x1 -->        x2 -->                activations between the parts
 *     backward             <-- d x1      <-- d x2
 *
 * A unit lies between two places where parameters of another layer or block begin and only one
 * temporary is live. Parts are runs of units, of costs (FLOP) as equal as possible.
 *
 * Backward ops follow their forward ops: one belongs behind a cut if it touches values that only
 * parts behind it hold, in front of it likewise; of the remaining places the one where the fewest
 * bytes cross is chosen, and one value crosses there at most.
 *
 * A parameter can be used by two parts: a tied embedding. Each of them holds a copy.
 *
 * Pure, like all of plan. Tables are in the given arena. */
#ifndef CT_COLL_PLAN_STAGE_CUT_H
#define CT_COLL_PLAN_STAGE_CUT_H

#include "base/arena.h"
#include "base/error.h"
#include "graph/model.h"

/* Parts that hold something: none (CT_NONE twice), one (twice the same) or two. */
struct ct_cut_holders {
    int first, last;
};

struct ct_cut {
    int parts;
    int *places;       /* [parts - 1]: which border of the model each cut is, from 0 */
    int *borders;      /* [parts]: the last forward op of each part */
    int *carried;      /* [parts]: the value that goes from part c - 1 to part c; CT_NONE for 0 */
    int *carried_back; /* [parts]: the gradient that goes from part c to c - 1; CT_NONE: none */
    int *part_of;      /* by op of the model; ct_cut_assign */
    struct ct_cut_holders *holders; /* by value of the model, of parameters and buffers; likewise */
};

/* Choose the cuts of the forward pass: places, borders, carried. 0, CT_ECONFIG when the model has
 * fewer units than `parts`, or CT_ENOMEM. */
int ct_cut_choose(struct ct_cut *cut, const struct ct_model *model, int parts,
                  struct ct_arena *arena, struct ct_error *err);

/* The same cuts of a model with the same parameters: that for evaluations. */
int ct_cut_like(struct ct_cut *cut, const struct ct_model *model, const struct ct_cut *like,
                struct ct_arena *arena, struct ct_error *err);

/* What part each op of the finished model (forward, then backward) belongs to: part_of, holders and
 * carried_back. The forward ops are those that the cuts were chosen from. 0, CT_EUNSUPPORTED with
 * the op that cannot be in one part, or CT_ENOMEM. */
int ct_cut_assign(struct ct_cut *cut, const struct ct_model *model, struct ct_arena *arena,
                  struct ct_error *err);

/* Leave the model the ops of the parts of `stage` (part % stages) alone, part_of likewise. Values
 * and tables stay; the first op of the stage that adds to a gradient writes it. */
void ct_cut_keep(struct ct_cut *cut, struct ct_model *model, int stage, int stages);

#endif
