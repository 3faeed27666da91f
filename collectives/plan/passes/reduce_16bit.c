/* See passes.h: gradients that are added up over the ranks in 16 bits, and so are half as long on
 * their way.
 *
 *     ranks hold all                       ranks hold parts
 *
 *     in f32           in 16 bits          in f32                     in 16 bits
 *     g += dw          g += dw
 *                      n = narrow g                                   n    = narrow g
 *     all_reduce g     all_reduce n        part = reduce_scatter g    p    = reduce_scatter n
 *     ...              ...                 ...                        ...
 *                      g = widen n                                    part = widen p
 *
 * Micro-batches add up in the model's own type before that. All sums are widened when the update
 * begins, so that nothing in front of it waits for them. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

struct wire {
    struct ct_program *program;
    enum ct_dtype dtype;
    int *carrier; /* by value: what carries the sum of this gradient, or CT_NONE */
    int value_count;
};

static bool is_gradient(const struct wire *w, int value)
{
    return value != CT_NONE && value < w->value_count &&
           w->program->values[value].kind == CT_VALUE_GRAD;
}

static int narrow_like(struct wire *w, int value)
{
    struct ct_value v = w->program->values[value]; /* adding one moves the array */

    return ct_program_value(w->program, CT_VALUE_TEMP, w->dtype, v.shape, v.name);
}

static int emit_cast(struct wire *w, int kind, int in, int out)
{
    struct ct_program_op op = ct_program_op(kind);

    op.in[0] = in;
    op.out[0] = out;
    return ct_program_emit(w->program, op);
}

/* An op that adds up a gradient over ranks: the same on what carries it. */
static void carry(struct wire *w, struct ct_program_op op)
{
    int sum = op.out[0];

    if (op.kind == CT_OP_REDUCE_SCATTER) {
        op.in[0] = emit_cast(w, CT_OP_NARROW, op.in[0], narrow_like(w, op.in[0]));
        op.out[0] = w->carrier[sum] = narrow_like(w, sum);
    } else {
        if (w->carrier[sum] == CT_NONE)
            w->carrier[sum] = emit_cast(w, CT_OP_NARROW, sum, narrow_like(w, sum));
        op.in[0] = op.out[0] = w->carrier[sum];
    }
    ct_program_emit(w->program, op);
}

static void unload(struct wire *w)
{
    for (int i = 0; i < w->value_count; i++)
        if (w->carrier[i] != CT_NONE)
            emit_cast(w, CT_OP_WIDEN, w->carrier[i], i);
}

static bool is_sum(const struct wire *w, const struct ct_program_op *op)
{
    return (op->kind == CT_OP_ALL_REDUCE || op->kind == CT_OP_REDUCE_SCATTER) &&
           is_gradient(w, op->out[0]);
}

static void rewrite(struct wire *w, const struct ct_program_op *ops, int count)
{
    bool unloaded = false;

    for (int i = 0; i < count; i++) {
        if (ops[i].stage == CT_STAGE_UPDATE && !unloaded) {
            w->program->stage = CT_STAGE_REDUCE;
            unload(w);
            unloaded = true;
        }
        w->program->stage = ops[i].stage;
        w->program->micro = ops[i].micro;
        if (is_sum(w, &ops[i]))
            carry(w, ops[i]);
        else
            ct_program_emit(w->program, ops[i]);
    }
}

int ct_plan_narrow_sums(struct ct_plan *plan, struct ct_error *err)
{
    struct ct_program *program = &plan->step.program;
    size_t count = (size_t)program->op_count, values = (size_t)program->value_count;
    struct ct_program_op *ops = malloc(count * sizeof *ops);
    struct wire w = {.program = program,
                     .dtype = plan->options.reduce_dtype,
                     .carrier = malloc(values * sizeof *w.carrier),
                     .value_count = program->value_count};
    int code = CT_ENOMEM;

    if (ops != NULL && w.carrier != NULL) {
        memcpy(ops, program->ops, count * sizeof *ops);
        for (size_t i = 0; i < values; i++)
            w.carrier[i] = CT_NONE;
        program->op_count = 0;
        rewrite(&w, ops, (int)count);
        code = 0;
    }
    free(ops);
    free(w.carrier);
    if (code != 0)
        return ct_error_set(err, code, "no memory to narrow the sums of %zu values", values);
    return program->error.code == 0
               ? 0
               : ct_error_set(err, program->error.code, "reduce_dtype: %s", program->error.text);
}
