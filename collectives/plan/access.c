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

/* Whether `call` may not be open any more when the update begins with `op`. */
static bool precedes_update(const struct ct_program_op *call, const struct ct_program_op *op)
{
    return op->stage == CT_STAGE_UPDATE && ct_plan_is_model_comm(call);
}

bool ct_plan_ordered(const struct ct_plan *plan, const struct ct_plan_list *list,
                     const struct ct_program_op *a, const struct ct_program_op *b)
{
    if (ct_plan_calls_group(a) && ct_plan_calls_group(b) &&
        ct_mesh_shared(&plan->mesh, a->axis, b->axis))
        return true;
    return precedes_update(a, b) || precedes_update(b, a) || ct_plan_conflict(list, a, b);
}

/* ---- lists that are not placed -------------------------------------------------------------- */

static bool writes_operand(const struct ct_program *program, const struct ct_program_op *op,
                           const struct ct_program_op *other)
{
    for (int k = 0; k < CT_OP_MAX_OUT; k++) {
        if (op->out[k] == CT_NONE)
            continue;
        const struct ct_value *written = &program->values[op->out[k]];
        for (int i = 0; i < CT_OP_MAX_IN + CT_OP_MAX_OUT; i++) {
            int at = i < CT_OP_MAX_IN ? other->in[i] : other->out[i - CT_OP_MAX_IN];
            if (at != CT_NONE && program->values[at].root == written->root &&
                ct_range_overlap(ct_plan_in_root(&program->values[at]), ct_plan_in_root(written)))
                return true;
        }
    }
    return false;
}

bool ct_plan_depend(const struct ct_program *program, const struct ct_program_op *a,
                    const struct ct_program_op *b)
{
    return writes_operand(program, a, b) || writes_operand(program, b, a);
}

/* From op `i` in direction `step`: the next message behind something that is computed, or CT_NONE.
 */
static int next_message(const struct ct_program *program, int i, int step)
{
    bool computes = false;

    for (int j = i + step; j >= 0 && j < program->op_count; j += step) {
        if (program->ops[j].kind == CT_OP_EXCHANGE && computes)
            return j;
        computes = computes || !ct_op_is_comm(program->ops[j].kind);
    }
    return CT_NONE;
}

/* The next reduce-scatter of gradients behind op `i`, which is one; op `i` when there is none. */
static int next_scatter(const struct ct_program *program, int i)
{
    for (int j = i + 1; j < program->op_count; j++)
        if (program->ops[j].kind == CT_OP_REDUCE_SCATTER && program->ops[j].axis == CT_AXIS_SHARD)
            return j;
    return i;
}

struct ct_plan_flight ct_plan_flight(const struct ct_plan *plan, const struct ct_program *program,
                                     int i)
{
    const struct ct_program_op *op = &program->ops[i];
    struct ct_plan_flight flight = {i, i};

    if (!plan->options.overlap || !ct_plan_calls_group(op))
        return flight;
    if (op->kind == CT_OP_REDUCE_SCATTER && op->axis == CT_AXIS_SHARD) {
        flight.last = next_scatter(program, i);
        return flight;
    }
    if (!ct_plan_is_model_comm(op))
        return flight;
    if (op->kind == CT_OP_EXCHANGE) {
        int before = next_message(program, i, -1), behind = next_message(program, i, 1);
        flight.first = before == CT_NONE ? i : before;
        flight.last = behind == CT_NONE ? program->op_count - 1 : behind;
        return flight;
    }
    while (flight.last + 1 < program->op_count &&
           !writes_operand(program, op, &program->ops[flight.last + 1]))
        flight.last++;
    return flight;
}
