/* Collective operations on a sharded state (zero1, fsdp, tensor parallelism, stages).
 *
 *   save     rank 0 decides, all write (saving.h)
 *   leave    a stop or the end of a round, agreed after a step: save, publish, then leave
 *   lost     a lost rank's shard has no other copy: nobody holds the state any more, and
 *            the next round begins from the published checkpoint
 *
 * Where each rank holds all, nothing here is called or does anything. */
#ifndef CT_TRAINER_PARTS_H
#define CT_TRAINER_PARTS_H

#include "ps.h"
#include "worker.h"

/* Does each rank hold a part only? */
static inline bool ct_parts_held(const struct ct_worker *worker)
{
    return !ct_plan_holds_all(&worker->plan);
}

/* Do ranks leave together, because none has the whole state? */
static inline bool ct_parts_together(const struct ct_worker *worker)
{
    return ct_parts_held(worker) || ct_ps_used(worker);
}

/* Whether this rank may end by itself when a stop is asked for; one that does not have the whole
 * state tells the others with its next step. */
static inline bool ct_parts_may_stop(const struct ct_worker *worker)
{
    return !ct_parts_together(worker) || worker->stopping;
}

/* Rank 0's word is everybody's. Collective. */
int ct_parts_decide(struct ct_worker *worker, int64_t *word, struct ct_error *err);

/* Somebody wishes to leave after this step: all save. If one of them was asked to stop, all stop:
 * worker->stopping. Otherwise the round ends: publish before, so that nothing is lost. Collective.
 */
int ct_parts_leave(struct ct_worker *worker, struct ct_error *err);

/* Rank 0 says from where a round goes on that nobody holds a state for. */
void ct_parts_tell(const struct ct_worker *worker);

#endif
