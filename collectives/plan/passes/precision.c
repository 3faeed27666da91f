/* See passes.h: a model that computes in 16-bit floats, on parameters of 32.
 *
 *     x f32 -> linear(W) -> h -> gelu -> y       W, gW and the optimizer stay f32
 *
 *     x f32 -> narrow -> x' \
 *     W f32 -> narrow -> W' -> linear -> h' -> gelu -> y'         ' is bf16 or f16
 *                                        dW f32 = linear_dw dh', x'
 *
 * Ops with the weight of a product run narrow, and so do those whose operands have all become
 * narrow by then: activations, norms, sums of branches, losses, and their gradients. All of them
 * compute in f32 and round once what they give. Statistics, sums over rows and the gradients of
 * parameters are f32 (`wide` in op.def), so that micro-batches add up in f32. Other ops (images,
 * batch norm, mean squares) stay as they are, on operands that are widened for them. A weight is
 * narrowed once in a step; where it is gathered for each pass, once a pass. With
 * options->stochastic a step rounds weights by chance, each time alike (op.def); an evaluation
 * rounds them to the nearest, so that its result depends on the parameters alone. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

struct precision {
    struct ct_program *program;
    enum ct_dtype dtype; /* the narrow one */
    bool each_pass;      /* narrow weights anew for the backward pass */
    int draw;            /* what weights are rounded by: narrow_stochastic's `at`, or CT_NONE */
    int *other;          /* by value: the same in the other type, or CT_NONE */
    int value_count;     /* before any of these */
};

bool ct_plan_narrows_param(const struct ct_program *program, const struct ct_program_op *op)
{
    return ct_plan_is_narrowing(op->kind) && program->values[op->in[0]].kind == CT_VALUE_PARAM;
}

bool ct_plan_is_shared(const struct ct_plan *plan, const struct ct_program *program,
                       const struct ct_program_op *op)
{
    return plan->options.shard != CT_PLAN_SHARD_FULL && ct_plan_narrows_param(program, op);
}

static bool is_product(int kind)
{
    return kind == CT_OP_LINEAR || kind == CT_OP_LINEAR_DX || kind == CT_OP_LINEAR_DW;
}

/* Results that may change their type: nobody outside of the micro-batch knows them. */
static bool is_temporary(const struct ct_program *program, int value)
{
    return program->values[value].kind == CT_VALUE_TEMP && program->values[value].root == value;
}

static bool is_narrow(const struct precision *p, int value)
{
    return p->program->values[value].dtype == p->dtype;
}

/* Whether rows, or the heads of attention, fit the kernels of 16-bit operands. */
static bool fits(const struct ct_program *program, const struct ct_program_op *op, int value,
                 const struct ct_operand *operand)
{
    int64_t columns = ct_shape_columns(program->values[value].shape);

    if ((op->kind == CT_OP_ATTENTION || op->kind == CT_OP_ATTENTION_BW) &&
        (int64_t)op->attr.sequence * columns / (int64_t)op->attr.heads > CT_NARROW_MAX_COLUMNS)
        return false;
    return operand->dims < 2 || columns <= CT_NARROW_MAX_COLUMNS;
}

static bool runs_narrow(const struct precision *p, const struct ct_program_op *op)
{
    const struct ct_program *program = p->program;
    bool narrow = is_product(op->kind) || op->kind == CT_OP_EMBEDDING, any = false;
    struct ct_operands operands;

    if (ct_op_is_comm(op->kind) || op->dtype != CT_F32 || !ct_op_narrows((enum ct_op_kind)op->kind))
        return false;
    ct_op_operands((enum ct_op_kind)op->kind, &operands);
    bool all = true;
    for (int i = 0; i < operands.in_count; i++) {
        if (operands.in[i].dtype != CT_OPERAND_T || op->in[i] == CT_NONE)
            continue;
        any = true;
        all = all && is_narrow(p, op->in[i]);
        if (!fits(program, op, op->in[i], &operands.in[i]))
            return false;
    }
    for (int i = 0; i < operands.out_count; i++)
        if (operands.out[i].dtype == CT_OPERAND_T && op->out[i] != CT_NONE &&
            (!is_temporary(program, op->out[i]) ||
             !fits(program, op, op->out[i], &operands.out[i])))
            return false;
    return narrow || (any && all);
}

