/* The in-flight window: which chunks of a collective may run when several of its steps (waves) are
 * listed at a time (pipelined.h), so that the next chunks are on the wire while one is reduced.
 * Pure; it counts, and knows no bytes.
 *
 *     wave     base   base+1   base+2   base+3        listed: their moves queue at the connections
 *     chunk 0   p3                                    a turn starts when
 *     chunk 1   p2      p3                              - the chunk's turn before it is through
 *     chunk 2   p1      p2       p3                     - its slots are free: the chunk that had
 *     chunk 3   p0      p1       p2       p3              them before is two phases ahead
 *     chunk 4           p0       p1       p2
 *
 * A slot is written in one phase and last read in the next one at the latest, so chunk c may begin
 * phase p when chunk c - CT_WAVE_SETS is through with phase p + 1. Both turns are in earlier waves:
 * the oldest wave can always advance, and no cycle of waits exists as long as each pair of ranks
 * moves its bytes in the order of the waves. */
#ifndef CT_COLL_MESSAGE_IN_FLIGHT_H
#define CT_COLL_MESSAGE_IN_FLIGHT_H

#include "backend/message/pipelined.h"

enum { CT_WINDOW_WAVES = 4 };

struct ct_window {
    const struct ct_wave *wave;
    size_t base, end; /* waves that are listed, and not all through */
    int phases_max;
    int *left; /* [wave % CT_WINDOW_WAVES][phase]: moves of that turn to come; THROUGH: done */
};

/* For collectives of this wave: 0 or CT_ENOMEM. To be given to _deinit in either case. */
int ct_window_init(struct ct_window *window, const struct ct_wave *wave);
void ct_window_deinit(struct ct_window *window);

/* The wave has begun a collective. */
void ct_window_begin(struct ct_window *window);

/* Take up the next wave, when one is left and there is room: then its moves are to be added. */
bool ct_window_list(struct ct_window *window, size_t *ret_at);

/* A move of this turn is to come; it may start; it is over. */
void ct_window_add(struct ct_window *window, struct ct_wave_turn turn);
bool ct_window_may_start(const struct ct_window *window, struct ct_wave_turn turn);
void ct_window_over(struct ct_window *window, struct ct_wave_turn turn);

/* A turn whose moves are all over and that may start: the caller makes its sums and copies, and it
 * is through. False when there is none. */
bool ct_window_next_due(struct ct_window *window, struct ct_wave_turn *ret_turn);

/* Are all waves of the collective through? */
bool ct_window_is_through(const struct ct_window *window);

#endif
