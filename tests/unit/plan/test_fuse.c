/* Fusing: what becomes one op, and what does not. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"

#include <criterion/criterion.h>

TestSuite(fuse, .timeout = 10);

/* A list with a loss of 3 rows of 4 classes, its count and its gradient; ops may be put between. */
struct scene {
    struct ct_plan_list list;
    struct ct_program *program;
    int logits, labels, scale, loss, correct, stats, dlogits;
};

static void begin(struct scene *s)
{
    *s = (struct scene){0};
    s->program = &s->list.program;
    ct_program_init(s->program);
    s->program->stage = CT_STAGE_FORWARD;
    s->labels = ct_program_value(s->program, CT_VALUE_INPUT, CT_I32, ct_shape1(3), "labels");
    s->scale = ct_program_value(s->program, CT_VALUE_INPUT, CT_F64, ct_shape1(1), "scale");
    s->loss = ct_program_value(s->program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "loss");
    s->correct = ct_program_value(s->program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "correct");
    s->logits = ct_program_value(s->program, CT_VALUE_TEMP, CT_F32, ct_shape2(3, 4), "logits");
    struct ct_program_op fill = ct_program_op(CT_OP_FILL);
    fill.out[0] = s->logits;
    ct_program_emit(s->program, fill);
    struct ct_program_op loss = op_reading(CT_OP_CROSS_ENTROPY, s->logits, s->labels, -1, -1);
    loss.out[0] = s->loss;
    loss.attr.accumulate = true;
    ct_program_emit(s->program, loss);
    s->stats = s->program->ops[s->program->op_count - 1].out[1];
}

static void count(struct scene *s)
{
    struct ct_program_op op = op_reading(CT_OP_CORRECT, s->logits, s->labels, -1, -1);

    op.out[0] = s->correct;
    ct_program_emit(s->program, op);
}

static void back(struct scene *s, int scale)
{
    s->program->stage = CT_STAGE_BACKWARD;
    s->dlogits = ct_program_emit(
        s->program, op_reading(CT_OP_CROSS_ENTROPY_BW, s->logits, s->labels, s->stats, scale));
}

/* Whether the loss was fused. Frees the scene. */
static bool fuses(struct scene *s)
{
    struct ct_error err = {0};
    int ops = s->program->op_count;

    cr_assert_eq(ct_plan_fuse_loss(&s->list, &err), 0, "%s", err.text);
    int fused = count_kind(s->program, CT_OP_CROSS_ENTROPY_GRAD);
    cr_assert_eq(s->program->op_count, ops);
    cr_assert_eq(count_kind(s->program, CT_OP_CROSS_ENTROPY_BW), 1 - fused);
    cr_assert_eq(count_kind(s->program, CT_OP_SUM_ROWS), 2 * fused);
    ct_program_deinit(s->program);
    return fused == 1;
}

Test(fuse, a_loss_its_count_and_its_gradient_become_one_op_and_two_sums)
{
    struct ct_error err = {0};
    struct scene s;

    begin(&s);
    count(&s);
    back(&s, s.scale);
    ct_program_emit(s.program, op_reading(CT_OP_RELU, s.dlogits, -1, -1, -1));
    cr_assert_eq(ct_plan_fuse_loss(&s.list, &err), 0, "%s", err.text);
    const struct ct_program_op *ops = s.program->ops;
    cr_assert_eq(s.program->op_count, 5);
    cr_assert_eq(ops[1].kind, CT_OP_CROSS_ENTROPY_GRAD);
    cr_assert_eq(ops[1].stage, CT_STAGE_FORWARD);
    cr_assert_eq(ops[1].in[0], s.logits);
    cr_assert_eq(ops[1].in[1], s.labels);
    cr_assert_eq(ops[1].in[2], s.scale);
    cr_assert_eq(ops[1].out[0], s.dlogits);
    cr_assert_eq(ops[2].in[0], ops[1].out[1]);
    cr_assert_eq(ops[2].out[0], s.loss);
    cr_assert(ops[2].attr.accumulate);
    cr_assert_eq(ops[3].in[0], ops[1].out[2]);
    cr_assert_eq(ops[3].out[0], s.correct);
    cr_assert_not(ops[3].attr.accumulate);
    cr_assert_eq(ops[4].kind, CT_OP_RELU);
    ct_program_deinit(s.program);
}

