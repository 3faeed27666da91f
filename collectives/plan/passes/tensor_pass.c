/* See passes.h: each layer computed by several ranks, the slices of a mesh.
 *
 *     whole       x --------> linear --> gelu --> linear ---------------> y
 *     cut         x -> copy -> linear -> gelu -> linear -> sum -> + bias -> y
 *                 |           `rows of W        `columns of W
 *                 `gradients are summed here
 *
 * A pass over the forward ops, before they are differentiated: rank_copy and rank_sum have each
 * other's gradient (Shoeybi et al., 1909.08053: f and g), so the backward pass needs no rules of
 * its own. What can be cut follows from the ops (partition.def): a linear layer by the rows of its
 * weight, when all that reads its output works column by column up to linear layers, which are then
 * cut by columns, or to the loss. What is not cut each slice does in full, with the same bits.
 *
 * Cut by rows (sequence parallel): what lies between a sum and the next copy goes token by token,
 * so each slice needs its tokens only: the sum becomes a reduce_scatter, the copy an all_gather.
 * What is learned there has a gradient from each slice's tokens, which are added up at the end.
 *
 * The vocabulary need not divide: behind its end the last slices have rows of zeroes. */
#include "collectives/plan/passes/tensor_pass.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum ct_partition ct_partition_of(int kind)
{
    static const unsigned char rules[CT_RULE_COUNT] = {
#define PARTITION(name, rule) [CT_OP_##name] = CT_PARTITION_##rule,
#include "collectives/plan/partition.def"
#undef PARTITION
    };

    return (enum ct_partition)rules[kind];
}

static bool is_param(const struct ct_tensor_pass *s, int value)
{
    return value != CT_NONE && s->program->values[value].kind == CT_VALUE_PARAM;
}

static int refuse(struct ct_tensor_pass *s, int code, const char *what, int64_t count, int value)
{
    return ct_error_set(&s->program->error, code,
                        "parallel.tensor is %d, must divide the %" PRId64 " %s of %s",
                        s->plan->mesh.tensor, count, what, s->program->values[value].name);
}

/* ---- columns -------------------------------------------------------------------------------- */

static int blocks_of(const struct ct_tensor_pass *s, int value);

/* In how many blocks an operand `k` of `op` may be cut; 0: not at all. */
static int blocks_read(const struct ct_tensor_pass *s, const struct ct_program_op *op, int k)
{
    switch (ct_partition_of(op->kind)) {
    case CT_PARTITION_COLUMNS:
        return blocks_of(s, op->out[0]);
    case CT_PARTITION_HEADS:
        return k == 0 && blocks_of(s, op->out[0]) > 0 ? 3 : 0;
    case CT_PARTITION_LINEAR:
        return k == 0 && is_param(s, op->in[1]);
    case CT_PARTITION_LOSS:
        return k == 0 && op->in[0] == s->model->logits;
    default:
        return 0;
    }
}

/* In how many blocks the columns of `value` may be cut for all that reads it; 0: not at all. */
static int blocks_of(const struct ct_tensor_pass *s, int value)
{
    int blocks = 0;

    for (int i = 0; i < s->op_count; i++)
        for (int k = 0; k < CT_OP_MAX_IN; k++) {
            if (s->ops[i].in[k] != value)
                continue;
            int here = blocks_read(s, &s->ops[i], k);
            if (here == 0)
                return 0;
            blocks = CT_MAX(blocks, here);
        }
    return blocks;
}

static void cut_param(struct ct_tensor_pass *s, int value, struct ct_plan_split split)
{
    struct ct_tensor_fate *fate = ct_tensor_fate_of(s, value);

    if (value == CT_NONE)
        return;
    if (fate->split.size != 0 && memcmp(&fate->split, &split, sizeof split) != 0)
        ct_error_set(&s->program->error, CT_EUNSUPPORTED,
                     "parallel.tensor: %s is used by layers that would be cut in different ways",
                     s->program->values[value].name);
    fate->split = split;
}

/* y = x W^T + b */
static void decide_linear(struct ct_tensor_pass *s, const struct ct_program_op *op)
{
    const struct ct_shape w = s->program->values[op->in[1]].shape;
    int64_t out = ct_shape_rows(w), in = ct_shape_columns(w);
    bool is_head = op->out[0] == s->model->logits;
    int blocks = is_param(s, op->in[1]) ? blocks_of(s, op->out[0]) : 0;

    if (ct_tensor_fate_of(s, op->in[0])->blocks > 0) {
        cut_param(s, op->in[1], (struct ct_plan_split){out, in, 1});
        return;
    }
    if (blocks == 0)
        return;
    if (blocks == 1 && !is_head && out % s->plan->mesh.tensor != 0)
        refuse(s, CT_ECONFIG, "rows", out, op->in[1]);
    cut_param(s, op->in[1], (struct ct_plan_split){blocks, out / blocks, in});
    cut_param(s, op->in[2], (struct ct_plan_split){blocks, out / blocks, 1});
    ct_tensor_fate_of(s, op->out[0])->blocks = blocks;
}

