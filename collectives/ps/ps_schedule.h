/* The schedule of steps: which worker may begin which step, when gradients are summed, and after
 * which step all leave. Pure.
 *
 *     staleness 0   a step's update is made when all workers have pushed its gradient, in their
 *                   order; the next step begins from it (bulk-synchronous)
 *     staleness s   a worker's gradient is an update of its own, made when it arrives; a worker
 *                   may be at most s steps ahead of the slowest present one (stale-synchronous:
 *                   Ho et al., NIPS 2013)
 *
 *     worker 0   |--0--|--1--|--2--| .  .  waits: 3 - 1 > s
 *     worker 1   |-------0-------|------1------
 *
 * `pushed` is the number of steps that a worker has completed: all of a gradient has arrived. It
 * may begin step n when min(pushed) + s >= n. With s > 0 a lost worker blocks no other one; with s
 * = 0 its gradient is missing. */
#ifndef CT_COLL_PS_SCHEDULE_H
#define CT_COLL_PS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct ct_ps_progress {
    uint64_t pushed;  /* steps completed */
    uint64_t granted; /* 1 + the last step that it was allowed to begin; 0: none yet */
    bool present;
};

struct ct_ps_schedule {
    int workers;
    uint64_t staleness;
    uint64_t leave_at;               /* 0: no vote to leave */
    struct ct_ps_progress *progress; /* of each worker; the caller's */
};

/* Begin a round of `workers` at `step`; `progress` has room for all. */
void ct_ps_schedule_init(struct ct_ps_schedule *schedule, int workers, uint64_t staleness,
                         uint64_t step);

/* The update that is due after a worker's gradient is complete. */
enum ct_ps_due {
    CT_PS_NOT_DUE, /* none: others are missing */
    CT_PS_SUM_DUE, /* with the sum of all gradients of the step */
    CT_PS_ONE_DUE, /* with this gradient */
};

/* Note that a worker's gradient of `step` is complete. Return false if that is not the step that it
 * has begun. */
bool ct_ps_schedule_push(struct ct_ps_schedule *schedule, int worker, uint64_t step,
                         enum ct_ps_due *ret_due);

/* Return whether a worker may begin `step`, and note that it has. */
bool ct_ps_schedule_begin(struct ct_ps_schedule *schedule, int worker, uint64_t step);

/* Vote that all leave: after the last step that any worker has begun. */
void ct_ps_schedule_vote_leave(struct ct_ps_schedule *schedule);

/* Remove a worker that is lost, or has left. */
void ct_ps_schedule_remove(struct ct_ps_schedule *schedule, int worker);

/* Return the step from which the next round continues if this one breaks off: the last whose update
 * is complete; with staleness, the last that worker 0 has completed. */
uint64_t ct_ps_schedule_step(const struct ct_ps_schedule *schedule);

#endif
