/* Schedules: lists of steps, that is which block is sent to which rank, and where it is reduced.
 *
 * Pure: a function of algorithm, rank, world size and root. A backend that moves bytes between
 * pairs of ranks executes the list; the unit test executes it on symbols for all ranks at once.
 *
 * The data of a call is split into chunks, and each chunk into `blocks` blocks. A schedule lists
 * the steps of one chunk, in phases: all sends and receives of a phase run at once; when they are
 * over, its reductions and copies are made in the order of the list; then the next phase begins.
 * Several chunks may be in flight, each in another phase; within a chunk, phases do not overlap.
 *
 *     INPUT   the call's input blocks, never written        SLOT   scratch blocks of this chunk
 *     OUTPUT  the call's output blocks                             (INPUT and OUTPUT may coincide)
 *
 * table of algorithms (n bytes a chunk, p ranks; a is a message, b a byte)
 *
 *   algorithm       for             phases       sent by a rank     order of sums
 *   FLAT            all_reduce      1            (p-1) n            mode's order (sources at once)
 *   DIRECT          all_reduce      2            2n (p-1)/p         mode's order
 *   DIRECT_SCATTER  reduce_scatter  1            n (p-1)/p          mode's order
 *   DIRECT_GATHER   all_gather      1            (p-1) n/p          -
 *   RING            all_reduce      2(p-1)       2n (p-1)/p         block b: from rank b+1 around
 *   RING_SCATTER    reduce_scatter  p-1          n (p-1)/p          the same
 *   RING_GATHER     all_gather      p-1          n (p-1)/p          -
 *   DOUBLING        all_reduce      log2 p       n log2 p           tree; p a power of two
 *   CHAIN           broadcast       p-1          n                  -
 *   BINOMIAL        broadcast       ceil log2 p  n log2 p (root)    -
 *   DISSEMINATION   barrier         ceil log2 p  0                  -
 *   FLAT_ROOT       reduce          1            n (not the root)   mode's order
 *   DIRECT_ROOT     reduce          2            n                  mode's order
 *   GATHER          gather          1            n/p (not the root) -
 *   SCATTER         scatter         1            n (p-1)/p (root)   -
 *   EXCHANGE        all_to_all      1            n (p-1)/p          -
 *   SWAP            all_to_all      1            the same, in place: through slots
 */
#ifndef CT_COLL_ALGORITHM_STEP_SCHEDULE_H
#define CT_COLL_ALGORITHM_STEP_SCHEDULE_H

#include "algorithm/select.h"

enum ct_space { CT_SPACE_INPUT, CT_SPACE_OUTPUT, CT_SPACE_SLOT, CT_SPACE_NONE };

struct ct_place {
    enum ct_space space;
    int index; /* which block, or which slot */
};

enum ct_step_kind {
    CT_STEP_SEND,       /* a to peer */
    CT_STEP_RECV,       /* a from peer */
    CT_STEP_REDUCE_ALL, /* a = the sum over all ranks i: slot i, but for this rank's own: b */
    CT_STEP_REDUCE,     /* a = b + c, in this order */
    CT_STEP_COPY,       /* a = b */
};

struct ct_step {
    enum ct_step_kind kind;
    int phase;
    int peer;
    int block; /* which block's size counts */
    bool last; /* a reduction that completes the sum: an average divides here */
    struct ct_place a, b, c;
};

struct ct_schedule {
    enum ct_algorithm algorithm;
    int rank, world, root;
    int blocks;
    int phases;
    int slots;
    int steps;
    int capacity;
    struct ct_step *step; /* in the order of phases; within a phase moves first, then the rest */
};

/* Return the number of steps of a world's longest schedule. */
int ct_schedule_capacity(int world);

/* Fill `schedule` (its `step` holds `capacity` steps). DOUBLING needs a power of two; every
 * algorithm works for a world of 1, with copies alone. */
void ct_schedule_build(struct ct_schedule *schedule, enum ct_algorithm algorithm, int rank,
                       int world, int root);

#endif
