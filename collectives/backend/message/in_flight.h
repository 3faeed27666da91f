/* The in-flight window: which chunks of a collective may run when several pipeline steps
 * (pipelined.h) are listed at a time, so that the next chunks are on the wire while one is reduced.
 * Pure; it counts moves, and knows no bytes.
 *
 *     step     base   base+1   base+2   base+3        listed: their moves queue at the connections
 *     chunk 0   p3                                    a chunk's phase starts when
 *     chunk 1   p2      p3                              - its phase before is complete
 *     chunk 2   p1      p2       p3                     - its slots are free: the chunk that had
 *     chunk 3   p0      p1       p2       p3              them before has read them
 *     chunk 4           p0       p1       p2
 *
 * A slot that is written in one phase is last read at most `held` phases later (step_schedule.h),
 * so chunk c may begin phase p when chunk c - CT_PIPELINED_SLOT_SETS has completed phase p + held;
 * the picture is of held = 1. Both belong to earlier steps, as chunks begin `spacing` steps apart:
 * the oldest step can always advance, and no cycle of waits exists as long as each pair of ranks
 * moves its bytes in the order of the steps. */
#ifndef CT_COLL_MESSAGE_IN_FLIGHT_H
#define CT_COLL_MESSAGE_IN_FLIGHT_H

#include "backend/message/pipelined.h"

enum { CT_IN_FLIGHT_STEPS = 4 };

struct ct_in_flight {
    const struct ct_pipelined *pipelined;
    size_t base, end; /* steps that are listed, and not all complete */
    int phases_max;
    int *open; /* [step % CT_IN_FLIGHT_STEPS][phase]: moves still to come; or COMPLETE */
};

/* Make a window for the collectives of `pipelined`. Call _deinit in either case. 0 or
 * CT_ENOMEM. */
int ct_in_flight_init(struct ct_in_flight *window, const struct ct_pipelined *pipelined);
void ct_in_flight_deinit(struct ct_in_flight *window);

/* Restart the window: `pipelined` has begun a collective. */
void ct_in_flight_begin(struct ct_in_flight *window);

/* List the next step if there is one and the window has room: the caller then adds its moves.
 * Return false otherwise. */
bool ct_in_flight_next_step(struct ct_in_flight *window, size_t *ret_at);

/* Add a move of this chunk's phase. */
void ct_in_flight_add_move(struct ct_in_flight *window, struct ct_chunk_phase work);

/* Return whether the moves of this chunk's phase may start. */
bool ct_in_flight_may_start(const struct ct_in_flight *window, struct ct_chunk_phase work);

/* Count a move of this chunk's phase as done. */
void ct_in_flight_move_done(struct ct_in_flight *window, struct ct_chunk_phase work);

/* Find a chunk's phase that may start and whose moves are all done, and mark it complete: the
 * caller makes its sums and copies. Return false if there is none. */
bool ct_in_flight_next_ready(struct ct_in_flight *window, struct ct_chunk_phase *ret_work);

/* Return whether all steps of the collective are complete. */
bool ct_in_flight_is_complete(const struct ct_in_flight *window);

#endif
