/* See stage_split.h: which part each op of a model belongs to, and what each stage keeps. */
#include "collectives/plan/passes/stage_split.h"

#include "base/assert.h"

#include <stdlib.h>

/* ---- who holds what ------------------------------------------------------------------------- */

struct assigner {
    const struct ct_model *model;
    struct ct_stage_split *split;
    struct ct_stage_holders *touch; /* by value: the first and the last part that touches it */
    int *writer, *last;             /* by value: backward ops */
    struct ct_error *err;
};

static int refuse(const struct assigner *a, int op, const char *why)
{
    const struct ct_program *program = &a->model->program;
    int value = program->ops[op].out[0];

    return ct_error_set(a->err, CT_EUNSUPPORTED,
                        "this model cannot be cut for a pipeline: op %d (%s of %s) %s", op,
                        ct_rule_info(program->ops[op].kind)->name,
                        value == CT_NONE ? "nothing" : program->values[value].name, why);
}

static void extend(struct ct_stage_holders *holders, int part)
{
    if (holders->first == CT_NONE)
        holders->first = part;
    holders->first = CT_MIN(holders->first, part);
    holders->last = CT_MAX(holders->last, part);
}

/* The values of an op: inputs, then outputs. */
enum { OPERANDS = CT_OP_MAX_IN + CT_OP_MAX_OUT };

static int operand(const struct ct_program_op *op, int k)
{
    return k < CT_OP_MAX_IN ? op->in[k] : op->out[k - CT_OP_MAX_IN];
}

static void assign_forward(struct assigner *a)
{
    int part = 0;

    for (int v = 0; v < a->model->program.value_count; v++)
        a->touch[v] = (struct ct_stage_holders){CT_NONE, CT_NONE};
    for (int i = 0; i < a->model->forward_count; i++) {
        while (i > a->split->borders[part])
            part++;
        a->split->part_of[i] = part;
        for (int k = 0; k < OPERANDS; k++) {
            int value = operand(&a->model->program.ops[i], k);
            if (value != CT_NONE)
                extend(&a->touch[value], part);
        }
    }
}

/* A parameter that nothing reads stays with the one before it; gradients are where theirs is. */
static void assign_params(struct assigner *a)
{
    int part = 0;

    for (int i = 0; i < a->model->param_count; i++) {
        const struct ct_model_param *param = &a->model->params[i];
        if (a->touch[param->value].first == CT_NONE)
            extend(&a->touch[param->value], part);
        part = a->touch[param->value].first;
        if (param->grad != CT_NONE)
            a->touch[param->grad] = a->touch[param->value];
    }
    for (int i = 0; i < a->model->stat_count; i++) { /* buffers are where their batch norm is */
        const struct ct_model_stat *stat = &a->model->stats[i];
        a->touch[a->model->buffers[stat->mean].value] = a->touch[stat->run];
        a->touch[a->model->buffers[stat->var].value] = a->touch[stat->run];
    }
}

/* More than two parts that read a parameter would want a sum over all of them. */
static int check_params(const struct assigner *a)
{
    for (int i = 0; i < a->model->forward_count; i++)
        for (int k = 0; k < CT_OP_MAX_IN; k++) {
            int value = a->model->program.ops[i].in[k], part = a->split->part_of[i];
            if (value == CT_NONE || a->model->program.values[value].kind != CT_VALUE_PARAM)
                continue;
            if (part != a->touch[value].first && part != a->touch[value].last)
                return refuse(a, i, "reads a parameter that two other parts read, too");
        }
    return 0;
}

/* ---- the backward pass ---------------------------------------------------------------------- */

/* An op that only writes what no rule of order concerns: a zero gradient. */
static bool stands_alone(const struct ct_program_op *op)
{
    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (op->in[k] != CT_NONE)
            return false;
    return true;
}

/* Inputs that several parts read are written at each of them. */
static bool is_everywhere(const struct assigner *a, int value)
{
    return a->touch[value].first == CT_NONE ||
           (a->model->program.values[value].kind == CT_VALUE_INPUT &&
            a->touch[value].first != a->touch[value].last);
}