Test(fuse, a_loss_that_something_else_depends_on_stays)
{
    struct scene s;

    begin(&s); /* its statistics are read once more */
    count(&s);
    ct_program_emit(s.program, op_reading(CT_OP_RELU, s.stats, -1, -1, -1));
    back(&s, s.scale);
    cr_assert_not(fuses(&s));

    begin(&s); /* its logits change before the gradient */
    count(&s);
    struct ct_program_op axpy = op_reading(CT_OP_AXPY, s.logits, -1, -1, -1);
    axpy.out[0] = s.logits;
    ct_program_emit(s.program, axpy);
    back(&s, s.scale);
    cr_assert_not(fuses(&s));

    begin(&s); /* the scale is computed, perhaps behind the loss */
    count(&s);
    back(&s, ct_program_emit(s.program, op_reading(CT_OP_COPY, s.scale, -1, -1, -1)));
    cr_assert_not(fuses(&s));

    begin(&s); /* nothing is counted */
    back(&s, s.scale);
    cr_assert_not(fuses(&s));

    begin(&s); /* what is right is counted before the loss is there */
    count(&s);
    struct ct_program_op loss = s.program->ops[1];
    s.program->ops[1] = s.program->ops[2];
    s.program->ops[2] = loss;
    back(&s, s.scale);
    cr_assert_not(fuses(&s));

    begin(&s); /* labels are not there from the start */
    s.program->values[s.labels].kind = CT_VALUE_TEMP;
    count(&s);
    back(&s, s.scale);
    cr_assert_not(fuses(&s));

    begin(&s); /* the logits change when the gradient is there */
    count(&s);
    back(&s, s.scale);
    ct_program_emit(s.program, axpy);
    cr_assert(fuses(&s));
}

Test(fuse, every_micro_batch_of_every_schedule_has_its_own)
{
    for (int order = CT_PLAN_GPIPE; order <= CT_PLAN_1F1B; order++)
        for (int stages = 1; stages <= 2; stages++) {
            struct ct_plan_options options = plan_options;
            struct ct_plan plan;

            options.world = stages;
            options.rank = stages - 1;
            options.stages = stages;
            options.order = (enum ct_plan_order)order;
            plan_init(&plan, &options);
            const struct ct_program *step = &plan.step.program;
            cr_assert_eq(count_kind(step, CT_OP_CROSS_ENTROPY_GRAD), options.accumulation);
            cr_assert_eq(count_kind(step, CT_OP_SUM_ROWS), 2 * options.accumulation);
            cr_assert_eq(count_kind(step, CT_OP_CROSS_ENTROPY), 0);
            cr_assert_eq(count_kind(step, CT_OP_CROSS_ENTROPY_BW), 0);
            cr_assert_eq(count_kind(step, CT_OP_CORRECT), 0);
            cr_assert_eq(count_kind(&plan.eval.program, CT_OP_CROSS_ENTROPY), 1);
            ct_plan_deinit(&plan);
        }
}

/* The gradient takes the place of the logits, so that there is no second matrix of that size. */
Test(fuse, the_gradient_lies_where_the_logits_lay)
{
    struct ct_plan plan;

    plan_init(&plan, &plan_options);
    for (int nth = 0; nth < plan_options.accumulation; nth++) {
        const struct ct_program_op *op =
            &plan.step.program.ops[find_op(&plan, CT_OP_CROSS_ENTROPY_GRAD, nth)];
        cr_assert_eq(ct_plan_offset(&plan.step, op->out[0]), ct_plan_offset(&plan.step, op->in[0]));
    }
    ct_plan_deinit(&plan);
}

/* ---- products that end with an activation --------------------------------------------------- */

/* A linear layer of 3 rows, 4 columns to 6, and gelu_tanh; back through both from dy. */
struct layers {
    struct ct_plan_list list;
    struct ct_program *program;
    int x, w, b, pre, y, dy, w2, dh, dx;
};

static int input(struct layers *l, int64_t rows, int64_t columns, const char *name)
{
    return ct_program_value(l->program, CT_VALUE_INPUT, CT_F32, ct_shape2(rows, columns), name);
}

