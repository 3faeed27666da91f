/* Healing: at the start of a round every rank gets the state of the most advanced survivor.
 *
 *   gather    what each rank holds: lineage, step, digest of its state
 *   base      of those whose lineage is the job's, the one at the highest step (lowest rank)
 *   give      where anybody differs: step, position and the state itself, from the base to all
 *   verify    equal digests everywhere
 *
 * Survivors differ by at most one step: a rank completes a step only when all have done their part
 * of it. So at most the step in flight is repeated. */
#ifndef CT_WORKER_HEAL_H
#define CT_WORKER_HEAL_H

#include "worker.h"

/* What one rank brings into the round. */
struct ct_holding {
    uint64_t lineage; /* 0: it holds nothing */
    uint64_t step;
    uint64_t digest;
    uint64_t settled; /* what follows a step (evaluation, checkpoint) is done up to this one */
    uint64_t writes;  /* 1: it has written the metrics so far */
    uint64_t trained; /* 1: it has the result of its last step */
};

/* The rank whose state the round starts from; -1 when none of `lineage` is there. */
int ct_heal_base(const struct ct_holding *all, int world, uint64_t lineage);

/* The first rank whose state has the base's lineage and step but another digest; -1: none. */
int ct_heal_diverged(const struct ct_holding *all, int world, int base);

/* Does anybody hold another state than the base? */
bool ct_heal_needed(const struct ct_holding *all, int world, int base);

/* Is what follows the base's step to be done again? When somebody has not done it yet, or who wrote
 * it down is gone. */
bool ct_heal_redo(const struct ct_holding *all, int world, int base);

/* Collective. *ret_found is false when nobody holds the state that the assignment speaks of; then
 * nothing has changed. CT_EDIVERGED names a rank. On any failure the copy in worker->carry, if
 * there is one, is still this rank's state. */
int ct_heal(struct ct_worker *worker, bool *ret_found, struct ct_error *err);

#endif
