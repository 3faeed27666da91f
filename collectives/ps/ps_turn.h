/* The order of steps: which worker may begin which step, when gradients are summed, and after which
 * step all leave. Pure.
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
 * may begin step n when min(pushed) + s >= n. A lost worker blocks nobody with s > 0; with s = 0
 * its gradient is missing. */
#ifndef CT_COLL_PS_TURN_H
#define CT_COLL_PS_TURN_H

#include <stdbool.h>
#include <stdint.h>

struct ct_ps_seat {
    uint64_t pushed;  /* steps completed */
    uint64_t granted; /* 1 + the last step that it was let begin; 0: none yet */
    bool here;
};

struct ct_ps_turn {
    int workers;
    uint64_t staleness;
    uint64_t leave_at;        /* 0: nobody wants to leave */
    struct ct_ps_seat *seats; /* of each worker; the caller's */
};

/* A round of `workers` begins at `step`. Seats are empty. */
void ct_ps_turn_init(struct ct_ps_turn *turn, int workers, uint64_t staleness, uint64_t step);

/* What is to be done after a worker's gradient is complete. */
enum ct_ps_due {
    CT_PS_NOT_DUE, /* others are missing */
    CT_PS_SUM_DUE, /* all gradients of the step are there: add them up, update */
    CT_PS_ONE_DUE, /* update with this one */
};

/* Its gradient of `step` is complete: only that of the step it is at counts, false otherwise. */
bool ct_ps_turn_push(struct ct_ps_turn *turn, int worker, uint64_t step, enum ct_ps_due *ret_due);

/* May it begin `step`? If so it is noted. */
bool ct_ps_turn_begin(struct ct_ps_turn *turn, int worker, uint64_t step);

/* Somebody wishes that all leave: after the first step that nobody has begun to follow. */
void ct_ps_turn_wish(struct ct_ps_turn *turn);

/* A worker is lost, or has left. */
void ct_ps_turn_lose(struct ct_ps_turn *turn, int worker);

/* The step that all go on from when the round breaks off: the last whose update is complete; with
 * staleness, that which worker 0 has completed. */
uint64_t ct_ps_turn_step(const struct ct_ps_turn *turn);

#endif
