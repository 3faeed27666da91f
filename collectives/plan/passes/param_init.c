/* See passes.h: what is drawn for elements of parameters. Element i of the logical tensor is drawn
 * for i, whoever holds it. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

/* The op that gives a parameter its first values, all of them. */
static struct ct_program_op whole_op(struct ct_init init, uint64_t key)
{
    static const int kinds[] = {[CT_INIT_UNIFORM] = CT_OP_UNIFORM,
                                [CT_INIT_NORMAL] = CT_OP_NORMAL,
                                [CT_INIT_CONSTANT] = CT_OP_FILL};
    struct ct_program_op op = ct_program_op(kinds[init.kind]);

    if (init.kind == CT_INIT_CONSTANT) {
        op.attr.alpha = init.amount;
        return op;
    }
    if (init.kind == CT_INIT_UNIFORM) {
        op.attr.low = -init.amount;
        op.attr.high = init.amount;
    } else {
        op.attr.std = init.amount;
    }
    op.attr.key = key;
    return op;
}

/* `count` elements of `view` from `begin` on. */
static int part_of(struct ct_program *program, int view, int64_t begin, int64_t count)
{
    const struct ct_value *v = &program->values[view];

    return ct_program_view(program, view, (size_t)begin * ct_dtype_size(v->dtype), v->dtype,
                           ct_shape1(count), v->name);
}

void ct_plan_emit_param_init(const struct ct_plan *plan, struct ct_program *program,
                             const struct ct_plan_param_init *first)
{
    struct ct_program_op op = whole_op(first->init, first->key), fill = ct_program_op(CT_OP_FILL);
    const struct ct_plan_split *split = &first->tensor->split;

    if (split->size == 0) {
        op.out[0] = first->view;
        ct_program_emit(program, op);
        return;
    }
    int64_t each = (split->size + plan->mesh.tensor - 1) / plan->mesh.tensor;
    int64_t begin = each * plan->place.slice;
    int64_t real = CT_MAX(CT_MIN(each, split->size - begin), 0);
    int64_t count = split->repeat * real * split->inner;
    int64_t padding = split->repeat * each * split->inner - count;

    CT_ASSERT(padding == 0 || split->repeat == 1);
    if (op.kind != CT_OP_FILL) {
        op.attr.first = (uint64_t)(begin * split->inner);
        op.attr.run = (uint64_t)(each * split->inner);
        op.attr.stride = (uint64_t)(split->size * split->inner);
    }
    if (real > 0) {
        op.out[0] = part_of(program, first->view, 0, count);
        ct_program_emit(program, op);
    }
    if (padding > 0) {
        fill.out[0] = part_of(program, first->view, count, padding);
        ct_program_emit(program, fill);
    }
}

void ct_plan_key_rounding(const struct ct_plan *plan, const struct ct_plan_tensor *tensor,
                          uint64_t first, struct ct_program_op *op)
{
    const struct ct_plan_split *split = &tensor->split;
    int64_t each = (split->size + plan->mesh.tensor - 1) / plan->mesh.tensor;

    /* First values have this key for step 0, updates count from 1. */
    op->attr.key = ct_model_key(plan->seed, tensor->name);
    op->attr.first = first;
    if (split->size == 0)
        return;
    op->attr.begin = (uint64_t)(each * plan->place.slice * split->inner);
    op->attr.run = (uint64_t)(each * split->inner);
    op->attr.stride = (uint64_t)(split->size * split->inner);
}
