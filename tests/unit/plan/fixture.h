/* A plan for tests: a relu MLP 6-9-7-4, SGD with momentum, 4 ranks, 4 micro-batches of 5 rows,
 * small buckets, invariant. */
#ifndef CT_TESTS_PLAN_FIXTURE_H
#define CT_TESTS_PLAN_FIXTURE_H

#include "collectives/plan/passes/passes.h"
#include "collectives/plan/plan.h"

extern const struct ct_model_spec plan_spec;
extern const struct ct_plan_options plan_options;

/* Build the plan; aborts the test on failure. */
void plan_init(struct ct_plan *plan, const struct ct_plan_options *options);

/* The number of the `nth` op (from 0) of `kind` in the step's list; -1 when there is none. */
int find_op(const struct ct_plan *plan, int kind, int nth);

/* How many ops of `kind` a list has. */
int count_kind(const struct ct_program *program, int kind);

/* An op with these inputs (CT_NONE for fewer). */
struct ct_program_op op_reading(int kind, int a, int b, int c, int d);

/* Planted faults: put op `from` of the step's list where op `to` is; leave an op out. Places and
 * waits stay as they are. */
void move_op(struct ct_plan *plan, int from, int to);
void drop_op(struct ct_plan *plan, int op);

/* The verifier objects to the step with a sentence that has `part` in it. Frees the plan. */
void expect_objection(struct ct_plan *plan, const char *part);

#endif
