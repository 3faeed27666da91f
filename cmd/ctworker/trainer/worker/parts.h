/* Collective operations on a sharded state (zero1, fsdp, tensor parallelism, stages).
 *
 *   save     rank 0 decides, all write (saving.h)
 *   leave    a stop or the end of a round, agreed after a step: save, publish, then leave
 *   lost     a lost rank's shard has no other copy: the state is lost, and the next round
 *            begins from the published checkpoint
 *
 * Not used where each rank holds all. */
#ifndef CT_TRAINER_PARTS_H
#define CT_TRAINER_PARTS_H

#include "ps.h"
#include "worker.h"

/* Return whether each rank holds only a shard. */
static inline bool ct_parts_held(const struct ct_worker *worker)
{
    return !ct_plan_holds_all(&worker->plan);
}

/* Return whether ranks leave together, because none has the whole state. */
static inline bool ct_parts_together(const struct ct_worker *worker)
{
    return ct_parts_held(worker) || ct_ps_used(worker);
}

/* Return whether this rank may end by itself when a stop is requested; one without the whole state
 * votes with its next step. */
static inline bool ct_parts_may_stop(const struct ct_worker *worker)
{
    return !ct_parts_together(worker) || worker->stopping;
}

/* Leave after this step, as some rank has voted: all save. If one of them was requested to stop,
 * all stop: worker->stopping. Otherwise the round ends, after a publication, so that no step is
 * lost. Collective. 0, or a code with its sentence. */
int ct_parts_leave(struct ct_worker *worker, struct ct_error *err);

/* Log, on rank 0, from where a round continues for which no rank holds a state. */
void ct_parts_report_source(const struct ct_worker *worker);

#endif
