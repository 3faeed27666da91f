/* Shared by the two halves of the tensor parallelism pass: tensor_pass.c decides what is sharded,
 * tensor_emit.c writes the ops of a shard. Inside of collectives/plan only. */
#ifndef CT_COLL_PLAN_TENSOR_PASS_H
#define CT_COLL_PLAN_TENSOR_PASS_H

#include "collectives/plan/passes/passes.h"

/* How an op behaves: partition.def. */
enum ct_partition {
    CT_PARTITION_NONE,
    CT_PARTITION_COLUMNS,
    CT_PARTITION_HEADS,
    CT_PARTITION_ROWS,
    CT_PARTITION_LINEAR,
    CT_PARTITION_EMBEDDING,
    CT_PARTITION_LOSS
};

enum ct_partition ct_partition_of(int kind);

/* What becomes of a value of the model. */
struct ct_fate {
    struct ct_shape shape;      /* before */
    int blocks;                 /* its columns are cut, within each of so many blocks; 0: not */
    bool rows;                  /* its rows are cut */
    struct ct_plan_split split; /* of a parameter */
    int param;                  /* its number among the parameters, or CT_NONE */
    int entered;                /* what the layers that are cut read for it, once it is there */
};

struct ct_slicer {
    const struct ct_plan *plan;
    struct ct_model *model;
    struct ct_program *program; /* the model's */
    struct ct_program_op *ops;  /* as they were */
    int op_count, value_count;
    struct ct_fate *fates; /* by value that there was; behind them, that of an absent operand */
    struct ct_plan_sliced *sliced; /* by parameter: the result */
    int total;                     /* the loss' sums over all slices, or CT_NONE */
};

static inline struct ct_fate *ct_fate_of(const struct ct_slicer *s, int value)
{
    return &s->fates[value == CT_NONE ? s->value_count : value];
}

/* Emit the ops of this rank's slice in place of the model's. */
void ct_slice_emit(struct ct_slicer *s);

#endif