static void begin_layers(struct layers *l)
{
    *l = (struct layers){0};
    l->program = &l->list.program;
    ct_program_init(l->program);
    l->program->stage = CT_STAGE_FORWARD;
    l->x = input(l, 3, 4, "x");
    l->w = input(l, 6, 4, "w");
    l->b = ct_program_value(l->program, CT_VALUE_INPUT, CT_F32, ct_shape1(6), "b");
    l->dy = input(l, 3, 5, "dy");
    l->w2 = input(l, 5, 6, "w2");
    l->pre = ct_program_emit(l->program, op_reading(CT_OP_LINEAR, l->x, l->w, l->b, -1));
}

static int op_of(struct layers *l, int kind, int a, int c)
{
    return ct_program_emit(l->program, op_reading(kind, a, c, -1, -1));
}

static void activate(struct layers *l)
{
    l->y = op_of(l, CT_OP_GELU_TANH, l->pre, -1);
}

static void back_product(struct layers *l)
{
    l->program->stage = CT_STAGE_BACKWARD;
    l->dh = op_of(l, CT_OP_LINEAR_DX, l->dy, l->w2);
}

static void back_activation(struct layers *l)
{
    l->dx = op_of(l, CT_OP_GELU_TANH_BW, l->dh, l->pre);
}

static void fuse_gelu(struct layers *l)
{
    struct ct_error err = {0};

    cr_assert_eq(l->program->error.code, 0, "%s", l->program->error.text);
    cr_assert_eq(ct_plan_fuse_gelu(&l->list, &err), 0, "%s", err.text);
}

/* Frees the layers. */
static void expect_fused(struct layers *l, bool forward, bool backward)
{
    int ops = l->program->op_count;

    fuse_gelu(l);
    cr_assert_eq(count_kind(l->program, CT_OP_LINEAR_GELU), forward);
    cr_assert_eq(count_kind(l->program, CT_OP_LINEAR_DX_GELU), backward);
    cr_assert_eq(l->program->op_count, ops - forward - backward);
    ct_program_deinit(l->program);
}

Test(fuse, a_linear_layer_and_its_gelu_become_one_op_and_so_do_their_gradients)
{
    struct layers l;

    begin_layers(&l);
    activate(&l);
    back_product(&l);
    back_activation(&l);
    fuse_gelu(&l);
    const struct ct_program_op *ops = l.program->ops;
    cr_assert_eq(l.program->op_count, 2);
    cr_assert_eq(ops[0].kind, CT_OP_LINEAR_GELU);
    cr_assert_eq(ops[0].stage, CT_STAGE_FORWARD);
    cr_assert_eq(ops[0].in[0], l.x);
    cr_assert_eq(ops[0].in[1], l.w);
    cr_assert_eq(ops[0].in[2], l.b);
    cr_assert_eq(ops[0].out[0], l.y);
    cr_assert_eq(ops[0].out[1], l.pre);
    cr_assert_eq(ops[1].kind, CT_OP_LINEAR_DX_GELU);
    cr_assert_eq(ops[1].stage, CT_STAGE_BACKWARD);
    cr_assert_eq(ops[1].in[0], l.dy);
    cr_assert_eq(ops[1].in[1], l.w2);
    cr_assert_eq(ops[1].in[2], l.pre);
    cr_assert_eq(ops[1].out[0], l.dx);
    ct_program_deinit(l.program);
}

Test(fuse, only_gelu_tanh_of_all_that_a_product_gives_is_taken_into_it)
{
    struct layers l;

    begin_layers(&l); /* the other GELU */
    op_of(&l, CT_OP_GELU, l.pre, -1);
    back_product(&l);
    op_of(&l, CT_OP_GELU_BW, l.dh, l.pre);
    expect_fused(&l, false, false);

    begin_layers(&l); /* something changes it first */
    l.pre = op_of(&l, CT_OP_ADD, l.pre, l.pre);
    activate(&l);
    expect_fused(&l, false, false);

    begin_layers(&l); /* a part of it */
    int part = ct_program_view(l.program, l.pre, 0, CT_F32, ct_shape2(2, 6), "part");
    op_of(&l, CT_OP_GELU_TANH, part, -1);
    expect_fused(&l, false, false);

    begin_layers(&l); /* the product gives a part of it */
    int whole = ct_program_value(l.program, CT_VALUE_TEMP, CT_F32, ct_shape2(6, 6), "whole");
    l.program->ops[0].out[0] =
        ct_program_view(l.program, whole, 0, CT_F32, ct_shape2(3, 6), "half");
    op_of(&l, CT_OP_GELU_TANH, whole, -1);
    expect_fused(&l, false, false);

    begin_layers(&l); /* somebody reads it in between */
    op_of(&l, CT_OP_TANH, l.pre, -1);
    activate(&l);
    expect_fused(&l, false, false);

    begin_layers(&l); /* the gradient of the product is wanted, too */
    activate(&l);
    back_product(&l);
    back_activation(&l);
    op_of(&l, CT_OP_TANH, l.dh, -1);
    expect_fused(&l, true, false);

    begin_layers(&l); /* likewise, behind the list */
    activate(&l);
    back_product(&l);
    l.program->values[l.dh].kind = CT_VALUE_OUTPUT;
    back_activation(&l);
    expect_fused(&l, true, false);
}

