/* The states of this node's workers between two rounds.
 *
 *     start --- READY(0) ---> idle -- RECOVERED(g) -> able --- READY(g) ---> ready
 *                                                      ^                       |
 *                                                      `----- next round ------'
 *
 * An able worker survives the end of the round; a ready one has left the round and reports its
 * state. The node promises the most advanced of these. An idle one still loads its data: it holds
 * no state and has made no step in its round, so no node waits for it. ctworker is idle from its
 * start, without a message. Pure. */
#ifndef CT_LAUNCH_SURVIVORS_H
#define CT_LAUNCH_SURVIVORS_H

#include <stdbool.h>
#include <stdint.h>

struct ct_survivor {
    bool able;
    bool idle;
    bool ready;
    uint64_t recovered; /* the newest round whose base it holds */
    uint64_t lineage;   /* 0: it holds nothing */
    uint64_t step;
    uint64_t digest;
};

/* Return whether any worker is able to survive the round. */
bool ct_survivors_any(const struct ct_survivor *all, uint32_t count);

/* Return the most advanced of those that are ready, by lineage, then step; NULL when none holds a
 * state. */
const struct ct_survivor *ct_survivors_best(const struct ct_survivor *all, uint32_t count);

/* Return whether all workers hold the base of round `generation`. */
bool ct_survivors_recovered(const struct ct_survivor *all, uint32_t count, uint64_t generation);

/* Return whether a worker was idle or without the common state of round `generation` when it left.
 * Then no worker has made a step in that round. */
bool ct_survivors_untouched(const struct ct_survivor *all, uint32_t count, uint64_t generation);

#endif
