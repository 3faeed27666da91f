/* Autodiff: its ops, and its gradients against finite differences in f64. */
#include "base/assert.h"
#include "base/number/rng.h"
#include "graph/model.h"
#include "tests/unit/graph/interpret.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(backward, .timeout = 30);

static double uniform(struct ct_rng *rng)
{
    return (double)(ct_rng_next(rng) >> 11) / (double)(1ull << 52) - 1;
}

static double at(const struct interpreter *in, int value, int64_t i)
{
    return ((double *)interpreter_at(in, value))[i];
}

/* The largest difference between the gradient that the program computes for `param` and the central
 * difference of the loss, relative to the largest gradient. */
static double worst_difference(struct interpreter *in, const struct ct_model *model, int forward,
                               struct ct_model_param param)
{
    const double h = 1e-5;
    int64_t count = ct_shape_elements(in->program->values[param.value].shape);
    double *p = interpreter_at(in, param.value), worst = 0, largest = 0;

    for (int64_t i = 0; i < count; i++) {
        double old = p[i], loss[2];
        for (int side = 0; side < 2; side++) {
            p[i] = old + (side == 0 ? -h : h);
            interpreter_run(in, 0, forward);
            loss[side] = at(in, model->loss, 0) * at(in, model->inv_valid, 0);
        }
        p[i] = old;
        double difference = (loss[1] - loss[0]) / (2 * h);
        worst = fmax(worst, fabs(difference - at(in, param.grad, i)));
        largest = fmax(largest, fabs(difference));
    }
    cr_assert_gt(largest, 0);
    return worst / largest;
}

/* Parameters around their first values, inputs and labels. */
static void fill_model(struct interpreter *in, const struct ct_model *model, int64_t rows,
                       int64_t classes, struct ct_rng *rng)
{
    const struct ct_value *values = model->program.values, *x = &values[model->x];

    for (int i = 0; i < model->param_count; i++) {
        struct ct_init init = model->params[i].init;
        bool constant = init.kind == CT_INIT_CONSTANT;
        double middle = constant ? init.amount : 0, spread = constant ? 0.2 : init.amount;
        double *p = interpreter_at(in, model->params[i].value);
        if (init.kind == CT_INIT_NORMAL)
            spread *= 20; /* far from linear */
        for (int64_t k = 0; k < ct_shape_elements(values[model->params[i].value].shape); k++)
            p[k] = middle + spread * uniform(rng);
    }
    for (int64_t i = 0; i < ct_shape_elements(x->shape); i++)
        if (x->dtype == CT_I32)
            ((int32_t *)interpreter_at(in, model->x))[i] =
                (int32_t)ct_rng_below(rng, (uint64_t)classes);
        else
            ((double *)interpreter_at(in, model->x))[i] = uniform(rng);
    int64_t labels = ct_shape_elements(values[model->labels].shape);
    for (int64_t i = 0; i < labels; i++)
        ((int32_t *)interpreter_at(in, model->labels))[i] = i == 2 ? -1 : (int32_t)(i % classes);
    *(double *)interpreter_at(in, model->inv_valid) = 1.0 / (double)(labels - 1);
    if (model->draw != CT_NONE) {
        double *draw = interpreter_at(in, model->draw);
        draw[0] = 1;
        draw[1] = (double)rows;
    }
}

static void check_model(const struct ct_model_spec *spec, int64_t rows, int64_t classes)
{
    struct ct_model model;
    struct ct_error err = {0};
    struct interpreter in;
    struct ct_rng rng;

    cr_assert_eq(ct_model_build(&model, spec, rows, &err), 0, "%s", err.text);
    interpreter_init(&in, &model.program);
    ct_rng_init(&rng, 7);
    fill_model(&in, &model, rows, classes, &rng);
    interpreter_run(&in, 0, model.program.op_count);
    for (int i = 0; i < model.param_count; i++) {
        double worst = worst_difference(&in, &model, model.forward_count, model.params[i]);
        cr_assert_lt(worst, 1e-6, "%s, activation %d, loss %d: %g",
                     model.program.values[model.params[i].value].name, spec->activation, spec->loss,
                     worst);
    }
    interpreter_deinit(&in);
    ct_model_deinit(&model);
}

Test(backward, gradients_of_every_model_equal_finite_differences)
{
    static const int64_t hidden[] = {6, 3};

    for (int activation = 0; activation < CT_ACT_COUNT; activation++)
        for (int loss = 0; loss < CT_LOSS_COUNT; loss++)
            for (int layers = 0; layers <= 2; layers++)
                check_model(&(struct ct_model_spec){.input = 4,
                                                    .hidden = hidden,
                                                    .hidden_count = layers,
                                                    .classes = 3,
                                                    .activation = (enum ct_activation)activation,
                                                    .loss = (enum ct_loss)loss,
                                                    .dtype = CT_F64},
                            5, 3);
}

