/* See tensor_pass.h: the ops of one slice. */
#include "base/assert.h"
#include "collectives/plan/passes/tensor_pass.h"

static int tensor_size(const struct ct_tensor_pass *s)
{
    return s->plan->mesh.tensor;
}

/* Elements of `count` that a slice has, padding included. */
static int64_t each_of(const struct ct_tensor_pass *s, int64_t count)
{
    return (count + tensor_size(s) - 1) / tensor_size(s);
}

/* ---- values --------------------------------------------------------------------------------- */

static void set_shape(struct ct_tensor_pass *s, int value, struct ct_shape shape)
{
    struct ct_value *v = &s->program->values[value];

    v->shape = shape;
    v->bytes = (size_t)ct_shape_elements(shape) * ct_dtype_size(v->dtype);
}

/* Rows of a weight, or elements of a bias: dim[0]; columns of a weight: dim[1]. */
static void cut_param(struct ct_tensor_pass *s, const struct ct_model_param *param)
{
    struct ct_plan_split split = s->fates[param->value].split;
    struct ct_shape shape = s->fates[param->value].shape;

    s->sliced[s->fates[param->value].param] =
        (struct ct_plan_sliced){.shape = shape, .split = split};
    if (split.size == 0)
        return;
    if (shape.dims == 2 && split.inner == 1)
        shape.dim[1] = each_of(s, split.size);
    else
        shape.dim[0] = split.repeat * each_of(s, split.size);
    set_shape(s, param->value, shape);
    if (param->grad != CT_NONE)
        set_shape(s, param->grad, shape);
}

static void cut_values(struct ct_tensor_pass *s)
{
    for (int i = 0; i < s->model->param_count; i++)
        cut_param(s, &s->model->params[i]);
    for (int i = 0; i < s->value_count; i++) {
        const struct ct_tensor_fate *fate = &s->fates[i];
        struct ct_shape shape = fate->shape;
        if (fate->blocks > 0)
            shape.dim[shape.dims - 1] = each_of(s, shape.dim[shape.dims - 1]);
        else if (fate->rows)
            shape.dim[0] /= tensor_size(s);
        else
            continue;
        set_shape(s, i, shape);
    }
}

static int temp(struct ct_tensor_pass *s, struct ct_shape shape, int like)
{
    const struct ct_value *v = &s->program->values[like];

    return ct_program_value(s->program, CT_VALUE_TEMP, v->dtype, shape, v->name);
}

/* ---- communication -------------------------------------------------------------------------- */

static void emit_comm(struct ct_tensor_pass *s, int kind, int in, int out)
{
    struct ct_program_op op = ct_program_op(kind);

    op.axis = CT_AXIS_TENSOR;
    op.in[0] = in;
    op.out[0] = out;
    ct_program_emit(s->program, op);
}

/* What a layer that is cut reads for `value`: all rows, and whose gradient all slices have a part
 * of. */
static int gather_input(struct ct_tensor_pass *s, int value)
{
    struct ct_tensor_fate *fate = &s->fates[value];

    if (s->program->values[value].kind != CT_VALUE_TEMP)
        return value;
    if (fate->gathered == CT_NONE) {
        fate->gathered = temp(s, fate->shape, value);
        emit_comm(s, fate->rows ? CT_OP_ALL_GATHER : CT_OP_RANK_COPY, value, fate->gathered);
    }
    return fate->gathered;
}

/* The sum over the slices of `part`, plus rows of `more` (a bias, places) unless that is CT_NONE,
 * becomes `out`. */
static void reduce_output(struct ct_tensor_pass *s, int part, int more, uint64_t sequence, int out)
{
    struct ct_program_op add = ct_program_op(CT_OP_ADD_ROWS);
    bool rows = s->fates[out].rows;
    int sum = more == CT_NONE ? out : temp(s, s->program->values[out].shape, out);

    emit_comm(s, rows ? CT_OP_REDUCE_SCATTER : CT_OP_RANK_SUM, part, sum);
    if (more == CT_NONE || s->program->error.code != 0)
        return;
    add.in[0] = sum;
    add.in[1] = more;
    add.out[0] = out;
    add.attr.sequence = sequence;
    add.attr.part = rows;
    add.attr.begin =
        rows ? (uint64_t)(s->plan->place.slice * s->program->values[out].shape.dim[0]) : 0;
    ct_program_emit(s->program, add);
    if (rows)
        s->sliced[s->fates[more].param].partial = true;
}

/* ---- ops ------------------------------------------------------------------------------------ */

static void emit_linear(struct ct_tensor_pass *s, struct ct_program_op op)
{
    int out = op.out[0], bias = op.in[2];

    if (s->fates[op.in[0]].blocks == 0) {
        if (s->fates[out].blocks > 0)
            op.in[0] = gather_input(s, op.in[0]);
        ct_program_emit(s->program, op);
        return;
    }
    op.in[2] = CT_NONE;
    op.out[0] = temp(s, s->fates[out].shape, out);
    ct_program_emit(s->program, op);
    reduce_output(s, op.out[0], bias, 1, out);
}

