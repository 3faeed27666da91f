/* Stragglers: ranks that the others wait for, step after step.
 *
 * All ranks take equally long for a step, as they synchronise in its collectives; the one that
 * waits least there is the last one. Each rank measures its own waiting, so clocks need not agree.
 *
 *              waits in the collectives of a step
 *      rank 0  ########
 *      rank 1  #######          the cost of the step: what the middle one of the
 *      rank 2                   others waits more than the last one
 *      rank 3  #########
 *
 * A step counts against the last rank when this cost more than COST per cent of the step, and a
 * millisecond: less does not matter. A rank with more than SHARE per cent of the last WINDOW steps
 * against it is a straggler. A rank that becomes slow is found within 50 steps; a single long wait
 * makes no rank a straggler.
 *
 * Steps of the warm-up do not count: caches, memory and files are cold, at some ranks longer than
 * at others. And where cores are oversubscribed, chance decides which rank gets one last. A rank
 * whose peers are starved of cores too is a straggler only if it costs that much more than the
 * starvation by which it exceeds theirs explains; half of theirs is taken to fall into their
 * waiting. Its peers are the other ranks of its node; if there are none, all other ranks. Pure. */
#ifndef CT_TRAIN_STRAGGLER_H
#define CT_TRAIN_STRAGGLER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_STRAGGLER_BATCH = 8, /* steps that are added at a time */
    CT_STRAGGLER_WINDOW = 40,
    CT_STRAGGLER_SHARE = 70,
    CT_STRAGGLER_COST = 10,
    CT_STRAGGLER_COST_US = 1000,
    CT_STRAGGLER_WARMUP_US = 5000000,
    CT_STRAGGLER_STARVED = 5, /* per cent of the time that ranks wait for a core */
};

/* A rank's sample of BATCH steps; floats only, as it is all-gathered as floats. */
struct ct_straggler_sample {
    float waited_us[CT_STRAGGLER_BATCH]; /* for other ranks; negative: not known */
    float starved;                       /* the share of its time that it waited for a core */
    float node;                          /* where it runs */
};

struct ct_straggler {
    struct {
        int last;
        float cost_us, took_us;
        float starved_us, peers_starved_us; /* the last one; the middle one of its peers */
    } steps[CT_STRAGGLER_WINDOW];
    double warmed_us; /* steps of so long have gone before those that count */
    uint32_t count;   /* steps that were added so far */
    double cost_us;   /* of all that counted against a rank, also those of the warm-up */
};

struct ct_straggler_finding {
    int rank;
    int share; /* per cent of the steps that count against it */
    int cost;  /* per cent of their time */
};

/* Reset: ranks are assigned anew from now on. */
void ct_straggler_reset(struct ct_straggler *straggler);

/* Add CT_STRAGGLER_BATCH steps: a sample of each rank, and took_us[BATCH], from the end of one step
 * to that of the next. `room` holds world floats. A step that is not known of all is left out. */
void ct_straggler_add(struct ct_straggler *straggler, int world,
                      const struct ct_straggler_sample *samples, const float *took_us, float *room);

/* Return whether there is a straggler now, and which. */
bool ct_straggler_find(const struct ct_straggler *straggler,
                       struct ct_straggler_finding *ret_finding);

#endif
