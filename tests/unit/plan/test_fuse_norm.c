/* Norms and what stands beside them: what becomes one op, and what does not. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

TestSuite(fuse_norm, .timeout = 10);

/* The backward pass of a norm of 3 rows and 4 columns, whose dy an op of the list gave. */
struct normed {
    struct ct_plan_list list;
    struct ct_program *program;
    int dy, x, g, stats, dg, db, dx;
};

static int given(struct normed *n, struct ct_shape shape, const char *name)
{
    return ct_program_value(n->program, CT_VALUE_INPUT, CT_F32, shape, name);
}

static void begin_norm(struct normed *n)
{
    *n = (struct normed){0};
    n->program = &n->list.program;
    ct_program_init(n->program);
    n->program->stage = CT_STAGE_BACKWARD;
    n->x = given(n, ct_shape2(3, 4), "x");
    n->g = given(n, ct_shape1(4), "g");
    n->stats = given(n, ct_shape2(3, 2), "stats");
    n->dg = ct_program_value(n->program, CT_VALUE_GRAD, CT_F32, ct_shape1(4), "dg");
    n->db = ct_program_value(n->program, CT_VALUE_GRAD, CT_F32, ct_shape1(4), "db");
    n->dy = ct_program_emit(n->program, op_reading(CT_OP_RELU, n->x, -1, -1, -1));
}

static void sum_db(struct normed *n, bool accumulate)
{
    struct ct_program_op op = op_reading(CT_OP_LINEAR_DB, n->dy, -1, -1, -1);

    op.out[0] = n->db;
    op.attr.accumulate = accumulate;
    ct_program_emit(n->program, op);
}

static void sum_dg(struct normed *n, bool accumulate)
{
    struct ct_program_op op = op_reading(CT_OP_NORM_DG, n->dy, n->x, n->stats, -1);

    op.out[0] = n->dg;
    op.attr.accumulate = accumulate;
    ct_program_emit(n->program, op);
}

static void norm_dx(struct normed *n, int kind)
{
    n->dx = ct_program_emit(n->program, op_reading(kind, n->dy, n->x, n->g, n->stats));
}

static void write_to(struct normed *n, int value)
{
    struct ct_program_op fill = ct_program_op(CT_OP_FILL);

    fill.out[0] = value;
    ct_program_emit(n->program, fill);
}

static void fuse_norm(struct normed *n)
{
    struct ct_error err = {0};

    cr_assert_eq(n->program->error.code, 0, "%s", n->program->error.text);
    cr_assert_eq(ct_plan_fuse_norm(&n->list, &err), 0, "%s", err.text);
}

/* So many norms fused, so many sums left. Frees the list. */
static void expect_norms(struct normed *n, int fused, int dgs, int dbs)
{
    fuse_norm(n);
    cr_assert_eq(count_kind(n->program, CT_OP_LAYERNORM_BW) +
                     count_kind(n->program, CT_OP_RMSNORM_BW),
                 fused);
    cr_assert_eq(count_kind(n->program, CT_OP_NORM_DG), dgs);
    cr_assert_eq(count_kind(n->program, CT_OP_LINEAR_DB), dbs);
    ct_program_deinit(n->program);
}

Test(fuse_norm, the_three_gradients_of_a_norm_become_one_op)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct normed n;

        begin_norm(&n);
        sum_db(&n, accumulate);
        sum_dg(&n, accumulate);
        norm_dx(&n, CT_OP_LAYERNORM_DX);
        fuse_norm(&n);
        const struct ct_program_op *op = &n.program->ops[1];
        cr_assert_eq(n.program->op_count, 2);
        cr_assert_eq(op->kind, CT_OP_LAYERNORM_BW);
        cr_assert_eq(op->stage, CT_STAGE_BACKWARD);
        cr_assert_eq(op->in[0], n.dy);
        cr_assert_eq(op->in[1], n.x);
        cr_assert_eq(op->in[2], n.g);
        cr_assert_eq(op->in[3], n.stats);
        cr_assert_eq(op->out[0], n.dx);
        cr_assert_eq(op->out[1], n.dg);
        cr_assert_eq(op->out[2], n.db);
        cr_assert_eq(op->attr.accumulate, accumulate != 0);
        ct_program_deinit(n.program);
    }
}

Test(fuse_norm, a_norm_without_a_bias_has_two_gradients_in_one_op)
{
    struct normed n;

    begin_norm(&n);
    sum_dg(&n, false);
    norm_dx(&n, CT_OP_LAYERNORM_DX);
    expect_norms(&n, 1, 0, 0);

    begin_norm(&n); /* rmsnorm_bw has no such result */
    sum_db(&n, false);
    sum_dg(&n, false);
    norm_dx(&n, CT_OP_RMSNORM_DX);
    expect_norms(&n, 1, 0, 1);

    begin_norm(&n); /* what is frozen has no gradient: nothing to read together */
    sum_db(&n, false);
    norm_dx(&n, CT_OP_LAYERNORM_DX);
    expect_norms(&n, 0, 0, 1);
}

