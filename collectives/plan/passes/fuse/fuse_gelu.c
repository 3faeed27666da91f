/* See passes.h: products that end with gelu_tanh, or with its gradient.
 *
 *     apart      linear x, W, b -> pre             fused   linear_gelu x, W, b -> y, pre
 *                gelu_tanh pre -> y
 *
 *                linear_dx dy, W -> dh                     linear_dx_gelu dy, W, pre -> dx
 *                gelu_tanh_bw dh, pre -> dx
 *
 * dh is read by nobody else at all. A pre-activation that gelu_tanh reads once more (recomputed in
 * the backward pass) stays apart from its product: in 16 bits a product takes it on before it is
 * rounded, and both readings are to have the same bits. */
#include "plan/passes/fuse/fuser.h"

enum { PRODUCT, ACTIVATION };

/* By root: how many gelu_tanh read it. */
static void begin(struct ct_fuser *f)
{
    for (int i = 0; i < f->op_count; i++)
        if (f->ops[i].kind == CT_OP_GELU_TANH)
            f->note[ct_fuse_root(f, f->ops[i].in[0])]++;
}

/* The op of `kind` whose result op `i` takes on, all of it, and may be done with it; CT_NONE. */
static int product_of(const struct ct_fuser *f, int kind, int i)
{
    const struct ct_program_op *op = &f->ops[i];
    const struct ct_value *values = f->program->values;
    int between = op->in[0], product = f->writer[ct_fuse_root(f, between)];

    if (product == CT_NONE || f->ops[product].kind != kind || f->ops[product].out[0] != between ||
        !ct_fuse_may_move(f, product, i))
        return CT_NONE;
    return ct_shape_rows(values[op->out[0]].shape) == ct_shape_rows(values[between].shape) &&
                   ct_shape_columns(values[op->out[0]].shape) ==
                       ct_shape_columns(values[between].shape)
               ? product
               : CT_NONE;
}

/* Whether the gradient that op `i` takes on is a temporary for it alone, and `pre` is there beside
 * it. */
static bool vanishes(const struct ct_fuser *f, int i)
{
    const struct ct_program_op *op = &f->ops[i];
    const struct ct_value *values = f->program->values;
    int root = ct_fuse_root(f, op->in[0]), pre = op->in[1];

    return f->reads[root] == 1 && values[root].kind == CT_VALUE_TEMP &&
           ct_fuse_root(f, pre) != ct_fuse_root(f, op->out[0]) &&
           ct_shape_columns(values[pre].shape) == ct_shape_columns(values[op->out[0]].shape);
}

static void match(struct ct_fuser *f, int i)
{
    const struct ct_program_op *op = &f->ops[i];
    int product = CT_NONE;

    if (op->kind == CT_OP_GELU_TANH && f->note[ct_fuse_root(f, op->in[0])] == 1)
        product = product_of(f, CT_OP_LINEAR, i);
    if (op->kind == CT_OP_GELU_TANH_BW && vanishes(f, i))
        product = product_of(f, CT_OP_LINEAR_DX, i);
    if (product != CT_NONE)
        ct_fuse_add_group(f, (struct ct_fuse_group){.place = i, .ops = {product, i, CT_NONE}});
}

static void emit(struct ct_fuser *f, const struct ct_fuse_group *group)
{
    const struct ct_program_op *product = &f->ops[group->ops[PRODUCT]];
    const struct ct_program_op *map = &f->ops[group->ops[ACTIVATION]];
    bool forward = product->kind == CT_OP_LINEAR;
    struct ct_program_op fused = ct_program_op(forward ? CT_OP_LINEAR_GELU : CT_OP_LINEAR_DX_GELU);

    fused.in[0] = product->in[0];
    fused.in[1] = product->in[1];
    fused.in[2] = forward ? product->in[2] : map->in[1];
    fused.out[0] = map->out[0];
    fused.out[1] = forward ? product->out[0] : CT_NONE;
    ct_program_emit(f->program, fused);
}

int ct_plan_fuse_gelu(struct ct_plan_list *list, struct ct_error *err)
{
    static const struct ct_fuse_pass pass = {begin, match, emit};

    return ct_fuse_run(&pass, list, err);
}
