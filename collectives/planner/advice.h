/* Layouts that fit: the guides' decision tree, computed.
 *
 *     does it fit with a whole copy per worker?   ddp
 *     no: shard the optimizer state               zero1
 *     no: shard the parameters between steps      fsdp, grad
 *     no: shard them within the step, too         fsdp, full
 *     no: tensor parallelism inside of a node     tensor, with each of these
 *     no: pipeline parallelism, a stage per node    pipeline, with ddp and zero1
 *
 * On each rung every micro-batch that divides a worker's samples is tried with every kind of
 * recomputation (with tensor or pipeline parallelism, powers of two: none and block), and one copy
 * over all workers or one per node. A layout that is not possible (heads that do not divide) is
 * skipped. A rung's best is the fastest that fits, or, when none fits, the one that needs the least
 * memory. The advice is the first rung that fits: the simplest. */
#ifndef CT_PLANNER_ADVICE_H
#define CT_PLANNER_ADVICE_H

#include "collectives/planner/estimate.h"

enum { CT_ADVICE_RUNGS = 6 };

struct ct_rung {
    struct ct_layout layout;
    struct ct_estimate estimate;
    const char *name;
    bool fits;
    int tried; /* layouts that are possible; 0: none is, and the rest of the rung is empty */
};

struct ct_advice {
    struct ct_rung rungs[CT_ADVICE_RUNGS];
    int simplest; /* the first rung that fits; -1: none does */
    int quickest; /* the fastest that fits, if it is notably faster, or `simplest`; -1 */
};

/* Evaluate all rungs. 0, or the error of a plan that could not be built. */
int ct_advise(const struct ct_project *project, struct ct_advice *ret, struct ct_error *err);

#endif
