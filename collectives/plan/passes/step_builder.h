/* Building a list from a model: shared by list_builder.c and pipeline.c. Inside of collectives/plan
 * only. */
#ifndef CT_COLL_PLAN_STEP_BUILDER_H
#define CT_COLL_PLAN_STEP_BUILDER_H

#include "collectives/plan/passes/passes.h"
#include "collectives/plan/passes/stage_cut.h"

enum { CT_MAKER_MAX_LEVELS = 32, CT_MAKER_ALL_PARTS = -1 };

/* What a micro-batch yields: views, a gradient for each parameter, then loss, correct, and what
 * each batch norm tells. */
struct ct_maker_yield {
    int *view;
};

/* One addition of the tree: into += from. */
struct ct_maker_merge {
    const struct ct_maker_yield *into, *from;
};

/* A micro-batch on its way. */
struct ct_maker_micro {
    const struct ct_maker_yield *yield;
    struct ct_maker_merge *merges; /* what follows its part of a yield */
    int merge_count;
    int *map; /* by value of the model: the list's value; unmapped until it is needed */
};

struct ct_maker {
    struct ct_plan *plan;
    const struct ct_model *model; /* of a pipeline: the ops of this stage */
    const struct ct_cut *cut;     /* NULL: the model is whole */
    struct ct_plan_list *list;
    struct ct_program *program; /* of the list */

    int yields;       /* views of a yield */
    int *map;         /* of the micro-batch at hand, see above */
    int *once;        /* by value of the model: what one micro-batch makes for all, or unmapped */
    int *last_writer; /* by index in a yield: the model's op that writes it last */
    int flat;         /* the flat parameters */
    int *params;      /* by parameter: its view of them; CT_NONE: another stage's */
    int *buffers;     /* by buffer */
    int part;         /* ops of this part alone are copied */

    struct ct_maker_yield result; /* the step's own gradients and sums */
    struct ct_maker_micro *micros;
    const struct ct_maker_yield
        *stack[CT_MAKER_MAX_LEVELS]; /* subtrees that wait for their sibling, smallest on top */
    int depth;
};

/* A list that begins: parameters and buffers are there, and nothing else. */
struct ct_maker ct_maker_of(struct ct_plan *plan, const struct ct_model *model,
                            const struct ct_cut *cut, struct ct_plan_list *list);

/* The list is complete: 0, or the first failure; `which` list it is goes in front. */
int ct_maker_finish(struct ct_maker *mk, const char *which, struct ct_error *err);

/* Begin micro-batch `number` of a step: its inputs, parameters and yields get their places. */
void ct_maker_begin(struct ct_maker *mk, int number);

/* Copy the model's ops [first, end) of part mk->part as micro-batch `number`. */
void ct_maker_copy(struct ct_maker *mk, int first, int end, int number);

/* The first op of the model from `at` on that wants a sum over all micro-batches, or the end. */
int ct_maker_next_total(const struct ct_maker *mk, int at);

/* The sum that op `at` of the model wants, over the micro-batches and the ranks. */
void ct_maker_share(struct ct_maker *mk, int at);

/* The value that stands for the model's `value` in micro-batch `number`. */
int ct_maker_value(struct ct_maker *mk, int number, int value);

/* to += from */
void ct_maker_add(struct ct_maker *mk, int to, int from);

/* pipeline: the micro-batches of a step in the order of the schedule, with messages between them;
 * then the gradients of tied parameters are added up. */
void ct_maker_pipeline(struct ct_maker *mk);

/* The forward pass of an evaluation, with messages between its parts. */
void ct_maker_pipeline_forward(struct ct_maker *mk);

#endif
