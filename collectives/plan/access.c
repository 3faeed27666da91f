/* See access.h. */
#include "collectives/plan/access.h"

size_t ct_plan_offset(const struct ct_plan_list *list, int value)
{
    const struct ct_value *v = &list->program.values[value];

    return list->offset[v->root] + v->offset_bytes;
}

struct ct_range ct_plan_range(const struct ct_plan_list *list, int value)
{
    size_t begin = ct_plan_offset(list, value);

    return (struct ct_range){begin, begin + list->program.values[value].bytes};
}

/* Does `op` write bytes that `other` reads or writes? */
static bool writes_into(const struct ct_plan_list *list, const struct ct_program_op *op,
                        const struct ct_program_op *other)
{
    for (int k = 0; k < CT_OP_MAX_OUT; k++) {
        if (op->out[k] == CT_NONE)
            continue;
        struct ct_range written = ct_plan_range(list, op->out[k]);
        for (int i = 0; i < CT_OP_MAX_IN; i++)
            if (other->in[i] != CT_NONE &&
                ct_range_overlap(written, ct_plan_range(list, other->in[i])))
                return true;
        for (int i = 0; i < CT_OP_MAX_OUT; i++)
            if (other->out[i] != CT_NONE &&
                ct_range_overlap(written, ct_plan_range(list, other->out[i])))
                return true;
    }
    return false;
}

bool ct_plan_conflict(const struct ct_plan_list *list, const struct ct_program_op *a,
                      const struct ct_program_op *b)
{
    return writes_into(list, a, b) || writes_into(list, b, a);
}

bool ct_plan_calls_group(const struct ct_program_op *op)
{
    return ct_op_is_comm(op->kind) && op->kind != CT_OP_PUSH && op->kind != CT_OP_RANK_COPY;
}

bool ct_plan_ordered(const struct ct_plan *plan, const struct ct_plan_list *list,
                     const struct ct_program_op *a, const struct ct_program_op *b)
{
    if (ct_plan_calls_group(a) && ct_plan_calls_group(b) &&
        ct_mesh_shared(&plan->mesh, a->axis, b->axis))
        return true;
    return ct_plan_conflict(list, a, b);
}
