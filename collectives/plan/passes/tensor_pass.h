/* Shared by the two halves of the tensor parallelism pass: tensor_pass.c decides what is sharded,
 * tensor_emit.c writes the ops of a shard. Inside of collectives/plan only. */
#ifndef CT_COLL_PLAN_TENSOR_PASS_H
#define CT_COLL_PLAN_TENSOR_PASS_H

#include "collectives/plan/passes/passes.h"

/* How an op is partitioned: partition.def. */
enum ct_partition {
    CT_PARTITION_NONE,
    CT_PARTITION_COLUMNS,
    CT_PARTITION_HEADS,
    CT_PARTITION_ROWS,
    CT_PARTITION_LINEAR,
    CT_PARTITION_EMBEDDING,
    CT_PARTITION_LOSS
};

/* Return how ops of a kind are partitioned. */
enum ct_partition ct_partition_of(int kind);

/* How a value of the model is sharded. */
struct ct_tensor_fate {
    struct ct_shape shape;      /* before */
    int blocks;                 /* its columns are sharded within each of so many blocks; 0: not */
    bool rows;                  /* its rows are sharded */
    struct ct_plan_split split; /* of a parameter */
    int param;                  /* its index among the parameters, or CT_NONE */
    int gathered;               /* the value that sharded layers read for it, once emitted */
};

struct ct_tensor_pass {
    const struct ct_plan *plan;
    struct ct_model *model;
    struct ct_program *program; /* the model's */
    struct ct_program_op *ops;  /* as they were */
    int op_count, value_count;
    struct ct_tensor_fate
        *fates; /* by value of the model; behind them, that of an absent operand */
    struct ct_plan_sliced *sliced; /* by parameter: the result */
    int total;                     /* the loss' sums over all shards, or CT_NONE */
};

/* Return the entry of a value. */
static inline struct ct_tensor_fate *ct_tensor_fate_of(const struct ct_tensor_pass *s, int value)
{
    return &s->fates[value == CT_NONE ? s->value_count : value];
}

/* Emit the ops of this rank's shard in place of the model's. */
void ct_tensor_pass_emit(struct ct_tensor_pass *s);

#endif
