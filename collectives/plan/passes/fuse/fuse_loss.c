/* See passes.h: ops that read the logits become one op that reads them once.
 *
 *     apart   cross_entropy logits, labels -> loss, stats
 *             correct logits, labels -> count
 *             ...
 *             cross_entropy_bw logits, labels, stats, scale -> dlogits
 *
 *     fused   cross_entropy_grad logits, labels, scale -> dlogits, rows
 *             sum_rows -> loss
 *             sum_rows -> count
 *
 * All of it stands where the loss stood: labels and scale are inputs of the list, so they are
 * there; the logits are not written before the gradient, and the statistics are read by it alone.
 * No bit changes. Where slices share the classes out, or an evaluation wants no gradient, there is
 * nothing to fuse. */
#include "plan/passes/fuse/fuser.h"

enum { LOSS, COUNT, BACK };

static bool is_input(const struct ct_fuser *f, int value)
{
    return f->program->values[ct_fuse_root(f, value)].kind == CT_VALUE_INPUT;
}

/* Whether both have the same logits and labels. */
static bool reads_same(const struct ct_program_op *a, const struct ct_program_op *b)
{
    return a->in[0] == b->in[0] && a->in[1] == b->in[1];
}

/* The op that gave the statistics which gradient `back` reads, if it is the loss of the same
 * logits; CT_NONE. */
static int loss_of(const struct ct_fuser *f, const struct ct_program_op *back)
{
    int stats = ct_fuse_root(f, back->in[2]), loss = f->writer[stats];

    if (loss == CT_NONE || f->ops[loss].kind != CT_OP_CROSS_ENTROPY || f->reads[stats] != 1 ||
        f->ops[loss].out[1] != back->in[2] || !reads_same(&f->ops[loss], back))
        return CT_NONE;
    return f->writer[ct_fuse_root(f, back->in[0])] < loss ? loss : CT_NONE;
}

static void match(struct ct_fuser *f, int i)
{
    const struct ct_program_op *op = &f->ops[i];

    if (op->kind == CT_OP_CORRECT)
        f->note[ct_fuse_root(f, op->in[0])] = i;
    if (op->kind != CT_OP_CROSS_ENTROPY_BW || !is_input(f, op->in[1]) || !is_input(f, op->in[3]))
        return;
    int loss = loss_of(f, op), count = f->note[ct_fuse_root(f, op->in[0])];
    if (loss != CT_NONE && count > loss && reads_same(&f->ops[count], op))
        ct_fuse_add_group(f, (struct ct_fuse_group){.place = loss, .ops = {loss, count, i}});
}

static int rows_value(struct ct_fuser *f, int labels, const char *name)
{
    int64_t rows = ct_shape_elements(f->program->values[labels].shape);

    return ct_program_value(f->program, CT_VALUE_TEMP, CT_F64, ct_shape1(rows), name);
}

/* The sum of `rows` takes the place of `op`, which gave it as its first result. */
static void emit_sum(struct ct_fuser *f, const struct ct_program_op *op, int rows)
{
    struct ct_program_op sum = ct_program_op(CT_OP_SUM_ROWS);

    sum.in[0] = rows;
    sum.out[0] = op->out[0];
    sum.attr.accumulate = op->attr.accumulate;
    ct_program_emit(f->program, sum);
}

static void emit(struct ct_fuser *f, const struct ct_fuse_group *group)
{
    const struct ct_program_op *loss = &f->ops[group->ops[LOSS]];
    const struct ct_program_op *back = &f->ops[group->ops[BACK]];
    struct ct_program_op fused = ct_program_op(CT_OP_CROSS_ENTROPY_GRAD);
    int losses = rows_value(f, loss->in[1], "losses"), right = rows_value(f, loss->in[1], "right");

    fused.in[0] = loss->in[0];
    fused.in[1] = loss->in[1];
    fused.in[2] = back->in[3];
    fused.out[0] = back->out[0];
    fused.out[1] = losses;
    fused.out[2] = right;
    ct_program_emit(f->program, fused);
    emit_sum(f, loss, losses);
    emit_sum(f, &f->ops[group->ops[COUNT]], right);
}

int ct_plan_fuse_loss(struct ct_plan_list *list, struct ct_error *err)
{
    static const struct ct_fuse_pass pass = {.match = match, .emit = emit};

    return ct_fuse_run(&pass, list, err);
}