Test(fuse_norm, only_the_sums_of_a_norms_own_rows_are_taken_into_its_gradient)
{
    struct normed n;

    begin_norm(&n); /* one adds to what is there, the other does not */
    sum_db(&n, true);
    sum_dg(&n, false);
    norm_dx(&n, CT_OP_LAYERNORM_DX);
    expect_norms(&n, 1, 0, 1);

    for (int which = 0; which < 3; which++) { /* of another dy, x, statistics */
        begin_norm(&n);
        const struct normed own = n;
        n.dy = which == 0 ? given(&n, ct_shape2(3, 4), "dy2") : n.dy;
        n.x = which == 1 ? given(&n, ct_shape2(3, 4), "x2") : n.x;
        n.stats = which == 2 ? given(&n, ct_shape2(3, 2), "stats2") : n.stats;
        sum_dg(&n, false);
        n.dy = own.dy;
        n.x = own.x;
        n.stats = own.stats;
        norm_dx(&n, CT_OP_LAYERNORM_DX);
        n.program = &n.list.program;
        expect_norms(&n, 0, 1, 0);
    }

    begin_norm(&n); /* a sum over other rows */
    sum_dg(&n, false);
    int dy = n.dy;
    n.dy = given(&n, ct_shape2(3, 4), "dy2");
    sum_db(&n, false);
    n.dy = dy;
    norm_dx(&n, CT_OP_LAYERNORM_DX);
    expect_norms(&n, 1, 0, 1);

    begin_norm(&n); /* two norms of one dy, one sum over it */
    sum_db(&n, false);
    sum_dg(&n, false);
    norm_dx(&n, CT_OP_LAYERNORM_DX);
    n.dg = ct_program_value(n.program, CT_VALUE_GRAD, CT_F32, ct_shape1(4), "dg2");
    sum_dg(&n, false);
    norm_dx(&n, CT_OP_LAYERNORM_DX);
    expect_norms(&n, 2, 0, 0);
}

/* dx is done when dg is. */
Test(fuse_norm, gradients_of_a_norm_are_one_op_where_nothing_changes_between_them)
{
    enum {
        NOTHING,
        SUM_CHANGES,
        SUM_IS_READ,
        X_CHANGES,
        G_CHANGES,
        DX_LIES_IN_DY,
        OTHER_MICRO,
        OTHER_STAGE,
        WAYS
    };

    for (int way = 0; way < WAYS; way++) {
        struct normed n;
        bool fused = way <= SUM_IS_READ;

        begin_norm(&n);
        n.program->micro = way == OTHER_MICRO;
        n.program->stage = way == OTHER_STAGE ? CT_STAGE_FORWARD : CT_STAGE_BACKWARD;
        sum_dg(&n, false);
        n.program->micro = 0;
        n.program->stage = CT_STAGE_BACKWARD;
        write_to(&n, way == X_CHANGES     ? n.x
                     : way == G_CHANGES   ? n.g
                     : way == SUM_CHANGES ? n.dg
                                          : given(&n, ct_shape2(3, 4), "other"));
        if (way == SUM_IS_READ)
            ct_program_emit(n.program, op_reading(CT_OP_RELU, n.dg, -1, -1, -1));
        struct ct_program_op dx = op_reading(CT_OP_LAYERNORM_DX, n.dy, n.x, n.g, n.stats);
        dx.out[0] = way == DX_LIES_IN_DY ? n.dy : CT_NONE;
        ct_program_emit(n.program, dx);
        expect_norms(&n, fused, !fused, 0);
    }
}

/* db is done when dg is; dg and dx when db is; or db alone. */
Test(fuse_norm, gradients_of_a_norm_meet_where_all_of_them_may_be_done)
{
    for (int way = 0; way < 4; way++) {
        bool read = way & 1, late = way & 2;
        struct normed n;

        begin_norm(&n);
        sum_db(&n, false);
        if (read) /* a tree of micro-batches adds it to another one's */
            ct_program_emit(n.program, op_reading(CT_OP_RELU, n.db, -1, -1, -1));
        if (late) /* from the host's memory */
            write_to(&n, n.x);
        sum_dg(&n, false);
        norm_dx(&n, CT_OP_LAYERNORM_DX);
        fuse_norm(&n);
        int at = read && !late ? 1 : 1 + read + late + (read && late);
        cr_assert_eq(n.program->ops[at].kind, CT_OP_LAYERNORM_BW, "way %d", way);
        cr_assert_eq(n.program->ops[at].out[2], read && late ? CT_NONE : n.db, "way %d", way);
        cr_assert_eq(count_kind(n.program, CT_OP_LINEAR_DB), read && late);
        cr_assert_eq(count_kind(n.program, CT_OP_NORM_DG), 0);
        ct_program_deinit(n.program);
    }
}