Test(backward, gradients_of_every_gpt_equal_finite_differences)
{
    const struct ct_gpt_spec small = {
        .vocabulary = 7, .context = 6, .sequence = 5, .layers = 2, .heads = 2, .width = 8};
    struct ct_gpt_spec specs[] = {small, small, small, small};

    specs[1].positions = CT_POSITIONS_ROTARY;
    specs[1].norm = CT_NORM_RMS;
    specs[1].mlp = CT_MLP_SWIGLU;
    specs[1].untied = specs[1].unbiased = true;
    specs[1].inner = 12;
    specs[2].dropout = 0.3;
    specs[3].norm = CT_NORM_RMS;
    specs[3].mlp = CT_MLP_SWIGLU;
    specs[3].unbiased = true;
    specs[3].eps = 1e-3;
    for (size_t i = 0; i < CT_COUNT(specs); i++)
        check_model(&(struct ct_model_spec){.type = CT_MODEL_GPT, .gpt = specs[i], .dtype = CT_F64},
                    3, 7);
}

Test(backward, gradients_of_images_equal_finite_differences)
{
    static const struct ct_layer_spec plain[] = {
        {.kind = CT_LAYER_CONV2D, .out = 3, .kernel = 3, .pad = 1, .act = CT_ACT_TANH},
        {.kind = CT_LAYER_AVGPOOL, .kernel = 2},
        {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 2, .stride = 1, .act = CT_ACT_GELU},
        {.kind = CT_LAYER_MAXPOOL, .kernel = 2, .stride = 1},
        {.kind = CT_LAYER_FLATTEN},
        {.kind = CT_LAYER_DROPOUT, .rate = 0.2},
        {.kind = CT_LAYER_LINEAR, .out = 3, .act = CT_LAYER_NO_ACT},
    };
    static const struct ct_layer_spec sparse[] = {
        {.kind = CT_LAYER_MAXPOOL, .kernel = 3, .stride = 2, .pad = 1},
        {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .stride = 2, .pad = 2, .act = CT_ACT_TANH},
        {.kind = CT_LAYER_AVGPOOL, .kernel = 3, .stride = 1, .pad = 1},
        {.kind = CT_LAYER_CONV2D, .out = 5, .kernel = 1, .act = CT_LAYER_NO_ACT},
        {.kind = CT_LAYER_FLATTEN},
        {.kind = CT_LAYER_LINEAR, .out = 3, .act = CT_LAYER_NO_ACT},
    };
    static const struct ct_layer_spec body[] = {
        {.kind = CT_LAYER_CONV2D,
         .out = 3,
         .kernel = 3,
         .pad = 1,
         .unbiased = true,
         .act = CT_LAYER_NO_ACT},
        {.kind = CT_LAYER_BATCH_NORM, .sync = true},
        {.kind = CT_LAYER_TANH},
    };
    static const struct ct_layer_spec shortcut[] = {
        {.kind = CT_LAYER_CONV2D, .out = 3, .kernel = 1, .unbiased = true, .act = CT_LAYER_NO_ACT},
        {.kind = CT_LAYER_BATCH_NORM, .eps = 1e-2},
    };
    static const struct ct_layer_spec residual[] = {
        {.kind = CT_LAYER_BATCH_NORM},
        {.kind = CT_LAYER_RESIDUAL,
         .body = {body, CT_COUNT(body)},
         .shortcut = {shortcut, CT_COUNT(shortcut)},
         .act = CT_ACT_GELU},
        {.kind = CT_LAYER_FLATTEN},
        {.kind = CT_LAYER_BATCH_NORM, .sync = true},
        {.kind = CT_LAYER_LINEAR, .out = 3, .act = CT_LAYER_NO_ACT},
    };
    struct ct_layers_spec specs[] = {
        {.channels = 2, .height = 3, .width = 4, .layers = residual, .count = CT_COUNT(residual)},
        {.channels = 1, .height = 7, .width = 8, .layers = plain, .count = CT_COUNT(plain)},
        {.channels = 2, .height = 9, .width = 7, .layers = sparse, .count = CT_COUNT(sparse)},
        {.channels = 6, .layers = plain + 6, .count = 1},
    };

    for (size_t i = 0; i < CT_COUNT(specs); i++)
        check_model(
            &(struct ct_model_spec){.type = CT_MODEL_LAYERS, .layers = specs[i], .dtype = CT_F64},
            i == 0 ? 7 : 3, 3);
}

/* ---- programs that no model makes: shared, scaled and unused parameters --------------------- */

struct graph {
    struct ct_program program;
    int x, target, scale, loss;
};

static int unary(struct ct_program *p, int kind, int a, double alpha)
{
    struct ct_program_op op = ct_program_op(kind);

    op.in[0] = a;
    op.attr.alpha = alpha;
    return ct_program_emit(p, op);
}

static int binary(struct ct_program *p, int kind, int a, int b)
{
    struct ct_program_op op = ct_program_op(kind);

    op.in[0] = a;
    op.in[1] = b;
    return ct_program_emit(p, op);
}