static void decide_heads(struct ct_tensor_pass *s, const struct ct_program_op *op)
{
    if (ct_tensor_fate_of(s, op->in[0])->blocks == 0)
        return;
    if (op->attr.heads % (uint64_t)s->plan->mesh.tensor != 0)
        refuse(s, CT_ECONFIG, "heads", (int64_t)op->attr.heads, op->in[0]);
    ct_tensor_fate_of(s, op->out[0])->blocks = op->kind == CT_OP_ATTENTION ? 1 : 3;
    if (op->out[1] != CT_NONE)
        ct_tensor_fate_of(s, op->out[1])->blocks = 1;
}

/* Whether slices see columns of an operand in an op that wants them all. */
static bool lacks_columns(const struct ct_tensor_pass *s, const struct ct_program_op *op)
{
    int blocks = ct_tensor_fate_of(s, op->in[0])->blocks;

    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (ct_partition_of(op->kind) == CT_PARTITION_COLUMNS
                ? op->in[k] != CT_NONE && ct_tensor_fate_of(s, op->in[k])->blocks != blocks
                : ct_partition_of(op->kind) == CT_PARTITION_NONE &&
                      ct_tensor_fate_of(s, op->in[k])->blocks > 0)
            return true;
    return false;
}

/* What is cut; whether anything is. */
static bool decide(struct ct_tensor_pass *s)
{
    bool any = false;

    for (int i = 0; i < s->op_count && s->program->error.code == 0; i++) {
        const struct ct_program_op *op = &s->ops[i];
        enum ct_partition rule = ct_partition_of(op->kind);
        if (rule == CT_PARTITION_LINEAR)
            decide_linear(s, op);
        else if (rule == CT_PARTITION_HEADS)
            decide_heads(s, op);
        else if (rule == CT_PARTITION_EMBEDDING && is_param(s, op->in[1]))
            cut_param(
                s, op->in[1],
                (struct ct_plan_split){1, ct_shape_rows(s->program->values[op->in[1]].shape),
                                       ct_shape_columns(s->program->values[op->in[1]].shape)});
        else if (rule == CT_PARTITION_COLUMNS)
            ct_tensor_fate_of(s, op->out[0])->blocks = ct_tensor_fate_of(s, op->in[0])->blocks;
        if (lacks_columns(s, op))
            ct_error_set(&s->program->error, CT_EUNSUPPORTED,
                         "parallel.tensor: %s would read columns that other workers have",
                         ct_rule_info(op->kind)->name);
        any = any || ct_tensor_fate_of(s, op->in[1])->split.size != 0;
    }
    return any;
}

/* A weight that is cut is read by layers that know of it alone. */
static void check_uses(struct ct_tensor_pass *s)
{
    for (int i = 0; i < s->op_count && s->program->error.code == 0; i++) {
        const struct ct_program_op *op = &s->ops[i];
        bool cut = ct_tensor_fate_of(s, op->in[0])->blocks > 0 ||
                   ct_tensor_fate_of(s, op->out[0])->blocks > 0 ||
                   ct_partition_of(op->kind) == CT_PARTITION_EMBEDDING;
        for (int k = 0; k < CT_OP_MAX_IN && !cut; k++)
            if (ct_tensor_fate_of(s, op->in[k])->split.size != 0)
                ct_error_set(&s->program->error, CT_EUNSUPPORTED,
                             "parallel.tensor: %s is also used by %s, which needs all of it",
                             s->program->values[op->in[k]].name, ct_rule_info(op->kind)->name);
    }
}

/* ---- rows ----------------------------------------------------------------------------------- */

static bool is_rowwise(int kind)
{
    return ct_partition_of(kind) == CT_PARTITION_ROWS ||
           ct_partition_of(kind) == CT_PARTITION_COLUMNS;
}

/* Whether the op gives a sum over the slices. */
static bool gives_sum(const struct ct_tensor_pass *s, const struct ct_program_op *op)
{
    return (ct_partition_of(op->kind) == CT_PARTITION_LINEAR &&
            ct_tensor_fate_of(s, op->in[0])->blocks > 0) ||
           (ct_partition_of(op->kind) == CT_PARTITION_EMBEDDING &&
            ct_tensor_fate_of(s, op->in[1])->split.size != 0);
}

