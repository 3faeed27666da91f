/* A sweep: trials of one training with different settings, several side by side, the worst half of
 * which is stopped early (successive halving: Jamieson & Talwalkar, AISTATS 2016).
 *
 *     8 trials   1/8 of the steps   rung 0: 4 go on
 *                1/4                rung 1: 2 go on
 *                1/2                rung 2: 1 goes on to the end
 *
 * A rung is decided when every trial that is left has passed it, by the value of the first
 * evaluation from there on. A trial has a seat while it runs: as many slots as it has workers. One
 * that has passed the rung gives its seat to one that has not, and continues from its checkpoint if
 * it stays; when nobody needs the seat it trains on.
 *
 * Pure: what is to be done follows from what the trials have done, so a sweep that is started again
 * decides the same. */
#ifndef CT_TRAIN_SWEEP_H
#define CT_TRAIN_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

enum { CT_SWEEP_TRIALS = 256, CT_SWEEP_RUNGS = 8 };

struct ct_sweep {
    int trials;
    int seats;   /* that may run side by side */
    int rungs;   /* ct_sweep_rungs, or 0: every trial runs to its end */
    bool higher; /* values are the better, the higher they are */
};

struct ct_sweep_trial {
    bool running;                 /* its processes live */
    bool stopping;                /* and were told to end */
    bool finished, failed;        /* it counts as having passed all rungs */
    int passed;                   /* rungs */
    double value[CT_SWEEP_RUNGS]; /* at those; NaN is the worst */
};

enum ct_sweep_order {
    CT_SWEEP_WAIT,
    CT_SWEEP_START, /* anew, or from its checkpoint */
    CT_SWEEP_PAUSE, /* stop: its seat is needed */
    CT_SWEEP_STOP   /* stop for good */
};

struct ct_sweep_decision {
    enum ct_sweep_order order;
    int out; /* the rung at which it was among the worst half; -1: it is not */
};

/* Return the number of rungs for `trials` trials: how often they can be halved, down to one. */
int ct_sweep_rungs(int trials);

/* Note the evaluation after `step` of `steps` steps in the rungs that it is the first one of. */
void ct_sweep_note(const struct ct_sweep *sweep, struct ct_sweep_trial *trial, uint64_t step,
                   uint64_t steps, double value);

/* Decide what each trial has to do now. Returns how many have neither ended nor been sorted out: 0
 * when the sweep is over, but for those that are stopping. */
int ct_sweep_decide(const struct ct_sweep *sweep, const struct ct_sweep_trial *trials,
                    struct ct_sweep_decision *ret);

/* ---- the grid -------------------------------------------------------------------------------- */

enum { CT_SWEEP_AXES = 8, CT_SWEEP_VALUES = 64, CT_SWEEP_TEXT = 1024 };

/* "optim.lr=1e-3,3e-4": a key and its values. A comma in a value is written ",,". */
struct ct_sweep_axis {
    char text[CT_SWEEP_TEXT]; /* what the others point to */
    const char *key;          /* "optim.lr" */
    const char *value[CT_SWEEP_VALUES];
    int count;
};

/* Parse an axis. Returns NULL, or what is wrong with it. */
const char *ct_sweep_axis_parse(struct ct_sweep_axis *ret, const char *text);

/* Return the number of trials of a grid; CT_SWEEP_TRIALS + 1 for more than that. */
int ct_sweep_grid_size(const struct ct_sweep_axis *axes, int count);

/* Return the value of axis `axis` in trial `trial`: the last axis changes fastest. */
const char *ct_sweep_grid_value(const struct ct_sweep_axis *axes, int count, int trial, int axis);

#endif
