/* Building a list from a model: shared by list_builder.c and pipeline.c. Inside of collectives/plan
 * only. */
#ifndef CT_COLL_PLAN_LIST_BUILDER_H
#define CT_COLL_PLAN_LIST_BUILDER_H

#include "collectives/plan/passes/passes.h"
#include "collectives/plan/passes/stage_split.h"

enum { CT_LIST_BUILDER_MAX_LEVELS = 32, CT_LIST_BUILDER_ALL_PARTS = -1 };

/* The outputs of a micro-batch: views, a gradient for each parameter, then loss, correct, and the
 * statistics of each batch norm. */
struct ct_list_yield {
    int *view;
};

/* One addition of the tree: into += from. */
struct ct_list_merge {
    const struct ct_list_yield *into, *from;
};

/* A micro-batch that is being built. */
struct ct_list_micro {
    const struct ct_list_yield *yield;
    struct ct_list_merge *merges; /* that follow its part of a yield */
    int merge_count;
    int *map; /* by value of the model: the list's value; unmapped until it is needed */
};

struct ct_list_builder {
    struct ct_plan *plan;
    const struct ct_model *model;       /* of a pipeline: the ops of this stage */
    const struct ct_stage_split *split; /* NULL: the model is whole */
    struct ct_plan_list *list;
    struct ct_program *program; /* of the list */

    int yields;       /* views of a yield */
    int *map;         /* of the present micro-batch, see above */
    int *once;        /* by value of the model: made once for all micro-batches, or unmapped */
    int *last_writer; /* by index in a yield: the model's op that writes it last */
    int flat;         /* the flat parameters */
    int *params;      /* by parameter: its view of them; CT_NONE: another stage's */
    int *buffers;     /* by buffer */
    int part;         /* only ops of this part are copied */

    struct ct_list_yield result; /* the step's own gradients and sums */
    struct ct_list_micro *micros;
    const struct ct_list_yield *stack
        [CT_LIST_BUILDER_MAX_LEVELS]; /* subtrees that wait for their sibling, smallest on top */
    int depth;
};

/* Begin a list that has the parameters and buffers, and nothing else. */
struct ct_list_builder ct_list_builder_init(struct ct_plan *plan, const struct ct_model *model,
                                            const struct ct_stage_split *split,
                                            struct ct_plan_list *list);

/* Finish the list. 0, or the first failure, with `which` list it is in front of the sentence. */
int ct_list_builder_finish(struct ct_list_builder *lb, const char *which, struct ct_error *err);

/* Begin micro-batch `number` of a step: map its inputs, parameters and yields. */
void ct_list_builder_begin(struct ct_list_builder *lb, int number);

/* Copy the model's ops [first, end) of part mk->part as micro-batch `number`. */
void ct_list_builder_copy(struct ct_list_builder *lb, int first, int end, int number);

/* Return the first op of the model from `at` on that needs a sum over all micro-batches, or the
 * end. */
int ct_list_builder_next_total(const struct ct_list_builder *lb, int at);

/* Emit the sum over micro-batches and ranks that op `at` of the model needs. */
void ct_list_builder_total(struct ct_list_builder *lb, int at);

/* Return the list's value for the model's `value` in micro-batch `number`. */
int ct_list_builder_value(struct ct_list_builder *lb, int number, int value);

/* Emit to += from. */
void ct_list_builder_add(struct ct_list_builder *lb, int to, int from);

/* pipeline: emit the micro-batches of a step in the order of the schedule, with messages between
 * them, then the sums of the gradients of tied parameters. */
void ct_list_builder_pipeline(struct ct_list_builder *lb);

/* pipeline: emit the forward pass of an evaluation, with messages between its parts. */
void ct_list_builder_pipeline_forward(struct ct_list_builder *lb);

#endif