/* Let go of rows that are wanted whole, or come from such; whether there were any. */
static bool release(struct ct_tensor_pass *s, const struct ct_program_op *op)
{
    struct ct_tensor_fate *out = ct_tensor_fate_of(s, op->out[0]);
    bool changed = false, column = ct_partition_of(op->kind) == CT_PARTITION_LINEAR &&
                                   ct_tensor_fate_of(s, op->in[0])->blocks == 0 && out->blocks > 0;

    for (int k = 0; k < CT_OP_MAX_IN; k++) {
        struct ct_tensor_fate *in = ct_tensor_fate_of(s, op->in[k]);
        enum ct_value_kind kind =
            op->in[k] == CT_NONE ? CT_VALUE_PARAM : s->program->values[op->in[k]].kind;
        bool reads = (column && k == 0) || (is_rowwise(op->kind) && out->rows);
        if (in->rows && !reads) {
            in->rows = false;
            changed = true;
        }
        bool feature = kind == CT_VALUE_TEMP || (kind == CT_VALUE_INPUT && k == 0);
        if (is_rowwise(op->kind) && out->rows && feature && !in->rows) {
            out->rows = false;
            changed = true;
        }
    }
    if (op->out[1] != CT_NONE)
        ct_tensor_fate_of(s, op->out[1])->rows = out->rows;
    return changed;
}

static void decide_rows(struct ct_tensor_pass *s)
{
    bool changed = true;

    for (int i = 0; i < s->op_count; i++) {
        const struct ct_program_op *op = &s->ops[i];
        struct ct_tensor_fate *out = ct_tensor_fate_of(s, op->out[0]);
        if (op->out[0] != CT_NONE && out->blocks == 0 &&
            s->program->values[op->out[0]].kind == CT_VALUE_TEMP)
            out->rows = gives_sum(s, op) || is_rowwise(op->kind);
    }
    while (changed) {
        changed = false;
        for (int i = 0; i < s->op_count; i++)
            changed |= release(s, &s->ops[i]);
    }
}

/* Whether tokens can be shared out evenly. */
static bool check_rows(struct ct_tensor_pass *s, bool must)
{
    const struct ct_value *logits = &s->program->values[s->model->logits];
    int64_t rows = ct_shape_rows(logits->shape);

    if (rows % s->plan->mesh.tensor == 0)
        return true;
    if (must)
        ct_error_set(&s->program->error, CT_ECONFIG,
                     "parallel.sequence: parallel.tensor is %d, must divide the %" PRId64
                     " rows of a micro-batch",
                     s->plan->mesh.tensor, rows);
    return false;
}

/* ---- the pass ------------------------------------------------------------------------------- */

static int slice(struct ct_tensor_pass *s, bool evaluation)
{
    struct ct_program *program = s->program;

    for (int i = 0; i < s->value_count; i++) {
        s->fates[i] = (struct ct_tensor_fate){
            .shape = program->values[i].shape, .param = CT_NONE, .gathered = CT_NONE};
        CT_ASSERT(program->values[i].root == i);
    }
    s->fates[s->value_count] = (struct ct_tensor_fate){.param = CT_NONE};
    for (int i = 0; i < s->model->param_count; i++)
        s->fates[s->model->params[i].value].param = i;
    if (!decide(s) && program->error.code == 0)
        ct_error_set(&program->error, CT_ECONFIG,
                     "parallel.tensor is %d, but the model has no layer that workers can compute "
                     "together: set it to 1",
                     s->plan->mesh.tensor);
    check_uses(s);
    if (program->error.code == 0 && s->plan->options.sequence && check_rows(s, !evaluation))
        decide_rows(s);
    if (program->error.code == 0)
        ct_tensor_pass_emit(s);
    return program->error.code;
}

int ct_plan_tensor_parallel(struct ct_plan *plan, struct ct_model *model, bool evaluation,
                            struct ct_error *err)
{
    struct ct_program *program = &model->program;
    size_t ops = (size_t)program->op_count, params = (size_t)model->param_count;
    struct ct_tensor_pass s = {.plan = plan,
                               .model = model,
                               .program = program,
                               .op_count = program->op_count,
                               .value_count = program->value_count,
                               .total = CT_NONE};

    if (plan->mesh.tensor == 1)
        return 0;
    s.ops = malloc(ops * sizeof *s.ops);
    s.fates = calloc((size_t)program->value_count + 1, sizeof *s.fates);
    s.sliced = ct_arena_array(&plan->memory, params, sizeof *s.sliced);
    if (s.ops == NULL || s.fates == NULL || s.sliced == NULL) {
        ct_error_set(&program->error, CT_ENOMEM, "no memory to cut %zu ops", ops);
    } else {
        memcpy(s.ops, program->ops, ops * sizeof *s.ops);
        (void)slice(&s, evaluation);
    }
    if (!evaluation)
        plan->sliced = s.sliced;
    free(s.ops);
    free(s.fates);
    return program->error.code == 0
               ? 0
               : ct_error_set(err, program->error.code, "%s", program->error.text);
}
