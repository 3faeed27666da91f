/* Rules: the facts of an op besides its kernel: results, cost, gradient.
 *
 * The table is rule.def: a row for each kernel of tensor/op.def and for each communication op,
 * which is numbered behind the kernels and belongs to the executor. */
#ifndef CT_GRAPH_RULE_H
#define CT_GRAPH_RULE_H

#include "base/error.h"
#include "tensor/op.h"
#include "tensor/tensor.h"

#include <stdbool.h>

/* Communication ops, numbered behind enum ct_op_kind. */
enum {
    CT_OP_ALL_REDUCE = CT_OP_COUNT,
    CT_OP_REDUCE_SCATTER,
    CT_OP_ALL_GATHER,
    CT_OP_RANK_SUM,
    CT_OP_RANK_MAX,
    CT_OP_RANK_COPY,
    CT_OP_EXCHANGE,
    CT_OP_BROADCAST, /* in place, from the group's rank 0, as are the next two */
    CT_OP_REDUCE,    /* in place, to rank 0 */
    CT_OP_SCATTER,   /* in: rank 0 alone */
    CT_OP_PUSH,      /* in alone: whom the executor pushes for knows where to */
    CT_RULE_COUNT
};

static inline bool ct_op_is_comm(int op)
{
    return op >= CT_OP_COUNT;
}

/* Name, operands and attributes of any op of a program; never NULL. */
const struct ct_op_info *ct_rule_info(int op);

/* Return whether `op` can add to its sums over rows instead of overwriting them (attribute
 * accumulate). */
bool ct_rule_accumulates(int op);

/* Complete and check the operands of `op`. In `args` an operand is given when its data is not NULL
 * (the pointer is not followed). Outputs that are not given but not optional are filled in where
 * the inputs determine them, with data set. `ret_dtype` gets the element type that selects the
 * kernel. 0, or CT_EBUG with a sentence that names the op, the operand and the sizes. */
int ct_rule_complete(int op, struct ct_kernel_args *args, enum ct_dtype *ret_dtype,
                     struct ct_error *err);

/* Return the floating-point operations of `op` on operands that ct_rule_complete accepted. */
double ct_rule_flop(int op, const struct ct_kernel_args *args);

#endif