/* Held by two parts apart from each other. */
static bool is_tied(const struct assigner *a, int value)
{
    enum ct_value_kind kind = a->model->program.values[value].kind;

    return (kind == CT_VALUE_PARAM || kind == CT_VALUE_GRAD) &&
           a->touch[value].first != a->touch[value].last;
}

/* Whether op `i` touches what is only in front of cut `c`, or only behind it. */
static bool is_in_front(const struct assigner *a, int i, int c)
{
    for (int k = 0; k < OPERANDS; k++) {
        int value = operand(&a->model->program.ops[i], k);
        if (value != CT_NONE && !is_everywhere(a, value) && a->touch[value].last < c)
            return true;
    }
    return false;
}

/* The first backward op that is in front of cut `c`. */
static int first_in_front(const struct assigner *a, int c)
{
    int i = a->model->forward_count;

    while (i < a->model->program.op_count &&
           (stands_alone(&a->model->program.ops[i]) || !is_in_front(a, i, c)))
        i++;
    return i;
}

/* Behind cut `c`: by what it touches; what is tied counts as the copy whose turn it is. */
static bool is_behind(const struct assigner *a, int i, int c)
{
    for (int k = 0; k < OPERANDS; k++) {
        int value = operand(&a->model->program.ops[i], k);
        if (value == CT_NONE || is_everywhere(a, value))
            continue;
        if (a->touch[value].first >= c)
            return true;
        if (is_tied(a, value) && a->touch[value].last >= c &&
            i < first_in_front(a, a->touch[value].last))
            return true;
    }
    return false;
}

static int last_behind(const struct assigner *a, int c)
{
    int i = a->model->program.op_count - 1;

    while (i >= a->model->forward_count &&
           (stands_alone(&a->model->program.ops[i]) || !is_behind(a, i, c)))
        i--;
    return i;
}

static void find_backward_uses(struct assigner *a)
{
    const struct ct_program *program = &a->model->program;

    for (int v = 0; v < program->value_count; v++)
        a->writer[v] = a->last[v] = CT_NONE;
    for (int i = a->model->forward_count; i < program->op_count; i++) {
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            if (program->ops[i].in[k] != CT_NONE)
                a->last[program->ops[i].in[k]] = i;
        for (int k = 0; k < CT_OP_MAX_OUT; k++) {
            int out = program->ops[i].out[k];
            if (out != CT_NONE && program->values[out].kind == CT_VALUE_TEMP &&
                a->writer[out] == CT_NONE)
                a->writer[out] = i;
        }
    }
}

/* What backward ops from `at` on read of those before: how many values, and of how many bytes. */
static int across(const struct assigner *a, int at, int *ret_value, size_t *ret_bytes)
{
    int count = 0;

    *ret_bytes = 0;
    *ret_value = CT_NONE;
    for (int v = 0; v < a->model->program.value_count; v++) {
        if (a->writer[v] == CT_NONE || a->writer[v] >= at || a->last[v] < at)
            continue;
        count++;
        *ret_value = v;
        *ret_bytes += a->model->program.values[v].bytes;
    }
    return count;
}

/* Cut the backward pass at `c`, not before op `from`; its first op in front of the cut. */
static int split_backward(struct assigner *a, int c, int from, int *ret_at)
{
    int begin = CT_MAX(last_behind(a, c) + 1, from), end = first_in_front(a, c);
    size_t least = SIZE_MAX, bytes;
    int value;

    for (int at = begin; at <= end; at++)
        if (across(a, at, &value, &bytes) <= 1 && bytes < least) {
            least = bytes;
            *ret_at = at;
            a->split->carried_back[c] = value;
        }
    if (least != SIZE_MAX)
        return 0;
    return refuse(a, CT_MIN(begin, a->model->program.op_count - 1),
                  "does not keep to one side of a cut in the backward pass");
}