static void emit_embedding(struct ct_tensor_pass *s, struct ct_program_op op)
{
    int out = op.out[0], places = op.in[2];
    const struct ct_plan_split *split = &ct_tensor_fate_of(s, op.in[1])->split;

    if (split->size == 0) {
        ct_program_emit(s->program, op);
        return;
    }
    op.in[2] = CT_NONE;
    op.out[0] = temp(s, s->fates[out].shape, out);
    op.attr.part = true;
    op.attr.begin = (uint64_t)(s->plan->place.slice * each_of(s, split->size));
    ct_program_emit(s->program, op);
    reduce_output(s, op.out[0], places, op.attr.sequence, out);
}

/* An op of the loss on this slice's classes. */
static struct ct_program_op vocab_op(const struct ct_tensor_pass *s, int kind, int in0, int labels)
{
    struct ct_program_op op = ct_program_op(kind);
    struct ct_shape logits = s->fates[s->model->logits].shape;

    op.in[0] = in0;
    op.in[1] = labels;
    op.attr.part = true;
    op.attr.classes = (uint64_t)ct_shape_columns(logits);
    op.attr.begin = (uint64_t)(s->plan->place.slice * each_of(s, ct_shape_columns(logits)));
    return op;
}

/* Over all slices, once `part` is there. */
static int together(struct ct_tensor_pass *s, int kind, int part)
{
    if (part == CT_NONE)
        return CT_NONE;
    int all = temp(s, s->program->values[part].shape, part);
    emit_comm(s, kind, part, all);
    return all;
}

static void emit_cross_entropy(struct ct_tensor_pass *s, const struct ct_program_op *op)
{
    struct ct_program *program = s->program;
    int labels = op->in[1];
    struct ct_program_op sums = vocab_op(s, CT_OP_VOCAB_SUMS, op->in[0], labels);
    int max = ct_program_emit(program, vocab_op(s, CT_OP_VOCAB_MAX, op->in[0], labels));

    sums.in[2] = max = together(s, CT_OP_RANK_MAX, max);
    s->total = together(s, CT_OP_RANK_SUM, ct_program_emit(program, sums));
    struct ct_program_op loss = vocab_op(s, CT_OP_VOCAB_LOSS, s->total, labels);
    loss.in[2] = max;
    loss.in[3] = op->in[0];
    loss.out[0] = op->out[0];
    ct_program_emit(program, loss);
}

static void emit_loss(struct ct_tensor_pass *s, const struct ct_program_op *op)
{
    struct ct_program_op correct = vocab_op(s, CT_OP_VOCAB_CORRECT, s->total, op->in[1]);

    if (ct_tensor_fate_of(s, op->in[0])->blocks == 0) {
        ct_program_emit(s->program, *op);
    } else if (op->kind == CT_OP_CROSS_ENTROPY) {
        emit_cross_entropy(s, op);
    } else {
        CT_ASSERT(s->total != CT_NONE || s->program->error.code != 0);
        correct.attr.part = false;
        correct.attr.begin = correct.attr.classes = 0;
        correct.out[0] = op->out[0];
        ct_program_emit(s->program, correct);
    }
}

/* An op that goes row by row: draws and learns for its own rows. */
static void emit_rowwise(struct ct_tensor_pass *s, struct ct_program_op op)
{
    const struct ct_tensor_fate *out = ct_tensor_fate_of(s, op.out[0]);
    const struct ct_value *v = &s->program->values[op.out[0]];

    if (out->rows && op.kind == CT_OP_DROPOUT)
        op.attr.first = (uint64_t)(s->plan->place.slice * ct_shape_elements(v->shape));
    for (int k = 0; k < CT_OP_MAX_IN && out->rows; k++)
        if (ct_tensor_fate_of(s, op.in[k])->param != CT_NONE)
            s->sliced[ct_tensor_fate_of(s, op.in[k])->param].partial = true;
    ct_program_emit(s->program, op);
}

static void emit_op(struct ct_tensor_pass *s, struct ct_program_op op)
{
    switch (ct_partition_of(op.kind)) {
    case CT_PARTITION_LINEAR:
        emit_linear(s, op);
        break;
    case CT_PARTITION_EMBEDDING:
        emit_embedding(s, op);
        break;
    case CT_PARTITION_LOSS:
        emit_loss(s, &op);
        break;
    case CT_PARTITION_HEADS:
        if (ct_tensor_fate_of(s, op.in[0])->blocks > 0)
            op.attr.heads /= (uint64_t)tensor_size(s);
        ct_program_emit(s->program, op);
        break;
    default:
        emit_rowwise(s, op);
        break;
    }
}

void ct_tensor_pass_emit(struct ct_tensor_pass *s)
{
    cut_values(s);
    s->program->op_count = 0;
    s->program->stage = CT_STAGE_FORWARD;
    for (int i = 0; i < s->op_count && s->program->error.code == 0; i++)
        emit_op(s, s->ops[i]);
    s->model->forward_count = s->program->op_count;
}
