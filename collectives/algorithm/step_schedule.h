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
 * table of algorithms (n bytes a chunk, p ranks, r = ceil log2 p rounds)
 *
 *   algorithm         for             phases  sent by a rank      peers  order of sums
 *   FLAT              all_reduce      1       (p-1) n             p-1    mode's order
 *   DIRECT            all_reduce      2       2n (p-1)/p          p-1    mode's order
 *   DIRECT_SCATTER    reduce_scatter  1       n (p-1)/p           p-1    mode's order
 *   DIRECT_GATHER     all_gather      1       (p-1) n/p           p-1    -
 *   RING              all_reduce      2(p-1)  2n (p-1)/p          2      block b: from b+1 around
 *   RING_SCATTER      reduce_scatter  p-1     n (p-1)/p           2      the same
 *   RING_GATHER       all_gather      p-1     n (p-1)/p           2      -
 *   DOUBLING          all_reduce      r       n r                 r      tree, else any (F)
 *   CHAIN             broadcast       p-1     n                   2      -
 *   BINOMIAL          broadcast       r       n r (root)          r      -
 *   DISSEMINATION     barrier         r       0                   2r     -
 *   FLAT_ROOT         reduce          1       n (not the root)    p-1    mode's order
 *   DIRECT_ROOT       reduce          2       n                   p-1    mode's order
 *   GATHER            gather          1       n/p (not the root)  p-1    -
 *   SCATTER           scatter         1       n (p-1)/p (root)    p-1    -
 *   EXCHANGE          all_to_all      1       n (p-1)/p           p-1    -
 *   SWAP              all_to_all      1       the same, in place: through slots
 *   BRUCK             all_reduce      r+1     (p-1) n             2r     mode's order
 *   BRUCK_GATHER      all_gather      r+1     n (p-1)/p           2r     -
 *   ROUTED            all_reduce      2r      n r/2 + n           2r     mode's order
 *   ROUTED_SCATTER    reduce_scatter  r       n r/2               2r     mode's order
 *   ROUTED_ROOT       reduce          2r      n r/2 + n/2         2r     mode's order
 *   BINOMIAL_ROOT     reduce          r+1     p n/2 at most       r      mode's order
 *   BINOMIAL_GATHER   gather          r+1     n/2 at most         r      -
 *   BINOMIAL_SCATTER  scatter         r+1     n (p-1)/p (root)    r      -
 *
 *   HALVING           all_reduce      2r      2n (p-1)/p          r      tree, else any (F)
 *   DOUBLE_TREE       all_reduce      2r      2n at most          6      any
 *   DOUBLE_TREE_BROADCAST  broadcast  r+1     n at most           6      -
 *   TREE_ROOT         reduce          r       n                   r      tree
 *   CHAIN_REDUCE      all_reduce      2(p-1)  2n                  2      rank order, one by one
 *   CHAIN_ROOT        reduce          p       n                   2      rank order, one by one
 *
 * (F) The tree of INVARIANT where p is a power of two. Else the ranks beyond the largest power of
 * two below p give their data to others first and get the result last: 2 more phases and n more
 * bytes. TREE_ROOT and CHAIN_ROOT add a phase and a peer where the root is not the rank at which
 * they end.
 *
 * All peers of those with r or 2r are 2^k ranks to the right or to the left, so that a rank that
 * uses all of them has 2r connections (a root of a broadcast, of a reduce: at most two more). In
 * the mode's order: an element is summed at one rank, from all ranks' data, by ct_reduce_buffers.
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
    CT_STEP_REDUCE_ALL, /* a = the sum over all ranks: their slots, but for this rank's own: b */
    CT_STEP_REDUCE,     /* a = b + c, in this order */
    CT_STEP_COPY,       /* a = b */
};

struct ct_step {
    enum ct_step_kind kind;
    int phase;
    int peer;
    int block;   /* which block's size counts */
    bool joined; /* one message with the block of the step before, if both are as long as a slot;
                  * the same at both ends */
    bool last;   /* a reduction that completes the sum: an average divides here */
    struct ct_place a, b, c;
};

struct ct_schedule {
    enum ct_algorithm algorithm;
    int rank, world, root;
    int blocks;
    int phases;
    int slots;     /* the same at all ranks */
    int held;      /* phases from the first writing of a slot to its last reading, at most */
    bool streams;  /* chunks follow each other through all phases: short ones are better */
    bool leftward; /* REDUCE_ALL: slot j is of the rank j to the left; else of rank j */
    int steps;
    int capacity;
    struct ct_step *step; /* in the order of phases; within a phase moves first, then the rest */
};

/* Return ceil log2 of a world: the rounds in which all can hear of all. */
int ct_schedule_rounds(int world);

/* Return the number of steps, of slots, that no schedule of a world exceeds. */
int ct_schedule_capacity(int world);
int ct_schedule_slots(int world);

/* Return the slot that CT_STEP_REDUCE_ALL reads for another rank. */
int ct_schedule_source(const struct ct_schedule *schedule, int rank);

/* Return how many steps of the pipeline (pipelined.h) a chunk begins behind the one before, so that
 * `sets` sets of slots do: what is read last has been read when the next chunk writes there. */
int ct_schedule_spacing(const struct ct_schedule *schedule, int sets);

/* Fill `schedule` (its `step` holds `capacity` steps). DOUBLING needs a power of two; every
 * algorithm works for a world of 1, with copies alone. */
void ct_schedule_build(struct ct_schedule *schedule, enum ct_algorithm algorithm, int rank,
                       int world, int root);

#endif