/* h = a + b and the norm of h. */
struct summed {
    struct normed n;
    int a, b, bias, h;
};

static void begin_sum(struct summed *s, struct ct_shape shape_of_b)
{
    begin_norm(&s->n);
    s->n.program->op_count = 0;
    s->n.program->stage = CT_STAGE_FORWARD;
    s->a = given(&s->n, ct_shape2(3, 4), "a");
    s->b = given(&s->n, shape_of_b, "b");
    s->bias = given(&s->n, ct_shape1(4), "bias");
    s->h = ct_program_emit(s->n.program, op_reading(CT_OP_ADD, s->a, s->b, -1, -1));
}

static void norm_of(struct summed *s, int kind, int of)
{
    int bias = kind == CT_OP_LAYERNORM ? s->bias : CT_NONE;
    struct ct_program_op op = op_reading(kind, of, s->n.g, bias, -1);

    op.attr.eps = 0.5;
    ct_program_emit(s->n.program, op);
}

/* Frees the list. */
static void expect_sums(struct summed *s, int fused)
{
    fuse_norm(&s->n);
    cr_assert_eq(count_kind(s->n.program, CT_OP_ADD_LAYERNORM) +
                     count_kind(s->n.program, CT_OP_ADD_RMSNORM),
                 fused);
    cr_assert_eq(count_kind(s->n.program, CT_OP_ADD), 1 - fused);
    ct_program_deinit(s->n.program);
}

Test(fuse_norm, a_sum_and_its_norm_become_one_op)
{
    for (int rms = 0; rms < 2; rms++) {
        struct summed s;

        begin_sum(&s, ct_shape2(3, 4));
        ct_program_emit(s.n.program,
                        op_reading(CT_OP_TANH, s.h, -1, -1, -1)); /* nor is it in the way */
        norm_of(&s, rms ? CT_OP_RMSNORM : CT_OP_LAYERNORM, s.h);
        const struct ct_program_op norm = s.n.program->ops[2];
        fuse_norm(&s.n);
        const struct ct_program_op *op = &s.n.program->ops[0];
        cr_assert_eq(s.n.program->op_count, 2);
        cr_assert_eq(op->kind, rms ? CT_OP_ADD_RMSNORM : CT_OP_ADD_LAYERNORM);
        cr_assert_eq(op->stage, CT_STAGE_FORWARD);
        cr_assert_eq(op->in[0], s.a);
        cr_assert_eq(op->in[1], s.b);
        cr_assert_eq(op->in[2], s.n.g);
        cr_assert_eq(op->in[3], rms ? CT_NONE : s.bias);
        cr_assert_eq(op->out[0], s.h);
        cr_assert_eq(op->out[1], norm.out[0]);
        cr_assert_eq(op->out[2], norm.out[1]);
        cr_assert_eq(op->attr.eps, 0.5);
        ct_program_deinit(s.n.program);
    }
}

Test(fuse_norm, only_a_sum_of_rows_that_is_normed_as_it_is_takes_its_norm_in)
{
    struct summed s;

    begin_sum(&s, ct_shape2(3, 4)); /* something changes it first */
    write_to(&s.n, s.h);
    norm_of(&s, CT_OP_LAYERNORM, s.h);
    expect_sums(&s, 0);

    begin_sum(&s, ct_shape2(3, 4)); /* a part of it */
    norm_of(&s, CT_OP_LAYERNORM,
            ct_program_view(s.n.program, s.h, 0, CT_F32, ct_shape2(2, 4), "part"));
    expect_sums(&s, 0);

    begin_sum(&s, ct_shape2(3, 4)); /* the weight is not there yet */
    write_to(&s.n, s.n.g);
    norm_of(&s, CT_OP_LAYERNORM, s.h);
    expect_sums(&s, 0);

    begin_sum(&s, ct_shape1(12)); /* of something that has no rows */
    norm_of(&s, CT_OP_LAYERNORM, s.h);
    expect_sums(&s, 0);

    begin_sum(&s, ct_shape2(3, 4)); /* the norm is computed once more, instead of being kept */
    s.n.program->stage = CT_STAGE_BACKWARD;
    norm_of(&s, CT_OP_LAYERNORM, s.h);
    expect_sums(&s, 0);

    begin_sum(&s, ct_shape2(3, 4)); /* a second norm of it stays by itself */
    norm_of(&s, CT_OP_LAYERNORM, s.h);
    norm_of(&s, CT_OP_RMSNORM, s.h);
    expect_sums(&s, 1);

    begin_sum(&s, ct_shape2(3, 4)); /* a product */
    s.n.program->ops[0].kind = CT_OP_MUL;
    norm_of(&s, CT_OP_LAYERNORM, s.h);
    fuse_norm(&s.n);
    cr_assert_eq(s.n.program->op_count, 2);
    ct_program_deinit(s.n.program);
}
