/* Ops as text, for people: see program.h. */
#include "graph/program.h"

#include "base/assert.h"

#include <inttypes.h>
#include <strings.h>

static const char *const stage_names[] = {
    [CT_STAGE_INIT] = "init",     [CT_STAGE_FORWARD] = "forward", [CT_STAGE_BACKWARD] = "backward",
    [CT_STAGE_REDUCE] = "reduce", [CT_STAGE_UPDATE] = "update",
};
_Static_assert(CT_COUNT(stage_names) == CT_STAGE_COUNT, "a name for every stage");

static const char *const axis_names[] = {
    [CT_AXIS_WORLD] = "world",     [CT_AXIS_DATA] = "data",     [CT_AXIS_SHARD] = "shard",
    [CT_AXIS_REPLICA] = "replica", [CT_AXIS_TENSOR] = "tensor", [CT_AXIS_STAGE] = "stage",
    [CT_AXIS_COPY] = "copy",
};
_Static_assert(CT_COUNT(axis_names) == CT_AXIS_COUNT, "a name for every axis");

const char *ct_stage_name(enum ct_stage stage)
{
    CT_ASSERT((unsigned)stage < CT_STAGE_COUNT);
    return stage_names[stage];
}

const char *ct_axis_name(enum ct_axis axis)
{
    CT_ASSERT((unsigned)axis < CT_AXIS_COUNT);
    return axis_names[axis];
}

static void print_type(const struct ct_value *value, struct ct_buf *buf)
{
    char shape[96];

    ct_buf_printf(buf, "%s%s", ct_dtype_name(value->dtype),
                  ct_shape_print(value->shape, shape, sizeof shape));
}

static void print_attr(const struct ct_program_op *op, struct ct_buf *buf)
{
    const struct ct_op_info *info = ct_rule_info(op->kind);

    for (int id = 0; id < CT_ATTR_COUNT; id++) {
        if ((info->attributes & (uint32_t)1 << id) == 0)
            continue;
        const struct ct_attr_info *attr = ct_attr_info((enum ct_attr_id)id);
        const void *at = (const char *)&op->attr + attr->offset;
        if (attr->type == CT_ATTR_TYPE_double)
            ct_buf_printf(buf, " %s=%g", attr->name, *(const double *)at);
        else if (attr->type == CT_ATTR_TYPE_uint64_t)
            ct_buf_printf(buf, " %s=%" PRIx64, attr->name, *(const uint64_t *)at);
        else if (*(const bool *)at)
            ct_buf_printf(buf, " %s", attr->name);
    }
}

void ct_program_print_op(const struct ct_program *program, int op, struct ct_buf *buf)
{
    const struct ct_program_op *o = &program->ops[op];
    const char *comma = " ";

    ct_buf_puts(buf, ct_rule_info(o->kind)->name);
    for (int i = 0; i < CT_OP_MAX_IN; i++) {
        if (o->in[i] == CT_NONE)
            continue;
        ct_buf_printf(buf, "%s%%%d %s", comma, o->in[i], program->values[o->in[i]].name);
        comma = ", ";
    }
    comma = " -> ";
    for (int i = 0; i < CT_OP_MAX_OUT; i++) {
        if (o->out[i] == CT_NONE)
            continue;
        ct_buf_printf(buf, "%s%%%d %s ", comma, o->out[i], program->values[o->out[i]].name);
        print_type(&program->values[o->out[i]], buf);
        comma = ", ";
    }
    print_attr(o, buf);
    if (ct_op_is_comm(o->kind))
        ct_buf_printf(buf, " axis=%s", ct_axis_name(o->axis));
}
