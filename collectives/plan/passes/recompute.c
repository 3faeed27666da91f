/* See passes.h: forward ops run once more in the backward pass, instead of keeping what they gave.
 *
 *     kept        x -> a -> b -> c | dc -> db -> da         a, b live from forward to backward
 *     recomputed  x -> a -> b -> c | a' -> b' -> db -> da   x lives on, a and b do not
 *
 * Which ops may be repeated is a set; the rest follows from it: the backward ops are emitted anew,
 * and one that reads what a repeatable op gave first gets that op's copy, and the copies of what
 * that reads. Copies draw the same masks (philox), so no bit changes; the memory pass sees shorter
 * lives. */
#include "collectives/plan/passes/passes.h"
#include "collectives/plan/passes/stage_split.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

struct recomputer {
    struct ct_program *program;
    int forward_count;
    int *writer;     /* by value: the forward op that gives it, or CT_NONE */
    int *last;       /* by value: the last forward op that reads it */
    int *copy;       /* by value: what the backward pass reads for it; CT_NONE: itself */
    bool *repeats;   /* by forward op */
    int value_count; /* before any copy */
    bool narrows;    /* narrow copies of parameters may be made again, too */
};

/* ---- what is repeated ------------------------------------------------------------------------ */

static bool is_activation(int kind)
{
    return kind == CT_OP_GELU || kind == CT_OP_GELU_TANH || kind == CT_OP_SWIGLU ||
           kind == CT_OP_RELU || kind == CT_OP_TANH;
}

/* What leaves the micro-batch is given once: sums, statistics of the global batch. The latter are
 * small, and are added up over micro-batches and ranks. Nor do slices add up a second time. */
static bool may_repeat(const struct recomputer *r, const struct ct_program_op *op)
{
    const struct ct_program *program = r->program;

    if (ct_plan_narrows_param(program, op) && !r->narrows)
        return false;
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        if (op->out[k] != CT_NONE && program->values[op->out[k]].kind != CT_VALUE_TEMP)
            return false;
    if (op->kind == CT_OP_RANK_SUM || op->kind == CT_OP_RANK_MAX ||
        op->kind == CT_OP_REDUCE_SCATTER)
        return false;
    return op->kind != CT_OP_BATCH_SUMS && op->kind != CT_OP_BATCH_TOTAL &&
           op->kind != CT_OP_BATCH_STATS && op->kind != CT_OP_BATCH_RUN;
}

static void find_uses(struct recomputer *r)
{
    for (int i = 0; i < r->value_count; i++)
        r->writer[i] = r->last[i] = r->copy[i] = CT_NONE;
    for (int i = 0; i < r->forward_count; i++) {
        const struct ct_program_op *op = &r->program->ops[i];
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            if (op->in[k] != CT_NONE)
                r->last[op->in[k]] = i;
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            if (op->out[k] != CT_NONE)
                r->writer[op->out[k]] = i;
    }
}

/* The only value that forward ops behind op `i` read of those before; CT_NONE when there are more.
 */
static int border_at(const struct recomputer *r, int i)
{
    int border = CT_NONE;

    for (int v = 0; v < r->value_count; v++) {
        if (r->writer[v] == CT_NONE || r->writer[v] > i || r->last[v] <= i)
            continue;
        if (border != CT_NONE)
            return CT_NONE;
        border = v;
    }
    return border;
}

/* The name of a parameter that `op` reads, be it a narrow copy, or NULL. */
static const char *parameter_of(const struct recomputer *r, const struct ct_program_op *op)
{
    const struct ct_program *program = r->program;

    for (int k = 0; k < CT_OP_MAX_IN; k++) {
        int value = op->in[k], writer = value == CT_NONE ? CT_NONE : r->writer[value];
        if (writer != CT_NONE && ct_plan_narrows_param(program, &program->ops[writer]))
            value = program->ops[writer].in[0];
        if (value != CT_NONE && program->values[value].kind == CT_VALUE_PARAM)
            return program->values[value].name;
    }
    return NULL;
}

