/* See passes.h: norms with what stands beside them.
 *
 *     apart   add a, b -> h                               fused   add_layernorm a, b, g, bias
 *             layernorm h, g, bias -> y, stats                              -> h, y, stats
 *
 *     apart   linear_db dy -> db                          fused   layernorm_bw dy, x, g, stats
 *             norm_dg dy, x, stats -> dg                                    -> dx, dg, db
 *             layernorm_dx dy, x, g, stats -> dx
 *
 * The sum stands where it stood: h may be on its way to the host's memory before the norm.
 *
 * rmsnorm has no bias, and a layer norm need not have one. The sum over dy is the same whoever's
 * bias wants it; both sums add to what is there, or neither does. All stands where dg stood, for
 * which x may just have come back; or where db stood, when that is added to other micro-batches'
 * before dg is there.
 *
 * rmsnorm likewise. No bit changes. */
#include "plan/passes/fuse/fuser.h"

enum { DX, DG, DB };
enum { NORM, SUM };

static bool is_norm(int kind)
{
    return kind == CT_OP_LAYERNORM || kind == CT_OP_RMSNORM;
}

/* ---- forward -------------------------------------------------------------------------------- */

/* An add takes flat operands, a norm rows of h: so are a and b to be. */
static bool has_rows(const struct ct_fuser *f, const struct ct_program_op *sum)
{
    const struct ct_value *values = f->program->values;
    int64_t columns = ct_shape_columns(values[sum->out[0]].shape);

    return ct_shape_columns(values[sum->in[0]].shape) == columns &&
           ct_shape_columns(values[sum->in[1]].shape) == columns;
}

static void look_forward(struct ct_fuser *f, int norm)
{
    int h = f->ops[norm].in[0], sum = f->writer[ct_fuse_root(f, h)];

    if (sum != CT_NONE && f->ops[sum].kind == CT_OP_ADD && f->ops[sum].out[0] == h &&
        f->group_of[sum] == CT_NONE && has_rows(f, &f->ops[sum]) && ct_fuse_may_move(f, norm, sum))
        ct_fuse_add_group(f, (struct ct_fuse_group){.place = sum, .ops = {norm, sum, CT_NONE}});
}

static void emit_forward(struct ct_fuser *f, const struct ct_fuse_group *group)
{
    const struct ct_program_op *norm = &f->ops[group->ops[NORM]], *sum = &f->ops[group->ops[SUM]];
    bool layer = norm->kind == CT_OP_LAYERNORM;
    struct ct_program_op fused = ct_program_op(layer ? CT_OP_ADD_LAYERNORM : CT_OP_ADD_RMSNORM);

    fused.in[0] = sum->in[0];
    fused.in[1] = sum->in[1];
    fused.in[2] = norm->in[1];
    fused.in[3] = norm->in[2];
    fused.out[0] = sum->out[0];
    fused.out[1] = norm->out[0];
    fused.out[2] = norm->out[1];
    fused.attr = norm->attr;
    ct_program_emit(f->program, fused);
}

/* ---- backward ------------------------------------------------------------------------------- */

/* The op of `kind` that adds up the dy which op `dx` reads, and is the last one in front of it that
 * is in no group; of norm_dg the one with its x and statistics. CT_NONE. */
static int sum_of(const struct ct_fuser *f, int kind, int dx)
{
    const struct ct_program_op *back = &f->ops[dx];
    int begin = f->writer[ct_fuse_root(f, back->in[0])];

    for (int i = dx - 1; i > begin; i--) {
        const struct ct_program_op *op = &f->ops[i];
        if (op->kind == kind && op->in[0] == back->in[0] && f->group_of[i] == CT_NONE &&
            (kind == CT_OP_LINEAR_DB || (op->in[1] == back->in[1] && op->in[2] == back->in[3])))
            return i;
    }
    return CT_NONE;
}

/* Whether the other two may be done at `place`, which is one of the sums. */
static bool may_join_at(const struct ct_fuser *f, int place, int sum, int dx)
{
    return ct_fuse_may_move(f, sum, place) && ct_fuse_may_move(f, dx, place);
}

static void match_backward(struct ct_fuser *f, int dx)
{
    int dg = sum_of(f, CT_OP_NORM_DG, dx), db = CT_NONE;

    if (dg != CT_NONE && f->ops[dx].kind == CT_OP_LAYERNORM_DX)
        db = sum_of(f, CT_OP_LINEAR_DB, dx);
    if (db != CT_NONE && f->ops[db].attr.accumulate == f->ops[dg].attr.accumulate) {
        int place = may_join_at(f, dg, db, dx) ? dg : may_join_at(f, db, dg, dx) ? db : CT_NONE;
        if (place != CT_NONE) {
            ct_fuse_add_group(f, (struct ct_fuse_group){.place = place, .ops = {dx, dg, db}});
            return;
        }
    }
    if (dg != CT_NONE && ct_fuse_may_move(f, dx, dg))
        ct_fuse_add_group(f, (struct ct_fuse_group){.place = dg, .ops = {dx, dg, CT_NONE}});
}

static void emit_back(struct ct_fuser *f, const struct ct_fuse_group *group)
{
    const struct ct_program_op *dx = &f->ops[group->ops[DX]], *dg = &f->ops[group->ops[DG]];
    bool layer = dx->kind == CT_OP_LAYERNORM_DX;
    struct ct_program_op fused = ct_program_op(layer ? CT_OP_LAYERNORM_BW : CT_OP_RMSNORM_BW);

    for (int k = 0; k < CT_OP_MAX_IN; k++)
        fused.in[k] = dx->in[k];
    fused.out[0] = dx->out[0];
    fused.out[1] = dg->out[0];
    fused.out[2] = group->ops[DB] == CT_NONE ? CT_NONE : f->ops[group->ops[DB]].out[0];
    fused.attr.accumulate = dg->attr.accumulate;
    ct_program_emit(f->program, fused);
}

/* ---- both ----------------------------------------------------------------------------------- */

static void match(struct ct_fuser *f, int i)
{
    int kind = f->ops[i].kind;

    if (is_norm(kind))
        look_forward(f, i);
    if (kind == CT_OP_LAYERNORM_DX || kind == CT_OP_RMSNORM_DX)
        match_backward(f, i);
}

static void emit(struct ct_fuser *f, const struct ct_fuse_group *group)
{
    if (is_norm(f->ops[group->ops[NORM]].kind))
        emit_forward(f, group);
    else
        emit_back(f, group);
}

int ct_plan_fuse_norm(struct ct_plan_list *list, struct ct_error *err)
{
    static const struct ct_fuse_pass pass = {.match = match, .emit = emit};

    return ct_fuse_run(&pass, list, err);
}