/* `value` in the type that an op wants: itself, or a copy, made where it is first wanted. */
static int in_type(struct precision *p, int value, bool narrow)
{
    struct ct_program_op op = ct_program_op(narrow ? CT_OP_NARROW : CT_OP_WIDEN);

    if (value == CT_NONE || is_narrow(p, value) == narrow)
        return value;
    if (p->other[value] != CT_NONE)
        return p->other[value];
    struct ct_value v = p->program->values[value]; /* adding one moves the array */
    if (narrow && v.kind == CT_VALUE_PARAM && p->draw != CT_NONE) {
        op = ct_program_op(CT_OP_NARROW_STOCHASTIC);
        op.in[1] = p->draw;
    }
    op.in[0] = value;
    op.out[0] =
        ct_program_value(p->program, CT_VALUE_TEMP, narrow ? p->dtype : CT_F32, v.shape, v.name);
    p->other[value] = ct_program_emit(p->program, op);
    return p->other[value];
}

static void change_type(struct precision *p, int value)
{
    struct ct_value *v = &p->program->values[value];

    v->dtype = p->dtype;
    v->bytes = (size_t)ct_shape_elements(v->shape) * ct_dtype_size(v->dtype);
}

/* What ranks say to each other has the type of what they say. */
static void convert_talk(struct precision *p, struct ct_program_op *op)
{
    bool narrow = true;

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        narrow = narrow && (op->in[i] == CT_NONE || is_narrow(p, op->in[i]));
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        narrow = narrow && (op->out[i] == CT_NONE || is_temporary(p->program, op->out[i]));
    for (int i = 0; i < CT_OP_MAX_IN; i++)
        op->in[i] = in_type(p, op->in[i], narrow);
    for (int i = 0; i < CT_OP_MAX_OUT && narrow; i++)
        if (op->out[i] != CT_NONE)
            change_type(p, op->out[i]);
}

static void convert(struct precision *p, struct ct_program_op op)
{
    bool narrow = runs_narrow(p, &op);
    struct ct_operands operands;

    if (ct_op_is_comm(op.kind)) {
        convert_talk(p, &op);
    } else {
        ct_op_operands((enum ct_op_kind)op.kind, &operands);
        for (int i = 0; i < operands.in_count; i++)
            if (operands.in[i].dtype == CT_OPERAND_T || operands.in[i].dtype == CT_OPERAND_WIDE)
                op.in[i] = in_type(p, op.in[i], narrow && operands.in[i].dtype == CT_OPERAND_T);
        for (int i = 0; i < operands.out_count && narrow; i++)
            if (operands.out[i].dtype == CT_OPERAND_T && op.out[i] != CT_NONE)
                change_type(p, op.out[i]);
    }
    ct_program_emit(p->program, op);
}

/* Copies that were made for the forward pass would live on until the backward pass. */
static void forget_copies(struct precision *p)
{
    for (int i = 0; i < p->value_count; i++)
        if (p->each_pass || p->program->values[i].kind != CT_VALUE_PARAM)
            p->other[i] = CT_NONE;
}

static void convert_all(struct precision *p, struct ct_model *model,
                        const struct ct_program_op *ops, int count)
{
    int forward_count = model->forward_count;

    for (int i = 0; i < count; i++) {
        if (i == forward_count) {
            model->forward_count = p->program->op_count;
            forget_copies(p);
        }
        p->program->stage = ops[i].stage;
        convert(p, ops[i]);
    }
    if (count > forward_count)
        return;
    /* An evaluation: the host reads the logits. */
    model->logits = in_type(p, model->logits, false);
    model->forward_count = p->program->op_count;
}

/* The model's `draw`, for a step that rounds by chance. */
static int draw_of(struct ct_model *model, const struct ct_plan_options *options)
{
    bool trains = model->program.op_count > model->forward_count;

    if (!options->stochastic || !trains)
        return CT_NONE;
    if (model->draw == CT_NONE)
        model->draw =
            ct_program_value(&model->program, CT_VALUE_INPUT, CT_F64, ct_shape1(2), "draw");
    return model->draw;
}

int ct_plan_precision(struct ct_model *model, const struct ct_plan_options *options,
                      struct ct_error *err)
{
    struct ct_program *program = &model->program;
    int draw = draw_of(model, options);
    size_t count = (size_t)program->op_count, values = (size_t)program->value_count;
    struct precision p = {.program = program,
                          .draw = draw,
                          .dtype = options->compute,
                          .each_pass = options->shard == CT_PLAN_SHARD_FULL,
                          .other = malloc(values * sizeof *p.other),
                          .value_count = program->value_count};
    struct ct_program_op *ops = malloc(count * sizeof *ops);

    if (p.other == NULL || ops == NULL) {
        free(p.other);
        free(ops);
        return ct_error_set(err, CT_ENOMEM, "no memory to narrow %zu values", values);
    }
    memcpy(ops, program->ops, count * sizeof *ops);
    for (size_t i = 0; i < values; i++)
        p.other[i] = CT_NONE;
    program->op_count = 0;
    convert_all(&p, model, ops, (int)count);
    free(p.other);
    free(ops);
    return program->error.code == 0
               ? 0
               : ct_error_set(err, program->error.code, "precision: %s", program->error.text);
}