Test(fuse, what_a_product_reads_is_still_there_when_the_activation_follows)
{
    for (int written = 0; written < 2; written++) {
        struct ct_program_op fill = ct_program_op(CT_OP_FILL);
        struct layers l;

        begin_layers(&l);
        fill.out[0] = written ? l.x : input(&l, 3, 4, "other");
        ct_program_emit(l.program, fill);
        activate(&l);
        expect_fused(&l, !written, false);
    }
}

/* Recomputed alone, it is to have the bits that it had. */
Test(fuse, an_activation_that_is_computed_twice_stays_apart)
{
    struct layers l;

    begin_layers(&l);
    activate(&l);
    back_product(&l);
    op_of(&l, CT_OP_GELU_TANH, l.pre, -1);
    back_activation(&l);
    expect_fused(&l, false, true);
}

static void expect_gpt(struct ct_plan_options options, int forward, int backward, const char *what)
{
    static const struct ct_model_spec spec = {
        .type = CT_MODEL_GPT,
        .dtype = CT_F32,
        .gpt = {.vocabulary = 96, .context = 16, .layers = 4, .heads = 2, .width = 32}};
    struct ct_error err = {0};
    struct ct_plan plan;

    cr_assert_eq(ct_plan_build(&plan, &spec, &options, 1, &err), 0, "%s: %s", what, err.text);
    const struct ct_program *step = &plan.step.program;

    cr_assert_eq(count_kind(step, CT_OP_LINEAR_GELU), forward, "%s: %d", what,
                 count_kind(step, CT_OP_LINEAR_GELU));
    cr_assert_eq(count_kind(step, CT_OP_LINEAR_DX_GELU), backward, "%s: %d", what,
                 count_kind(step, CT_OP_LINEAR_DX_GELU));
    cr_assert_eq(count_kind(step, CT_OP_NORM_DG) == 0, options.fuses, "%s", what);
    cr_assert_eq(count_kind(step, CT_OP_LAYERNORM_DX) == 0, options.fuses, "%s", what);
    cr_assert_eq(count_kind(step, CT_OP_LAYERNORM_BW) > 0, options.fuses, "%s", what);
    cr_assert_eq(count_kind(step, CT_OP_ADD_LAYERNORM) > 0, options.fuses, "%s", what);
    ct_plan_deinit(&plan);
}

/* 4 blocks, 4 micro-batches; no norm is left that has not all of its gradients in one op. */
Test(fuse, a_block_has_one_such_layer_in_every_plan_for_a_device_that_fuses)
{
    struct ct_plan_options options = plan_options;

    expect_gpt(options, 0, 0, "for the CPU");
    options.fuses = true;
    expect_gpt(options, 16, 16, "ddp");
    options.compute = CT_BF16;
    expect_gpt(options, 16, 16, "bf16");
    options.shard = CT_PLAN_SHARD_FULL;
    expect_gpt(options, 16, 16, "fsdp");
    options.offload = true;
    expect_gpt(options, 16, 16, "offload");
    options = plan_options;
    options.fuses = true;
    options.tensor = 2;
    expect_gpt(options, 16, 16, "slices");
    options.sequence = true;
    expect_gpt(options, 16, 16, "tokens");
    options = plan_options;
    options.fuses = true;
    options.stages = 2;
    expect_gpt(options, 8, 8, "stages");
    options.order = CT_PLAN_1F1B;
    options.recompute = CT_PLAN_RECOMPUTE_BLOCK;
    expect_gpt(options, 16, 8, "stages, blocks once more");
    options.recompute = CT_PLAN_RECOMPUTE_GELU;
    expect_gpt(options, 0, 8, "stages, gelu once more");
}
