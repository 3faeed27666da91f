/* The cost of a plan for a rank: memory by kind, communication by axis, work. Read from the
 * finished lists, so it is exactly what the executor will use, not an estimate.
 *
 *     arena   [ parameters | buffers | moments | gradients | at the peak of a step ... ]
 *                                                            activations, copies of parameters,
 *                                                            whole gradients, temporaries, staging,
 *                                                            and unused gaps of the placement */
#ifndef CT_PLAN_MEASURE_H
#define CT_PLAN_MEASURE_H

#include "collectives/plan/plan.h"

enum ct_memory_kind {
    CT_MEMORY_PARAMS,      /* parameters and buffers, as they survive steps */
    CT_MEMORY_MOMENTS,     /* of the optimizer, and the average */
    CT_MEMORY_GRADS,       /* reduced gradients, and those on their way there */
    CT_MEMORY_COPIES,      /* parameters put together for their readers */
    CT_MEMORY_ACTIVATIONS, /* from a forward pass to its backward pass */
    CT_MEMORY_TEMPS,       /* within a pass */
    CT_MEMORY_STAGING,     /* written or read by the host: samples, labels, sums */
    CT_MEMORY_UNUSED,      /* between values that do not fit side by side */
    CT_MEMORY_KIND_COUNT
};

/* Return its name: "parameters", "moments", ... */
const char *ct_memory_kind_name(enum ct_memory_kind kind);

/* The collectives of one axis in a step. */
struct ct_axis_traffic {
    int64_t calls;
    double bytes; /* of the unsharded data that are reduced, gathered or scattered */
    double sent;  /* by a rank, in rings: 2 (W - 1) / W of all-reduced bytes, (W - 1) / W of
                    others; of an exchange all that it sends */
};

struct ct_measure {
    size_t memory[CT_MEMORY_KIND_COUNT]; /* bytes; together plan->arena_bytes */
    bool in_eval;                        /* an evaluation, not a step, needs the most */
    struct ct_axis_traffic traffic[CT_AXIS_COUNT];
    double flop; /* of a step */
    int64_t parameters;
    int ops; /* of the step's list */
};

/* Return the bytes of a communication op: of the unsharded data, or of all messages of an
 * exchange. */
double ct_plan_comm_bytes(const struct ct_plan *plan, const struct ct_program_op *op);

/* Measure a plan. 0 or CT_ENOMEM. */
int ct_plan_measure(const struct ct_plan *plan, struct ct_measure *ret, struct ct_error *err);

#endif
