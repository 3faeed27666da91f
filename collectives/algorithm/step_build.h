/* What builders of schedules (step_schedule.h) are made of: places, and steps behind the last one.
 */
#ifndef CT_COLL_ALGORITHM_STEP_BUILD_H
#define CT_COLL_ALGORITHM_STEP_BUILD_H

#include "algorithm/step_schedule.h"

#include "base/assert.h"

static inline struct ct_place ct_place_input(int block)
{
    return (struct ct_place){CT_SPACE_INPUT, block};
}

static inline struct ct_place ct_place_output(int block)
{
    return (struct ct_place){CT_SPACE_OUTPUT, block};
}

static inline struct ct_place ct_place_slot(int index)
{
    return (struct ct_place){CT_SPACE_SLOT, index};
}

static inline struct ct_place ct_place_none(void)
{
    return (struct ct_place){CT_SPACE_NONE, 0};
}

/* Add a step; phases never decrease. */
void ct_step_send(struct ct_schedule *s, int phase, int peer, struct ct_place from, int block);
void ct_step_recv(struct ct_schedule *s, int phase, int peer, struct ct_place to, int block);

/* One more block of the message of the step before, which lies behind that one's. */
void ct_step_send_joined(struct ct_schedule *s, int phase, int peer, struct ct_place from,
                         int block);
void ct_step_recv_joined(struct ct_schedule *s, int phase, int peer, struct ct_place to, int block);

void ct_step_copy(struct ct_schedule *s, int phase, struct ct_place to, struct ct_place from,
                  int block);

/* to = a + b, in this order; `last`: the sum is complete. */
void ct_step_reduce(struct ct_schedule *s, int phase, struct ct_place to, struct ct_place a,
                    struct ct_place b, int block, bool last);

/* The sum over all ranks: `mine`, and the slots of the others (ct_schedule_source). */
void ct_step_reduce_all(struct ct_schedule *s, int phase, struct ct_place to, struct ct_place mine,
                        int block);

/* Return the rank `distance` to the right, which may be negative. */
static inline int ct_step_right(const struct ct_schedule *s, int distance)
{
    return ((s->rank + distance) % s->world + s->world) % s->world;
}

/* ---- builders, by file -----------------------------------------------------------------------*/

/* step_bruck.c */
void ct_build_bruck(struct ct_schedule *s);
void ct_build_bruck_gather(struct ct_schedule *s);
void ct_build_routed(struct ct_schedule *s);
void ct_build_routed_scatter(struct ct_schedule *s);
void ct_build_routed_root(struct ct_schedule *s);

/* step_binomial.c; to_root: the blocks of slots 0 of all go to the root, from `phase` on, where
 * they become its output. */
void ct_gather_to_root(struct ct_schedule *s, int phase);
void ct_build_binomial(struct ct_schedule *s);
void ct_build_binomial_gather(struct ct_schedule *s);
void ct_build_binomial_scatter(struct ct_schedule *s);
void ct_build_binomial_root(struct ct_schedule *s);

/* step_chain.c */
void ct_build_chain(struct ct_schedule *s);
void ct_build_chain_reduce(struct ct_schedule *s);
void ct_build_chain_root(struct ct_schedule *s);

/* step_halving.c */
void ct_build_doubling(struct ct_schedule *s);
void ct_build_halving(struct ct_schedule *s);

/* step_tree.c */
void ct_build_double_tree(struct ct_schedule *s);
void ct_build_double_tree_broadcast(struct ct_schedule *s);
void ct_build_tree_root(struct ct_schedule *s);

#endif
