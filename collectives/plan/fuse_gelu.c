/* See passes.h: products that end with gelu_tanh, or with its gradient.
 *
 *     apart      linear x, W, b -> pre             fused   linear_gelu x, W, b -> y, pre
 *                gelu_tanh pre -> y
 *
 *                linear_dx dy, W -> dh                     linear_dx_gelu dy, W, pre -> dx
 *                gelu_tanh_bw dh, pre -> dx
 *
 * One op stands where the second stood, so what the first reads must still be there, and nobody may
 * touch what it gives in between; dh is read by nobody else at all. A pre-activation that gelu_tanh
 * reads once more (recomputed in the backward pass) stays apart from its product: in 16 bits a
 * product takes it on before it is rounded, and both readings are to have the same bits. */
#include "collectives/plan/passes.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* By root, of the ops so far. */
struct use {
    int touched, written; /* the last op that reads or writes it, that writes it; CT_NONE */
};

struct fuser {
    struct ct_program *program;
    struct ct_program_op *ops; /* as they were */
    int op_count;
    struct use *uses;
    int *reads;  /* by root: how many ops read it, of the whole list */
    int *gelus;  /* likewise: how many of these are gelu_tanh */
    int *before; /* by op: the op that becomes one with it; CT_NONE */
    bool *gone;  /* by op: it is part of another one */
};

static int root_of(const struct fuser *f, int value)
{
    return value == CT_NONE ? CT_NONE : f->program->values[value].root;
}

/* ---- finding -------------------------------------------------------------------------------- */

static void count_reads(struct fuser *f)
{
    for (int i = 0; i < f->op_count; i++)
        for (int k = 0; k < CT_OP_MAX_IN; k++) {
            int root = root_of(f, f->ops[i].in[k]);
            if (root == CT_NONE)
                continue;
            f->reads[root]++;
            f->gelus[root] += f->ops[i].kind == CT_OP_GELU_TANH;
        }
}

/* A temporary of its own, all of it. */
static bool stands_alone(const struct fuser *f, int value)
{
    const struct ct_value *v = &f->program->values[value];

    return v->root == value && v->kind == CT_VALUE_TEMP;
}

/* Whether op `second` takes on what a product of `kind` gave, its input 0, and that could be done
 * by one op in its place. */
static bool follows(const struct fuser *f, int kind, int second)
{
    const struct ct_program_op *op = &f->ops[second];
    int between = op->in[0], first = f->uses[root_of(f, between)].touched;
    const struct ct_program_op *product = first == CT_NONE ? NULL : &f->ops[first];

    if (product == NULL || product->kind != kind || product->out[0] != between ||
        !stands_alone(f, between) || product->dtype != op->dtype || product->stage != op->stage ||
        product->micro != op->micro || root_of(f, op->out[0]) == between)
        return false;
    for (int k = 0; k < CT_OP_MAX_IN; k++) {
        int root = root_of(f, product->in[k]);
        if (root != CT_NONE && (f->uses[root].written > first || root == root_of(f, op->out[0])))
            return false;
    }
    const struct ct_value *values = f->program->values;

    return ct_shape_rows(values[op->out[0]].shape) == ct_shape_rows(values[between].shape) &&
           ct_shape_columns(values[op->out[0]].shape) == ct_shape_columns(values[between].shape);
}

/* The same of the backward pass: what lies between vanishes, and `pre` is read beside. */
static bool follows_back(const struct fuser *f, int second)
{
    const struct ct_program_op *op = &f->ops[second];
    const struct ct_value *values = f->program->values;
    int pre = op->in[1];

    return follows(f, CT_OP_LINEAR_DX, second) && f->reads[root_of(f, op->in[0])] == 1 &&
           root_of(f, pre) != root_of(f, op->out[0]) &&
           ct_shape_columns(values[pre].shape) == ct_shape_columns(values[op->out[0]].shape);
}

static void note_uses(struct fuser *f, int i)
{
    const struct ct_program_op *op = &f->ops[i];

    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (op->in[k] != CT_NONE)
            f->uses[root_of(f, op->in[k])].touched = i;
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        if (op->out[k] != CT_NONE)
            f->uses[root_of(f, op->out[k])] = (struct use){.touched = i, .written = i};
}

static void find(struct fuser *f)
{
    for (int i = 0; i < f->program->value_count; i++)
        f->uses[i] = (struct use){.touched = CT_NONE, .written = CT_NONE};
    count_reads(f);
    for (int i = 0; i < f->op_count; i++) {
        int kind = f->ops[i].kind, in = f->ops[i].in[0];
        bool fits = (kind == CT_OP_GELU_TANH && f->gelus[root_of(f, in)] == 1 &&
                     follows(f, CT_OP_LINEAR, i)) ||
                    (kind == CT_OP_GELU_TANH_BW && follows_back(f, i));

        f->before[i] = fits ? f->uses[in].touched : CT_NONE;
        if (fits)
            f->gone[f->before[i]] = true;
        note_uses(f, i);
    }
}

/* ---- rewriting ------------------------------------------------------------------------------ */

static void emit_pair(struct fuser *f, const struct ct_program_op *first,
                      const struct ct_program_op *second)
{
    bool forward = first->kind == CT_OP_LINEAR;
    struct ct_program_op fused = ct_program_op(forward ? CT_OP_LINEAR_GELU : CT_OP_LINEAR_DX_GELU);

    f->program->stage = second->stage;
    f->program->micro = second->micro;
    fused.in[0] = first->in[0];
    fused.in[1] = first->in[1];
    fused.in[2] = forward ? first->in[2] : second->in[1];
    fused.out[0] = second->out[0];
    fused.out[1] = forward ? first->out[0] : CT_NONE;
    ct_program_emit(f->program, fused);
}

/* Two ops become one: there is room. */
static void rewrite(struct fuser *f)
{
    f->program->op_count = 0;
    for (int i = 0; i < f->op_count; i++) {
        if (f->before[i] != CT_NONE)
            emit_pair(f, &f->ops[f->before[i]], &f->ops[i]);
        else if (!f->gone[i])
            f->program->ops[f->program->op_count++] = f->ops[i];
    }
}

int ct_plan_fuse_gelu(struct ct_plan_list *list, struct ct_error *err)
{
    struct ct_program *program = &list->program;
    size_t values = (size_t)program->value_count, count = (size_t)program->op_count;
    struct fuser f = {.program = program,
                      .op_count = program->op_count,
                      .ops = malloc(count * sizeof *f.ops),
                      .uses = malloc(values * sizeof *f.uses),
                      .reads = calloc(values, sizeof *f.reads),
                      .gelus = calloc(values, sizeof *f.gelus),
                      .before = malloc(count * sizeof *f.before),
                      .gone = calloc(count, sizeof *f.gone)};
    int code = CT_ENOMEM;

    if (f.ops != NULL && f.uses != NULL && f.reads != NULL && f.gelus != NULL && f.before != NULL &&
        f.gone != NULL) {
        memcpy(f.ops, program->ops, count * sizeof *f.ops);
        find(&f);
        rewrite(&f);
        code = program->error.code;
    }
    free(f.ops);
    free(f.uses);
    free(f.reads);
    free(f.gelus);
    free(f.before);
    free(f.gone);
    return code == 0 ? 0
                     : ct_error_set(err, code, "fuse: %s",
                                    program->error.code != 0 ? program->error.text : "no memory");
}