/* Repeat all but what stands between blocks, `every` of them at a time, and the last of these. */
static void choose_blocks(struct recomputer *r, int every)
{
    const char *unit = NULL;
    int units = 0, border = CT_NONE, begin = 0;

    for (int i = 0; i < r->forward_count; i++) {
        const char *name = parameter_of(r, &r->program->ops[i]);
        if (name != NULL && unit != NULL && !ct_plan_same_unit(unit, name) &&
            ++units % every == 0 && border != CT_NONE) {
            for (int op = begin; op <= border; op++)
                r->repeats[op] = op != border;
            begin = border + 1;
        }
        unit = name != NULL ? name : unit;
        if (border_at(r, i) != CT_NONE)
            border = r->writer[border_at(r, i)];
    }
}

/* What goes from one part of a pipeline to the next is kept by both. */
static void keep_carried(struct recomputer *r, const struct ct_stage_split *split)
{
    for (int part = 1; split != NULL && part < split->parts; part++)
        r->repeats[r->writer[split->carried[part]]] = false;
}

static void choose(struct recomputer *r, const struct ct_plan_options *options)
{
    if (options->recompute == CT_PLAN_RECOMPUTE_BLOCK)
        choose_blocks(r, CT_MAX(options->recompute_blocks, 1));
    for (int i = 0; i < r->forward_count; i++) {
        int kind = r->program->ops[i].kind;
        if (options->recompute == CT_PLAN_RECOMPUTE_GELU)
            r->repeats[i] = is_activation(kind);
        if (options->recompute == CT_PLAN_RECOMPUTE_ATTENTION)
            r->repeats[i] = kind == CT_OP_ATTENTION;
        r->repeats[i] = r->repeats[i] && may_repeat(r, &r->program->ops[i]);
    }
}

/* ---- the backward pass anew ------------------------------------------------------------------ */

/* What a backward op reads for `value`: a copy, emitted now if it is the first to ask. */
static int wanted(struct recomputer *r, int value)
{
    int writer = value == CT_NONE || value >= r->value_count ? CT_NONE : r->writer[value];

    if (writer == CT_NONE || !r->repeats[writer])
        return value;
    if (r->copy[value] != CT_NONE)
        return r->copy[value];
    struct ct_program_op op = r->program->ops[writer];
    for (int k = 0; k < CT_OP_MAX_IN; k++)
        op.in[k] = wanted(r, op.in[k]);
    for (int k = 0; k < CT_OP_MAX_OUT; k++) {
        if (op.out[k] == CT_NONE)
            continue;
        struct ct_value v = r->program->values[op.out[k]]; /* adding one moves the array */
        int copy = ct_program_value(r->program, v.kind, v.dtype, v.shape, v.name);
        r->copy[op.out[k]] = copy;
        op.out[k] = copy;
    }
    ct_program_emit(r->program, op);
    return r->copy[value];
}

static int emit_backward(struct recomputer *r)
{
    struct ct_program *program = r->program;
    int count = program->op_count - r->forward_count;
    struct ct_program_op *ops = malloc((size_t)count * sizeof *ops);

    if (ops == NULL)
        return CT_ENOMEM;
    memcpy(ops, program->ops + r->forward_count, (size_t)count * sizeof *ops);
    program->op_count = r->forward_count;
    program->stage = CT_STAGE_BACKWARD;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            ops[i].in[k] = wanted(r, ops[i].in[k]);
        ct_program_emit(program, ops[i]);
    }
    free(ops);
    return 0;
}

int ct_plan_recompute(struct ct_model *model, const struct ct_stage_split *split,
                      const struct ct_plan_options *options, struct ct_error *err)
{
    struct ct_program *program = &model->program;
    size_t values = (size_t)program->value_count;
    struct recomputer r = {.program = program,
                           .forward_count = model->forward_count,
                           .value_count = program->value_count,
                           .narrows = options->shard == CT_PLAN_SHARD_FULL,
                           .writer = malloc(values * sizeof *r.writer),
                           .last = malloc(values * sizeof *r.last),
                           .copy = malloc(values * sizeof *r.copy),
                           .repeats = calloc((size_t)model->forward_count, sizeof *r.repeats)};
    int code = CT_ENOMEM;

    if (r.writer != NULL && r.last != NULL && r.copy != NULL && r.repeats != NULL) {
        find_uses(&r);
        choose(&r, options);
        keep_carried(&r, split);
        code = emit_backward(&r);
    }
    free(r.writer);
    free(r.last);
    free(r.copy);
    free(r.repeats);
    if (code != 0)
        return ct_error_set(err, code, "no memory to recompute %zu values", values);
    return program->error.code == 0
               ? 0
               : ct_error_set(err, program->error.code, "recompute: %s", program->error.text);
}