static void graph_init(struct graph *g)
{
    struct ct_program *p = &g->program;

    ct_program_init(p);
    g->x = ct_program_value(p, CT_VALUE_INPUT, CT_F64, ct_shape2(3, 2), "x");
    g->target = ct_program_value(p, CT_VALUE_INPUT, CT_F64, ct_shape2(3, 2), "target");
    g->scale = ct_program_value(p, CT_VALUE_INPUT, CT_F64, ct_shape1(1), "scale");
}

static struct ct_model_param param(struct graph *g, struct ct_shape shape, const char *name)
{
    return (struct ct_model_param){
        .value = ct_program_value(&g->program, CT_VALUE_PARAM, CT_F64, shape, name),
        .grad = ct_program_value(&g->program, CT_VALUE_GRAD, CT_F64, shape, "grad")};
}

/* Close with the squared error, differentiate, compare with finite differences. */
static void check_graph(struct graph *g, int y, const struct ct_model_param *params, int count)
{
    struct ct_grad_pair pairs[4];
    struct interpreter in;
    struct ct_rng rng;

    g->loss = binary(&g->program, CT_OP_MSE, y, g->target);
    int forward = g->program.op_count;
    for (int i = 0; i < count; i++)
        pairs[i] = (struct ct_grad_pair){params[i].value, params[i].grad};
    ct_program_backward(&g->program, g->loss, g->scale, pairs, count);
    interpreter_init(&in, &g->program);
    ct_rng_init(&rng, 3);
    for (int i = 0; i < g->program.value_count; i++)
        if (g->program.values[i].kind == CT_VALUE_PARAM ||
            g->program.values[i].kind == CT_VALUE_INPUT)
            for (int64_t k = 0; k < ct_shape_elements(g->program.values[i].shape); k++)
                ((double *)interpreter_at(&in, i))[k] = uniform(&rng);
    interpreter_run(&in, 0, g->program.op_count);
    struct ct_model model = {.loss = g->loss, .inv_valid = g->scale};
    for (int i = 0; i < count; i++)
        cr_assert_lt(worst_difference(&in, &model, forward, params[i]), 1e-6);
    interpreter_deinit(&in);
    ct_program_deinit(&g->program);
}

Test(backward, a_parameter_used_twice_gets_the_sum)
{
    struct graph g;

    graph_init(&g);
    struct ct_model_param w = param(&g, ct_shape2(2, 2), "w");
    int h = unary(&g.program, CT_OP_TANH, binary(&g.program, CT_OP_LINEAR, g.x, w.value), 0);
    check_graph(&g, binary(&g.program, CT_OP_LINEAR, h, w.value), &w, 1);
}

Test(backward, a_value_used_twice_gets_the_sum)
{
    struct graph g;

    graph_init(&g);
    struct ct_model_param w = param(&g, ct_shape2(2, 2), "w");
    int h = binary(&g.program, CT_OP_LINEAR, g.x, w.value);
    int a = unary(&g.program, CT_OP_TANH, h, 0);
    int b = unary(&g.program, CT_OP_SCALE, h, -1.5);
    int c = unary(&g.program, CT_OP_COPY, b, 0);
    check_graph(&g, binary(&g.program, CT_OP_ADD, a, c), &w, 1);
}

Test(backward, a_parameter_may_be_added_itself)
{
    struct graph g;

    graph_init(&g);
    struct ct_model_param p = param(&g, ct_shape2(3, 2), "p");
    int twice = binary(&g.program, CT_OP_ADD, p.value, p.value);
    check_graph(&g, binary(&g.program, CT_OP_ADD, twice, unary(&g.program, CT_OP_GELU, p.value, 0)),
                &p, 1);
}

Test(backward, a_parameter_that_the_loss_does_not_see_gets_zero)
{
    struct graph g;
    struct interpreter in;

    graph_init(&g);
    struct ct_model_param p = param(&g, ct_shape2(3, 2), "p");
    g.loss = binary(&g.program, CT_OP_MSE, g.x, g.target);
    ct_program_backward(&g.program, g.loss, g.scale, &(struct ct_grad_pair){p.value, p.grad}, 1);
    interpreter_init(&in, &g.program);
    memset(interpreter_at(&in, p.grad), 0xff, 6 * sizeof(double));
    interpreter_run(&in, 0, g.program.op_count);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(at(&in, p.grad, i), 0);
    interpreter_deinit(&in);
    ct_program_deinit(&g.program);
}

Test(backward, the_gradient_of_the_input_is_not_computed)
{
    static const int64_t hidden[] = {6};
    struct ct_model model;
    int dx = 0;

    struct ct_model_spec spec = {
        .input = 4, .hidden = hidden, .hidden_count = 1, .classes = 3, .dtype = CT_F32};
    cr_assert_eq(ct_model_build(&model, &spec, 2, NULL), 0);
    for (int i = 0; i < model.program.op_count; i++)
        dx += model.program.ops[i].kind == CT_OP_LINEAR_DX;
    cr_assert_eq(dx, 1, "one for the hidden layer, none for x");
    ct_model_deinit(&model);
}