static int assign_backward(struct assigner *a)
{
    const struct ct_program *program = &a->model->program;
    int at = a->model->forward_count, code = 0;

    a->split->carried_back[0] = CT_NONE;
    for (int c = a->split->parts - 1; c >= 0 && code == 0; c--) {
        int end = program->op_count;
        if (c > 0)
            code = split_backward(a, c, at, &end);
        for (; at < end && code == 0; at++)
            a->split->part_of[at] = c;
    }
    for (int i = a->model->forward_count; i < program->op_count && code == 0; i++)
        if (stands_alone(&program->ops[i]))
            a->split->part_of[i] = a->touch[program->ops[i].out[0]].first;
    return code;
}

/* ---- proof ---------------------------------------------------------------------------------- */

/* Whether part `part` has `value` when a pass of it runs. */
static bool is_at_hand(const struct assigner *a, int value, int part, const int *made_by)
{
    switch (a->model->program.values[value].kind) {
    case CT_VALUE_PARAM:
    case CT_VALUE_GRAD:
        return part == a->touch[value].first || part == a->touch[value].last;
    case CT_VALUE_TEMP:
        return made_by[value] == part || value == a->split->carried[part] ||
               (part + 1 < a->split->parts && value == a->split->carried_back[part + 1]);
    case CT_VALUE_INPUT:
        return true;
    default:
        return part == a->touch[value].first && part == a->touch[value].last;
    }
}

/* Each op finds all that it touches in its part. */
static int check(const struct assigner *a)
{
    const struct ct_program *program = &a->model->program;
    int *made_by = a->writer; /* not needed any more */

    for (int v = 0; v < program->value_count; v++)
        made_by[v] = CT_NONE;
    for (int i = 0; i < program->op_count; i++) {
        int part = a->split->part_of[i];
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            if (program->ops[i].out[k] != CT_NONE)
                made_by[program->ops[i].out[k]] = part;
        for (int k = 0; k < OPERANDS; k++) {
            int value = operand(&program->ops[i], k);
            if (value != CT_NONE && !is_at_hand(a, value, part, made_by))
                return refuse(a, i, "needs what another part has");
        }
    }
    return 0;
}

int ct_stage_split_assign(struct ct_stage_split *split, const struct ct_model *model,
                          struct ct_arena *arena, struct ct_error *err)
{
    size_t values = (size_t)model->program.value_count;
    struct assigner a = {.model = model, .split = split, .err = err};
    int code = CT_ENOMEM;

    split->part_of = ct_arena_array(arena, (size_t)model->program.op_count, sizeof *split->part_of);
    split->holders = a.touch = ct_arena_array(arena, values, sizeof *a.touch);
    a.writer = malloc(values * sizeof *a.writer);
    a.last = malloc(values * sizeof *a.last);
    if (split->part_of != NULL && a.touch != NULL && a.writer != NULL && a.last != NULL) {
        assign_forward(&a);
        assign_params(&a);
        find_backward_uses(&a);
        code = check_params(&a);
        if (code == 0)
            code = assign_backward(&a);
        if (code == 0)
            code = check(&a);
    } else {
        code = ct_error_set(err, code, "no memory to cut a model");
    }
    free(a.writer);
    free(a.last);
    return code;
}

/* ---- one stage ------------------------------------------------------------------------------ */

/* Ops that add to what an op of another stage wrote first write now. */
static void write_first(struct ct_program *program, int param_grad)
{
    for (int i = 0; i < program->op_count; i++) {
        struct ct_program_op *op = &program->ops[i];
        if (op->out[0] != param_grad)
            continue;
        if (op->kind == CT_OP_AXPY) {
            op->kind = CT_OP_COPY;
            op->attr.alpha = 0;
        }
        op->attr.accumulate = false;
        return;
    }
}

void ct_stage_split_keep(struct ct_stage_split *split, struct ct_model *model, int stage,
                         int stages)
{
    struct ct_program *program = &model->program;
    int kept = 0, forward = 0;

    for (int i = 0; i < program->op_count; i++) {
        if (split->part_of[i] % stages != stage)
            continue;
        split->part_of[kept] = split->part_of[i];
        program->ops[kept++] = program->ops[i];
        forward += i < model->forward_count;
    }
    program->op_count = kept;
    model->forward_count = forward;
    for (int i = 0; i < model->param_count; i++)
        if (model->params[i].grad != CT_NONE)
            write_first(program, model->params[i].grad);
}
